"""Consequences of conditions: bounds on a branch of ``where``, and the order of two floats.

Bounds: ``where(and(le(0, i), lt(i, 4)), i, 0)`` is in [0, 3]: the first branch counts only where
the condition holds. The bound reaches the branch if the condition compares the same node, or for
integers a node that differs from it by a constant, such as ``lt(x - 5, 10)`` and the branch ``x``.

Order: rounding is monotone, and so is flushing of subnormal numbers to zero: a product with a
factor of at most 1 in size is at most the other factor in size, rounded too, and ``a - b < 0`` in
floats holds only where ``a < b``. Intervals do not see it: ``v - c*g*g`` is not negative where
``g*g < v`` and c is in [0, 1].
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from closedform.ir.analysis.interval import Bound, Interval, full
from closedform.ir.graph import Node
from closedform.ir.ops import Op


@dataclass(frozen=True, slots=True)
class Fact:
    """``lesser + gap <= greater``, elementwise; both are numbers where ``excludes_nan``.

    Floats have no gap; where ``is_strict`` they differ.
    """

    lesser: int
    greater: int
    gap: int
    excludes_nan: bool
    is_strict: bool = False


def refine(
    nodes: Sequence[Node], intervals: Sequence[Interval], condition: int, truth: bool, branch: int
) -> Interval | None:
    """Returns the interval of a branch where the condition has this truth; None if it never has.

    Args:
        nodes: The nodes of the graph.
        intervals: Intervals of the nodes, up to the operands of the ``where`` at least.
        condition: Index of the condition.
        truth: True for the first branch, False for the second.
        branch: Index of the branch.
    """
    interval: Interval | None = intervals[branch]
    for fact in _facts(nodes, intervals, condition, truth):
        interval = _narrow_by_fact(nodes, intervals, fact, branch, interval)
        if interval is None:
            return None
    for first, second in _unequal(nodes, condition, truth):
        interval = _trim_excluded(nodes, intervals, first, second, branch, interval)
        interval = _trim_excluded(nodes, intervals, second, first, branch, interval)
    return interval


def compared_nodes(nodes: Sequence[Node], condition: int, truth: bool) -> Iterator[int]:
    """Yields the nodes that a condition of this truth bounds.

    They are the sides of its comparisons and, for integers, the nodes from which these differ by a
    constant.
    """
    for node, _ in leaves(nodes, condition, truth):
        pending = list(node.operands)
        while pending:
            index = pending.pop()
            yield index
            if nodes[index].op in (Op.ADD, Op.SUB) and nodes[index].type.dtype.is_integer:
                pending.extend(nodes[index].operands)


def leaves(nodes: Sequence[Node], condition: int, truth: bool) -> Iterator[tuple[Node, bool]]:
    """Yields the comparisons that must have a truth for the condition to have this one."""
    node = nodes[condition]
    if node.op is Op.NOT:
        yield from leaves(nodes, node.operands[0], not truth)
    # Only these determine their operands: a false And says of neither operand that it is false.
    elif (node.op is Op.AND and truth) or (node.op is Op.OR and not truth):
        for operand in node.operands:
            yield from leaves(nodes, operand, truth)
    elif node.op in (Op.LT, Op.LE, Op.EQ):
        yield node, truth


def _facts(
    nodes: Sequence[Node], intervals: Sequence[Interval], condition: int, truth: bool
) -> Iterator[Fact]:
    for node, holds in leaves(nodes, condition, truth):
        left, right = node.operands
        # a < b of integers is a + 1 <= b.
        step = int(nodes[left].type.dtype.is_integer)
        if holds:
            is_strict = node.op is Op.LT
            yield Fact(left, right, step if is_strict else 0, True, is_strict=is_strict)
            # An equality is two inequalities; in floats 0.0 == -0.0, and intervals do not tell
            # zeros apart.
            if node.op is Op.EQ:
                yield Fact(right, left, 0, excludes_nan=True)
            continue
        # A comparison with NaN is false too: then its falsehood says nothing of the order.
        if node.op is not Op.EQ and not (intervals[left].maybe_nan or intervals[right].maybe_nan):
            is_strict = node.op is Op.LE
            yield Fact(right, left, step if is_strict else 0, True, is_strict=is_strict)


def _unequal(nodes: Sequence[Node], condition: int, truth: bool) -> Iterator[tuple[int, int]]:
    for node, holds in leaves(nodes, condition, truth):
        if node.op is Op.EQ and not holds:
            yield node.operands[0], node.operands[1]


def _narrow_by_fact(
    nodes: Sequence[Node],
    intervals: Sequence[Interval],
    fact: Fact,
    branch: int,
    interval: Interval | None,
) -> Interval | None:
    if interval is None:
        return None
    low, high, maybe_nan = interval.low, interval.high, interval.maybe_nan
    shift = _difference(nodes, intervals, branch, fact.lesser)
    if shift is not None:
        bound = intervals[fact.greater].high - fact.gap + shift
        high = min(high, _beside(bound, -1, nodes[branch], fact))
        maybe_nan = maybe_nan and not fact.excludes_nan
    shift = _difference(nodes, intervals, branch, fact.greater)
    if shift is not None:
        bound = intervals[fact.lesser].low + fact.gap + shift
        low = max(low, _beside(bound, 1, nodes[branch], fact))
        maybe_nan = maybe_nan and not fact.excludes_nan
    return Interval(low, high, maybe_nan) if low <= high else None


def _beside(bound: Bound, direction: int, node: Node, fact: Fact) -> Bound:
    """A bound, or the float next to it where a float is strictly outside of it."""
    dtype = node.type.dtype
    if not fact.is_strict or not dtype.is_float or math.isinf(bound):
        return bound
    return _next(bound, direction, node)


def _next(bound: Bound, direction: int, node: Node) -> float:
    """The least value of a node above a bound, or the largest one below it.

    A root that is not 0 is at least that of the smallest number, less an ulp or two.
    """
    kind = node.type.dtype.numpy.type
    with np.errstate(over="ignore"):
        neighbor = float(np.nextafter(kind(bound), kind(direction * math.inf)))
    if node.op is Op.SQRT and bound == 0 and direction > 0:
        return max(neighbor, math.sqrt(neighbor) / 2)
    return neighbor


def _trim_excluded(
    nodes: Sequence[Node],
    intervals: Sequence[Interval],
    value: int,
    excluded_index: int,
    branch: int,
    interval: Interval | None,
) -> Interval | None:
    """The interval without an end that the branch is known not to equal."""
    shift = _difference(nodes, intervals, branch, value)
    point = intervals[excluded_index]
    if interval is None or shift is None or point.low != point.high:
        return interval
    low, high = interval.ends
    if nodes[branch].type.dtype.is_float:
        if low == point.low and not point.maybe_nan:
            low = _next(low, 1, nodes[branch])
        if high == point.low and not point.maybe_nan:
            high = _next(high, -1, nodes[branch])
        return Interval(low, high, interval.maybe_nan) if low <= high else None
    low = low + 1 if low == point.low + shift else low
    high = high - 1 if high == point.low + shift else high
    return Interval(low, high) if low <= high else None


def _difference(
    nodes: Sequence[Node], intervals: Sequence[Interval], first: int, second: int
) -> int | None:
    """``first - second`` if it is one number that is known."""
    if first == second:
        return 0
    base, offset = _affine(nodes, intervals, first)
    other_base, other_offset = _affine(nodes, intervals, second)
    return offset - other_offset if base == other_base else None


def _affine(nodes: Sequence[Node], intervals: Sequence[Interval], index: int) -> tuple[int, int]:
    """A node and a number whose sum is this value, none of the additions between wrapping."""
    offset = 0
    while nodes[index].op in (Op.ADD, Op.SUB) and nodes[index].type.dtype.is_integer:
        step = constant_step(nodes[index], intervals)
        if step is None:
            return index, offset
        index, number = step
        offset += number
    return index, offset


def constant_step(node: Node, intervals: Sequence[Interval]) -> tuple[int, int] | None:
    """Returns (x, k) if the node is x + k or x - (-k), k is known, and nothing wraps."""
    left, right = node.operands
    sign = 1 if node.op is Op.ADD else -1
    candidates = [(left, right, sign)]
    if node.op is Op.ADD:
        candidates.append((right, left, sign))
    limits = full(node.type.dtype)
    for base, constant, factor in candidates:
        number = intervals[constant]
        if number.low != number.high:
            continue
        shift = factor * int(number.low)
        if (
            limits.low <= intervals[base].low + shift
            and intervals[base].high + shift <= limits.high
        ):
            return base, shift
    return None


Conditions = tuple[tuple[int, bool], ...]

# Factors of a product that are looked through.
_DEPTH = 6


def is_at_most(
    nodes: Sequence[Node],
    intervals: Sequence[Interval],
    conditions: Conditions,
    lesser: int,
    greater: int,
) -> bool:
    """Returns whether one float is shown to be at most another one; neither is NaN.

    Args:
        nodes: The nodes.
        intervals: Their intervals where the conditions hold, up to both nodes.
        conditions: Conditions with their truths.
        lesser: The one.
        greater: The other one.
    """
    if intervals[lesser].maybe_nan or intervals[greater].maybe_nan:
        return False
    if _below(nodes, intervals, lesser, greater, _DEPTH):
        return True
    facts = (fact for condition in conditions for fact in _orders(nodes, intervals, *condition))
    return any(
        upper == greater and _below(nodes, intervals, lesser, lower, _DEPTH)
        for lower, upper in facts
    )


def _orders(
    nodes: Sequence[Node], intervals: Sequence[Interval], condition: int, truth: bool
) -> Iterator[tuple[int, int]]:
    """The pairs (a, b) with a <= b that a condition gives."""
    for node, holds in leaves(nodes, condition, truth):
        if not holds or node.op not in (Op.LT, Op.LE):
            continue
        left, right = node.operands
        if max(left, right) >= len(intervals):
            continue
        yield left, right
        # fl(a - b) < 0 implies a < b: gradual underflow makes fl(a - b) 0 only where a == b, and
        # flushing to zero can only turn a negative difference into 0.
        if node.op is Op.LT and nodes[left].op is Op.SUB and intervals[right].high <= 0:
            yield nodes[left].operands[0], nodes[left].operands[1]
        if node.op is Op.LT and nodes[right].op is Op.SUB and intervals[left].low >= 0:
            yield nodes[right].operands[1], nodes[right].operands[0]


def _below(
    nodes: Sequence[Node], intervals: Sequence[Interval], lesser: int, greater: int, depth: int
) -> bool:
    """Whether the form of a value shows it to be at most another one."""
    if lesser == greater or intervals[lesser].high <= intervals[greater].low:
        return True
    node, greater_node = nodes[lesser], nodes[greater]
    if node.op is not Op.MUL or depth == 0 or intervals[lesser].has_infinity:
        return False
    for factor_node, cofactor in (node.operands, node.operands[::-1]):
        # c * r <= r for c in [0, 1] and r >= 0, also rounded: rounding is monotone and r is a
        # float.
        is_part = (
            0 <= intervals[factor_node].low
            and intervals[factor_node].high <= 1
            and intervals[cofactor].low >= 0
        )
        if is_part and _below(nodes, intervals, cofactor, greater, depth - 1):
            return True
        if greater_node.op is Op.MUL:
            for square_base, factor in (greater_node.operands, greater_node.operands[::-1]):
                # g * (c * g) <= g * g for c in [-1, 1].
                is_square = square_base == factor
                if (
                    cofactor == square_base
                    and is_square
                    and _shrinks(nodes, intervals, factor_node, factor, depth)
                ):
                    return True
    return False


def _shrinks(
    nodes: Sequence[Node], intervals: Sequence[Interval], index: int, of: int, depth: int
) -> bool:
    """Whether a value is another one times factors of at most 1 in size."""
    if index == of:
        return True
    node = nodes[index]
    if node.op is not Op.MUL or depth == 0:
        return False
    return any(
        -1 <= intervals[factor].low
        and intervals[factor].high <= 1
        and _shrinks(nodes, intervals, cofactor, of, depth - 1)
        for factor, cofactor in (node.operands, node.operands[::-1])
    )


__all__ = ["Conditions", "is_at_most"]
