"""Loading a causal language model from disk: no network, no bar of its own, errors for people."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from workbench.errors import MissingDependencyError, UsageError, missing_extra


def load_causal_lm(
    model: str | os.PathLike[str],
    *,
    purpose: str,
    expected: str,
    do: str,
    **options: Any,
) -> nn.Module:
    """Loads a model as transformers does.

    Args:
        model: Directory, or name of a model in the local cache.
        purpose: What transformers is needed for, such as "to record a trainer".
        expected: What the error says should have been there.
        do: What the error says to do.
        **options: Passed on to `from_pretrained`.

    Raises:
        MissingDependencyError: transformers, or a package that the model needs, is not installed.
        UsageError: The model cannot be loaded.
    """
    try:
        from transformers import AutoModelForCausalLM
    except ModuleNotFoundError as error:
        if error.name != "transformers":
            raise
        raise missing_extra("transformers", purpose, "torch") from error
    try:
        with _quiet():
            live: nn.Module = AutoModelForCausalLM.from_pretrained(
                str(model), local_files_only=True, **options
            )
    except ImportError as error:
        raise MissingDependencyError(
            "the model needs a package that is not installed", where=model, got=_first_line(error)
        ) from error
    except (OSError, ValueError, RuntimeError, KeyError, AssertionError) as error:
        raise UsageError(
            "cannot load the model", where=model, expected=expected, got=_first_line(error), do=do
        ) from error
    return live


@contextmanager
def _quiet() -> Iterator[None]:
    """Loading draws no bar of its own: progress is told by whoever asked for it."""
    from transformers.utils import logging

    was_enabled = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if was_enabled:
            logging.enable_progress_bar()


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
