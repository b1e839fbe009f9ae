"""Numbers that are exactly 0, and numbers next to 0 that are not; SymPy knows which is which."""

import math
import random

import pytest
import sympy as sp
from flint import fmpq

from closedform.language import t
from closedform.verify.terms import build
from closedform.verify.terms.evaluate import value
from closedform.verify.terms.exact_zero import is_zero
from closedform.verify.terms.quotients import coprime_factors, prime_powers
from closedform.verify.terms.sympy_io import term

_HALF = sp.Rational(1, 2)
_NESTED = sp.sqrt(sp.sqrt(5) / 8 + sp.Rational(5, 8))


_PRIME, _LONG = 2**60 + 33, 1000000007 * 1000000009


def _log(number: int) -> sp.Expr:
    return sp.log(number, evaluate=False)


def _cosine(turns: sp.Rational) -> sp.Expr:
    return sp.cos(sp.pi * turns, evaluate=False)


ZEROS = {
    "quotient of logarithms": sp.log(8) / sp.log(2) - 3,
    "rational quotient of logarithms": sp.log(27, evaluate=False) / sp.log(9) - sp.Rational(3, 2),
    "sum of logs": sp.log(12) - sp.log(4) - sp.log(3),
    "logarithm of the square of a long prime": 2 * _log(_PRIME) - _log(_PRIME**2),
    "logarithm of a product of long factors": _log(_LONG * 1000003) - _log(_LONG) - _log(1000003),
    "logarithms without a common argument": _log(_PRIME * _LONG)
    + _log(1000003 * (2**61 - 1))
    - _log(_PRIME * 1000003)
    - _log(_LONG * (2**61 - 1)),
    "product of radicals": sp.Pow(10, sp.Rational(1, 3)) * sp.Pow(100, sp.Rational(1, 3)) - 10,
    "radicals": sp.sqrt(12) - 2 * sp.sqrt(3),
    "cosine of a large field": sp.Add(
        _cosine(sp.Rational(1, 90_001)),
        sp.Mul(-1, _cosine(sp.Rational(1, 90_001)), evaluate=False),
        evaluate=False,
    ),
    "cosine": _cosine(sp.Rational(1, 6)) - sp.sqrt(3) / 2,
    "cosine of a tenth": _cosine(sp.Rational(1, 10)) - _NESTED,
    "two cosines": _cosine(sp.Rational(1, 5)) - _cosine(sp.Rational(2, 5)) - _HALF,
    "powers of e": sp.E * t - 10 * sp.E,
    "powers of pi": sp.pi**2 * t - 10 * sp.pi * sp.pi,
    "exponentials": sp.exp(-t / 40) - sp.exp(-_HALF / 2),
    "exponentials of roots": sp.exp(sp.sqrt(t)) * sp.exp(-sp.sqrt(t), evaluate=False) - 1,
    "powers": sp.Rational(9, 10) ** (t / 100) - sp.Rational(9, 10) ** sp.Rational(1, 10),
}


@pytest.mark.parametrize("name", ZEROS)
def test_zero(name: str) -> None:
    number = term(sp.Add(ZEROS[name], evaluate=False))
    assert is_zero(number, {"t": fmpq(10)}, value)


@pytest.mark.parametrize("name", ZEROS)
def test_numbers_next_to_zero_are_not_zero(name: str) -> None:
    near = term(sp.Add(ZEROS[name], sp.Rational(1, 10**80), evaluate=False))
    assert not is_zero(near, {"t": fmpq(10)}, value)


def test_a_number_is_the_product_of_its_powers() -> None:
    number = fmpq(_PRIME * _LONG * 12, _PRIME - 4)
    powers = prime_powers(number, coprime_factors([fmpq(_PRIME), fmpq(12 * 1000000007)]))
    assert math.prod(factor**times for factor, times in powers) == number
    assert (fmpq(1000000009), 1) in powers


def test_floors_of_logarithms_of_long_powers() -> None:
    number = build.ZERO
    for _ in range(9):
        base_8 = build.log(build.power(build.rational(8), build.add(number, build.ONE)))
        number = build.floor(build.divide(base_8, build.log(build.TWO)))
    assert value(number, {}) == 29523


def _radical(rng: random.Random) -> sp.Expr:
    number = sp.Rational(rng.randint(1, 60), rng.randint(1, 12))
    degree = rng.choice([2, 2, 2, 3])
    return sp.Rational(rng.randint(-9, 9), rng.randint(1, 6)) * number ** sp.Rational(1, degree)


@pytest.mark.parametrize("seed", range(40))
def test_drawn_sums_of_radicals_and_cosines(seed: int) -> None:
    rng = random.Random(seed)
    parts = [_radical(rng) for _ in range(3)]
    angle = sp.Rational(rng.randint(0, 24), 12)
    whole = sp.Add(*parts, _cosine(angle), evaluate=False)
    # The same number in another form: SymPy expands radicals and evaluates cosines of twelfths.
    other = sp.expand(sum(parts) + sp.cos(sp.pi * angle))
    difference = sp.Add(whole, sp.Mul(-1, other, evaluate=False), evaluate=False)
    assert is_zero(term(difference), {}, value)
    assert not is_zero(term(difference + sp.Rational(1, 10**60)), {}, value)
