"""Directions and ranges of numbers on runs of steps, beside their values at every step."""

import random
from itertools import pairwise

import pytest
from flint import arb, fmpq

from closedform.verify.terms.build import (
    HALF,
    ONE,
    TWO,
    ZERO,
    absolute,
    add,
    atan,
    cospi,
    divide,
    exp,
    floor,
    is_rational,
    ite,
    less,
    log,
    maximum,
    minimum,
    multiply,
    negative,
    power,
    rational,
    sinpi,
    square_root,
    subtract,
    symbol,
)
from closedform.verify.terms.evaluate import value
from closedform.verify.terms.facts import Direction
from closedform.verify.terms.limits import FOREVER
from closedform.verify.terms.tree import Sign, Term, walk
from closedform.verify.terms.trend import Trend, trend
from tests.verify.test_soundness import truth

T = symbol("t", integer=True, sign=Sign.NONNEGATIVE)
CYCLE = symbol("cycle", integer=True, sign=Sign.NONNEGATIVE)


def line(slope: int, height: int, denominator: int = 1) -> Term:
    return divide(add(multiply(rational(slope), T), rational(height)), rational(denominator))


def check(movement: Trend, values: list[arb]) -> None:
    """Asserts that no value is outside the range, and none moves the other way."""
    low, high = movement.range.low, movement.range.high
    assert all(low is None or not each < arb(low) for each in values)
    assert all(high is None or not each > arb(high) for each in values)
    for before, after in pairwise(values):
        assert movement.direction is not Direction.INCREASING or not after < before
        assert movement.direction is not Direction.DECREASING or not after > before


COSINE = cospi(line(2, 1, 7))
HALF_COSINE = add(multiply(HALF, COSINE), HALF)
FRACTION = subtract(line(1, 0, 7), floor(line(1, 0, 7)))

RANGES: list[tuple[Term, int | None, int | None]] = [
    (HALF_COSINE, 0, 1),
    (subtract(HALF_COSINE, multiply(HALF, COSINE)), None, None),
    (multiply(HALF_COSINE, line(-1, 20, 20)), 0, 1),
    (maximum(rational(1, 10), HALF_COSINE), 0, 1),
    (minimum(ONE, add(HALF_COSINE, ONE)), 1, 1),
    (FRACTION, 0, 1),
    (subtract(ONE, FRACTION), 0, 1),
    (subtract(T, multiply(rational(7), floor(line(1, 0, 7)))), 0, 7),
    (floor(add(HALF_COSINE, rational(1, 3))), 0, 1),
    (absolute(COSINE), 0, 1),
    (power(COSINE, TWO), 0, 1),
    (power(COSINE, rational(3)), -1, 1),
    (square_root(HALF_COSINE), 0, 1),
    (divide(ONE, add(TWO, COSINE)), 0, 1),
    (divide(ONE, subtract(COSINE, TWO)), -1, 0),
    (ite(less(COSINE, ZERO), HALF_COSINE, ONE), 0, 1),
    (exp(subtract(COSINE, ONE)), 0, 1),
    (power(rational(1, 2), CYCLE), 0, 1),
    (multiply(HALF_COSINE, power(rational(1, 2), CYCLE)), 0, 1),
]


