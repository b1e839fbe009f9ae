"""Order: floats of which one is at most the other, by their form and by conditions that hold.

Rounding is monotone, and so is flushing of subnormal numbers to zero: a product with a factor of
at most 1 in size is at most the other factor in size, rounded too, and ``a - b < 0`` in floats
holds only where ``a < b``. Intervals do not see it: ``v - c*g*g`` is not negative where
``g*g < v`` and c is in [0, 1].
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from closedform.ir.analysis.interval import Interval
from closedform.ir.analysis.refine import leaves
from closedform.ir.graph import Node
from closedform.ir.ops import Op

Conditions = tuple[tuple[int, bool], ...]

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
    facts = (fact for condition in conditions for fact in _facts(nodes, intervals, *condition))
    return any(
        upper == greater and _below(nodes, intervals, lesser, lower, _DEPTH)
        for lower, upper in facts
    )


def _facts(
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
    for factor_node, rest in (node.operands, node.operands[::-1]):
        is_part = (
            0 <= intervals[factor_node].low
            and intervals[factor_node].high <= 1
            and intervals[rest].low >= 0
        )
        if is_part and _below(nodes, intervals, rest, greater, depth - 1):
            return True
        if greater_node.op is Op.MUL:
            for square_base, factor in (greater_node.operands, greater_node.operands[::-1]):
                is_square = square_base == factor
                if (
                    rest == square_base
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
        and _shrinks(nodes, intervals, rest, of, depth - 1)
        for factor, rest in (node.operands, node.operands[::-1])
    )


__all__ = ["Conditions", "is_at_most"]
