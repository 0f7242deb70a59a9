"""JupyterLab as a person uses it: notebooks opened, run, saved and closed in one browser page.

Waits are for conditions, never for a time. Whatever the page asks for and complains about is kept.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import ConsoleMessage, Locator, Page, WebSocket

from tests.browser.server import KERNEL, Server

LOCAL = {"localhost", "127.0.0.1", ""}
LOCAL_SCHEMES = {"data", "blob", "about"}
START_MS = 120_000
PATIENCE_MS = 20_000

_READY = """(path) => {
  const panel = window.jupyterapp.shell.currentWidget;
  return panel?.context?.path === path && panel.context.isReady
    && panel.sessionContext?.session?.kernel?.status === "idle";
}"""
_RUN = """async (index) => {
  const panel = window.jupyterapp.shell.currentWidget;
  panel.content.activeCellIndex = index;
  panel.content.deselectAll();
  await window.jupyterapp.commands.execute("notebook:run-cell");
}"""
_EVALUATE = """async (source) => {
  const panel = window.jupyterapp.shell.currentWidget;
  const cells = panel.content.widgets;
  const index = cells.length - 1;
  const active = panel.content.activeCellIndex;
  cells[index].model.sharedModel.setSource(source);
  const reply = await cells[index].constructor.execute(cells[index], panel.sessionContext);
  panel.content.activeCellIndex = active;
  const outputs = cells[index].model.outputs.toJSON();
  if (reply.content.status !== "ok") return {error: outputs.map((o) => o.traceback).join("\\n")};
  return {text: outputs.map((o) => o.text ?? "").join("")};
}"""
_CLOSE = """async (path) => {
  const open = [...window.jupyterapp.shell.widgets("main")];
  for (const panel of open.filter((widget) => widget.context?.path === path)) {
    await panel.context.save();
    panel.dispose();
  }
}"""


class Lab:
    """One page with JupyterLab in it.

    Attributes:
        asked: Addresses outside this machine that the page asked for; stays empty.
        complaints: Errors on the console, and exceptions that nobody caught.
    """

    def __init__(self, page: Page, server: Server) -> None:
        self.page = page
        self.server = server
        self.asked: list[str] = []
        self.complaints: list[str] = []
        page.set_default_timeout(PATIENCE_MS)
        page.context.on("request", lambda request: self._asked(request.url))
        page.on("websocket", self._connected)
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.complaints.append(error.stack or str(error)))

    def load(self) -> None:
        """Opens JupyterLab, with no notebook yet."""
        self.page.goto(f"{self.server.url}/lab?token={self.server.token}&reset")
        self.page.wait_for_function(
            "() => window.jupyterapp?.restored.then(() => true)", timeout=START_MS
        )

    def write(self, name: str, cells: Sequence[str]) -> None:
        """A notebook with these code cells in the served directory."""
        notebook = {
            "nbformat": 4,
            "nbformat_minor": 5,
            "metadata": {"kernelspec": {"name": KERNEL, "display_name": "kldive"}},
            "cells": [
                {
                    "cell_type": "code",
                    "id": f"cell-{place}",
                    "metadata": {},
                    "source": source.strip(),
                    "outputs": [],
                    "execution_count": None,
                }
                for place, source in enumerate(cells)
            ],
        }
        Path(self.server.notebooks, name).write_text(json.dumps(notebook), encoding="utf-8")

    def read(self, name: str) -> Any:
        """A notebook as it is saved."""
        return json.loads(Path(self.server.notebooks, name).read_text(encoding="utf-8"))

    def open(self, name: str) -> None:
        """Opens a notebook; its kernel is idle when this returns."""
        self.command("docmanager:open", path=name)
        self.page.wait_for_function(_READY, arg=name, timeout=START_MS)

    def command(self, name: str, **arguments: Any) -> None:
        """A command of JupyterLab's palette; returns when it is done."""
        self.page.evaluate(
            "async ([name, args]) => { await window.jupyterapp.commands.execute(name, args); }",
            [name, arguments],
        )

    def run(self, index: int) -> None:
        """Runs one cell of the notebook in front, to its end."""
        self.page.evaluate(_RUN, index)

    def python(self, source: str) -> str:
        """Runs a source in the notebook's last cell; gives what it prints. Moves no focus.

        Raises:
            RuntimeError: It failed; with Python's traceback.
        """
        found = self.page.evaluate(_EVALUATE, source)
        if "error" in found:
            raise RuntimeError(found["error"])
        return str(found["text"]).strip()

    def save(self) -> None:
        """Saves the notebook in front."""
        self.command("docmanager:save")

    def close(self, name: str) -> None:
        """Closes a notebook, where it is open, without a question."""
        self.page.evaluate(_CLOSE, name)

    def output(self, index: int) -> Locator:
        """What stands below a cell."""
        cell = self.page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-Notebook .jp-Cell")
        return cell.nth(index).locator(".jp-OutputArea")

    def cells(self) -> list[tuple[str, str]]:
        """Kind and source of every cell of the notebook in front."""
        found = self.page.evaluate(
            "() => window.jupyterapp.shell.currentWidget.content.widgets.map("
            "(cell) => [cell.model.type, cell.model.sharedModel.getSource()])"
        )
        return [(kind, source) for kind, source in found]

    def mode(self) -> str:
        """`command` or `edit`."""
        return str(self.page.evaluate("() => window.jupyterapp.shell.currentWidget.content.mode"))

    def theme(self, name: str) -> None:
        """Chooses a theme, as Settings > Theme does."""
        self.command("apputils:change-theme", theme=name)
        self.page.wait_for_selector(f'body[data-jp-theme-name="{name}"]', state="attached")
        # Its curtain fades; chosen again before that, JupyterLab takes it away twice, and throws.
        self.page.wait_for_selector("#jupyterlab-splash", state="detached")

    def _asked(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in LOCAL_SCHEMES and (parts.hostname or "") not in LOCAL:
            self.asked.append(url)

    def _connected(self, socket: WebSocket) -> None:
        self._asked(socket.url)

    def _said(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.complaints.append(f"{message.text} ({message.location.get('url', '')})")
