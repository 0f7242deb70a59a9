"""Records the pair of captures that `kldive demo` uses where vLLM cannot be installed.

    python sample_data/record_captures.py

Runs the same two commands as the demo on the first prompts of the bundled model, and checks that
the pair compares. Needs vLLM and transformers. Replaces `sample_data/captures/countdown-bf16`.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
MODEL = HERE / "countdown-moe"
OUT = HERE / "captures" / "countdown-bf16"
NUM_PROMPTS = 12


def kldive(*arguments: str) -> None:
    """Runs a kldive command as a person would; relative paths keep the manifests portable."""
    command = [sys.executable, "-m", "workbench", *arguments]
    subprocess.run(command, cwd=HERE.parent, check=True)


def main() -> None:
    """Records both sides and compares them."""
    shutil.rmtree(OUT, ignore_errors=True)
    rollout, trainer = (
        str((OUT / side).relative_to(HERE.parent)) for side in ("rollout", "trainer")
    )
    model = str(MODEL.relative_to(HERE.parent))
    with tempfile.TemporaryDirectory() as scratch:
        prompts = Path(scratch, "prompts.jsonl")
        lines = (MODEL / "prompts.jsonl").read_text().splitlines(keepends=True)
        prompts.write_text("".join(lines[:NUM_PROMPTS]))
        sampling = ("--temperature", "1.0", "--max-tokens", "64", "--max-model-len", "256")
        options = ("--prompts", str(prompts), "--logits", "--dtype", "bfloat16", *sampling)
        kldive("capture", "rollout", model, *options, "-o", rollout)
        kldive("capture", "trainer", model, "--like", rollout, "--logits", "-o", trainer)
        kldive("compare", rollout, trainer, "-o", str(Path(scratch, "comparison")))


if __name__ == "__main__":
    main()
