"""The trainer path: any transformers causal language model, each row once, no value changed."""

from workbench.capture.trainer.recorder import Recorder, record
from workbench.capture.trainer.replay import capture_trainer

__all__ = ["Recorder", "capture_trainer", "record"]
