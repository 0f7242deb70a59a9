"""What two captures have in common before their tokens part: the rows that can still be compared.

From the first other token of a request on, each side continues a text of its own, also where the
same token happens to stand at the same position again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import polars as pl

_HERE: Final = ["order", "request", "position"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Rows left out because the tokens part at them, or before them in their request.

    Attributes:
        request, position: The first row that was left out, in comparison order.
        num_requests: Requests that part, of `of_requests`.
        num_rows: Rows left out, of either side.
    """

    request: str
    position: int
    num_requests: int
    of_requests: int
    num_rows: int

    def reason(self) -> str:
        """Why such a comparison is not one of the whole captures, in a sentence."""
        name = "".join(c if c.isprintable() else repr(c)[1:-1] for c in self.request[:80])
        rows = "1 row" if self.num_rows == 1 else f"{self.num_rows:,} rows"
        return (
            f"other tokens in {self.num_requests:,} of {self.of_requests:,} requests, first at "
            f"{name} p{self.position}; only what comes before is compared, {rows} left out"
        )

    def to_json(self) -> dict[str, Any]:
        """For `comparison.json`."""
        return {
            "request": self.request,
            "position": self.position,
            "requests": self.num_requests,
            "of_requests": self.of_requests,
            "rows": self.num_rows,
        }


def cut_at_other_tokens(joined: pl.DataFrame, *, lost: bool) -> tuple[pl.DataFrame, Cut | None]:
    """Keeps, of each request, the rows before the first at which the sides part.

    They part at another token, and at a row that one side computed and the other does not have.

    Args:
        joined: All rows of both sides in comparison order, with `request`, `position`, `order`,
            `token_id`, `token_id_b` (null where that side lacks the row), `state_a`, `state_b`.
        lost: Whether a capture is damaged or unfinished: then a missing row says nothing.

    Returns:
        The rows kept, and what was cut; None when the sides part nowhere.
    """
    parts = pl.col("token_id") != pl.col("token_id_b")
    if not lost:
        for ours, theirs, state in (
            ("token_id", "token_id_b", "state_a"),
            ("token_id_b", "token_id", "state_b"),
        ):
            alone = pl.col(ours).is_not_null() & pl.col(theirs).is_null()
            parts = parts.fill_null(value=False) | (alone & (pl.col(state) == "computed"))
    first = joined.filter(parts).group_by("request").agg(pl.col("position").min().alias("cut"))
    if first.height == 0:
        return joined, None
    marked = joined.join(first, on="request", how="left", maintain_order="left")
    after = pl.col("position") >= pl.col("cut")
    left_out = marked.filter(after).sort(_HERE, nulls_last=True)
    request, position = left_out.select("request", "position").row(0)
    cut = Cut(
        request=request,
        position=position,
        num_requests=first.height,
        of_requests=joined["request"].n_unique(),
        num_rows=left_out.height,
    )
    return marked.filter(~after.fill_null(value=False)).drop("cut"), cut
