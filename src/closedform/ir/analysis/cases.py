"""Cases: what intervals do not show at once may be shown in each of a few cases.

``where`` with an undecided condition has the hull of its branches. In each case the conditions of
some ``where`` have one truth, and the nodes are bounded again. A condition on tensors holds element
by element: each element is in one of the cases.

In a case, values that are equal there have one interval: where x is 0, ``max(a, x)`` and
``max(a, 0)`` are the same operation on the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from closedform.ir.analysis.interval import Interval, hull
from closedform.ir.analysis.obligations import Fault, ObligationKind, faults
from closedform.ir.analysis.ranges import Ranges, intersection
from closedform.ir.graph import Graph, Node
from closedform.ir.ops import Op

# The last four open conditions, the nearest to the fault, and at most 32 cases: 2**4 and the
# alternatives of or.
_CONDITIONS = 4
_CASES = 32
_POLES = (Op.DIV, Op.POW)


def faults_by_cases(graph: Graph, table: Ranges, *, all_finite: bool = False) -> tuple[Fault, ...]:
    """Returns the obligations that the intervals do not show to be met, not even in cases.

    Args:
        graph: The graph.
        table: The intervals of its nodes.
        all_finite: Whether no infinity may stand in for a large number.
    """
    open_ = faults(graph, table, all_finite=all_finite)
    if not open_:
        return ()
    parts = cases(table, _conditions(graph.nodes, table, {fault.index for fault in open_}))
    if len(parts) <= 1:
        return open_
    faults_by_place: dict[tuple[int, ObligationKind], Fault] = {}
    for part in parts:
        for fault in faults(graph, part, all_finite=all_finite):
            faults_by_place.setdefault((fault.index, fault.kind), fault)
    return tuple(faults_by_place[key] for key in sorted(faults_by_place))


def bound_by_cases(table: Ranges, index: int) -> Interval:
    """Returns an interval of a node: the hull of those in cases."""
    whole = table.of(index)
    parts = cases(table, _conditions(table.nodes, table, {index}))
    return intersection(whole, hull([part.of(index) for part in parts])) or whole


def cases(table: Ranges, conditions: Sequence[int]) -> list[Ranges]:
    """Returns the intervals in each case of the conditions; all values are in one of them.

    Args:
        table: The intervals.
        conditions: Nodes of bools.
    """
    for index in range(len(table.nodes)):
        table.of(index)
    parts = [table]
    for condition in conditions:
        following = []
        for part in parts:
            truth_range = part.intervals[condition]
            if truth_range.low == truth_range.high or len(parts) > _CASES:
                following.append(part)
                continue
            for truth in (True, False):
                # A true "or" narrows nothing as a whole; one of its operands holds, so it is split
                # further.
                for fact, holds in _alternatives(table.nodes, condition, truth):
                    inner = part.where(fact, holds)
                    if inner is not None:
                        inner.depth = table.depth
                        following.append(_congruent(inner))
        parts = following or [table]
    return parts


def _alternatives(nodes: Sequence[Node], condition: int, truth: bool) -> list[tuple[int, bool]]:
    """Conditions with truths one of which holds where the condition has its truth."""
    node = nodes[condition]
    if node.op is Op.NOT:
        return _alternatives(nodes, node.operands[0], not truth)
    if (node.op is Op.OR and truth) or (node.op is Op.AND and not truth):
        return [
            alternative
            for part in node.operands
            for alternative in _alternatives(nodes, part, truth)
        ]
    return [(condition, truth)]


def _conditions(nodes: Sequence[Node], table: Ranges, indices: Iterable[int]) -> list[int]:
    """The conditions that are not decided of the ``where`` on which nodes depend."""
    seen_nodes: set[int] = set()
    pending = list(indices)
    while pending:
        index = pending.pop()
        if index not in seen_nodes:
            seen_nodes.add(index)
            pending.extend(nodes[index].operands)
    choices = dict.fromkeys(
        nodes[index].operands[0] for index in sorted(seen_nodes) if nodes[index].op is Op.WHERE
    )
    open_conditions = [
        choice for choice in choices if table.intervals[choice].low != table.intervals[choice].high
    ]
    return open_conditions[-_CONDITIONS:]


def _congruent(table: Ranges) -> Ranges:
    """The intervals, met over nodes that are the same operation on equal numbers.

    Numbers that are known are equal up to the sign of zero, which only a pole at zero shows.
    """
    # Elements of one tensor are in different cases: equal intervals do not make equal elements.
    if table.elementwise:
        return table
    nodes, intervals = table.nodes, table.intervals
    leaders: dict[object, int] = {}
    classes: list[int] = []
    for index, node in enumerate(nodes):
        interval = intervals[index]
        key: object = (
            node.op,
            node.attributes,
            tuple(classes[operand] for operand in node.operands),
        )
        is_point = interval.low == interval.high and not interval.maybe_nan
        if is_point and not node.type.shape:
            key = ("number", node.type, interval.low)
        # 1 / 0.0 and 1 / -0.0 differ, although 0.0 == -0.0.
        elif node.op in _POLES and any(intervals[operand].contains(0) for operand in node.operands):
            key = index
        leader = leaders.setdefault(key, index)
        classes.append(leader)
        meet = intersection(intervals[leader], interval)
        intervals[leader] = intervals[index] = interval if meet is None else meet
    for index, node in enumerate(nodes):
        if node.op not in (Op.INPUT, Op.CONST):
            meet = intersection(intervals[index], intervals[classes[index]])
            interval = intervals[index] if meet is None else meet
            intervals[index] = intersection(interval, table.bound(node)) or interval
    return table


__all__ = ["bound_by_cases", "cases", "faults_by_cases"]
