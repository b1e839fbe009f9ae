"""Constants that a graph stores in two floats, read as one number.

A lowering may compensate the rounding of a constant ``c``: it adds the rest ``low = c - fl(c)``
first and ``high = fl(c)`` after it. In such a sum, ``(x + low) + high``, the high part represents
exactly the number that it stores, and the low part the difference from ``c``. Each is within half a
unit in its last place, like every constant, so a proof with them is not weaker than one without,
and for ``c`` it is stronger: half a unit of the low part.

A float represents one number in the whole graph. Where the high part represents another number
elsewhere, or the low part belongs to two numbers, a proof fails, and the verdict is UNKNOWN.
"""

from __future__ import annotations

from collections.abc import Iterator

from closedform.ir import DType, Graph, Node, Op
from closedform.verify import terms
from closedform.verify.terms import Term
from closedform.verify.terms.from_graph import Constant
from closedform.verify.translation.constants import Constants


def with_split_constants(constants: Constants, graph: Graph) -> Constant:
    """Returns the reading of the constants of a graph in which two parts make one number.

    Args:
        constants: The exact number of a single float, and of two that make one number.
        graph: The graph.
    """
    parts: dict[tuple[float, DType], Term] = {}
    for low, high, dtype in _sums(graph):
        number = constants.pair(low, high, dtype)
        if number is not None:
            stored = terms.exact(high)
            parts[high, dtype] = terms.rational(stored)
            parts[low, dtype] = terms.rational(number - stored)

    def reading(number: float, dtype: DType) -> Term:
        found = parts.get((number, dtype))
        return constants(number, dtype) if found is None else found

    return reading


def _sums(graph: Graph) -> Iterator[tuple[float, float, DType]]:
    """The constants of each ``(x + low) + high``, and their dtype."""
    for node in graph.nodes:
        outer = _with_constant(graph, node)
        inner = None if outer is None else _with_constant(graph, outer[0])
        if outer is not None and inner is not None:
            yield inner[1], outer[1], node.type.dtype


def _with_constant(graph: Graph, node: Node) -> tuple[Node, float] | None:
    """What a float constant is added to, and the constant."""
    if node.op is not Op.ADD or not node.type.dtype.is_float:
        return None
    first, second = (graph.nodes[operand] for operand in node.operands)
    for part, rest in ((first, second), (second, first)):
        if part.op is Op.CONST and part.array().size == 1:
            return rest, float(part.array().item())
    return None
