"""Actions that ask the person something: menus and prompts over the workbench.

Each function takes the workbench, asks, and carries out the answer through the view-model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tui.menu import Entry, Menu
from tui.prompt import Prompt
from workbench.address import Address, parse_address
from workbench.comparison.tolerance import PROFILES
from workbench.errors import KldiveError, UsageError
from workbench.names import DEFAULT_CLASS_ORDER
from workbench.report.export import EXPORTS, export
from workbench.view import find
from workbench.view.cell_text import cell_text
from workbench.view.classes import CLASS_HELP, CLASS_TITLES
from workbench.view.filters import GRAMMAR, parse_filter
from workbench.view.frame import chosen_cells
from workbench.view.link import is_link, parse_link
from workbench.view.numbers import count
from workbench.view.rows import quote
from workbench.view.state import Cell, ViewState

if TYPE_CHECKING:
    from tui.app import Workbench

CUSTOM: Final = "custom"
_CLIPBOARD: Final = "a terminal that does not take OSC 52 ignores it"
_PROFILE_HELP: Final[dict[str, str]] = {
    "auto": "by the coarser type of both paths",
    "bitwise": "every difference counts",
    "fp32": "roundings of float32",
    "bf16": "roundings of bfloat16",
    "fp16": "roundings of float16",
    "fp8": "roundings of float8 e4m3",
}


def choose_class(bench: Workbench) -> None:
    """Menu of classes with the number of cells of each."""
    model = bench.model
    counts = model.class_counts()
    unknown = {} if model.attribution else {"local_error": "needs the model: kldive attribute"}
    entries = []
    for klass in DEFAULT_CLASS_ORDER:
        number = count(counts[klass]) if counts[klass] else "none"
        number = "–" if klass in unknown else number
        about = unknown.get(klass, CLASS_HELP[klass])
        text = f"{CLASS_TITLES[klass]:<17}{number:>9}  {about}"
        entries.append(Entry(id=klass, text=text, enabled=bool(counts[klass])))
    by_id = {str(klass): klass for klass in DEFAULT_CLASS_ORDER}
    title = "what counts as a divergence"
    if model.state.filter:
        title += f" · among the shown cells ({model.state.filter})"
    _choose(bench, Menu(title, entries, model.state.klass), lambda i: model.choose_class(by_id[i]))


def choose_tolerance(bench: Workbench) -> None:
    """Menu of tolerance profiles; the last asks for a multiple of one."""
    model = bench.model
    names = [name for name in PROFILES if name != "auto"]
    entries = [Entry(id=name, text=f"{name:<9} {_PROFILE_HELP[name]}") for name in names]
    entries.append(Entry(id=CUSTOM, text=f"{CUSTOM:<9} a multiple of one, such as bf16*4"))
    current = model.state.tolerance
    menu = Menu("what rounding may do", entries, current if current in names else CUSTOM)

    def chosen(answer: str) -> ViewState | None:
        if answer != CUSTOM:
            return model.choose_tolerance(answer)
        _ask_factor(bench)
        return None

    _choose(bench, menu, chosen)


def _ask_factor(bench: Workbench) -> None:
    model = bench.model

    def check(text: str) -> str:
        found = model.source.budgets(text.strip() or "auto")
        return f"{found.profile}: mlp_out of the last layer {found.layer['mlp_out'][-1]:.2g} rel L2"

    hint = "a profile and a factor on its budgets, such as bf16*4 or fp32*0.5"
    text = model.state.tolerance
    _ask(bench, Prompt("tolerance", hint, check, text), lambda t: model.choose_tolerance(t.strip()))


def goto(bench: Workbench) -> None:
    """Prompt for an address or a link."""
    model = bench.model

    def check(text: str) -> str:
        if is_link(text):
            return f"link: {str(parse_link(text).at) or 'no place'}"
        address = _address(text)
        if address.layer is not None and address.layer >= model.num_layers:
            raise UsageError("no such layer", expected=f"L0 to L{model.num_layers - 1}")
        if address.row is not None and address.row >= model.num_rows:
            raise UsageError("no such token", expected=f"t0 to t{model.num_rows - 1}")
        row = model.state.row if address.row is None else address.row
        return f"to {address} · {quote(model.text(row), 24)} in {model.request(row)}"

    def chosen(text: str) -> ViewState:
        if is_link(text):
            return model.open_link(parse_link(text))
        address, state = _address(text), model.state
        layer = state.layer if address.layer is None else address.layer
        row = state.row if address.row is None else address.row
        return model.move_to(Cell(layer, row), address.site)

    hint = f"L0 to L{model.num_layers - 1}, t0 to t{model.num_rows - 1}, a site; or a kldive link"
    _ask(bench, Prompt("go to", hint, check), chosen)


def _address(text: str) -> Address:
    # A bare number is a token: that is what there are most of.
    bare = text.strip()
    return Address(row=int(bare)) if bare.isdecimal() and len(bare) < 12 else parse_address(text)


def find_text(bench: Workbench) -> None:
    """Prompt for a text or a token id."""
    model = bench.model

    def check(text: str) -> str:
        found = len(model.hits(text)) if text.strip() else 0
        if text.strip() and not found:
            raise UsageError(f"no token reads {quote(text, 24)}", expected=find.HOW)
        hits = "1 hit" if found == 1 else f"{count(found)} hits"
        return f"{hits} · n and N step through them until escape"

    _ask(bench, Prompt("find", find.HOW, check, model.state.find), model.search)


def choose_filter(bench: Workbench) -> None:
    """Prompt for a filter."""
    model = bench.model

    def check(text: str) -> str:
        wanted = parse_filter(text)
        return f"shows {wanted}" if wanted else "shows every cell"

    def chosen(text: str) -> ViewState:
        wanted = parse_filter(text)
        if wanted.expert is None:
            return model.choose_filter(wanted)
        # Every row's experts are read for this, once: the screen does not wait for it.
        ahead = replace(model.state, filter=wanted)
        bench.background.aside(
            f"filter {wanted}",
            lambda: model.prepare(ahead),
            lambda: bench.show(model.choose_filter(wanted)),
        )
        return model.say(f"looking for expert {wanted.expert} …")

    prompt = Prompt("filter", GRAMMAR, check, str(model.state.filter))
    _ask(bench, prompt, chosen)


def list_marks(bench: Workbench) -> None:
    """Menu of bookmarks, the pin and the first of each class."""
    model, state = bench.model, bench.model.state
    places = [("bookmark", cell) for cell in sorted(state.marks, key=lambda c: (c.row, c.layer))]
    places += [("pin", state.pin)] if state.pin else []
    for klass in DEFAULT_CLASS_ORDER:
        first = model.jumps(klass, state.order).first()
        places += [(f"first {CLASS_TITLES[klass]}", first)] if first else []
    entries = [
        Entry(id=str(n), text=f"{kind:<23} {model.address(c):<10} {quote(model.text(c.row), 20)}")
        for n, (kind, c) in enumerate(places)
    ]
    if not entries:
        bench.show(model.say("no bookmark yet; m sets one"))
        return
    _choose(bench, Menu("go to", entries), lambda i: model.move_to(places[int(i)][1]))


def choose_export(bench: Workbench) -> None:
    """Menu of kinds of files; writes the chosen one into the current folder."""
    model = bench.model
    cells = len(chosen_cells(model)[0])
    what = "selected" if model.state.area else "shown" if model.state.filter else "all"
    entries = [
        Entry(
            id=kind,
            text=f"{e.title}{f' ({count(cells)}, {what})' if e.cells else ''}",
            enabled=bool(model.num_rows),
        )
        for kind, e in EXPORTS.items()
    ]

    def chosen(kind: str) -> ViewState:
        try:
            return model.say(f"wrote {export(model, kind, Path.cwd())}")
        except KldiveError as error:
            return model.say(f"not written: {error.what}{f' ({error.got})' if error.got else ''}")

    _choose(bench, Menu("export to the current folder", entries), chosen)


def copy_cell(bench: Workbench) -> None:
    """The cell as text, to the clipboard."""
    message = "nothing to copy"
    if bench.model.num_rows:
        bench.app.copy_to_clipboard(cell_text(bench.model))
        message = f"copied the cell as text; {_CLIPBOARD}"
    bench.show(bench.model.say(message))


def copy_link(bench: Workbench) -> None:
    """A command that opens this view again, to the clipboard."""
    command = bench.model.link().command
    bench.app.copy_to_clipboard(command)
    bench.show(bench.model.say(f"copied: {command}"))


def _choose(bench: Workbench, menu: Menu, act: Callable[[str], ViewState | None]) -> None:
    def chosen(answer: str | None) -> None:
        if answer is not None:
            bench.attempt(menu.title_text, lambda: shown(act(answer)))

    def shown(before: ViewState | None) -> None:
        if before is not None:
            bench.show(before)

    bench.app.push_screen(menu, chosen)


def _ask(bench: Workbench, prompt: Prompt, act: Callable[[str], ViewState]) -> None:
    def given(answer: str | None) -> None:
        if answer is not None:
            bench.attempt(prompt.label, lambda: shown(answer))

    def shown(answer: str) -> None:
        try:
            bench.show(act(answer))
        except KldiveError as error:
            bench.show(bench.model.say(error.what))

    bench.app.push_screen(prompt, given)


DIALOGS: Final[dict[str, Callable[[Workbench], None]]] = {
    "class.choose": choose_class,
    "copy.cell": copy_cell,
    "copy.link": copy_link,
    "export.show": choose_export,
    "filter.show": choose_filter,
    "find.show": find_text,
    "goto.show": goto,
    "mark.list": list_marks,
    "tolerance.choose": choose_tolerance,
}
"""Actions of the table that ask, by id."""
