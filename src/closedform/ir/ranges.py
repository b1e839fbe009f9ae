"""Interval analysis: bounds on every value of a graph, whatever the inputs.

Invariant: for every input that the graph is defined on, each element of a node's value that is not
NaN is in ``[low, high]``, and where ``maybe_nan`` is False none is NaN. Integers and bools (0, 1)
have exact integer bounds; an operation that may wrap has the full range of its dtype
(``arithmetic.py``). Cost: one visit a node.

The step is in [0, step_max]; nothing is known of other inputs. Conditions refine: in
``where(lt(x, 5), x - 2, b)`` the first branch counts as at most 2 (``refine.py``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from closedform.ir.arithmetic import ARITHMETIC, Operands, exact, sum_of_floats
from closedform.ir.evaluate import STEP_MAX, convert
from closedform.ir.graph import Graph, Node, Role
from closedform.ir.interval import Interval, full, hull
from closedform.ir.ops import Op
from closedform.ir.refine import refine
from closedform.ir.types import DType

Rule = Callable[["Ranges", Node, Operands], Interval]


@dataclass(slots=True)
class Ranges:
    """Intervals of the nodes of a graph that may still grow.

    Attributes:
        nodes: The nodes, in topological order; more may be appended.
        step_max: The largest step.
        known: Intervals of the first nodes.
    """

    nodes: Sequence[Node]
    step_max: int = STEP_MAX
    known: list[Interval] = field(default_factory=list)

    def of(self, index: int) -> Interval:
        """Returns the interval of a node; those before it are computed once."""
        while len(self.known) <= index:
            self.known.append(self.bound(self.nodes[len(self.known)]))
        return self.known[index]

    def bound(self, node: Node) -> Interval:
        """Returns the interval of a node, which need not be one of the graph, on earlier ones."""
        operands = tuple(self.of(operand) for operand in node.operands)
        return RULES[node.op](self, node, operands)


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
        return unknown
    return Interval(0, min(table.step_max, unknown.high))


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
    _, then, other = node.operands
    branches = []
    if condition.high:
        branches.append(refine(table.nodes, table.known, node.operands[0], True, then))
    if not condition.low:
        branches.append(refine(table.nodes, table.known, node.operands[0], False, other))
    possible = [branch for branch in branches if branch is not None]
    return hull(possible) if possible else full(node.type.dtype)


def _cast(table: Ranges, node: Node, operands: Operands) -> Interval:
    (operand,) = operands
    source, target = table.nodes[node.operands[0]].type.dtype, node.type.dtype
    if target is DType.BOOL:
        is_zero = operand.low == operand.high == 0 and not operand.maybe_nan
        return Interval(int(not operand.contains(0)), int(not is_zero))
    if not target.is_integer:
        low, high = (float(convert(np.asarray(e, source.numpy), target)) for e in operand.ends)
        return Interval(low, high, operand.maybe_nan)
    if operand.maybe_nan or operand.has_infinity:
        return full(target)
    return exact(math.trunc(operand.low), math.trunc(operand.high), target)


def _reduce_sum(table: Ranges, node: Node, operands: Operands) -> Interval:
    (operand,) = operands
    shape = table.nodes[node.operands[0]].type.shape
    reduced = [shape[axis] for axis in node.attribute("axes")]
    dtype = node.type.dtype
    if not reduced:
        return operand
    if dtype.is_float:
        return sum_of_floats(operand, reduced, node)
    if any(isinstance(dim, str) for dim in reduced):
        return full(dtype)
    count = math.prod(int(dim) for dim in reduced)
    return exact(int(operand.low * count), int(operand.high * count), dtype)


def _same(_: Ranges, __: Node, operands: Operands) -> Interval:
    return operands[0]


def _lookup(table: Ranges, node: Node, operands: Operands) -> Interval:
    entries, index = operands
    source = table.nodes[node.operands[0]]
    if source.op is not Op.CONST:
        return entries
    array = source.array()
    reached = array[max(int(index.low), 0) : max(int(index.high) + 1, 0)]
    return _of_array(reached if reached.size else array, node.type.dtype)


def _arithmetic(op: Op) -> Rule:
    def rule(_: Ranges, node: Node, operands: Operands) -> Interval:
        return ARITHMETIC[op](node, operands)

    return rule


RULES: Mapping[Op, Rule] = {
    **{op: _arithmetic(op) for op in ARITHMETIC},
    Op.INPUT: _input,
    Op.CONST: _const,
    Op.WHERE: _where,
    Op.CAST: _cast,
    Op.REDUCE_SUM: _reduce_sum,
    Op.REDUCE_MAX: _same,
    Op.TRANSPOSE: _same,
    Op.RESHAPE: _same,
    Op.BROADCAST_TO: _same,
    Op.LOOKUP: _lookup,
}
"""How each op maps the intervals of its operands to that of its result."""
