"""Reversible changes to live objects: hooks and wrapped methods. Owns their undoing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class Removable(Protocol):
    """Something that `remove()` takes away again."""

    def remove(self) -> None: ...


class Patches:
    """Everything that was hooked or wrapped, so that one call takes it all away."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def keep(self, handle: Removable) -> None:
        """Remembers a hook's handle."""
        self._undo.append(handle.remove)

    def wrap(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        """Replaces a method on one object by `make(original)`; the class stays as it is."""
        original = getattr(owner, name)
        is_own = name in vars(owner)
        setattr(owner, name, make(original))
        if is_own:
            self._undo.append(lambda: setattr(owner, name, original))
        else:
            self._undo.append(lambda: delattr(owner, name))

    def remove(self) -> None:
        """Undoes everything, newest first. Calling it again does nothing."""
        while self._undo:
            self._undo.pop()()
