"""The terminal workbench. Draws workbench.view; never imports torch, transformers or vllm."""

from tui.run import run_tui

__all__ = ["run_tui"]
