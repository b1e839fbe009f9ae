"""Conditions: comparisons in integers where both sides allow it, thresholds rounded exactly."""

from __future__ import annotations

from collections.abc import Mapping

import sympy as sp
from sympy.core.relational import Relational

from closedform.ir.graph import Value
from closedform.ir.ops import Op
from closedform.ir.types import DType
from closedform.lowering.analysis.domain import Domain
from closedform.lowering.arithmetic import lower_integer
from closedform.lowering.context import Lowering
from closedform.lowering.simplify import integral_multiple

COMPARISONS: Mapping[type[Relational], tuple[Op, bool]] = {
    sp.Lt: (Op.LT, False),
    sp.Le: (Op.LE, False),
    sp.Gt: (Op.LT, True),
    sp.Ge: (Op.LE, True),
    sp.Eq: (Op.EQ, False),
}
"""The op of a comparison, and whether its operands change places."""


def lower_condition(low: Lowering, condition: sp.Basic, domain: Domain) -> Value:
    """Lowers a condition of a Piecewise to a bool value; a scalar one is prepared first."""
    if low.prepare is not None and not low.is_tensor(condition):
        condition = low.prepare(condition, domain)
    if condition in (sp.true, sp.false):
        return low.builder.const(bool(condition), DType.BOOL)
    if isinstance(condition, sp.Not):
        return low.emit(Op.NOT, low.condition(condition.args[0], domain))
    if isinstance(condition, sp.And | sp.Or):
        ordered_conditions = sorted(condition.args, key=sp.default_sort_key)
        values = [low.condition(arg, domain) for arg in ordered_conditions]
        return low.fold(Op.AND if isinstance(condition, sp.And) else Op.OR, values)
    if not isinstance(condition, Relational):
        raise low.error(f"{condition} is not a condition that a graph can express")
    threshold = None if low.is_tensor(condition) else _threshold(condition)
    if threshold is not None and low.fits_integer(threshold[1], domain):
        return _compare_integers(low, *threshold, domain)
    return low.rules.comparison(low, condition, domain)


def lower_comparison(low: Lowering, condition: sp.Basic, domain: Domain) -> Value:
    """Lowers a comparison of floats."""
    left, right = (low.operand(arg, condition, domain) for arg in condition.args)
    return _compare(low, condition.func, left, right)


def _compare(low: Lowering, kind: type[Relational], left: Value, right: Value) -> Value:
    """Adds a comparison; a strict one never becomes the negation of the other (NaN)."""
    if kind is sp.Ne:
        return low.emit(Op.NOT, low.emit(Op.EQ, left, right))
    op, is_swapped = COMPARISONS[kind]
    return low.emit(op, right, left) if is_swapped else low.emit(op, left, right)


def _compare_integers(
    low: Lowering, kind: type[Relational], expr: sp.Expr, bound: sp.Expr | None, domain: Domain
) -> Value:
    if bound is None:
        return low.builder.const(kind is sp.Ne, DType.BOOL)
    value = lower_integer(low, expr, domain)
    return _compare(low, kind, value, low.constant(bound, value.type.dtype))


def _threshold(
    condition: Relational,
) -> tuple[type[Relational], sp.Expr, sp.Expr | None] | None:
    """(kind, I, n): the condition as ``I kind n`` in integers; n is None if I is never equal."""
    constant, rest = (condition.lhs - condition.rhs).as_coeff_Add()
    multiple = integral_multiple(rest) if constant.is_Rational else None
    if multiple is None or rest == 0:
        return None
    factor, expr = multiple[0].as_coeff_Mul()
    kind = condition.func if factor > 0 else condition.reversedsign.func
    bound = -constant * multiple[1] / factor
    if kind in (sp.Lt, sp.Ge):
        # I < x is I < ceil(x), and I <= x is I <= floor(x), for integers I: the threshold is not
        # rounded.
        return kind, expr, sp.ceiling(bound)
    if kind in (sp.Le, sp.Gt):
        return kind, expr, sp.floor(bound)
    return kind, expr, bound if bound.is_Integer else None
