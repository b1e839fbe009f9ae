"""One graph as two: its numbers, and its tensors, which take them.

What depends on no tensor (bias corrections, the schedule of a rate) is computed once in the first
graph. An engine that fuses the whole graph would compute it again for every element.
"""

from __future__ import annotations

from closedform.ir.graph import Builder, Graph, Node, Role, Value
from closedform.ir.ops import Op

NUMBER = "number."
"""Prefix of the names of numbers that the second graph takes from the first."""

_NUMBERS = frozenset({Role.STEP, Role.HYPER, Role.STATE})
"""The roles of inputs that are numbers where their rank is 0."""


def hoist(graph: Graph) -> tuple[Graph, Graph]:
    """Returns the graph of numbers and the graph of tensors; one may have no outputs.

    Together they have the outputs of the graph. The first takes the inputs that are numbers, and
    hands ``number.0``, ``number.1``, …, all of rank 0, to the second; one that the second needs as
    it came is handed over too, which allows running the first, and overwriting its inputs, before
    the second. The cost is linear in the nodes.
    """
    is_number = _numbers(graph)
    is_read = _read_by_tensors(graph, is_number)
    first, second = Builder(graph.name), Builder(graph.name)
    early: dict[int, Value] = {}
    late: dict[int, Value] = {}
    count = 0
    for index, node in enumerate(graph.nodes):
        if is_number[index]:
            early[index] = _copy(first, node, early)
        if not is_read[index]:
            continue
        if is_number[index] and _is_handed_over(node):
            name = f"{NUMBER}{count}"
            count += 1
            first.output(name, early[index])
            late[index] = second.input(name, node.type, Role.HYPER)
        else:
            late[index] = _copy(second, node, late)
    for output in graph.outputs:
        if is_number[output.index]:
            first.output(output.name, early[output.index])
        else:
            second.output(output.name, late[output.index])
    return first.build(), second.build()


def _numbers(graph: Graph) -> list[bool]:
    """Whether each node depends on no tensor, and is none."""
    is_number: list[bool] = []
    for node in graph.nodes:
        if node.op is Op.INPUT:
            is_number.append(not node.type.shape and node.attribute("role") in _NUMBERS)
        else:
            is_spread = node.op is Op.BROADCAST_TO
            is_number.append(not is_spread and all(is_number[operand] for operand in node.operands))
    return is_number


def _read_by_tensors(graph: Graph, is_number: list[bool]) -> list[bool]:
    """Whether the second graph has each node: as it is, or handed over as a number."""
    is_read = [not is_scalar for is_scalar in is_number]
    for index in range(len(graph.nodes) - 1, -1, -1):
        node = graph.nodes[index]
        if is_read[index] and not (is_number[index] and _is_handed_over(node)):
            for operand in node.operands:
                is_read[operand] = True
    return is_read


def _is_handed_over(node: Node) -> bool:
    """Whether a number is handed over: constants and vectors of numbers are made in both graphs."""
    return node.op is not Op.CONST and not node.type.shape


def _copy(builder: Builder, node: Node, values: dict[int, Value]) -> Value:
    operands = (values[operand] for operand in node.operands)
    return builder.emit(node.op, *operands, **dict(node.attributes))
