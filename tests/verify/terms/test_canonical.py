"""The identity engine: what it knows, what it must not claim, and its bounds."""

import random

import pytest
from flint import fmpq

from closedform.verify.terms import build
from closedform.verify.terms.build import (
    HALF,
    ONE,
    PI,
    TWO,
    UNDEFINED,
    ZERO,
    absolute,
    add,
    cospi,
    divide,
    equal,
    exp,
    floor,
    log,
    multiply,
    negative,
    power,
    rational,
    sinpi,
    square_root,
    subtract,
    symbol,
)
from closedform.verify.terms.canonical import is_zero
from closedform.verify.terms.evaluate import holds
from closedform.verify.terms.tree import Op, Sign, Term, show

X, Y, Z = (symbol(name) for name in "xyz")
N, M = symbol("n", integer=True), symbol("m", integer=True)
P, Q = symbol("p", sign=Sign.POSITIVE), symbol("q", sign=Sign.POSITIVE)


def signs(term: Term) -> Sign:
    """The content of a declaration, and no more."""
    is_positive = term in (P, Q, multiply(P, Q), ONE)
    return Sign.POSITIVE if is_positive else Sign.ANY


def turn(number: int, denominator: int = 1) -> Term:
    return multiply(rational(number, denominator), X)


EQUAL = [
    (power(add(X, Y), TWO), add(power(X, TWO), multiply(TWO, X, Y), power(Y, TWO))),
    (divide(subtract(power(X, TWO), ONE), subtract(X, ONE)), add(X, ONE)),
    (divide(ONE, divide(ONE, X)), X),
    (cospi(add(X, TWO)), cospi(X)),
    (cospi(add(X, ONE)), negative(cospi(X))),
    (cospi(negative(X)), cospi(X)),
    (sinpi(negative(X)), negative(sinpi(X))),
    (cospi(turn(2)), subtract(multiply(TWO, power(cospi(X), TWO)), ONE)),
    (
        cospi(turn(5)),
        subtract(multiply(cospi(turn(4)), cospi(X)), multiply(sinpi(turn(4)), sinpi(X))),
    ),
    (add(power(cospi(X), TWO), power(sinpi(X), TWO)), ONE),
    (power(cospi(turn(1, 2)), TWO), multiply(HALF, add(ONE, cospi(X)))),
    (cospi(multiply(TWO, N)), ONE),
    (multiply(cospi(N), cospi(N)), ONE),
    (sinpi(multiply(N, M)), ZERO),
    (cospi(add(multiply(TWO, N), X)), cospi(X)),
    (cospi(rational(1, 5)), cospi(rational(-1, 5))),
    (cospi(rational(1, 5)), negative(cospi(rational(-6, 5)))),
    (sinpi(rational(7, 10)), sinpi(rational(3, 10))),
    (sinpi(rational(-7, 10)), negative(sinpi(rational(23, 10)))),
    (multiply(TWO, cospi(rational(1, 4))), square_root(TWO)),
    (multiply(TWO, cospi(rational(1, 6))), square_root(rational(3))),
    (sinpi(rational(5, 6)), HALF),
    (cospi(rational(4, 3)), negative(HALF)),
    (power(X, add(N, TWO)), multiply(X, X, power(X, N))),
    (power(X, add(Y, Y)), power(power(X, Y), TWO)),
    (
        multiply(power(X, divide(Y, rational(3))), power(X, divide(Y, TWO))),
        power(X, multiply(rational(5, 6), Y)),
    ),
    (power(rational(4), X), power(TWO, multiply(TWO, X))),
    (power(rational(6), X), multiply(power(TWO, X), power(rational(3), X))),
    (multiply(square_root(X), square_root(X)), X),
    (power(X, rational(3, 2)), multiply(X, square_root(X))),
    (power(power(X, rational(1, 6)), TWO), power(X, rational(1, 3))),
    (square_root(rational(8)), multiply(TWO, square_root(TWO))),
    (power(multiply(P, Q), X), multiply(power(P, X), power(Q, X))),
    (square_root(divide(P, Q)), divide(square_root(P), square_root(Q))),
    (log(multiply(P, Q)), add(log(P), log(Q))),
    (log(power(P, TWO)), multiply(TWO, log(P))),
    (exp(add(X, Y)), multiply(exp(X), exp(Y))),
    (exp(multiply(X, log(P))), power(P, X)),
    (exp(negative(X)), divide(ONE, exp(X))),
    (floor(add(X, X)), floor(multiply(TWO, X))),
    (absolute(subtract(X, Y)), absolute(add(negative(Y), X))),
    (multiply(PI, PI), power(PI, TWO)),
]

DIFFERENT = [
    (X, Y),
    (X, add(X, rational(1, 10**30))),
    (cospi(X), sinpi(X)),
    (cospi(add(X, ONE)), cospi(X)),
    (cospi(N), ONE),
    (sinpi(multiply(HALF, N)), ZERO),
    (square_root(power(X, TWO)), X),
    (square_root(multiply(X, Y)), multiply(square_root(X), square_root(Y))),
    (power(multiply(X, Y), Z), multiply(power(X, Z), power(Y, Z))),
    (log(multiply(X, Y)), add(log(X), log(Y))),
    (log(power(X, TWO)), multiply(TWO, log(X))),
    (power(P, X), power(P, Y)),
    (exp(multiply(X, Y)), multiply(exp(X), exp(Y))),
    (floor(add(X, ONE)), floor(X)),
    (UNDEFINED, UNDEFINED),
    (divide(X, ZERO), divide(X, ZERO)),
]


