import math

import ml_dtypes
import numpy as np
import pytest

from workbench.view.numbers import compact_count, fixed, short, signed, spark, ulp_size


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (math.nan, "NaN"),
        (math.inf, "+Inf"),
        (-math.inf, "-Inf"),
        (0.0, "0"),
        (1.234e-7, "1.23e-07"),
        (0.31, "0.3100"),
        (12.5, "12.50"),
        (1e6, "1.00e+06"),
    ],
)
def test_short(value: float | None, text: str) -> None:
    assert short(value) == text


def test_a_tiny_difference_never_reads_as_zero() -> None:
    assert signed(3e-9) == "+3.00e-09"
    assert signed(-0.0123) == "-0.0123"
    assert signed(0.0) == "0"
    assert signed(math.nan) == "NaN"
    assert fixed(None) == "–"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (999, "999"), (1_000, "1.0k"), (9_949, "9.9k"), (9_950, "10k"), (999_499, "999k"),
     (999_500, "1.0M"), (3_145_728, "3.1M"), (10**9, ">1G")],
)  # fmt: skip
def test_compact_counts_fit_four_characters(value: int, text: str) -> None:
    assert compact_count(value) == text
    assert len(text) <= 4


@pytest.mark.parametrize("value", [1.0, 1.5, -3.7, 1e-3, 100.0])
def test_ulp_is_the_distance_to_the_next_number(value: float) -> None:
    assert ulp_size(value, "float32") == np.spacing(np.float32(abs(value)))
    assert ulp_size(value, "float16") == np.spacing(np.float16(abs(value)))
    stored = np.array([abs(value)], ml_dtypes.bfloat16)
    above = (stored.view(np.uint16) + 1).view(ml_dtypes.bfloat16)
    gap = float(above[0]) - float(stored[0])
    assert ulp_size(float(stored[0]), "bfloat16") == gap


@pytest.mark.parametrize(
    ("value", "dtype"), [(0.0, "float32"), (math.inf, "float32"), (1.0, "int32")]
)
def test_no_ulp_where_there_is_none(value: float, dtype: str) -> None:
    assert math.isnan(ulp_size(value, dtype))


def test_sparks_rise_on_a_fixed_scale() -> None:
    assert [spark(v) for v in (None, math.nan, math.inf, 0.0)] == [" ", "×", "×", "·"]
    assert [spark(10.0**e) for e in (-9, -6, -3, -1, 0, 3)] == ["▁", "▁", "▅", "▇", "█", "█"]
