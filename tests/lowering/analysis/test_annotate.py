"""Facts: comparisons that touch, powers, remainders, and which expressions are integers."""

import math
import random
import time
from fractions import Fraction

import mpmath
import pytest
import sympy as sp

from closedform.language import floor_div, floor_mod, t
from closedform.lowering.analysis.annotate import decide, interval, is_integral
from closedform.lowering.analysis.domain import INFINITY, Domain, Interval

X = sp.Symbol("x", real=True)
Y = sp.Symbol("y", real=True)


def domain(x: tuple[int, int], y: tuple[int, int] = (0, 0)) -> Domain:
    return Domain({X: between(*x), Y: between(*y), t: between(0, 100)})


def between(low: int, high: int) -> Interval:
    return Interval(Fraction(low), Fraction(high))


BELOW = {sp.Lt: True, sp.Le: True, sp.Gt: False, sp.Ge: False, sp.Eq: False, sp.Ne: True}
TOUCHES_BELOW = {sp.Lt: None, sp.Le: True, sp.Gt: False, sp.Ge: None, sp.Eq: None, sp.Ne: None}
TOUCHES_ABOVE = {sp.Lt: False, sp.Le: None, sp.Gt: None, sp.Ge: True, sp.Eq: None, sp.Ne: None}
OVERLAPS = dict.fromkeys(BELOW)
SAME = {sp.Lt: False, sp.Le: True, sp.Gt: False, sp.Ge: True, sp.Eq: True, sp.Ne: False}


@pytest.mark.parametrize("kind", BELOW)
@pytest.mark.parametrize(
    ("x", "y", "outcomes"),
    [
        ((0, 1), (2, 3), BELOW),
        ((0, 1), (1, 3), TOUCHES_BELOW),
        ((3, 4), (1, 3), TOUCHES_ABOVE),
        ((0, 2), (1, 3), OVERLAPS),
        ((2, 2), (2, 2), SAME),
    ],
)
def test_comparisons(
    kind: type[sp.Rel],
    x: tuple[int, int],
    y: tuple[int, int],
    outcomes: dict[type[sp.Rel], bool | None],
) -> None:
    assert decide(kind(X, Y), domain(x, y)) is outcomes[kind]


@pytest.mark.parametrize(
    ("expr", "x", "expected"),
    [
        (sp.Min(X, 3), (1, 5), between(1, 3)),
        (sp.Max(X, 3), (1, 5), between(3, 5)),
        (sp.Max(X, 3), (4, 5), between(4, 5)),
        (floor_mod(X, 7), (3, 6), between(3, 6)),
        (floor_mod(X, 7), (3, 7), between(0, 7)),
        (floor_mod(X, 7), (3, 70), between(0, 7)),
        (floor_mod(t, 7), (0, 0), between(0, 6)),
        (floor_mod(X, -7), (3, 9), between(-7, 0)),
        (sp.log(X), (0, 0), Interval(-INFINITY, -INFINITY)),
    ],
)
def test_interval(expr: sp.Expr, x: tuple[int, int], expected: Interval) -> None:
    assert interval(expr, domain(x)) == expected


@pytest.mark.parametrize(
    ("expr", "x", "values"),
    [
        (X**Y, (0, 2), (0, 1)),  # 0**0 and 2**0 are 1
        (X**sp.pi, (0, 4), (0, 77)),
        (X ** (-sp.pi), (1, 2), (2**-sp.pi, 1)),
        (sp.sqrt(X), (0, 9), (0, 3)),
        (1 / sp.sqrt(X), (4, 9), (sp.Rational(1, 3), sp.Rational(1, 2))),
        (sp.Rational(1, 2) ** X, (0, 3), (sp.Rational(1, 8), 1)),
        (3**X, (-1, 2), (sp.Rational(1, 3), 9)),
        (sp.pi * X, (1, 1), (sp.pi, sp.pi)),
    ],
)
def test_powers_enclose(expr: sp.Expr, x: tuple[int, int], values: tuple[sp.Expr, ...]) -> None:
    bounds = interval(expr, domain(x))
    for value in map(sp.sympify, values):
        # An end that is rational is exact.
        number = Fraction(value) if value.is_Rational else Fraction(str(sp.N(value, 60)))
        assert bounds.low <= number <= bounds.high


