"""Arithmetic on exact intervals: all the values, and for these cases nothing but them."""

import math
import random
from fractions import Fraction

import mpmath
import pytest
from flint import arb

from closedform.lowering.analysis.domain import ALL, INFINITY, Bound, Interval, point


def between(low: Bound, high: Bound, *, nonzero: bool = False) -> Interval:
    finite = [b if isinstance(b, float) and math.isinf(b) else Fraction(b) for b in (low, high)]
    return Interval(finite[0], finite[1], nonzero)


SPLIT = between(-1, 2, nonzero=True)

CASES = {
    "sum": (between(-1, 2) + between(3, 5), between(2, 7)),
    "sum of clashing infinities": (
        Interval(-INFINITY, -INFINITY) + Interval(INFINITY, INFINITY),
        ALL,
    ),
    "sum of a low and a high half": (between(-INFINITY, 1) + between(2, INFINITY), ALL),
    "nonzero product": (SPLIT * between(3, 4), between(-4, 8, nonzero=True)),
    "product that may be zero": (SPLIT * between(0, 4), between(-4, 8)),
    "zero times all": (between(0, 0) * ALL, between(0, 0)),
    "hull": (between(1, 2).union(between(-3, 0)), between(-3, 2)),
    "hull of nonzeros": (between(1, 2).union(between(-3, -1)), between(-3, 2, nonzero=True)),
    "hull with a zero": (between(0, 0).union(between(1, 2)), between(0, 2)),
    "reciprocal": (between(2, 4).reciprocal(), between(Fraction(1, 4), Fraction(1, 2))),
    "reciprocal across zero": (SPLIT.reciprocal(), ALL),
    "reciprocal of a half line": (
        between(0, 4, nonzero=True).reciprocal(),
        between(Fraction(1, 4), INFINITY),
    ),
    "even power below zero": (between(-3, -2).power(2), between(4, 9)),
    "even power above zero": (between(2, 3).power(2), between(4, 9)),
    "even power across zero": (between(-3, 2).power(2), between(0, 9)),
    "odd power": (between(-3, 2).power(3), between(-27, 8)),
    "power zero": (ALL.power(0), point(Fraction(1))),
    "long power within 1": (between(-1, Fraction(1, 3)).power(9999), between(-1, 1)),
    "long power beyond 1": (between(-3, Fraction(1, 3)).power(9999), ALL),
    "long even power": (between(-3, Fraction(1, 3)).power(9998), between(0, INFINITY)),
    "size across zero": (between(-5, 2).absolute(), between(0, 5)),
    "size below zero": (between(-5, -2).absolute(), between(2, 5)),
    "floor": (between(Fraction(-1, 2), Fraction(5, 2)).floor(), between(-1, 2)),
    "negative": (-between(-1, 2), between(-2, 1)),
}


@pytest.mark.parametrize("name", CASES)
def test_arithmetic(name: str) -> None:
    result, expected = CASES[name]
    assert result == expected


def test_a_monotone_function_is_enclosed_though_its_ends_are_rounded() -> None:
    third = Fraction(1, 3)
    for number in (third, 2 * third, 10**20 * third):
        same = point(number).monotone(lambda x: x)
        assert same.low < number < same.high
        root = point(number).monotone(arb.sqrt)
        assert isinstance(root.low, Fraction)
        assert isinstance(root.high, Fraction)
        assert root.low**2 < number < root.high**2


def test_values_that_are_too_long_to_be_written_out_are_enclosed() -> None:
    far = point(Fraction(10**12))
    assert far.monotone(arb.exp).low > 10**1000
    assert far.monotone(arb.exp).high == math.inf
    vanishing = (-far).monotone(arb.exp)
    assert vanishing.low == 0
    assert vanishing.high < Fraction(1, 10**1000)
    assert ALL.monotone(arb.exp) == Interval(Fraction(0), math.inf)
    assert point(Fraction(-1)).monotone(arb.sqrt) == ALL


def test_ends_enclose_the_values_of_mpmath() -> None:
    chance = random.Random(0)
    with mpmath.workdps(60):
        for _ in range(200):
            number = Fraction(chance.randint(1, 999), chance.randint(1, 10 ** chance.randint(0, 9)))
            for ball, function in (
                (arb.exp, mpmath.exp),
                (arb.log, mpmath.log),
                (arb.sqrt, mpmath.sqrt),
            ):
                values = point(number).monotone(ball)
                exact = function(mpmath.mpf(number.numerator) / number.denominator)
                for end, sign in ((values.low, 1), (values.high, -1)):
                    assert isinstance(end, Fraction)
                    # The ends are apart by some units of 96 bits, 60 digits are 199 bits.
                    distance = sign * (exact - mpmath.mpf(end.numerator) / end.denominator)
                    assert -abs(exact) * 1e-55 <= distance <= (1 + abs(exact)) * 1e-22


def test_long_ends_are_widened_outward() -> None:
    for factor in range(1, 9):
        long = Fraction(factor * 2**5000, 3**3001)
        rounded = Interval(-long, long)
        assert rounded.low < -long
        assert rounded.high > long
        assert isinstance(rounded.high, Fraction)
        assert rounded.high.denominator.bit_length() <= 4096


def test_a_large_shift_keeps_the_function_of_an_end() -> None:
    # The end itself is rounded to float64 first: without a step outward the slope magnifies that.
    steep = point(Fraction(1, 3)).monotone(lambda x: (x - float(Fraction(1, 3))) * 2.0**60)
    truth = (Fraction(1, 3) - Fraction(1 / 3)) * 2**60
    assert truth > 20
    assert steep.low <= truth <= steep.high
