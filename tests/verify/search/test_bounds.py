"""Values between the numbers that they mix: bounds by extrema, products and roots.

A curve of a recipe mixes its ends, ``a + (b - a) s`` with 0 <= s <= 1, and is multiplied by factors
of at most 1; so it is at most ``max(a, b, ...)``, and not below a number that both are not below.
"""

from __future__ import annotations

import random

import pytest

from closedform.effort import Effort
from closedform.verify.search.extremes import separate_extremes
from closedform.verify.search.refutation import Refutation
from closedform.verify.terms.build import (
    ONE,
    ZERO,
    add,
    cospi,
    divide,
    ite,
    less,
    less_equal,
    maximum,
    minimum,
    multiply,
    rational,
    square_root,
    subtract,
    symbol,
)
from closedform.verify.terms.tree import Sign, Term
from tests.verify.search.test_parts import is_proved

T = symbol("t", integer=True, sign=Sign.NONNEGATIVE)
ENDS = [symbol(name) for name in "abcde"]
FALSE_WORK = 60_000


def falling_share(duration: Term) -> Term:
    """``(1 + cos(pi min(t, n) / n)) / 2``."""
    return divide(add(ONE, cospi(divide(minimum(T, duration), duration))), rational(2))


def rising_share(duration: Term) -> Term:
    """``min(t, n) / n``."""
    return divide(minimum(T, duration), duration)


def mix(start: Term, end: Term, share: Term) -> Term:
    return add(end, multiply(share, subtract(start, end)))


def drawn_curve(seed: int) -> tuple[Term, list[Term]]:
    """Two or three mixtures of ends, one after the other, and the ends."""
    draw = random.Random(seed)
    count = draw.choice((2, 3))
    names = [symbol(f"n{place}", integer=True, sign=Sign.POSITIVE) for place in range(count)]
    ends = draw.sample(ENDS, count + 1)
    parts = [
        mix(start, end, draw.choice((falling_share, rising_share))(duration))
        for start, end, duration in zip(ends, ends[1:], names, strict=False)
    ]
    *earlier, curve = parts
    for part, duration in zip(reversed(earlier), names, strict=False):
        curve = ite(less(T, duration), part, curve)
    return curve, ends


@pytest.mark.parametrize("seed", range(1, 4))
def test_mixtures_are_within_their_ends(seed: int) -> None:
    curve, ends = drawn_curve(seed)
    assert is_proved(less_equal(curve, maximum(*ends)))
    assert is_proved(less_equal(minimum(*ends), curve))
    # The bound of all ends but one, which the curve has at one of its steps.
    assert not is_proved(less_equal(curve, maximum(*ends[1:])), work=FALSE_WORK)
    assert not is_proved(less(curve, maximum(*ends)), work=FALSE_WORK)


@pytest.mark.parametrize("count", [1, 2])
def test_a_mixture_of_mixtures_is_not_below_0(count: int) -> None:
    durations = [symbol(f"n{place}", sign=Sign.POSITIVE) for place in range(count)]
    first, second, last = ENDS[:3]
    curve = mix(first, second, falling_share(symbol("m", integer=True, sign=Sign.POSITIVE)))
    for duration in durations:
        curve = mix(last, curve, rising_share(duration))
    signs = [less_equal(ZERO, end) for end in (first, second, last)]
    assert is_proved(less_equal(ZERO, curve), *signs)
    assert not is_proved(less_equal(ZERO, curve), *signs[1:], work=FALSE_WORK)


@pytest.mark.parametrize("count", [1, 2])
def test_a_product_is_within_the_bound_of_a_factor(count: int) -> None:
    first, second = ENDS[:2]
    durations = [symbol(f"n{place}", integer=True, sign=Sign.POSITIVE) for place in range(count)]
    mixture = mix(first, second, falling_share(symbol("m", integer=True, sign=Sign.POSITIVE)))
    curve = multiply(mixture, *(minimum(ONE, divide(T, duration)) for duration in durations))
    signs = less_equal(ZERO, first), less_equal(ZERO, second)
    goal = less_equal(curve, maximum(first, second))
    assert is_proved(goal, *signs)
    # Half of a number below 0 is above it.
    assert not is_proved(goal, work=FALSE_WORK)


def test_roots_are_in_the_order_of_their_squares() -> None:
    low, high = ENDS[:2]
    roots = [square_root(number) for number in (multiply(low, high), low, high)]
    mean = divide(add(low, high), rational(2))
    signs = less_equal(ZERO, low), less_equal(ZERO, high)
    assert is_proved(less_equal(multiply(*roots[1:]), mean), *signs)
    less_than_both = square_root(multiply(subtract(low, ONE), subtract(high, ONE)))
    above_1 = less_equal(ONE, low), less_equal(ONE, high)
    assert is_proved(less_equal(less_than_both, multiply(*roots[1:])), *above_1)
    assert not is_proved(
        less_equal(multiply(*roots[1:]), less_than_both), *above_1, work=FALSE_WORK
    )


@pytest.mark.parametrize("op", ["max", "min"])
@pytest.mark.parametrize("is_strict", [True, False])
def test_members_take_the_place_of_their_extremum(op: str, *, is_strict: bool) -> None:
    search = Refutation(Effort.of(100_000))
    terms = search.terms
    x, *members = (terms.declare(name, integer=False) for name in "xabc")
    extremum = terms.make(op, (terms.make(op, tuple(members[:2])), members[2]))
    pair = terms.make(op, tuple(members[1:]))
    make = terms.less if is_strict else terms.less_equal
    sides = [(number, x) if op == "max" else (x, number) for number in (extremum, pair, *members)]
    fact, of_pair, *of_members = (make(*side) for side in sides)
    steps, facts = separate_extremes(search, (fact, of_pair))
    # One of two numbers stays; a bound on the other side is none of the members.
    assert set(facts) == {of_pair, *of_members}
    assert steps
    opposite = make(*reversed(sides[0]))
    assert separate_extremes(search, (opposite,)) == ([], (opposite,))
