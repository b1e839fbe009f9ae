"""Obligations of floats: nodes of a graph that may overflow or become NaN where it matters.

Over the real numbers a graph is finite wherever its formula is. In floats it may not be:
``exp(t) / (1 + exp(t))`` is NaN from t = 710 on. An obligation is a demand on a value that an
output needs, from which the demands on its operands follow (``OPERAND_DEMANDS``). It is met where
the intervals of ``ranges.py`` say so. Only what is taken counts: where the condition of a ``where``
is decided, the other branch is not needed; where it is not, each branch is looked at with the
intervals narrowed by the condition (``refine.py``).

An overflow counts as met where it cannot reach the value: as a divisor it gives 0, which is off
by less than the largest float's inverse times the dividend, and in comparisons, minima and maxima
an infinity stands in for any large number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum

import numpy as np

from closedform.ir.analysis.correlation import split_integers
from closedform.ir.analysis.interval import Interval, full
from closedform.ir.analysis.ranges import MIXES_ELEMENTS, Ranges
from closedform.ir.graph import Graph, Node
from closedform.ir.ops import MOVES, Op
from closedform.ir.types import DType

# Dividends up to this may have a divisor that overflows: their quotient is then below
# 2**-1000 in float64 and 2**-104 in float32, and counts as 0.
_LARGEST_DIVIDEND = 2.0**24


class Demand(IntEnum):
    """The requirement of the operation that uses a value."""

    NOTHING = 0
    NUMBER = 1  # an infinity in the place of a large number does no harm
    FINITE = 2


class ObligationKind(StrEnum):
    """How an obligation fails; the string says it in messages."""

    OVERFLOW = "overflows"
    NAN = "may be NaN"
    WRAP = "wraps around"
    CONVERSION = "converts a float that no integer holds"
    INEXACT = "compares or rounds down an integer that the float does not hold"
    SUBNORMAL = "depends on a subnormal number, which engines may flush to zero"


@dataclass(frozen=True, slots=True)
class Fault:
    """An obligation that is not met.

    Attributes:
        index: The node.
        kind: How it fails.
        interval: The interval of the node.
    """

    index: int
    kind: ObligationKind
    interval: Interval


def faults(
    graph: Graph, table: Ranges, *, limit: int = 64, all_finite: bool = False
) -> tuple[Fault, ...]:
    """Returns the obligations of the outputs of a graph that the intervals do not show to be met.

    Args:
        graph: The graph.
        table: The intervals of its nodes.
        limit: How many conditions, one in another, are looked at; beyond it branches count as
            taken at once.
        all_finite: Whether no infinity may stand in for a large number.

    Example:
        >>> from closedform import compile, schedules
        >>> graph = compile(schedules.cosine(1, 0, 100))
        >>> faults(graph, Ranges(graph.nodes, 2**50))
        ()
    """
    # All intervals first: ``table.where`` also reads the intervals of later nodes.
    for index in range(len(graph.nodes)):
        table.of(index)
    root = _Region(table, all_finite=all_finite)
    for output in graph.outputs:
        root.demand(output.index, Demand.FINITE)
    regions = [root]
    faults_by_place: dict[tuple[int, ObligationKind], Fault] = {}
    inexact = _inexact(graph.nodes, table.intervals)
    split = split_integers(graph.nodes) - {output.index for output in graph.outputs}
    while any(region.pending for region in regions):
        region = next(region for region in regions if region.pending)
        _visit(graph.nodes, region, regions, limit)
    for region in regions:
        for index, demand in enumerate(region.demands):
            kind = _fault(graph.nodes, region, index, demand, inexact)
            is_split = kind is ObligationKind.INEXACT and index in split
            if kind is not None and not is_split:
                faults_by_place.setdefault(
                    (index, kind), Fault(index, kind, region.table.intervals[index])
                )
    return tuple(faults_by_place[key] for key in sorted(faults_by_place))


@dataclass(slots=True)
class _Region:
    """Where some conditions hold: the intervals there, and the demands.

    Attributes:
        table: The intervals.
        parent: The region around it.
        all_finite: Whether each demand is for a finite number.
        demands: By node; computed from those in ``pending``, of which users may add more.
        inner: The regions in it by condition and truth; None where there is none.
    """

    table: Ranges
    parent: _Region | None = None
    all_finite: bool = False
    demands: list[Demand] = field(init=False)
    pending: set[int] = field(default_factory=set)
    inner: dict[tuple[int, bool], _Region | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.demands = [Demand.NOTHING] * len(self.table.nodes)

    def demand(self, index: int, demand: Demand) -> None:
        """Adds a demand, unless a region around this one has it, where the interval is wider."""
        if self.all_finite:
            # An infinity that is written as a constant has not overflowed.
            is_const = self.table.nodes[index].op is Op.CONST
            demand = Demand.NUMBER if is_const else Demand.FINITE
        region: _Region | None = self
        while region is not None:
            # Demands are ordered, so the strongest one covers the others.
            if region.demands[index] >= demand:
                return
            region = region.parent
        self.demands[index] = demand
        self.pending.add(index)

    @property
    def whole(self) -> _Region:
        """The nearest region around whose conditions hold for all elements at once."""
        region = self
        while region.table.elementwise and region.parent is not None:
            region = region.parent
        return region


def _visit(nodes: Sequence[Node], region: _Region, regions: list[_Region], limit: int) -> None:
    """Passes the demands of one region on, from the last node to the first."""
    intervals = region.table.intervals
    while region.pending:
        # Users have higher indices than operands: from the last node on, a demand is final when it
        # is visited.
        index = max(region.pending)
        region.pending.remove(index)
        node, demand = nodes[index], region.demands[index]
        if node.op is Op.WHERE:
            _visit_where(nodes, region, regions, index, limit)
            continue
        operands = tuple(intervals[operand] for operand in node.operands)
        place = region if node.op not in MIXES_ELEMENTS else region.whole
        for operand, operand_demand in zip(
            node.operands, operand_demands(node, demand, operands), strict=True
        ):
            place.demand(operand, operand_demand)


def _visit_where(
    nodes: Sequence[Node], region: _Region, regions: list[_Region], index: int, limit: int
) -> None:
    condition, *branches = nodes[index].operands
    demand = region.demands[index]
    region.demand(condition, Demand.NUMBER)
    condition_range = region.table.intervals[condition]
    for truth, branch in zip((True, False), branches, strict=True):
        # A decided condition: the other branch needs nothing.
        if condition_range.low == condition_range.high:
            if condition_range.low == truth:
                region.demand(branch, demand)
            continue
        key = condition, truth
        # Each region costs a pass over the nodes; without a limit, nested conditions make it
        # quadratic.
        if key not in region.inner and len(regions) >= limit:
            region.demand(branch, demand)
            continue
        if key not in region.inner:
            inner_table = region.table.where(condition, truth)
            region.inner[key] = (
                None if inner_table is None else _Region(inner_table, region, region.all_finite)
            )
            regions.extend(filter(None, [region.inner[key]]))
        inside = region.inner[key]
        if inside is not None:
            inside.demand(branch, demand)


# --- what an op needs of its operands ----------------------------------------------------------

DemandRule = Callable[[Node, Demand, tuple[Interval, ...]], tuple[Demand, ...]]


def operand_demands(
    node: Node, demand: Demand, operands: tuple[Interval, ...]
) -> tuple[Demand, ...]:
    """Returns the demands on the operands of a node on whose value there is a demand."""
    need = OPERAND_DEMANDS.get(node.op)
    return (Demand.FINITE,) * len(operands) if need is None else need(node, demand, operands)


def _pass_demand(_: Node, demand: Demand, operands: tuple[Interval, ...]) -> tuple[Demand, ...]:
    return (demand,) * len(operands)


def _number(_: Node, __: Demand, operands: tuple[Interval, ...]) -> tuple[Demand, ...]:
    return (Demand.NUMBER,) * len(operands)


def _sum(node: Node, demand: Demand, operands: tuple[Interval, ...]) -> tuple[Demand, ...]:
    """An infinity that is added to numbers far below the largest one stands for a large number."""
    if not node.type.dtype.is_float:
        return _pass_demand(node, demand, operands)
    # A true value beyond max plus at most max / 4 in size is beyond 3/4 max: still "large",
    # whatever is added.
    bound = float(np.finfo(node.type.dtype.numpy).max) / 4
    first, second = (_most(operand) <= bound for operand in operands)
    return (
        demand if second else Demand.FINITE,
        demand if first else Demand.FINITE,
    )


def _product(_: Node, demand: Demand, operands: tuple[Interval, ...]) -> tuple[Demand, ...]:
    """An infinity times a number below 1 in size may stand for any number."""
    first, second = (_least(operand) >= 1 for operand in operands)
    return (demand if second else Demand.FINITE, demand if first else Demand.FINITE)


def _quotient(_: Node, demand: Demand, operands: tuple[Interval, ...]) -> tuple[Demand, ...]:
    above, below = operands
    return (
        demand if _most(below) <= 1 else Demand.FINITE,
        Demand.NUMBER if _most(above) <= _LARGEST_DIVIDEND else Demand.FINITE,
    )


def _most(interval: Interval) -> float:
    return float(max(abs(interval.low), abs(interval.high)))


def _least(interval: Interval) -> float:
    return float(max(interval.low, -interval.high, 0))


def _cast(node: Node, demand: Demand, _: tuple[Interval, ...]) -> tuple[Demand, ...]:
    dtype = node.type.dtype
    if dtype.is_float:
        return (demand,)
    return (Demand.NUMBER if dtype is DType.BOOL else Demand.FINITE,)


OPERAND_DEMANDS: Mapping[Op, DemandRule] = {
    Op.ADD: _sum,
    Op.SUB: _sum,
    Op.MUL: _product,
    Op.DIV: _quotient,
    Op.MIN: _number,
    Op.MAX: _number,
    # exp of an infinity in the place of a large number is inf or 0, as exp of that number.
    Op.EXP: _number,
    Op.LT: _number,
    Op.LE: _number,
    Op.EQ: _number,
    Op.AND: _number,
    Op.OR: _number,
    Op.NOT: _number,
    Op.CAST: _cast,
    **dict.fromkeys((Op.NEG, Op.ABS, Op.WHERE, Op.REDUCE_SUM, Op.REDUCE_MAX, *MOVES), _pass_demand),
}
"""The demands on the operands that follow from the demand on the result.

