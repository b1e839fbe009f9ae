"""Sharing: one node for equal computations, none for unused ones."""

from __future__ import annotations

from dataclasses import dataclass

from closedform.ir.graph import Graph, Node, Value
from closedform.ir.ops import COMMUTATIVE, Op
from closedform.ir.passes.rewrite import Rewriter, rewrite


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
