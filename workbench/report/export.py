"""Writing what is looked at to a file: the cells as a table, the report as a page or a picture.

Never overwrites: a name that is taken gets a number. A file appears whole or not at all.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from workbench.errors import CaptureError
from workbench.report.html import page
from workbench.report.svg import window_svg
from workbench.view.cell_text import cell_text
from workbench.view.frame import cells_frame
from workbench.view.model import ViewModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """One kind of file.

    Attributes:
        id: Stable name.
        title: A few words.
        suffix: Of the file's name.
        cells: Whether it holds the selected cells, and not the report.
        write: Writes it to a path.
    """

    id: str
    title: str
    suffix: str
    cells: bool
    write: Callable[[ViewModel, Path], None]


def _json(model: ViewModel, path: Path) -> None:
    body = {"link": str(model.link()), "cell": cell_text(model), "summary": model.source.summary}
    path.write_text(json.dumps(body, indent=1, default=str), "utf-8")


EXPORTS: Final[dict[str, Export]] = {
    export.id: export
    for export in (
        Export(
            id="parquet",
            title="cells as Parquet",
            suffix=".parquet",
            cells=True,
            write=lambda model, path: cells_frame(model).write_parquet(path),
        ),
        Export(
            id="csv",
            title="cells as CSV",
            suffix=".csv",
            cells=True,
            write=lambda model, path: cells_frame(model).write_csv(path),
        ),
        Export(
            id="html",
            title="report as one HTML page",
            suffix=".html",
            cells=False,
            write=lambda model, path: _write_text(path, page(model)),
        ),
        Export(
            id="svg",
            title="the grid round the cursor as SVG",
            suffix=".svg",
            cells=False,
            write=lambda model, path: _write_text(path, window_svg(model)),
        ),
        Export(
            id="json",
            title="summary, this cell and its link as JSON",
            suffix=".json",
            cells=False,
            write=_json,
        ),
    )
}


def _write_text(path: Path, text: str) -> None:
    path.write_text(text, "utf-8")


def export(model: ViewModel, kind: str, folder: Path) -> Path:
    """Writes one kind of file into a folder and returns its path.

    Raises:
        CaptureError: The folder cannot be written to.
        UsageError: Too many cells for a table.
    """
    wanted = EXPORTS[kind]
    place = model.address(model.state.cell).replace(" ", "-")
    target = _free(folder, f"kldive-{place}", wanted.suffix)
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        wanted.write(model, partial)
        partial.replace(target)
    except OSError as error:
        partial.unlink(missing_ok=True)
        reason = error.strerror or str(error)
        raise CaptureError("the file cannot be written", where=target, got=reason) from error
    return target


def _free(folder: Path, stem: str, suffix: str) -> Path:
    target, number = folder / f"{stem}{suffix}", 2
    while target.exists():
        target, number = folder / f"{stem}-{number}{suffix}", number + 1
    return target
