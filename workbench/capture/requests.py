"""What to run: prompts and token lists, read from files or from a capture. No torch.

Every record is checked; an error names the file and the line.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.errors import UsageError
from workbench.store import open_capture


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One sequence to run.

    Attributes:
        name: Unique name; rows are addressed by it.
        prompt: Text of the prompt, when token ids are not given.
        prompt_token_ids: Token ids of the prompt, when known.
        forced_token_ids: Tokens to drive through decoding after the prompt; empty to sample.
    """

    name: str
    prompt: str | None = None
    prompt_token_ids: tuple[int, ...] | None = None
    forced_token_ids: tuple[int, ...] = ()


def read_prompts(path: str | Path) -> list[Request]:
    """Prompts of a file: JSON lines with `prompt` or `token_ids`, or plain text.

    A JSON line may name its sequence with `request`; others are named r0, r1, ... by their place.

    Raises:
        UsageError: Empty, a line that is neither, or a request name used twice.
    """
    requests: list[Request] = []
    for line_number, line in _lines(Path(path)):
        name = f"r{len(requests)}"
        if line.lstrip().startswith("{"):
            record = _record(line, path, line_number)
            name = str(record.get("request", name))
            ids = _ids(record, "token_ids", path, line_number)
            prompt = record.get("prompt")
            if ids is None and not isinstance(prompt, str):
                raise _bad(path, line_number, '"prompt" as text or "token_ids" as a list', line)
            requests.append(Request(name=name, prompt=prompt, prompt_token_ids=ids))
        else:
            requests.append(Request(name=name, prompt=line))
    return _checked(requests, path)


def read_forced(path: str | Path) -> list[Request]:
    """Token lists of a capture, or of JSON lines with `prompt_token_ids` and `token_ids`.

    Raises:
        UsageError: Empty, a line that does not fit, or a request name used twice.
        CaptureError: The capture cannot be read.
    """
    source = Path(path)
    if source.is_dir():
        return _checked(_of_capture(source), path)
    requests: list[Request] = []
    for line_number, line in _lines(source):
        record = _record(line, path, line_number)
        prompt = _ids(record, "prompt_token_ids", path, line_number)
        forced = _ids(record, "token_ids", path, line_number)
        if not prompt or not forced:
            raise _bad(path, line_number, '"prompt_token_ids" and "token_ids", not empty', line)
        name = str(record.get("request", f"r{len(requests)}"))
        requests.append(Request(name=name, prompt_token_ids=prompt, forced_token_ids=forced))
    return _checked(requests, path)


def _of_capture(directory: Path) -> list[Request]:
    tokens = open_capture(directory).tokens
    requests: list[Request] = []
    for name, unordered in tokens.group_by("request", maintain_order=True):
        rows = unordered.sort("position")
        generated = (rows["phase"] == "generated").to_list()
        ids = rows["token_id"].to_list()
        if rows["position"].to_list() != list(range(len(ids))):
            raise UsageError(
                "cannot replay a request with missing positions",
                where=directory,
                expected=f"positions 0..{len(ids) - 1} of request {name[0]}",
                got=f"{ids and rows['position'].to_list()[:8]} ...",
                do="record the capture again to its end",
            )
        num_prompt = generated.index(True) if True in generated else len(ids)
        requests.append(
            Request(
                name=str(name[0]),
                prompt_token_ids=tuple(ids[:num_prompt]),
                forced_token_ids=tuple(ids[num_prompt:]),
            )
        )
    return requests


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError("cannot read requests", where=path, got=str(error)) from error
    for line_number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            yield line_number, line


def _record(line: str, path: str | Path, line_number: int) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _bad(path, line_number, "a JSON object", str(error)) from error
    if not isinstance(record, dict):
        raise _bad(path, line_number, "a JSON object", line)
    return record


def _ids(
    record: dict[str, Any], key: str, path: str | Path, line_number: int
) -> tuple[int, ...] | None:
    ids = record.get(key)
    if ids is None:
        return None
    if not isinstance(ids, list) or not all(type(token) is int and token >= 0 for token in ids):
        raise _bad(path, line_number, f'"{key}" as a list of token ids', repr(ids))
    return tuple(ids)


def _checked(requests: list[Request], path: str | Path) -> list[Request]:
    if not requests:
        raise UsageError("no requests", where=path, expected="at least one", got="none")
    seen: set[str] = set()
    for request in requests:
        if request.name in seen:
            raise UsageError(
                f"request {request.name!r} is named twice", where=path, do="give each its own name"
            )
        seen.add(request.name)
    return requests


def _bad(path: str | Path, line_number: int, expected: str, got: str) -> UsageError:
    return UsageError(
        "a request cannot be read",
        where=f"{path}, line {line_number}",
        expected=expected,
        got=got[:100],
    )
