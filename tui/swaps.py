"""The screen of swaps: proof, routing ladder, map of layers by components, named swaps.

Plain text in lines; what they say is in workbench.view.experiments.
"""

from __future__ import annotations

from collections.abc import Callable
from textwrap import wrap
from typing import ClassVar, Final

from rich.style import Style
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.events import Resize
from textual.screen import ModalScreen
from textual.widgets import Static

from tui.scrolling import CLOSE, SCROLL, Scrolling
from tui.styles import BOLD, GOOD, HERE, MUTED
from workbench.view.bars import bar, waterfall
from workbench.view.experiments import LEAST, Experiments, NamedSwap, Place, Rung, SwapCell, SwapMap
from workbench.view.keymap import DEFAULT_KEYS, Keymap, scroll_hint
from workbench.view.modules import module_text, short_title
from workbench.view.numbers import count, short
from workbench.view.rows import cut, fit

Value = Callable[[SwapCell], float | None]

MARGIN: Final = 6
"""Columns of the frame round the text."""
MAX_BAR: Final = 60
_RANKED: Final = 8
_LARGE: Final = 0.5
_LABEL: Final = 6
_HEADS: Final = {
    "input_norm": "norm 1",
    "attention": "attn",
    "post_attention_norm": "norm 2",
    "top_k": "top-k",
    "gate_weights": "gates",
    "routed_experts": "experts",
    "shared_expert": "shared",
    "dense_mlp": "MLP",
    "residual_add": "add",
}
_STATES: Final = {"proved": GOOD, "suspected": HERE}


