"""Floors and signs by balls: against fractions and mpmath, and where FLINT has no finite ball."""

import math
import random
import sys
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from typing import Any

import mpmath
import pytest
import sympy as sp
from flint import ctx

from closedform.language.enclosures import floor_of, sign_of

FORMS = 240


def floor(number: sp.Expr) -> int | None:
    """The floor where algebra shows nothing, so that balls decide."""
    return floor_of(number, lambda part: part, lambda: sp.Dummy())


def sign(number: sp.Expr) -> int | None:
    """The sign where algebra shows nothing."""
    return sign_of(number, lambda part: part, lambda: sp.Dummy())


def drawn_number(draw: random.Random, depth: int, functions: tuple[Any, ...]) -> sp.Expr:
    """An unevaluated expression of rational numbers."""
    if depth == 0:
        return sp.Rational(draw.randint(-400, 400), draw.randint(1, 60))
    function = draw.choice((sp.Add, sp.Mul, sp.Min, sp.Max, sp.Abs, sp.Pow, *functions))
    left, right = (drawn_number(draw, depth - 1, functions) for _ in range(2))
    if function is sp.Pow:
        return sp.Pow(left, draw.choice((2, 3, -1)), evaluate=False)
    is_unary = function in (sp.Abs, *functions)
    return function(*((left,) if is_unary else (left, right)), evaluate=False)


def fraction(number: sp.Expr) -> Fraction:
    """The exact value of an expression of rational numbers; raises ZeroDivisionError."""
    if number.is_Rational:
        return Fraction(int(number.p), int(number.q))
    args = [fraction(arg) for arg in number.args]
    match number.func:
        case sp.Add:
            return sum(args, Fraction(0))
        case sp.Mul:
            return math.prod(args, start=Fraction(1))
        case sp.Pow:
            return args[0] ** int(args[1])
        case sp.Abs:
            return abs(args[0])
    return (min if number.func is sp.Min else max)(args)


@pytest.mark.parametrize("seed", range(FORMS))
def test_numbers_without_functions_have_the_floor_and_sign_of_their_fraction(seed: int) -> None:
    number = drawn_number(random.Random(seed), 1 + seed % 4, ())
    try:
        exact = fraction(number)
    except ZeroDivisionError:
        assert (floor(number), sign(number)) == (None, None)
        return
    assert floor(number) == math.floor(exact)
    assert sign(number) == (exact > 0) - (exact < 0)
    # An integer, which only the last precision decides.
    whole = sp.Add(number, -sp.Rational(exact - 3), evaluate=False)
    assert (floor(whole), sign(whole), sign(whole - 3)) == (3, 1, 0)


REAL = (sp.exp, sp.log, sp.cos, sp.sin, sp.atan)


@pytest.mark.parametrize("seed", range(FORMS))
def test_real_numbers_have_the_floor_and_sign_of_long_floats(seed: int) -> None:
    number = drawn_number(random.Random(seed), 1 + seed % 3, REAL)
    try:
        with mpmath.workdps(400):
            value = sp.lambdify((), number, "mpmath")()
            # Not a number near an integer, of which 400 digits show nothing.
            is_clear = isinstance(value, mpmath.mpf) and abs(value - mpmath.nint(value)) > 1e-100
            expected = int(mpmath.floor(value)) if is_clear and abs(value) < 1e300 else None
    except (ZeroDivisionError, ValueError, TypeError):  # or a complex number is compared
        assert floor(number) is None
        return
    if expected is not None:
        assert floor(number) == expected
        assert sign(number) == (1 if value > 0 else -1)


def of(function: Any, *args: sp.Expr) -> sp.Expr:
    return function(*args, evaluate=False)


