"""How a run of a file advances with a run of a rule: one relation for proofs and refutations.

Both runs take the same gradients and hyperparameters. A state of the file is replaced by an output,
or, where no output replaces it, the host gives it anew for each step: a count of steps, a power of
a decay. Its meaning relates it to the rule. ``Simulation`` is this relation; a proof shows that a
step keeps it, a proposal tries it at some states, and a refutation is a run that advances by it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from typing import Any

import numpy as np
from flint import fmpq

from closedform.ir import DType, Graph, Role, TensorType, naming, ranges
from closedform.ir.graph import Array, Builder, Node, Value
from closedform.ir.ops import Op
from closedform.language.symbols import t
from closedform.referee.ports import Port, PortKind
from closedform.referee.step import ForeignStep, RuleState, is_shaped
from closedform.verify.terms import build
from closedform.verify.terms.sympy_io import term
from closedform.verify.terms.tensor_values import tensor_of
from closedform.verify.terms.tree import Term
from closedform.verify.translation.rule_terms import Model, Wanted
from closedform.verify.translation.translation import last_step

CLOCK = term(t)
Point = dict[str, Array]
"""The values of the symbols of a rule: parameters, states, gradients, the clock."""


class Advance(StrEnum):
    """Where the value of an input for the next step comes from."""

    GIVEN = "given"
    """It is an input of the run: a gradient or a hyperparameter, the same as of the rule."""
    OUTPUT = "output"
    """An output of the file replaces it."""
    HOST = "host"
    """The host counts or computes it: at each step it is what it means there."""


@dataclass(frozen=True, slots=True)
class Meaning:
    """The meaning of a state of a file in the rule.

    Attributes:
        name: A state of the rule, by the name of its input in the files of the rule; "" for what
            is not a state.
        offset: Of a count of steps, the number that it begins with; of a power, its first exponent.
        number: Of a constant, its value; of a power, its base.
    """

    name: str = ""
    offset: int | None = None
    number: Fraction | None = None

    def __str__(self) -> str:
        if self.offset is None:
            return self.name or str(self.number)
        count = f"t + {self.offset}" if self.offset else "t"
        if self.number is None:
            return count
        return f"({self.number})^({count})" if self.offset else f"({self.number})^t"

    def term(self, count: Term = CLOCK) -> Term:
        """Returns the number that it is after a count of steps; of what is not a state."""
        if self.offset is None:
            return build.rational(self.number)
        exponent = build.add(count, build.rational(self.offset))
        if self.number is None:
            return exponent
        return build.power(build.rational(self.number), exponent)

    def at(self, point: Mapping[str, Array], shape: Sequence[Any]) -> Array:
        """Returns its value at a point of the rule."""
        if self.name:
            return broadcast_tensor(point[self.name], sizes(shape))
        number = build.exact(self.number) if self.number is not None else fmpq(1)
        if self.offset is None:
            return tensor_of(number, sizes(shape))
        count = point[CLOCK.value.name].item() + self.offset
        return tensor_of(count if self.number is None else number ** int(count.p), sizes(shape))


Renaming = Mapping[Port, Meaning]
"""The meaning of each state of a file."""


@dataclass(frozen=True)
class Simulation:
    """The relation of a step of a file to a rule.

    Attributes:
        step: The step of the file.
        renaming: The meaning of each of its states, or of some of them.
        is_uniform: Whether each tensor of a point is one number for all of its elements.
    """

    step: ForeignStep
    renaming: Renaming
    is_uniform: bool = False

    def advance_of(self, port: Port) -> Advance:
        """Returns where the next value of an input comes from."""
        if port.kind in (PortKind.GRAD, PortKind.HYPER):
            return Advance.GIVEN
        return Advance.HOST if port in self.step.host_values else Advance.OUTPUT

    # --- values -----------------------------------------------------------------------------------

    def inputs_at(self, point: Point) -> dict[Port, Array]:
        """Returns the inputs of the file that have a meaning at a point of the rule."""
        return {
            port: self.value_at(port, point)
            for port in self.step.ports.inputs.values()
            if port.kind is not PortKind.STATE or port in self.renaming
        }

    def value_at(self, port: Port, point: Point) -> Array:
        """Returns what an input or a replaced one is at a point of the rule."""
        if port.kind is PortKind.STATE:
            shape = () if self.is_uniform else self.step.types[port].shape
            return self.renaming[port].at(point, shape)
        return point[str(port)]

    def advance(
        self, inputs: Mapping[Port, Array], outputs: Mapping[Port, Array], point: Point
    ) -> dict[Port, Array]:
        """Returns the inputs of the next step of a run of the file.

        Args:
            inputs: The inputs of this step.
            outputs: The outputs of this step by what they replace.
            point: The gradients, hyperparameters and clock of the next step, and the states of the
                rule.
        """
        following = {**inputs, **outputs}
        for port in inputs:
            match self.advance_of(port):
                case Advance.GIVEN:
                    following[port] = point[str(port)]
                case Advance.HOST:
                    following[port] = self.value_at(port, point)
                case Advance.OUTPUT:
                    pass
        return following

    # --- proof ------------------------------------------------------------------------------------

    def expected_outputs(self, model: Model) -> list[Wanted]:
        """Returns the required value of each output, in the states of the rule."""
        by_name = {entry.name: entry for entry in model.outputs()}
        expected = []
        for port in self.step.outputs.values():
            shape = self.step.types[port].shape
            name = naming.following(str(port))
            if port.kind is PortKind.PARAM:
                expected.append(replace(by_name[name], shape=shape, is_counter=None))
                continue
            meaning = self.renaming[port]
            if meaning.name:
                source = by_name[naming.following(meaning.name)]
                expected.append(Wanted(name, source.param, source.term, shape))
            else:
                following = meaning.term(build.add(CLOCK, build.ONE))
                expected.append(Wanted(name, "", following, shape))
        return expected

    def graph(self) -> Graph:
        """Returns the graph with the names of the rule, and the clock for counts of steps."""
        builder = Builder(self.step.graph.name)
        values: list[Value] = []
        inputs: dict[str, Value] = {}
        outputs = self.step.outputs
        counts = [type_.dtype for port, type_ in self.step.types.items() if port in self.renaming]
        # The narrowest counter: the proof holds for the steps at which none has overflowed.
        step_type = TensorType(DType.I32 if DType.I32 in counts else DType.I64)
        for node in self.step.graph.nodes:
            if node.op is Op.INPUT:
                values.append(self._input(builder, inputs, node, step_type))
                continue
            operands = tuple(values[place].index for place in node.operands)
            values.append(builder.add(Node(node.op, operands, node.attributes, node.type)))
        for output in self.step.graph.outputs:
            port = outputs.get(output.name)
            if port is not None:
                value = values[output.index]
                # The rule has no boolean states; a truth is the number 0 or 1.
                if value.type.dtype is DType.BOOL:
                    value = builder.emit(Op.CAST, value, to=DType.F32)
                builder.output(naming.following(str(port)), value)
        return settle_counts(builder.build())

    def _input(
        self, builder: Builder, inputs: dict[str, Value], node: Node, step_type: TensorType
    ) -> Value:
        port = self.step.ports.inputs[str(node.attribute("name"))]
        meaning = self.renaming.get(port)
        if meaning is None or meaning.name:
            name = meaning.name if meaning is not None else str(port)
            is_truth = node.type.dtype is DType.BOOL
            if name not in inputs:
                type_ = TensorType(DType.F32, node.type.shape) if is_truth else node.type
                inputs[name] = builder.input(name, type_, _ROLES[port.kind])
            if not is_truth:
                return inputs[name]
            zero = builder.const(0, DType.F32)
            return builder.emit(Op.NOT, builder.emit(Op.EQ, inputs[name], zero))
        if meaning.offset is None:
            number = node.type.dtype.numpy.type(float(Fraction(meaning.number or 0)))
            return builder.const(np.full(sizes(node.type.shape), number), node.type.dtype)
        if naming.STEP not in inputs:
            inputs[naming.STEP] = builder.input(naming.STEP, step_type, Role.STEP)
        return _count_value(builder, inputs[naming.STEP], meaning, node.type)


def _count_value(builder: Builder, step: Value, meaning: Meaning, type_: TensorType) -> Value:
    """A count of steps or a power with one as a value of a type."""
    value = step
    if meaning.offset:
        value = builder.emit(Op.ADD, value, builder.const(meaning.offset, step.type.dtype))
    if type_.dtype is not value.type.dtype:
        value = builder.emit(Op.CAST, value, to=type_.dtype)
    if meaning.number is not None:
        base = builder.const(float(meaning.number), type_.dtype)
        value = builder.emit(Op.POW, base, value)
    return builder.emit(Op.RESHAPE, value, shape=type_.shape) if type_.shape else value


def settle_counts(graph: Graph) -> Graph:
    """Returns a graph in which comparisons of integers that the steps decide are constants.

    A counter that stops at the largest number of its dtype never stops at the steps at which the
    graph may run: the last one is below that number.
    """
    intervals = ranges(graph, last_step(graph, True))
    builder = Builder(graph.name)
    values: list[Value] = []
    for node, interval in zip(graph.nodes, intervals, strict=True):
        operands = [graph.nodes[place].type.dtype for place in node.operands]
        is_comparison = node.op in (Op.LT, Op.LE, Op.EQ)
        if is_comparison and operands[0].is_integer and interval.low == interval.high:
            truth = np.full(sizes(node.type.shape), bool(interval.low))
            values.append(builder.const(truth, DType.BOOL))
            continue
        places = tuple(values[place].index for place in node.operands)
        values.append(builder.add(Node(node.op, places, node.attributes, node.type)))
    for output in graph.outputs:
        builder.output(output.name, values[output.index])
    return builder.build()


def meanings_of(
    step: ForeignStep, port: Port, states: Sequence[RuleState], decays: Sequence[Fraction] = ()
) -> list[Meaning]:
    """Returns what a state of a file may be, the likeliest first.

    Args:
        step: The step of the file.
        port: The state.
        states: The states of the rule.
        decays: The hyperparameters of the rule of which a float may be a power.
    """
    type_ = step.types[port]
    stated = step.ports.initial.get(port)
    is_constant = port in step.unchanged or port in step.host_values
    meanings: list[tuple[int, Meaning]] = []
    for place, state in enumerate(states):
        fits = is_shaped(state.shape, type_.shape) and port.param in (state.param, "")
        if fits and state.is_counter is type_.dtype.is_integer:
            # Names are only hints for the order of the search: the proof decides.
            rank = 0 if state.label == port.label else 10 + place
            meanings.append((rank, Meaning(state.name)))
    is_number = all(size == 1 for size in type_.shape)
    if is_number and port not in step.unchanged and type_.dtype is not DType.BOOL:
        begins = [0, 1] if stated is None else [int(np.ravel(stated)[0])]
        rank = 5 if type_.dtype.is_integer or port.label == naming.STEP else 100
        meanings += [(rank + begin, Meaning(offset=begin)) for begin in begins if begin >= 0]
        if type_.dtype.is_float:
            meanings += [(110, power) for power in _powers(decays, stated)]
    if is_constant and stated is not None and stated.size:
        numbers = set(np.ravel(stated).tolist())
        if len(numbers) == 1:
            number = Fraction(str(np.float32(numbers.pop())))
            meanings.append((1 if port in step.unchanged else 50, Meaning(number=number)))
    return [meaning for _, meaning in sorted(meanings, key=lambda entry: entry[0])]


def _powers(decays: Sequence[Fraction], stated: Array | None) -> list[Meaning]:
    """Powers of decays that begin with a stated number, or with the exponent 1 or 0."""
    powers = [(decay, exponent) for exponent in (1, 0) for decay in decays]
    if stated is not None:
        first = float(np.ravel(stated)[0])
        powers = [entry for entry in powers if np.isclose(float(entry[0]) ** entry[1], first)]
    return [Meaning(offset=exponent, number=decay) for decay, exponent in powers]


_ROLES = {
    PortKind.PARAM: Role.PARAM,
    PortKind.GRAD: Role.GRAD,
    PortKind.STATE: Role.STATE,
    PortKind.HYPER: Role.HYPER,
}


def sizes(shape: Sequence[Any]) -> tuple[int, ...]:
    """Returns a shape whose sizes are numbers."""
    return tuple(int(size) for size in shape)


def broadcast_tensor(value: Array, shape: tuple[int, ...]) -> Array:
    """Returns a tensor in a shape, without axes of size 1 before the others."""
    while value.ndim > len(shape) and value.shape[0] == 1:
        value = value[0]
    return np.broadcast_to(value, shape)
