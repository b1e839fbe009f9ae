"""One graph as two: its numbers, and its tensors, which take them.

What depends on no tensor (bias corrections, the schedule of a rate) is computed once in the first
graph. An engine that fuses what it is given would compute it again for every element.
"""

from __future__ import annotations

from closedform.ir.graph import Builder, Graph, Node, Role, Value
from closedform.ir.ops import Op

NUMBER = "number."
"""What the names of numbers begin with that the second graph takes from the first."""

_NUMBERS = frozenset({Role.STEP, Role.HYPER, Role.STATE})
"""The roles of inputs that are numbers where their rank is 0."""


def hoist(graph: Graph) -> tuple[Graph, Graph]:
    """Returns the graph of numbers and the graph of tensors; one may have no outputs.

    Their outputs together are those of the graph. The first takes the inputs that are numbers, and
    hands ``number.0``, ``number.1``, … to the second; one that the second needs as it came is
    handed over too, so that the first may be run, and its inputs written over, before the second.
    The cost is linear in the nodes.
    """
    is_number = _numbers(graph)
    first, second = Builder(graph.name), Builder(graph.name)
    early: dict[int, Value] = {}
    late: dict[int, Value] = {}
    crossing = {
        operand: f"{NUMBER}{place}" for place, operand in enumerate(_crossing(graph, is_number))
    }
    for index, node in enumerate(graph.nodes):
        if is_number[index]:
            early[index] = _copy(first, node, early)
        if index in crossing:
            first.output(crossing[index], early[index])
            late[index] = second.input(crossing[index], node.type, Role.HYPER)
        elif node.op is Op.CONST or not is_number[index]:
            late[index] = _copy(second, node, late)
    for output in graph.outputs:
        if is_number[output.index]:
            first.output(output.name, early[output.index])
        else:
            second.output(output.name, late[output.index])
    return first.build(), second.build()


def _numbers(graph: Graph) -> list[bool]:
    """Whether each node depends on no tensor, and is none."""
    found: list[bool] = []
    for node in graph.nodes:
        if node.op is Op.INPUT:
            found.append(not node.type.shape and node.attribute("role") in _NUMBERS)
        else:
            is_spread = node.op is Op.BROADCAST_TO
            found.append(not is_spread and all(found[operand] for operand in node.operands))
    return found


def _crossing(graph: Graph, is_number: list[bool]) -> list[int]:
    """The numbers that tensors are computed from, in order; constants are in both graphs."""
    read = {
        operand
        for node, is_early in zip(graph.nodes, is_number, strict=True)
        if not is_early
        for operand in node.operands
    }
    return [
        operand
        for operand in sorted(read)
        if is_number[operand] and graph.nodes[operand].op is not Op.CONST
    ]


def _copy(builder: Builder, node: Node, values: dict[int, Value]) -> Value:
    operands = (values[operand] for operand in node.operands)
    return builder.emit(node.op, *operands, **dict(node.attributes))
