"""A live server, recorded per batch of requests over loopback."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.capture.vllm.conftest import MODEL, assert_same_bits, of_request, rows_of
from workbench.capture.vllm.engine import FORCE_PROCESSOR
from workbench.capture.vllm.force import FORCE_KEY
from workbench.capture.vllm.server import record_server, run_server
from workbench.errors import RecordingError
from workbench.store import open_capture

pytestmark = pytest.mark.slow

PROMPTS = ("<3,7,2=12|", "<8,9,7=65|", "<15,6,1=90|")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    arguments = ["--max-model-len", "128", "--dtype", "float32", "--no-enable-prefix-caching"]
    arguments += ["--logits-processors", FORCE_PROCESSOR]
    log = tmp_path_factory.mktemp("server") / "server.log"
    with run_server(MODEL, arguments=arguments, log=log) as address:
        yield address


def test_each_batch_of_requests_becomes_a_capture(url: str, tmp_path: Path) -> None:
    for batch in (1, 2):
        with record_server(url, tmp_path / str(batch), knobs={"batch": batch}) as recording:
            for i, prompt in enumerate(PROMPTS):
                recording.complete(f"c{i}", prompt, max_tokens=32, temperature=0)
        capture = open_capture(tmp_path / str(batch))
        assert capture.complete
        assert capture.manifest.knobs["batch"] == batch
        assert set(capture.tokens["request"]) == {"c0", "c1", "c2"}
        for i, prompt in enumerate(PROMPTS):
            answer = recording.answers[f"c{i}"]
            rows = of_request(tmp_path / str(batch), f"c{i}")
            assert "".join(rows["text"]) == prompt + answer["text"] + ">"
            assert rows["token_id"].to_list()[-len(answer["token_ids"]) :] == answer["token_ids"]
    assert_same_bits(rows_of(tmp_path / "1"), rows_of(tmp_path / "2"))


def test_requests_outside_of_a_recording_are_not_in_it(url: str, tmp_path: Path) -> None:
    with record_server(url, tmp_path / "one") as recording:
        recording.complete("inside", PROMPTS[0], max_tokens=4, temperature=0)
    recording.complete("outside", PROMPTS[1], max_tokens=4, temperature=0)
    assert set(open_capture(tmp_path / "one").tokens["request"]) == {"inside"}


def test_tokens_can_be_forced_through_a_server(url: str, tmp_path: Path) -> None:
    tokens = list(range(20))
    with record_server(url, tmp_path / "forced") as recording:
        recording.complete(
            "f",
            [17, 3, 4],
            max_tokens=len(tokens),
            ignore_eos=True,
            temperature=0,
            vllm_xargs={FORCE_KEY: tokens},
        )
    assert recording.answers["f"]["token_ids"] == tokens


def test_a_run_that_fails_leaves_an_incomplete_capture(url: str, tmp_path: Path) -> None:
    with (
        pytest.raises(RecordingError, match="the server refused"),
        record_server(url, tmp_path / "bad") as recording,
    ):
        recording.complete("c", PROMPTS[0], max_tokens=-3)
    assert not open_capture(tmp_path / "bad").complete
    with record_server(url, tmp_path / "good") as recording:
        recording.complete("c", PROMPTS[0], max_tokens=3)
    assert open_capture(tmp_path / "good").complete


def test_a_server_that_is_not_there_is_one_clear_error(tmp_path: Path) -> None:
    with (
        pytest.raises(RecordingError, match="does not answer"),
        record_server("http://127.0.0.1:9", tmp_path / "x"),
    ):
        pass


def test_a_server_that_cannot_start_shows_its_last_lines(tmp_path: Path) -> None:
    with (
        pytest.raises(RecordingError, match="did not start"),
        run_server(tmp_path / "no-model", log=tmp_path / "log"),
    ):
        pass
