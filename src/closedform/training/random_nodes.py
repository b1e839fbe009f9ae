"""Random inputs of a forward as random operators of ONNX, for a file that is used by others."""

from __future__ import annotations

import ast
from typing import Any

from onnx import ModelProto, NodeProto, ValueInfoProto, helper

from closedform.ir.naming import RANDOM
from closedform.training.feeds import fold_size

_OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "Add",
    ast.Sub: "Sub",
    ast.Mult: "Mul",
    ast.FloorDiv: "Div",
}


def draw_in_graph(model: ModelProto) -> None:
    """Replaces the inputs for random numbers by operators that draw them in each run.

    The numbers differ from run to run, as they do in torch.
    """
    graph = model.graph
    random = [value for value in graph.input if value.name.startswith(RANDOM)]
    if not random:
        return
    rest = [value for value in graph.input if not value.name.startswith(RANDOM)]
    nodes = [node for value in random for node in _nodes_of_draw(value, rest)]
    body = list(graph.node)
    del graph.input[:], graph.node[:]
    graph.input.extend(rest)
    graph.node.extend([*nodes, *body])


def _nodes_of_draw(value: ValueInfoProto, inputs: list[ValueInfoProto]) -> list[NodeProto]:
    """The nodes that draw the numbers of an input."""
    name, element = value.name, value.type.tensor_type.elem_type
    nodes: list[NodeProto] = []

    def add(operator: str, operands: list[str], **attributes: Any) -> str:
        result = f"{name}/{len(nodes)}"
        nodes.append(helper.make_node(operator, operands, [result], **attributes))
        return result

    def constant(size: int) -> str:
        return add("Constant", [], value_ints=[size])

    def symbol(text: str) -> str:
        for declaration in inputs:
            for axis, dim in enumerate(declaration.type.tensor_type.shape.dim):
                if dim.dim_param == text:
                    return add("Shape", [declaration.name], start=axis, end=axis + 1)
        raise KeyError(text)

    def operation(operator: type[ast.operator], left: str, right: str) -> str:
        return add(_OPERATORS[operator], [left, right])

    sizes = [
        fold_size(dim.dim_param, symbol, constant, operation)
        if dim.dim_param
        else constant(dim.dim_value)
        for dim in value.type.tensor_type.shape.dim
    ]
    shape = add("Concat", sizes, axis=0) if sizes else add("Constant", [], value_ints=[])
    zeros = add("ConstantOfShape", [shape], value=helper.make_tensor("zero", element, [1], [0]))
    kind = name.removeprefix(RANDOM).split(".")[0]
    if kind == "normal":
        add("RandomNormalLike", [zeros], dtype=element)
    else:
        numbers = add("RandomUniformLike", [zeros], dtype=element)
        if kind == "exponential":
            unit = add("Constant", [], value=helper.make_tensor("one", element, [], [1]))
            # −log(1 − u) for u in [0, 1): the argument is never 0.
            add("Neg", [add("Log", [add("Sub", [unit, numbers])])])
    nodes[-1].output[0] = name
    return nodes
