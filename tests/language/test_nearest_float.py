"""The nearest float64 of a fraction, against the decimal conversion of C."""

import math
import random
from collections.abc import Callable, Mapping
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

import pytest
import sympy as sp
from flint import fmpq

from closedform.language.exact import nearest_float, to_float

KINDS: Mapping[str, Callable[[Fraction], Any]] = {
    "python": Fraction,
    "sympy": lambda number: sp.Rational(number.numerator, number.denominator),
    "flint": lambda number: fmpq(number.numerator, number.denominator),
}
LARGEST = Fraction(2) ** 1024 - Fraction(2) ** 970
"""The least number that rounds to infinity: half a unit above the largest float64."""
LEAST = Fraction(1, 2**1075)
"""The largest number that rounds to 0: half the least float64."""


def drawn_fraction(draw: random.Random) -> Fraction:
    """A fraction with a finite decimal: near the middle of two floats, at either end of them."""
    low = math.ldexp(draw.randint(0, 2**53), draw.choice((-1120, -1076, -1074, -60, 0, 960, 970)))
    high = math.nextafter(low, math.inf)
    middle = (Fraction(low) + Fraction(high)) / 2
    offset = Fraction(draw.choice((-1, 0, 1)), 2 ** draw.choice((60, 1200)))
    return draw.choice((-1, 1)) * (middle + offset)


@pytest.mark.parametrize("kind", KINDS)
def test_a_fraction_has_the_float_of_its_decimal(kind: str) -> None:
    draw = random.Random(1)
    context = Context(prec=3000)
    for _ in range(300):
        number = drawn_fraction(draw)
        decimal = context.divide(Decimal(number.numerator), Decimal(number.denominator))
        assert nearest_float(KINDS[kind](number)) == float(str(decimal)), number


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (LARGEST, math.inf),
        (-LARGEST, -math.inf),
        (LARGEST - LEAST, math.nextafter(math.inf, 0)),
        (Fraction(10) ** 400, math.inf),
        (LEAST, 0.0),
        (LEAST * Fraction(10**30 + 1, 10**30), 2.0**-1074),
        (1 / Fraction(-(10**400)), 0.0),
        (Fraction(10**400, 10**400 + 1), 1.0),
        (Fraction(2**53 + 1), 2.0**53),
        (Fraction(2**53 + 3), 2.0**53 + 4),
    ],
)
def test_numbers_at_the_ends_of_the_range(kind: str, number: Any, expected: float) -> None:
    assert nearest_float(KINDS[kind](number)) == expected


def test_a_value_of_a_schedule_above_the_largest_float_is_refused() -> None:
    with pytest.raises(OverflowError, match="a number of 401 digits is above the largest float64"):
        to_float(sp.Integer(10) ** 400)