def test_an_irrational_number_is_inside_its_interval() -> None:
    bounds = interval(sp.pi, domain((0, 0)))
    assert isinstance(bounds.low, Fraction)
    assert isinstance(bounds.high, Fraction)
    assert bounds.low < Fraction(str(sp.N(sp.pi, 60))) < bounds.high
    assert bounds.high - bounds.low < Fraction(1, 10**20)


def test_cosines_enclose_the_values_between_their_ends() -> None:
    chance = random.Random(1)
    with mpmath.workdps(40):
        for _ in range(100):
            quarter = chance.randint(-400, 400)  # turning points and zeros are at multiples
            low = Fraction(chance.choice((quarter, chance.randint(-(10**9), 10**9))))
            width = Fraction(chance.randint(0, 20), chance.randint(1, 9))
            for function, values in (
                (mpmath.cos, interval(sp.cos(X), Domain({X: Interval(low, low + width)}))),
                (mpmath.sin, interval(sp.sin(X), Domain({X: Interval(low, low + width)}))),
                (
                    mpmath.cospi,
                    interval(sp.cos(sp.pi * X), Domain({X: Interval(low, low + width)})),
                ),
            ):
                for part in range(11):
                    angle = low + width * Fraction(part, 10)
                    value = function(mpmath.mpf(angle.numerator) / angle.denominator)
                    assert values.low - Fraction(1, 10**20) <= Fraction(str(value))
                    assert Fraction(str(value)) <= values.high + Fraction(1, 10**20)


@pytest.mark.parametrize(("low", "high"), [(-3, 5), (0, 7), (-9, 0), (Fraction(1, 3), 10**30)])
def test_arctangents_are_between_those_of_the_ends(low: Fraction | int, high: int) -> None:
    values = interval(sp.atan(X), Domain({X: Interval(Fraction(low), Fraction(high))}))
    with mpmath.workdps(60):
        ends = [mpmath.atan(mpmath.mpf(end.numerator) / end.denominator) for end in (low, high)]
        exact = [Fraction(str(end)) for end in ends]
    assert values.low <= exact[0] <= values.low + Fraction(1, 10**20)
    assert values.high - Fraction(1, 10**20) <= exact[1] <= values.high
    # 0 is exact: what is not below it has no negative arctangent.
    assert (values.is_nonnegative, values.is_positive) == (low >= 0, low > 0)


def test_a_turning_point_at_an_end_is_within() -> None:
    assert interval(sp.cos(sp.pi * X), domain((1, 1))).low == -1
    assert interval(sp.cos(X), Domain({X: interval(sp.pi, domain((0, 0)))})).high < -0.999
    narrow = interval(sp.cos(X), Domain({X: Interval(Fraction(10**8), Fraction(10**8) + 1)}))
    assert narrow.high - narrow.low < 1


@pytest.mark.parametrize("power", [(-3, 4), (0, 4), (-INFINITY, INFINITY)])
def test_a_power_of_a_base_that_may_be_zero_is_bounded_only_by_positive_exponents(
    power: tuple[float, float],
) -> None:
    low, high = (end if math.isinf(end) else Fraction(end) for end in power)
    exponents = Interval(low, high)
    bounds = interval(X**Y, Domain({X: between(0, 2), Y: exponents}))
    assert bounds.high == INFINITY or bounds.high >= 16
    if power[0] < 0:
        assert bounds.high == INFINITY


def test_large_bases_and_exponents_grow_the_right_way() -> None:
    wide = Domain({X: Interval(Fraction(2), INFINITY), Y: between(-3, -2)})
    bounds = interval(X**Y, wide)
    assert bounds.low == 0
    assert Fraction(1, 4) <= bounds.high < Fraction(1, 3)


def test_a_quotient_of_fractions_is_not_an_integer_of_the_step() -> None:
    assert is_integral(floor_div(t, 3))
    assert not is_integral(floor_div(t / 2, 3))
    assert not is_integral(floor_div(X, 3))


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("power", [10**9, -(10**9)])
def test_numbers_of_a_billion_digits_are_not_written_out(sign: int, power: int) -> None:
    number = sign * sp.exp(power)
    begun = time.process_time()
    found = interval(number, domain((0, 10)))
    assert time.process_time() - begun < 5  # to write it out takes minutes
    assert found.is_nonzero
    assert found.is_positive is (sign > 0)
    if power > 0:
        assert INFINITY in (found.high, -found.low)
    else:
        edge = Fraction(1, 2**3000)
        assert -edge < found.low <= found.high < edge
