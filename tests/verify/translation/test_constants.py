"""Numbers behind floats: the interval of what rounds to a float, and the number found in it."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
import sympy as sp
from flint import fmpq
from hypothesis import given
from hypothesis import strategies as st

from closedform.errors import VerificationError
from closedform.ir import DType
from closedform.verify.terms import build
from closedform.verify.terms.fractions import bits, simplest_between
from closedform.verify.terms.sympy_io import term
from closedform.verify.translation.constants import Constants, enclosure, rounding_interval

# Beyond this a float that is half a unit higher is infinite.
FLOATS = st.floats(-1e308, 1e308)


def fraction(number: fmpq) -> Fraction:
    return Fraction(int(number.p), int(number.q))


@given(FLOATS, st.fractions(0, 1))
def test_what_is_in_the_interval_rounds_to_the_float(number: float, part: Fraction) -> None:
    low, high = (fraction(end) for end in rounding_interval(number, DType.F64))
    rounded = float(low + (high - low) * part)
    beside = {math.nextafter(number, math.inf), math.nextafter(number, -math.inf)}
    assert rounded == number or (part in (0, 1) and rounded in beside)


@given(FLOATS, st.fractions(Fraction(1, 10**6), 1))
def test_what_is_outside_rounds_elsewhere(number: float, part: Fraction) -> None:
    low, high = (fraction(end) for end in rounding_interval(number, DType.F64))
    width = high - low
    for outside in (low - part * width, high + part * width):
        assert float(outside) != number


@given(st.floats(allow_nan=False, allow_infinity=False, width=32), st.fractions(0, 1))
def test_float32_may_be_rounded_by_way_of_float64(number: float, part: Fraction) -> None:
    low, high = (fraction(end) for end in rounding_interval(number, DType.F32))
    own = np.float32(number)
    with np.errstate(over="ignore"):  # beside the largest float lies the infinite one
        neighbours = {
            own,
            np.nextafter(own, np.float32(np.inf)),
            np.nextafter(own, np.float32(-np.inf)),
        }
    inside = low + (high - low) * part
    with np.errstate(over="ignore"):
        assert np.float32(float(inside)) in neighbours
    assert low < Fraction(float(own)) < high


def test_the_float_between_two_intervals_belongs_to_both() -> None:
    above = math.nextafter(1.0, 2.0)
    assert rounding_interval(1.0, DType.F64)[1] == rounding_interval(above, DType.F64)[0]


@given(st.fractions(-3, 3, max_denominator=60), st.fractions(0, 1, max_denominator=60))
def test_simplest_is_the_one_of_least_denominator(low: Fraction, width: Fraction) -> None:
    high = low + width
    ends = (build.exact(low), build.exact(high))
    found = fraction(simplest_between(*ends))
    for denominator in range(1, 5000):
        numerators = range(math.ceil(low * denominator), math.floor(high * denominator) + 1)
        if numerators:
            wanted = min((Fraction(n, denominator) for n in numerators), key=abs)
            assert found == wanted
            return
    pytest.fail("no denominator below 5000")


def test_an_empty_interval_has_no_number() -> None:
    with pytest.raises(VerificationError, match="the interval from 3/4 to 1/7 is empty"):
        simplest_between(fmpq(3, 4), fmpq(1, 7))


@pytest.mark.parametrize(
    "text", ["0.1", "3e-4", "1e-8", "0.999", "1/3", "17/980", "3/196000", "-2000", "0", "23.3333"]
)
def test_short_rationals_are_found_alone(text: str) -> None:
    number = Fraction(text)
    assert Constants()(float(number), DType.F64) == build.rational(build.exact(number))


@pytest.mark.parametrize("divisor", [1, 2, 58, 160, 2000, 196000, 123456789])
def test_multiples_of_pi_are_found_alone(divisor: int) -> None:
    with mpmath.workdps(40):
        nearest = float(mpmath.pi / divisor)
    wanted = build.multiply(build.rational(1, divisor), build.PI)
    assert Constants()(nearest, DType.F64) == wanted


SOURCES = [
    ("sqrt(5)/10", sp.sqrt(5) / 10, sp.sqrt(sp.Symbol("x")) * sp.sqrt(5) / 10),
    ("log(0.999)", sp.log(sp.Rational(999, 1000)), sp.Rational(999, 1000) ** sp.Symbol("x")),
    ("30**0.51", sp.Integer(30) ** sp.Rational(51, 100), sp.Integer(30) ** sp.Rational(51, 100)),
    ("pi*sqrt(377)", sp.pi * sp.sqrt(377), sp.cos(sp.pi * sp.sqrt(377) * sp.Symbol("x"))),
    ("exp(-5)", sp.exp(-5), sp.exp(-5) * sp.Symbol("x")),
    ("2/pi", 2 / sp.pi, 2 * sp.atan(sp.Symbol("x")) / sp.pi),
]


@pytest.mark.parametrize(("name", "number", "source"), SOURCES, ids=[s[0] for s in SOURCES])
def test_irrational_numbers_of_the_source_are_found(
    name: str, number: sp.Expr, source: sp.Expr
) -> None:
    nearest = float(sp.N(number, 40))
    found = Constants([term(source)])(nearest, DType.F64)
    ends = enclosure(build.subtract(found, term(number)))
    assert ends is not None
    assert max(abs(fraction(end)) for end in ends) < Fraction(1, 10**40), (name, found)


def test_numbers_that_are_given_come_first() -> None:
    slope = fmpq(53999999999999999, 13730000000000000000000)
    nearest = float(fraction(slope))
    assert Constants()(nearest, DType.F64) != build.rational(slope)
    assert Constants([], [-slope])(nearest, DType.F64) == build.rational(slope)


def test_one_operation_on_two_numbers_of_the_source_is_looked_for() -> None:
    source = term(sp.Rational("0.00173") * sp.Symbol("x") + sp.Rational("0.337"))
    nearest = float(np.float32(0.00173 / 0.337))
    assert Constants()(nearest, DType.F32) != build.rational(173, 33700)
    assert Constants([source])(nearest, DType.F32) == build.rational(173, 33700)


@pytest.mark.parametrize("root", [2, 3, 7])
def test_the_square_of_a_root_of_the_source_is_not_a_multiple_of_pi(root: int) -> None:
    """A lowering moves 7e-7 * sqrt(2) below the root of the step: sqrt(9.8e-13 * x)."""
    source = term(7 * sp.sqrt(root) / 10**7 * sp.sqrt(sp.Symbol("x")))
    square = fmpq(49 * root, 10**14)
    assert Constants([source])(float(fraction(square)), DType.F64) == build.rational(square)


@given(FLOATS.filter(lambda number: abs(number) > 1e-300 and abs(number) < 1e300))
def test_whatever_is_found_rounds_to_the_float(number: float) -> None:
    """The ball around a multiple of pi is itself 2**-190 wide, so its ends may be out by that."""
    low, high = rounding_interval(number, DType.F64)
    ends = enclosure(Constants()(number, DType.F64))
    assert ends is not None
    slack = (high - low) / fmpq(2**120)
    assert low - slack <= ends[0] <= ends[1] <= high + slack


@pytest.mark.parametrize(
    "text", ["0.30000000000000004", "0.0006000000000000001", "1.2345678901234e-5"]
)
def test_numbers_that_nothing_explains_are_their_decimals(text: str) -> None:
    assert Constants()(float(text), DType.F64) == build.rational(build.exact(Fraction(text)))


def test_bits_measure_simplicity() -> None:
    assert bits(fmpq(3, 4)) == 5
    assert bits(fmpq(0)) == 1


def test_what_is_undefined_has_no_enclosure() -> None:
    assert enclosure(build.log(build.rational(-3))) is None
    assert enclosure(build.rational(2, 7)) == (fmpq(2, 7), fmpq(2, 7))
