"""Printed numbers as intervals: the values that a logger may have rounded to them."""

from __future__ import annotations

import math
import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

_MOST_DIGITS = 400
"""Digits, and the size of an exponent, beyond which a text is not read as a number."""

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

_SHORT_DIGITS = 6
"""Digits of such a column of floats in full: shorter numbers are those floats."""


@dataclass(frozen=True, slots=True)
class Logged:
    """A logged value.

    Attributes:
        value: The number as it is printed.
        precision: How far the true value may be from it: half a unit of the last printed digit,
            and the rounding of the arithmetic that computed it.
    """

    value: Fraction
    precision: Fraction


@dataclass(frozen=True, slots=True)
class Printed:
    """A number as it is printed: its value, its significant digits and the unit of the last."""

    value: Fraction
    digits: int
    exponent: int


def logged_values(
    cells: Sequence[str | None], *, updates: int = 0, are_floats: bool = False
) -> tuple[Logged | None, ...]:
    """Returns the numbers of a column, with the precision of its format.

    The format has the most digits that occur, after the point or in all: shorter numbers have
    zeros that were omitted. With 15 digits and more, the numbers are float64, or float32 where all
    of them are float32, and 4 units in the last place of the largest value are added:
    ``1 + cos`` loses digits near its zero, and the recursive schedulers of torch lose more with
    each update.

    Args:
        cells: The printed numbers; what is not a number is None.
        updates: The updates of the run.
        are_floats: Whether the format writes each float in full, as JSON does: a column with a few
            short values, as that of a rate in steps, was then not rounded to them.
    """
    numbers = [parse_printed(cell) for cell in cells]
    nonzero = [number for number in numbers if number is not None and number.value != 0]
    if not nonzero:
        return tuple(None if number is None else _of_zero(number) for number in numbers)
    most = max(number.digits for number in nonzero)
    largest = float(max(abs(number.value) for number in nonzero))
    if most >= FLOAT_DIGITS:
        is_single = all(_is_single(float(number.value)) for number in nonzero)
        ulps = _ULPS * _SINGLE_ULP if is_single else _ULPS + updates // _UPDATES_PER_ULP
        rounding = ulps * Fraction(math.ulp(largest))
        return tuple(
            None if number is None else Logged(number.value, rounding) for number in numbers
        )
    least = min(number.exponent for number in nonzero)
    levels = len({number.value for number in nonzero})
    # 0.1, 0.01, 0.001 in JSON are floats in full, not values rounded to one digit.
    if are_floats and levels * _VALUES_PER_LEVEL <= max(len(nonzero), _VALUES_PER_LEVEL):
        most = max(most, _SHORT_DIGITS)
        least -= most
    return tuple(
        None if number is None else Logged(number.value, _half_unit(number, most, least))
        for number in numbers
    )


def parse_printed(text: str | None) -> Printed | None:
    """Returns a printed number; None for another text, and for infinities.

    Example:
        >>> parse_printed("2.50e-4")
        Printed(value=Fraction(1, 4000), digits=3, exponent=-6)
    """
    word = (text or "").strip().lower()
    mantissa, _, power = word.partition("e")
    digits = mantissa.lstrip("+-").replace(".", "", 1)
    exponent = power.lstrip("+-") or "0"
    if not digits.isascii() or not digits.isdecimal() or not exponent.isdecimal():
        return None
    # Fraction("1e999999999") would compute the power.
    if len(digits) > _MOST_DIGITS or len(exponent) > 4 or int(exponent) > _MOST_DIGITS:
        return None
    try:
        value = Fraction(word)
    except ValueError:
        return None
    if abs(value) > sys.float_info.max:  # an infinity, where a program has written it
        return None
    places = len(mantissa.partition(".")[2])
    return Printed(value, len(digits.lstrip("0")), int(power or 0) - places)


def integer(text: str | None) -> int | None:
    """Returns the integer that a text denotes, with or without a fraction of 0; None if none."""
    number = parse_printed(text)
    return int(number.value) if number is not None and number.value.denominator == 1 else None


def _of_zero(number: Printed) -> Logged:
    """A zero in a column of zeros: within half a unit of its last digit, where it has a point."""
    unit = Fraction(10) ** number.exponent if number.exponent < -1 else Fraction(0)
    return Logged(number.value, unit / 2)


def _half_unit(number: Printed, most: int, least: int) -> Fraction:
    """Half a unit of the last digit in a format with ``most`` digits and the unit ``least``."""
    in_all = number.exponent + number.digits - most if number.value else least
    return Fraction(10) ** min(number.exponent, max(least, in_all)) / 2


def _is_single(number: float) -> bool:
    try:
        return float(struct.unpack("f", struct.pack("f", number))[0]) == number
    except OverflowError:
        return False
