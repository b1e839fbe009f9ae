"""Congruence: equal parts make equal wholes, and nothing else is called equal."""

import random

import pytest
from flint import arb, fmpq

from closedform.verify.identity.congruence import are_congruent, with_split_roots
from closedform.verify.identity.equality import StepRange
from closedform.verify.terms.build import (
    HALF,
    ONE,
    TWO,
    UNDEFINED,
    ZERO,
    absolute,
    add,
    both,
    cospi,
    divide,
    either,
    equal,
    exp,
    ite,
    less,
    less_equal,
    log,
    maximum,
    minimum,
    multiply,
    negate,
    negative,
    opaque,
    power,
    rational,
    rebuild,
    sign,
    sinpi,
    square_root,
    subtract,
    symbol,
)
from closedform.verify.terms.evaluate import Undefined
from closedform.verify.terms.evaluate import value as value_of
from closedform.verify.terms.tree import Op, Term, fold, walk

X, Y, Z = symbol("x"), symbol("y"), symbol("z")
N = symbol("n", integer=True)
SUM = add(X, Y)
BETA = rational(9, 10)


def total(term: Term) -> Term:
    return opaque("reduce_sum", term)


EQUAL = {
    "order": (multiply(X, add(Y, Z)), multiply(add(Z, Y), X)),
    "collected": (add(X, Y, X), add(multiply(TWO, X), Y)),
    "cancelled": (divide(multiply(X, Y), Y), X),
    "a common factor": (divide(SUM, multiply(TWO, SUM)), HALF),
    "powers of sums": (multiply(SUM, multiply(TWO, SUM)), multiply(TWO, power(SUM, TWO))),
    "a factor of a square": (power(negative(SUM), TWO), power(SUM, TWO)),
    "multiplied out": (
        multiply(SUM, subtract(X, Y)),
        subtract(power(X, TWO), power(Y, TWO)),
    ),
    "a root of a multiple": (
        square_root(multiply(rational(8), X)),
        multiply(TWO, square_root(TWO), square_root(X)),
    ),
    "a root squared": (power(square_root(SUM), TWO), SUM),
    "a root of a negative sum squared": (power(square_root(negative(SUM)), TWO), negative(SUM)),
    "a root of a product squared": (power(square_root(multiply(X, Y)), TWO), multiply(X, Y)),
    "one over a root": (divide(ONE, square_root(X)), power(X, rational(-1, 2))),
    "powers of a number": (power(BETA, add(N, ONE)), multiply(BETA, exp(multiply(N, log(BETA))))),
    "powers of a symbol": (power(Y, add(X, X)), multiply(power(Y, X), power(Y, X))),
    "inside a function": (total(multiply(X, SUM)), total(multiply(SUM, X))),
    "even": (add(absolute(negative(X)), cospi(negative(X))), add(absolute(X), cospi(X))),
    "odd": (
        add(sign(multiply(rational(-3), X)), sinpi(negative(X))),
        negative(add(sign(X), sinpi(X))),
    ),
    "extremes": (minimum(X, maximum(Z, Y)), minimum(maximum(Y, Z), X)),
    "the other way round": (ite(less(X, Y), X, Z), ite(less_equal(Y, X), Z, X)),
    "scaled conditions": (
        ite(less(X, Y), X, Z),
        ite(less(ZERO, subtract(multiply(TWO, Y), multiply(TWO, X))), X, Z),
    ),
    "conditions in another order": (
        ite(both(less(X, Y), equal(X, Z)), X, Z),
        ite(both(equal(Z, X), less(X, Y)), X, Z),
    ),
    "a condition on an extremum": (
        ite(less(ZERO, minimum(X, rational(10))), X, Z),
        ite(less(ZERO, X), X, Z),
    ),
    "a condition on the larger one": (
        ite(less(X, maximum(Y, Z)), X, Z),
        ite(either(less(X, Z), less(X, Y)), X, Z),
    ),
    "conditions on integers": (
        ite(less_equal(N, ZERO), X, Y),
        ite(less(N, ONE), X, ite(less_equal(ONE, N), Y, Z)),
    ),
    "a guard": (
        ite(less(ZERO, X), divide(Y, X), Z),
        ite(less(ZERO, X), divide(Y, ite(less(ZERO, X), X, ONE)), Z),
    ),
    "a decided part": (
        ite(either(equal(X, ZERO), both(negate(equal(X, ZERO)), less(X, Y))), X, Y),
        ite(either(less(X, Y), equal(X, ZERO)), X, Y),
    ),
    "a missing branch": (ite(less(X, Y), X, UNDEFINED), X),
    "branches that are one": (ite(less(X, Y), SUM, add(Y, X)), SUM),
}


@pytest.mark.parametrize("name", EQUAL)
def test_equal(name: str) -> None:
    left, right = EQUAL[name]
    assert are_congruent(left, right)
    assert are_congruent(right, left)


