"""A step whose last op adds a number times a tensor to the parameter, without that op.

``torch._foreach_add_`` performs it on all parameters in place, so that they need not be copied to
a vector and back.
"""

from __future__ import annotations

from typing import NamedTuple

from closedform.ir.graph import Builder, Graph, Node, Role, Value
from closedform.ir.naming import NEXT
from closedform.ir.ops import Op


class Move(NamedTuple):
    """``param + sign·number·tensor``.

    Attributes:
        sign: 1 or -1.
        number: The name of an input of rank 0; None for 1.
        tensor: The name of the output that is the tensor; None for the gradient.
    """

    sign: int
    number: str | None
    tensor: str | None


def separate(graph: Graph, param: str) -> tuple[Graph | None, Move] | None:
    """Returns a graph without the parameter, and its move; None if it has another form.

    The tensor is a next state or the gradient: another one would have to be split into the parts of
    the parameters, which takes longer than copying those. A step without states is nothing but a
    move.

    Args:
        graph: The graph of a step, whose numbers are inputs.
        param: The name of the parameter in it.
    """
    nodes = graph.nodes
    names = {
        node.attribute("name"): index for index, node in enumerate(nodes) if node.op is Op.INPUT
    }
    ends = {output.name: output.index for output in graph.outputs}
    source, end = names.get(param), ends.get(f"{NEXT}{param}")
    uses = [operand for node in nodes for operand in node.operands] + list(ends.values())
    if source is None or end is None or uses.count(source) != 1 or uses.count(end) != 1:
        return None
    last = nodes[end]
    if last.op not in (Op.ADD, Op.SUB) or source not in last.operands:
        return None
    (summand,) = (operand for operand in last.operands if operand != source)
    # ``x - param`` changes the sign of the parameter.
    if last.op is Op.SUB and last.operands[0] != source:
        return None
    dropped_nodes = {source, end}
    number = None
    product = nodes[summand]
    if product.op is Op.MUL and uses.count(summand) == 1:
        scalars = [factor for factor in product.operands if _is_number(nodes[factor])]
        if len(scalars) == 1:
            number = str(nodes[scalars[0]].attribute("name"))
            dropped_nodes.add(summand)
            dropped_nodes.update(factor for factor in scalars if uses.count(factor) == 1)
            (summand,) = (operand for operand in product.operands if operand not in scalars)
    node = nodes[summand]
    is_gradient = node.op is Op.INPUT and node.attribute("role") is Role.GRAD
    tensor = next((name for name, index in ends.items() if index == summand), None)
    # A broadcast operand, or a tensor that no output holds, cannot be an operand of foreach_add.
    if node.type != last.type or (tensor is None) is not is_gradient:
        return None
    builder = Builder(graph.name)
    copies: dict[int, Value] = {}
    for index, node in enumerate(nodes):
        if index not in dropped_nodes:
            operands = (copies[operand] for operand in node.operands)
            copies[index] = builder.emit(node.op, *operands, **dict(node.attributes))
    for output in graph.outputs:
        if output.index != end:
            builder.output(output.name, copies[output.index])
    sign = 1 if last.op is Op.ADD else -1
    rest = builder.build()
    return rest if rest.outputs else None, Move(sign, number, tensor)


def _is_number(node: Node) -> bool:
    return node.op is Op.INPUT and not node.type.shape