@pytest.mark.parametrize(("left", "right"), EQUAL, ids=lambda term: show(term)[:40])
def test_identities_are_found(left: Term, right: Term) -> None:
    assert is_zero(subtract(left, right), signs)


@pytest.mark.parametrize(("left", "right"), DIFFERENT, ids=lambda term: show(term)[:40])
def test_false_identities_are_not_found(left: Term, right: Term) -> None:
    assert not is_zero(subtract(left, right), signs)


def test_a_sum_over_two_hidden_zeros_is_not_an_identity() -> None:
    """Over ``sin^2 + cos^2 - 1`` and its double everything would cancel."""
    zero = subtract(add(power(cospi(X), TWO), power(sinpi(X), TWO)), ONE)
    other = subtract(power(square_root(TWO), TWO), TWO)
    assert not is_zero(add(divide(Y, zero), divide(Z, add(zero, other))))


@pytest.mark.parametrize(
    "term",
    [
        subtract(power(add(X, ONE), rational(10**6)), ONE),
        power(rational(3), rational(10**12)),
        cospi(turn(1000)),
        subtract(
            divide(subtract(power(X, rational(900)), ONE), subtract(power(X, rational(7)), ONE)), Y
        ),
        add(*(symbol(f"a{index}") for index in range(100))),
    ],
)
def test_what_is_too_large_is_given_up(term: Term) -> None:
    assert not is_zero(term)


def test_an_identity_holds_at_points() -> None:
    """The table of identities beside exact evaluation: fractions or balls never contradict it."""
    rng = random.Random(5)
    for left, right in EQUAL:
        for _ in range(8):
            point = {name: fmpq(rng.randint(1, 30), rng.randint(1, 9)) for name in "xyzpq"}
            point.update({name: fmpq(rng.randint(0, 9)) for name in "nm"})
            assert holds(equal(left, right), point) is not False


def test_a_random_rewriting_is_an_identity_and_a_slip_is_none() -> None:
    rng = random.Random(6)
    atoms = [X, Y, cospi(X), power(P, Y), square_root(Q), N]
    for _ in range(60):
        a, b, c = (rng.choice(atoms) for _ in range(3))
        left = multiply(add(a, b), add(b, c))
        right = add(multiply(a, b), multiply(a, c), power(b, TWO), multiply(b, c))
        assert is_zero(subtract(left, right), signs)
        assert not is_zero(subtract(left, add(right, rational(1, rng.randint(1, 9)))), signs)


N = build.symbol("n", integer=True, sign=Sign.NONNEGATIVE)


def _root(number: Term, degree: int) -> Term:
    return build.power(number, build.rational(1, degree))


def _part(number: Term, divisor: int) -> Term:
    return build.multiply(build.rational(1, divisor), number)


_CUBE = build.multiply(N, N, N)
_HALF = build.rational(1, 2)
_PLUS_HALF = build.add(build.floor(_part(_CUBE, 400)), _HALF)
_ROOT_OF_CUBE = _part(build.power(N, build.rational(3, 2)), 20)


@pytest.mark.parametrize(
    ("left", "right", "is_equal"),
    [
        # By whole parts: n**2 = (50 q + r)**2 with q = floor(n / 50).
        (
            build.floor(_part(build.multiply(N, N), 50)),
            build.add(
                build.multiply(
                    build.floor_divide(N, build.rational(50)),
                    build.add(N, build.floor_modulo(N, build.rational(50))),
                ),
                build.floor(
                    _part(build.power(build.floor_modulo(N, build.rational(50)), build.TWO), 50)
                ),
            ),
            True,
        ),
        (build.floor(_ROOT_OF_CUBE), build.floor(_root(_PLUS_HALF, 2)), True),
        (build.floor(_ROOT_OF_CUBE), build.floor(_root(build.add(_CUBE, build.ONE), 2)), False),
        (build.floor(_ROOT_OF_CUBE), build.floor(_root(build.add(_PLUS_HALF, _HALF), 2)), False),
        (
            build.floor(_root(N, 4)),
            build.floor(_root(build.add(build.floor(_root(N, 2)), _HALF), 2)),
            True,
        ),
        (
            build.floor(_part(build.add(_root(N, 2), build.MINUS_ONE), 2)),
            build.floor(_part(build.add(build.floor(_root(N, 2)), build.MINUS_ONE), 2)),
            True,
        ),
        (
            build.floor(_part(build.add(N, _HALF), 3)),
            build.floor(_part(N, 3)),
            True,
        ),
        # At n = 0 the ceiling of a root is not 1 + floor(…).
        (
            build.floor(build.negative(_root(N, 2))),
            build.subtract(build.MINUS_ONE, build.floor(_root(build.subtract(N, build.ONE), 2))),
            False,
        ),
    ],
)
def test_floors(left: Term, right: Term, is_equal: bool) -> None:
    sign_of = lambda node: node.value.sign if node.op is Op.SYMBOL else Sign.ANY  # noqa: E731
    assert is_zero(build.subtract(left, right), sign_of) is is_equal


def test_a_ceiling_of_a_root_above_0() -> None:
    above = build.negative(_root(N, 2))
    other = build.subtract(build.MINUS_ONE, build.floor(_root(build.subtract(N, _HALF), 2)))
    assert is_zero(build.subtract(build.floor(above), other), lambda _: Sign.POSITIVE)
    assert not is_zero(build.subtract(build.floor(above), other), lambda _: Sign.NONNEGATIVE)
