"""Arithmetic on exact intervals: all the values, and for these cases nothing but them."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from closedform.lowering.analysis.interval import ALL, INFINITY, Bound, Interval, point


def span(low: Bound, high: Bound, *, nonzero: bool = False) -> Interval:
    finite = [b if isinstance(b, float) and math.isinf(b) else Fraction(b) for b in (low, high)]
    return Interval(finite[0], finite[1], nonzero)


SPLIT = span(-1, 2, nonzero=True)

CASES = {
    "sum": (span(-1, 2) + span(3, 5), span(2, 7)),
    "sum of clashing infinities": (
        Interval(-INFINITY, -INFINITY) + Interval(INFINITY, INFINITY),
        ALL,
    ),
    "sum of a low and a high half": (span(-INFINITY, 1) + span(2, INFINITY), ALL),
    "nonzero product": (SPLIT * span(3, 4), span(-4, 8, nonzero=True)),
    "product that may be zero": (SPLIT * span(0, 4), span(-4, 8)),
    "zero times all": (span(0, 0) * ALL, span(0, 0)),
    "hull": (span(1, 2).union(span(-3, 0)), span(-3, 2)),
    "hull of nonzeros": (span(1, 2).union(span(-3, -1)), span(-3, 2, nonzero=True)),
    "hull with a zero": (span(0, 0).union(span(1, 2)), span(0, 2)),
    "reciprocal": (span(2, 4).reciprocal(), span(Fraction(1, 4), Fraction(1, 2))),
    "reciprocal across zero": (SPLIT.reciprocal(), ALL),
    "reciprocal of a half line": (
        span(0, 4, nonzero=True).reciprocal(),
        span(Fraction(1, 4), INFINITY),
    ),
    "even power below zero": (span(-3, -2).power(2), span(4, 9)),
    "even power above zero": (span(2, 3).power(2), span(4, 9)),
    "even power across zero": (span(-3, 2).power(2), span(0, 9)),
    "odd power": (span(-3, 2).power(3), span(-27, 8)),
    "power zero": (ALL.power(0), point(Fraction(1))),
    "long power within 1": (span(-1, Fraction(1, 3)).power(9999), span(-1, 1)),
    "long power beyond 1": (span(-3, Fraction(1, 3)).power(9999), ALL),
    "long even power": (span(-3, Fraction(1, 3)).power(9998), span(0, INFINITY)),
    "size across zero": (span(-5, 2).absolute(), span(0, 5)),
    "size below zero": (span(-5, -2).absolute(), span(2, 5)),
    "floor": (span(Fraction(-1, 2), Fraction(5, 2)).floor(), span(-1, 2)),
    "negative": (-span(-1, 2), span(-2, 1)),
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
        root = point(number).monotone(math.sqrt)
        assert isinstance(root.low, Fraction)
        assert isinstance(root.high, Fraction)
        assert root.low**2 < number < root.high**2


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
