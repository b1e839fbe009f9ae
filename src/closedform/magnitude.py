"""How large exact numbers may become: limits of powers, of arguments and of texts.

An exact power has as many digits as its exponent says: ``2**-51200000000`` is 0.0 in floats, and
6.4 GB as a fraction. GNU MP and FLINT end the process where the memory is full, and Python refuses
to print integers of more than 4,300 digits. So every power of exact numbers is measured by
``power_bits`` before it is worked out, numbers that come in have at most ``MOST_DIGITS`` digits,
and a number in a message is printed by ``number_text``.
"""

from __future__ import annotations

import math
from fractions import Fraction

from closedform.errors import LimitError

MOST_BITS = 2**20
"""Bits of the longest exact power that is worked out: 315,653 digits, some milliseconds."""

MOST_DIGITS = 1000
"""Digits of the longest argument: the exact sums and products of two float64 have at most 650."""

MOST_PRINTED = 4000
"""Digits of the longest number in an expression: below the 4,300 from which Python prints none."""

LAST_STEP = 2**50
"""The last step of a graph: small multiples of it are still exact in float64."""

MOST_ELEMENTS = 2**48
"""Elements of the largest tensor of a graph: 2 PB of float64, in bytes that an int64 counts."""

_BITS_OF_A_DIGIT = math.log2(10)
_SHOWN_DIGITS = 40


def bits(number: Fraction | int) -> int:
    """Returns the bits of the larger one of a numerator and a denominator."""
    return max(number.numerator.bit_length(), number.denominator.bit_length())


def power_bits(base: Fraction | int, exponent: Fraction | int) -> int:
    """Returns a bound of the bits of a power; 1 where the base is 0, 1 or -1.

    Example:
        >>> power_bits(2, 10**9) > MOST_BITS, power_bits(Fraction(1, 2), -5), power_bits(-1, 10**9)
        (True, 10, 1)
    """
    length = bits(base)
    return 1 if length <= 1 else length * math.ceil(abs(Fraction(exponent)))


def check_power(base: Fraction | int, exponent: Fraction | int) -> None:
    """Refuses a power of more than ``MOST_BITS`` bits.

    Raises:
        LimitError: It is longer.

    Example:
        >>> check_power(2, 10**9)
        Traceback (most recent call last):
        closedform.errors.LimitError: the exact power 2**1000000000 has more than 1048576 bits: \
write it as a float, or with a smaller exponent
    """
    if power_bits(base, exponent) > MOST_BITS:
        raise LimitError(
            f"the exact power {_in_power(base)}**{_in_power(exponent)} has more than "
            f"{MOST_BITS} bits",
            hint="write it as a float, or with a smaller exponent",
        )


def _in_power(number: Fraction | int) -> str:
    text = number_text(number)
    return text if text.isalnum() else f"({text})"


def check_digits(number: Fraction | int, name: str, most: int = MOST_DIGITS) -> None:
    """Refuses a number that comes in with too many digits.

    Args:
        number: The number.
        name: What it is for, for the error.
        most: The most digits of its numerator and denominator.

    Raises:
        LimitError: It has more.
    """
    if bits(number) > most * _BITS_OF_A_DIGIT:
        raise LimitError(
            f"{name} must have at most {most} digits, got {number_text(number)}",
            hint="round it: a float64 has 17 digits",
        )


def check_steps(number: int, name: str) -> None:
    """Refuses a number of steps that no graph counts.

    Args:
        number: The number.
        name: What it is for, for the error.

    Raises:
        LimitError: It is above ``LAST_STEP``.
    """
    if number > LAST_STEP:
        raise LimitError(
            f"{name} must be at most 2**50, the last step of a graph, got {number_text(number)}",
            hint="look for a digit too many",
        )


def number_text(number: Fraction | int) -> str:
    """Returns a number for a message: by its digits, or by its size where these are many.

    Example:
        >>> (
        ...     number_text(-30),
        ...     number_text(Fraction(1, 3)),
        ...     number_text(10**5000),
        ...     number_text(Fraction(1, 3**9000)),
        ... )
        ('-30', '1/3', 'a number of 5001 digits', 'a fraction of 1 and 4295 digits')
    """
    parts = (number.numerator, number.denominator)
    if bits(number) <= _SHOWN_DIGITS * _BITS_OF_A_DIGIT:
        return str(number.numerator) if parts[1] == 1 else f"{parts[0]}/{parts[1]}"
    lengths = [_digits(part) for part in parts]
    if parts[1] == 1:
        return f"a number of {lengths[0]} digits"
    return f"a fraction of {lengths[0]} and {lengths[1]} digits"


def _digits(number: int) -> int:
    """The decimal digits of an integer: exact but for numbers next to a power of ten."""
    length = number.bit_length()
    # The upper 64 bits determine the logarithm to 19 digits.
    shift = max(0, length - 64)
    return (
        1
        if number == 0
        else math.floor(math.log10(abs(number) >> shift) + shift / _BITS_OF_A_DIGIT) + 1
    )
