"""Simple numbers: few digits, or a quotient of small integers."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

MOST_DIGITS = 9
# Denominators whose quotients have no finite decimal.
_DENOMINATORS = (3, 6, 7, 9, 11, 12)


def digits(number: Fraction) -> int:
    """Returns the significant digits of a decimal; of a quotient, the digits of both sides plus 1.

    Example:
        >>> [digits(Fraction(n)) for n in ("3e-4", "2000", "0.25", "1/3", "0")]
        [1, 1, 2, 3, 1]
    """
    bottom = number.denominator
    for factor in (2, 5):
        while bottom % factor == 0:
            bottom //= factor
    if bottom == 1:
        multiple = number
        while multiple.denominator != 1:
            multiple *= 10
        return max(len(str(abs(multiple.numerator)).rstrip("0")), 1)
    return len(str(abs(number.numerator))) + len(str(number.denominator)) + 1


def round_to_digits(value: float, count: int) -> Fraction:
    """Returns the decimal with ``count`` significant digits that is nearest to a number."""
    return Fraction(f"{value:.{count - 1}e}") if value else Fraction(0)


def candidates(value: float, *, is_integer: bool) -> list[Fraction]:
    """Returns 0, and simple numbers near a value, those with fewer digits first.

    Args:
        value: The value.
        is_integer: Whether only integers are asked for.

    Example:
        >>> [str(n) for n in candidates(0.33333, is_integer=False)[:3]]
        ['0', '3/10', '33/100']
    """
    if not math.isfinite(value):
        return []
    numbers = {Fraction(0)}
    for count in range(1, MOST_DIGITS + 1):
        numbers.add(round_to_digits(value, count))
    if not is_integer and 1e-3 < abs(value) < 1e3:
        numbers.update(Fraction(round(value * bottom), bottom) for bottom in _DENOMINATORS)
    if is_integer:
        numbers = {number for number in numbers if number.denominator == 1}
        numbers.update(Fraction(n) for n in (math.floor(value), math.ceil(value), round(value)))
    return sorted(numbers, key=lambda n: (n != 0, digits(n), abs(float(n) - value)))


def round_integers(low: int, high: int) -> list[int]:
    """Returns integers from one to another, the roundest first, at most 60 of them.

    Example:
        >>> round_integers(95, 205)[:5]
        [100, 200, 150, 110, 120]
    """
    numbers: list[int] = []
    # Multiples of 10^k before multiples of 5 * 10^(k-1), from the largest k on.
    unit = 10 ** len(str(max(high, 1)))
    while unit >= 1 and len(numbers) < 60:
        first = -(-low // unit) * unit
        new = (n for n in range(first, high + 1, unit) if n not in numbers)
        numbers += itertools.islice(new, 60 - len(numbers))
        half = unit // 2
        if half and unit > 1:
            first = -(-low // half) * half
            new = (n for n in range(first, high + 1, half) if n not in numbers)
            numbers += itertools.islice(new, 60 - len(numbers))
        unit //= 10
    return numbers
