"""The smallest part of a list that is enough, with as few questions as can be. Stdlib only.

A question costs a forward pass over all tokens, so what counts is how many are asked. Delta
debugging by halves (ddmin) asks about both halves at every level: 2 log2 n questions for one
culprit among n, and the packaged implementation (picire, last released in 2021) asks once more
about every reduced list. Here the list has an order, that of execution: a binary search over its
prefixes finds the last culprit in ceil(log2 n) questions, keeps it, and goes on before it. For m
culprits that is about m log2 n.

Nothing has to be monotone for the answer to be enough: only sets that were asked about are given
out. A last round drops, one by one, what turns out not to be needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

Item = TypeVar("Item")


def smallest_enough(items: Sequence[Item], enough: Callable[[frozenset[Item]], bool]) -> list[Item]:
    """Items, in order, that are enough together and of which each one is needed.

    Args:
        items: In an order in which prefixes are good questions; all of them are enough.
        enough: Whether some items are enough. Asked once per set by this function's caller if it
            remembers answers; the empty set is never asked about.

    >>> smallest_enough(range(8), lambda kept: {2, 5} <= kept)
    [2, 5]
    """
    kept: list[Item] = []
    before = list(items)
    while before:
        not_enough, enough_at = 0, len(before)
        while enough_at - not_enough > 1:
            middle = (not_enough + enough_at) // 2
            if enough(frozenset([*before[:middle], *kept])):
                enough_at = middle
            else:
                not_enough = middle
        kept.insert(0, before[enough_at - 1])
        before = before[: enough_at - 1]
        if before and enough(frozenset(kept)):
            break
    return _each_needed(kept, enough)


def _each_needed(kept: list[Item], enough: Callable[[frozenset[Item]], bool]) -> list[Item]:
    if len(kept) == 1:
        return kept
    for item in list(kept):
        rest = [other for other in kept if other != item]
        if rest and enough(frozenset(rest)):
            kept = rest
    return kept
