r"""Powers of two, logarithms, sines and arctangents in double-float arithmetic, by tables.

Each function is taken apart into a table entry of 48 bits and a short polynomial near it. The terms
of the polynomial that are below 2**-17 of the result are computed in plain float32; what they lose
is below 2**-41 of the result, that is 2**-17 ulp of the float32 that is rounded at the end.

Reduction, with N entries a unit and f the distance to the nearest one::

    2**x      = 2**n * 2**(j/N) * exp(f * log 2),                   x = n + j/N + f
    log2(x)   = k - log2(c) + log1p(m*c - 1) / log 2,               x = m * 2**k, c near 1/m
    sin(a+b)  = sin a + cos a * b - (sin a * (1-cos b) + cos a * (b-sin b)),  a = k * pi/(2*N)
    atan(x)   = atan(k/N) + atan((x - k/N) / (1 + x*k/N)),          x in [0, 1]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any, TypeVar

import mpmath
import numpy as np
import sympy as sp

from closedform.ir.graph import Value
from closedform.ir.ops import Op
from closedform.ir.types import DType
from closedform.lowering.pair_arithmetic import (
    Arithmetic,
    Column,
    Number,
    columns,
    fraction_of,
)

# Entries a unit: with them the terms in plain float32 are small enough (see the module).
_POWERS = 128
_LOGARITHMS = 512
_SINES = 256
_ARCTANGENTS = 256

# Powers of two in float32, subnormal ones included.
_LEAST_POWER, _GREATEST_POWER = -149, 127
# Beyond these every float32 is zero or infinite; they keep indices small.
_LEAST_EXPONENT, _GREATEST_EXPONENT = -320.0, 256.0
# Where one normal power of two serves as the scale of a result.
_ONE_FACTOR = 120
# The mantissa of a logarithm is in [0.7, 1.42], a margin around sqrt(1/2) and sqrt(2).
_FIRST_MANTISSA, _LAST_MANTISSA = int(0.69 * _LOGARITHMS), int(1.43 * _LOGARITHMS)
# A reciprocal of so many bits times half of a float32 is exact.
_RECIPROCAL_BITS = 12
_LARGEST_TANGENT = 2.0**60
# More than twice the digits of a pair.
_TABLE_BITS = 140

T = TypeVar("T")


def power_of_two(
    math: Arithmetic, x: Number, low: float | Fraction, high: float | Fraction
) -> Number:
    """Returns 2**x, its power of two returned as a separate scale.

    Args:
        math: Takes the nodes.
        x: The exponent.
        low: A lower bound of x.
        high: An upper bound of x.
    """
    x = _clamp_exponent(math, math.settle(x), low, high)
    position = math.emit(Op.MUL, x.high, math.single(_POWERS))
    nearest = math.emit(Op.FLOOR, math.emit(Op.ADD, position, math.single(0.5)))
    whole = math.emit(Op.FLOOR, math.emit(Op.MUL, nearest, math.single(1 / _POWERS)))
    # Integers below 2**24 in float32: all of these operations are exact.
    entry = math.emit(Op.SUB, nearest, math.emit(Op.MUL, whole, math.single(_POWERS)))
    index = _index(math, entry, 0, _POWERS - 1)
    # The subtraction is exact: both are near each other.
    near = math.emit(Op.SUB, x.high, math.emit(Op.MUL, nearest, math.single(1 / _POWERS)))
    remainder = Number(near) if x.low is None else Number(*math.two_sum(near, x.low))
    table = _lookup_pair(
        math, _table(range(_POWERS), lambda j: mpmath.mpf(2) ** (j / _POWERS)), index
    )
    result = _times_small_exponential(
        math, table, math.multiply(remainder, math.constant(sp.log(2)))
    )
    return Number(result.high, result.low, _scale(math, whole, low, high))


def _clamp_exponent(
    math: Arithmetic, x: Number, low: float | Fraction, high: float | Fraction
) -> Number:
    """An exponent clamped to the range beyond which every float32 result is zero or infinite."""
    # Only the high part: where it is clamped the result is zero or infinite whatever the low part
    # is.
    value = x.high
    if low < _LEAST_EXPONENT:
        value = math.emit(Op.MAX, value, math.single(_LEAST_EXPONENT))
    if high > _GREATEST_EXPONENT:
        value = math.emit(Op.MIN, value, math.single(_GREATEST_EXPONENT))
    return Number(value, x.low)


def _times_small_exponential(math: Arithmetic, table: Number, y: Number) -> Number:
    """``table * exp(y)`` for a small y: y**2/2 and further terms in plain float32."""
    cubic = _polynomial(math, y.high, (1 / 2, 1 / 6, 1 / 24))
    tail = math.emit(Op.MUL, math.emit(Op.MUL, y.high, y.high), cubic)
    # exp(y) - 1 and not exp(y): the leading 1 is the table entry, which is added last.
    growth, remainder = math.fast_two_sum(y.high, tail)
    low = remainder if y.low is None else math.emit(Op.ADD, remainder, y.low)
    return math.add_smaller(table, math.multiply(table, Number(growth, low)))


def _scale(
    math: Arithmetic, whole: Value, low: float | Fraction, high: float | Fraction
) -> tuple[Value, ...]:
    """Factors whose product is 2**whole; two halves where one would leave the normal numbers."""
    if low > -_ONE_FACTOR and high < _ONE_FACTOR:
        return (_exact_power(math, whole),)
    half = math.emit(Op.FLOOR, math.emit(Op.MUL, whole, math.single(0.5)))
    return _exact_power(math, half), _exact_power(math, math.emit(Op.SUB, whole, half))


def _exact_power(math: Arithmetic, exponent: Value) -> Value:
    """2**n for a float n that is a whole number from -149 to 127."""
    powers = np.ldexp(np.float32(1), np.arange(_LEAST_POWER, _GREATEST_POWER + 1))
    offset = math.emit(Op.ADD, exponent, math.single(-float(_LEAST_POWER)))
    index = _index(math, offset, 0, len(powers) - 1)
    return math.emit(Op.LOOKUP, math.builder.const(powers, DType.F32), index)


def logarithm(math: Arithmetic, x: Number) -> Number:
    """Returns log2(x) for a normal x > 0; near 1 it keeps its relative accuracy."""
    x = math.settle(x)
    # The engine's own logarithm only chooses the power of two; off by one at a tie does no harm.
    about = math.emit(Op.MUL, math.emit(Op.LOG, x.high), math.single(1 / float(np.log(2))))
    exponent = math.emit(Op.FLOOR, math.emit(Op.ADD, about, math.single(0.5)))
    factor = _exact_power(math, math.emit(Op.NEG, exponent))
    mantissa = math.settle(Number(x.high, x.low, (factor,)))
    position = math.emit(Op.MUL, mantissa.high, math.single(_LOGARITHMS))
    nearest = math.emit(Op.FLOOR, math.emit(Op.ADD, position, math.single(0.5)))
    offset = math.emit(Op.SUB, nearest, math.single(_FIRST_MANTISSA))
    reciprocals = [_reciprocal(i) for i in range(_FIRST_MANTISSA, _LAST_MANTISSA + 1)]
    index = _index(math, offset, 0, len(reciprocals) - 1)
    near = math.builder.const(np.array([float(c) for c in reciprocals]), DType.F32)
    remainder = _distance(math, mantissa, math.emit(Op.LOOKUP, near, index))
    table = _table(reciprocals, lambda c: -mpmath.log(mpmath.mpf(c.numerator) / c.denominator, 2))
    part = math.multiply(_log1p(math, remainder), math.constant(1 / sp.log(2)))
    entry = math.add(Number(exponent), _lookup_pair(math, table, index))
    return math.add(entry, part)


def _reciprocal(index: int) -> Fraction:
    """A number of few bits near ``_LOGARITHMS / index``; 1 at 1."""
    unit = 2 ** (_RECIPROCAL_BITS - 1)
    return Fraction(round(Fraction(_LOGARITHMS * unit, index)), unit)


def _distance(math: Arithmetic, mantissa: Number, reciprocal: Value) -> Number:
    """``mantissa * reciprocal - 1``: products of halves are exact, and 1 is near."""
    first, second = math.split(mantissa.high)
    near = math.emit(Op.SUB, math.emit(Op.MUL, first, reciprocal), math.single(1.0))
    high, error = math.two_sum(near, math.emit(Op.MUL, second, reciprocal))
    if mantissa.low is None:
        return Number(high, error)
    error = math.emit(Op.ADD, error, math.emit(Op.MUL, mantissa.low, reciprocal))
    # The low part of a mantissa is not small compared with its distance from 1.
    return Number(*math.two_sum(high, error))


def _log1p(math: Arithmetic, r: Number) -> Number:
    """log(1 + r) for a small r: r**2/2 and further terms in plain float32."""
    cubic = _polynomial(math, r.high, (-1 / 2, 1 / 3, -1 / 4))
    tail = math.emit(Op.MUL, math.emit(Op.MUL, r.high, r.high), cubic)
    high, error = math.fast_two_sum(r.high, tail)
    return Number(high, error if r.low is None else math.emit(Op.ADD, error, r.low))


def sine_of_quarter(math: Arithmetic, turns: Number, per_quarter: int) -> Number:
    """Returns sin(pi/2 * turns / per_quarter) for turns in [0, per_quarter]."""
    position = math.multiply(turns, math.constant(Fraction(_SINES, per_quarter)))
    nearest = math.emit(Op.FLOOR, math.emit(Op.ADD, position.high, math.single(0.5)))
    near = math.emit(Op.SUB, position.high, nearest)
    remainder = Number(near) if position.low is None else Number(*math.two_sum(near, position.low))
    angle = math.multiply(remainder, math.constant(sp.pi / (2 * _SINES)))
    index = _index(math, nearest, 0, _SINES)
    table = _table(range(_SINES + 1), lambda k: mpmath.sinpi(k / (2 * _SINES)))
    # cos(k pi / 2N) = sin((N - k) pi / 2N): one table for both.
    complement = math.emit(Op.SUB, math.builder.const(_SINES, DType.I32), index)
    sine, cosine = (_lookup_pair(math, table, place) for place in (index, complement))
    return _rotate_sine(math, sine, cosine, angle)


def _rotate_sine(math: Arithmetic, sine: Number, cosine: Number, angle: Number) -> Number:
    """``sin(a + b)`` from sin a, cos a and a small b; terms of order b**2 in plain float32."""
    b = angle.high
    square = math.emit(Op.MUL, b, b)
    even = math.emit(Op.MUL, sine.high, _polynomial(math, square, (-1 / 2, 1 / 24)))
    odd = math.emit(Op.MUL, cosine.high, math.emit(Op.MUL, b, math.single(1 / 6)))
    tail = math.emit(Op.MUL, square, math.emit(Op.SUB, even, odd))
    # cos a * b is up to 2**-8 of the result, so it needs a pair; the terms of order b² are below
    # 2**-17.
    correction = math.multiply(cosine, angle)
    low = tail if correction.low is None else math.emit(Op.ADD, correction.low, tail)
    return math.add_smaller(sine, Number(correction.high, low))


def arctangent(math: Arithmetic, x: Number) -> Number:
    """Returns atan(x); near 0 it keeps its relative accuracy."""
    size, unit = math.absolute(x), Number(math.single(1.0))
    # The arctangents of larger numbers are one pair, and no product of theirs overflows.
    largest = Number(math.single(_LARGEST_TANGENT))
    size = math.select(math.compare(Op.LT, largest, size), largest, size)
    # Beyond 1 the angle to the other axis, whose tangent is the inverse.
    is_steep = math.compare(Op.LT, unit, size)
    above, below = math.select(is_steep, unit, size), math.select(is_steep, size, unit)
    angle = _shallow_angle(math, math.divide(above, below))
    complement = math.add(math.constant(sp.pi / 2), math.negate(angle))
    angle = math.select(is_steep, complement, angle)
    is_negative = math.emit(Op.LT, math.settle(x).high, math.single(0.0))
    return math.select(is_negative, math.negate(angle), angle)


def _shallow_angle(math: Arithmetic, x: Number) -> Number:
    """atan(x) for x in [0, 1]: beyond the nearest entry, y**3/3 and y**5/5 in plain float32."""
    position = math.emit(Op.MUL, x.high, math.single(_ARCTANGENTS))
    nearest = math.emit(Op.FLOOR, math.emit(Op.ADD, position, math.single(0.5)))
    entry = Number(math.emit(Op.MUL, nearest, math.single(1 / _ARCTANGENTS)))
    # The subtraction is exact: both are near each other, or the entry is 0.
    near = math.emit(Op.SUB, x.high, entry.high)
    distance = Number(near) if x.low is None else Number(*math.two_sum(near, x.low))
    divisor = math.add(Number(math.single(1.0)), math.multiply(x, entry), is_same_sign=True)
    y = math.divide(distance, divisor)
    square = math.emit(Op.MUL, y.high, y.high)
    cubic = math.emit(Op.MUL, square, _polynomial(math, square, (-1 / 3, 1 / 5)))
    high, error = math.fast_two_sum(y.high, math.emit(Op.MUL, y.high, cubic))
    low = error if y.low is None else math.emit(Op.ADD, error, y.low)
    table = _table(range(_ARCTANGENTS + 1), lambda k: mpmath.atan(mpmath.mpf(k) / _ARCTANGENTS))
    index = _index(math, nearest, 0, _ARCTANGENTS)
    return math.add_smaller(_lookup_pair(math, table, index), Number(high, low))


def _polynomial(math: Arithmetic, x: Value, coefficients: tuple[float, ...]) -> Value:
    """Horner's scheme in plain float32, the constant coefficient first."""
    total = math.single(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        total = math.emit(Op.ADD, math.emit(Op.MUL, total, x), math.single(coefficient))
    return total


def _index(math: Arithmetic, value: Value, first: int, last: int) -> Value:
    """A whole float as an index that is in range whatever it is."""
    # NaN and infinities convert to some integer; clamping makes a legal index of any.
    index = math.cast(value, DType.I32)
    floor, top = (math.builder.const(bound, DType.I32) for bound in (first, last))
    return math.emit(Op.MIN, math.emit(Op.MAX, index, floor), top)


def _table(entries: Iterable[T], function: Callable[[T], Any]) -> tuple[Column, Column]:
    """The high and the low parts of a function at these entries."""
    with mpmath.workprec(_TABLE_BITS):
        return columns(fraction_of(function(entry)) for entry in entries)


def _lookup_pair(math: Arithmetic, table: tuple[Column, Column], index: Value) -> Number:
    high, low = (
        math.emit(Op.LOOKUP, math.builder.const(column, DType.F32), index) for column in table
    )
    return Number(high, low)