ROOT = of(sp.sqrt, sp.Integer(2))
ZERO = of(sp.Add, of(sp.Pow, ROOT, sp.Integer(2)), sp.Integer(-2))
"""0, of which each ball also has numbers below 0."""
TINY = of(sp.Add, ROOT, -sp.sqrt(2 + sp.Integer(10) ** -40))


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (of(sp.Pow, ZERO, sp.Integer(2)), 0),
        (of(sp.Pow, ZERO, sp.Integer(3)), 0),
        (of(sp.Pow, of(sp.Pow, ZERO, sp.Integer(2)), sp.Rational(1, 2)), 0),
        (of(sp.Pow, of(sp.Abs, ZERO), sp.Rational(3, 2)), 0),
        (of(sp.Pow, of(sp.Max, ZERO, sp.Integer(0)), ROOT), 0),
        (of(sp.Pow, sp.Integer(0), ROOT), 0),
        (of(sp.Pow, sp.Integer(-3), sp.Integer(3)), -1),
        (of(sp.Pow, -ROOT, sp.Integer(10**20 + 1)), -1),
        # The first balls hold 0: their inverse and their logarithm are found later.
        (of(sp.Pow, TINY, sp.Integer(-1)), -1),
        (of(sp.log, of(sp.Mul, sp.Integer(-1), TINY)), -1),
    ],
)
def test_signs_where_a_ball_holds_zero(number: sp.Expr, expected: int) -> None:
    assert sign(number) == expected


@pytest.mark.parametrize(
    "number",
    [
        of(sp.log, sp.Integer(0)),
        of(sp.log, sp.Integer(-1)),
        of(sp.cos, of(sp.log, sp.Integer(-1))),
        of(sp.Pow, sp.Integer(-8), sp.Rational(1, 3)),
        of(sp.Pow, of(sp.cos, of(sp.Pow, sp.Integer(0), sp.Integer(-1))), sp.Integer(2)),
        of(sp.Pow, ZERO, sp.Integer(-1)),
        of(sp.Pow, sp.Integer(0), sp.Integer(-1)),
        sp.asin(sp.Integer(2)),
        sp.oo,
        sp.nan,
        sp.I,
        sp.Symbol("a"),
    ],
)
def test_numbers_that_are_not_real_have_neither(number: sp.Expr) -> None:
    assert (floor(number), sign(number)) == (None, None)


HUGE = sp.Integer(10) ** 300


def multiple_of_pi(digits: int) -> int:
    """The first digits of pi, those after the one before the point."""
    with mpmath.workdps(400):
        return int(mpmath.floor(mpmath.pi * mpmath.mpf(10) ** digits))


@pytest.mark.parametrize(
    ("number", "expected", "expected_sign"),
    [
        (of(sp.exp, HUGE), None, 1),
        (of(sp.exp, -HUGE), 0, 1),
        (of(sp.Pow, sp.Integer(7), HUGE), None, 1),
        (of(sp.Pow, sp.Rational(-1, 7), HUGE + 1), -1, -1),
        (of(sp.cos, of(sp.exp, of(sp.exp, HUGE))), None, None),
        (of(sp.Min, sp.E, of(sp.exp, HUGE + sp.pi)), 2, 1),
        (of(sp.Pow, sp.Integer(2), sp.Integer(2**20 + 1)), None, 1),
        (of(sp.Mul, HUGE, sp.pi), multiple_of_pi(300), 1),
        (of(sp.cos, of(sp.Mul, HUGE, sp.pi)), 1, 1),
        (sp.tan(sp.Integer(3)), -1, -1),
        (sp.GoldenRatio, 1, 1),
        (sp.Float("2.5"), 2, 1),
    ],
)
def test_huge_numbers_and_other_functions(
    number: sp.Expr, expected: int | None, expected_sign: int | None
) -> None:
    assert (floor(number), sign(number)) == (expected, expected_sign)


def test_threads_keep_their_precision() -> None:
    # The context of python-flint is one for all threads, which change places after each step here.
    numbers = [of(sp.Mul, sp.Integer(10) ** (10 * size), sp.pi) for size in range(1, 30)]
    expected = [multiple_of_pi(10 * size) for size in range(1, 30)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            results = list(pool.map(lambda _: [floor(number) for number in numbers], range(8)))
    finally:
        sys.setswitchinterval(interval)
    assert results == [expected] * 8
    assert ctx.prec == 53
