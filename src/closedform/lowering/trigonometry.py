r"""Cosines and sines of rational multiples of pi, reduced in integers before they are computed.

``cos(pi*P/D)`` with integers P and D is folded to an angle in [0, pi] by integer remainder, then
computed as ``sin(pi*(D - 2*F)/(2*D))``: the argument is one product of an exact integer, at most
pi/2 in size, so its rounding hardly matters, at any step.

A raised cosine ``m + a*(1 - cos(phi))`` that falls to m = 0 is computed near its zero as
``m + 2*a*sin(phi/2)**2``, which keeps its relative accuracy there; elsewhere the direct form is the
more accurate one. One sine serves both (Q is phi*D/pi)::

    s = sin(pi / (2 * D) * min(Q, D - 2 * Q))
    r = s if 3 * Q < D else -1
    m + a * r * (s + r)

In float64, the roundings of this may come to over 2 ulp of the largest value. Where they may and m
is 0, the rest is computed from the top: ``1 + s`` is exact for s in [-1, -1/2]::

    2 * a * s * s if 3 * Q < D else 2 * a - a * (1 + s)

And where the values of the direct form ``a*s + c`` may, it is ``(a*s + (c - fl(c))) + fl(c)``.
"""

from __future__ import annotations

import math
import sys

import sympy as sp

from closedform.ir.graph import Value
from closedform.ir.ops import Op
from closedform.ir.types import DType
from closedform.language.exact import to_float
from closedform.language.integers import FloorMod
from closedform.language.settled import construct
from closedform.lowering.analysis.annotate import interval
from closedform.lowering.analysis.domain import Domain
from closedform.lowering.context import Lowering
from closedform.lowering.simplify import integral_multiple, remainder

# The error of the sine of onnxruntime 1.31, angle included, in units of 2^-53: 2.5 by itself where
# it is above 1/2, and up to 1.13 of the two roundings of its angle; 3.0 were seen together.
_SINE_UNITS = 3
# The bounds of all roundings, in ulp of scale, are not met at one step: of their sum at most 0.95
# was seen in cosines of up to a million steps. Up to this sum 2 ulp were never exceeded.
_MOST_ROUNDING = sp.Rational(9, 4)

# Below this ratio of floor to amplitude the direct form loses digits that float32 would show: those
# of the last bits of f64, or any of f32.
_LOW_FLOOR = {DType.F64: sp.Rational(1, 2**16), DType.F32: sp.Integer(1)}


def lower_cosine(low: Lowering, expr: sp.Expr, domain: Domain) -> Value:
    """Lowers a cosine."""
    turns = _reduced_angle(low, expr.args[0], domain)
    if turns is None:
        return _sine_of_complement(low, expr.args[0], domain)
    numerator, denominator = turns
    quarter = fold_angle(numerator, denominator, domain)
    return _sine(low, denominator - 2 * quarter, denominator, domain)


def _sine_of_complement(low: Lowering, angle: sp.Expr, domain: Domain) -> Value:
    """``cos(x)`` as ``sin(pi/2 - x)``: onnxruntime has no Cos of float64 up to 1.23.

    Where x is a multiple of pi, x/pi is subtracted from 1/2, which is exact near the zero.
    """
    turns = sp.Add(*(term / sp.pi for term in sp.Add.make_args(angle)))
    if turns.has(sp.pi):
        value = low.real(angle, domain)
        right = low.constant(sp.pi / 2, value.type.dtype)
        return low.emit(Op.SIN, low.emit(Op.SUB, right, value))
    value = low.real(turns, domain)
    half = low.constant(sp.Rational(1, 2), value.type.dtype)
    pi = low.constant(sp.pi, value.type.dtype)
    return low.emit(Op.SIN, low.emit(Op.MUL, low.emit(Op.SUB, half, value), pi))


def lower_sine(low: Lowering, expr: sp.Expr, domain: Domain) -> Value:
    """Lowers a sine: that of x is the cosine of x - pi/2."""
    turns = _reduced_angle(low, expr.args[0], domain)
    if turns is None:
        return low.emit(Op.SIN, low.real(expr.args[0], domain))
    numerator, denominator = turns
    return lower_cosine(low, _cosine(2 * numerator - denominator, 2 * denominator), domain)


def raised_cosine(low: Lowering, constant: sp.Expr, term: sp.Expr, domain: Domain) -> Value | None:
    """Lowers ``constant + factor*cos(pi*P/D)``; None if the term is not of this form."""
    factor, core = term.as_coeff_Mul()
    if not isinstance(core, sp.cos) or not (constant.is_Rational and factor.is_Rational):
        return None
    turns = _reduced_angle(low, core.args[0], domain)
    if turns is None:
        return None
    numerator, denominator = turns
    quarter = fold_angle(numerator, denominator, domain)
    rise = complement(quarter, denominator) if factor > 0 else quarter
    height, floor = abs(factor), constant - abs(factor)
    # Only near its zero does a raised cosine lose relative accuracy.
    if 0 <= floor < height * _LOW_FLOOR[low.scalar]:
        return _from_zero(low, floor, height, rise, denominator, domain)
    sine = _sine(low, 2 * rise - denominator, denominator, domain)
    swing = low.emit(Op.MUL, sine, low.constant(height))
    correction = _rounding_loss(constant, height, low.scalar)
    if correction != 0:
        swing = low.emit(Op.ADD, swing, low.constant(correction))
    return low.emit(Op.ADD, swing, low.constant(constant)) if constant != 0 else swing


