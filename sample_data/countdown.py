"""The countdown task: problems, their text, the verifier and the held-out split.

Owns what a countdown problem is. Imports the standard library only, so that checking a solution
needs no model. A problem is three whole numbers and a target; a solution combines two numbers
at a time until the target is left:

    <3,7,2=12|3+7=10,10+2=12>

Up to and including "|" is the prompt, the rest is the solution. Invariant: a problem is held out
or not by a hash of its numbers (in any order) and its target, so no held-out problem is ever
trained on, not even with its numbers shuffled.
"""

import hashlib
import random
import re
from collections import Counter
from dataclasses import dataclass

ALPHABET = "0123456789+-*=,<|>"
NUM_NUMBERS = 3
MIN_NUMBER, MAX_NUMBER = 2, 12
MAX_VALUE = 99
HELD_OUT_ONE_IN = 6

_STEP = re.compile(r"(0|[1-9]\d*)([-+*])(0|[1-9]\d*)=(0|[1-9]\d*)")
_PROMPT = re.compile(r"<(\d+(?:,\d+)*)=(\d+)\|")


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Numbers in the order shown, the target, and one known solution ending in `>`."""

    numbers: tuple[int, ...]
    target: int
    solution: str

    @property
    def prompt(self) -> str:
        """Text given to the model, such as `<3,7,2=12|`."""
        return f"<{','.join(map(str, self.numbers))}={self.target}|"

    @property
    def text(self) -> str:
        """Prompt and solution as one training document."""
        return self.prompt + self.solution


def is_held_out(numbers: tuple[int, ...], target: int) -> bool:
    """Whether the problem belongs to the held-out sixth; the order of the numbers is ignored."""
    key = f"{sorted(numbers)}={target}".encode()
    return hashlib.sha256(key).digest()[0] % HELD_OUT_ONE_IN == 0


def draw_problem(rng: random.Random, *, held_out: bool) -> Problem:
    """Draws one problem from the training part or the held-out part.

    Numbers are 2 to 12, no value on the way passes 99 or falls below 1, and only the first step
    multiplies: that keeps the search within reach of a model of this size.
    """
    while True:
        numbers = tuple(rng.randint(MIN_NUMBER, MAX_NUMBER) for _ in range(NUM_NUMBERS))
        steps, target = _combine(rng, numbers)
        if steps and is_held_out(numbers, target) == held_out:
            return Problem(numbers=numbers, target=target, solution=",".join(steps) + ">")


def draw_distinct(rng: random.Random, count: int, *, held_out: bool) -> list[Problem]:
    """Draws `count` problems, no two with the same numbers (in any order) and target."""
    found: dict[tuple[tuple[int, ...], int], Problem] = {}
    while len(found) < count:
        problem = draw_problem(rng, held_out=held_out)
        found.setdefault((tuple(sorted(problem.numbers)), problem.target), problem)
    return list(found.values())


def is_solution(prompt: str, solution: str) -> bool:
    """Whether `solution` solves `prompt`.

    Solved means: every step is true arithmetic on numbers still available, each given number and
    each intermediate result is used exactly once, the last result is the target, and the text ends
    with `>`. Anything that is not of this form, including leading zeros, is not a solution.

    >>> is_solution("<3,7,2=12|", "3+7=10,10+2=12>")
    True

    Raises:
        ValueError: `prompt` is not of the form `<a,b,c=target|`.
    """
    parts = _PROMPT.fullmatch(prompt)
    if parts is None:
        raise ValueError(
            f"prompt is not a countdown problem: expected '<3,7,2=12|', got {prompt!r}"
        )
    if not solution.endswith(">"):
        return False
    available = Counter(int(number) for number in parts[1].split(","))
    for step in solution[:-1].split(","):
        if not _take_step(available, step):
            return False
    return +available == Counter([int(parts[2])])


def _take_step(available: Counter[int], step: str) -> bool:
    """Replaces the two numbers a step uses by its result; False when the step is not allowed."""
    match = _STEP.fullmatch(step)
    if match is None:
        return False
    left, right, result = int(match[1]), int(match[3]), int(match[4])
    available.subtract([left, right])
    if min(available[left], available[right]) < 0 or _apply(match[2], left, right) != result:
        return False
    available[result] += 1
    return True


def _combine(rng: random.Random, numbers: tuple[int, ...]) -> tuple[list[str], int]:
    """Random steps over all the numbers, and their result; no steps if a value leaves the range."""
    pool = list(numbers)
    steps: list[str] = []
    while len(pool) > 1:
        i, j = sorted(rng.sample(range(len(pool)), 2))
        right, left = pool.pop(j), pool.pop(i)
        op = rng.choice("+-" if steps else "+-*")
        if op == "-" and left < right:
            left, right = right, left
        result = _apply(op, left, right)
        if not 1 <= result <= MAX_VALUE:
            return [], 0
        steps.append(f"{left}{op}{right}={result}")
        pool.insert(0, result)
    return steps, pool[0]


def _apply(op: str, left: int, right: int) -> int:
    if op == "+":
        return left + right
    return left - right if op == "-" else left * right
