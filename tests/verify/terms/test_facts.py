"""Signs and directions read off terms: what is read, and that it holds at random points."""

import random
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from flint import arb, fmpq

from closedform.verify.terms.build import (
    ONE,
    PI,
    TWO,
    ZERO,
    absolute,
    add,
    atan,
    cospi,
    divide,
    exp,
    floor,
    ite,
    less,
    log,
    maximum,
    minimum,
    multiply,
    negative,
    opaque,
    power,
    rational,
    sign,
    subtract,
    symbol,
)
from closedform.verify.terms.evaluate import value
from closedform.verify.terms.facts import (
    DIRECTION_RULES,
    SIGN_RULES,
    STRICT,
    Direction,
    direction_from,
    is_non_negative,
    sign_from,
    sign_of,
    weakest,
)
from closedform.verify.terms.tree import Sign, Term, walk

T = symbol("t", sign=Sign.NONNEGATIVE)
X, P, N = symbol("x"), symbol("p", sign=Sign.POSITIVE), symbol("n", sign=Sign.NEGATIVE)
ATOMS = (T, X, P, N, ONE, rational(-2), rational(1, 3), PI)

SIGNS = [
    (rational(3), Sign.POSITIVE),
    (ZERO, Sign.NONNEGATIVE),
    (multiply(P, N), Sign.NEGATIVE),
    (multiply(T, N), Sign.NONPOSITIVE),
    (multiply(X, X), Sign.NONNEGATIVE),
    (multiply(X, X, X), Sign.ANY),
    (opaque("reduce_sum", multiply(X, X)), Sign.NONNEGATIVE),
    (opaque("reduce_sum", N), Sign.NONPOSITIVE),
    (opaque("reduce_max", X), Sign.ANY),
    (opaque("matmul", P, P), Sign.ANY),
    (multiply(X, X, N), Sign.NONPOSITIVE),
    (divide(X, X), Sign.NONNEGATIVE),
    (power(X, TWO), Sign.NONNEGATIVE),
    (power(X, rational(3)), Sign.ANY),
    (power(P, X), Sign.POSITIVE),
    (add(T, ONE), Sign.POSITIVE),
    (add(T, P, N), Sign.ANY),
    (add(negative(T), N), Sign.NEGATIVE),
    (floor(P), Sign.NONNEGATIVE),
    (floor(N), Sign.NEGATIVE),
    (minimum(P, T), Sign.NONNEGATIVE),
    (maximum(P, X), Sign.POSITIVE),
    (minimum(N, X), Sign.NEGATIVE),
    (absolute(X), Sign.NONNEGATIVE),
    (absolute(N), Sign.POSITIVE),
    (exp(X), Sign.POSITIVE),
    (ite(less(X, ZERO), P, T), Sign.NONNEGATIVE),
    (cospi(X), Sign.ANY),
    (log(P), Sign.ANY),
    (atan(N), Sign.NEGATIVE),
    (atan(X), Sign.ANY),
]


@pytest.mark.parametrize(("term", "expected"), SIGNS, ids=str)
def test_signs(term: Term, expected: Sign) -> None:
    assert sign_of(term) is expected
    assert is_non_negative(term) is (expected in (Sign.POSITIVE, Sign.NONNEGATIVE))


def test_weakest_sign() -> None:
    assert weakest([Sign.POSITIVE, Sign.NONNEGATIVE]) is Sign.NONNEGATIVE
    assert weakest([Sign.NEGATIVE, Sign.NEGATIVE]) is Sign.NEGATIVE
    assert weakest([Sign.POSITIVE, Sign.NEGATIVE]) is Sign.ANY


def direction_of(root: Term, *, strictly: bool) -> Direction:
    """The direction with t, all other symbols fixed."""
    found: dict[Term, Direction] = {}
    signs: dict[Term, Sign] = {}
    for node in walk(root):
        of_args = [signs[arg] for arg in node.args]
        signs[node] = sign_from(node, of_args)
        directions = [found[arg] for arg in node.args]
        found[node] = (
            Direction.INCREASING
            if node == T
            else direction_from(node, directions, of_args, strictly=strictly)
        )
    return found[root]


