"""`kldive attribute`: exit codes, JSON, and one message for bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.attribution.recorded import Fault, recorded
from tests.capture.models import make_model
from workbench.cli.main import main
from workbench.comparison.run import compare


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved model, a clean comparison and one with a fault."""
    directory = tmp_path_factory.mktemp("run")
    model = make_model("mixtral")
    model.save_pretrained(directory / "model")
    fault = Fault(1, "attn_out", lambda tensor: tensor * 1.01)
    b = recorded(model, directory / "b")
    clean = recorded(model, directory / "clean-a")
    faulty = recorded(model, directory / "faulty-a", fault=fault)
    compare(clean, b, out=directory / "clean")
    compare(faulty, b, out=directory / "faulty")
    return directory


def test_a_clean_pair_exits_0_and_a_fault_exits_1_with_its_place(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = str(run / "model")
    assert main(["attribute", str(run / "clean"), "--model", model, "--no-swaps"]) == 0
    assert "neither side is outside its rounding budget" in capsys.readouterr().out
    arguments = ["attribute", str(run / "faulty"), "--model", model, "--no-swaps", "--json"]
    assert main(arguments) == 1
    shown = capsys.readouterr()
    first = json.loads(shown.out)["first"]["local_error"]
    assert (first["layer"], first["module"], first["who"]) == (1, "attention", "A")
    assert "attribute: mapping local errors of 4 sequences" in shown.err


def test_bad_input_is_one_message(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["attribute", str(run / "none"), "--model", str(run / "model")]) == 3
    assert "not a comparison" in capsys.readouterr().err
    assert main(["attribute", str(run / "clean"), "--model", str(run / "none")]) == 2
    assert "cannot load the model" in capsys.readouterr().err
