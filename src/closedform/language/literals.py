"""Literals of programs: the exact numbers that floats of a dtype were written as.

A program of a framework has the float32 0.001 where its author wrote one thousandth. The number
that was meant is not known; ``literal`` defines it: the shortest decimal that rounds to the float,
or a multiple of pi that does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import sympy as sp

from closedform.errors import DefinitionError

LARGEST_NUMERATOR = 16
LARGEST_DENOMINATOR = 64
"""Multiples of pi: of these there are 651, and of floats of a binade 2**23 at least."""

_LARGEST_WHOLE = 2**31
"""Whole floats up to this one are counts, and are themselves: 2147483648 and not 2147483600."""

# 60 digits: a multiple of pi is compared with an interval 2**-54 of its size wide.
_PI = Fraction("3.14159265358979323846264338327950288419716939937510582097494")
_MOST_DIGITS = 17


@dataclass(frozen=True, slots=True)
class FloatFormat:
    """A binary floating-point format of IEEE 754, or one of its kind.

    Attributes:
        precision: The bits of a significand, the hidden one included.
        least_exponent: The binary exponent of the least subnormal number.
    """

    precision: int
    least_exponent: int

    def rounding_interval(self, number: Fraction) -> tuple[Fraction, Fraction, bool]:
        """Returns the reals that round to a positive float: the ends, and whether these do."""
        exponent = _exponent(number, 2)
        unit = Fraction(2) ** max(exponent - self.precision + 1, self.least_exponent)
        significand = number / unit
        if significand.denominator != 1:
            raise DefinitionError(f"{float(number)!r} has more than {self.precision} bits")
        is_power = significand == 2 ** (self.precision - 1)
        is_narrow_below = is_power and unit > Fraction(2) ** self.least_exponent
        # Below a power of two floats are twice as dense, except at the least binade, where they are
        # not.
        below = unit / 4 if is_narrow_below else unit / 2
        # Ties go to even, so that the ends belong to a float with an even significand.
        return number - below, number + unit / 2, significand % 2 == 0


FORMATS: Mapping[str, FloatFormat] = {
    "float64": FloatFormat(53, -1074),
    "float32": FloatFormat(24, -149),
    "bfloat16": FloatFormat(8, -133),
    "float16": FloatFormat(11, -24),
}
"""The formats by the name of their dtype."""

_WITH_PI = ("float64", "float32")
"""One number in three of 16 bits is a rounded multiple of pi."""


def literal(number: float, dtype: str = "float64") -> sp.Expr:
    """Returns the exact number that a float of a dtype stands for.

    It is ``a / b * pi`` with a <= 16 and b <= 64 where that rounds to the float, for float32 and
    float64; a whole number up to 2**31 itself; else the decimal of the fewest digits that rounds to
    the float, among these the nearest one, and of two of these the one with an even last digit.

    Args:
        number: The finite value of the float.
        dtype: The name of its dtype in NumPy.

    Raises:
        DefinitionError: The dtype has no such number.

    Example:
        >>> from math import pi
        >>> [literal(x) for x in (0.1, 1 / 4, 3 * pi / 8)]
        [1/10, 1/4, 3*pi/8]
        >>> literal(0.10000000149011612, "float32"), literal(0.10009765625, "bfloat16")
        (1/10, 1/10)
        >>> literal(2147483648.0, "float32")
        2147483648
    """
    if number == 0:
        return sp.Integer(0)
    size = Fraction(abs(float(number)))
    low, high, is_closed = FORMATS[dtype].rounding_interval(size)
    sign = 1 if number > 0 else -1
    if size.denominator == 1 and size <= _LARGEST_WHOLE:
        return sign * sp.Integer(size.numerator)
    multiple = multiple_of_pi(low, high) if dtype in _WITH_PI else None
    if multiple is not None:
        return sign * multiple * sp.pi
    decimal = _shortest_decimal(size, low, high, is_closed=is_closed)
    return sp.Rational(sign * decimal.numerator, decimal.denominator)


def multiple_of_pi(low: Fraction, high: Fraction) -> sp.Rational | None:
    """Returns the factor of the multiple of pi between two positive numbers; None if none is."""
    for numerator in range(1, LARGEST_NUMERATOR + 1):
        # The least denominator whose multiple is below high; only it can be the simplest one in
        # between.
        first = math.ceil(numerator * _PI / high)
        if first <= LARGEST_DENOMINATOR and low < numerator * _PI / first < high:
            return sp.Rational(numerator, first)
    return None


def _shortest_decimal(
    number: Fraction, low: Fraction, high: Fraction, *, is_closed: bool
) -> Fraction:
    exponent = _exponent(number, 10)
    for digits in range(1, _MOST_DIGITS + 1):
        unit = Fraction(10) ** (exponent - digits + 1)
        quotient = number // unit
        inside = [
            # The order of choice: the nearest decimal, then the one with an even last digit.
            (abs(whole * unit - number), whole % 2, whole * unit)
            for whole in (quotient, quotient + 1)
            if low < whole * unit < high or (is_closed and whole * unit in (low, high))
        ]
        if inside:
            return min(inside)[2]
    return number


def _exponent(number: Fraction, base: int) -> int:
    """The largest exponent of a power of the base that is at most a positive number."""
    bits = number.numerator.bit_length() - number.denominator.bit_length()
    # number > 2**(bits - 1): a lower bound, less one for the rounding of math.log; the exact loop
    # adds the missing ones.
    exponent = math.floor((bits - 1) * math.log(2, base)) - 1
    while Fraction(base) ** (exponent + 1) <= number:
        exponent += 1
    return exponent
