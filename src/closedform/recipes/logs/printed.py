"""Printed numbers as intervals: the values that a logger may have rounded to them."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from closedform.ir.types import FloatArray, StepArray

_MOST_DIGITS = 400
"""Characters beyond which a text is not read as a number."""

FLOAT_DIGITS = 15
"""A column with so many digits holds floats as Python prints them; with fewer, rounded numbers."""

TOLERANCE = 1e-11
"""The part of the largest value by which arithmetic of a framework may be off.

The recursive schedulers of torch are 1,724 units in the last place away from their formula after
50,000 updates (LinearLR), which is 4e-13 of the largest value.
"""

_ULPS = 4
"""Units in the last place of the largest value by which two formulas of one rate differ."""

_UPDATES_PER_ULP = 16
"""Updates after which torch's recursive schedulers are one more unit away from their formula.

Measured with torch 2.13: the worst is LinearLR, with 6.5 units after 200 updates, 235 after 10,000
and 1,724 after 50,000.
"""

_SINGLE_ULP = 2**29
"""A unit in the last place of float32, in units of float64: 53 - 24 bits apart."""

_VALUES_PER_LEVEL = 4
"""Values of each level, on average, of a column that is constant in stretches."""

DIGITS_OF_LEVELS = 6
"""Digits of such a column of floats in full: shorter numbers are those floats."""


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """Logged values, one for each row of a log.

    Attributes:
        numbers: The numbers as they are printed; NaN in a row without one.
        precisions: How far the true values may be from them: half a unit of the last printed digit,
            and the rounding of the arithmetic that computed them.
    """

    numbers: FloatArray
    precisions: FloatArray

    def select(self, rows: NDArray[Any]) -> Series:
        """Returns the values of some rows."""
        return Series(self.numbers[rows], self.precisions[rows])

    def slack(self, expected: FloatArray) -> FloatArray:
        """Returns how far each value may be from that of a schedule with these values."""
        peak = np.max(np.abs(expected), initial=1e-300, where=np.isfinite(expected))
        return np.asarray(self.precisions + TOLERANCE * peak)

    def apart(self, expected: FloatArray) -> NDArray[np.bool_]:
        """Returns which values a schedule does not have, in each row that has both."""
        # Not "> slack": a NaN of the schedule is apart.
        is_near = np.abs(self.numbers - expected) <= self.slack(expected)
        return np.asarray(~is_near & ~np.isnan(self.numbers))


def logged_values(
    cells: Sequence[str | None], *, updates: int = 0, are_floats: bool = False
) -> Series:
    """Returns the numbers of a column, with the precision of its format.

    The format has the most digits that occur, after the point or in all: shorter numbers have
    zeros that were omitted. With 15 digits and more, the numbers are float64, or float32 where all
    of them are float32, and 4 units in the last place of the largest value are added:
    ``1 + cos`` loses digits near its zero, and the recursive schedulers of torch lose more with
    each update.

    Args:
        cells: The printed numbers; what is not a number is NaN.
        updates: The updates of the run.
        are_floats: Whether the format writes each float in full, as JSON does: a column with a few
            short values, as that of a rate in steps, was then not rounded to them.
    """
    numbers = np.array(array("d", map(number_of, cells)))
    is_zero = numbers == 0
    is_nonzero = ~is_zero & ~np.isnan(numbers)
    nonzero = numbers[is_nonzero]
    places = np.flatnonzero(~np.isnan(numbers))
    texts = (cells[place] or "" for place in places.tolist())
    # Most columns of floats show it in their first row: nothing is counted then.
    if nonzero.size and any(len(text) >= FLOAT_DIGITS <= _digits(text)[0] for text in texts):
        with np.errstate(over="ignore"):
            is_single = bool(np.all(nonzero.astype(np.float32) == nonzero))
        ulps = _ULPS * _SINGLE_ULP if is_single else _ULPS + updates // _UPDATES_PER_ULP
        rounding = ulps * math.ulp(float(np.max(np.abs(nonzero))))
        return Series(numbers, np.full(len(cells), rounding))
    digits, exponents = np.zeros((2, len(cells)), dtype=np.int64)
    for place in places.tolist():
        digits[place], exponents[place] = _digits(cells[place] or "")
    if not nonzero.size:
        # A zero in a column of zeros: within half a unit of its last digit, where it has a point.
        return Series(numbers, np.where(exponents < -1, _half_units(exponents), 0.0))
    most, least = int(digits[is_nonzero].max()), int(exponents[is_nonzero].min())
    # 0.1, 0.01, 0.001 in JSON are floats in full, not values rounded to one digit: half a unit of
    # 0.1 is half of it.
    if are_floats and (is_in_levels(nonzero) or most == 1):
        most = max(most, DIGITS_OF_LEVELS)
        least -= most
    # The unit of the last digit in a format with ``most`` digits, none below that of ``least``.
    in_all = np.where(is_zero, least, exponents + digits - most)
    units = np.minimum(exponents, np.maximum(least, in_all))
    return Series(numbers, _half_units(units))


def is_in_levels(numbers: FloatArray) -> bool:
    """Returns whether each value of a column occurs several times, on average."""
    return len(np.unique(numbers)) * _VALUES_PER_LEVEL <= max(len(numbers), _VALUES_PER_LEVEL)


def number_of(text: str | None) -> float:
    """Returns a printed number; NaN for another text, and for infinities.

    Example:
        >>> [number_of(text) for text in ("2.50e-4", "inf", "1_0", None)]
        [0.00025, nan, nan, nan]
    """
    # float takes underscores and the digits of all scripts.
    if not text or len(text) > _MOST_DIGITS or not text.isascii() or "_" in text:
        return math.nan
    try:
        number = float(text)
    except ValueError:
        return math.nan
    return number if math.isfinite(number) else math.nan


def _digits(text: str) -> tuple[int, int]:
    """The significant digits of a printed number, and the exponent of the last one.

    Example:
        >>> _digits("2.50e-4")
        (3, -6)
    """
    mantissa, _, power = text.strip().lower().partition("e")
    whole, _, places = mantissa.lstrip("+-").partition(".")
    # An exponent beyond that of a float is one of a zero.
    return len((whole + places).lstrip("0")), min(int(power or 0), 300) - len(places)


def _half_units(exponents: StepArray) -> FloatArray:
    """Half a unit of each place: the floats next to the decimals, which powers of 10 are not."""
    places, index = np.unique(exponents, return_inverse=True)
    return np.array([float(f"5e{place - 1}") for place in places.tolist()])[index]