UP, DOWN, UNKNOWN = Direction.INCREASING, Direction.DECREASING, Direction.UNKNOWN
DIRECTIONS = [
    (add(T, X), UP, UP),
    (subtract(X, T), DOWN, DOWN),
    (multiply(T, N), DOWN, DOWN),
    (multiply(T, X), UNKNOWN, UNKNOWN),
    (multiply(T, symbol("m", sign=Sign.NONNEGATIVE)), UP, UNKNOWN),
    (multiply(ZERO, T), Direction.CONSTANT, Direction.CONSTANT),
    (multiply(T, add(T, ONE)), UP, UP),
    (divide(P, add(T, ONE)), DOWN, DOWN),
    (divide(T, X), UNKNOWN, UNKNOWN),
    (power(T, TWO), UP, UP),
    (power(add(T, ONE), rational(-1, 2)), DOWN, DOWN),
    (power(subtract(N, T), TWO), UP, UP),
    (power(subtract(T, P), TWO), UNKNOWN, UNKNOWN),
    (power(subtract(T, P), rational(3)), UP, UP),
    (minimum(T, P), UP, UNKNOWN),
    (maximum(T, multiply(TWO, T)), UP, UP),
    (floor(T), UP, UNKNOWN),
    (absolute(subtract(N, T)), UP, UP),
    (exp(negative(T)), DOWN, DOWN),
    (atan(subtract(X, T)), DOWN, DOWN),
    (add(X, P), Direction.CONSTANT, Direction.CONSTANT),
    (cospi(T), UNKNOWN, UNKNOWN),
]


@pytest.mark.parametrize(
    ("term", "weakly", "strictly"), DIRECTIONS, ids=lambda each: str(each)[:40]
)
def test_directions(term: Term, weakly: Direction, strictly: Direction) -> None:
    assert direction_of(term, strictly=False) is weakly
    assert direction_of(term, strictly=True) is strictly


def drawn(rng: random.Random, depth: int) -> Term:
    if depth == 0:
        return rng.choice(ATOMS)
    one, other = drawn(rng, depth - 1), drawn(rng, depth - 1)
    exponent = rng.choice((TWO, rational(3), rational(1, 2), rational(-1), other))
    return rng.choice(
        (
            add(one, other),
            multiply(one, other),
            multiply(one, one, other),
            divide(one, other),
            power(one, exponent),
            minimum(one, other),
            maximum(one, other),
            absolute(one),
            floor(one),
            sign(one),
            exp(one),
            log(one),
            atan(one),
            ite(less(one, other), one, other),
        )
    )


FITS: dict[Sign, Callable[[Any], bool]] = {
    Sign.ANY: lambda number: True,
    Sign.POSITIVE: lambda number: not number <= 0,
    Sign.NONNEGATIVE: lambda number: not number < 0,
    Sign.NEGATIVE: lambda number: not number >= 0,
    Sign.NONPOSITIVE: lambda number: not number > 0,
}


def test_signs_and_directions_hold_at_random_points() -> None:
    rng = random.Random(5)
    signs, directions = 0, 0
    for _ in range(3000):
        term = drawn(rng, rng.randint(1, 3))
        fixed = {
            "x": fmpq(rng.randint(-9, 9), 3),
            "p": fmpq(rng.randint(1, 9), 4),
            "n": fmpq(rng.randint(-9, -1), 4),
        }
        values = [value(term, {**fixed, "t": fmpq(step, 2)}) for step in range(6)]
        numbers = [number for number in values if isinstance(number, fmpq | arb)]
        found = sign_of(term)
        assert all(FITS[found](number) for number in numbers), (term, found, fixed)
        signs += found is not Sign.ANY
        for strictly in (False, True):
            direction = direction_of(term, strictly=strictly)
            if direction is UNKNOWN or len(numbers) < len(values):
                continue
            directions += 1
            for one, other in pairwise(numbers):
                change = arb(other) - arb(one)
                where = term, direction, strictly, fixed
                if direction is UP:
                    assert not change < 0, where
                    assert not (strictly and change == 0), where
                elif direction is DOWN:
                    assert not change > 0, where
                    assert not (strictly and change == 0), where
                else:
                    assert change.contains(0), where
    assert signs > 500
    assert directions > 500


def test_each_rule_has_a_term_that_needs_it() -> None:
    used = {node.op for term, _ in SIGNS for node in walk(term)}
    assert set(SIGN_RULES) - used <= {PI.op}
    moved = {node.op for term, *_ in DIRECTIONS for node in walk(term)}
    assert set(DIRECTION_RULES) - moved <= {sign(X).op, log(X).op}
    assert {Sign.POSITIVE, Sign.NEGATIVE} == STRICT
