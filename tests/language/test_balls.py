"""Exact numbers of balls, of which the exponent may be any integer."""

import pytest
from flint import arb, fmpq

from closedform.language.balls import bounds, whole_number

HUGE = [arb(2) ** 51200000000, arb(2) ** -51200000000, arb(1, arb(2) ** 51200000000)]


@pytest.mark.parametrize("ball", HUGE, ids=["large", "small", "wide"])
def test_a_huge_exponent_has_no_fraction(ball: arb) -> None:
    assert bounds(ball) is None
    assert bounds(-ball) is None


@pytest.mark.parametrize("ball", HUGE[:1])
def test_a_huge_integer_is_not_written_out(ball: arb) -> None:
    assert whole_number(ball) is None
    assert whole_number(-ball) is None


def test_a_ball_that_is_not_finite_has_neither() -> None:
    for ball in (arb("inf"), arb("nan"), arb(1) / arb(0)):
        assert bounds(ball) is None
        assert whole_number(ball) is None


def test_the_ends_are_exact() -> None:
    third = arb(1) / 3
    low, high = bounds(third) or (fmpq(1), fmpq(0))
    assert low < fmpq(1, 3) < high
    assert whole_number(arb(2) ** 4000) == 2**4000
    assert whole_number(third) is None