class SwapScreen(ModalScreen[None], Scrolling):
    """What the KL is without each module, in one page that scrolls.

    Args:
        found: The experiments, or None when none was run.
        command: What runs them.
        keymap: The keys of every action.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("w", "dismiss", "Close", id="swaps.show"),
        *CLOSE,
        *SCROLL,
    ]

    def __init__(
        self, found: Experiments | None, command: str, keymap: Keymap = DEFAULT_KEYS
    ) -> None:
        super().__init__()
        self.keymap = keymap
        self.found = found
        self.command = command

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="swaps") as page:
            page.border_title = "swaps: the KL without each module"
            page.border_subtitle = scroll_hint(self.keymap, "goes back")
            yield Static(id="swap-text", markup=False)

    def on_resize(self, event: Resize) -> None:
        width = max(40, event.size.width - MARGIN)
        try:
            text = page_text(self.found, self.command, width)
        except Exception as error:  # noqa: BLE001  (told; the session goes on)
            text = Text(self.undrawn(error))
        self.query_one("#swap-text", Static).update(text)


def page_text(found: Experiments | None, command: str, width: int) -> Text:
    """The page in lines of at most `width` columns."""
    if found is None:
        lines = [Text("Swaps were not run for this comparison.", BOLD), Text()]
        lines += [Text("They re-run the trainer with parts of the rollout. This runs them:", MUTED)]
        return Text("\n").join([*lines, Text(f"  {command}")])
    parts = [_proof(found, width)]
    if found.rungs:
        parts.append(_ladder(found.rungs, found.rows, width))
    if found.map is not None:
        parts += [_map(found.map, width), _ranked(found.map, width)]
    if found.swaps:
        parts.append(_named(found.swaps, width))
    return Text("\n\n").join(Text("\n").join(part) for part in parts)


def _proof(found: Experiments, width: int) -> list[Text]:
    state = {"none": "nothing to prove", "": "not tried"}.get(found.state, found.state)
    lines = [Text.assemble(("Proof  ", BOLD), (state, _STATES.get(found.state, MUTED)))]
    return [*lines, *(Text(f"  {line}") for line in wrap(found.text, width - 2))]


def _ladder(rungs: tuple[Rung, ...], rows: int, width: int) -> list[Text]:
    over = f" over {count(rows)} rows" if rows else ""
    lines = [_title("Routing ladder", f"KL left as B takes A's routing{over}; ░ went in this step")]
    room = _room(width, 39)
    before: float | None = None
    for rung in rungs:
        name = f"  {rung.name:<20}"
        if rung.kl is None:
            lines.append(Text(cut(f"{name}{'–':>9}  {rung.reason}", width), MUTED))
            continue
        line = Text(f"{name}{short(rung.kl):>9}{_percent(rung.left):>6} ")
        lines.append(line.append(waterfall(rung.left, before, room)))
        before = rung.left
    return lines


def _map(found: SwapMap, width: int) -> list[Text]:
    """Two tables of layers by components, side by side where they fit."""
    about = f"share of the live KL, {short(found.live)} over {count(found.rows)} rows"
    lines = [_title("Map", f"{about}; · equal bit for bit on A's inputs")]
    column = 8 if _LABEL + 8 * len(found.modules) <= width else 7
    per_table = _LABEL + column * len(found.modules)
    alone = _table(found, "removed by this swap alone", lambda cell: cell.removed, column)
    left = _table(found, "left when all but this is swapped", lambda cell: cell.left, column)
    if width >= 2 * max(per_table, 40) + 4:
        rows = zip(alone, left, strict=True)
        lines += [_padded(a, max(per_table, 40) + 4).append_text(b) for a, b in rows]
    else:
        lines += [*alone, *left]
    lines += _whole_model(found)
    if found.equal_modules:
        names = ", ".join(map(short_title, found.equal_modules))
        text = f"equal bit for bit in every layer: {names}"
        lines += [Text(f"  {line}", MUTED) for line in wrap(text, width - 2)]
    return lines


def _table(found: SwapMap, title: str, value_of: Value, column: int) -> list[Text]:
    names = [_HEADS.get(module, module)[: column - 1] for module in found.modules]
    heads = "".join(f"{name:>{column}}" for name in names)
    lines = [Text(f"  {title}", BOLD), Text(f"{'':{_LABEL}}{heads}", MUTED)]
    for layer in found.layers:
        line = Text(fit(f"  L{layer}", _LABEL), MUTED)
        for module in found.modules:
            line.append_text(_cell(found, (layer, module), value_of, column))
        lines.append(line)
    return lines


def _cell(found: SwapMap, place: Place, value_of: Value, column: int) -> Text:
    cell = found.cells.get(place)
    if cell is None:
        return Text(" " * column)
    if not cell.differs:
        return Text(f"{'·':>{column}}", MUTED)
    share = found.share(value_of(cell))
    return Text(f"{_percent(share):>{column}}", _weight(share))


def _whole_model(found: SwapMap) -> list[Text]:
    """Modules that stand once: removed alone, and left without."""
    lines = []
    for place, cell in found.cells.items():
        if place[0] is None and cell.differs:
            removed, left = _percent(found.share(cell.removed)), _percent(found.share(cell.left))
            text = f"  {short_title(place[1])}: {removed} removed alone, {left} left without"
            lines.append(Text(text, _weight(found.share(cell.left))))
    return lines


def _weight(share: float | None) -> Style | str:
    if share is None or abs(share) < LEAST:
        return MUTED
    return BOLD if abs(share) >= _LARGE else ""


def _ranked(found: SwapMap, width: int) -> list[Text]:
    ranked = found.ranked()
    if not ranked:
        text = "no swap of one module changes the KL by a hundredth"
        return [_title("Modules", text)]
    lines = [_title("Modules", "those without whose swap most of the KL is left")]
    lines.append(Text(f"  {'':<24}{'removed':>9}{'left':>10}", MUTED))
    room = _room(width, 52)
    for place, cell in ranked[:_RANKED]:
        share = found.share(cell.left)
        line = f"  {fit(module_text(*place), 24)}{short(cell.removed):>9} {short(cell.left):>9}"
        lines.append(Text(f"{line}{_percent(share):>6} {bar(share, room)}"))
    if len(ranked) > _RANKED:
        lines.append(Text(f"  and {count(len(ranked) - _RANKED)} more", MUTED))
    return lines


def _named(swaps: tuple[NamedSwap, ...], width: int) -> list[Text]:
    lines = [_title("Swaps", "KL left when B takes a part of A: its values, or its arithmetic")]
    room = _room(width, 52)
    for swap in swaps:
        share = swap.after / swap.before if swap.before and swap.after is not None else None
        kind = "values" if swap.of_values else "arithmetic"
        line = f"  {fit(swap.name, 20)}{kind:<12} {short(swap.after):>9}{_percent(share):>6} "
        lines.append(Text(line + bar(share, room)))
    return lines


def _room(width: int, used: int) -> int:
    """Columns of a bar."""
    return min(MAX_BAR, max(0, width - used))


def _title(title: str, about: str) -> Text:
    return Text.assemble((f"{title}  ", BOLD), (about, MUTED))


def _percent(share: float | None) -> str:
    """A share in at most six columns."""
    if share is None:
        return "–"
    percent = 100 * share
    if 0 < abs(percent) < 0.5:
        return "<1%"
    return f"{percent:.0f}%" if abs(percent) < 1000 else f"{percent / 100:.0f}×"


def _padded(line: Text, width: int) -> Text:
    return line.append(" " * max(1, width - line.cell_len))