DIFFERENT = {
    "a square and its root": (square_root(power(X, TWO)), X),
    "a root of a product": (square_root(multiply(X, Y)), multiply(square_root(X), square_root(Y))),
    "a root of a power of what may be below 0": (
        square_root(power(Y, multiply(TWO, N))),
        power(Y, N),
    ),
    "a quotient the other way": (divide(X, Y), divide(Y, X)),
    "another sign": (subtract(X, Y), subtract(Y, X)),
    "another order of a condition": (ite(less(X, Y), X, Z), ite(less(Y, X), X, Z)),
    "equal or not": (ite(less(X, Y), X, Z), ite(less_equal(X, Y), X, Z)),
    "a condition on numbers as if on integers": (
        ite(less_equal(X, ZERO), X, Y),
        ite(less(X, ONE), X, Y),
    ),
    "a condition on half an integer": (
        ite(less(multiply(HALF, N), ONE), X, Y),
        ite(less_equal(multiply(HALF, N), ZERO), X, Y),
    ),
    "and, or": (
        ite(both(less(X, Y), equal(X, Z)), X, Z),
        ite(either(less(X, Y), equal(X, Z)), X, Z),
    ),
    "the sum of sizes": (total(absolute(X)), total(X)),
    "a sum and its element": (total(X), X),
    "decided at this element alone": (
        ite(less(ZERO, X), total(ite(less(ZERO, X), X, Z)), Y),
        ite(less(ZERO, X), total(X), Y),
    ),
    "extremes": (minimum(X, Y), maximum(X, Y)),
    "a step later": (power(BETA, add(N, ONE)), power(BETA, N)),
    "no form": (divide(X, subtract(Y, Y)), X),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_different(name: str) -> None:
    left, right = DIFFERENT[name]
    assert not are_congruent(left, right)


def drawn(draw: random.Random, depth: int) -> Term:
    """A term over three symbols, with what the forms treat each in its own way."""
    if depth == 0:
        return draw.choice([X, Y, Z, ONE, HALF, rational(-2), rational(3, 4)])
    parts = [drawn(draw, depth - 1) for _ in range(3)]
    kind = draw.randrange(12)
    makes = (
        lambda: add(*parts),
        lambda: multiply(*parts[:2]),
        lambda: divide(*parts[:2]),
        lambda: power(parts[0], rational(draw.choice((2, 3, -1)))),
        lambda: square_root(parts[0]),
        lambda: minimum(*parts[:2]),
        lambda: maximum(*parts[:2]),
        lambda: absolute(parts[0]),
        lambda: sign(parts[0]),
        lambda: ite(less(parts[0], parts[1]), parts[1], parts[2]),
        lambda: ite(
            either(less_equal(parts[0], ONE), equal(parts[1], parts[2])), parts[0], parts[1]
        ),
        lambda: subtract(parts[0], multiply(rational(2), parts[1])),
    )
    return makes[kind]()


def rewritten(term: Term, draw: random.Random) -> Term:
    """A term with the arguments of one operation exchanged or negated: some keep their value."""
    places = [node for node in walk(term) if node.args and node.op not in (Op.ITE, Op.OR)]
    chosen = draw.choice(places or [term])

    def make(node: Term, args: list[Term]) -> Term:
        if node == chosen and node.op is not Op.POWER:
            args = args[::-1] if draw.random() < 0.6 else [negative(arg) for arg in args]
        return rebuild(node, tuple(args)) if args else node

    return fold(term, make)


def test_what_is_called_equal_is_equal_at_points() -> None:
    """Pairs of terms that differ in a place: exact values agree wherever both have one."""
    draw = random.Random(11)
    congruent = compared = 0
    for _ in range(1500):
        left = drawn(draw, 3)
        right = rewritten(left, draw)
        if left == right or not are_congruent(left, right):
            continue
        congruent += 1
        for _ in range(12):
            point = {name: fmpq(draw.randint(-6, 6), draw.choice((1, 2, 3))) for name in "xyz"}
            values = [value_of(term, point) for term in (left, right)]
            if any(isinstance(value, Undefined) for value in values):
                continue
            compared += 1
            assert arb(values[0]).overlaps(arb(values[1])), (left, right, point)
    assert congruent > 100
    assert compared > 500


def test_a_root_of_a_product_is_split_at_factors_above_0() -> None:
    clock = symbol("t", integer=True)
    steps = StepRange(clock, 0, 2**31)
    decay = exp(multiply(add(clock, ONE), log(rational(999, 1000))))
    correction = add(ONE, multiply(rational(-1), decay))
    moment = add(X, Y)
    joined = square_root(multiply(divide(ONE, correction), moment))
    apart = divide(square_root(moment), square_root(correction))
    assert not are_congruent(joined, apart, steps.sign_of)
    split = with_split_roots(joined, clock, steps.sign_of)
    assert are_congruent(split, apart, steps.sign_of)
    # Of z, which may be below 0, sqrt(z x) is not sqrt(z) sqrt(x).
    unsure = square_root(multiply(divide(ONE, add(clock, rational(-3))), moment))
    assert with_split_roots(unsure, clock, steps.sign_of) == unsure
    other = square_root(multiply(X, moment))
    assert with_split_roots(other, clock, steps.sign_of) == other
