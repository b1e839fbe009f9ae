"""Interval analysis: bounds on every value of a graph, whatever the inputs.

Invariant: for every input that the graph is defined on, each element of a node's value that is not
NaN is in ``[low, high]``, and where ``maybe_nan`` is False none is NaN. Integers and bools (0, 1)
have exact integer bounds; an operation that may wrap has the full range of its dtype
(``interval.exact``). Cost: one visit a node.

The step is in [step_min, step_max]; of other inputs that is known which is given. Conditions
refine: in ``where(lt(x, 5), x - 2, b)`` the first branch counts as at most 2 (``refine.py``).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from closedform.ir import draws
from closedform.ir.analysis.correlation import (
    interval_of_sum,
    part_of,
    quotient_bound,
    rounding_of_integer,
)
from closedform.ir.analysis.interval import (
    ARITHMETIC,
    Interval,
    Operands,
    exact,
    flush_subnormals,
    full,
    hull,
    sum_of_floats,
)
from closedform.ir.analysis.refine import Conditions, compared_nodes, is_at_most, refine
from closedform.ir.analysis.spectra import Spectra
from closedform.ir.evaluate import STEP_MAX
from closedform.ir.graph import Graph, Node, Role
from closedform.ir.ops import MOVES, Op
from closedform.ir.types import DType, convert

RangeRule = Callable[["Ranges", Node, Operands], Interval]

# Bounds of the effort: factors of a product, conditions in one another, nodes behind a branch that
# are computed again. Without the last two, the cost would be nodes × conditions.
_MAX_FACTORS = 8
_MAX_DEPTH = 2
_FEW_NODES = 200

MIXES_ELEMENTS = MOVES | {Op.REDUCE_SUM, Op.REDUCE_MAX, Op.MATMUL, Op.LOOKUP}
"""Ops whose result has at a place what an operand has at another one."""


@dataclass(slots=True)
class Ranges:
    """Intervals of the nodes of a graph that may still grow.

    Attributes:
        nodes: The nodes, in topological order; more may be appended.
        step_max: The largest step.
        intervals: Intervals of the first nodes.
        step_min: The smallest step.
        input_ranges: Intervals of inputs by name, in place of the ranges of their dtypes.
        flushes: True if engines may replace a subnormal result by zero.
        elementwise: Nodes whose interval holds only for those elements at which conditions hold.
        depth: How many conditions are assumed.
        conditions: The conditions that are assumed, with their truths.
    """

    nodes: Sequence[Node]
    step_max: int = STEP_MAX
    intervals: list[Interval] = field(default_factory=list)
    step_min: int = 0
    input_ranges: Mapping[str, Interval] = field(default_factory=dict)
    flushes: bool = False
    elementwise: frozenset[int] = frozenset()
    depth: int = 0
    conditions: Conditions = ()
    _spectra: Spectra | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        # The table of a branch starts from the intervals of the table around it, norms included.
        if self.flushes and not self.conditions and any(n.op is Op.MATMUL for n in self.nodes):
            self._spectra = Spectra(self.nodes)

    def of(self, index: int) -> Interval:
        """Returns the interval of a node; those before it are computed once."""
        while len(self.intervals) <= index:
            self.intervals.append(self.bound(self.nodes[len(self.intervals)]))
            if self._spectra is not None:
                self._narrow(self._spectra)
        return self.intervals[index]

    def _narrow(self, spectra: Spectra) -> None:
        """Narrows the interval of the last node to the norm of a matrix."""
        size = spectra.bound(len(self.intervals) - 1, self.intervals)
        if size is not None:
            interval = Interval(
                max(self.intervals[-1].low, -size), min(self.intervals[-1].high, size)
            )
            self.intervals[-1] = interval

    def bound(self, node: Node) -> Interval:
        """Returns the interval of a node, which need not be one of the graph, on earlier ones."""
        operands = tuple(self.of(operand) for operand in node.operands)
        interval = RULES[node.op](self, node, operands)
        if not self.flushes or not node.type.dtype.is_float:
            return interval
        left = left_without(self.nodes, node)
        if left is not None:
            # Both results are possible, that of the op and that of an engine that removed it.
            interval = hull([interval, self.of(left)])
        return flush_subnormals(interval, node.type.dtype)

    def where(self, condition: int, truth: bool, last: int | None = None) -> Ranges | None:
        """Returns the intervals where a condition has a truth; None where it never has.

        A condition on tensors holds element by element. Where elements meet (sums, products of
        matrices), what is known of those at which it holds says nothing of the others.

        Args:
            condition: Index of the condition.
            truth: Its truth.
            last: The last node whose interval is wanted; that of all if not given.
        """
        nodes = self.nodes if last is None else self.nodes[: last + 1]
        intervals: list[Interval] = []
        bounded_nodes = frozenset(compared_nodes(self.nodes, condition, truth))
        is_scalar = all(not self.nodes[index].type.shape for index in bounded_nodes)
        changed_nodes: set[int] = set()
        elementwise = set(self.elementwise)
        inner = Ranges(
            self.nodes,
            self.step_max,
            intervals,
            self.step_min,
            self.input_ranges,
            self.flushes,
            depth=self.depth + 1,
            conditions=(*self.conditions, (condition, truth)),
        )
        negatives = _negatives(self.nodes, bounded_nodes)
        for index, node in enumerate(nodes):
            interval = self.intervals[index]
            is_mixed = node.op in MIXES_ELEMENTS and not elementwise.isdisjoint(node.operands)
            # The condition may order the operands of a difference, whose ranges stay the same.
            is_difference = self.flushes and node.op is Op.SUB and interval.low < 0
            if (is_difference or not changed_nodes.isdisjoint(node.operands)) and not is_mixed:
                # Both intervals are sound, so their intersection is; where it is empty the branch
                # is never taken, and the wider one does no harm.
                interval = intersection(interval, inner.bound(node)) or interval
            if index == condition:
                interval = Interval(int(truth), int(truth))
            if index in bounded_nodes:
                narrower = refine(self.nodes, self.intervals, condition, truth, index)
                meet = None if narrower is None else intersection(interval, narrower)
                if meet is None:
                    return None
                interval = meet
            if index in negatives:
                narrower = refine(self.nodes, self.intervals, condition, truth, negatives[index])
                if narrower is not None:
                    negative = Interval(-narrower.high, -narrower.low, narrower.maybe_nan)
                    interval = intersection(interval, negative) or interval
            intervals.append(interval)
            is_new = interval != self.intervals[index]
            if is_new:
                changed_nodes.add(index)
            depends = not is_mixed and not elementwise.isdisjoint(node.operands)
            if depends or (is_new and not is_scalar):
                elementwise.add(index)
        inner.elementwise = frozenset(elementwise)
        return inner


_NEUTRAL = {Op.ADD: 0.0, Op.SUB: 0.0, Op.MUL: 1.0, Op.DIV: 1.0}


def left_without(nodes: Sequence[Node], node: Node) -> int | None:
    """Returns the operand that is left where an engine takes a constant for neutral, else None.

    onnxruntime 1.31 removes an addition of a float64 that is 0 as a float32, such as 1e-50, and a
    product with one that is 1 as a float32 (its NoopElimination): the value is then the operand.
    """
    neutral = _NEUTRAL.get(node.op)
    if neutral is None or node.type.dtype is not DType.F64:
        return None
    first, second = node.operands
    places = (
        [(first, second)] if node.op in (Op.SUB, Op.DIV) else [(first, second), (second, first)]
    )
    for remaining, constant in places:
        inner = nodes[constant]
        if inner.op is Op.CONST and inner.array().size == 1:
            number = float(inner.array().ravel()[0])
            # A cheap test first; the conversion to float32 decides.
            is_near = 0 < abs(number - neutral) < 1e-6
            if is_near and float(np.float32(number)) == neutral:
                return remaining
    return None


def _negatives(nodes: Sequence[Node], bounded_nodes: frozenset[int]) -> dict[int, int]:
    """The differences of floats ``b - a`` by the bounded node ``a - b``, their negative."""
    differences = {
        nodes[index].operands[::-1]: index
        for index in bounded_nodes
        if nodes[index].op is Op.SUB and nodes[index].type.dtype.is_float
    }
    if not differences:
        return {}
    return {
        index: differences[node.operands]
        for index, node in enumerate(nodes)
        if node.op is Op.SUB and node.operands in differences
    }


def intersection(first: Interval, second: Interval) -> Interval | None:
    """Returns the interval of what is in both; None where nothing is."""
    low, high = max(first.low, second.low), min(first.high, second.high)
    return Interval(low, high, first.maybe_nan and second.maybe_nan) if low <= high else None


def ranges(graph: Graph, step_max: int = STEP_MAX) -> tuple[Interval, ...]:
    """Returns an interval for each node of a graph.

    Args:
        graph: A graph whose types are right; ``check`` calls this function.
        step_max: The largest step that the graph will be given, at most 2**53.
    """
    table = Ranges(graph.nodes, step_max)
    return tuple(table.of(index) for index in range(len(graph.nodes)))


def _input(table: Ranges, node: Node, _: Operands) -> Interval:
    unknown = full(node.type.dtype)
    if node.attribute("role") is not Role.STEP or not node.type.dtype.is_integer:
        return table.input_ranges.get(node.attribute("name"), unknown)
    return Interval(table.step_min, min(table.step_max, unknown.high))


def _const(_: Ranges, node: Node, __: Operands) -> Interval:
    return _of_array(node.array(), node.type.dtype)


def _of_array(array: Any, dtype: DType) -> Interval:
    if not dtype.is_float:
        return Interval(int(array.min()), int(array.max())) if array.size else full(dtype)
    wide = array.astype(np.float64)
    is_nan = np.isnan(wide)
    numbers = wide[~is_nan]
    if not numbers.size:
        return full(dtype)
    return Interval(float(numbers.min()), float(numbers.max()), bool(is_nan.any()))


def _where(table: Ranges, node: Node, operands: Operands) -> Interval:
    condition = operands[0]
    _, then, otherwise = node.operands
    branches = []
    # [0, 1] is open: then both branches are possible.
    if condition.high:
        branches.append(_branch(table, node.operands[0], True, then))
    if not condition.low:
        branches.append(_branch(table, node.operands[0], False, otherwise))
    possible = [branch for branch in branches if branch is not None]
    return hull(possible) if possible else full(node.type.dtype)


def _branch(table: Ranges, condition: int, truth: bool, branch: int) -> Interval | None:
    """The interval of a branch where it is taken.

    In an analysis of floats one that may be NaN or infinite, and one whose condition is a scalar,
    is computed again for there.
    """
    interval = refine(table.nodes, table.intervals, condition, truth, branch)
    is_open = interval is not None and (
        interval.maybe_nan
        or interval.has_infinity
        or (not table.nodes[condition].type.shape and branch < _FEW_NODES)
    )
    is_undecided = table.intervals[condition].low != table.intervals[condition].high
    if not (table.flushes and is_open and is_undecided) or table.depth >= _MAX_DEPTH:
        return interval
    inner = table.where(condition, truth, branch)
    if inner is None or interval is None:
        return None
    return intersection(interval, inner.intervals[branch])


def _cast(table: Ranges, node: Node, operands: Operands) -> Interval:
    (operand,) = operands
    source, target = table.nodes[node.operands[0]].type.dtype, node.type.dtype
    if target is DType.BOOL:
        is_zero = operand.low == operand.high == 0 and not operand.maybe_nan
        return Interval(int(not operand.contains(0)), int(not is_zero))
    if not target.is_integer:
        # Rounding to a narrower dtype is monotone: the rounded ends bound the rounded values.
        low, high = (float(convert(np.asarray(e, source.numpy), target)) for e in operand.ends)
        return Interval(low, high, operand.maybe_nan)
    # C, NumPy and onnxruntime convert NaN and infinities to different integers.
    if operand.maybe_nan or operand.has_infinity:
        return full(target)
    return exact(math.trunc(operand.low), math.trunc(operand.high), target)


def _reduce_sum(table: Ranges, node: Node, operands: Operands) -> Interval:
    (operand,) = operands
    shape = table.nodes[node.operands[0]].type.shape
    reduced_dims = [shape[axis] for axis in node.attribute("axes")]
    dtype = node.type.dtype
    if not reduced_dims:
        return operand
    if dtype.is_float:
        return sum_of_floats(operand, reduced_dims, node)
    if any(isinstance(dim, str) for dim in reduced_dims):
        return full(dtype)
    count = math.prod(int(dim) for dim in reduced_dims)
    # Partial sums may wrap and come back, since addition is modular: only the total has to fit.
    return exact(int(operand.low * count), int(operand.high * count), dtype)


def _lookup(table: Ranges, node: Node, operands: Operands) -> Interval:
    entries, index = operands
    source = table.nodes[node.operands[0]]
    if source.op is not Op.CONST:
        return entries
    array = source.array()
    # Only the entries that the index can reach.
    values = array[max(int(index.low), 0) : max(int(index.high) + 1, 0)]
    return _of_array(values if values.size else array, node.type.dtype)


def _sum(table: Ranges, node: Node, operands: Operands) -> Interval:
    interval = ARITHMETIC[node.op](node, operands)
    if not node.type.dtype.is_float:
        error = rounding_of_integer(table.nodes, table.intervals, node)
        return interval if error is None else Interval(-error, error)
    if interval.maybe_nan or interval.has_infinity:
        return interval
    if node.op is Op.SUB and interval.low < 0 and table.flushes:
        larger, smaller = node.operands
        if is_at_most(table.nodes, table.intervals, table.conditions, smaller, larger):
            interval = Interval(0.0, interval.high)
    combined_interval = interval_of_sum(table.nodes, table.intervals, node)
    if combined_interval is None:
        return interval
    low, high = max(interval.low, combined_interval.low), min(interval.high, combined_interval.high)
    return Interval(low, high)


def _div(table: Ranges, node: Node, operands: Operands) -> Interval:
    """A part of a sum, mean or norm divided by it is bounded, rounded."""
    interval = ARITHMETIC[Op.DIV](node, operands)
    dividend, divisor = node.operands
    if operands[1].low < 0:
        return interval
    factor = part_of(table.nodes, table.intervals, dividend, divisor)
    if factor is None:
        return interval
    bound = factor * quotient_bound(table.nodes, divisor)
    maybe_nan = interval.maybe_nan and (operands[1].low <= 0 or operands[1].has_infinity)
    return Interval(max(interval.low, -bound), min(interval.high, bound), maybe_nan)


def _matmul(table: Ranges, node: Node, operands: Operands) -> Interval:
    """As many products as the inner size, rounded in any order."""
    count = table.nodes[node.operands[0]].type.shape[-1]
    first, second = operands
    dtype = node.type.dtype
    size = _size(first) * _size(second)
    if isinstance(count, str) or first.maybe_nan or second.maybe_nan or not math.isfinite(size):
        return full(dtype)
    # A dot product of count terms, in any order and with or without FMA: Higham's gamma_n with a
    # factor 4 to spare; 1e-30 covers terms that underflow.
    bound = size * count * (1 + 4 * count * float(np.finfo(dtype.numpy).eps)) + 1e-30
    low = 0.0 if first.low >= 0 and second.low >= 0 else -bound
    return Interval(low, bound) if bound <= float(np.finfo(dtype.numpy).max) / 2 else full(dtype)


def _size(interval: Interval) -> float:
    return float(max(abs(interval.low), abs(interval.high)))


def _mul(table: Ranges, node: Node, operands: Operands) -> Interval:
    """A product whose factors below zero occur in pairs is not negative: ``(c * x) * x``."""
    interval = ARITHMETIC[Op.MUL](node, operands)
    if not node.type.dtype.is_float or interval.low >= 0:
        return interval
    counts = _factors(table.nodes, node)
    # Each even power is >= 0, and rounding, underflow and NaN do not make a product negative.
    is_squared = all(count % 2 == 0 or table.of(i).low >= 0 for i, count in counts.items())
    return Interval(0.0, interval.high, interval.maybe_nan) if is_squared else interval


def _factors(nodes: Sequence[Node], node: Node) -> Counter[int]:
    """The nodes whose product a node is, with their numbers; roundings keep the sign."""
    counts: Counter[int] = Counter()
    pending = list(node.operands)
    while pending:
        index = pending.pop()
        inner = nodes[index]
        if inner.op is Op.MUL and len(pending) + counts.total() < _MAX_FACTORS:
            pending.extend(inner.operands)
        else:
            counts[index] += 1
    return counts


def _arithmetic(op: Op) -> RangeRule:
    def rule(_: Ranges, node: Node, operands: Operands) -> Interval:
        return ARITHMETIC[op](node, operands)

    return rule


def _uniform(_: Ranges, __: Node, ___: Operands) -> Interval:
    return Interval(0.0, 1 - 2.0**-draws.BITS)


RULES: Mapping[Op, RangeRule] = {
    **{op: _arithmetic(op) for op in ARITHMETIC},
    Op.ADD: _sum,
    Op.SUB: _sum,
    Op.MUL: _mul,
    Op.DIV: _div,
    Op.MATMUL: _matmul,
    Op.INPUT: _input,
    Op.CONST: _const,
    Op.WHERE: _where,
    Op.CAST: _cast,
    Op.REDUCE_SUM: _reduce_sum,
    **dict.fromkeys((Op.REDUCE_MAX, *MOVES), lambda _, __, operands: hull(operands)),
    Op.LOOKUP: _lookup,
    Op.UNIFORM: _uniform,
}
"""How each op maps the intervals of its operands to that of its result."""
