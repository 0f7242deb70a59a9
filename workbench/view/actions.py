"""The one table of actions: ids, keys, words for people, and what each does to the state.

Bindings, the help screen, the command palette and the tests are all made from this table. An action
whose `run` is None belongs to the face (quit, help, menus); everything else is a pure function from
state to state. Action ids are public and stable.

Keys are plain letters, digits, arrows and the like: no Alt, no control letters that tmux or a
shell's line editor takes. They are spelled as Textual spells them (`full_stop`, `question_mark`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from workbench.view import leaps
from workbench.view import transitions as do
from workbench.view.lenses import LENSES, Lens, is_error_lens, lens_after
from workbench.view.stepping import by_sites

Group = Literal["move", "find", "show", "keep", "session"]

GROUP_TITLES: Final[dict[Group, str]] = {
    "move": "Move",
    "find": "Find divergences",
    "show": "Change what is shown",
    "keep": "Keep and share",
    "session": "Session",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One thing a person can do.

    Attributes:
        id: Stable name.
        keys: Keys that trigger it, in Textual's spelling; the first is the one to advertise.
        title: A few words, for the footer and the palette.
        help: One sentence, for the help screen.
        group: Where the help screen lists it.
        run: State to state, or None when the face carries it out.
    """

    id: str
    keys: tuple[str, ...]
    title: str
    help: str
    group: Group
    run: do.Run | None = None


def _lens_help(lens: Lens) -> str:
    text = f"Colour by {lens.title}: {lens.about}"
    return f"{text} Again: inherited, then total error." if is_error_lens(lens.id) else text


_LENS_ACTIONS = tuple(
    Action(
        id=f"lens.{lens.id}",
        keys=(lens.key,),
        title=f"Lens: {lens.title}",
        help=_lens_help(lens),
        group="show",
        run=do.to_lens(lens.id),
    )
    for lens in LENSES.values()
    if lens_after(lens.id, lens.id) == lens.id or lens.id == "local"
)

