"""Rebuilding a graph with a rule that may replace each node; fold, share, and passes in a row.

A rule sees a node whose operands are rewritten already and returns the value that replaces it, or
None. What a rule builds with ``Rewriter.emit`` is rewritten by the same rule, so every node of the
new graph is one that the rule leaves unchanged: a second run changes nothing. For that to hold a
rule depends on nothing but the node, the nodes behind it and their intervals, and it terminates.
``Fold`` and ``Share`` are the passes of which the builder does most of the work. ``Pipeline`` runs
passes until none changes anything, and checks the graph before and after each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from closedform.errors import GraphError
from closedform.ir.analysis.interval import Interval
from closedform.ir.analysis.ranges import Ranges
from closedform.ir.analysis.refine import constant_step
from closedform.ir.check import check
from closedform.ir.evaluate import evaluate_node
from closedform.ir.graph import Array, Builder, Graph, Node, Value, node_of
from closedform.ir.ops import COMMUTATIVE, AttributeValue, Op, infer_type
from closedform.ir.types import TensorType

RewriteRule = Callable[["Rewriter", Node, tuple[Value, ...]], Value | None]


class Rewriter:
    """A graph under construction and the rule that its nodes are put through."""

    def __init__(self, name: str, rule: RewriteRule) -> None:
        self.builder = Builder(name)
        self.rule = rule
        self.changed = False
        self._nodes: list[Node] = []
        self._ranges = Ranges(self._nodes)

    def emit(self, op: Op, *operands: Value, **attributes: AttributeValue) -> Value:
        """Adds a node, or the replacement that the rule returns."""
        return self.add(node_of(op, operands, attributes), operands)

    def add(self, node: Node, operands: tuple[Value, ...]) -> Value:
        """Adds a node with these operands, or the replacement that the rule returns."""
        replacement = self.rule(self, node, operands)
        if replacement is not None:
            self.changed = True
            return replacement
        return self._record(self.builder.add(node))

    def const(self, array: Array, type_: TensorType) -> Value:
        """Adds a constant of this type; the array has its dtype and shape."""
        return self._record(self.builder.const(array, type_.dtype))

    def node(self, value: Value) -> Node:
        """Returns the node behind a value."""
        return self._nodes[value.index]

    def operands(self, value: Value) -> tuple[Value, ...]:
        """Returns the operands of the node behind a value."""
        indices = self.node(value).operands
        return tuple(Value(index, self._nodes[index].type) for index in indices)

    def interval(self, value: Value) -> Interval:
        """Returns bounds on a value."""
        return self._ranges.of(value.index)

    def bound(self, node: Node) -> Interval:
        """Returns bounds on a node that is not added yet."""
        return self._ranges.bound(node)

    def number(self, value: Value) -> int | float | None:
        """Returns the number that all elements of a constant are (NaN, -0.0 too), else None."""
        node = self.node(value)
        if node.op is not Op.CONST:
            return None
        array = node.array().ravel()
        # Bytes and not ==: 0.0 == -0.0, and NaN != NaN.
        if not array.size or array.tobytes() != array[:1].tobytes() * array.size:
            return None
        return float(array[0]) if node.type.dtype.is_float else int(array[0])

    def offset(self, value: Value) -> tuple[Value, int] | None:
        """Returns (x, k) if the value is x + k of integers, k is known, and the sum never wraps."""
        node = self.node(value)
        if node.op not in (Op.ADD, Op.SUB) or not value.type.dtype.is_integer:
            return None
        # ``of`` fills the table up to this node, from which constant_step reads.
        self.interval(value)
        step = constant_step(node, self._ranges.intervals)
        return None if step is None else (Value(step[0], self._nodes[step[0]].type), step[1])

    def try_emit(self, like: TensorType, op: Op, *operands: Value) -> Value | None:
        """Adds a node if it fits its operands and has this type, else returns None."""
        try:
            type_ = infer_type(op, tuple(operand.type for operand in operands), {})
        except GraphError:
            return None
        return self.emit(op, *operands) if type_ == like else None

    def _record(self, value: Value) -> Value:
        if value.index == len(self._nodes):
            self._nodes.append(self.builder.node(value))
        return value


def rewrite(graph: Graph, rule: RewriteRule) -> Graph:
    """Returns the graph with each node put through the rule; the same object if none is replaced.

    Inputs stay, used or not, in their order; outputs keep their names and types. Nodes that no
    output needs any more are left out. Cost: one visit a node and one for each that the rule adds.
    """
    rewriter = Rewriter(graph.name, rule)
    values: list[Value] = []
    for node in graph.nodes:
        operands = tuple(values[operand] for operand in node.operands)
        # Equal operand types: the stated type still holds, and no inference has to run.
        if all(v.type == graph.nodes[i].type for v, i in zip(operands, node.operands, strict=True)):
            moved_node = Node(node.op, tuple(v.index for v in operands), node.attributes, node.type)
            values.append(rewriter.add(moved_node, operands))
        else:
            values.append(rewriter.emit(node.op, *operands, **dict(node.attributes)))
    if not rewriter.changed:
        return graph
    for output in graph.outputs:
        rewriter.builder.output(output.name, values[output.index])
    result = rewriter.builder.build()
    # Rules may undo each other's work; an equal graph must be the same object, by which a pipeline
    # sees that nothing changes.
    return graph if result == graph else result


def first_of(rules: Mapping[Op, tuple[RewriteRule, ...]], *for_all: RewriteRule) -> RewriteRule:
    """Returns the rule that tries the rules of an op in order, then the rules for all ops."""

    def rule(rewriter: Rewriter, node: Node, operands: tuple[Value, ...]) -> Value | None:
        for candidate in (*rules.get(node.op, ()), *for_all):
            result = candidate(rewriter, node, operands)
            if result is not None:
                return result
        return None

    return rule


def fits(value: Value, node: Node) -> Value | None:
    """Returns the value if it has the type of the node that it is to replace, else None."""
    return value if value.type == node.type else None


def is_negative_zero(number: float | None) -> bool:
    """Returns whether a constant is the float -0.0."""
    return isinstance(number, float) and number == 0 and bool(np.signbit(number))


def is_positive_zero(number: float | None) -> bool:
    """Returns whether a constant is the float 0.0."""
    return isinstance(number, float) and number == 0 and not np.signbit(number)


@dataclass(frozen=True, slots=True)
class Fold:
    """Replaces computations on constants by their values.

    1. A node all of whose operands are constants becomes a constant, computed by the evaluator.
       Side condition: the result has at most ``limit`` elements, or no more than its largest
       operand; no operand has two axes and several values, which the places of a matrix have. A
       NaN becomes the usual one.

    It never folds a broadcast that makes a small constant a large one, and nothing by assumption:
    ``x * 0`` stays, since x may be NaN.

    Attributes:
        limit: Number of elements up to which a constant may grow.
    """

    limit: int = 64
    name: str = "fold"

    def __call__(self, graph: Graph) -> Graph:
        """Returns the folded graph; the same object if nothing folds."""
        return rewrite(graph, self._rule)

    def _rule(self, rewriter: Rewriter, node: Node, operands: tuple[Value, ...]) -> Value | None:
        sources = tuple(rewriter.node(operand) for operand in operands)
        if not sources or any(source.op is not Op.CONST for source in sources):
            return None
        largest = max(_count(source) for source in sources)
        if _count(node) > max(self.limit, largest) or any(map(_is_matrix, sources)):
            return None
        result = evaluate_node(node, tuple(source.array() for source in sources))
        if node.type.dtype.is_float:
            # x86 makes NaN with the sign bit set, ARM without: one pattern makes files equal
            # everywhere.
            result = np.where(np.isnan(result), np.asarray(np.nan, result.dtype), result)
        return rewriter.const(result, node.type)


def _is_matrix(node: Node) -> bool:
    """Whether a constant has two axes or more, and several values."""
    array = node.array()
    return array.ndim > 1 and array.tobytes() != array.ravel()[:1].tobytes() * array.size


def _count(node: Node) -> int:
    return math.prod(int(dim) for dim in node.type.shape)


@dataclass(frozen=True, slots=True)
class Share:
    """Makes equal nodes one node.

    1. The operands of a commutative op are in one order: by the place of their nodes, constants
       last; so ``a + b`` and ``b + a`` become one node. Side condition: the op is add, mul, min,
       max, eq, and, or. The order cannot matter: IEEE addition and multiplication commute but for
       the payload of a NaN, which is not part of the semantics, and min and max treat -0.0 as below
       0.0 (an engine may return the other zero in either order).
    2. Nodes of the same op, operands and attributes become one; the builder sees to it.
    3. Nodes that no output needs are left out; inputs stay.

    It never regroups: ``(a + b) + c`` and ``a + (b + c)`` round differently.
    """

    name: str = "share"

    def __call__(self, graph: Graph) -> Graph:
        """Returns the graph with its nodes shared; the same object if they are already."""
        ordered_graph = rewrite(graph, _order_operands)
        # The builder numbers equal nodes once: rebuilding the graph is enough to share them.
        shared_graph = rewrite(ordered_graph, _touch)
        return graph if shared_graph == graph else shared_graph


def _order_operands(rewriter: Rewriter, node: Node, operands: tuple[Value, ...]) -> Value | None:
    if node.op not in COMMUTATIVE:
        return None
    first, second = operands
    if _place(rewriter, first) <= _place(rewriter, second):
        return None
    return rewriter.emit(node.op, second, first)


def _place(rewriter: Rewriter, value: Value) -> tuple[bool, int]:
    return rewriter.node(value).op is Op.CONST, value.index


def _touch(rewriter: Rewriter, _: Node, __: tuple[Value, ...]) -> Value | None:
    """Replaces nothing, but has the graph rebuilt."""
    rewriter.changed = True
    return None


class Pass(Protocol):
    """A rewriting of graphs that keeps their meaning bit for bit: a frozen dataclass with a name.

    It keeps the inputs (names, types, order) and the names and types of the outputs, returns the
    same object when nothing changes, and never mutates a graph that it has returned.
    """

    @property
    def name(self) -> str:
        """The name in messages."""
        ...

    def __call__(self, graph: Graph) -> Graph:
        """Returns a graph of the same meaning."""
        ...


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Runs passes in order, again until none changes anything.

    Attributes:
        passes: The passes of a round.
        rounds: The number of rounds after which the passes are assumed to undo one another.
    """

    passes: tuple[Pass, ...]
    rounds: int = 50
    name: str = "pipeline"

    def __call__(self, graph: Graph) -> Graph:
        """Returns the rewritten graph; the same object if nothing changes.

        Raises:
            GraphError: The graph is illegal before the first pass or after one (the message names
                it), a pass changes the interface, or the passes do not settle.
        """
        check(graph, "before the first pass")
        idle_passes = 0
        for _ in range(self.rounds):
            for pass_ in self.passes:
                before, graph = graph, _run(pass_, graph)
                idle_passes = idle_passes + 1 if graph is before else 0
                # Not "a round without change": the last change may be in the middle of a round.
                if idle_passes == len(self.passes):
                    return graph
        names = ", ".join(pass_.name for pass_ in self.passes)
        raise GraphError(
            f"the passes {names} still change the graph after {self.rounds} rounds",
            where=f"graph {graph.name!r}",
            hint="two of them undo one another: report it with the text of the graph",
        )


def _run(pass_: Pass, graph: Graph) -> Graph:
    result = pass_(graph)
    if result is graph:
        return graph
    check(result, f"after pass {pass_.name!r}")
    if _interface(result) != _interface(graph):
        raise GraphError(
            "inputs and outputs must keep their names, types and order",
            where=f"graph {graph.name!r}, after pass {pass_.name!r}",
            hint="a pass rewrites the nodes between them",
        )
    return result


def _interface(graph: Graph) -> tuple[object, ...]:
    outputs = tuple((output.name, graph.nodes[output.index].type) for output in graph.outputs)
    return graph.name, graph.inputs, outputs
