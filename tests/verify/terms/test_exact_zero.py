"""Numbers that are exactly 0, and numbers next to 0 that are not; SymPy knows which is which."""

import random

import pytest
import sympy as sp
from flint import fmpq

from closedform.language import t
from closedform.verify.terms.evaluate import value
from closedform.verify.terms.exact_zero import is_zero
from closedform.verify.terms.sympy_io import term

_HALF = sp.Rational(1, 2)
_NESTED = sp.sqrt(sp.sqrt(5) / 8 + sp.Rational(5, 8))


def _cosine(turns: sp.Rational) -> sp.Expr:
    return sp.cos(sp.pi * turns, evaluate=False)


ZEROS = {
    "quotient of logarithms": sp.log(8) / sp.log(2) - 3,
    "rational quotient of logarithms": sp.log(27, evaluate=False) / sp.log(9) - sp.Rational(3, 2),
    "sum of logs": sp.log(12) - sp.log(4) - sp.log(3),
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
