"""Goals that are proved by what is shown of their parts first, and false ones beside them."""

from __future__ import annotations

import pytest

from closedform.effort import Effort
from closedform.verify.certification.search import NoProofError, certify
from closedform.verify.certification.statements import statement_of
from closedform.verify.checker.replay import check
from closedform.verify.terms.build import (
    HALF,
    ONE,
    ZERO,
    add,
    divide,
    equal,
    floor,
    less,
    less_equal,
    log,
    multiply,
    power,
    rational,
    subtract,
    symbol,
)
from closedform.verify.terms.tree import Sign, Term

S = symbol("s", integer=True, sign=Sign.NONNEGATIVE)
T = symbol("t", integer=True, sign=Sign.NONNEGATIVE)
N = symbol("n", integer=True, sign=Sign.POSITIVE)
X, Y = symbol("x"), symbol("y")
LATER = less(T, S), less_equal(S, N)
WORK = 2_000_000


def root(number: Term) -> Term:
    return power(number, HALF)


FALLING = {
    "root": lambda t: divide(rational(3), root(add(t, rational(2)))),
    "line": lambda t: subtract(rational(2), divide(t, N)),
    "inverse": lambda t: divide(ONE, add(t, N)),
}
"""Factors that fall with t and are above 0 up to n."""


def is_proved(goal: Term, *assume: Term) -> bool:
    statement = statement_of(goal, assume)
    try:
        proof = certify(statement, Effort.of(WORK))
    except NoProofError:
        return False
    check(statement, proof)
    return True


def products(first: str, second: str) -> tuple[Term, Term]:
    early, late = (multiply(FALLING[first](t), FALLING[second](t)) for t in (T, S))
    return early, late


@pytest.mark.parametrize(
    ("first", "second"), [("root", "line"), ("inverse", "line"), ("root", "inverse")]
)
def test_a_product_of_falling_factors_falls(first: str, second: str) -> None:
    early, late = products(first, second)
    assert is_proved(less_equal(late, early), *LATER)


def test_a_product_of_falling_factors_does_not_rise() -> None:
    early, late = products("inverse", "line")
    assert not is_proved(less_equal(early, late), *LATER)


def test_a_floor_with_one_value_is_that_value() -> None:
    count = floor(divide(add(T, N), N))
    powers = (power(X, divide(T, divisor)) for divisor in (multiply(N, count), N))
    assert is_proved(equal(*powers), less(T, N), less(ZERO, X))


def test_a_power_of_stairs_falls() -> None:
    before, after = (power(X, floor(divide(t, N))) for t in (T, add(T, ONE)))
    assert is_proved(less_equal(after, before), less(ZERO, X), less_equal(X, ONE))
    assert not is_proved(less_equal(after, before), less(ZERO, X), less_equal(X, rational(2)))


def test_a_multiple_of_a_power_under_a_logarithm() -> None:
    level = power(Y, floor(divide(log(X), log(Y))))
    goal = less_equal(multiply(N, level), multiply(N, X))
    assert is_proved(goal, less(ONE, Y), less_equal(ONE, X))


@pytest.mark.parametrize(("most", "is_true"), [(1, True), (2, False)])
def test_factors_of_at_most_one(most: int, is_true: bool) -> None:
    product = multiply(N, power(X, T), power(Y, S))
    unit = less(ZERO, X), less_equal(X, ONE), less(ZERO, Y), less_equal(Y, rational(most))
    assert is_proved(less_equal(product, N), *unit) == is_true
