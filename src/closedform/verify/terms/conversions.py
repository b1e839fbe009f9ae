"""Conversions between dtypes, read over the exact numbers: which change a number, and where.

=====================  ===========================================================================
conversion             how it is read
=====================  ===========================================================================
to fewer integers      it wraps: ``x - 2**n * floor((x + 2**(n - 1)) / 2**n)``
of a float to integer  towards zero; undefined where the result does not fit
of an integer, or of   itself; *coarse* where it may be above the integers that the float holds
float64, to a float    exactly, since then it may be off by more than 1
=====================  ===========================================================================

A coarse number is right but for a relative error. Operations that keep a relative error small take
it (``keeps_relative_error``); others that are continuous, such as a cosine, where it is small, too;
and a floor only where it is exact. Where a range analysis shows that a number cannot leave the
range, nothing is added.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from closedform.ir import DType, Node, Op
from closedform.ir.analysis.interval import Interval, full
from closedform.ir.ops import MOVES
from closedform.verify.terms import build
from closedform.verify.terms.facts import is_integer
from closedform.verify.terms.tree import Term

# A power n makes a relative error n times as large: 6 of the 12 bits below.
_SMALL_POWER = 64
_ERROR_BITS = 12  # what a number is off by that is so many bits smaller than the exact integers
_SMALL_BITS = 24 - _ERROR_BITS


def wrap_integer(number: Term, dtype: DType) -> Term:
    """Returns an integer as it is held in a dtype of fewer bits: the remainder of a power of 2.

    Example:
        >>> from closedform.verify.terms.build import rational
        >>> wrap_integer(rational(2**31), DType.I32)
        -2147483648
    """
    low, high = full(dtype).ends
    size, half = build.rational(int(high - low + 1)), build.rational(int(-low))
    return build.subtract(build.floor_modulo(build.add(number, half), size), half)


def truncate(number: Term) -> Term:
    """Returns the integer towards zero; the integer itself where the term shows that it is one."""
    if is_integer(number):
        return number
    below = build.less(number, build.ZERO)
    downward = build.floor(number)
    return build.ite(below, build.negative(build.floor(build.negative(number))), downward)


def nearest_in(number: Term, dtype: DType) -> Term:
    """Returns what a number becomes where it is stored in a dtype of a few integers."""
    low, high = map(build.rational, full(dtype).ends)
    fits = build.both(build.less(low, number), build.less(number, high))
    nearest = build.ite(build.less_equal(number, low), low, high)
    return truncate(build.ite(fits, number, nearest))


def number_in(number: Term, dtype: DType) -> Term:
    """Returns a number that an array of a dtype holds: in i8, one of its few integers.

    Example:
        >>> from closedform.verify.terms.build import symbol
        >>> number_in(symbol("state.w.code", integer=True), DType.I8)
        min(max(state.w.code, -128), 127)
    """
    if dtype is not DType.I8:
        return number
    low, high = map(build.rational, full(dtype).ends)
    return build.minimum(build.maximum(number, low), high)


def fitting(number: Term, dtype: DType) -> Term:
    """Returns an integer where it fits its dtype, undefined where it does not."""
    return between(number, *full(dtype).ends)


def exact_in(number: Term, bits: int) -> Term:
    """Returns a number where floats of so many bits hold all integers, undefined beyond."""
    return between(number, -(2**bits), 2**bits)


def where_small(size: Term, bits: int, number: Term, otherwise: Term) -> Term:
    """Returns a number where its size is small compared with the error of floats of so many bits.

    Args:
        size: The number, or what is compared in its place.
        bits: The bits of the floats.
        number: The number.
        otherwise: What it is elsewhere.
    """
    bound = build.rational(2 ** (bits - _ERROR_BITS))
    is_small = build.less_equal(build.absolute(size), bound)
    return build.ite(is_small, number, otherwise)


def between(number: Term, low: float, high: float) -> Term:
    """Returns a number where it is in an interval, undefined elsewhere."""
    inside = build.both(
        build.less_equal(build.rational(low), number),
        build.less_equal(number, build.rational(high)),
    )
    return build.ite(inside, number, build.UNDEFINED)


def is_narrower(source: DType, target: DType) -> bool:
    """Whether a dtype of integers has fewer of them than another."""
    are_integers = source.is_integer and target.is_integer
    return are_integers and not full(source).is_within(full(target))


def rounds_integers(source: DType, target: DType) -> bool:
    """Whether a conversion to a float may change an integer."""
    if not target.is_float or source is DType.BOOL:
        return False
    return source.is_integer or target.row.precision < source.row.precision


def is_small(interval: Interval, bits: int) -> bool:
    """Whether floats of so many bits hold every integer of an interval."""
    return interval.is_within(Interval(-(2**bits), 2**bits))


# --- operations on coarse numbers ----------------------------------------------------------------

Operands = Sequence[tuple[Interval, bool]]
"""The interval of each operand, and whether it is coarse."""


def _always(_: Operands) -> bool:
    return True


def _sum(operands: Operands) -> bool:
    """A sum of numbers of one sign; one of both signs may cancel, but for a small summand."""
    intervals = [interval for interval, _ in operands]
    has_one_sign = all(part.low >= 0 for part in intervals) or all(
        part.high <= 0 for part in intervals
    )
    return has_one_sign or _is_beside_small(operands)


def _difference(operands: Operands) -> bool:
    (first, _), (second, _) = operands
    has_one_sign = (first.low >= 0 and second.high <= 0) or (first.high <= 0 and second.low >= 0)
    return has_one_sign or _is_beside_small(operands)


def _is_beside_small(operands: Operands) -> bool:
    """Whether all but one operand are small: the error of a sum near 0 is that of these."""
    small = [is_small(interval, _SMALL_BITS) for interval, is_coarse in operands if not is_coarse]
    return len(small) == len(operands) - 1 and all(small)


def _decay(operands: Operands) -> bool:
    """``exp(x)`` of x <= 0: a relative error e of x changes it by at most e / exp(1)."""
    return operands[0][0].high <= 0


def _power(operands: Operands) -> bool:
    """A small constant power of a coarse number, or a power that decays with a coarse exponent."""
    (base, _), (exponent, is_coarse) = operands
    if not is_coarse:
        return exponent.low == exponent.high and abs(exponent.low) <= _SMALL_POWER
    shrinks = 0 <= base.low and base.high <= 1 and exponent.low >= 0
    return shrinks or (base.low >= 1 and exponent.high <= 0)


def _comparison(operands: Operands) -> bool:
    """Next to a number that is not coarse: rounding is monotone, and that number is small."""
    return sum(is_coarse for _, is_coarse in operands) == 1


_KEEPS: Mapping[Op, Callable[[Operands], bool]] = {
    **dict.fromkeys(
        (Op.MUL, Op.DIV, Op.NEG, Op.ABS, Op.SQRT, Op.LOG, Op.ATAN, Op.MIN, Op.MAX, Op.WHERE),
        _always,
    ),
    **dict.fromkeys((Op.REDUCE_MAX, *MOVES), _always),
    Op.ADD: _sum,
    Op.SUB: _difference,
    Op.EXP: _decay,
    Op.POW: _power,
    Op.LT: _comparison,
    Op.LE: _comparison,
    Op.EQ: _comparison,
}
"""The ops of which a small relative error of an operand is a small error, and where."""


def keeps_relative_error(node: Node, operands: Operands) -> bool:
    """Whether an operation on coarse numbers is as right as a float of its dtype can be."""
    if node.op is Op.CAST:
        return node.type.dtype.is_float
    rule = _KEEPS.get(node.op)
    return rule is not None and rule(operands)