@pytest.mark.parametrize(("number", "low", "high"), RANGES, ids=str)
def test_the_range_of_a_number(number: Term, low: int | None, high: int | None) -> None:
    movement = trend(number, T, 0, 20)
    assert movement is not None
    points = [{"t": fmpq(step), "cycle": fmpq(step // 3)} for step in range(21)]
    check(movement, [arb(value(number, point)) for point in points])
    assert low is None or arb(movement.range.low) >= low
    assert high is None or arb(movement.range.high) <= high


DIRECTIONS: list[tuple[Term, int, int, Direction]] = [
    (line(2, 1), 0, FOREVER, Direction.INCREASING),
    (line(-2, 1), 0, 9, Direction.DECREASING),
    (rational(3), 0, 9, Direction.CONSTANT),
    (add(line(2, 1), line(1, 0)), 0, 9, Direction.INCREASING),
    (add(line(2, 1), multiply(T, T)), 0, 9, Direction.INCREASING),
    (subtract(line(2, 1), multiply(T, T)), 0, 9, Direction.UNKNOWN),
    (multiply(line(1, 1), line(-1, 20)), 0, 9, Direction.UNKNOWN),
    (multiply(line(-1, -1), line(-2, -3)), 0, 9, Direction.INCREASING),
    (multiply(line(1, 1), line(-1, -1)), 0, 9, Direction.DECREASING),
    (divide(ONE, line(1, 1)), 0, FOREVER, Direction.DECREASING),
    (divide(ONE, line(1, -20)), 0, 9, Direction.DECREASING),
    (power(line(1, -20), TWO), 0, 9, Direction.DECREASING),
    (power(line(1, -20), rational(3)), 0, 90, Direction.INCREASING),
    (power(line(1, 1), rational(-1, 2)), 0, FOREVER, Direction.DECREASING),
    (power(rational(1, 2), T), 0, FOREVER, Direction.DECREASING),
    (power(rational(3), T), 0, FOREVER, Direction.INCREASING),
    (exp(negative(T)), 0, FOREVER, Direction.DECREASING),
    (log(line(1, 1)), 0, FOREVER, Direction.INCREASING),
    (atan(line(1, -5)), 0, FOREVER, Direction.INCREASING),
    (atan(line(-1, 5)), 0, FOREVER, Direction.DECREASING),
    (square_root(line(-1, 9)), 0, 9, Direction.DECREASING),
    (floor(line(1, 0, 3)), 0, FOREVER, Direction.INCREASING),
    (cospi(line(1, 0, 10)), 0, 10, Direction.DECREASING),
    (cospi(line(1, 0, 10)), 10, 20, Direction.INCREASING),
    (cospi(line(1, 0, 10)), 0, 11, Direction.UNKNOWN),
    (cospi(line(-1, 0, 10)), 0, 10, Direction.DECREASING),
    (sinpi(line(1, 0, 10)), 5, 15, Direction.DECREASING),
    (sinpi(line(1, 0, 10)), 0, 5, Direction.INCREASING),
    (minimum(line(1, 0), line(2, -5)), 0, 9, Direction.INCREASING),
    (maximum(line(1, 0), line(-1, 0)), 0, 9, Direction.UNKNOWN),
    (absolute(line(1, -9)), 0, 9, Direction.DECREASING),
]


@pytest.mark.parametrize(("number", "first", "last", "direction"), DIRECTIONS, ids=str)
def test_the_direction_of_a_number(
    number: Term, first: int, last: int, direction: Direction
) -> None:
    found = trend(number, T, first, last)
    assert found is not None
    assert found.direction is direction
    end = min(last, first + 60)
    values = [arb(value(number, {"t": fmpq(step)})) for step in range(first, end + 1)]
    check(found, values)


@pytest.mark.parametrize(
    "number",
    [
        divide(ONE, line(1, -5)),
        log(line(1, -5)),
        square_root(line(1, -5)),
        power(T, rational(-1, 2)),
        power(line(1, -5), line(1, 0)),
        ite(less(T, ONE), T, divide(ONE, line(1, -5))),
        ite(less(divide(ONE, line(1, -5)), ONE), T, ONE),
        power(symbol("other"), rational(1, 2)),
    ],
)
def test_nothing_is_said_of_what_may_be_undefined(number: Term) -> None:
    assert trend(number, T, 0, 9) is None


def test_random_trends_hold_at_every_step() -> None:
    chance = random.Random(2)
    said = 0
    for _ in range(400):
        goal = truth(chance, [T], 2)
        for number in (node for node in walk(goal) if not is_rational(node)):
            found = trend(number, T, 1, 12)
            if found is None:
                continue
            said += 1
            values = [arb(value(number, {"t": fmpq(step)})) for step in range(1, 13)]
            check(found, values)
    assert said > 200
