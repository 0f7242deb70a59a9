"""Numbers as people read them: short, aligned, with missing, NaN and Inf said in words."""

from __future__ import annotations

import math
from typing import Final

from workbench.store.dtypes import unit_roundoff

MISSING: Final = "–"
_SPARK: Final = "▁▂▃▄▅▆▇█"
_SPARK_DECADES: Final = (-6.0, 0.0)


def short(value: float | None, digits: int = 2) -> str:
    """A size or difference: `0`, `1.2e-03`, `0.31`, `12.5`; `–` when it does not exist.

    >>> short(0.00123), short(0.0), short(float("nan")), short(None)
    ('1.23e-03', '0', 'NaN', '–')
    """
    if value is None:
        return MISSING
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("+Inf" if value > 0 else "-Inf")
    if value == 0:
        return "0"
    if abs(value) >= 1e5 or abs(value) < 1e-2:
        return f"{value:.{digits}e}"
    return f"{value:.{digits + 2 if abs(value) < 1 else digits}f}"


def fixed(value: float | None, digits: int = 4) -> str:
    """A score or log-probability with a fixed number of decimals.

    >>> fixed(-0.69314), fixed(None)
    ('-0.6931', '–')
    """
    if value is None or not math.isfinite(value):
        return short(value)
    if abs(value) >= 1e6:
        return f"{value:.2e}"
    return f"{value:.{digits}f}"


def signed(value: float | None, digits: int = 4) -> str:
    """A difference whose sign matters, with its sign always shown; tiny ones in exponent form.

    >>> signed(0.0123), signed(-3.2e-7), signed(0.0)
    ('+0.0123', '-3.20e-07', '0')
    """
    if value is None or not math.isfinite(value) or value == 0:
        return short(value)
    small = abs(value) < 5 * 10.0**-digits
    return f"{value:+.2e}" if small else f"{value:+.{digits}f}"


def times(value: float | None) -> str:
    """A multiple in at most six columns with its sign.

    >>> times(5.31), times(0.0), times(0.004), times(1234.0), times(None)
    ('5.3 ×', '0 ×', '<0.1 ×', '1.2k ×', '–')
    """
    if value is None:
        return MISSING
    if not math.isfinite(value):
        return short(value)
    if value == 0:
        return "0 ×"
    if value < 0.1:
        return "<0.1 ×"
    return f"{value:.1f} ×" if value < 100 else f"{compact_count(int(value))} ×"


def count(value: int) -> str:
    """A count with thousands separated.

    >>> count(3145728)
    '3,145,728'
    """
    return f"{value:,}"


def ulp_size(value: float, dtype: str) -> float:
    """Distance between neighbouring numbers of a float type at `value`; NaN where it has none.

    >>> ulp_size(1.0, "bfloat16")
    0.0078125
    """
    roundoff = unit_roundoff(dtype)
    if roundoff == 0.0 or value == 0 or not math.isfinite(value):
        return math.nan
    _, exponent = math.frexp(abs(value))
    return math.ldexp(2 * roundoff, exponent - 1)


def spark(value: float | None) -> str:
    """One character for a relative error: eight heights over 1e-6 to 1, on a logarithmic scale.

    The scale is fixed, so that two sparklines can be compared. `·` is zero, `×` NaN or Inf.
    """
    if value is None:
        return " "
    if not math.isfinite(value):
        return "×"
    if value <= 0:
        return "·"
    low, high = _SPARK_DECADES
    share = (math.log10(value) - low) / (high - low)
    return _SPARK[min(7, max(0, int(share * 8)))]


def compact_count(value: int) -> str:
    """A count in at most four characters.

    >>> compact_count(987), compact_count(4813), compact_count(32768), compact_count(3145728)
    ('987', '4.8k', '33k', '3.1M')
    """
    for limit, divisor, unit in (
        (1_000, 1, ""),
        (999_500, 1_000, "k"),
        (999_500_000, 1_000_000, "M"),
    ):
        if value < limit:
            scaled = value / divisor
            return f"{value}" if divisor == 1 else f"{scaled:.{1 if scaled < 9.95 else 0}f}{unit}"
    return ">1G"
