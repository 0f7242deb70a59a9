"""What every test shares: a quiet, small, offline engine, and who runs where.

The environment is set here, at import, because torch and vLLM read it once when they load.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from tests.browser import browsers

ENGINE_ENVIRONMENT = {
    # One thread per worker: two workers on two cores leave nothing to fight over, and sums are
    # added in the same order every time.
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    # vLLM otherwise pins each engine to the same core.
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    # One sampler helper is compiled even in eager mode: 17 s for the first request.
    "TORCH_COMPILE_DISABLE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
}
for name, value in ENGINE_ENVIRONMENT.items():
    os.environ.setdefault(name, value)

# No deadline: the other worker may hold the core. In CI the same examples every time.
settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")


# These files share one session's engine, and two engines at once would starve each other.
ENGINE_FOLDER = "tests/capture/vllm/"
# And these one JupyterLab with its browser.
BROWSER_FOLDER = "tests/browser/"


class ByFile(LoadScopeScheduling):  # type: ignore[misc]
    """Gives a worker whole files, so that module fixtures are built once."""

    def _split_scope(self, nodeid: str) -> str:
        for folder in (ENGINE_FOLDER, BROWSER_FOLDER):
            if nodeid.startswith(folder):
                return folder
        return nodeid.partition("::")[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByFile:
    """Hand out files in the order that the collection left them in."""
    config.option.loadscopereorder = False
    return ByFile(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what this machine cannot run, and start with what takes longest.

    The engine's tests come first: they then run beside everything else instead of after it.
    """
    for item in items:
        if item.get_closest_marker("gpu") and not gpu_answers():
            item.add_marker(pytest.mark.skip(reason="no NVIDIA GPU answers"))
        if item.get_closest_marker("browser") and not browsers.chromium():
            item.add_marker(pytest.mark.skip(reason=browsers.MISSING))
    items.sort(key=start_rank)


def start_rank(item: pytest.Item) -> int:
    """0 for engine tests, 1 for slow ones, 2 for the rest; a stable sort keeps file order."""
    if item.get_closest_marker("slow") is None:
        return 2
    return 0 if item.nodeid.startswith(ENGINE_FOLDER) else 1


@cache
def gpu_answers() -> bool:
    """Whether an NVIDIA GPU can be used here."""
    smi = shutil.which("nvidia-smi")
    return smi is not None and subprocess.run([smi, "-L"], check=False).returncode == 0
