"""Numbers that are too long to be worked out are refused, in SymPy's own construction as well."""

import math
from collections.abc import Callable
from fractions import Fraction

import pytest
import sympy as sp

from closedform.errors import LimitError
from closedform.language import Schedule, exact_number, t
from closedform.language.exact import to_float
from closedform.magnitude import MOST_BITS, MOST_DIGITS

LONG_POWERS: dict[str, Callable[[], sp.Expr]] = {
    "2**(10**9)": lambda: sp.Integer(2) ** (10**9),
    "2**-51200000000": lambda: sp.Integer(2) ** sp.Integer(-51200000000),
    "(1/3)**(10**400)": lambda: sp.Rational(1, 3) ** sp.Integer(10**400),
    "3**(1000000001/3)": lambda: sp.Integer(3) ** sp.Rational(10**9 + 1, 3),
    "of a symbol": lambda: (2**t).subs(t, 10**9),
}


@pytest.mark.parametrize("name", LONG_POWERS)
def test_a_long_power_is_an_error(name: str) -> None:
    with pytest.raises(LimitError, match=rf"has more than {MOST_BITS} bits: write it as a float"):
        LONG_POWERS[name]()


def test_powers_within_the_limit_are_as_before() -> None:
    assert sp.Integer(2) ** MOST_BITS.bit_length() == 2 ** MOST_BITS.bit_length()
    assert sp.Rational(2, 3) ** -5 == sp.Rational(243, 32)
    assert sp.cbrt(16) ** 7 == 512 * sp.cbrt(2)
    assert sp.Integer(-1) ** (10**400) == 1
    assert sp.Integer(1) ** sp.Rational(10**400, 3) == 1
    assert (sp.Integer(2) ** (MOST_BITS // 2)).p.bit_length() == MOST_BITS // 2 + 1


def test_roots_of_long_numbers_are_not_factored() -> None:
    # SymPy looks for factors of a number of 3,000 digits for some hours.
    root = sp.sqrt(sp.Integer(10**3000 + 1))
    assert root.is_Pow
    assert root**2 == 10**3000 + 1
    assert sp.sqrt(sp.Integer(10**3000)) == 10**1500
    assert (sp.sqrt(sp.Integer(10**3000 + 1)) * 2).is_positive


def test_fine_exponents_are_not_applied_to_each_factor() -> None:
    assert (sp.Integer(24) ** sp.Rational(14234567890123457, 10**16) > 92) == sp.true


REFUSED: dict[str, tuple[object, str]] = {
    "an integer": (10**MOST_DIGITS * 10, "lr must have at most 1000 digits, got a number of 1002"),
    "a negative one": (
        -(10**5000),
        "lr must have at most 1000 digits, got a number of 5001 digits",
    ),
    "a fraction": (Fraction(1, 7**9000), "got a fraction of 1 and 7606 digits: round it"),
    "of SymPy": (
        sp.Rational(1, 3**9000),
        "lr must have at most 1000 digits, got a fraction of 1 and 4295",
    ),
    "a Float": (sp.Float(10) ** 400, "lr has a Float above 2\\*\\*1024, the largest float64"),
    "a power": (
        sp.Pow(2, 10**9, evaluate=False),
        "the exact power 2\\*\\*1000000000 has more than",
    ),
    "an exponential": (sp.exp(sp.exp(30)), "lr has an exponential whose exponent is beyond"),
    "of one": (sp.exp(-sp.exp(sp.exp(20))), "lr has an exponential whose exponent is beyond"),
    "in an irrational number": (
        sp.sqrt(2) / 3**9000,
        "a number of lr must have at most 4000 digits, got a fraction of 1 and 4295",
    ),
    "an irrational base": (sp.pi ** (10**15), "lr has an exponential whose exponent is beyond"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_long_number_is_refused_where_it_comes_in(name: str) -> None:
    value, message = REFUSED[name]
    with pytest.raises(LimitError, match=message):
        exact_number(value, "lr")


def test_numbers_within_the_limits_come_in() -> None:
    largest = 10 ** (MOST_DIGITS - 1)
    assert exact_number(largest) == largest
    assert exact_number(5e-324) == sp.Rational("5e-324")
    assert exact_number(sp.exp(10**6)) == sp.exp(10**6)
    assert exact_number(sp.Float("1e-400")) == 0  # what a float64 has


def test_a_long_number_within_an_expression_is_refused() -> None:
    with pytest.raises(
        LimitError, match="a number of the expression of schedule 'decay' must have"
    ):
        Schedule(t * sp.Rational(1, 3**9000), name="decay")


def test_a_hyperparameter_makes_no_long_power() -> None:
    power = Schedule(sp.Symbol("a", real=True) ** sp.Symbol("b", real=True), a=2, b=10**9)
    with pytest.raises(LimitError, match=r"the exact power 2\*\*1000000000 has more than"):
        power(0)


def test_a_value_with_too_large_an_exponential_has_no_float() -> None:
    schedule = Schedule(sp.exp(sp.exp(t * 10**300)), name="tower")
    with pytest.raises(LimitError, match="has an exponential whose exponent is beyond"):
        to_float(schedule.exact(1))
    assert to_float(schedule.exact(0)) == pytest.approx(math.e, rel=1e-15)  # of one rounding
