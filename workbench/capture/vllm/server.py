"""Recording on a live server: start one that can be recorded, and record per batch of requests.

Speaks to the server's own HTTP interface with the standard library alone; imports no vLLM. The
server must have been started with `--worker-extension-cls` and VLLM_SERVER_DEV_MODE=1, which opens
a control interface: keep it on loopback or a trusted network. The capture is written on the
server's machine.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
import polars as pl

from workbench.capture.vllm.check import mark_incomplete
from workbench.capture.vllm.engine import DEFAULT_ENVIRONMENT, EXTENSION
from workbench.capture.vllm.settings import RecordSettings
from workbench.errors import RecordingError
from workbench.store import open_capture

_REPOSITORY: Final = Path(__file__).parents[3]
# Loopback is never reached through a proxy.
_open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open


@contextmanager
def run_server(
    model: str | os.PathLike[str],
    *,
    arguments: Sequence[str] = (),
    log: str | os.PathLike[str] | None = None,
    timeout: float = 300,
) -> Iterator[str]:
    """A server on a free loopback port that can be recorded; stopped on leaving.

    Args:
        model: Directory or name of the checkpoint.
        arguments: Further command-line arguments of the server.
        log: File for the server's output; a temporary one when left out.
        timeout: Seconds to wait until it answers.

    Yields:
        Its address, such as `http://127.0.0.1:8000`.

    Raises:
        RecordingError: It ended, or did not answer in time; the message has its last lines.
    """
    port = _free_port()
    command = [
        *(sys.executable, "-m", "vllm.entrypoints.openai.api_server"),
        *("--model", os.fspath(model), "--host", "127.0.0.1", "--port", str(port)),
        *("--enforce-eager", "--worker-extension-cls", EXTENSION, *arguments),
    ]
    path = [str(_REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {
        **DEFAULT_ENVIRONMENT,
        **os.environ,
        "VLLM_SERVER_DEV_MODE": "1",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "1",
        "PYTHONPATH": os.pathsep.join(path),
    }
    with _log_file(log) as file:
        process = subprocess.Popen(command, env=environment, stdout=file, stderr=subprocess.STDOUT)
        try:
            url = f"http://127.0.0.1:{port}"
            _wait_until_up(process, url, Path(file.name), timeout)
            yield url
        finally:
            _end(process)


@contextmanager
def record_server(
    url: str,
    out: str | os.PathLike[str],
    *,
    logits: bool = False,
    sites: Sequence[str] = (),
    knobs: Mapping[str, Any] | None = None,
    api_key: str | None = None,
) -> Iterator[ServerRecording]:
    """Records everything the server computes while the block runs.

    Requests may be sent by anyone. Those sent through `ServerRecording.complete` are named, and
    checked against what came back: tokens, and log-probabilities bit for bit.

    Args:
        url: Address of the server.
        out: Capture directory on the server's machine, new or empty.
        logits: Record full logits where the engine computes them.
        sites: Short names of the sites to record; all when empty.
        knobs: Further settings to note in the manifest.
        api_key: Key of the server, when it wants one.

    Raises:
        RecordingError: The server does not answer, cannot be recorded, or recorded something else
            than it returned.
    """
    recording = ServerRecording(url.rstrip("/"), Path(out).absolute(), api_key)
    settings = RecordSettings(
        out=str(recording.directory), logits=logits, sites=tuple(sites), knobs=dict(knobs or {})
    )
    recording.call("kldive_start", settings.to_json())
    try:
        yield recording
    except BaseException as error:
        recording.call("kldive_abort", f"the run ended: {type(error).__name__}")
        raise
    received = {name: len(choice["token_ids"]) for name, choice in recording.answers.items()}
    recording.call("kldive_stop", json.dumps(received))
    recording.check()


class ServerRecording:
    """A recording that runs on a server.

    Attributes:
        directory: The capture's directory.
        answers: What came back for each named request.
    """

    def __init__(self, url: str, directory: Path, api_key: str | None) -> None:
        self.directory = directory
        self.answers: dict[str, dict[str, Any]] = {}
        self._url = url
        self._api_key = api_key

    def complete(self, name: str, prompt: str | Sequence[int], **parameters: Any) -> dict[str, Any]:
        """Sends one completion request and returns its only choice, with `token_ids`.

        Args:
            name: Name of the request in the capture.
            prompt: Text or token ids.
            **parameters: Of the completion interface, such as `max_tokens`.
        """
        body = {
            "prompt": prompt if isinstance(prompt, str) else list(prompt),
            "request_id": name,
            "logprobs": 1,
            "return_token_ids": True,
            **parameters,
        }
        answer = self._post("/v1/completions", body)
        choice: dict[str, Any] = answer["choices"][0]
        self.answers[name] = choice
        return choice

    def call(self, method: str, argument: str) -> dict[str, Any]:
        """Calls a method of the worker extension.

        Raises:
            RecordingError: With the worker's own message.
        """
        answer = self._post("/collective_rpc", {"method": method, "args": [argument]})
        results: list[dict[str, Any]] = answer["results"]
        for result in results:
            if result.get("error"):
                raise RecordingError(str(result["error"]))
        return results[0]

    def check(self) -> None:
        """Compares the capture with what came back, where it lies on this machine.

        Raises:
            RecordingError: Something differs; the capture is then marked incomplete.
        """
        if not self.directory.exists():
            return
        tokens = open_capture(self.directory).tokens
        for name, choice in self.answers.items():
            rows = tokens.filter((pl.col("request") == name) & (pl.col("phase") == "generated"))
            rows = rows.sort("position")
            scores = np.asarray(choice["logprobs"]["token_logprobs"], np.float32)
            same = rows["token_id"].to_list() == choice["token_ids"]
            if not same or not np.array_equal(rows["logprob"].to_numpy(), scores):
                mark_incomplete(self.directory)
                raise RecordingError(
                    "the recording is not what the server returned; it is marked incomplete",
                    where=f"request {name}",
                    expected=f"{len(scores)} tokens and their log-probabilities",
                    got=f"{rows.height} rows",
                    do="send every request of a recording with its own name",
                )

    def _post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        headers = {"Content-Type": "application/json"}
        if self._api_key:
            headers["Authorization"] = f"Bearer {self._api_key}"
        # The address is the caller's own choice of server.
        request = urllib.request.Request(  # noqa: S310
            self._url + path, json.dumps(body).encode(), headers
        )
        try:
            with _open(request) as response:
                answer: dict[str, Any] = json.loads(response.read() or b"{}")
        except urllib.error.HTTPError as error:
            hint = "start the server with VLLM_SERVER_DEV_MODE=1 and --worker-extension-cls"
            raise RecordingError(
                "the server refused",
                where=self._url + path,
                got=f"{error.code}: {error.read().decode(errors='replace')[:300]}",
                do=f"{hint} {EXTENSION}" if path == "/collective_rpc" else None,
            ) from error
        except (urllib.error.URLError, ConnectionError) as error:
            raise RecordingError(
                "the server does not answer", where=self._url + path, got=error
            ) from error
        return answer


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _log_file(log: str | os.PathLike[str] | None) -> IO[bytes]:
    if log is not None:
        return Path(log).open("wb")
    return tempfile.NamedTemporaryFile(prefix="kldive-server-", suffix=".log")


def _wait_until_up(process: subprocess.Popen[bytes], url: str, log: Path, timeout: float) -> None:
    deadline = time.monotonic() + timeout
    while True:
        try:
            with _open(f"{url}/health", timeout=5):
                return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            pass
        ended = process.poll() is not None
        if ended or time.monotonic() > deadline:
            tail = log.read_text(errors="replace").splitlines()[-15:]
            raise RecordingError(
                "the server did not start",
                where=url,
                expected=f"an answer within {timeout:.0f} s",
                got="\n".join([f"exit code {process.returncode}" if ended else "none", *tail]),
            )
        time.sleep(0.2)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(timeout=30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
