"""How operations map enclosures of real values and bounds of their rounding errors.

An operation adds the errors of its operands and its own rounding: half an ulp, or the error that
the op table allows engines. Errors are bounded absolutely and as a part of the value, and each
bound improves the other one: a sum of numbers of one sign, a product and a root keep few ulps
however small they are.

A constant is assumed to be within half an ulp of the intended number, and an integer to be exact.
Every bound is computed in float64 and rounded outward: it encloses the true one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from closedform.ir.array_ops import places_of
from closedform.ir.graph import Node
from closedform.ir.ops import OPS, Op
from closedform.ir.types import HOLDS, DType, FloatArray

# The error of a bound that is itself computed by some operations in float64.
# 32 roundings of float64, of 2**-53 each.
_WIDER = 1 + 2.0**-48
# NumPy's own functions are within 4 ulp, as the op table says of every engine.
_LIBM = 2.0**-49


_MARGIN = 2.0**-10


@dataclass(frozen=True, slots=True)
class Halves:
    """``y**root * divisor`` of each real value y is a whole number plus a half."""

    root: int
    divisor: Fraction

    def distance(self, high: FloatArray) -> FloatArray:
        """Returns a bound of the distance of values from 0 to ``high`` from whole numbers.

        With ``y**q = (k + 1/2) / d`` and integers k and n,
        ``|y - n| >= 1 / (2 d q max(y, n)**(q - 1))``.
        """
        # Whole numbers that are farther away than the margin do not matter.
        slope = float(self.divisor) * self.root * (high + _MARGIN) ** (self.root - 1)
        # A little less than a half: for the float64 in which the distance is computed.
        distance: FloatArray = np.minimum(_MARGIN, 0.499 / slope)
        return distance


_HALVES = Halves(1, Fraction(1))


@dataclass(frozen=True, slots=True)
class Enclosure:
    """Real values in [low, high] and computed ones at most ``error`` away.

    A truth is 0 or 1; its error is infinite where the computed one may be the other.

    Attributes:
        low: Lower bounds.
        high: Upper bounds.
        error: Bounds of the distance.
        is_whole: Every real value is a whole number.
        relative: Bounds of the distance as a part of the real value; infinite where there is none.
        halves: The real values as roots of whole numbers and a half, if they are.
        keeps_floor: The floors of the computed values are those of the real ones, whatever the
            distance.
    """

    low: FloatArray
    high: FloatArray
    error: FloatArray
    is_whole: bool = False
    relative: FloatArray | float = np.inf
    halves: Halves | None = None
    keeps_floor: NDArray[np.bool_] | bool = False

    @property
    def size(self) -> FloatArray:
        """The largest size of a real value."""
        return np.maximum(np.abs(self.low), np.abs(self.high))

    @property
    def least(self) -> FloatArray:
        """The smallest size of a real value."""
        return np.maximum(np.maximum(self.low, -self.high), 0)

    @property
    def share(self) -> FloatArray:
        """The distance as a part of the real value, by either bound."""
        with np.errstate(all="ignore"):
            by_error = np.where(self.error == 0, 0, self.error / self.least)
        share: FloatArray = np.minimum(self.relative, by_error)
        return share

    def map(self, function: Callable[[FloatArray], FloatArray]) -> Enclosure:
        """Returns the enclosure with a function of its arrays that moves elements."""
        parts = np.broadcast_arrays(self.low, self.high, self.error, self.relative)
        low, high, error, relative = (function(part) for part in parts)
        return Enclosure(low, high, error, self.is_whole, relative)


ErrorRule = Callable[[Node, Sequence[Node], Sequence[Enclosure]], Enclosure]


def unit_of_largest(size: FloatArray, dtype: DType) -> FloatArray:
    """Returns the unit in the last place of the largest float to which such a size is rounded."""
    info = dtype.limits
    # The next float: a size just below a power of two may be rounded up to it, where the unit
    # doubles.
    _, exponent = np.frexp(np.nextafter(size, np.inf))
    unit: FloatArray = np.ldexp(
        1.0, np.maximum(exponent - info.nmant - 1, info.minexp - info.nmant)
    )
    return unit


def _add_rounding(
    node: Node,
    low: FloatArray,
    high: FloatArray,
    error: FloatArray,
    *,
    whole: bool,
    share: FloatArray | float = np.inf,
) -> Enclosure:
    """An enclosure with the rounding of the op itself added.

    ``share`` is the error of the operands as a part of the result.
    """
    is_zero = (low == 0) & (high == 0)
    # One ulp outward for the float64 in which the bound was computed; an exact 0 stays, so that "is
    # 0" is not lost.
    low = np.where(is_zero, low, np.nextafter(low, -np.inf))
    high = np.where(is_zero, high, np.nextafter(high, np.inf))
    low, high = (np.ceil(low), np.floor(high)) if whole else (low, high)
    dtype = node.type.dtype
    size = np.maximum(np.abs(low), np.abs(high)) + error
    if dtype.is_integer:
        wraps = np.where(size > float(np.iinfo(dtype.numpy).max), np.inf, 0)
        return Enclosure(low, high, error * _WIDER + wraps, whole)
    info = dtype.limits
    # Sums, differences and products of whole numbers are exact while they fit.
    is_exact = (error == 0) & (is_zero | (whole & (size <= 2.0 ** (info.nmant + 1))))
    units = max(0.5, OPS[node.op].ulp)
    rounding = np.where(is_exact, 0, units * unit_of_largest(size, dtype))
    overflow = np.where(size >= float(info.max), np.inf, 0)
    error = (error + rounding + overflow) * _WIDER
    # (1 + share)(1 + u) - 1 = share + u (1 + share); u ulp is at most u eps of a normal number.
    relative = (share + np.where(is_exact, 0, units * float(info.eps) * (1 + share))) * _WIDER
    # Below the normal numbers the spacing is not in proportion to the value.
    least = np.maximum(np.maximum(low, -high), 0) * (1 - relative)
    relative = np.where((least >= float(info.tiny)) | is_zero, relative, np.inf) + overflow
    by_share = np.where(
        is_zero | ~np.isfinite(relative), np.inf, relative * np.maximum(np.abs(low), np.abs(high))
    )
    return Enclosure(low, high, np.minimum(error, by_share), whole, relative)


def _share_of_sum(a: Enclosure, b: Enclosure, *, is_difference: bool = False) -> FloatArray:
    """The error of a sum of numbers of one sign as a part of it."""
    low, high = (-b.high, -b.low) if is_difference else (b.low, b.high)
    is_one_sign = ((a.low >= 0) & (low >= 0)) | ((a.high <= 0) & (high <= 0))
    # For a, b of one sign the error a e + b e' is at most (a + b) max(e, e'); with opposite signs
    # the sum may be near 0 and its error not.
    return np.where(is_one_sign, np.maximum(a.share, b.share), np.inf)


def _share_of_product(a: Enclosure, b: Enclosure) -> FloatArray:
    # (1 + e)(1 + e') - 1.
    return a.share + b.share + a.share * b.share


def _all_whole(operands: Sequence[Enclosure]) -> bool:
    return all(operand.is_whole for operand in operands)


def _corners(
    function: Callable[[FloatArray, FloatArray], FloatArray], a: Enclosure, b: Enclosure
) -> tuple[FloatArray, FloatArray]:
    values = [function(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
    return np.minimum.reduce(values), np.maximum.reduce(values)


def _const(node: Node, _: Sequence[Node], __: Sequence[Enclosure]) -> Enclosure:
    values = node.array().astype(np.float64)
    is_whole = bool((values == np.floor(values)).all())
    if not node.type.dtype.is_float:
        return Enclosure(values, values, np.zeros_like(values), is_whole)
    # A constant stands for a number that was rounded to it, unless it is whole: 2.0 is the count 2.
    unit = unit_of_largest(np.abs(values), node.type.dtype)
    half = np.where(values == np.floor(values), 0, unit / 2)
    # Half a unit is far within what ``Halves.distance`` leaves of a half.
    has_halves = bool((values - np.floor(values) == 0.5).all())
    halves = _HALVES if has_halves else None
    return Enclosure(values - half, values + half, half, is_whole, halves=halves)


def _add(node: Node, _: Sequence[Node], operands: Sequence[Enclosure]) -> Enclosure:
    a, b = operands
    total = _add_rounding(
        node,
        a.low + b.low,
        a.high + b.high,
        a.error + b.error,
        whole=_all_whole(operands),
        share=_share_of_sum(a, b),
    )
    return _with_halves(node, total, a, b)


def _sub(node: Node, _: Sequence[Node], operands: Sequence[Enclosure]) -> Enclosure:
    a, b = operands
    difference = _add_rounding(
        node,
        a.low - b.high,
        a.high - b.low,
        a.error + b.error,
        whole=_all_whole(operands),
        share=_share_of_sum(a, b, is_difference=True),
    )
    return _with_halves(node, difference, a, b)


def _with_halves(node: Node, total: Enclosure, a: Enclosure, b: Enclosure) -> Enclosure:
    """A sum or difference, which may be of a whole number and a half, in either order."""
    halves = b.halves if a.is_whole else a.halves if b.is_whole else None
    if halves != _HALVES:
        return total
    # The floats up to 2**52 hold each whole number and a half, so that nothing is rounded.
    is_exact = total.size + 1 <= 2.0**node.type.dtype.limits.nmant
    is_exact = is_exact & ((a if a.is_whole else b).error == 0)
    error = np.where(is_exact, np.minimum(total.error, a.error + b.error), total.error)
    return replace(total, error=error, halves=halves)


def _number(node: Node) -> Fraction | None:
    """The number of a constant of one element; None for any other node."""
    if node.op is not Op.CONST or node.type.shape or node.type.dtype is DType.BOOL:
        return None
    value = node.array().item()
    return Fraction(value) if np.isfinite(value) else None


def _mul(node: Node, _: Sequence[Node], operands: Sequence[Enclosure]) -> Enclosure:
    a, b = operands
    low, high = _corners(np.multiply, a, b)
    # A square: interval arithmetic would take x and -x for the same operand.
    if node.operands[0] == node.operands[1]:
        low, high = a.least * a.least, a.size * a.size
    # (a + e)(b + e') - a b.
    error = a.size * b.error + b.size * a.error + a.error * b.error
    share = _share_of_product(a, b)
    return _add_rounding(node, low, high, error, whole=_all_whole(operands), share=share)


def _div(node: Node, sources: Sequence[Node], operands: Sequence[Enclosure]) -> Enclosure:
    a, b = operands
    low, high = _corners(np.divide, a, b)
    # (1 + e) / (1 - e') - 1 = (e + e') / (1 - e').
    share = np.where(b.share < 1, (a.share + b.share) / (1 - b.share), np.inf)
    least = np.maximum(b.least - b.error, b.least * (1 - b.share))
    # The error of a quotient is |x/y| of that of y, and 1/|y| of that of x, with the computed y.
    error = (a.error + a.size * np.minimum(b.share, b.error / b.least)) / np.maximum(least, 0)
    unknown = np.where(least > 0, 0, np.inf)
    quotient = _add_rounding(
        node, low - unknown, high + unknown, error + unknown, whole=False, share=share
    )
    # a/b below an integer n is at least 1/b below it. Half a unit in the last place of n is at most
    # n * 2**-53, which is less than 1/b where a + b < 2**53.
    limit = 2.0 ** (node.type.dtype.limits.nmant + 1)
    keeps_floor = _all_whole(operands) & (a.error == 0) & (b.error == 0) & (a.size + b.size < limit)
    divisor, halves = _number(sources[1]), a.halves
    if halves is not None and divisor is not None and divisor.denominator == 1:
        halves = replace(halves, divisor=halves.divisor * abs(divisor) ** halves.root)
        return replace(quotient, halves=halves, keeps_floor=keeps_floor)
    return replace(quotient, keeps_floor=keeps_floor)


def _unary(make: Callable[[Enclosure], Enclosure]) -> ErrorRule:
    """The rule of an op of one operand that rounds nothing."""
    return lambda _, __, operands: make(operands[0])


def _extremum(function: Callable[[FloatArray, FloatArray], FloatArray]) -> ErrorRule:
    def rule(_: Node, __: Sequence[Node], operands: Sequence[Enclosure]) -> Enclosure:
        a, b = operands
        low, high = function(a.low, b.low), function(a.high, b.high)
        is_one_sign = ((a.low >= 0) & (b.low >= 0)) | ((a.high <= 0) & (b.high <= 0))
        relative = np.where(is_one_sign, np.maximum(a.share, b.share), np.inf)
        error = np.maximum(a.error, b.error)
        halves = a.halves if a.halves == b.halves else None
        return Enclosure(low, high, error, _all_whole(operands), relative, halves)

    return rule


def _floor(_: Node, __: Sequence[Node], operands: Sequence[Enclosure]) -> Enclosure:
    (a,) = operands
    # A floor jumps: an error of any size moves it by 1 at an integer.
    error = np.where(_has_one_floor(a, np.floor), 0, np.ceil(a.error) + 1)
    return Enclosure(np.floor(a.low), np.floor(a.high), error, is_whole=True)


def _has_one_floor(
    a: Enclosure, round_down: Callable[[FloatArray], FloatArray]
) -> NDArray[np.bool_]:
    """Whether each real number and the one computed for it are rounded to the same integer."""
    below = np.nextafter(a.low - a.error, -np.inf)
    above = np.nextafter(a.high + a.error, np.inf)
    is_one: NDArray[np.bool_] = a.keeps_floor | (a.error == 0)
    is_one = is_one | (round_down(below) == round_down(above))
    if a.halves is not None:
        is_one = is_one | ((a.low >= 0) & (a.error < a.halves.distance(a.high)))
    return is_one


def _floor_div(node: Node, _: Sequence[Node], operands: Sequence[Enclosure]) -> Enclosure:
    """A floor of a quotient, unknown where b may be 0 or an operand is inexact."""
    a, b = operands
    low, high = _corners(np.divide, a, b)
    unknown = np.where(b.least > 0, _doubt(operands), np.inf)
    is_positive = (a.low >= 0) & (b.low > 0)
    # The corners are rounded, and bounds only one float further out; 0 is exact.
    low, high = np.nextafter(low, -np.inf), np.nextafter(high, np.inf)
    low = np.where(is_positive, np.maximum(low, 0), low)
    return Enclosure(np.floor(low) - unknown, np.floor(high) + unknown, unknown, is_whole=True)


def _floor_mod(node: Node, _: Sequence[Node], operands: Sequence[Enclosure]) -> Enclosure:
    """Within one period the remainder is the distance from its start, else anything below b."""
    a, b = operands
    period = np.floor(a.low / b.low)
    start = period * b.low
    is_one = (
        (b.low == b.high)
        & (b.low > 0)
        & (a.low >= start)
        & (a.high < start + b.low)
        & (np.abs(a.high) < 2.0**53)
    )
    top = np.maximum(b.high, 0) - (1 if _all_whole(operands) else 0)
    low = np.where(is_one, a.low - start, np.minimum(b.low, 0))
    high = np.where(is_one, a.high - start, np.maximum(top, 0))
    whole = _all_whole(operands)
    # a - n b of one n; the quotient is below its bound of floats.
    distance = a.error + np.ceil((a.size + a.error) / (b.least - b.error)) * b.error
    unknown = np.where(_has_one_quotient(a, b), distance, np.inf)
    unknown = np.where((a.error == 0) & (b.error == 0) & (b.least > 0), 0, unknown)
    if node.type.dtype.is_integer:
        return Enclosure(low, high, unknown, whole)
    return _add_rounding(node, low, high, unknown, whole=whole)


def _has_one_quotient(number: Enclosure, divisor: Enclosure) -> NDArray[np.bool_]:
    """Whether the exact and the computed quotients have one floor."""
    corners = [
        (number.low - number.error) / (divisor.low - divisor.error),
        (number.low - number.error) / (divisor.high + divisor.error),
        (number.high + number.error) / (divisor.low - divisor.error),
        (number.high + number.error) / (divisor.high + divisor.error),
    ]
    below = np.nextafter(np.minimum.reduce(corners), -np.inf)
    above = np.nextafter(np.maximum.reduce(corners), np.inf)
    has_sign = divisor.least > divisor.error
    # Of an exact 0 the quotient is 0, also that of floats.
    is_zero = (number.size == 0) & (number.error == 0)
    is_one: NDArray[np.bool_] = has_sign & (is_zero | (np.floor(below) == np.floor(above)))
    return is_one


def _doubt(operands: Sequence[Enclosure]) -> FloatArray:
    """Zero where all operands are exact, else infinite: a step of the function may be missed."""
    total = np.sum(np.broadcast_arrays(*(operand.error for operand in operands)), axis=0)
    return np.where(total == 0, 0.0, np.inf)


def _sqrt(node: Node, _: Sequence[Node], operands: Sequence[Enclosure]) -> Enclosure:
    (a,) = operands
    low = np.sqrt(a.low)
    # sqrt(1 ± e) is off by at most 1 - sqrt(1 - e), which is larger than sqrt(1 + e) - 1.
    share = np.where(a.share <= 1, 1 - np.sqrt(1 - np.minimum(a.share, 1)), np.inf)
    # A computed operand below zero has no root.
    least = np.maximum(a.low - a.error, a.low * (1 - a.share))
    # sqrt(x) - sqrt(y) = (x - y) / (sqrt(x) + sqrt(y)), without cancellation.
    error = np.where(a.error == 0, 0, a.error / (low + np.sqrt(np.maximum(least, 0))))
    error = np.where(least >= 0, error, np.inf)
    root = _add_rounding(node, low, np.sqrt(a.high), error, whole=False, share=share)
    return replace(root, halves=_root_of_halves(a.halves, 2))


def _root_of_halves(halves: Halves | None, root: int | None) -> Halves | None:
    if halves is None or root is None:
        return None
    return replace(halves, root=halves.root * root)


def _exp(node: Node, _: Sequence[Node], operands: Sequence[Enclosure]) -> Enclosure:
    (a,) = operands
    low, high = np.exp(a.low) * (1 - _LIBM), np.exp(a.high) * (1 + _LIBM)
    # exp(x + e) - exp(x) = exp(x) expm1(e).
    error = high * np.expm1(a.error) * (1 + _LIBM)
    return _add_rounding(node, low, high, error, whole=False)


def _log(node: Node, _: Sequence[Node], operands: Sequence[Enclosure]) -> Enclosure:
    (a,) = operands
    low, high = np.log(a.low), np.log(a.high)
    slack = np.maximum(np.abs(low), np.abs(high)) * _LIBM
    # log(x + e) - log(x) <= e / (x - e), the slope at the nearer end.
    error = a.error / (a.low - a.error) + np.where(a.low > a.error, 0, np.inf)
    return _add_rounding(node, low - slack, high + slack, error, whole=False)


def _sine_or_cosine(node: Node, _: Sequence[Node], operands: Sequence[Enclosure]) -> Enclosure:
    """Sine and cosine: their slope is at most 1, their ulp is that of 1."""
    (a,) = operands
    low, high = np.full_like(a.low, -1.0), np.full_like(a.high, 1.0)
    if node.op is Op.SIN:
        is_rising = (a.low >= -np.pi / 2) & (a.high <= np.pi / 2)
        low = np.where(is_rising, np.sin(a.low) - _LIBM, low)
        high = np.where(is_rising, np.sin(a.high) + _LIBM, high)
    unit = float(np.finfo(node.type.dtype.numpy).eps)
    # Two cosines differ by at most 2, however wrong the angle is.
    error = np.minimum(a.error, 2.0) + OPS[node.op].ulp * unit
    return Enclosure(low, high, error * _WIDER)


def _atan(node: Node, _: Sequence[Node], operands: Sequence[Enclosure]) -> Enclosure:
    """An arctangent: its slope is 1/(1 + x**2), and its relative error at most that of x."""
    (a,) = operands
    low, high = np.arctan(a.low), np.arctan(a.high)
    slack = np.maximum(np.abs(low), np.abs(high)) * _LIBM
    nearest = np.maximum(a.least - a.error, 0)
    # Two arctangents differ by less than pi, however wrong the operand is.
    error = np.minimum(a.error / (1 + nearest**2), 3.15) * (1 + _LIBM)
    # atan is concave above 0 and odd, so that atan((1 + e) x) is within e of atan(x), relatively.
    return _add_rounding(node, low - slack, high + slack, error, whole=False, share=a.share)


def _pow(node: Node, sources: Sequence[Node], operands: Sequence[Enclosure]) -> Enclosure:
    """For a base >= 0; by the change of ``y * log x``, and for roots of numbers near 0 by that.

    A whole power has a base of any sign.
    """
    a, b = operands
    if b.is_whole and (b.low == b.high).all() and (b.low >= 1).all() and (b.error == 0).all():
        return _whole_power(node, a, b.low)
    low, high = _corners(np.power, replace(a, low=np.maximum(a.low, 0)), b)
    high = high * (1 + _LIBM)
    base = a.low - a.error
    shift = a.error / base
    change = b.size * shift + (
        np.maximum(np.abs(np.log(a.low)), np.abs(np.log(a.high))) + shift
    ) * (b.error)
    error = np.where((base > 0) & (change < 1), high * np.expm1(change), np.inf)
    is_root = (b.low > 0) & (b.high <= 1) & (b.error < b.low) & (a.low >= a.error) & (a.high <= 1)
    # |x**p - y**p| <= |x - y|**p, and p off by e moves x**p by at most e/(p - e)/exp(1).
    near = np.power(a.error, b.low - b.error) + b.error / (b.low - b.error)
    error = np.where(is_root, np.minimum(error, near), error)
    unknown = np.where(a.low < 0, np.inf, 0)
    low, high = low * (1 - _LIBM) - unknown, high + unknown
    result = _add_rounding(node, low, high, error, whole=False)
    return replace(result, halves=_root_of_halves(a.halves, _degree(sources[1])))


def _degree(exponent: Node) -> int | None:
    """The degree q of a root, by the float that 1/q is rounded to; None of any other exponent."""
    value = _number(exponent)
    if value is None or not 0 < value < 1:
        return None
    degree = round(1 / value)
    is_inverse = exponent.type.dtype.numpy.type(1 / degree) == float(value)
    return degree if is_inverse else None


def _whole_power(node: Node, a: Enclosure, exponent: FloatArray) -> Enclosure:
    """A power of a whole exponent of at least 1, whose slope grows with the size of the base."""
    is_even = exponent % 2 == 0
    low = np.where(is_even, np.power(a.least, exponent), np.power(a.low, exponent))
    high = np.where(is_even, np.power(a.size, exponent), np.power(a.high, exponent))
    slack = np.maximum(np.abs(low), np.abs(high)) * _LIBM
    # Mean value theorem: the slope n x**(n - 1) at the largest size.
    error = exponent * np.power(a.size + a.error, exponent - 1) * a.error * (1 + _LIBM)
    share = np.power(1 + a.share, exponent) * (1 + _LIBM) - 1
    low = np.where(is_even, np.maximum(low - slack, 0), low - slack)
    return _add_rounding(node, low, high + slack, error, whole=False, share=share)


def _comparison(node: Node, _: Sequence[Node], operands: Sequence[Enclosure]) -> Enclosure:
    a, b = operands
    margin = a.error + b.error
    is_decided = (np.nextafter(a.high + margin, np.inf) < b.low) | (margin == 0)
    is_decided = is_decided | (np.nextafter(b.high + margin, np.inf) < a.low)
    # A whole number that is exact, and numbers without a whole one among them.
    for whole, fraction in ((a, b), (b, a)):
        is_between = np.ceil(fraction.low - fraction.error) > np.floor(
            fraction.high + fraction.error
        )
        is_decided = is_decided | (whole.is_whole & (whole.error == 0) & is_between)
    if node.op is Op.EQ:
        never = (a.high < b.low) | (b.high < a.low)
        always = (a.low == a.high) & (b.low == b.high) & (a.low == b.low)
    elif node.op is Op.LT:
        always, never = a.high < b.low, a.low >= b.high
    else:
        always, never = a.high <= b.low, a.low > b.high
    low, high = np.where(always, 1.0, 0.0), np.where(never, 0.0, 1.0)
    return Enclosure(low, high, np.where(is_decided, 0, np.inf), is_whole=True)


def _where(_: Node, __: Sequence[Node], operands: Sequence[Enclosure]) -> Enclosure:
    """One branch where the condition is decided; where it may be the wrong one, their distance."""
    condition, a, b = operands
    is_sure = condition.error == 0
    first, second = is_sure & (condition.low == 1), is_sure & (condition.high == 0)
    low = np.where(first, a.low, np.where(second, b.low, np.minimum(a.low, b.low)))
    high = np.where(first, a.high, np.where(second, b.high, np.maximum(a.high, b.high)))
    larger = np.maximum(a.error, b.error)
    error = np.where(first, a.error, np.where(second, b.error, larger))
    error = np.where(is_sure, error, larger + (high - low))
    relative = np.where(first, a.share, np.where(second, b.share, np.maximum(a.share, b.share)))
    relative = np.where(is_sure, relative, np.inf)
    halves = a.halves if a.halves == b.halves else None
    return Enclosure(low, high, error, a.is_whole and b.is_whole, relative, halves)


def _cast(node: Node, sources: Sequence[Node], operands: Sequence[Enclosure]) -> Enclosure:
    (a,) = operands
    dtype = node.type.dtype
    if dtype is DType.BOOL or not dtype.is_float:
        if a.is_whole and not sources[0].type.dtype.is_float:
            return a
        is_one = _has_one_floor(a, np.trunc)
        error = np.where(is_one, 0, np.ceil(a.error) + 1)
        return Enclosure(np.trunc(a.low), np.trunc(a.high), error, is_whole=True)
    if dtype in HOLDS[sources[0].type.dtype]:
        return a
    return _add_rounding(node, a.low, a.high, a.error, whole=a.is_whole, share=a.share)


def _reduction(function: Callable[..., FloatArray]) -> ErrorRule:
    """The rule of a reduction that rounds nothing: a maximum, or a sum of integers."""

    def rule(node: Node, sources: Sequence[Node], operands: Sequence[Enclosure]) -> Enclosure:
        a = _with_all_elements(sources[0], operands[0])
        rank = sources[0].type.rank
        axes = tuple(axis - rank for axis in node.attribute("axes"))
        keepdims = node.attribute("keepdims")
        low, high, error = (
            function(part, axis=axes, keepdims=keepdims) for part in (a.low, a.high, a.error)
        )
        return Enclosure(low, high, error, a.is_whole)

    return rule


def _reduce_sum(node: Node, sources: Sequence[Node], operands: Sequence[Enclosure]) -> Enclosure:
    """A sum of floats, in the order that the engine chooses."""
    total = _reduction(np.sum)(node, sources, operands)
    if not node.type.dtype.is_float:  # milestones
        return total
    a = _with_all_elements(sources[0], operands[0])
    size = replace(a, low=a.size + a.error)
    sizes = _reduction(np.sum)(node, sources, [size]).low
    return _with_sum_rounding(node, total, sizes, a.low.size // max(1, total.low.size))


def _with_sum_rounding(node: Node, total: Enclosure, sizes: FloatArray, count: int) -> Enclosure:
    """A sum of so many terms with its rounding, whatever its order.

    It is at most (n − 1)u/(1 − (n − 1)u) of the sum of the sizes of the terms, with u half of the
    epsilon of the dtype: Higham, Accuracy and Stability of Numerical Algorithms, (4.6).
    """

    def part(unit: float) -> float:
        share = (count - 1) * unit
        return share / (1 - share) if share < 1 else np.inf

    slack = part(2.0**-53) * sizes
    rounding = part(float(np.finfo(node.type.dtype.numpy).eps) / 2) * sizes
    overflow = np.where(sizes >= float(np.finfo(node.type.dtype.numpy).max), np.inf, 0)
    error = (total.error + rounding + overflow) * _WIDER + slack
    low = np.where(total.low >= 0, np.maximum(total.low - slack, 0), total.low - slack)
    return Enclosure(low, total.high + slack, error)


def _matmul(node: Node, sources: Sequence[Node], operands: Sequence[Enclosure]) -> Enclosure:
    """By the products of the sizes: the elements of a product are sums of products."""
    a, b = (_with_all_elements(*pair) for pair in zip(sources, operands, strict=True))
    count = 2 * a.low.shape[-1]  # each product is rounded once more
    sizes = (a.size + a.error) @ (b.size + b.error) * (1 + count * 2.0**-53)
    error = (a.size @ b.error + a.error @ b.size + a.error @ b.error) * (1 + count * 2.0**-52)
    return _with_sum_rounding(node, Enclosure(-sizes, sizes, error), sizes, count)


def _reshape(node: Node, sources: Sequence[Node], operands: Sequence[Enclosure]) -> Enclosure:
    a = _with_all_elements(sources[0], operands[0])
    shape = tuple(-1 if isinstance(dim, str) else dim for dim in node.type.shape)
    shape = _intervals_of(sources[0], a) + shape
    return a.map(lambda part: np.reshape(part, shape))


def _transpose(node: Node, sources: Sequence[Node], operands: Sequence[Enclosure]) -> Enclosure:
    a = _with_all_elements(sources[0], operands[0])
    first = len(_intervals_of(sources[0], a))
    order = (*range(first), *(first + int(axis) for axis in node.attribute("permutation")))
    return a.map(lambda part: np.transpose(part, order))


def _slice(node: Node, sources: Sequence[Node], operands: Sequence[Enclosure]) -> Enclosure:
    a = _with_all_elements(sources[0], operands[0])
    leading_axes = (slice(None),) * len(_intervals_of(sources[0], a))
    return a.map(lambda part: part[(*leading_axes, *places_of(node))])


def _concat(node: Node, sources: Sequence[Node], operands: Sequence[Enclosure]) -> Enclosure:
    parts = [_with_all_elements(*pair) for pair in zip(sources, operands, strict=True)]
    # The axis of the intervals, where only some of the operands have it.
    intervals = max((_intervals_of(*pair) for pair in zip(sources, parts, strict=True)), key=len)
    axis = int(node.attribute("axis")) - node.type.rank
    low, high, error, relative = (
        np.concatenate(
            [np.broadcast_to(a, (*intervals, *a.shape[-node.type.rank :])) for a in row], axis
        )
        for row in zip(*((a.low, a.high, a.error, a.relative) for a in parts), strict=True)
    )
    return Enclosure(low, high, error, all(a.is_whole for a in parts), relative)


def _broadcast_to(node: Node, sources: Sequence[Node], operands: Sequence[Enclosure]) -> Enclosure:
    (a,) = operands
    return _with_rank(sources[0], a, node.type.rank)


def _with_all_elements(source: Node, operand: Enclosure) -> Enclosure:
    """An enclosure of each element of a node, where one stood for several."""
    shape = source.type.shape
    if not all(isinstance(size, int) for size in shape):
        return operand.map(lambda part: part)
    sizes = _intervals_of(source, operand) + tuple(int(size) for size in shape)
    return operand.map(lambda part: np.broadcast_to(part, sizes))


def _with_rank(source: Node, operand: Enclosure, rank: int) -> Enclosure:
    """An enclosure with further axes behind that of the intervals."""
    intervals = _intervals_of(source, operand)
    missing = (1,) * (rank - source.type.rank)
    return operand.map(
        lambda part: np.reshape(part, intervals + missing + part.shape[len(intervals) :])
    )


def _lookup(_: Node, __: Sequence[Node], operands: Sequence[Enclosure]) -> Enclosure:
    table, index = operands
    size = len(table.low)
    first = np.clip(index.low, 0, size - 1).astype(np.int64)
    last = np.clip(index.high, 0, size - 1).astype(np.int64)
    # An index interval reaches a run of entries: their hull.
    slices = [slice(int(a), int(b) + 1) for a, b in zip(first.flat, last.flat, strict=True)]
    low = np.array([table.low[part].min() for part in slices]).reshape(first.shape)
    high = np.array([table.high[part].max() for part in slices]).reshape(first.shape)
    error = np.array([table.error[part].max() for part in slices]).reshape(first.shape)
    # An index that may be off by one reads another entry.
    doubt = np.where(index.error == 0, 0, np.inf)
    return Enclosure(low, high, error + doubt, table.is_whole)


def _intervals_of(source: Node, operand: Enclosure) -> tuple[int, ...]:
    """The axis of the intervals, where an enclosure has it before the axes of its node."""
    shape = np.broadcast_shapes(operand.low.shape, operand.high.shape, operand.error.shape)
    return shape[: max(0, len(shape) - source.type.rank)]


def align_ranks(sources: Sequence[Node], operands: Sequence[Enclosure]) -> list[Enclosure]:
    """Operands of a common rank: new axes come behind that of the intervals."""
    rank = max(source.type.rank for source in sources)
    return [
        _with_rank(source, operand, rank)
        if source.type.rank < rank and _intervals_of(source, operand)
        else operand
        for source, operand in zip(sources, operands, strict=True)
    ]


RULES: Mapping[Op, ErrorRule] = {
    Op.CONST: _const,
    Op.ADD: _add,
    Op.SUB: _sub,
    Op.MUL: _mul,
    Op.NEG: _unary(lambda a: Enclosure(-a.high, -a.low, a.error, a.is_whole, a.relative)),
    Op.ABS: _unary(lambda a: Enclosure(a.least, a.size, a.error, a.is_whole, a.relative)),
    Op.DIV: _div,
    Op.FLOOR_DIV: _floor_div,
    Op.FLOOR_MOD: _floor_mod,
    Op.MIN: _extremum(np.minimum),
    Op.MAX: _extremum(np.maximum),
    Op.FLOOR: _floor,
    Op.SQRT: _sqrt,
    Op.EXP: _exp,
    Op.LOG: _log,
    Op.COS: _sine_or_cosine,
    Op.SIN: _sine_or_cosine,
    Op.ATAN: _atan,
    Op.POW: _pow,
    Op.LT: _comparison,
    Op.LE: _comparison,
    Op.EQ: _comparison,
    Op.AND: _extremum(np.minimum),
    Op.OR: _extremum(np.maximum),
    Op.NOT: _unary(lambda a: Enclosure(1 - a.high, 1 - a.low, a.error, is_whole=True)),
    Op.WHERE: _where,
    Op.CAST: _cast,
    Op.REDUCE_SUM: _reduce_sum,
    Op.REDUCE_MAX: _reduction(np.max),
    Op.MATMUL: _matmul,
    Op.TRANSPOSE: _transpose,
    Op.BROADCAST_TO: _broadcast_to,
    Op.RESHAPE: _reshape,
    Op.SLICE: _slice,
    Op.CONCAT: _concat,
    Op.LOOKUP: _lookup,
}
"""How each op maps enclosures; random numbers have no error in one engine."""
