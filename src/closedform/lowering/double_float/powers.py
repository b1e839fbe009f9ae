"""Powers, exponentials and logarithms of double-float numbers."""

from __future__ import annotations

import functools
import math

import numpy as np
import sympy as sp

from closedform.ir.ops import Op
from closedform.language.integers import FloorMod
from closedform.lowering.analysis.annotate import interval, is_integral
from closedform.lowering.analysis.domain import Bound, Domain
from closedform.lowering.double_float.context import DoubleFloat
from closedform.lowering.double_float.functions import logarithm, power_of_two
from closedform.lowering.pair_arithmetic import Number

# Whole powers up to this are products; beyond it a logarithm is the shorter way.
_LARGEST_PRODUCT = 32


def lower_power(low: DoubleFloat, expr: sp.Expr, domain: Domain) -> Number:
    """Lowers a power: products and roots where the exponent is such, else a power of two."""
    base, exponent = expr.args
    if exponent.is_Rational:
        return _constant_power(low, base, exponent, domain)
    if base.is_number and base.is_positive:
        return _exponential(low, expr, exponent, sp.log(base, 2), domain)
    if base.is_number and base.is_negative and is_integral(exponent):
        size = sp.Pow(-base, exponent)
        # (-b)^n by the parity of n.
        is_even = sp.Eq(FloorMod(exponent, 2), 0)
        return low.number(sp.Piecewise((size, is_even), (-size, True)), domain)
    _require_positive(low, base, expr, domain)
    product = low.math.multiply(low.number(exponent, domain), _log2(low, base, domain))
    return _of_zero(low, base, _power_of_two(low, product, expr, domain), domain)


def _constant_power(
    low: DoubleFloat, base: sp.Expr, exponent: sp.Rational, domain: Domain
) -> Number:
    if exponent < 0:
        unit = low.constant(sp.Integer(1))
        return low.math.divide(unit, _constant_power(low, base, -exponent, domain))
    value = low.number(base, domain)
    whole = int(exponent.p // exponent.q)
    if exponent.q <= 2 and whole <= _LARGEST_PRODUCT:
        factors = [] if whole == 0 else [_whole_power(low, value, whole)]
        if exponent.q == 2:
            factors.append(low.math.square_root(value))
        return functools.reduce(low.math.multiply, factors)
    power = sp.Pow(base, exponent)
    _require_positive(low, base, power, domain)
    product = low.math.multiply(_log2(low, base, domain), low.constant(exponent))
    return _of_zero(low, base, _power_of_two(low, product, power, domain), domain)


def _whole_power(low: DoubleFloat, value: Number, exponent: int) -> Number:
    """A power by squaring."""
    if exponent == 1:
        return value
    half = _whole_power(low, value, exponent // 2)
    square = low.math.multiply(half, half)
    return square if exponent % 2 == 0 else low.math.multiply(square, value)


def _require_positive(low: DoubleFloat, base: sp.Expr, user: sp.Expr, domain: Domain) -> None:
    if not interval(base, domain).is_nonnegative:
        raise low.low.error(
            f"{user} has no double-float form: its base may be below zero",
            "write it with whole exponents, or compile with precision='single'",
        )


def _log2(low: DoubleFloat, base: sp.Expr, domain: Domain) -> Number:
    """The logarithm of a base that may be zero: there, that of the least normal number."""
    value = low.number(base, domain)
    if not interval(base, domain).is_nonzero:
        tiny = low.math.single(float(np.finfo(np.float32).tiny))
        value = Number(low.math.emit(Op.MAX, low.math.settle(value).high, tiny), value.low)
    return logarithm(low.math, value)


def _of_zero(low: DoubleFloat, base: sp.Expr, power: Number, domain: Domain) -> Number:
    """A power whose base may be zero: then it is zero, since such an exponent is above zero."""
    if interval(base, domain).is_nonzero:
        return power
    zero = low.math.single(0.0)
    is_above = low.math.emit(Op.LT, zero, low.math.settle(low.number(base, domain)).high)
    return low.math.select(is_above, power, Number(zero))


def _power_of_two(low: DoubleFloat, exponent: Number, power: sp.Expr, domain: Domain) -> Number:
    """2**exponent, the value of ``power``."""
    values = interval(power, domain)
    return power_of_two(low.math, exponent, _log2_of(values.low, -1), _log2_of(values.high, 1))


def _log2_of(bound: Bound, margin: int) -> float:
    """The logarithm of a bound, moved outward by more than its error."""
    if bound <= 0:
        return -math.inf
    if isinstance(bound, float):
        return bound
    # Of numerator and denominator apart: the quotient may be beyond the largest float.
    return math.log2(bound.numerator) - math.log2(bound.denominator) + margin


def _exponential(
    low: DoubleFloat, power: sp.Expr, exponent: sp.Expr, rate: sp.Expr, domain: Domain
) -> Number:
    """``2**(exponent * rate)``, the numbers of the product as one constant."""
    factor, core = exponent.as_coeff_Mul()
    product = low.math.multiply(low.number(core, domain), low.constant(factor * rate))
    return _power_of_two(low, product, power, domain)


def lower_exp(low: DoubleFloat, expr: sp.Expr, domain: Domain) -> Number:
    """Lowers an exponential as a power of two."""
    return _exponential(low, expr, expr.args[0], 1 / sp.log(2), domain)


def lower_log(low: DoubleFloat, expr: sp.Expr, domain: Domain) -> Number:
    """Lowers a logarithm as that to base two."""
    binary = logarithm(low.math, low.number(expr.args[0], domain))
    return low.math.multiply(binary, low.constant(sp.log(2)))
