"""Powers of numbers that SymPy would work out without end stay powers, and their products end."""

from fractions import Fraction

import pytest
import sympy as sp

import closedform  # noqa: F401 - the correction is made at import

FINE = sp.Rational(2999999999999999, 10**16)
LONG = sp.Integer(3) ** 400 + 2


@pytest.mark.parametrize("exponent", [FINE, -FINE, 3 + FINE, -3 - FINE], ids=str)
@pytest.mark.parametrize(
    "base",
    [sp.Integer(3), sp.Rational(1, 3), sp.Rational(2, 7), LONG, 1 / LONG, LONG / 7],
    ids=lambda base: str(base)[:12],
)
def test_products_with_powers_end(base: sp.Rational, exponent: sp.Rational) -> None:
    power = sp.Pow(base, exponent)
    x = sp.Symbol("x", positive=True)
    product = 5 * power * x
    value = sp.N(power, 20)
    exact = Fraction(int(base.p), int(base.q))
    logarithm = sp.N(sp.log(sp.Rational(exact.numerator, exact.denominator)) * exponent, 30)
    assert abs(sp.N(sp.log(value), 20) - logarithm) < 1e-15
    assert abs(sp.N(product.subs(x, 1), 20) / (5 * value) - 1) < 1e-15
