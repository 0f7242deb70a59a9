"""Reading what to run: prompts, token lists, captures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from workbench.capture.requests import Request, read_forced, read_prompts
from workbench.errors import UsageError
from workbench.store import CaptureWriter, Manifest


def written(path: Path, *lines: object) -> Path:
    path.write_text("\n".join(x if isinstance(x, str) else json.dumps(x) for x in lines))
    return path


def test_prompts_are_json_lines_or_plain_text_and_blank_lines_do_not_count(tmp_path: Path) -> None:
    path = written(
        tmp_path / "p", {"request": "x", "prompt": "hi"}, "", "plain text", {"token_ids": [1, 2]}
    )
    assert read_prompts(path) == [
        Request(name="x", prompt="hi"),
        Request(name="r1", prompt="plain text"),
        Request(name="r2", prompt_token_ids=(1, 2)),
    ]


@pytest.mark.parametrize(
    "line",
    ['{"prompt": 3}', '{"token_ids": [1, -2]}', '{"token_ids": [true]}', "{not json", "{" * 9000],
)
def test_a_bad_prompt_line_is_named(tmp_path: Path, line: str) -> None:
    with pytest.raises(UsageError, match="line 2"):
        read_prompts(written(tmp_path / "p", "fine", line))


def test_a_name_used_twice_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "p", {"request": "r1", "prompt": "a"}, "b")
    with pytest.raises(UsageError, match="named twice"):
        read_prompts(path)


def test_no_requests_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no requests"):
        read_prompts(written(tmp_path / "p", "", "  "))


def test_forced_tokens_come_from_json_lines(tmp_path: Path) -> None:
    path = written(tmp_path / "f", {"prompt_token_ids": [1], "token_ids": [2, 3]})
    assert read_forced(path) == [Request(name="r0", prompt_token_ids=(1,), forced_token_ids=(2, 3))]


def test_forced_tokens_come_from_a_capture_whatever_order_its_rows_have(tmp_path: Path) -> None:
    writer = CaptureWriter(tmp_path / "c", Manifest(path="rollout"))
    writer.append(
        {
            "request": ["b", "a", "b", "a", "b"],
            "position": [1, 0, 0, 1, 2],
            "token_id": [11, 20, 10, 21, 12],
            "phase": ["prompt", "prompt", "prompt", "generated", "generated"],
            "state": ["cached", "computed", "cached", "sampled", "sampled"],
        },
        {},
    )
    writer.finish()
    assert read_forced(tmp_path / "c") == [
        Request(name="b", prompt_token_ids=(10, 11), forced_token_ids=(12,)),
        Request(name="a", prompt_token_ids=(20,), forced_token_ids=(21,)),
    ]


def test_a_capture_with_a_hole_cannot_be_replayed(tmp_path: Path) -> None:
    writer = CaptureWriter(tmp_path / "c", Manifest(path="rollout"))
    writer.append({"request": ["a", "a"], "position": [0, 2], "token_id": [1, 2]}, {})
    writer.finish()
    with pytest.raises(UsageError, match="missing positions"):
        read_forced(tmp_path / "c")
