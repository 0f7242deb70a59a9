"""A JupyterLab server of its own: nothing of the user's is read or written, nothing is fetched."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

ROOT = Path(__file__).resolve().parents[2]
KERNEL = "kldive-tests"
READY_S = 120
# A grammar of addresses that jsonschema would compile for seconds, to check what nobody asks it.
START = """
import sys
sys.modules["rfc3987_syntax"] = None
from jupyterlab.labapp import main
main()
"""
SETTINGS: dict[str, dict[str, Any]] = {
    "@jupyterlab/apputils-extension:notification": {
        "fetchNews": "false",
        "checkForUpdates": False,
        "doNotDisturbMode": True,
    },
    "@jupyterlab/docmanager-extension:plugin": {"autosave": False},
    "@jupyterlab/apputils-extension:themes": {"adaptive-theme": False},
}


class Server:
    """One JupyterLab on a free port, below a temporary directory; `start` returns at once.

    Attributes:
        notebooks: The directory that it serves.
        token: What a client has to show.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.notebooks = directory / "notebooks"
        self.token = secrets.token_hex(16)
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> Path:
        return self.directory / "server.log"

    def start(self) -> None:
        """Starts the process; `wait` says when it answers."""
        self.notebooks.mkdir(parents=True)
        self._write_settings()
        self._write_kernel()
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", START],
                stdout=log,
                stderr=log,
                cwd=self.directory,
                env=self._environment(),
            )

    def wait(self) -> None:
        """Until it answers.

        Raises:
            RuntimeError: It ended, or did not answer in time.
        """
        assert self._process is not None
        stop = time.monotonic() + READY_S
        while self._process.poll() is None and time.monotonic() < stop:
            try:
                self.get("/api/status")
            except OSError:
                time.sleep(0.05)
            else:
                return
        raise RuntimeError(f"JupyterLab does not answer:\n{self.log.read_text(errors='replace')}")

    def get(self, path: str) -> Any:
        """What the server's interface says."""
        with urlopen(self._request(path), timeout=10) as answer:
            return json.load(answer)

    def shut_kernel(self, name: str) -> None:
        """Ends a notebook's session; opened next, it meets a kernel that does not know it."""
        for session in self.get("/api/sessions"):
            if session["path"] == name:
                urlopen(self._request(f"/api/sessions/{session['id']}", "DELETE"), timeout=30)

    def stop(self) -> None:
        """Ends the server with its kernels."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _request(self, path: str, method: str = "GET") -> Request:
        headers = {"Authorization": f"token {self.token}"}
        return Request(f"{self.url}{path}", headers=headers, method=method)

    def _environment(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("JUPYTER", "IPYTHON"))}
        own = {
            "JUPYTER_CONFIG_DIR": "config",
            "JUPYTER_DATA_DIR": "data",
            "JUPYTER_RUNTIME_DIR": "runtime",
            "JUPYTERLAB_SETTINGS_DIR": "settings",
            "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
            "IPYTHONDIR": "ipython",
        }
        folders = {name: str(self.directory / folder) for name, folder in own.items()}
        return {**kept, **folders, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}

    def _write_settings(self) -> None:
        config = self.directory / "config"
        (config / "labconfig").mkdir(parents=True)
        server = {
            "ip": "127.0.0.1",
            "port": self.port,
            "port_retries": 0,
            "open_browser": False,
            "allow_root": True,
            "root_dir": str(self.notebooks),
        }
        lab = {"expose_app_in_browser": True, "extension_manager": "readonly", "news_url": None}
        identity = {"token": self.token}
        write_json(
            config / "jupyter_lab_config.json",
            {"ServerApp": server, "LabApp": lab, "IdentityProvider": identity},
        )
        write_json(config / "labconfig" / "default_setting_overrides.json", SETTINGS)

    def _write_kernel(self) -> None:
        """The interpreter that runs the tests, whatever else is installed."""
        folder = self.directory / "data" / "kernels" / KERNEL
        folder.mkdir(parents=True)
        spec = {
            "argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
            "display_name": "kldive",
            "language": "python",
        }
        write_json(folder / "kernel.json", spec)


def write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value), encoding="utf-8")


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
