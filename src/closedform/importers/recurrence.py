"""Closed forms of recurrences: candidates, which an induction has to prove.

A recurrence gives the value at step t from the value before, on intervals of steps. On each, the
value is ``A(t) * before + B(t)``; the forms that are known are those in which the library's
schedules are computed step by step: a constant factor or difference, a fixed point that is
approached, a factor ``g(t) / g(t - 1)``, and a factor at every n-th step.
"""

from __future__ import annotations

from collections.abc import Sequence

import sympy as sp

from closedform.importers.python.join import ValueRange, join_cells
from closedform.language import FloorMod, floor_div, t


def closed_form(cells: Sequence[ValueRange], first: sp.Expr, previous: sp.Symbol) -> sp.Expr | None:
    """Returns a candidate for the closed form of a recurrence; None where no form matches.

    Args:
        cells: The value at the steps from 1 on, in t and ``previous``.
        first: The value at step 0.
        previous: The symbol of the value before.
    """
    result = [ValueRange(0, 1, first)]
    start = first
    for cell in cells:
        if cell.value is None:
            return None
        value = _solve(cell.value, start, cell.first, previous)
        if value is None:
            return None
        if cell.end == cell.first + 1:
            value = _at(value, cell.first)
        result.append(ValueRange(cell.first, cell.end, value))
        if cell.end is not None:
            start = value.xreplace({t: sp.Integer(cell.end - 1)})
    return join_cells(_merge_first(result))


def _merge_first(cells: list[ValueRange]) -> list[ValueRange]:
    """The cells without the first step, where the next one has its value."""
    first, second, *rest = cells
    if second.value is not None and sp.simplify(_at(second.value, 0) - first.value) == 0:
        return [ValueRange(0, second.end, second.value), *rest]
    return cells


def _at(value: sp.Expr, step: int) -> sp.Expr:
    return value.xreplace({t: sp.Integer(step)})


def _solve(value: sp.Expr, start: sp.Expr, first: int, previous: sp.Symbol) -> sp.Expr | None:
    """The value on an interval from step ``first`` on, ``start`` being that one step before."""
    if previous not in value.free_symbols:
        return value
    steps = t - (first - 1)
    if isinstance(value, sp.Piecewise):
        return _every_period(value, start, first, previous)
    polynomial = sp.expand(value)
    factor, rest = polynomial.coeff(previous, 1), polynomial.coeff(previous, 0)
    is_affine = sp.expand(polynomial - factor * previous - rest) == 0
    if not is_affine or previous in factor.free_symbols | rest.free_symbols:
        return None
    factor = sp.factor_terms(factor)
    if t not in factor.free_symbols | rest.free_symbols:
        if factor == 1:
            return start + rest * steps
        limit = rest / (1 - factor)
        return limit + (start - limit) * factor**steps
    if factor == 1:
        return _sum_differences(rest, start, first)
    return _telescope(factor, rest, start, first)


def _sum_differences(rest: sp.Expr, start: sp.Expr, first: int) -> sp.Expr | None:
    """The sum of differences that are polynomials in the step."""
    if not rest.is_polynomial(t):
        return None
    index = sp.Dummy("index", integer=True)
    total = sp.summation(rest.xreplace({t: index}), (index, first, t))
    return start + sp.expand(total)


def _telescope(factor: sp.Expr, rest: sp.Expr, start: sp.Expr, first: int) -> sp.Expr | None:
    """The product of factors ``c * g(t) / g(t - 1)``, towards a fixed point.

    g is the numerator where the denominator is that of the step before, or the inverse of the
    denominator where the numerator is.
    """
    above, below = sp.fraction(sp.together(factor))
    for shape, ratio in (
        (above, below / above.xreplace({t: t - 1})),
        (1 / below, above / below.xreplace({t: t - 1})),
    ):
        scale = sp.simplify(ratio if shape != above else 1 / ratio)
        limit = sp.simplify(rest / (1 - factor))
        if scale.free_symbols or scale == 0 or limit.free_symbols:
            continue
        product = shape / _at(shape, first - 1) * scale ** (t - (first - 1))
        return limit + (start - limit) * product
    return None


def _every_period(
    value: sp.Piecewise, start: sp.Expr, first: int, previous: sp.Symbol
) -> sp.Expr | None:
    """A constant factor at every n-th step, and nothing else at the others."""
    if len(value.args) != 2 or value.args[1][1] != sp.true:
        return None
    (special, condition), (ordinary, _) = value.args
    if isinstance(condition, sp.Ne):
        special, ordinary = ordinary, special
        condition = sp.Eq(condition.lhs, condition.rhs, evaluate=False)
    factor = sp.expand(special / previous)
    if ordinary != previous or factor.free_symbols or not isinstance(condition, sp.Eq):
        return None
    modulo, target = condition.args
    if not isinstance(modulo, FloorMod) or modulo.args[0] != t or target != 0:
        return None
    period = modulo.args[1]
    periods_before = floor_div(first - 1, period)
    return start * factor ** (floor_div(t, period) - periods_before)
