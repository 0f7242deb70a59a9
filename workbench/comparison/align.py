"""Aligning two captures by (request, position), and proving that their tokens are the same.

Owns the order of a comparison's rows: requests in order of first appearance in A, then position.
The invariant: what comes out was checked row by row; everything else is an `AlignmentError` that
shows both sides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from workbench.comparison.prefix import Cut, cut_at_other_tokens
from workbench.errors import AlignmentError, Mismatch, Token
from workbench.store import Capture, Manifest

CONTEXT_TOKENS: Final = 20
SHOWN_TOKENS: Final = 200
"""Tokens on each side of a mismatch that a screen may scroll through."""
_REPLAY: Final = "replay A's token ids on side B: kldive capture trainer MODEL --like ROLLOUT"
_KEY: Final = ["request", "position"]
_SIDE_COLUMNS: Final = ("state", "chunk", "offset", "logprob", "entropy", "rank")


@dataclass(frozen=True, slots=True, kw_only=True)
class Alignment:
    """Aligned rows.

    Attributes:
        rows: One line per row, in comparison order: request, position, token_id, text, phase,
            modality, step, batch_size (A's), and `state`, `chunk`, `offset`, `logprob`, `entropy`,
            `rank` with `_a` and `_b`; `chunk` is the place in `Capture.chunks`.
        expected: Rows that a whole comparison would have.
        only_a: Rows that A alone has, with a reason: not computed there, or lost on B.
        only_b: The same for B.
        cut: What was left out because the tokens part; None when they do not.
    """

    rows: pl.DataFrame
    expected: int
    only_a: int
    only_b: int
    cut: Cut | None = None


def align(a: Capture, b: Capture, *, common_prefix: bool = False) -> Alignment:
    """Joins the rows of two captures.

    Args:
        a: Capture A (rollout).
        b: Capture B (trainer).
        common_prefix: Where the tokens of a request part, keep the rows before that.

    Raises:
        AlignmentError: Other models, no rows, a row twice; unless `common_prefix`, a request that
            one side lacks or that has another length, or another token anywhere.
    """
    check_same_model(a.manifest, b.manifest)
    for side, capture in (("A", a), ("B", b)):
        _check_rows(side, capture)
    joined = _joined(a, b)
    lost = bool(a.damaged or b.damaged or not a.manifest.complete or not b.manifest.complete)
    cut = None
    if common_prefix:
        joined, cut = cut_at_other_tokens(joined, lost=lost)
    only_a = joined.filter(pl.col("token_id_b").is_null())
    only_b = joined.filter(pl.col("token_id").is_null())

    def before() -> int:
        return _shared(cut_at_other_tokens(joined, lost=lost)[0]).height

    if not lost:
        _check_one_sided(a, b, only_a, only_b, before)
    rows = _shared(joined)
    if rows.height == 0:
        raise AlignmentError(
            f"the captures have no row in common{' before their tokens part' if cut else ''}",
            where=_both(a, b),
            expected="the same requests on both sides",
            got=f"A: {_names(a)}; B: {_names(b)}",
            do=_REPLAY,
        )
    _check_tokens(a, b, rows, before)
    return Alignment(
        rows=rows.drop("token_id_b", "order"),
        expected=max(a.manifest.num_rows, b.manifest.num_rows),
        only_a=only_a.height,
        only_b=only_b.height,
        cut=cut,
    )


def check_same_model(a: Manifest, b: Manifest) -> None:
    """Refuses captures of different models.

    Raises:
        AlignmentError: The configurations or a site's shape differ.
    """
    names = ("num_layers", "num_experts", "top_k", "hidden_size", "vocab_size")
    for name in ("config_hash", *names):
        ours, theirs = getattr(a.model, name), getattr(b.model, name)
        # An importer may not know a fact; then the recorded shapes have to speak.
        if ours and theirs and ours != theirs:
            raise _other_model(a, b, f"{name} {_short(ours)}", f"{name} {_short(theirs)}")
    for site in (name for name in a.sites if name in b.sites):
        ours, theirs = a.sites[site].shape, b.sites[site].shape
        # The vocabulary may be padded differently; its real part is compared.
        if site != "logits" and ours != theirs:
            raise _other_model(a, b, f"{site} {list(ours)}", f"{site} {list(theirs)}")


def _short(value: object) -> str:
    return str(value)[:16]


def _other_model(a: Manifest, b: Manifest, ours: str, theirs: str) -> AlignmentError:
    return AlignmentError(
        "the captures are of different models",
        expected=f"A: {a.model.id[:200] or a.model.architecture[:80]}, {ours}",
        got=f"B: {b.model.id[:200] or b.model.architecture[:80]}, {theirs}",
        do="compare two captures of one model",
    )


def _check_rows(side: str, capture: Capture) -> None:
    table = capture.tokens
    if table.height == 0:
        raise AlignmentError(
            f"side {side} has no rows",
            where=capture.directory,
            expected="at least one readable chunk with rows",
            got=str(capture.damaged[0].what) if capture.damaged else "an empty capture",
            do="record this side again",
        )
    repeated = table.filter(table.select(_KEY).is_duplicated())
    if repeated.height:
        request, position = repeated.select(_KEY).row(0)
        raise AlignmentError(
            f"side {side} holds a row twice",
            where=f"{capture.directory}, request {request!r}, position {position}",
            expected="every (request, position) once",
            got=f"{repeated.height} lines that share theirs with another",
            do="record this side again",
        )


def _joined(a: Capture, b: Capture) -> pl.DataFrame:
    """All rows of both sides in comparison order; `token_id` null where A lacks the row."""
    lines_a = a.tokens.with_columns(pl.col("chunk").cast(pl.Int32))
    lines_b = b.tokens.select(
        *_KEY,
        pl.col("token_id").alias("token_id_b"),
        *(pl.col(n).alias(f"{n}_b") for n in _SIDE_COLUMNS),
    ).with_columns(pl.col("chunk_b").cast(pl.Int32))
    order = lines_a.select("request").unique(maintain_order=True).with_row_index("order")
    renamed = lines_a.rename({name: f"{name}_a" for name in _SIDE_COLUMNS})
    joined = renamed.join(lines_b, on=_KEY, how="full", coalesce=True)
    return joined.join(order, on="request", how="left").sort("order", "position", nulls_last=True)


def _shared(joined: pl.DataFrame) -> pl.DataFrame:
    """The rows that both sides have."""
    return joined.filter(pl.col("token_id").is_not_null() & pl.col("token_id_b").is_not_null())


def _check_one_sided(
    a: Capture,
    b: Capture,
    only_a: pl.DataFrame,
    only_b: pl.DataFrame,
    before: Callable[[], int],
) -> None:
    """Rows that a side did not compute may be missing on the other; all others must be on both."""
    for side, other, rows, state in (
        ("A", b, only_a, "state_a"),
        ("B", a, only_b, "state_b"),
    ):
        unexplained = rows.filter(pl.col(state) == "computed")
        if unexplained.height == 0:
            continue
        requests = unexplained["request"].unique(maintain_order=True)
        known = set(other.tokens["request"].unique())
        absent = [name for name in requests if name not in known]
        name = absent[0] if absent else requests[0]
        what = "lacks a request" if absent else "has a request of another length"
        num_before = before()
        error = AlignmentError(
            f"side {'B' if side == 'A' else 'A'} {what}: {_quoted(name)}",
            where=_both(a, b),
            expected=f"the same rows on both sides; A has {_extent(a, name)}",
            got=f"B has {_extent(b, name)}; {len(requests)} requests and {unexplained.height} "
            f"rows are on {side} alone",
            do=_way_out(num_before),
        )
        error.num_before = num_before
        raise error


def _extent(capture: Capture, request: str) -> str:
    positions = capture.tokens.filter(pl.col("request") == request)["position"]
    if len(positions) == 0:
        return "none of it"
    first, last = positions.to_numpy().min(), positions.to_numpy().max()
    return f"{len(positions)} rows at positions {first}..{last}"


def _way_out(num_before: int) -> str:
    if not num_before:
        return _REPLAY
    rows = "row" if num_before == 1 else "rows"
    return f"{_REPLAY}; or compare the {num_before:,} {rows} before that with --common-prefix"


def _check_tokens(a: Capture, b: Capture, rows: pl.DataFrame, before: Callable[[], int]) -> None:
    differs = np.flatnonzero((rows["token_id"] != rows["token_id_b"]).to_numpy())
    if len(differs) == 0:
        return
    first = rows.row(int(differs[0]), named=True)
    request, position = first["request"], first["position"]
    num_before = before()
    error = AlignmentError(
        f"the captures hold other tokens: {len(differs)} of {rows.height} rows differ",
        where=f"request {_quoted(request)}, position {position} (the first)",
        expected=f"A: token {first['token_id']} in {window(a.tokens, request, position)}",
        got=f"B: token {first['token_id_b']} in {window(b.tokens, request, position)}",
        do=_way_out(num_before),
    )
    error.num_before = num_before
    earlier = (pl.col("request") == request) & (pl.col("position") < position)
    error.mismatch = Mismatch(
        request=request,
        position=position,
        num_differing=len(differs),
        num_rows=rows.height,
        num_same=rows.filter(earlier).height,
        a=_tokens_near(a.tokens, request, position),
        b=_tokens_near(b.tokens, request, position),
    )
    raise error


def _tokens_near(tokens: pl.DataFrame, request: str, position: int) -> tuple[Token, ...]:
    near = _near(tokens, request, position, SHOWN_TOKENS)
    return tuple(Token(at, token_id, text or "") for at, token_id, text in near.iter_rows())


def _near(tokens: pl.DataFrame, request: str, position: int, count: int) -> pl.DataFrame:
    """Position, token id and text of a request's rows at most `count` away, by position."""
    near = tokens.filter(
        (pl.col("request") == request)
        & pl.col("position").is_between(position - count, position + count)
    )
    return near.sort("position").select("position", "token_id", "text")


def window(tokens: pl.DataFrame, request: str, position: int) -> str:
    """The text round a position in quotation marks, the token itself between >> and <<."""
    parts = []
    for row in _near(tokens, request, position, CONTEXT_TOKENS).iter_rows():
        text = _escaped(row[2]) or f"[{row[1]}]"
        parts.append(f">>{text}<<" if row[0] == position else text)
    return f'"{"".join(parts)}"'


def _escaped(text: str | None) -> str:
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text or "")


def _quoted(name: str) -> str:
    return f"'{_escaped(name[:80])}'"


def _names(capture: Capture) -> str:
    names = capture.tokens["request"].unique(maintain_order=True)
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(_quoted(name) for name in names[:3]) + more


def _both(a: Capture, b: Capture) -> str:
    return f"A {a.directory}, B {b.directory}"
