"""Lower: a simplified, guarded expression becomes nodes of a graph.

One dict from SymPy class to handler; a class without a handler is rejected by name and place.
Scalars (expressions in only the step and hyperparameters) are computed in the scalar dtype and
rounded once to the dtype of the tensors they meet.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import numpy as np
import sympy as sp

from closedform.ir.graph import Value
from closedform.ir.ops import Op
from closedform.language.integers import FloorDiv, FloorMod
from closedform.language.model import NonFinite
from closedform.lowering.analysis.annotate import interval
from closedform.lowering.analysis.domain import Domain
from closedform.lowering.arithmetic import (
    constants_last,
    lower_add,
    lower_integral,
    lower_mul,
    lower_power,
)
from closedform.lowering.conditions import lower_comparison, lower_condition
from closedform.lowering.context import Handler, Lowering, Rules
from closedform.lowering.exponential import Exponential
from closedform.lowering.piecewise import lower_piecewise
from closedform.lowering.safe_operand import SafeOperand
from closedform.lowering.simplify import is_whole
from closedform.lowering.tensors import TENSOR_HANDLERS
from closedform.lowering.trigonometry import lower_cosine, lower_sine


def _unary(op: Op) -> Handler:
    def handler(low: Lowering, expr: sp.Expr, domain: Domain) -> Value:
        return low.emit(op, low.real(expr.args[0], domain))

    return handler


def _fold_with(op: Op) -> Handler:
    def handler(low: Lowering, expr: sp.Expr, domain: Domain) -> Value:
        ordered_args = sorted(expr.args, key=constants_last)
        return low.fold(op, [low.operand(arg, expr, domain) for arg in ordered_args])

    return handler


def _floor(low: Lowering, expr: sp.Expr, domain: Domain) -> Value:
    """A floor of a number; of a number over an integer by a division, which is rounded once."""
    (operand,) = expr.args
    if low.is_tensor(expr):
        return low.emit(Op.FLOOR, low.real(operand, domain))
    numerator, divisor = operand.as_numer_denom()
    if not is_whole(numerator) or not divisor.is_Integer:
        factor, core = operand.as_coeff_Mul()
        is_part = factor.is_Rational and factor.p == 1
        numerator, divisor = (core, sp.Integer(factor.q)) if is_part else (operand, sp.Integer(1))
    if divisor == 1:
        return low.emit(Op.FLOOR, low.real(operand, domain))
    level = low.emit(Op.DIV, low.real(numerator, domain), low.constant(divisor))
    return low.emit(Op.FLOOR, level)


def _floor_div(low: Lowering, expr: sp.Expr, domain: Domain) -> Value:
    _check_exact(low, expr, domain)
    numerator, divisor = expr.args
    if low.is_tensor(expr) or not (numerator.is_integer and divisor.is_integer):
        return low.emit(Op.FLOOR, low.real(numerator / divisor, domain))
    # One rounding, of a quotient of exact integers, which never reaches the next one.
    return low.emit(
        Op.FLOOR, low.emit(Op.DIV, low.real(numerator, domain), low.real(divisor, domain))
    )


def _floor_mod(low: Lowering, expr: sp.Expr, domain: Domain) -> Value:
    _check_exact(low, expr, domain)
    return low.emit(Op.FLOOR_MOD, *(low.operand(arg, expr, domain) for arg in expr.args))


def _check_exact(low: Lowering, expr: sp.Expr, domain: Domain) -> None:
    """Refuses a division of integers that floats would round: one off is another quotient."""
    if low.is_tensor(expr) or not all(arg.is_integer for arg in expr.args):
        return
    size = interval(expr.args[0], domain).absolute().high
    if isinstance(size, Fraction) and size > 2 ** np.finfo(low.scalar.numpy).nmant:
        raise low.error(
            f"{expr.args[0]} may reach {float(size):.3g}, which no integer of the graph holds, "
            f"in {expr}",
            "write it as sums and products of floor_mod(…, m) by the same m",
        )


def _non_finite(low: Lowering, expr: sp.Expr, domain: Domain) -> Value:
    """An infinity is above the largest number, and NaN compares false."""
    operand = low.real(expr.args[0], domain)
    dtype = operand.type.dtype
    largest = low.builder.const(np.finfo(dtype.numpy).max, dtype)
    is_finite = low.emit(Op.LE, low.emit(Op.ABS, operand), largest)
    return low.cast(low.emit(Op.NOT, is_finite), dtype)


HANDLERS: Mapping[type[sp.Basic], Handler] = {
    sp.Add: lower_add,
    sp.Mul: lower_mul,
    sp.Pow: lower_power,
    sp.Min: _fold_with(Op.MIN),
    sp.Max: _fold_with(Op.MAX),
    sp.Abs: _unary(Op.ABS),
    sp.floor: _floor,
    sp.exp: _unary(Op.EXP),
    Exponential: _unary(Op.EXP),
    sp.log: _unary(Op.LOG),
    sp.atan: _unary(Op.ATAN),
    sp.cos: lower_cosine,
    sp.sin: lower_sine,
    sp.Piecewise: lower_piecewise,
    SafeOperand: lambda low, expr, domain: low.real(expr.piecewise, domain),
    FloorDiv: _floor_div,
    FloorMod: _floor_mod,
    NonFinite: _non_finite,
    **TENSOR_HANDLERS,
}

RULES = Rules(HANDLERS, lower_integral, lower_condition, lower_comparison)
