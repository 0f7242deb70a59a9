"""One real engine for all of these tests, small enough to be preempted and to chunk its prompts."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pytest

from workbench.capture.requests import Request
from workbench.store import Capture, open_capture

MODEL = Path(__file__).parents[3] / "sample_data" / "countdown-moe"
VOCAB_SIZE = 32
BLOCK_SIZE = 32
TOKEN_BUDGET = 40


class Row(NamedTuple):
    """One recorded row with all its arrays."""

    token: dict[str, Any]
    arrays: dict[str, np.ndarray]


@pytest.fixture(scope="session")
def engine() -> Iterator[Any]:
    """float32; 24 blocks of 32 tokens for up to 16 requests at once; 40 tokens per step."""
    from workbench.capture.vllm.engine import RolloutSettings, close_engine, open_engine

    llm = open_engine(
        MODEL,
        RolloutSettings(
            dtype="float32",
            max_model_len=128,
            max_num_batched_tokens=TOKEN_BUDGET,
            max_num_seqs=16,
            num_kv_blocks=24,
            enable_prefix_caching=True,
            engine_options={"block_size": BLOCK_SIZE, "max_logprobs": -1},
        ),
    )
    yield llm
    close_engine(llm)


@pytest.fixture
def llm(engine: Any) -> Any:
    """The engine with an empty prefix cache."""
    engine.reset_prefix_cache()
    return engine


@pytest.fixture
def runner(engine: Any) -> Any:
    """The live model runner of the engine."""
    return engine.llm_engine.model_executor.driver_worker.worker.model_runner


def random_requests(count: int, *, seed: int, low: int = 3, high: int = 90) -> list[Request]:
    """Requests of mixed length from the whole vocabulary; no two share a prefix of a block."""
    rng = random.Random(seed)
    return [
        Request(
            name=f"c{i:02}",
            prompt_token_ids=tuple(
                rng.randrange(VOCAB_SIZE) for _ in range(rng.randint(low, high))
            ),
        )
        for i in range(count)
    ]


def rows_of(capture: Capture | Path) -> dict[tuple[str, int], Row]:
    """Every row by (request, position); no pair comes twice."""
    if isinstance(capture, Path):
        capture = open_capture(capture)
    places = [
        {
            site: {
                int(offset): value
                for offset, value in zip(
                    range(chunk.num_array_rows) if covered is None else covered,
                    chunk.array(site),
                    strict=True,
                )
            }
            for site in capture.sites
            if site in chunk
            for covered in [chunk.covered(site)]
        }
        for chunk in capture.chunks
    ]
    found: dict[tuple[str, int], Row] = {}
    for token in capture.tokens.iter_rows(named=True):
        arrays = {
            site: values[token["offset"]]
            for site, values in places[token["chunk"]].items()
            if token["offset"] in values
        }
        key = token["request"], token["position"]
        assert key not in found
        found[key] = Row(token, arrays)
    return found


def assert_same_bits(a: dict[tuple[str, int], Row], b: dict[tuple[str, int], Row]) -> None:
    """Same rows, same tokens, same bits of log-probability and of every array."""
    assert a.keys() == b.keys()
    for key, row in a.items():
        other = b[key]
        for column in ("token_id", "phase", "state", "logprob", "rank", "entropy"):
            assert row.token[column] == other.token[column], (key, column)
        assert row.arrays.keys() == other.arrays.keys(), key
        for site, array in row.arrays.items():
            assert array.tobytes() == other.arrays[site].tobytes(), (key, site)


def of_request(capture: Path, name: str) -> pl.DataFrame:
    """Token lines of one request by position."""
    return open_capture(capture).tokens.filter(pl.col("request") == name).sort("position")
