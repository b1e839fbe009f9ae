"""Division and remainder of integers too large for the graph, by a constant that is not.

For an integer constant m > 0 and integers c, x, d:

    (c*x + d) mod m  = ((c mod m) * (x mod m) + d mod m) mod m
    floor((c*x + d) / m) = c * floor(x / m) + floor((c * (x mod m) + d) / m)

which keeps ``floor_mod(48271 * t, 2**31 - 1)`` an integer at every step that a graph runs to.
"""

from __future__ import annotations

import sympy as sp

from closedform.language.functions import FloorDiv, FloorMod
from closedform.lowering.analysis.annotate import interval
from closedform.lowering.analysis.domain import Domain


def reduced_mod(expr: sp.Expr, divisor: sp.Integer, domain: Domain) -> sp.Expr:
    """Returns an integer in 0..m-1 that is ``expr`` modulo m, each part reduced before."""
    if expr.is_Integer:
        return expr % divisor
    if isinstance(expr, sp.Add):
        parts = [reduced_mod(arg, divisor, domain) for arg in expr.args]
        return FloorMod(sp.Add(*parts), divisor)
    if isinstance(expr, sp.Mul):
        product = sp.Integer(1)
        for arg in expr.args:
            product = _mod(product * reduced_mod(arg, divisor, domain), divisor, domain)
        return product
    return _mod(expr, divisor, domain)


def reduced_div(expr: sp.Expr, divisor: sp.Integer) -> sp.Expr:
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


def _mod(expr: sp.Expr, divisor: sp.Integer, domain: Domain) -> sp.Expr:
    values = interval(expr, domain)
    if values.low >= 0 and values.high < int(divisor):
        return expr
    return FloorMod(expr, divisor)
