"""The Python that shows a widget's state again: what a mouse did, as a call. Stdlib only."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def view_code(directory: Path, settings: Mapping[str, object]) -> str:
    """A script of two statements; settings that are None or empty are left out.

    >>> print(view_code(Path("run/comparison"), {"lens": "router", "cursor": (2, 14), "pin": None}))
    import workbench as wb
    <BLANKLINE>
    wb.view(
        "run/comparison",
        lens="router",
        cursor=(2, 14),
    )
    """
    lines = [f"    {_literal(str(directory))},"]
    for name, value in settings.items():
        if value not in (None, [], ""):
            lines.append(f"    {name}={_literal(value)},")
    return "\n".join(["import workbench as wb", "", "wb.view(", *lines, ")"])


def _literal(value: object) -> str:
    if not isinstance(value, str):
        return repr(value)
    text = repr(value)
    return f'"{text[1:-1]}"' if text[0] == "'" and '"' not in text else text
