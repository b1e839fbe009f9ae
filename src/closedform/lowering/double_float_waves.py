"""Cosines and sines of rational multiples of pi, reduced in integers, in double-float numbers."""

from __future__ import annotations

import sympy as sp

from closedform.ir.ops import Op
from closedform.lowering.annotate import interval
from closedform.lowering.domain import Domain
from closedform.lowering.double_float_arithmetic import Number
from closedform.lowering.double_float_context import DoubleFloat
from closedform.lowering.double_float_functions import sine_of_quarter
from closedform.lowering.trigonometry import complement, fold_angle, rational_angle


def lower_cosine(low: DoubleFloat, expr: sp.Expr, domain: Domain) -> Number:
    """Lowers a cosine: ``cos(pi*F/D)`` with F in [0, D] is ``sin(pi*(D - 2*F)/(2*D))``."""
    numerator, denominator = _turns(low, expr, expr.args[0])
    rest = denominator - 2 * fold_angle(numerator, denominator, domain)
    sine = sine_of_quarter(low.math, low.number(sp.Abs(rest), domain), denominator)
    if interval(rest, domain).is_nonnegative:
        return sine
    zero = low.constant(sp.Integer(0))
    is_negative = low.math.compare(Op.LT, low.number(rest, domain), zero)
    return low.math.select(is_negative, low.math.negate(sine), sine)


def lower_sine(low: DoubleFloat, expr: sp.Expr, domain: Domain) -> Number:
    """Lowers a sine: that of x is the cosine of x - pi/2."""
    numerator, denominator = _turns(low, expr, expr.args[0])
    turned = sp.pi * (2 * numerator - denominator) / (2 * denominator)
    return lower_cosine(low, sp.cos(turned, evaluate=False), domain)


def _turns(low: DoubleFloat, expr: sp.Expr, angle: sp.Expr) -> tuple[sp.Expr, int]:
    turns = rational_angle(low.low, angle)
    if turns is None:
        raise low.low.error(
            f"{expr} has no double-float form: its angle is no rational multiple of pi",
            "compile with precision='single'",
        )
    return turns


def raised_cosine(
    low: DoubleFloat, constant: sp.Expr, term: sp.Expr, domain: Domain
) -> Number | None:
    """Lowers ``m + a*(1 - cos(phi))``, m >= 0, as ``m + 2*a*sin(phi/2)**2``: nothing cancels."""
    factor, core = term.as_coeff_Mul()
    floor, height = constant - abs(factor), abs(factor)
    is_raised = isinstance(core, sp.cos) and constant.is_Rational and factor.is_Rational
    if not is_raised or floor < 0:
        return None
    numerator, denominator = _turns(low, core, core.args[0])
    folded = fold_angle(numerator, denominator, domain)
    rise = complement(folded, denominator) if factor > 0 else folded
    sine = sine_of_quarter(low.math, low.number(rise, domain), denominator)
    swing = low.math.multiply(low.math.multiply(sine, sine), low.constant(2 * height))
    if floor == 0:
        return swing
    return low.math.add(low.constant(floor), swing, is_same_sign=True)
