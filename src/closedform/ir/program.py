"""One step of a whole model: a graph of scalars, a graph for each kind of tensor, and its calls.

    program ::= stages, scalars, bodies, calls
    stage   ::= scalars, bodies, calls: the parts of sums over all parameters
    call    ::= parameter, body, the scalars that the body takes

The values that depend on the clock, hyperparameters and states of the whole model only are in
``scalars``. A body is the step of one tensor; tensors of one rule and shape share it. Where a rule
takes sums over all parameters, each stage has bodies that give a tensor's part of some of them; the
parts are added over the tensors (and over the shards of a tensor), and the totals are inputs of all
later graphs of scalars. ``flatten`` makes one graph of the whole.

``hoist`` splits a flat graph likewise: what depends on no tensor (bias corrections, the schedule of
a rate) is computed once in a graph of numbers. An engine that fuses the whole graph would compute
it again for every element.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from closedform.ir import naming
from closedform.ir.graph import Builder, Graph, Node, Role, Value
from closedform.ir.ops import Op


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
class SumStage:
    """The parts of some sums over all parameters.

    Attributes:
        scalars: Step, hyperparameters, shared states and earlier totals to the scalars.
        bodies: One tensor to its parts, ``sum.<place>``.
        calls: Which parameter takes which body.
    """

    scalars: Graph
    bodies: tuple[Graph, ...]
    calls: tuple[Call, ...]


@dataclass(frozen=True, slots=True)
class Program:
    """One step of a model.

    Attributes:
        name: An identifier.
        scalars: Step, hyperparameters, shared states and totals to ``next.step``,
            ``next.shared.<state>`` and the scalars.
        bodies: The steps of one tensor.
        calls: Which parameter takes which body, in the order of the model.
        stages: What is summed over all parameters first, in order.
    """

    name: str
    scalars: Graph
    bodies: tuple[Graph, ...]
    calls: tuple[Call, ...]
    stages: tuple[SumStage, ...] = ()

    def map(self, function: Callable[[Graph], Graph]) -> Program:
        """Returns the program with a function applied to each of its graphs.

        A stage whose bodies take no scalars has a graph without outputs, which is left unchanged.
        """

        def map_part(part: SumStage | Program) -> tuple[Graph, tuple[Graph, ...], tuple[Call, ...]]:
            scalars = function(part.scalars) if part.scalars.outputs else part.scalars
            return scalars, tuple(map(function, part.bodies)), part.calls

        stages = tuple(SumStage(*map_part(stage)) for stage in self.stages)
        return Program(self.name, *map_part(self), stages)


def flatten(program: Program) -> Graph:
    """Returns the whole step as one graph.

    Inputs are the scalar graph's, then the inputs of each call; outputs are ``next.step`` and the
    shared states, then the outputs of each call.
    """
    builder = Builder(program.name)
    values = _inputs(builder, program.scalars)
    for call in program.calls:
        values |= _inputs(builder, program.bodies[call.body], call.param)
    for stage in program.stages:
        scalars = _copy(builder, stage.scalars, values)
        totals: dict[str, Value] = {}
        for call in stage.calls:
            for name, part in _call(builder, stage.bodies, call, scalars, values).items():
                partial = totals.get(name)
                totals[name] = part if partial is None else builder.emit(Op.ADD, partial, part)
        values |= totals
    scalars = _copy(builder, program.scalars, values)
    for name, value in scalars.items():
        if not name.startswith(naming.SCALAR):
            builder.output(name, value)
    for call in program.calls:
        for name, value in _call(builder, program.bodies, call, scalars, values).items():
            builder.output(naming.outer_name(name, call.param), value)
    return builder.build()


def split(program: Program, param: str, name: str) -> tuple[Graph | None, ...]:
    """Returns the graphs of one parameter: its part in each stage, then its step.

    Totals are inputs of theirs, ``sum.<place>``, and the terms of a part are outputs. A stage in
    which the parameter has no part is None.

    Args:
        program: One step of a model.
        param: The parameter.
        name: What it is called in the graphs.
    """
    parts: list[SumStage | Program] = [*program.stages, program]
    return tuple(_alone(program.name, part, param, name) for part in parts)


def _alone(title: str, part: SumStage | Program, param: str, name: str) -> Graph | None:
    calls = [replace(call, param=name) for call in part.calls if call.param == param]
    if not calls:
        return None
    builder = Builder(title)
    values = {
        node.attribute("name"): builder.input(
            node.attribute("name"), node.type, Role(node.attribute("role"))
        )
        for node in part.scalars.inputs
    }
    for call in calls:
        values |= _inputs(builder, part.bodies[call.body], name)
    scalars = _copy(builder, part.scalars, values)
    for label, value in scalars.items():
        if not label.startswith(naming.SCALAR):
            builder.output(label, value)
    for call in calls:
        for label, value in _call(builder, part.bodies, call, scalars, values).items():
            builder.output(
                label if label.startswith(naming.TOTAL) else naming.outer_name(label, name), value
            )
    return builder.build()


def _inputs(builder: Builder, graph: Graph, param: str | None = None) -> dict[str, Value]:
    """Adds the inputs of a graph of scalars, or of a call, that come from outside."""
    values = {}
    for node in graph.inputs:
        name = node.attribute("name")
        if not name.startswith((naming.SCALAR, naming.TOTAL)):
            outer = name if param is None else naming.outer_name(name, param)
            values[outer] = builder.input(outer, node.type, Role(node.attribute("role")))
    return values


def _call(
    builder: Builder,
    bodies: tuple[Graph, ...],
    call: Call,
    scalars: Mapping[str, Value],
    values: Mapping[str, Value],
) -> dict[str, Value]:
    """Adds the body of a call, and names its outputs."""
    body = bodies[call.body]
    inputs = {naming.scalar(place): scalars[name] for place, name in enumerate(call.scalars)}
    for node in body.inputs:
        name = node.attribute("name")
        if not name.startswith(naming.SCALAR):
            inputs[name] = values[naming.outer_name(name, call.param)]
    return _copy(builder, body, inputs)


def _copy(builder: Builder, graph: Graph, inputs: Mapping[str, Value]) -> dict[str, Value]:
    """Adds the nodes of a graph, its inputs replaced by the given values, and names its outputs."""
    values: list[Value] = []
    for node in graph.nodes:
        if node.op is Op.INPUT:
            values.append(inputs[node.attribute("name")])
            continue
        operands = (values[index] for index in node.operands)
        values.append(builder.emit(node.op, *operands, **dict(node.attributes)))
    return {output.name: values[output.index] for output in graph.outputs}


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
            early[index] = _copy_node(first, node, early)
        if not is_read[index]:
            continue
        if is_number[index] and _is_handed_over(node):
            name = f"{NUMBER}{count}"
            count += 1
            first.output(name, early[index])
            late[index] = second.input(name, node.type, Role.HYPER)
        else:
            late[index] = _copy_node(second, node, late)
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
            # A broadcast number is a tensor: handing it over would cost its memory.
            is_spread = node.op is Op.BROADCAST_TO
            is_number.append(not is_spread and all(is_number[operand] for operand in node.operands))
    return is_number


def _read_by_tensors(graph: Graph, is_number: list[bool]) -> list[bool]:
    """Whether the second graph has each node: as it is, or handed over as a number."""
    is_read = [not is_scalar for is_scalar in is_number]
    # From the outputs down; a number that is handed over needs none of its operands in the second
    # graph.
    for index in range(len(graph.nodes) - 1, -1, -1):
        node = graph.nodes[index]
        if is_read[index] and not (is_number[index] and _is_handed_over(node)):
            for operand in node.operands:
                is_read[operand] = True
    return is_read


def _is_handed_over(node: Node) -> bool:
    """Whether the graph of numbers hands it to that of tensors, which makes constants itself."""
    return node.op is not Op.CONST and not node.type.shape


def _copy_node(builder: Builder, node: Node, values: dict[int, Value]) -> Value:
    operands = (values[operand] for operand in node.operands)
    return builder.emit(node.op, *operands, **dict(node.attributes))
