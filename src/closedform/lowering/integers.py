"""Integer expressions: exact arithmetic in the dtype of the step, or in floats where that is exact.

Small integers are computed in floats (``cast(step)`` is shared by the whole graph); values that may
exceed the integers that the scalar dtype holds exactly, and every division and remainder, stays
integer.
"""

from __future__ import annotations

from fractions import Fraction

import sympy as sp

from closedform.ir.graph import Value
from closedform.ir.ops import Op
from closedform.ir.types import DType
from closedform.language.integers import FloorDiv, FloorMod
from closedform.lowering.analysis.annotate import branches, interval, is_integral
from closedform.lowering.analysis.domain import Domain
from closedform.lowering.context import Lowering
from closedform.lowering.safe_operand import SafeOperand

# Largest integer up to which every integer is exact in a float dtype.
_EXACT = {DType.F64: 2**53, DType.F32: 2**24}


def lower_integer(low: Lowering, expr: sp.Expr, domain: Domain) -> Value:
    """Lowers an integer expression to a value of the integer dtype."""
    if not is_integral(expr):
        raise low.error(f"{expr} is not known to be an integer", "use floor_div or floor_mod")
    if not low.fits_integer(expr, domain):
        raise low.error(f"{expr} may exceed {low.integer}")
    return _arithmetic(low, expr, domain, low.integer)


def lower_integral(low: Lowering, expr: sp.Expr, domain: Domain) -> Value:
    """Lowers an integer expression to an exact value of the scalar float dtype."""
    if _is_exact_in_float(expr, domain, _EXACT[low.scalar]):
        return _arithmetic(low, expr, domain, low.scalar)
    return low.cast(lower_integer(low, expr, domain), low.scalar)


def _is_exact_in_float(expr: sp.Expr, domain: Domain, limit: int) -> bool:
    if isinstance(expr, FloorDiv | FloorMod | SafeOperand | sp.Piecewise):
        return False
    # The partial sums of a sum are within the sum of the sizes of its terms.
    terms = expr.args if isinstance(expr, sp.Add) else (expr,)
    sizes = [interval(term, domain).absolute().high for term in terms]
    if sum(sizes, Fraction(0)) > limit:
        return False
    return all(_is_exact_in_float(arg, domain, limit) for arg in expr.args)


def _arithmetic(low: Lowering, expr: sp.Expr, domain: Domain, dtype: DType) -> Value:
    if expr.is_Integer:
        return low.constant(expr, dtype)
    if isinstance(expr, sp.Symbol):
        return low.cast(low.symbol(expr), dtype)
    if isinstance(expr, SafeOperand):
        return _arithmetic(low, expr.piecewise, domain, dtype)
    if isinstance(expr, sp.Piecewise):
        return _piecewise(low, expr, domain, dtype)
    if isinstance(expr, sp.Add):
        return _add(low, expr, domain, dtype)
    if isinstance(expr, sp.Abs):
        return low.emit(Op.ABS, _arithmetic(low, expr.args[0], domain, dtype))
    op = _FOLDED.get(expr.func)
    if op is not None:
        operands = sorted(expr.args, key=constants_last)
        return low.fold(op, [_arithmetic(low, arg, domain, dtype) for arg in operands])
    if isinstance(expr, FloorDiv | FloorMod):
        op = Op.FLOOR_DIV if isinstance(expr, FloorDiv) else Op.FLOOR_MOD
        return low.emit(op, *(_arithmetic(low, arg, domain, dtype) for arg in expr.args))
    raise low.error(f"{expr.func} has no exact integer form, in {expr}")


_FOLDED = {sp.Mul: Op.MUL, sp.Min: Op.MIN, sp.Max: Op.MAX}


def constants_last(expr: sp.Expr) -> tuple[bool, object]:
    """Sort key of the operands of a fold: SymPy's order, numbers last."""
    return bool(expr.is_number), sp.default_sort_key(expr)


def _add(low: Lowering, expr: sp.Expr, domain: Domain, dtype: DType) -> Value:
    """Positive terms first, then the negative ones subtracted: one node less than negating."""
    terms = sorted(expr.args, key=constants_last)
    positive = [term for term in terms if term.as_coeff_Mul()[0] > 0]
    negative = [-term for term in terms if term.as_coeff_Mul()[0] < 0]
    if not positive:
        return low.emit(Op.NEG, _arithmetic(low, -expr, domain, dtype))
    total = low.fold(Op.ADD, [_arithmetic(low, term, domain, dtype) for term in positive])
    for term in negative:
        total = low.emit(Op.SUB, total, _arithmetic(low, term, domain, dtype))
    return total


def _piecewise(low: Lowering, expr: sp.Piecewise, domain: Domain, dtype: DType) -> Value:
    cases = branches(expr, domain)
    result = _arithmetic(low, cases[-1][0], cases[-1][2], dtype)
    for value, condition, inside in reversed(cases[:-1]):
        case_value = _arithmetic(low, value, inside, dtype)
        result = low.emit(Op.WHERE, low.rules.condition(low, condition, domain), case_value, result)
    return result
