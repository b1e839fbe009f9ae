"""The simplifier of graphs: constants are folded, equal nodes are one, exact identities applied.

    %0 = const 1.0 : f64[]             %0 = const 3.0 : f64[]
    %1 = mul(x, %0) : f64[]       →    %1 = mul(x, %0) : f64[]
    %2 = const 3.0 : f64[]             y = %1
    %3 = mul(%2, %1) : f64[]
    y = %3

SymPy has simplified what is lowered, and the builder shares equal nodes; what is left to do was
counted on the library (see the rewrites below). Ranges decide nothing here.
"""

from __future__ import annotations

import math

import numpy as np

from closedform.ir.check import check
from closedform.ir.evaluate import evaluate_node
from closedform.ir.graph import Builder, Graph, Node, Value
from closedform.ir.ops import COMMUTATIVE, Op
from closedform.ir.types import HOLDS

LARGEST_FOLDED = 64
"""Number of elements up to which a constant may grow."""


def simplify(graph: Graph) -> Graph:
    """Returns a graph of the same bits for all inputs; the same object if nothing changes.

    1. A node all of whose operands are constants becomes a constant, computed by the evaluator,
       where the result has at most ``LARGEST_FOLDED`` elements, or no more than its largest
       operand; no operand has two axes and several values, which the places of a matrix have. A
       NaN becomes the usual one. (All nodes of the graphs of first states, 8 % of those in
       double-float.)
    2. ``x * 1``, ``x / 1`` -> x where x has the type of the node (14 of the tensors of 73 rules).
    3. A cast to the own dtype -> x. ``cast(cast(x, B), C)`` -> ``cast(x, C)`` where B holds every
       value of the dtype of x (the parameter of a rule that stores in 16 bits).
    4. The operands of a commutative op are in one order: by the place of their nodes, constants
       last; so ``a + b`` and ``b + a`` become one node. IEEE addition and multiplication commute
       but for the payload of a NaN, which is not part of the semantics, and min and max treat -0.0
       as below 0.0 (an engine may return the other zero in either order).
    5. Equal nodes become one; nodes that no output needs are left out.

    The graph is checked before. Inputs stay, used or not, in their order; outputs keep their names
    and types. It never reassociates, distributes, or drops ``x * 0.0``, ``x - x``, ``x / x``, which
    are not exact, or not for NaN and infinities. Cost: one visit a node; a second run changes
    nothing, since each rewrite looks at operands that are simplified already.

    Raises:
        GraphError: The graph is illegal.
    """
    check(graph, "before it is simplified")
    simplifier = _Simplifier(graph.name)
    values: list[Value] = []
    for node in graph.nodes:
        values.append(simplifier.add(node, tuple(values[operand] for operand in node.operands)))
    for output in graph.outputs:
        simplifier.builder.output(output.name, values[output.index])
    result = simplifier.builder.build()
    return graph if result == graph else result


class _Simplifier:
    """A graph under construction, each of whose nodes is simplified before it is added."""

    def __init__(self, name: str) -> None:
        self.builder = Builder(name)

    def add(self, node: Node, operands: tuple[Value, ...]) -> Value:
        """Adds a node with operands of the same types, or returns the value that replaces it."""
        if node.op in COMMUTATIVE:
            operands = tuple(sorted(operands, key=self._place))
        # The operands have the same types as before, so that its type needs no inference.
        node = Node(node.op, tuple(v.index for v in operands), node.attributes, node.type)
        for rewrite in (self._fold, self._remove_unit, self._join_casts):
            replacement = rewrite(node, operands)
            if replacement is not None:
                return replacement
        return self.builder.add(node)

    def _place(self, value: Value) -> tuple[bool, int]:
        return self.builder.node(value).op is Op.CONST, value.index

    def _fold(self, node: Node, operands: tuple[Value, ...]) -> Value | None:
        """Rewrite 1."""
        sources = [self.builder.node(operand) for operand in operands]
        if not sources or any(source.op is not Op.CONST for source in sources):
            return None
        largest = max(LARGEST_FOLDED, *(_count(source) for source in sources))
        if _count(node) > largest or any(map(_is_matrix, sources)):
            return None
        result = evaluate_node(node, tuple(source.array() for source in sources))
        if node.type.dtype.is_float:
            # x86 makes NaN with the sign bit set, ARM without: one pattern makes files equal
            # everywhere.
            result = np.where(np.isnan(result), np.asarray(np.nan, result.dtype), result)
        return self.builder.const(result, node.type.dtype)

    def _remove_unit(self, node: Node, operands: tuple[Value, ...]) -> Value | None:
        """Rewrite 2; of a product, the constant is the second operand."""
        if node.op not in (Op.MUL, Op.DIV) or operands[0].type != node.type:
            return None
        factor = self.builder.node(operands[1])
        return operands[0] if factor.op is Op.CONST and np.all(factor.array() == 1) else None

    def _join_casts(self, node: Node, operands: tuple[Value, ...]) -> Value | None:
        """Rewrite 3."""
        if node.op is not Op.CAST:
            return None
        if operands[0].type == node.type:
            return operands[0]
        source = self.builder.node(operands[0])
        if source.op is not Op.CAST:
            return None
        inner = Value(source.operands[0], self.builder.nodes[source.operands[0]].type)
        is_exact = source.type.dtype in HOLDS[inner.type.dtype]
        return self.add(node, (inner,)) if is_exact else None


def _is_matrix(node: Node) -> bool:
    """Whether a constant has two axes or more, and several values."""
    array = node.array()
    # Bytes and not ==: 0.0 == -0.0, and NaN != NaN.
    return array.ndim > 1 and array.tobytes() != array.ravel()[:1].tobytes() * array.size


def _count(node: Node) -> int:
    return math.prod(int(dim) for dim in node.type.shape)
