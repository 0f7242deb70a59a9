"""The view-model: one comparison, one state, and the grids and indexes built from them once.

Renders nothing and knows no widget. Faces read it, and change it only through `act` and the few
actions that take an argument. Grids and jump indexes are built when first asked for and kept;
`warm` builds them ahead of time, from any thread.

Axes: L layer, T row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from workbench.address import Address
from workbench.errors import UsageError
from workbench.names import DEFAULT_CLASS_ORDER, DIVERGENCE_CLASSES, DivergenceClass
from workbench.view import geometry, leaps
from workbench.view.actions import ACTION_BY_ID
from workbench.view.carry import carried
from workbench.view.facts import cell_facts, comparison_facts, recorded_sites
from workbench.view.filters import Filter
from workbench.view.find import Text, token_id_of
from workbench.view.geometry import Geometry, Viewport
from workbench.view.grids import Grids, Recent
from workbench.view.inspector import CellFacts
from workbench.view.jumps import JumpIndex, count_between
from workbench.view.lenses import LENSES, is_error_lens, lens_of_site, missing_cells
from workbench.view.link import Link, same_place
from workbench.view.local import attribution
from workbench.view.meaning import legend, meaning
from workbench.view.opening import at_site, opening_state
from workbench.view.rows import text_width
from workbench.view.source import Source
from workbench.view.state import Area, Cell, LensId, Order, ViewState
from workbench.view.transitions import go, say
from workbench.view.walk import is_site


class ViewModel:
    """State and facts behind a face.

    Args:
        source: The comparison.
        at: Where to open; the first divergence of the default class when not given.

    Attributes:
        source: The comparison.
        origin: Where it is opened again; two captures where the comparison does not stay.
        state: What is shown; replaced by `act`, never changed in place.
        viewport: What the face can show of the grid; the face keeps it up to date.
        facts: What the comparison is, for titles and status lines.
        attribution: Which modules are wrong and who is; None before `kldive attribute`.
        sites: Short names of the recorded layer sites, in execution order.
        grids: Codes, masks and jump indexes.
    """

    def __init__(self, source: Source, *, at: Address | None = None) -> None:
        self.source = source
        self.origin = Link(directory=str(source.directory.resolve()))
        self.num_layers = source.num_layers
        self.num_rows = source.num_rows
        self.facts = comparison_facts(source)
        self.attribution = attribution(source)
        self.sites = recorded_sites(source)
        self.grids = Grids(source, self.attribution)
        self._facts_of: tuple[Cell, str] | None = None
        self._facts_here: CellFacts
        self._hits: Recent[np.ndarray] = Recent(8)
        self._searchable: Text | None = None
        self._num_missing: dict[LensId, int] = {}
        self._texts = source.rows["text"]
        self._request_starts = _request_starts(source)
        self.token_width = text_width(self._texts.to_list())
        self.viewport = Viewport()
        self.state = opening_state(self, at)

    def act(self, action_id: str) -> ViewState:
        """Carries out an action and returns the state before it.

        Raises:
            KeyError: There is no such action, or the face has to carry it out.
        """
        run = ACTION_BY_ID[action_id].run
        if run is None:
            raise KeyError(f"{action_id} belongs to the face")
        return self._become(run(self._quiet, self))

    def choose_class(self, klass: DivergenceClass) -> ViewState:
        """Looks for another class from now on; returns the state before."""
        return self._become(leaps.choose_class(self._quiet, self, klass))

    def choose_tolerance(self, profile: str) -> ViewState:
        """Judges by another tolerance profile; returns the state before.

        Raises:
            UsageError: There is no such profile.
        """
        found = self.source.budgets(profile)
        state = replace(self._quiet, tolerance=found.profile)
        return self._become(say(state, f"judged by {found.profile}: {found.reason}"))

    def choose_filter(self, wanted: Filter) -> ViewState:
        """Shows only some cells; returns the state before."""
        words = f"shown: {wanted}; backspace shows every cell" if wanted else "every cell is shown"
        return self._become(say(replace(self._quiet, filter=wanted), words))

    def choose_lens(self, lens: LensId) -> ViewState:
        """Looks through a lens; returns the state before."""
        return self._become(replace(self._quiet, lens=lens))

    def search(self, query: str) -> ViewState:
        """Goes to the first hit of a text or `#id`; returns the state before."""
        return self._become(leaps.search(self._quiet, self, query))

    def say(self, message: str) -> ViewState:
        """Shows a line to the person; returns the state before."""
        return self._become(replace(self.state, message=message))

    def move_to(self, cell: Cell, site: str | None = None) -> ViewState:
        """Leaps to a cell, and to a site of it when given; returns the state before."""
        state = leaps.leap(self._quiet, cell, self)
        return self._become(at_site(state, site, self))

    def open_link(self, link: Link) -> ViewState:
        """Shows what a link says of this comparison; returns the state before.

        Raises:
            UsageError: The link leads to another comparison, or names an unknown tolerance.
        """
        if not same_place(link, self.origin):
            raise UsageError(
                "the link leads to another comparison",
                where=link.directory or "two captures",
                do=f"{link.command} opens it",
            )
        quiet = self._quiet
        tolerance = self.source.budgets(link.tolerance or quiet.tolerance or None).profile
        state = replace(
            quiet,
            lens=link.lens or quiet.lens,
            side=link.side or quiet.side,
            klass=link.klass or quiet.klass,
            tolerance=tolerance,
            site=link.at.site if link.at.site in self.sites else quiet.site,
        )
        layer = state.layer if link.at.layer is None else link.at.layer
        row = state.row if link.at.row is None else link.at.row
        return self._become(leaps.leap(state, Cell(layer, row), self))

    def link(self) -> Link:
        """What opens this view again."""
        state = self.state
        return replace(
            self.origin,
            at=Address(layer=state.layer, row=state.row, site=state.site),
            lens=state.lens,
            side=state.side,
            tolerance=state.tolerance or None,
            klass=state.klass,
        )

    def select(self, corner: Cell, opposite: Cell) -> ViewState:
        """Selects the cells between two corners; returns the state before."""
        state = replace(go(self._quiet, opposite, self), area=Area(corner, opposite))
        return self._become(replace(state, selecting=False))

    @property
    def _quiet(self) -> ViewState:
        return replace(self.state, message="")

    def _become(self, after: ViewState) -> ViewState:
        before = self.state
        if after.selecting and after.area is not None:
            after = replace(after, area=Area(after.area.corner, after.cell))
        self.state = after
        return before

    def take(self, fresh: ViewModel) -> ViewState:
        """Becomes another view-model, of the same recording grown or measured again.

        What the person chose stays; cells keep their request and position, and a cursor on the last
        row follows the end. Returns the state before.
        """
        before, viewport = self.state, self.viewport
        state = carried(before, self.source.rows, fresh.source.rows)
        vars(self).update(vars(fresh))
        self.state, self.viewport = state, viewport
        return before

    def resize(self, viewport: Viewport, *, opening: bool = False) -> None:
        """Tells what can be seen; `opening` also chooses the zoom that suits it."""
        self.viewport = viewport
        if opening:
            zoom = geometry.opening_zoom(
                num_layers=self.num_layers,
                num_rows=self.num_rows,
                token_width=self.token_width,
                viewport=viewport,
            )
            self.state = replace(self.state, zoom=zoom)

    @property
    def geometry(self) -> Geometry:
        """Where each cell lies at the current zoom."""
        return geometry.plan(
            num_layers=self.num_layers,
            num_rows=self.num_rows,
            zoom=self.state.zoom,
            token_width=self.token_width,
            viewport=self.viewport,
        )

    @property
    def page_rows(self) -> int:
        """Rows of the comparison in one screen."""
        layout = self.geometry
        if layout.wrapped:
            bands = max(1, (self.viewport.lines + 1) // layout.band_height)
            return bands * layout.band_columns * layout.rows_per_column
        return max(1, self.viewport.columns // layout.cell_width) * layout.rows_per_column

    def fitting_zoom(self, *, at_least: int = 0) -> int:
        """The closest zoom that shows every token, or `at_least` when that is further out."""
        fit = geometry.fitting_zoom(
            num_layers=self.num_layers,
            num_rows=self.num_rows,
            token_width=self.token_width,
            viewport=self.viewport,
        )
        return max(fit, at_least)

    def codes(self, lens: LensId | None = None, step: int = 0) -> np.ndarray:
        """Grid of codes with 2**step rows per column, uint8 (L, ceil(T / 2**step))."""
        return self.grids.codes(replace(self.state, lens=lens) if lens else self.state, step)

    def jumps(self, klass: DivergenceClass, order: Order) -> JumpIndex:
        """The index of a class in a scan order; cells that the filter hides are left out."""
        return self.grids.jumps(self.state, klass, order)

    @property
    def num_missing(self) -> int:
        """Cells that should have a number under the current lens and have none."""
        lens = self.state.lens
        if lens not in self._num_missing:
            self._num_missing[lens] = missing_cells(self.source, lens)
        return self._num_missing[lens]

    def first_rows(self) -> dict[DivergenceClass, int]:
        """Row of the first shown divergence per class; of classes that were looked at, at least."""
        if self.state.tolerance == self.facts.tolerance and not self.state.filter:
            return dict(self.facts.first_rows)
        ready = [k for k in DEFAULT_CLASS_ORDER if self.grids.has_jumps(self.state, k)]
        firsts = ((klass, self.jumps(klass, self.state.order).first()) for klass in ready)
        return {klass: cell.row for klass, cell in firsts if cell is not None}

    def hits(self, query: str) -> np.ndarray:
        """Rows where a text or `#id` is found, ascending int64."""
        return self._hits.get(query, lambda: self._find(query))

    def is_hit(self, row: int) -> bool:
        """Whether the current search has a hit at a row."""
        if not self.state.find:
            return False
        hits = self.hits(self.state.find)
        place = int(np.searchsorted(hits, row))
        return place < len(hits) and int(hits[place]) == row

    def _find(self, query: str) -> np.ndarray:
        wanted = token_id_of(query)
        if wanted is not None:
            same_T = (self.source.rows["token_id"] == wanted).fill_null(value=False).to_numpy()
            return np.flatnonzero(same_T)
        if self._searchable is None:
            texts = self._texts.fill_null("").to_list()
            self._searchable = Text(texts, self._request_starts)
        return self._searchable.rows_with(query)

    def count_in_layer(self, layer: int, start: int, stop: int) -> int:
        """Divergent rows of the current class at a layer, start <= row < stop."""
        return count_between(self.grids.layer_rows(self.state)[layer], start, stop)

    def class_counts(self) -> dict[DivergenceClass, int]:
        """Cells of each class."""
        return {klass: len(self.jumps(klass, self.state.order)) for klass in DEFAULT_CLASS_ORDER}

    def warm(self, tell: Callable[[float], None] | None = None) -> None:
        """Builds every grid and index that a key could ask for.

        Args:
            tell: Called with the share that is done, between two of them; what it raises ends it.
        """
        known = self.attribution is not None
        steps: list[Callable[[], object]] = [
            partial(self.codes, lens) for lens in LENSES if known or not is_error_lens(lens)
        ]
        steps += [partial(self.jumps, klass, "token") for klass in DIVERGENCE_CLASSES]
        for done, step in enumerate(steps):
            if tell is not None:
                tell(done / len(steps))
            step()

    def prepare(self, state: ViewState) -> None:
        """Builds what a state shows before it is taken up; from any thread."""
        self.grids.codes(state)
        self.grids.jumps(state, state.klass, state.order)
        self.grids.layer_rows(state)

    def cell_facts(self, cell: Cell | None = None) -> CellFacts:
        """Everything about a cell, the cursor's when not given."""
        here = cell or self.state.cell
        key = (here, self.state.site)
        if self._facts_of != key:
            self._facts_here = cell_facts(
                self.source, here, self.state.site, self.sites, self.attribution
            )
            self._facts_of = key
        return self._facts_here

    def meaning(self) -> tuple[int, str]:
        """Code of the cursor's cell under the current lens, and what it means in words."""
        return meaning(self)

    def legend(self) -> tuple[str, ...]:
        """What each level means, under the current lens and side."""
        return legend(self.state)

    @property
    def needs_model(self) -> str:
        """What a person has to run before errors per module are there."""
        return f"needs the model: {self.attribute_command}"

    @property
    def attribute_command(self) -> str:
        """The command that attributes this comparison and runs the swaps."""
        return f"kldive attribute {self.source.directory} --model M"

    def text(self, row: int) -> str:
        """A row's raw token text."""
        return self._texts[row] or ""

    def request(self, row: int) -> str:
        """Name of the request that a row belongs to."""
        return str(self.source.rows["request"][row])

    def request_rows(self, row: int) -> tuple[int, int]:
        """First row and the row after the last of the request that a row belongs to."""
        place = self.request_index(row)
        stops = (*self._request_starts[1:], self.num_rows)
        return int(self._request_starts[place]), int(stops[place])

    def address(self, cell: Cell | None = None) -> str:
        """A cell as people write it, with the site in focus when it is the cursor."""
        here = cell or self.state.cell
        site = self.state.site if cell is None else None
        return str(Address(layer=here.layer, row=here.row, site=site))

    def lens_and_site_of(self, klass: DivergenceClass, cell: Cell) -> tuple[LensId, str]:
        """The lens that shows a class at a cell, and the first layer site of the class there."""
        found = self.source.sites_at(klass, *cell, self.state.tolerance or None)
        if not found:
            return "combined", "mlp_out"
        lens = "local" if klass == "local_error" else lens_of_site(found[0])
        fallback = LENSES[lens].site or "mlp_out"
        return lens, next((site for site in found if is_site(site, self)), fallback)

    def worst_code(self, first_layer: int, stop_layer: int, first_row: int, stop_row: int) -> int:
        """The largest code of a window."""
        whole = (first_row, stop_row) == (0, self.num_rows)
        if whole:
            worst_L = self.grids.worst_by_layer(self.state)
            return int(worst_L[first_layer:stop_layer].max(initial=0))
        window = self.codes()[first_layer:stop_layer, first_row:stop_row]
        return int(window.max(initial=0))

    def request_index(self, row: int) -> int:
        """Which request a row belongs to, counted from 0."""
        return int(np.searchsorted(self._request_starts, row, side="right")) - 1


def _request_starts(source: Source) -> np.ndarray:
    """First row of each run of equal request names, int64."""
    requests = source.rows["request"]
    if not len(requests):
        return np.zeros(1, np.int64)
    changed = (requests != requests.shift(1)).fill_null(True).to_numpy()
    return np.flatnonzero(changed)
