"""One step of a whole model: a graph of scalars, a graph for each kind of tensor, and its calls.

    program ::= scalars, bodies, calls
    call    ::= parameter, body, the scalars that the body takes

What the step computes from the clock and hyperparameters alone stands once in ``scalars``. A body
is the step of one tensor; tensors of one rule and shape share it. ``flatten`` makes one graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from closedform.ir.graph import Builder, Graph, Node, Role, Value
from closedform.ir.ops import Op

PARAM, GRAD, STATE, SCALAR, NEXT = "param", "grad", "state.", "scalar.", "next."
"""Names of a body: ``param``, ``grad``, ``state.<state>``, ``scalar.<place>`` in, ``next.…`` out."""


@dataclass(frozen=True, slots=True)
class Call:
    """The step of one parameter.

    Attributes:
        param: Its name.
        body: The place of its graph among the bodies.
        scalars: The outputs of the scalar graph that are the body's ``scalar.0``, ``scalar.1``, ….
    """

    param: str
    body: int
    scalars: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Program:
    """One step of a model.

    Attributes:
        name: An identifier.
        scalars: Step and hyperparameters to ``next.step`` and the scalars.
        bodies: The steps of one tensor.
        calls: Which parameter takes which body, in the order of the model.
    """

    name: str
    scalars: Graph
    bodies: tuple[Graph, ...]
    calls: tuple[Call, ...]


def outer_name(name: str, param: str) -> str:
    """Returns the name in the whole step of an input or output of a body.

    Example:
        >>> outer_name("next.state.exp_avg", "w"), outer_name("grad", "w")
        ('next.state.w.exp_avg', 'grad.w')
    """
    bare = name.removeprefix(NEXT)
    prefix = name[: len(name) - len(bare)]
    if bare.startswith(STATE):
        return f"{prefix}{STATE}{param}.{bare.removeprefix(STATE)}"
    return f"{prefix}{bare}.{param}"


def flatten(program: Program) -> Graph:
    """Returns the whole step as one graph.

    Inputs are those of the scalar graph, then of each call; outputs are ``next.step``, then those
    of each call.
    """
    builder = Builder(program.name)
    scalars = _copy(builder, program.scalars, {})
    builder.output("next.step", scalars["next.step"])
    for call in program.calls:
        body = program.bodies[call.body]
        given = {f"{SCALAR}{place}": scalars[name] for place, name in enumerate(call.scalars)}
        for node in body.inputs:
            name = node.attribute("name")
            if not name.startswith(SCALAR):
                outer = outer_name(name, call.param)
                given[name] = builder.input(outer, node.type, Role(node.attribute("role")))
        for name, value in _copy(builder, body, given).items():
            builder.output(outer_name(name, call.param), value)
    return builder.build()


def _copy(builder: Builder, graph: Graph, given: Mapping[str, Value]) -> dict[str, Value]:
    """Adds the nodes of a graph, its inputs replaced by the given values, and names its outputs."""
    values: list[Value] = []
    for node in graph.nodes:
        name = node.attribute("name") if node.op is Op.INPUT else None
        known = given.get(name) if name is not None else None
        values.append(known if known is not None else _emit(builder, node, values))
    return {output.name: values[output.index] for output in graph.outputs}


def _emit(builder: Builder, node: Node, values: list[Value]) -> Value:
    if node.op is Op.INPUT:
        return builder.input(node.attribute("name"), node.type, node.attribute("role"))
    operands = (values[index] for index in node.operands)
    return builder.emit(node.op, *operands, **dict(node.attributes))