An op without a row needs finite operands, whatever is needed of its result.
"""

# --- which demands are not met ------------------------------------------------------------------

_DISCRETE = frozenset({Op.FLOOR, Op.FLOOR_MOD, Op.LT, Op.LE, Op.EQ})
_WRAPS = frozenset({Op.ADD, Op.SUB, Op.MUL, Op.NEG, Op.ABS, Op.FLOOR_DIV, Op.REDUCE_SUM, Op.CAST})


def _fault(
    nodes: Sequence[Node], region: _Region, index: int, demand: Demand, inexact: frozenset[int]
) -> ObligationKind | None:
    if demand is Demand.NOTHING:
        return None
    node, interval = nodes[index], region.table.intervals[index]
    dtype = node.type.dtype
    if dtype.is_float and interval.maybe_nan:
        return ObligationKind.NAN
    if dtype.is_float and interval.has_infinity and demand is Demand.FINITE:
        return ObligationKind.OVERFLOW
    if dtype.is_integer and node.op in _WRAPS and interval == full(dtype):
        is_from_float = node.op is Op.CAST and nodes[node.operands[0]].type.dtype.is_float
        return ObligationKind.CONVERSION if is_from_float else ObligationKind.WRAP
    is_decided = not dtype.is_float and interval.low == interval.high
    is_discrete = node.op in _DISCRETE or (node.op is Op.CAST and not dtype.is_float)
    if is_discrete and not is_decided and not inexact.isdisjoint(node.operands):
        return ObligationKind.INEXACT
    return None


def _inexact(nodes: Sequence[Node], intervals: Sequence[Interval]) -> frozenset[int]:
    """Floats that may come from an integer that they do not hold."""
    inexact_nodes: set[int] = set()
    for index, node in enumerate(nodes):
        if not node.type.dtype.is_float:
            continue
        if node.op is Op.CAST and nodes[node.operands[0]].type.dtype.is_integer:
            # Integers up to 2**53 are float64, up to 2**24 float32; beyond, every second one is
            # missing.
            bits = np.finfo(node.type.dtype.numpy).nmant + 1
            if _most(intervals[node.operands[0]]) > 2.0**bits:
                inexact_nodes.add(index)
        elif not inexact_nodes.isdisjoint(node.operands):
            inexact_nodes.add(index)
    return frozenset(inexact_nodes)


__all__ = ["OPERAND_DEMANDS", "Demand", "Fault", "ObligationKind", "faults", "operand_demands"]
