import subprocess
import sys

import pytest

HEAVY = ("torch", "transformers", "vllm")


@pytest.mark.parametrize(
    ("module", "forbidden"),
    [
        ("workbench.view.cell_text", (*HEAVY, "textual")),
        ("tui.run", HEAVY),
    ],
)
def test_what_a_face_never_imports(module: str, forbidden: tuple[str, ...]) -> None:
    code = f"import sys, {module}; print([m for m in {forbidden!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
