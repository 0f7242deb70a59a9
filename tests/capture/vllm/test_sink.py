"""The tensors of one step, without an engine."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from workbench.capture.vllm.sink import StepSink
from workbench.errors import RecordingError

KEEP = np.array([0, 2])


def sink(*, wants: str | None = None) -> StepSink:
    return StepSink(lambda site: wants is None or site == wants)


def test_padding_is_cut_and_only_kept_rows_leave() -> None:
    taker = sink()
    taker.open(3)
    taker.record("layers.0.input", torch.arange(10.0).reshape(5, 2))
    arrays = taker.close(KEEP)
    assert arrays["layers.0.input"].tolist() == [[0, 1], [4, 5]]


def test_a_tensor_is_copied_at_the_moment_it_is_seen() -> None:
    taker, tensor = sink(), torch.zeros(3, 2)
    taker.open(3)
    taker.record("layers.0.input", tensor)
    tensor += 1
    assert not taker.close(KEEP)["layers.0.input"].any()


def test_bfloat16_keeps_its_bits() -> None:
    taker = sink()
    taker.open(1)
    tensor = torch.tensor([[1.0, -0.0, float("nan"), 3.140625]], dtype=torch.bfloat16)
    taker.record("layers.0.input", tensor)
    array = taker.close(np.array([0]))["layers.0.input"]
    assert array.dtype.name == "bfloat16"
    assert array.view(np.int16).tolist() == tensor.view(torch.int16).tolist()


def test_sites_that_nobody_wants_are_held_and_not_copied() -> None:
    taker = sink(wants="output")
    taker.open(1)
    taker.record("layers.0.input", torch.zeros(1, 2))
    assert taker.holds("layers.0.input")
    assert taker.close(np.array([0])) == {}


def test_a_module_that_runs_twice_in_a_step_is_refused() -> None:
    taker = sink()
    taker.open(1)
    taker.record("embed", torch.zeros(1, 2))
    with pytest.raises(RecordingError, match="ran twice"):
        taker.record("embed", torch.zeros(1, 2))


@pytest.mark.parametrize("shape", [(2, 4), (12,), (2, 3, 4)])
def test_too_few_rows_or_another_layout_are_refused(shape: tuple[int, ...]) -> None:
    taker = sink()
    taker.open(3)
    with pytest.raises(RecordingError, match="3 rows"):
        taker.record("embed", torch.zeros(shape))


def test_a_batch_axis_of_one_is_taken_off() -> None:
    taker = sink()
    taker.open(2)
    taker.record("layers.0.input", torch.zeros(1, 2, 4))
    assert taker.close(np.array([0, 1]))["layers.0.input"].shape == (2, 4)


def test_a_step_in_which_no_layer_was_seen_is_refused() -> None:
    taker = sink()
    taker.open(1)
    taker.record("embed", torch.zeros(1, 2))
    with pytest.raises(RecordingError, match="no hook fired"):
        taker.close(np.array([0]))


def test_a_hook_that_falls_silent_later_is_refused() -> None:
    taker = sink()
    for sites in (["layers.0.input", "layers.0.output"], ["layers.0.input"]):
        taker.open(1)
        for site in sites:
            taker.record(site, torch.zeros(1, 2))
        if len(sites) == 2:
            taker.close(np.array([0]))
    with pytest.raises(RecordingError, match=r"layers\.0\.output"):
        taker.close(np.array([0]))