def _rounding_loss(constant: sp.Rational, height: sp.Rational, dtype: DType) -> sp.Rational:
    """The rounding error of the constant, where the result may be off by over 2 ulp of scale.

    The sine is followed by the roundings of both constants, of the product and of the sum. Where
    it may not, this is 0: the node that gives it back rounds, too.
    """
    if dtype is not DType.F64:
        return sp.Integer(0)
    unit = _unit(constant + height)
    constant_error = _rest(constant)
    sine = sp.Rational(_SINE_UNITS, 2**53) * height
    further_errors = abs(_rest(height)) + _unit(height) / 2 + unit / 2
    return (
        constant_error
        if sine + abs(constant_error) + further_errors > _MOST_ROUNDING * unit
        else sp.Integer(0)
    )


def _rest(number: sp.Rational) -> sp.Rational:
    """The rounding error of a number."""
    return number - sp.Rational(to_float(number))


def _unit(number: sp.Rational) -> sp.Rational:
    return sp.Rational(math.ulp(to_float(number)))


def _from_zero(
    low: Lowering,
    floor: sp.Rational,
    height: sp.Rational,
    rise: sp.Expr,
    denominator: int,
    domain: Domain,
) -> Value:
    near = low.real(rise, domain)
    far = low.real(denominator - 2 * rise, domain)
    # Q up to D/3 takes the first argument, D - 2Q the other: they are equal at D/3, where the form
    # changes, so that one sine serves both.
    sine = _sine_of(low, low.emit(Op.MIN, near, far), denominator)
    is_near = low.emit(Op.LT, near, low.constant(sp.Rational(denominator, 3)))
    partner = low.emit(Op.WHERE, is_near, sine, low.constant(sp.Integer(-1)))
    has_two_ends = _has_two_ends(floor, height, low.scalar)
    second_partner = partner
    if has_two_ends:
        second_partner = low.emit(Op.WHERE, is_near, sine, low.constant(sp.Integer(1)))
    versine = low.emit(Op.MUL, partner, low.emit(Op.ADD, sine, second_partner))
    swing = low.emit(Op.MUL, versine, low.constant(height))
    if has_two_ends:
        ends = low.constant(floor), low.constant(floor + 2 * height)
        return low.emit(Op.ADD, swing, low.emit(Op.WHERE, is_near, *ends))
    return low.emit(Op.ADD, swing, low.constant(floor)) if floor != 0 else swing


def _has_two_ends(floor: sp.Rational, height: sp.Rational, dtype: DType) -> bool:
    """Whether a cosine to 0 that is computed from there may be off by over 2 ulp of scale.

    The sine is followed by the roundings of ``s + r``, of the constant and of the product. From the
    top the first of them is none where it weighs most.
    """
    if dtype is not DType.F64 or floor != 0 or 2 * height > sys.float_info.max:
        return False
    unit = _unit(2 * height)
    sine = sp.Rational(_SINE_UNITS + 1, 2**53) * height
    return bool(sine + 2 * abs(_rest(height)) + unit / 2 > _MOST_ROUNDING * unit)


def rational_angle(low: Lowering, angle: sp.Expr) -> tuple[sp.Expr, int] | None:
    """Returns (P, D) with ``angle == pi*P/D``, P an integer at every step, or None."""
    if low.is_tensor(angle):
        return None
    turns = sp.Add(*(term / sp.pi for term in sp.Add.make_args(angle)))
    return integral_multiple(turns)


def _reduced_angle(low: Lowering, angle: sp.Expr, domain: Domain) -> tuple[sp.Expr, int] | None:
    """Returns (P, D) as ``rational_angle`` does; None where P has to be reduced and may overflow.

    Its numbers have as many digits as a float then, so that the angle in floats loses little.
    """
    turns = rational_angle(low, angle)
    if turns is None:
        return None
    numerator, denominator = turns
    parts = fold_angle(numerator, denominator, domain).atoms(FloorMod)
    return turns if all(low.fits_integer(part.args[0], domain) for part in parts) else None


def _modulo_turn(numerator: sp.Expr, denominator: int, domain: Domain) -> sp.Expr:
    """Returns the angle of any number of turns, folded to [0, D]."""
    within = remainder(numerator, sp.Integer(2 * denominator), domain)
    # cos is even around pi: F = D - |(P mod 2D) - D|.
    return denominator - sp.Abs(within - denominator)


def _cosine(numerator: sp.Expr, denominator: int) -> sp.Expr:
    return sp.cos(sp.pi * numerator / denominator, evaluate=False)


def fold_angle(numerator: sp.Expr, denominator: int, domain: Domain) -> sp.Expr:
    """Returns an integer F in [0, D] with ``cos(pi*F/D) == cos(pi*P/D)``."""
    values = interval(numerator, domain)
    # The cheapest form that the interval allows: none, an Abs, a reflection at D, or the remainder
    # by 2D.
    if 0 <= values.low and values.high <= denominator:
        return numerator
    if -denominator <= values.low and values.high <= denominator:
        return sp.Abs(numerator)
    if 0 <= values.low and values.high <= 2 * denominator:
        return denominator - sp.Abs(numerator - denominator)
    return _modulo_turn(numerator, denominator, domain)


def complement(angle: sp.Expr, denominator: int) -> sp.Expr:
    """Returns ``D - F``; of a clamp ``min(x, D)`` it is ``max(D - x, 0)``, one node less."""
    if isinstance(angle, sp.Min):
        return construct(sp.Max, *(denominator - arg for arg in angle.args))
    return denominator - angle


def _sine(low: Lowering, numerator: sp.Expr, denominator: int, domain: Domain) -> Value:
    """``sin(pi*numerator/(2*D))``, numerator in [-D, D]."""
    return _sine_of(low, low.real(numerator, domain), denominator)


def _sine_of(low: Lowering, value: Value, denominator: int) -> Value:
    angle = low.emit(Op.MUL, value, low.constant(sp.pi / (2 * denominator)))
    return low.emit(Op.SIN, angle)
