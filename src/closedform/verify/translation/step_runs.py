"""Runs of a foreign step next to a rule, over exact numbers: proposals, and refutations.

A run begins with the states of the rule before the first step and takes steps with gradients of a
few sizes. Each float constant of the file is the ball of all numbers that round to it, so that two
elements whose balls are disjoint differ, however the constants were rounded.

A renaming is proposed where each output of the file overlaps what the rule makes of it, at the
states that the rule reaches. A refutation is a run of the file by itself: from the values that its
states have before the first step, some parameter becomes another one than that of the rule.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
import sympy as sp
from flint import arb, ctx, fmpq

from closedform.effort import Effort
from closedform.errors import ClosedFormError
from closedform.importers.onnx_ports import Port, PortKind
from closedform.ir import DType, naming
from closedform.ir.graph import Array, Node
from closedform.language import PARAM
from closedform.verify.terms import build
from closedform.verify.terms.evaluate import Undefined, is_decided, text_of
from closedform.verify.terms.from_graph import Constant, terms_of_graph
from closedform.verify.terms.sympy_io import term
from closedform.verify.terms.tensor_values import MOST_ELEMENTS, tensor_of, tensor_values
from closedform.verify.terms.tree import Term, symbols
from closedform.verify.translation.constants import Constants, rounding_interval
from closedform.verify.translation.foreign_step import (
    CLOCK,
    ForeignStep,
    Meaning,
    Renaming,
    RuleState,
    meanings_of,
    states_of,
)
from closedform.verify.translation.refutation import FloatValues
from closedform.verify.translation.rule_terms import Model

SIZES = (fmpq(1), fmpq(1, 1000), fmpq(1, 10**8), fmpq(1000))
"""The sizes of gradients: an edit of an epsilon shows where they are small."""

STEPS = 4
"""Steps of a run."""

MOST_CHECKS = 2000
"""Outputs that are evaluated while a renaming is looked for."""

MOST_BEGINNINGS = 32
"""Assignments of first values to the states of a file that are refuted, each by itself."""

# Bits of the balls: four steps of roots and quotients of numbers of 53 bits stay narrow.
_PRECISION = 192
Point = dict[str, Array]


@dataclass(frozen=True, slots=True)
class StepDifference:
    """A run after which a parameter of the file is not that of the rule.

    Attributes:
        steps: The steps that are taken.
        place: The element of the parameter.
        values: Its value by the file and by the rule.
        tensors: The first parameters and states and all gradients, as text.
    """

    steps: int
    place: str
    values: tuple[str, str]
    tensors: Mapping[str, str]

    def __str__(self) -> str:
        count = "1 step" if self.steps == 1 else f"{self.steps} steps"
        computed, expected = self.values
        return f"after {count} {self.place} is {computed} by the file and {expected} by the rule"


class Runs:
    """Runs of a file and of a rule.

    Args:
        step: The step of the file.
        model: The rules of its parameters.
        effort: The work that may be done.
    """

    def __init__(self, step: ForeignStep, model: Model, effort: Effort) -> None:
        self.step = step
        self.model = model
        self.effort = effort
        self.states = states_of(model)
        self.outputs = {entry.name: entry.term for entry in model.outputs()}
        self.checks = 0

    @property
    def is_small(self) -> bool:
        """Whether the tensors are small enough to be evaluated exactly."""
        shapes = [type_.shape for type_ in self.step.types.values()]
        sizes = [math.prod(_sizes(shape)) for shape in shapes]
        return sum(sizes) <= MOST_ELEMENTS

    # --- values -----------------------------------------------------------------------------------

    @cached_property
    def floats(self) -> FloatValues:
        """The outputs of the file, with a ball for each constant."""
        names = {str(node.attribute("name")): _symbol(node) for node in self.step.graph.inputs}

        def outputs(constant: Constant) -> Mapping[str, Term]:
            return terms_of_graph(self.step.graph, constant=constant, symbols=names)

        return FloatValues(Constants(self.outputs.values(), check=self.effort.check), outputs)

    def file_values(self, names: Sequence[str], point: Mapping[Port, Array]) -> list[Array]:
        """Returns outputs of the file for the values of its inputs."""
        self.effort.check()
        terms = [self.floats.outputs[name] for name in names]
        values = {
            f"file.{name}": point[port]
            for name, port in self.step.ports.inputs.items()
            if port in point
        }
        balls = {name: tensor_of(ball) for name, ball in self.floats.balls.items()}
        return tensor_values(terms, {**values, **balls})

    def rule_values(self, point: Point) -> Point:
        """Returns the point after a step of the rule, without the gradients and the clock."""
        self.effort.check()
        names = [naming.following(name) for name in self._carried]
        results = tensor_values([self.outputs[name] for name in names], point)
        return {
            name: _broadcast(value, point[name].shape)
            for name, value in zip(self._carried, results, strict=True)
        }

    @cached_property
    def _carried(self) -> list[str]:
        """The names of parameters and states of the rule."""
        return [*map(naming.param, self.step.shapes), *(state.name for state in self.states)]

    def beginning(self, draw: random.Random) -> Point:
        """Returns the parameters and states before the first step."""
        shapes = {param: _sizes(shape) for param, shape in self.step.shapes.items()}
        point = {
            naming.param(param): _drawn(shape, fmpq(1), draw) for param, shape in shapes.items()
        }
        for port in self.step.states:
            # A state that begins as the parameter says where the parameter begins.
            stated = self.step.ports.initial.get(port)
            if stated is not None and self._begins_as_param(port) and port.param in shapes:
                point[naming.param(port.param)] = exact_tensor(stated)
        for state in self.states:
            point[state.name] = self._initial(state, point)
        return point

    def _begins_as_param(self, port: Port) -> bool:
        states = [state for state in self.states if state.param == port.param]
        return any(state.label == port.label and state.initial == PARAM for state in states)

    def _initial(self, state: RuleState, point: Point) -> Array:
        if state.initial == PARAM:
            return point[naming.param(state.param)]
        (value,) = tensor_values([term(state.initial)], {})
        return tensor_of(value.item(), _sizes(state.shape))

    def inputs(self, draw: random.Random, size: fmpq, count: int) -> Point:
        """Returns gradients, further inputs of the rule and the clock for a step."""
        point = {CLOCK.value.name: tensor_of(fmpq(count))}
        for param, shape in self.step.shapes.items():
            point[naming.grad(param)] = _drawn(_sizes(shape), size, draw)
        for port in self.step.ports.inputs.values():
            if port.kind is PortKind.HYPER:
                shape = _sizes(self.step.types[port].shape)
                point[str(port)] = tensor_of(fmpq(draw.randint(1, 9), 64), shape)
        return point

    def file_point(self, renaming: Mapping[Port, Meaning], point: Point) -> dict[Port, Array]:
        """Returns the inputs of the file at a point of the rule."""
        values = {}
        for port in self.step.ports.inputs.values():
            if port.kind is not PortKind.STATE:
                values[port] = point[str(port)]
            elif port in renaming:
                values[port] = self._meaning(port, renaming[port], point)
        return values

    def _meaning(self, port: Port, meaning: Meaning, point: Point) -> Array:
        shape = _sizes(self.step.types[port].shape)
        if meaning.name:
            return _broadcast(point[meaning.name], shape)
        if meaning.offset is not None:
            return tensor_of(point[CLOCK.value.name].item() + meaning.offset, shape)
        return tensor_of(build.exact(meaning.number), shape)

    # --- proposals --------------------------------------------------------------------------------

    def trajectory(self) -> list[Point]:
        """Returns some points of a run of the rule, each with the inputs of the step after it."""
        # A fixed seed: proposals, and so verdicts, are the same in each run.
        draw = random.Random(1)
        state = self.beginning(draw)
        points = []
        for count in range(STEPS):
            points.append({**state, **self.inputs(draw, SIZES[0], count)})
            state = self.rule_values(points[-1])
        return [*points, {**state, CLOCK.value.name: tensor_of(fmpq(STEPS))}]

    def renamings(self) -> Iterator[Renaming]:
        """Yields renamings that some steps do not contradict, the likeliest first."""
        unchanged = self.step.unchanged
        options = [
            (port, meanings_of(self.step, port, self.states, unchanged))
            for port in sorted(self.step.states, key=lambda port: port.param)
        ]
        points = self.trajectory() if self.is_small else []
        yield from self._extend({}, options, points)

    def _extend(
        self,
        renaming: dict[Port, Meaning],
        options: Sequence[tuple[Port, list[Meaning]]],
        points: Sequence[Point],
    ) -> Iterator[Renaming]:
        """Yields the renamings that continue one, checked output by output."""
        if not options:
            yield renaming
            return
        (port, meanings), *rest = options
        for meaning in _likely(meanings, renaming, port):
            longer = {**renaming, port: meaning}
            # Only outputs that the new meaning completes: each is evaluated once on a path.
            ready = self._ready(longer) - self._ready(renaming)
            # Beyond the limit the renaming is not refused but left to the proof.
            if self.checks > MOST_CHECKS or self._agrees(longer, sorted(ready), points):
                yield from self._extend(longer, rest, points)

    def _ready(self, renaming: Renaming) -> set[str]:
        """The outputs whose states have all a meaning."""
        return {
            name
            for name, port in self.step.outputs.items()
            if self._needed[name] <= renaming.keys()
            and (port.kind is not PortKind.STATE or port in renaming)
        }

    @cached_property
    def _needed(self) -> dict[str, set[Port]]:
        """The states that each output of the file takes."""
        inputs = self.step.ports.inputs
        return {
            output: {
                inputs[name.removeprefix("file.")]
                for name in symbols(self.floats.outputs[output])
                if name.startswith("file.")
                and inputs[name.removeprefix("file.")].kind is PortKind.STATE
            }
            for output in self.step.outputs
        }

    def _agrees(
        self, renaming: Mapping[Port, Meaning], outputs: Sequence[str], points: Sequence[Point]
    ) -> bool:
        for place in range(1, len(points) - 1):
            self.checks += len(outputs)
            values = self.file_values(outputs, self.file_point(renaming, points[place]))
            for name, value in zip(outputs, values, strict=True):
                port = self.step.outputs[name]
                following = points[place + 1]
                expected = (
                    self._meaning(port, renaming[port], following)
                    if port.kind is PortKind.STATE
                    else following[str(port)]
                )
                if _first_difference(value, expected) is not None:
                    return False
        return True

    # --- refutations ------------------------------------------------------------------------------

    def refute(self) -> StepDifference | None:
        """Returns a difference from the rule, for any first values that the states may have."""
        if not self.is_small:
            return None
        beginnings = self._beginnings()
        if beginnings is None:
            return None
        differences = []
        for renaming in beginnings:
            difference = self._refute_from(renaming)
            # A refutation must hold for every meaning of the first values, or the file may still be
            # the rule.
            if difference is None:
                return None
            differences.append(difference)
        return max(differences, key=lambda difference: difference.steps)

    def _beginnings(self) -> list[dict[Port, Meaning]] | None:
        """A meaning for each first value that each state may have; None where they are too many."""
        unchanged = self.step.unchanged
        initial = {state.name: state.initial for state in self.states}
        options = []
        for port in self.step.states:
            meanings = meanings_of(self.step, port, self.states, unchanged)
            if port in self.step.ports.initial:
                meanings = meanings[:1] or [Meaning(offset=0)]
            by_value = {_first_value(meaning, initial): meaning for meaning in meanings[::-1]}
            if not by_value:
                return None
            options.append([(port, meaning) for meaning in by_value.values()])
        count = math.prod(len(entry) for entry in options)
        return None if count > MOST_BEGINNINGS else [dict(entry) for entry in product(*options)]

    def _refute_from(self, renaming: Mapping[Port, Meaning]) -> StepDifference | None:
        for place, size in enumerate(SIZES):
            draw = random.Random(2 + place)
            state = self.beginning(draw)
            first = {**state, CLOCK.value.name: tensor_of(fmpq(0)), **self.inputs(draw, size, 0)}
            file_state = self.file_point(renaming, first)
            for port, stated in self.step.ports.initial.items():
                if port in file_state and not self._begins_as_param(port):
                    file_state[port] = rounded_tensor(stated, self.step.types[port].dtype)
            difference = self._run(state, file_state, draw, size)
            if difference is not None:
                return difference
        return None

    def _run(
        self, state: Point, file_state: dict[Port, Array], draw: random.Random, size: fmpq
    ) -> StepDifference | None:
        names = list(self.step.outputs)
        tensors = {name: _text(value) for name, value in state.items()}
        for count in range(STEPS):
            inputs = self.inputs(draw, size, count)
            tensors |= {
                f"{name} at t = {count}": _text(value)
                for name, value in inputs.items()
                if name != CLOCK.value.name
            }
            point = {**state, **inputs}
            port_values = {
                port: point[str(port)]
                for port in self.step.ports.inputs.values()
                if port.kind in (PortKind.GRAD, PortKind.HYPER)
            }
            values = self.file_values(names, {**file_state, **port_values})
            state = self.rule_values(point)
            file_state = {
                **file_state,
                **{
                    port: _broadcast(value, _sizes(self.step.types[port].shape))
                    for port, value in zip(self.step.outputs.values(), values, strict=True)
                },
            }
            for param in self.step.shapes:
                name = naming.param(param)
                computed, expected = file_state[Port(PortKind.PARAM, param)], state[name]
                place = _first_difference(computed, expected)
                if place is not None:
                    texts = text_of(computed[place]), text_of(expected[place])
                    label = f"{name}[{', '.join(map(str, place))}]"
                    return StepDifference(count + 1, label, texts, tensors)
        return None


def propose(runs: Runs) -> Iterator[Renaming]:
    """Yields renamings; none where the terms cannot be evaluated."""
    try:
        yield from runs.renamings()
    except (ClosedFormError, ArithmeticError):
        return


def _symbol(node: Node) -> Term:
    """The term of an input; a truth is a number that is not 0."""
    name = f"file.{node.attribute('name')}"
    symbol = build.symbol(name, integer=node.type.dtype.is_integer)
    is_truth = node.type.dtype is DType.BOOL
    return build.negate(build.equal(symbol, build.ZERO)) if is_truth else symbol


def _likely(
    meanings: Sequence[Meaning], renaming: Mapping[Port, Meaning], port: Port
) -> list[Meaning]:
    """The meanings, those first that states of this label have, then those that no state has."""
    labels = {
        meaning.name.rpartition(".")[2]
        for earlier, meaning in renaming.items()
        if earlier.label == port.label
    }
    used = set(renaming.values())
    return sorted(
        meanings,
        key=lambda meaning: (
            bool(labels) and meaning.name.rpartition(".")[2] not in labels,
            bool(meaning.name) and meaning in used,
        ),
    )


def _first_value(meaning: Meaning, initial: Mapping[str, sp.Expr]) -> Any:
    if meaning.name:
        return initial[meaning.name]
    return sp.Integer(meaning.offset) if meaning.offset is not None else meaning.number


def _sizes(shape: Sequence[Any]) -> tuple[int, ...]:
    return tuple(int(size) for size in shape)


def exact_tensor(array: Array) -> Array:
    """Returns the tensor of the numbers that floats hold."""
    numbers = [build.exact(number) for number in np.asarray(array, dtype=float).ravel().tolist()]
    return tensor_of(numbers, np.shape(array))


def rounded_tensor(array: Array, dtype: DType) -> Array:
    """Returns the tensor of the balls of all numbers that round to floats; whole numbers stay."""

    def ball(number: float) -> Any:
        if not dtype.is_float or float(number).is_integer():
            return build.exact(float(number))
        low, high = rounding_interval(number, dtype)
        with ctx.workprec(_PRECISION):
            return arb(low).union(arb(high))

    numbers = [ball(number) for number in np.asarray(array, dtype=float).ravel().tolist()]
    return tensor_of(numbers, np.shape(array))


def _drawn(shape: tuple[int, ...], size: fmpq, draw: random.Random) -> Array:
    numbers = [
        fmpq(draw.choice((-1, 1)) * draw.randint(3, 40), 32) * size for _ in range(math.prod(shape))
    ]
    return tensor_of(numbers, shape)


def _broadcast(value: Array, shape: tuple[int, ...]) -> Array:
    while value.ndim > len(shape) and value.shape[0] == 1:
        value = value[0]
    return np.broadcast_to(value, shape)


def _first_difference(computed: Array, expected: Array) -> tuple[int, ...] | None:
    """The place of elements that surely differ."""
    shape = np.broadcast_shapes(computed.shape, expected.shape)
    left, right = np.broadcast_to(computed, shape), np.broadcast_to(expected, shape)
    for place in np.ndindex(shape):
        if _differ(left[place], right[place]):
            return place
    return None


def _differ(computed: Any, expected: Any) -> bool:
    if not is_decided(expected):
        return False
    if not is_decided(computed):
        return isinstance(computed, Undefined)
    computed, expected = (
        fmpq(int(side)) if isinstance(side, bool) else side for side in (computed, expected)
    )
    return not arb(computed).overlaps(arb(expected))


def _text(tensor: Array) -> str:
    def write(part: Any) -> str:
        if isinstance(part, list):
            return f"[{', '.join(map(write, part))}]"
        return text_of(part)

    return write(np.asarray(tensor, dtype=object).tolist())
