"""Intervals of values, and the rules of the ops that depend only on the intervals of operands.

An interval is a lower and an upper bound on the elements of a value, and whether one may be NaN.
Integers are exact Python ints; results that may wrap have the full range. Bounds of floats are
computed in the dtype of the node: IEEE rounding is monotone, so the rounded bound bounds the
rounded results. Ops that engines round differently (``ulp`` in the op table) are widened by that
much on both sides, but not across 1 for exp and powers, or 0 for logarithms.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from closedform.ir.graph import Node
from closedform.ir.ops import OPS, Op
from closedform.ir.types import FLOATS, Dim, DType

Bound = int | float


@dataclass(frozen=True, slots=True)
class Interval:
    """Every element is in [low, high], or NaN where ``maybe_nan`` says so.

    Bounds of integers and bools are Python ints, of floats Python floats. The sign of a zero is not
    tracked: an interval with the bound 0.0 may hold -0.0.
    """

    low: Bound
    high: Bound
    maybe_nan: bool = False

    def __str__(self) -> str:
        return f"[{self.low}, {self.high}]" + (" or nan" if self.maybe_nan else "")

    @property
    def ends(self) -> tuple[Bound, Bound]:
        """The two bounds."""
        return self.low, self.high

    @property
    def has_infinity(self) -> bool:
        """True if an infinity is in the interval."""
        return self.low == -math.inf or self.high == math.inf

    def contains(self, number: Bound) -> bool:
        """Returns whether the number is in the interval."""
        return self.low <= number <= self.high

    def is_within(self, other: Interval) -> bool:
        """Returns whether another interval holds all of this one, NaN included."""
        is_between = other.low <= self.low and self.high <= other.high
        return is_between and (other.maybe_nan or not self.maybe_nan)


def full(dtype: DType) -> Interval:
    """Returns the interval that holds every value of a dtype."""
    if dtype is DType.BOOL:
        return Interval(0, 1)
    if dtype.is_float:
        return Interval(-math.inf, math.inf, maybe_nan=True)
    info = np.iinfo(dtype.numpy)
    return Interval(int(info.min), int(info.max))


def hull(intervals: Sequence[Interval]) -> Interval:
    """Returns the least interval that holds all of these; there is at least one."""
    return Interval(
        min(interval.low for interval in intervals),
        max(interval.high for interval in intervals),
        any(interval.maybe_nan for interval in intervals),
    )


Operands = tuple[Interval, ...]
IntervalRule = Callable[[Node, Operands], Interval]

LEAST_NORMAL = {dtype: 2.0**dtype.row.exponent for dtype in FLOATS}
"""The smallest normal number of each dtype of floats; those below it are subnormal."""


def exact(low: int, high: int, dtype: DType) -> Interval:
    """The interval of integers, or the full range if one of them wraps."""
    unknown = full(dtype)
    if low < unknown.low or high > unknown.high:
        return unknown
    return Interval(low, high)


def flush_subnormals(interval: Interval, dtype: DType) -> Interval:
    """Returns the interval with zero, if it holds numbers that an engine may flush to zero."""
    least = LEAST_NORMAL[dtype]
    low = 0.0 if 0 < interval.low < least else interval.low
    high = 0.0 if -least < interval.high < 0 else interval.high
    return interval if (low, high) == interval.ends else Interval(low, high, interval.maybe_nan)


def _floats(candidates: Sequence[Any], maybe_nan: bool) -> Interval:
    """The hull of these bounds, none of which is NaN."""
    numbers = [float(candidate) for candidate in candidates]
    return Interval(min(numbers), max(numbers), maybe_nan)


def _corners(function: Callable[[Any, Any], Any], operands: Operands, dtype: DType) -> list[Any]:
    """The function at the corners of two intervals, in the dtype; NaN (0·inf, inf/inf) gives 0.

    Sound for functions that are monotone in each operand: near such a corner they take every value
    between the values at the other corners, and 0 is the only value that they may have besides.
    """
    first, second = operands
    with np.errstate(all="ignore"):
        values = [
            function(dtype.numpy.type(a), dtype.numpy.type(b))
            for a in (first.low, first.high)
            for b in (second.low, second.high)
        ]
    return [0.0 if np.isnan(value) else value for value in values]


def _add(node: Node, operands: Operands) -> Interval:
    first, second = operands
    dtype = node.type.dtype
    if dtype.is_integer:
        return exact(int(first.low + second.low), int(first.high + second.high), dtype)
    # inf - inf is the only NaN of a sum of numbers.
    clash = (first.high == math.inf and second.low == -math.inf) or (
        first.low == -math.inf and second.high == math.inf
    )
    kind = dtype.numpy.type
    with np.errstate(all="ignore"):
        # The sum in the dtype, not widened: IEEE 754 rounds correctly and rounding is monotone, so
        # the rounded corners bound all rounded sums.
        low = float(kind(first.low) + kind(second.low))
        high = float(kind(first.high) + kind(second.high))
    return Interval(
        -math.inf if math.isnan(low) else low,
        math.inf if math.isnan(high) else high,
        first.maybe_nan or second.maybe_nan or clash,
    )


def _sub(node: Node, operands: Operands) -> Interval:
    first, second = operands
    return _add(node, (first, Interval(-second.high, -second.low, second.maybe_nan)))


def _mul(node: Node, operands: Operands) -> Interval:
    first, second = operands
    dtype = node.type.dtype
    if dtype.is_integer:
        # A bilinear function has its extreme values at the corners of a box.
        products = [int(a * b) for a in first.ends for b in second.ends]
        return exact(min(products), max(products), dtype)
    # 0 * inf is the only NaN of a product of numbers.
    clash = (first.contains(0) and second.has_infinity) or (
        second.contains(0) and first.has_infinity
    )
    maybe_nan = first.maybe_nan or second.maybe_nan or clash
    return _floats(_corners(np.multiply, operands, dtype), maybe_nan)


def _neg(node: Node, operands: Operands) -> Interval:
    (operand,) = operands
    if node.type.dtype.is_integer:
        return exact(int(-operand.high), int(-operand.low), node.type.dtype)
    return Interval(-operand.high, -operand.low, operand.maybe_nan)


def _abs(node: Node, operands: Operands) -> Interval:
    (operand,) = operands
    high = max(abs(operand.low), abs(operand.high))
    low = 0 if operand.contains(0) else min(abs(operand.low), abs(operand.high))
    if node.type.dtype.is_integer:
        return exact(int(low), int(high), node.type.dtype)
    return Interval(float(low), high, operand.maybe_nan)


def _div(node: Node, operands: Operands) -> Interval:
    first, second = operands
    # 0 / 0 and inf / inf are the only NaN of a quotient of numbers.
    clash = (first.contains(0) and second.contains(0)) or (
        first.has_infinity and second.has_infinity
    )
    maybe_nan = first.maybe_nan or second.maybe_nan or clash
    if second.contains(0):
        return Interval(-math.inf, math.inf, maybe_nan)
    return _floats(_corners(np.divide, operands, node.type.dtype), maybe_nan)


def _nonzero_parts(divisor: Interval) -> list[tuple[int, int]]:
    """The negative and the positive part of an interval of integers, those that are not empty."""
    parts = [
        (int(divisor.low), min(int(divisor.high), -1)),
        (max(int(divisor.low), 1), int(divisor.high)),
    ]
    return [(low, high) for low, high in parts if low <= high]


def _floor_div(node: Node, operands: Operands) -> Interval:
    first, second = operands
    # Monotone in each operand on either sign of the divisor; the check refuses a divisor that may
    # be 0.
    quotients = [int(a) // b for a in first.ends for part in _nonzero_parts(second) for b in part]
    if not quotients:
        return full(node.type.dtype)
    return exact(min(quotients), max(quotients), node.type.dtype)


def _floor_mod(node: Node, operands: Operands) -> Interval:
    first, second = operands
    if not node.type.dtype.is_integer:
        return _floor_mod_floats(first, second)
    parts = _nonzero_parts(second)
    if not parts:
        return full(node.type.dtype)
    low, high = int(first.low), int(first.high)
    # The whole interval lies in one period, where the remainder rises.
    if second.low == second.high and low // int(second.low) == high // int(second.low):
        return Interval(low % int(second.low), high % int(second.low))
    # 0 <= a mod b <= min(a, b - 1).
    if low >= 0 and second.low > 0:
        return Interval(0, min(high, int(second.high) - 1))
    # A floored remainder has the sign of its divisor and is smaller in size.
    return Interval(min(0, parts[0][0] + 1), max(0, parts[-1][1] - 1))


def _floor_mod_floats(first: Interval, second: Interval) -> Interval:
    """Closed at the divisor: a tiny negative remainder plus the divisor may round to it."""
    maybe_nan = first.maybe_nan or second.maybe_nan or first.has_infinity or second.contains(0)
    low, high = min(second.low, 0.0), max(second.high, 0.0)
    if first.low >= 0 and second.low >= 0:
        high = min(high, first.high)
    return Interval(low, high, maybe_nan)


def _extremum(choose: Callable[..., Any]) -> IntervalRule:
    def rule(_: Node, operands: Operands) -> Interval:
        first, second = operands
        low, high = choose(first.low, second.low), choose(first.high, second.high)
        return Interval(low, high, first.maybe_nan or second.maybe_nan)

    return rule


def _floor(_: Node, operands: Operands) -> Interval:
    (operand,) = operands
    low, high = (float(np.floor(end)) for end in operand.ends)
    return Interval(low, high, operand.maybe_nan)


def _widen_bounds(op: Op, low: Any, high: Any, dtype: DType, maybe_nan: bool) -> Interval:
    """The bounds moved out by twice the error of the op: that of the bound, that of the result."""
    steps = 2 * math.ceil(OPS[op].ulp) + 1
    kind = dtype.numpy.type
    below, above = kind(low), kind(high)
    with np.errstate(all="ignore"):
        for _ in range(steps):
            below = np.nextafter(below, kind(-math.inf))
            above = np.nextafter(above, kind(math.inf))
    # An infinite bound stays: nextafter would step from it to the largest finite number.
    return Interval(
        float(low) if math.isinf(low) and low < 0 else float(below),
        float(high) if math.isinf(high) and high > 0 else float(above),
        maybe_nan,
    )


def _on_its_side(interval: Interval, number: float, is_below: bool, is_above: bool) -> Interval:
    """The interval without the part beyond a number that the function does not cross.

    The error of an engine does not carry exp and powers across 1, or logarithms and arctangents
    across 0: they are exact there, and functions of the rounded operand elsewhere.
    """
    low = max(interval.low, number) if is_above else interval.low
    high = min(interval.high, number) if is_below else interval.high
    return Interval(low, high, interval.maybe_nan)


def _not_negative(interval: Interval) -> Interval:
    return Interval(max(interval.low, 0.0), interval.high, interval.maybe_nan)


def _monotone(
    function: Callable[[Any], Any],
    fixed: tuple[float, float],
    *,
    least: float = -math.inf,
    bottom: float = -math.inf,
) -> IntervalRule:
    """The rule of an increasing function.

    Args:
        function: The function of NumPy.
        fixed: An operand, and its value, which the results of the others do not cross.
        least: The function is NaN below it.
        bottom: No result is below it.
    """

    def rule(node: Node, operands: Operands) -> Interval:
        (operand,) = operands
        dtype = node.type.dtype
        maybe_nan = operand.maybe_nan or operand.low < least
        if operand.high < least:
            return full(dtype)
        with np.errstate(all="ignore"):
            low = function(dtype.numpy.type(max(operand.low, least)))
            high = function(dtype.numpy.type(operand.high))
        # sqrt, exp, log and atan are not correctly rounded by all engines: MKL's sqrt is off by 1
        # ulp, libm's functions by up to 4.
        bounds = _widen_bounds(node.op, low, high, dtype, maybe_nan)
        argument, number = fixed
        bounds = _on_its_side(bounds, number, operand.high <= argument, operand.low >= argument)
        return Interval(max(bounds.low, bottom), bounds.high, bounds.maybe_nan)

    return rule


def _sine_or_cosine(_: Node, operands: Operands) -> Interval:
    (operand,) = operands
    # sin and cos of an infinity are NaN.
    return Interval(-1.0, 1.0, operand.maybe_nan or operand.has_infinity)


def _pow(node: Node, operands: Operands) -> Interval:
    """Bounded where the base is positive, or not negative with an exponent not negative.

    Of any base, where the exponent is one whole number that is not negative.
    """
    base, exponent = operands
    maybe_nan = base.maybe_nan or exponent.maybe_nan
    is_whole = exponent.low == exponent.high >= 0 and float(exponent.low).is_integer()
    if base.low < 0 and is_whole:
        size = Interval(0.0, max(-base.low, abs(base.high)), base.maybe_nan)
        powers = _pow(node, (size, exponent))
        is_even = exponent.low % 2 == 0
        return powers if is_even else Interval(-powers.high, powers.high, powers.maybe_nan)
    # A negative base has real powers at integers only, and 0 none below 0.
    if not (base.low > 0 or (base.low >= 0 and exponent.low >= 0)):
        return full(node.type.dtype)
    corners = _corners(np.power, operands, node.type.dtype)
    bounds = _floats(corners, maybe_nan)
    power_bounds = _not_negative(
        _widen_bounds(node.op, bounds.low, bounds.high, node.type.dtype, maybe_nan)
    )
    grows, shrinks = exponent.low >= 0, exponent.high <= 0
    is_above = (base.low >= 1 and grows) or (base.high <= 1 and shrinks)
    is_below = (base.low >= 1 and shrinks) or (base.high <= 1 and grows)
    return _on_its_side(power_bounds, 1.0, is_below, is_above)


def _order(holds: Callable[[Any, Any], bool]) -> IntervalRule:
    def rule(_: Node, operands: Operands) -> Interval:
        first, second = operands
        # Every comparison with NaN is false, so NaN excludes "always true" and never "always
        # false".
        is_true = holds(first.high, second.low) and not (first.maybe_nan or second.maybe_nan)
        return Interval(int(is_true), int(holds(first.low, second.high)))

    return rule


def _eq(_: Node, operands: Operands) -> Interval:
    first, second = operands
    is_one = first.low == first.high == second.low == second.high
    is_true = is_one and not (first.maybe_nan or second.maybe_nan)
    is_false = first.high < second.low or second.high < first.low
    return Interval(int(is_true), int(not is_false))


def _not(_: Node, operands: Operands) -> Interval:
    (operand,) = operands
    return Interval(1 - operand.high, 1 - operand.low)


def sum_of_floats(operand: Interval, reduced_dims: Sequence[Dim], node: Node) -> Interval:
    """Bounds in any order: count terms at a bound, moved by (1 + eps)**count for the roundings.

    Terms of one sign have a sum of that sign, and it is not NaN.
    """
    info = np.finfo(node.type.dtype.numpy)
    sizes = [dim for dim in reduced_dims if isinstance(dim, int)]
    # The size of a named axis is unknown, so that the number of terms has no bound.
    count = math.prod(sizes) if len(sizes) == len(reduced_dims) else math.inf
    one_sign = operand.low >= 0 or operand.high <= 0
    sign_bounds = Interval(
        0.0 if operand.low >= 0 else -math.inf,
        0.0 if operand.high <= 0 else math.inf,
        operand.maybe_nan or not one_sign,
    )
    # (1 + eps)**count <= 1 + 2 * count * eps while count * eps <= 1/2 (Higham, Accuracy and
    # Stability of Numerical Algorithms, lemma 3.1).
    slack = 2.0 * count * float(info.eps)
    largest = max(-operand.low, operand.high)
    if count == 0:
        return Interval(0.0, 0.0)
    # Otherwise a partial sum might overflow in some order, and two such sums might be inf - inf.
    if slack > 0.1 or largest * count > float(info.max) / 2:
        return sign_bounds
    low, high = operand.low * count, operand.high * count
    bounds = _widen_bounds(
        node.op,
        low - abs(low) * slack,
        high + abs(high) * slack,
        node.type.dtype,
        operand.maybe_nan,
    )
    return Interval(
        max(bounds.low, sign_bounds.low), min(bounds.high, sign_bounds.high), operand.maybe_nan
    )


ARITHMETIC: Mapping[Op, IntervalRule] = {
    Op.ADD: _add,
    Op.SUB: _sub,
    Op.MUL: _mul,
    Op.NEG: _neg,
    Op.ABS: _abs,
    Op.DIV: _div,
    Op.FLOOR_DIV: _floor_div,
    Op.FLOOR_MOD: _floor_mod,
    Op.MIN: _extremum(min),
    Op.MAX: _extremum(max),
    Op.FLOOR: _floor,
    Op.SQRT: _monotone(np.sqrt, (0.0, 0.0), least=0.0, bottom=0.0),
    Op.EXP: _monotone(np.exp, (0.0, 1.0), bottom=0.0),
    Op.LOG: _monotone(np.log, (1.0, 0.0), least=0.0),
    Op.COS: _sine_or_cosine,
    Op.SIN: _sine_or_cosine,
    Op.ATAN: _monotone(np.arctan, (0.0, 0.0)),
    Op.POW: _pow,
    Op.LT: _order(operator.lt),
    Op.LE: _order(operator.le),
    Op.EQ: _eq,
    # On {0, 1} "and" is the minimum and "or" the maximum.
    Op.AND: _extremum(min),
    Op.OR: _extremum(max),
    Op.NOT: _not,
    Op.MATMUL: lambda node, _: full(node.type.dtype),
}
"""How each of these ops maps the intervals of its operands to that of its result."""
