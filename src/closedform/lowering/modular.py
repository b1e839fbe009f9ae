"""Division and remainder of integers too large for the graph, by a constant that is not.

For an integer constant m > 0 and integers c, x, d:

    (c*x + d) mod m  = ((c mod m) * (x mod m) + d mod m) mod m
    floor((c*x + d) / m) = c * floor(x / m) + floor((c * (x mod m) + d) / m)

which keeps ``floor_mod(48271 * t, 2**31 - 1)`` an integer at every step that a graph runs to. Where
``c * (x mod m)`` is itself too large, x is taken in digits of w bits, ``x = sum x_k * 2**(w*k)``:

    c*x mod m = (sum ((c * 2**(w*k)) mod m) * x_k mod m) mod m
"""

from __future__ import annotations

from fractions import Fraction

import sympy as sp

from closedform.language.integers import FloorDiv, FloorMod
from closedform.lowering.analysis.annotate import interval
from closedform.lowering.analysis.domain import Domain, largest_integer

_MOST_DIGITS = 16


def remainder(numerator: sp.Expr, divisor: sp.Expr, domain: Domain) -> sp.Expr:
    """Returns ``numerator mod divisor`` of integers, in parts where the numerator is too large."""
    if _is_too_large(numerator, divisor, domain):
        return _reduced_mod(numerator, divisor, domain)
    return FloorMod(numerator, divisor)


def quotient(numerator: sp.Expr, divisor: sp.Expr, domain: Domain) -> sp.Expr:
    """Returns ``floor(numerator / divisor)`` of integers, in parts as :func:`remainder`."""
    if _is_too_large(numerator, divisor, domain):
        return _reduced_div(numerator, divisor)
    return FloorDiv(numerator, divisor)


def _is_too_large(numerator: sp.Expr, divisor: sp.Expr, domain: Domain) -> bool:
    """Whether an integer exceeds the clock's dtype and can be reduced by the divisor."""
    if not divisor.is_Integer or divisor <= 0 or not isinstance(numerator, sp.Add | sp.Mul):
        return False
    size = interval(numerator, domain).absolute().high
    return isinstance(size, Fraction) and size > largest_integer(domain)


def _reduced_mod(expr: sp.Expr, divisor: sp.Integer, domain: Domain) -> sp.Expr:
    """Returns an integer in 0..m-1 that is ``expr`` modulo m, each part reduced before."""
    if expr.is_Integer:
        return expr % divisor
    if isinstance(expr, sp.Add):
        parts = [_reduced_mod(arg, divisor, domain) for arg in expr.args]
        return FloorMod(sp.Add(*parts), divisor)
    if isinstance(expr, sp.Mul):
        product: sp.Expr = sp.Integer(1)
        for arg in expr.args:
            product = _product(product, _reduced_mod(arg, divisor, domain), divisor, domain)
        return product
    return _mod(expr, divisor, domain)


def _reduced_div(expr: sp.Expr, divisor: sp.Integer) -> sp.Expr:
    """Returns ``floor(expr / m)``, whole multiples of m taken out of each term before."""
    outside, inside = [], []
    for term in sp.Add.make_args(expr):
        factor, core = term.as_coeff_Mul()
        if core == 1:
            inside.append(factor)
            continue
        outside.append(factor * FloorDiv(core, divisor))
        inside.append(factor * FloorMod(core, divisor))
    return sp.Add(*outside, FloorDiv(sp.Add(*inside), divisor))


def _product(left: sp.Expr, right: sp.Expr, divisor: sp.Integer, domain: Domain) -> sp.Expr:
    """The product of two numbers in 0..m-1 modulo m."""
    limit = largest_integer(domain)
    if interval(left * right, domain).high <= limit:
        return _mod(left * right, divisor, domain)
    factor, cofactor = (right, left) if right.is_Integer else (left, right)
    width = int(limit // divisor).bit_length() - 1
    bits = int(interval(cofactor, domain).high).bit_length()
    if not factor.is_Integer or width < 1 or bits > width * _MOST_DIGITS:
        return _mod(left * right, divisor, domain)
    base, digits = sp.Integer(2) ** width, []
    for index in range(0, bits, width):
        rest = FloorDiv(cofactor, sp.Integer(2) ** index) if index else cofactor
        digit = FloorMod(rest, base) if index + width < bits else rest
        digits.append(FloorMod((factor * 2**index % divisor) * digit, divisor))
    return FloorMod(sp.Add(*digits), divisor)


def _mod(expr: sp.Expr, divisor: sp.Integer, domain: Domain) -> sp.Expr:
    values = interval(expr, domain)
    if values.low >= 0 and values.high < int(divisor):
        return expr
    return FloorMod(expr, divisor)
