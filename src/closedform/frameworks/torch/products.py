"""Running products in closed form: the factors f(1) f(2) … f(t) of a multiplicative schedule.

Only products with a closed form are accepted: constants, functions of the step modulo a period,
quotients of linear functions whose factors cancel along the product, and branches of these by
thresholds of the step.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from math import prod
from typing import Any

import sympy as sp

from closedform.errors import DefinitionError
from closedform.language import t
from closedform.language.exact import value_at
from closedform.language.integers import FloorDiv, FloorMod
from closedform.recipes import kit

_LONGEST_SHIFT = 64
_LONGEST_PERIOD = 64
_HINT = (
    "constants, functions of t % n, quotients such as 1 - 1/(t + 1), and where(t < n, …) of them "
    "have one; give the product itself as a LambdaLR"
)


def factor_of(given: Mapping[str, Any], context: kit.Context) -> sp.Expr:
    """Returns the function ``lr_lambda`` of the param group as an expression in the clock.

    Raises:
        DefinitionError: It is not a function in the language of expressions.
    """
    function = kit.of_group(given["lr_lambda"], "lr_lambda", context)
    return kit.parse_function(function, f"lr_lambda of {context.where}")


def running_product(factor: sp.Expr, where: str) -> sp.Expr:
    """Returns the product of ``factor`` at the steps from 1 to t; 1 at t = 0.

    Args:
        factor: An expression in the clock; its value at step 0 is not used.
        where: The place, for errors.

    Raises:
        DefinitionError: The product has no closed form of the kinds above.

    Example:
        >>> running_product(1 - 1 / (t + 1), "lr_lambda")
        1/(t + 1)
        >>> running_product(sp.Rational(9, 10), "lr_lambda")
        (9/10)**t
    """
    period = _period_of(factor)
    if period is not None:
        return _of_residues(factor, period, where)
    if isinstance(factor, sp.Piecewise):
        return _of_branches(factor, where)
    if not factor.has(t):
        return factor**t if factor != 0 else sp.Piecewise((1, t < 1), (0, True))
    return _of_quotient(factor, where)


def _period_of(factor: sp.Expr) -> int | None:
    """The period of a function of remainders of t only; None for another function."""
    remainders = {
        node: sp.Dummy(integer=True)
        for node in factor.atoms(FloorMod, sp.Mod)
        if node.args[0] == t and node.args[1].is_Integer and node.args[1] > 0
    }
    if not remainders or factor.xreplace(remainders).has(t):
        return None
    period = int(sp.ilcm(1, *(node.args[1] for node in remainders)))
    return period if period <= _LONGEST_PERIOD else None


def _of_residues(factor: sp.Expr, period: int, where: str) -> sp.Expr:
    """The product of whole periods, times that of the steps since the last of them."""
    factors = [value_at(factor, {t: sp.Integer(step)}) for step in range(1, period + 1)]
    if 0 in factors:
        raise DefinitionError(
            f"the product of {factor} is 0 from step {factors.index(0) + 1} on",
            where=where,
            hint=_HINT,
        )
    products = list(itertools.accumulate(factors, sp.Mul, initial=sp.Integer(1)))
    residue = FloorMod(t, sp.Integer(period))
    branches = [(product, residue < step) for step, product in enumerate(products[:-2], 1)]
    partial = sp.Piecewise(*branches, (products[-2], True))
    return products[-1] ** FloorDiv(t, sp.Integer(period)) * partial


def _of_branches(factor: sp.Piecewise, where: str) -> sp.Expr:
    """Branches by increasing thresholds: each product continues from the one before."""
    begin = 1  # The first step whose factor belongs to the branch.
    reached: sp.Expr = sp.Integer(1)
    branches = []
    for branch, condition in factor.args:
        stop = _threshold(condition, where)
        if stop is not None and stop <= begin:
            continue
        product = running_product(branch, where)
        before = product.xreplace({t: sp.Integer(begin - 1)}).doit()
        if before == 0:
            raise DefinitionError(f"the product of {branch} is 0 from the start", where=where)
        value = reached * product / before
        if stop is None:
            branches.append((value, sp.true))
            break
        branches.append((value, t < stop))
        reached = value.xreplace({t: sp.Integer(stop - 1)}).doit()
        begin = stop
    return sp.Piecewise(*branches)


def _threshold(condition: sp.Basic, where: str) -> int | None:
    """The first step at which a condition ``t < n`` or ``t <= n`` no longer holds."""
    if condition == sp.true:
        return None
    is_below = isinstance(condition, sp.StrictLessThan | sp.LessThan) and condition.lhs == t
    if not is_below or not condition.rhs.is_Rational:
        raise DefinitionError(
            f"the product over the steps where {condition} has no closed form here",
            where=where,
            hint="write thresholds as t < n, the smallest first",
        )
    if isinstance(condition, sp.LessThan):
        return int(sp.floor(condition.rhs)) + 1
    return int(sp.ceiling(condition.rhs))


def _of_quotient(factor: sp.Expr, where: str) -> sp.Expr:
    """A constant times (t + a)/(t + b) …, with integers a - b: all but the ends cancel."""
    quotient = sp.together(factor)
    if not quotient.is_rational_function(t):
        raise _no_closed_form(factor, where)
    above, below = sp.fraction(quotient)
    lead_above, shifts_above = _linear_shifts(above, factor, where)
    lead_below, shifts_below = _linear_shifts(below, factor, where)
    result = (lead_above / lead_below) ** t
    if len(shifts_above) != len(shifts_below):
        raise _no_closed_form(factor, where)
    for a, b in zip(sorted(shifts_above), sorted(shifts_below), strict=True):
        result *= _telescoped(a, b, factor, where)
    return result


def _linear_shifts(
    polynomial: sp.Expr, factor: sp.Expr, where: str
) -> tuple[sp.Expr, list[sp.Rational]]:
    """The leading coefficient, and a for each factor t + a."""
    poly = sp.Poly(polynomial, t)
    roots = sp.roots(poly)
    if sum(roots.values()) != poly.degree() or not all(root.is_Rational for root in roots):
        raise _no_closed_form(factor, where)
    return poly.LC(), [-root for root, count in roots.items() for _ in range(count)]


def _telescoped(a: sp.Rational, b: sp.Rational, factor: sp.Expr, where: str) -> sp.Expr:
    """The product of (i + a)/(i + b) for i from 1 to t."""
    gap = a - b
    if not gap.is_Integer or abs(gap) > _LONGEST_SHIFT:
        raise _no_closed_form(factor, where)
    low, high = min(a, b), max(a, b)
    if low.is_Integer and low < 0:
        raise DefinitionError(
            f"the product of {factor} has a zero or a pole at step {-low}", where=where, hint=_HINT
        )
    count = int(high - low)
    rising = prod((t + low + 1 + i for i in range(count)), start=sp.Integer(1))
    first = prod((low + 1 + i for i in range(count)), start=sp.Integer(1))
    return rising / first if gap > 0 else first / rising


def _no_closed_form(factor: sp.Expr, where: str) -> DefinitionError:
    return DefinitionError(f"the product of {factor} has no closed form", where=where, hint=_HINT)
