"""Cosines and sines in double-float numbers, as the sine of an angle within a quarter turn.

An angle that is a rational multiple of pi is folded to [0, pi] in integers, exactly, as in the
other lowering. Any other one is folded in double-float numbers: it keeps 48 bits minus the bits of
its number of half turns.
"""

from __future__ import annotations

from dataclasses import dataclass

import sympy as sp

from closedform.ir.graph import Value
from closedform.ir.ops import Op
from closedform.language.integers import FloorMod
from closedform.lowering.analysis.annotate import interval
from closedform.lowering.analysis.domain import Domain
from closedform.lowering.double_float.context import DoubleFloat
from closedform.lowering.double_float.functions import sine_of_quarter
from closedform.lowering.pair_arithmetic import Number
from closedform.lowering.trigonometry import complement, fold_angle, rational_angle


@dataclass(frozen=True, slots=True)
class _Folded:
    """An angle in [0, pi] as a count of parts, so many to a half turn.

    Attributes:
        count: The angle.
        rest: pi less the angle.
        beyond: The size of the difference of a quarter turn and the angle.
        is_obtuse: Whether the angle is more than a quarter turn; None if it never is.
        parts: Parts to a half turn.
    """

    count: Number
    rest: Number
    beyond: Number
    is_obtuse: Value | None
    parts: int


def lower_cosine(low: DoubleFloat, expr: sp.Expr, domain: Domain) -> Number:
    """Lowers a cosine: that of x is the sine of pi/2 - x."""
    return _cosine_of(low, expr.args[0], domain)


def _cosine_of(low: DoubleFloat, angle: sp.Expr, domain: Domain) -> Number:
    quarter_angle = _fold(low, angle, domain)
    sine = sine_of_quarter(low.math, quarter_angle.beyond, quarter_angle.parts)
    if quarter_angle.is_obtuse is None:
        return sine
    return low.math.select(quarter_angle.is_obtuse, low.math.negate(sine), sine)


def lower_sine(low: DoubleFloat, expr: sp.Expr, domain: Domain) -> Number:
    """Lowers a sine: that of x is the cosine of x - pi/2."""
    return _cosine_of(low, _angle(low, expr), domain)


def raised_cosine(
    low: DoubleFloat, constant: sp.Expr, term: sp.Expr, domain: Domain
) -> Number | None:
    """Lowers ``m + a*(1 - cos(phi))``, m >= 0, as ``m + 2*a*sin(phi/2)**2``: nothing cancels."""
    factor, core = term.as_coeff_Mul()
    floor, height = constant - abs(factor), abs(factor)
    is_raised = isinstance(core, sp.cos | sp.sin) and constant.is_Rational and factor.is_Rational
    if not is_raised or floor < 0:
        return None
    quarter_angle = _fold(low, _angle(low, core), domain)
    rise = quarter_angle.rest if factor > 0 else quarter_angle.count
    sine = sine_of_quarter(low.math, rise, quarter_angle.parts)
    swing = low.math.multiply(low.math.multiply(sine, sine), low.constant(2 * height))
    if floor == 0:
        return swing
    return low.math.add(low.constant(floor), swing, is_same_sign=True)


def _angle(low: DoubleFloat, function: sp.Expr) -> sp.Expr:
    """The angle of which a cosine or sine is the cosine."""
    (angle,) = function.args
    if isinstance(function, sp.cos):
        return angle
    turns = rational_angle(low.low, angle)
    if turns is not None:
        # Within one turn: twice the numerator fits the integers, too.
        angle = sp.pi * FloorMod(turns[0], sp.Integer(2 * turns[1])) / turns[1]
    return angle - sp.pi / 2


def _fold(low: DoubleFloat, angle: sp.Expr, domain: Domain) -> _Folded:
    turns = rational_angle(low.low, angle)
    if turns is None:
        return _fold_real(low, angle, domain)
    numerator, parts = turns
    count = fold_angle(numerator, parts, domain)
    acute = parts - 2 * count
    if not low.low.fits_integer(acute, domain):
        return _fold_real(low, angle, domain)
    is_obtuse = None
    if not interval(acute, domain).is_nonnegative:
        zero = low.constant(sp.Integer(0))
        is_obtuse = low.math.compare(Op.LT, low.number(acute, domain), zero)
    return _Folded(
        low.number(count, domain),
        low.number(complement(count, parts), domain),
        low.number(sp.Abs(acute), domain),
        is_obtuse,
        parts,
    )


def _fold_real(low: DoubleFloat, angle: sp.Expr, domain: Domain) -> _Folded:
    """One part is a half turn: ``count = abs(u - 2*floor((u + 1)/2))`` for u half turns."""
    turns = sp.Add(*(term / sp.pi for term in sp.Add.make_args(angle)))
    math, count = low.math, low.number(turns, domain)
    unit = low.constant(sp.Integer(1))
    values = interval(turns, domain)
    if not (values.low >= 0 and values.high <= 1):
        half = low.constant(sp.Rational(1, 2))
        whole = math.floor(math.multiply(math.add(count, unit), half))
        count = math.absolute(math.add(count, math.multiply(whole, low.constant(sp.Integer(-2)))))
    acute = math.add(unit, math.multiply(count, low.constant(sp.Integer(-2))))
    is_obtuse = math.compare(Op.LT, acute, low.constant(sp.Integer(0)))
    rest = math.add(unit, math.negate(count))
    return _Folded(count, rest, math.absolute(acute), is_obtuse, 1)