ACTIONS: Final[tuple[Action, ...]] = (
    Action(
        id="cursor.left",
        keys=("h", "left"),
        title="Previous token",
        help="One column to the left; when zoomed out, a column is several tokens.",
        group="move",
        run=do.by_columns(-1),
    ),
    Action(
        id="cursor.down",
        keys=("j", "down"),
        title="Next layer",
        help="One layer deeper.",
        group="move",
        run=do.by_layers(1),
    ),
    Action(
        id="cursor.up",
        keys=("k", "up"),
        title="Previous layer",
        help="One layer back towards the embeddings.",
        group="move",
        run=do.by_layers(-1),
    ),
    Action(
        id="cursor.right",
        keys=("l", "right"),
        title="Next token",
        help="One column to the right.",
        group="move",
        run=do.by_columns(1),
    ),
    Action(
        id="page.back",
        keys=("H", "pageup"),
        title="Page back",
        help="One screen of tokens back.",
        group="move",
        run=do.by_pages(-1),
    ),
    Action(
        id="page.forward",
        keys=("L", "pagedown"),
        title="Page forward",
        help="One screen of tokens forward.",
        group="move",
        run=do.by_pages(1),
    ),
    Action(
        id="token.first",
        keys=("home",),
        title="First token",
        help="The first token of the comparison.",
        group="move",
        run=do.to_row(0),
    ),
    Action(
        id="token.last",
        keys=("end",),
        title="Last token",
        help="The last token of the comparison.",
        group="move",
        run=do.to_row(-1),
    ),
    Action(
        id="layer.first",
        keys=("g",),
        title="First layer",
        help="The first layer.",
        group="move",
        run=do.to_layer(0),
    ),
    Action(
        id="layer.last",
        keys=("G",),
        title="Last layer",
        help="The last layer.",
        group="move",
        run=do.to_layer(-1),
    ),
    Action(
        id="jump.next",
        keys=("n",),
        title="Next divergence",
        help="The next divergence of the current class, in scan order.",
        group="find",
        run=leaps.jump_next,
    ),
    Action(
        id="jump.previous",
        keys=("N",),
        title="Previous divergence",
        help="The previous divergence of the current class.",
        group="find",
        run=leaps.jump_previous,
    ),
    Action(
        id="jump.first",
        keys=("f",),
        title="First divergence, then next class",
        help="The first of the class; pressed there, the first of the next class.",
        group="find",
        run=leaps.jump_first,
    ),
    Action(
        id="history.back",
        keys=("left_square_bracket",),
        title="Back",
        help="Where the last jump, search or go-to started.",
        group="find",
        run=leaps.back,
    ),
    Action(
        id="history.forward",
        keys=("right_square_bracket",),
        title="Forward",
        help="Undoes going back.",
        group="find",
        run=leaps.forward,
    ),
    Action(
        id="class.choose",
        keys=("c",),
        title="Choose the class",
        help="What counts as a divergence, with the number of each.",
        group="find",
    ),
    Action(
        id="order.toggle",
        keys=("o",),
        title="Scan order",
        help="Scan token by token (decoding) or layer by layer (prefill).",
        group="find",
        run=do.toggle_order,
    ),
    Action(
        id="find.show",
        keys=("slash",),
        title="Find text",
        help="Text of the tokens or #id; then n and N step through the hits until escape.",
        group="find",
    ),
    Action(
        id="goto.show",
        keys=("colon",),
        title="Go to",
        help="An address such as L12 t4096 topk_ids, or a kldive link.",
        group="find",
    ),
    *_LENS_ACTIONS,
    Action(
        id="site.next",
        keys=("full_stop",),
        title="Next site",
        help="Step to the next site in execution order, from embedding to logprob, in words.",
        group="show",
        run=by_sites(1),
    ),
    Action(
        id="site.previous",
        keys=("comma",),
        title="Previous site",
        help="Step back towards the embedding.",
        group="show",
        run=by_sites(-1),
    ),
    Action(
        id="zoom.in",
        keys=("z",),
        title="Zoom in",
        help="Closer: fewer tokens, at last with their text above.",
        group="show",
        run=do.by_zoom(-1),
    ),
    Action(
        id="zoom.out",
        keys=("Z",),
        title="Zoom out",
        help="Further: two layers per line, then several tokens per column; the worst one shows.",
        group="show",
        run=do.by_zoom(1),
    ),
    Action(
        id="zoom.fit",
        keys=("0",),
        title="Fit all tokens",
        help="The closest zoom at which every token is on the screen.",
        group="show",
        run=do.zoom_to_fit,
    ),
    Action(
        id="side.cycle",
        keys=("x",),
        title="Difference, A, B",
        help="Colour by A against B, then by A's own numbers, then by B's.",
        group="show",
        run=do.cycle_side,
    ),
    Action(
        id="sides.swap",
        keys=("s",),
        title="Swap A and B",
        help="Draw the other side first; differences stay A − B.",
        group="show",
        run=do.swap_sides,
    ),
    Action(
        id="filter.show",
        keys=("F",),
        title="Filter",
        help="Show only some layers, tokens, levels or an expert's cells.",
        group="show",
    ),
    Action(
        id="filter.clear",
        keys=("backspace",),
        title="Clear the filter",
        help="Show every cell again.",
        group="show",
        run=do.clear_filter,
    ),
    Action(
        id="tolerance.choose",
        keys=("t",),
        title="Tolerance",
        help="Choose the rounding budgets to judge by, or a multiple of them.",
        group="show",
    ),
    Action(
        id="swaps.show",
        keys=("w",),
        title="Swaps and proof",
        help="Map of swaps, routing ladder and proof: what the KL is without each module.",
        group="show",
    ),
    Action(
        id="drill.show",
        keys=("enter", "space"),
        title="Drill into this cell",
        help="Whole vectors, experts, the token down the layers, the layer across tokens, the pin.",
        group="show",
    ),
    Action(
        id="inspector.toggle",
        keys=("i",),
        title="Inspector",
        help="Open or close the inspector.",
        group="show",
        run=do.toggle_inspector,
    ),
    Action(
        id="theme.toggle",
        keys=("T",),
        title="Light or dark",
        help="Switch between dark and light colours.",
        group="show",
    ),
    Action(
        id="pin.set",
        keys=("p",),
        title="Pin this cell",
        help="Keep this cell as reference; the overview shows it.",
        group="keep",
        run=do.pin_here,
    ),
    Action(
        id="pin.clear",
        keys=("P",),
        title="Clear the pin",
        help="Remove the pin.",
        group="keep",
        run=do.clear_pin,
    ),
    Action(
        id="mark.toggle",
        keys=("m",),
        title="Bookmark this cell",
        help="Set or remove a bookmark; the overview shows them.",
        group="keep",
        run=do.toggle_mark,
    ),
    Action(
        id="mark.list",
        keys=("apostrophe",),
        title="Bookmarks",
        help="The bookmarks, the pin and the first of each class; choose one to go there.",
        group="keep",
    ),
    Action(
        id="area.select",
        keys=("v",),
        title="Select an area",
        help="Start a rectangle at the cursor; moving extends it, v keeps it.",
        group="keep",
        run=do.toggle_selecting,
    ),
    Action(
        id="copy.cell",
        keys=("y",),
        title="Copy this cell as text",
        help="Everything the inspector says about this cell, to the clipboard (OSC 52).",
        group="keep",
    ),
    Action(
        id="copy.link",
        keys=("Y",),
        title="Copy a link",
        help="A one-line command that opens this view again, to the clipboard.",
        group="keep",
    ),
    Action(
        id="export.show",
        keys=("e",),
        title="Export",
        help="Selection or report to a file: Parquet, CSV, JSON, SVG or HTML.",
        group="keep",
    ),
    Action(
        id="failures.show",
        keys=("exclamation_mark",),
        title="What failed",
        help="What went wrong in the background, in full; the status bar says when something did.",
        group="session",
    ),
    Action(
        id="help.show",
        keys=("question_mark", "f1"),
        title="Help",
        help="Keys, levels and words.",
        group="session",
    ),
    Action(
        id="palette.show",
        keys=("ctrl+p",),
        title="All commands",
        help="Every action by name, with its key.",
        group="session",
    ),
    Action(
        id="back",
        keys=("escape",),
        title="Back",
        help="One level back: closes a menu, ends a search, drops a selection.",
        group="session",
        run=do.go_back,
    ),
    Action(
        id="quit",
        keys=("q", "ctrl+q"),
        title="Quit",
        help="Leave; the last address is printed so that you can come back to it.",
        group="session",
    ),
)

ACTION_BY_ID: Final[dict[str, Action]] = {action.id: action for action in ACTIONS}

_KEY_NAMES: Final = {
    "full_stop": ".",
    "comma": ",",
    "question_mark": "?",
    "exclamation_mark": "!",
    "slash": "/",
    "colon": ":",
    "apostrophe": "'",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "backspace": "⌫",
    "space": "Space",
    "enter": "Enter",
    "left": "←",
    "right": "→",
    "up": "↑",
    "down": "↓",
    "pageup": "PgUp",
    "pagedown": "PgDn",
    "home": "Home",
    "end": "End",
    "escape": "Esc",
    "f1": "F1",
}


def key_name(key: str) -> str:
    """A key as it is printed on a keyboard."""
    return _KEY_NAMES.get(key, key)
