"""Bounds that intervals of the operands do not give: terms that depend on one another.

1. Sums in which a value occurs twice: ``m + c*(g - m)`` is ``(1 - c)*m + c*g``, for c in [0, 1] an
   average of m and g, rounded. The sum is written as a combination of its leaves; each rounding on
   the way adds half a unit in the last place of what it rounds.
2. Quotients whose dividend is part of their divisor: ``x / (x + y)`` with x, y >= 0, and
   ``x / (sqrt(sum(x*x)) + y)`` with y >= 0, are at most 1 in size, rounded; ``x / mean(x)`` with
   x >= 0 is at most the number of elements.
3. What rounding takes from an integer: ``n - cast(cast(n, f32), i64)`` is at most half a unit in
   the last place of n.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from closedform.ir.analysis.interval import Interval, full
from closedform.ir.graph import Node
from closedform.ir.ops import Op
from closedform.ir.types import DType

# Nodes of a form; longer sums gain little from correlation and cost more.
_LARGEST_FORM = 12
_SUMS = (Op.ADD, Op.SUB)
# The error of the sums below, computed in float64.
_SLACK = 2.0**-48


@dataclass(slots=True)
class _Form:
    """A combination of nodes with coefficients in intervals, and what rounding adds at most."""

    terms: dict[int, tuple[float, float]] = field(default_factory=dict)
    error: float = 0.0
    repeats: bool = False
    size: int = 0


def interval_of_sum(
    nodes: Sequence[Node], intervals: Sequence[Interval], node: Node
) -> Interval | None:
    """Returns an interval of a sum of floats in which a value occurs more than once, else None.

    Args:
        nodes: The nodes.
        intervals: Their intervals, up to the operands of the sum.
        node: The sum, an addition or a subtraction.
    """
    if not any(nodes[operand].op in (*_SUMS, Op.MUL) for operand in node.operands):
        return None
    form = _Form()
    left, right = node.operands
    _collect(nodes, intervals, left, (1.0, 1.0), form)
    _collect(nodes, intervals, right, (1.0, 1.0) if node.op is Op.ADD else (-1.0, -1.0), form)
    # Without a repeated leaf, interval arithmetic gives the same bounds.
    if not form.repeats or form.size > _LARGEST_FORM:
        return None
    low = high = size = 0.0
    for index, coefficient in form.terms.items():
        ends = _product(coefficient, (float(intervals[index].low), float(intervals[index].high)))
        low, high, size = low + ends[0], high + ends[1], size + max(map(abs, ends))
    slack = form.error + _rounding(size + form.error, node.type.dtype) + size * _SLACK
    if not math.isfinite(low - slack) or not math.isfinite(high + slack):
        return None
    return Interval(low - slack, high + slack)


def _collect(
    nodes: Sequence[Node],
    intervals: Sequence[Interval],
    index: int,
    coefficient: tuple[float, float],
    form: _Form,
) -> None:
    """Adds a node with a coefficient to a form: what it is a sum of, or the node itself."""
    node = nodes[index]
    form.size += 1
    if form.size > _LARGEST_FORM or not node.type.dtype.is_float:
        _add_term(index, coefficient, form)
        return
    factor = _scale(nodes, intervals, node)
    if node.op not in _SUMS and factor is None:
        _add_term(index, coefficient, form)
        return
    size = max(map(abs, coefficient))
    # The rounding of an inner node reaches the result times the coefficient at that place.
    form.error += size * _rounding(_magnitude(intervals[index]), node.type.dtype)
    if factor is not None:
        inner, ends = factor
        _collect(nodes, intervals, inner, _product(coefficient, ends), form)
        return
    left, right = node.operands
    negative = (-coefficient[1], -coefficient[0])
    _collect(nodes, intervals, left, coefficient, form)
    _collect(nodes, intervals, right, coefficient if node.op is Op.ADD else negative, form)


def _scale(
    nodes: Sequence[Node], intervals: Sequence[Interval], node: Node
) -> tuple[int, tuple[float, float]] | None:
    """A tensor and its scalar factor, whose interval is the coefficient; None for other nodes."""
    if node.op is Op.NEG:
        return node.operands[0], (-1.0, -1.0)
    if node.op is not Op.MUL:
        return None
    first, second = node.operands
    for scalar, cofactor in ((first, second), (second, first)):
        interval = intervals[scalar]
        # A coefficient must be the same number for all elements, or it does not factor out.
        if nodes[scalar].type.shape or interval.maybe_nan or interval.has_infinity:
            continue
        is_constant = nodes[scalar].op is Op.CONST or bool(nodes[cofactor].type.shape)
        if is_constant:
            return cofactor, (float(interval.low), float(interval.high))
    return None


def _add_term(index: int, coefficient: tuple[float, float], form: _Form) -> None:
    coefficients = form.terms.get(index)
    if coefficients is not None:
        form.repeats = True
        # Ends one ulp outward: the float sum of the ends is itself rounded.
        coefficient = (
            math.nextafter(coefficients[0] + coefficient[0], -math.inf),
            math.nextafter(coefficients[1] + coefficient[1], math.inf),
        )
    form.terms[index] = coefficient


def _product(first: tuple[float, float], second: tuple[float, float]) -> tuple[float, float]:
    corners = [a * b for a in first for b in second]
    if any(map(math.isnan, corners)):
        return -math.inf, math.inf
    return math.nextafter(min(corners), -math.inf), math.nextafter(max(corners), math.inf)


def _rounding(size: float, dtype: DType) -> float:
    """Half a unit in the last place of numbers up to a size."""
    info = np.finfo(dtype.numpy) if dtype in _ROUNDED else None
    if info is None:
        return math.inf
    # eps is twice the unit roundoff: the factor 2 pays for an engine that flushes or fuses; the
    # least subnormal number covers results near 0.
    return size * float(info.eps) + float(info.smallest_subnormal)


_ROUNDED = frozenset({DType.F32, DType.F64})


def _magnitude(interval: Interval) -> float:
    return float(max(abs(interval.low), abs(interval.high)))


# --- integers in floats --------------------------------------------------------------------------


def split_integers(nodes: Sequence[Node]) -> frozenset[int]:
    """Returns the integers that were rounded to a float and are used only in their differences.

    ``n`` is then the sum of ``r = cast(cast(n, f32), i64)`` and ``n - r``, and nothing is lost.
    """
    integers = {index for index in range(len(nodes)) if _rounded_integer(nodes, index) is not None}
    for node in nodes if integers else ():
        for place, operand in enumerate(node.operands):
            is_rest = node.op is Op.SUB and place == 1
            if operand in integers and not (
                is_rest and node.operands[0] == _rounded_integer(nodes, operand)
            ):
                integers.discard(operand)
    return frozenset(integers)


def _rounded_integer(nodes: Sequence[Node], index: int) -> int | None:
    """The integer of which a node is what a float holds, in the same dtype."""
    node = nodes[index]
    if node.op is not Op.CAST or not node.type.dtype.is_integer:
        return None
    inner = nodes[node.operands[0]]
    if inner.op is not Op.CAST or inner.type.dtype not in _ROUNDED:
        return None
    source = inner.operands[0]
    return source if nodes[source].type.dtype is node.type.dtype else None


def rounding_of_integer(
    nodes: Sequence[Node], intervals: Sequence[Interval], node: Node
) -> int | None:
    """Returns the size of the difference of an integer and its float; None for other nodes.

    Args:
        nodes: The nodes.
        intervals: Their intervals, up to the operands of the node.
        node: An addition or subtraction of integers.
    """
    whole, part = node.operands
    if node.op is not Op.SUB or _rounded_integer(nodes, part) != whole:
        return None
    limits = full(node.type.dtype)
    size = max(abs(int(intervals[whole].low)), abs(int(intervals[whole].high)))
    dtype = nodes[nodes[part].operands[0]].type.dtype
    # Half an ulp of a number below 2**e with a p-bit significand is 2**(e - p) / 2, at most size /
    # 2**p.
    error = size // 2 ** (np.finfo(dtype.numpy).nmant + 1)
    # The float of a number next to the largest one may be beyond it.
    return error if size + error <= limits.high else None


# --- quotients -----------------------------------------------------------------------------------


def part_of(
    nodes: Sequence[Node], intervals: Sequence[Interval], part: int, whole: int
) -> float | None:
    """Returns how many times another value the size of a value is at most, but for rounding.

    The other one is then >= 0: a sum, mean or norm of which the value is a part. None where that is
    not seen.
    """
    if part == whole:
        return 1.0 if intervals[part].low >= 0 else None
    node = nodes[whole]
    match node.op:
        case Op.ADD:
            left, right = node.operands
            for addend, partner in ((left, right), (right, left)):
                if intervals[partner].low >= 0:
                    factor = part_of(nodes, intervals, part, addend)
                    if factor is not None:
                        return factor
            return None
        case Op.MAX:
            factors_of_operands = (
                part_of(nodes, intervals, part, operand) for operand in node.operands
            )
            return next((factor for factor in factors_of_operands if factor is not None), None)
        case Op.WHERE:
            _, then, otherwise = node.operands
            factors = [part_of(nodes, intervals, part, branch) for branch in (then, otherwise)]
            return None if None in factors else max(filter(None, factors))
        case Op.SQRT:
            return 1.0 if _is_sum_of_squares(nodes, node.operands[0], part) else None
        case Op.DIV:
            above, below = node.operands
            divisor = intervals[below]
            factor = part_of(nodes, intervals, part, above) if 0 < divisor.low else None
            return None if factor is None else factor * float(divisor.high)
        case Op.REDUCE_SUM:
            (inner,) = node.operands
            is_sum = intervals[inner].low >= 0 and node.type.dtype.is_float
            return part_of(nodes, intervals, part, inner) if is_sum else None
        case Op.CAST | Op.RESHAPE | Op.BROADCAST_TO if node.type.dtype.is_float:
            return part_of(nodes, intervals, part, node.operands[0])
        case Op.ABS:
            return 1.0 if node.operands[0] == part else None
        case _:
            return None


def _is_sum_of_squares(nodes: Sequence[Node], index: int, part: int) -> bool:
    node = nodes[index]
    if node.op is Op.REDUCE_SUM or (node.op is Op.CAST and node.type.dtype.is_float):
        return _is_sum_of_squares(nodes, node.operands[0], part)
    return node.op is Op.MUL and node.operands == (part, part)


def quotient_bound(nodes: Sequence[Node], whole: int) -> float:
    """Returns by what rounding may raise a part of a whole divided by it, as a factor.

    A square that is subnormal may be rounded to two thirds of itself: a norm is then a root of that
    too small, a sum of squares in any order never so far.
    """
    pending, count = [whole], 0
    while pending and count < _LARGEST_FORM:
        node = nodes[pending.pop()]
        count += 1
        if node.op is Op.SQRT:
            return 1.5
        pending.extend(node.operands)
    return 1.5 if pending else 1.0 + 2.0**-20


__all__ = [
    "interval_of_sum",
    "part_of",
    "quotient_bound",
    "rounding_of_integer",
    "split_integers",
]
