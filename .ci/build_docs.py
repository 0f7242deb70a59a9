"""Run the notebooks and write them as web pages: what `make docs` does.

Owns the look of the pages. They load nothing from the network: a widget is replaced by the picture
that it carries for such places. The notebooks themselves stay without outputs.

    python .ci/build_docs.py --out site
    python .ci/build_docs.py --out site 03_routing_flips
"""

from __future__ import annotations

import argparse
import html
import sys
import time
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbconvert import HTMLExporter

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = ROOT / "notebooks"
WIDGET = "application/vnd.jupyter.widget-view+json"
# Addresses that a page would load scripts from: mathematics, widgets, diagrams. None is needed.
NO_SCRIPTS = dict.fromkeys(
    (
        "mathjax_url",
        "require_js_url",
        "jquery_url",
        "jupyter_widgets_base_url",
        "mermaid_js_url",
    ),
    "",
)
SECONDS_PER_CELL = 300


def main(argv: list[str] | None = None) -> int:
    """Write the pages. Returns the exit code."""
    parser = argparse.ArgumentParser(description="Run the notebooks and write them as web pages.")
    parser.add_argument("--out", type=Path, required=True, help="folder for the pages")
    parser.add_argument("names", nargs="*", help="notebooks to write (default: all)")
    args = parser.parse_args(argv)
    known = {path.stem: path for path in sorted(NOTEBOOKS.glob("*.ipynb"))}
    unknown = [name for name in args.names if name not in known]
    if unknown:
        print(f"error: no notebook {unknown[0]!r}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    args.out.mkdir(parents=True, exist_ok=True)
    for name in args.names or known:
        started = time.monotonic()
        print(f"{name} ...", end=" ", flush=True)
        try:
            page = rendered(known[name])
        except CellExecutionError as error:
            print(f"failed\n\n{error}", file=sys.stderr)
            return 1
        (args.out / f"{name}.html").write_text(page, "utf-8")
        print(f"{time.monotonic() - started:.0f} s", flush=True)
    (args.out / "index.html").write_text(index(known), "utf-8")
    print(f"Written to {args.out}/index.html")
    return 0


def rendered(path: Path) -> str:
    """A notebook, run from a fresh kernel, as one web page."""
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=SECONDS_PER_CELL,
        resources={"metadata": {"path": str(path.parent)}},
        # A kernel warns that its port is open to this machine.
        extra_arguments=["--log-level=ERROR"],
    )
    client.execute()
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            without_widget(output)
    notebook.metadata.pop("widgets", None)
    exporter = HTMLExporter(**NO_SCRIPTS)
    page: str = exporter.from_notebook_node(notebook, {"metadata": {"name": title(notebook)}})[0]
    return page.replace('.ipynb"', '.html"')


def without_widget(output: Any) -> None:
    """Leave the picture that a widget carries, where there is one."""
    data = output.get("data", {})
    if "text/html" in data:
        data.pop(WIDGET, None)


def title(notebook: Any) -> str:
    """The heading of a notebook's first cell."""
    return str(notebook.cells[0].source).splitlines()[0].lstrip("# ")


def index(known: dict[str, Path]) -> str:
    """A page that lists the pages."""
    lines = []
    for name, path in known.items():
        heading = html.escape(title(nbformat.read(path, as_version=4)))
        lines.append(f'<li><a href="{name}.html">{heading}</a></li>')
    style = "body{font:16px/1.6 sans-serif;max-width:40em;margin:3em auto;padding:0 1em}"
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>kldive lessons</title>'
        f"<style>{style}</style><h1>kldive lessons</h1><ol>{''.join(lines)}</ol></html>\n"
    )


if __name__ == "__main__":
    sys.exit(main())
