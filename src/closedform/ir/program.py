"""One step of a whole model: a graph of scalars, a graph for each kind of tensor, and its calls.

    program ::= stages, scalars, bodies, calls
    stage   ::= scalars, bodies, calls: the parts of sums over all parameters
    call    ::= parameter, body, the scalars that the body takes

The values that depend on the clock, hyperparameters and states of the whole model only are in
``scalars``. A body is the step of one tensor; tensors of one rule and shape share it. Where a rule
takes sums over all parameters, each stage has bodies that give a tensor's part of some of them; the
parts are added over the tensors (and over the shards of a tensor), and the totals are inputs of all
later graphs of scalars. ``flatten`` makes one graph of the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from closedform.ir import naming
from closedform.ir.graph import Builder, Graph, Role, Value
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
class Stage:
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
    stages: tuple[Stage, ...] = ()

    def map(self, function: Callable[[Graph], Graph]) -> Program:
        """Returns the program with a function applied to each of its graphs.

        A stage whose bodies take no scalars has a graph without outputs, which is left unchanged.
        """

        def map_part(part: Stage | Program) -> tuple[Graph, tuple[Graph, ...], tuple[Call, ...]]:
            scalars = function(part.scalars) if part.scalars.outputs else part.scalars
            return scalars, tuple(map(function, part.bodies)), part.calls

        stages = tuple(Stage(*map_part(stage)) for stage in self.stages)
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
    parts: list[Stage | Program] = [*program.stages, program]
    return tuple(_alone(program.name, part, param, name) for part in parts)


def _alone(title: str, part: Stage | Program, param: str, name: str) -> Graph | None:
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
