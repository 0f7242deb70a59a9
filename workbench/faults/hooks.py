"""Changing a module's input or output by a hook that goes before all others. Imports torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from workbench.capture.taps import first_tensor, hidden_argument

Change = Callable[[torch.Tensor], torch.Tensor]


def choices_of(args: Any, kwargs: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Hidden states, choices and gate weights as the experts get them."""
    given = [v for v in (*args, *kwargs.values()) if isinstance(v, torch.Tensor)]
    ids = next(v for v in given if not v.is_floating_point())
    weights = next(v for v in given if v.is_floating_point() and v.shape == ids.shape)
    hidden = hidden_argument(args, kwargs)
    assert hidden is not None
    return hidden, ids, weights


@contextmanager
def while_open(register: Callable[[], RemovableHandle]) -> Iterator[None]:
    """A hook that stands while the block runs."""
    handle = register()
    try:
        yield
    finally:
        handle.remove()


def on_output(module: nn.Module, change: Change) -> AbstractContextManager[None]:
    """Changes the first tensor among a module's results."""

    def hook(_module: nn.Module, _args: Any, output: Any) -> Any:
        return _with_first_tensor(output, change)

    return while_open(lambda: module.register_forward_hook(hook, prepend=True))


def on_input(module: nn.Module, change: Change) -> AbstractContextManager[None]:
    """Changes the hidden states that a module gets."""

    def hook(_module: nn.Module, args: Any, kwargs: Any) -> Any:
        hidden = hidden_argument(args, kwargs)
        return None if hidden is None else _with(args, kwargs, hidden, change(hidden))

    return while_open(
        lambda: module.register_forward_pre_hook(hook, with_kwargs=True, prepend=True)
    )


def on_weights(
    experts: nn.Module,
    change: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor],
) -> AbstractContextManager[None]:
    """Changes the gate weights that experts get; told hidden states, choices and weights."""

    def hook(_module: nn.Module, args: Any, kwargs: Any) -> Any:
        hidden, ids, weights = choices_of(args, kwargs)
        return _with(args, kwargs, weights, change(hidden, ids, weights))

    return while_open(
        lambda: experts.register_forward_pre_hook(hook, with_kwargs=True, prepend=True)
    )


def _with(args: Any, kwargs: Any, old: torch.Tensor, new: torch.Tensor) -> tuple[Any, Any]:
    """The arguments with one tensor replaced."""
    return (
        tuple(new if value is old else value for value in args),
        {name: new if value is old else value for name, value in kwargs.items()},
    )


def _with_first_tensor(output: Any, change: Change) -> Any:
    """A module's result with its first tensor changed, in the form that it came in."""
    tensor = first_tensor(output)
    if tensor is None:
        return output
    new = change(tensor)
    if output is tensor:
        return new
    if isinstance(output, (tuple, list)):
        return type(output)(new if item is tensor else item for item in output)
    output.last_hidden_state = new
    return output
