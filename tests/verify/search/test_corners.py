"""Bounds at the corners of shares: a product of mixtures is greatest where each share is at an end.

``b + (a - b) s`` with 0 <= s <= 1 is between a and b; so is its product with factors of at most 1,
whatever the signs of a and b are.
"""

from __future__ import annotations

import random

import pytest

from closedform.verify.terms.build import (
    ONE,
    ZERO,
    add,
    divide,
    floor,
    less_equal,
    maximum,
    minimum,
    multiply,
    power,
    rational,
    square_root,
    subtract,
    symbol,
)
from closedform.verify.terms.tree import Sign, Term
from tests.verify.search.test_bounds import ENDS, FALSE_WORK, T, falling_share, mix, rising_share
from tests.verify.search.test_parts import is_proved

LENGTH = symbol("m", integer=True, sign=Sign.POSITIVE)


def root_share(duration: Term) -> Term:
    """``sqrt(n) / sqrt(n + max(0, t))``, a quotient whose two parts are not bounded."""
    return divide(square_root(duration), square_root(add(duration, maximum(ZERO, T))))


def triangle(duration: Term) -> Term:
    """``min(r / m, (n + m - r) / n)``, r the remainder of t by n + m."""
    period = add(duration, LENGTH)
    remainder = subtract(T, multiply(period, floor(divide(T, period))))
    return minimum(divide(remainder, LENGTH), divide(subtract(period, remainder), duration))


def halving(duration: Term) -> Term:
    """``1 / 2**floor(t / n)``."""
    return divide(ONE, power(rational(2), floor(divide(T, duration))))


def drawn_share(draw: random.Random, name: str) -> Term:
    duration = symbol(name, integer=True, sign=Sign.POSITIVE)
    shares = (rising_share, falling_share, root_share, triangle, halving)
    return draw.choice(shares)(duration)


@pytest.mark.parametrize("seed", range(8))
def test_a_mixture_times_shares_is_within_its_ends_and_0(seed: int) -> None:
    draw = random.Random(seed)
    first, second = ENDS[:2]
    shares = [drawn_share(draw, f"n{place}") for place in range(draw.choice((1, 2)))]
    curve = multiply(mix(first, second, drawn_share(draw, "n")), *shares)
    assert is_proved(less_equal(curve, maximum(ZERO, first, second)))
    assert is_proved(less_equal(minimum(ZERO, first, second), curve))
    # One of the ends is missing.
    assert not is_proved(less_equal(curve, maximum(ZERO, second)), work=FALSE_WORK)
    assert not is_proved(less_equal(minimum(first, second), curve), work=FALSE_WORK)


@pytest.mark.parametrize("seed", range(3))
def test_an_end_may_be_a_number_that_varies(seed: int) -> None:
    """The decay of Mosbach's hyperbolic schedule: its root is at most that of step 0."""
    draw = random.Random(seed)
    steps, bound = (symbol(name, integer=True, sign=Sign.POSITIVE) for name in ("n", "k"))
    time = minimum(steps, T)
    twice = multiply(rational(2), bound)
    root = square_root(multiply(subtract(steps, time), subtract(subtract(twice, steps), time)))
    first_root = multiply(square_root(steps), square_root(subtract(twice, steps)))
    start, least = draw.sample(ENDS, 2)
    change = subtract(start, least)
    curve = add(start, divide(multiply(change, subtract(root, first_root)), bound))
    last = subtract(start, divide(multiply(change, first_root), bound))
    facts = (less_equal(steps, bound),)
    assert is_proved(less_equal(curve, maximum(start, last)), *facts)
    assert not is_proved(less_equal(curve, start), *facts, work=FALSE_WORK)
