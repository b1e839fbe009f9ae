"""Runs of a rule and of a step of a file, over exact numbers: values, and proposals of meanings.

A run begins with the states of the rule before the first step and takes steps with gradients of
some sizes. Each float constant of the file is the ball of all numbers that round to it, so that two
elements whose balls are disjoint differ, however the constants were rounded. Where the tensors are
too large for this, each is one number for all of its elements.

A renaming is proposed where each output of the file overlaps what the rule makes of it, at the
states that the rule reaches. ``refutation`` runs the file by itself.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import sympy as sp
from flint import arb, fmpq

from closedform.effort import Effort, OutOfEffort
from closedform.errors import ClosedFormError
from closedform.ir import DType, Shape, naming
from closedform.ir.graph import Array, Node
from closedform.ir.types import COMPUTED_FLOATS
from closedform.language import PARAM
from closedform.referee.ports import Port, PortKind
from closedform.referee.simulation import (
    CLOCK,
    Meaning,
    Point,
    Renaming,
    Simulation,
    broadcast_tensor,
    meanings_of,
    sizes,
)
from closedform.referee.step import ForeignStep, RuleState, states_of
from closedform.verify.terms import build
from closedform.verify.terms.evaluate import Undefined, is_decided
from closedform.verify.terms.evaluate import value as value_of
from closedform.verify.terms.from_graph import Constant, terms_of_graph
from closedform.verify.terms.sympy_io import term
from closedform.verify.terms.tensor_values import MOST_ELEMENTS, tensor_of, tensor_values
from closedform.verify.terms.tree import Term, symbols
from closedform.verify.translation.constants import Constants
from closedform.verify.translation.refutation import FloatValues
from closedform.verify.translation.rule_terms import Model
from closedform.verify.translation.scales import Size, Sizes, draw_floats, scales_of

STEPS = 4
"""Steps of a run."""

MOST_CHECKS = 2000
"""Outputs that are evaluated while a renaming is looked for."""

_USUAL = Sizes((0,))


class Runs:
    """Runs of a file and of a rule.

    Args:
        step: The step of the file.
        model: The rules of its parameters.
        effort: The work that may be done.
        is_uniform: Whether each tensor is one number for all of its elements; None for where there
            are too many elements for exact numbers.
    """

    def __init__(
        self, step: ForeignStep, model: Model, effort: Effort, is_uniform: bool | None = None
    ) -> None:
        self.step = step
        self.model = model
        self.effort = effort
        shapes = [sizes(type_.shape) for type_ in step.types.values()]
        is_large = sum(map(math.prod, shapes)) > MOST_ELEMENTS
        self.is_uniform = is_large if is_uniform is None else is_uniform
        self.states = states_of(model)
        self.outputs = {entry.name: entry.term for entry in model.outputs()}
        self.checks = 0

    def sizes(self, shape: Shape) -> tuple[int, ...]:
        """Returns the shape of the exact numbers of a tensor."""
        return () if self.is_uniform else sizes(shape)

    @cached_property
    def dtype(self) -> DType:
        """The dtype of the parameters, in which tensors are drawn."""
        dtypes = [type_.dtype for type_ in self.step.types.values()]
        return next((dtype for dtype in dtypes if dtype in COMPUTED_FLOATS), DType.F32)

    @cached_property
    def scales(self) -> tuple[int, ...]:
        """The sizes of the constants of the rule and of the file."""
        return scales_of((*self.outputs.values(), *self.floats.exact_outputs.values()))

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
        return self.values(terms, {**values, **balls})

    def values(self, terms: Sequence[Term], point: Mapping[str, Array]) -> list[Array]:
        """Returns the values of terms at a point."""
        if not self.is_uniform:
            return tensor_values(terms, point)
        numbers = {name: array.item() for name, array in point.items()}
        return [tensor_of(value_of(entry, numbers)) for entry in terms]

    def rule_values(self, point: Point) -> Point:
        """Returns the point after a step of the rule, without the gradients."""
        self.effort.check()
        names = [*self.state_names, naming.STEP]
        results = self.values([self.outputs[naming.following(name)] for name in names], point)
        following = {
            name: broadcast_tensor(value, point[name].shape)
            for name, value in zip(names[:-1], results[:-1], strict=True)
        }
        # A rule that accumulates gradients does not count each step.
        return {**following, CLOCK.value.name: results[-1]}

    @cached_property
    def state_names(self) -> list[str]:
        """The names of parameters and states of the rule."""
        return [*map(naming.param, self.step.shapes), *(state.name for state in self.states)]

    def beginning(self, draw: random.Random, run_sizes: Sizes = _USUAL, start: int = 0) -> Point:
        """Returns the parameters, the states and the clock before the first step."""
        point = {CLOCK.value.name: tensor_of(fmpq(start))}
        point |= {
            naming.param(param): self._draw_tensor(shape, run_sizes.parameters, draw)
            for param, shape in self.step.shapes.items()
        }
        for port in self.step.states:
            # A state that begins as the parameter says where the parameter begins.
            stated = self.step.ports.initial.get(port)
            if stated is not None and self.begins_as_param(port) and not self.is_uniform:
                point[naming.param(port.param)] = exact_tensor(stated)
        for state in self.states:
            point[state.name] = self._initial(state, point)
        return point

    def _draw_tensor(self, shape: Shape, exponents: Sequence[Size], draw: random.Random) -> Array:
        return draw_floats(self.sizes(shape), exponents, draw, self.dtype)

    def begins_as_param(self, port: Port) -> bool:
        """Whether a state of this name begins as the parameter."""
        states = [state for state in self.states if state.param == port.param != ""]
        return any(state.label == port.label and state.initial == PARAM for state in states)

    def _initial(self, state: RuleState, point: Point) -> Array:
        if state.initial == PARAM:
            return point[naming.param(state.param)]
        (value,) = tensor_values([term(state.initial)], {})
        return tensor_of(value.item(), self.sizes(state.shape))

    def inputs(self, draw: random.Random, run_sizes: Sizes, count: int) -> Point:
        """Returns gradients and further inputs of the rule for a step."""
        point: Point = {}
        for param, shape in self.step.shapes.items():
            point[naming.grad(param)] = self._draw_tensor(shape, run_sizes.at(count), draw)
        for port in self.step.ports.inputs.values():
            if port.kind is PortKind.HYPER:
                shape = self.sizes(self.step.types[port].shape)
                point[str(port)] = tensor_of(fmpq(draw.randint(1, 9), 64), shape)
        return point

    # --- first values -----------------------------------------------------------------------------

    def first_value(self, meaning: Meaning) -> Any:
        """Returns the value before the first step of what a state may be."""
        if not meaning.name:
            return meaning.offset if meaning.number is None else meaning.number
        return next(state.initial for state in self.states if state.name == meaning.name)

    def is_count(self, port: Port) -> bool:
        """Whether a step adds 1 to a state."""
        output = next((name for name, entry in self.step.outputs.items() if entry == port), "")
        symbol = next(node for node in self.step.graph.inputs if self._port(node) == port)
        following = build.add(_symbol(symbol), build.ONE)
        return bool(output) and self.floats.exact_outputs[output] == following

    def _port(self, node: Node) -> Port:
        return self.step.ports.inputs[str(node.attribute("name"))]

    def has_further_states(self, port: Port) -> bool:
        """Whether a parameter has more states of this shape in the file than in the rule."""
        shape = self.step.types[port].shape
        of_file = [
            entry
            for entry in self.step.states
            if entry.param == port.param and self.step.types[entry].shape == shape
        ]
        of_rule = [
            state for state in self.states if state.param == port.param and state.shape == shape
        ]
        return len(of_file) > len(of_rule)

    # --- proposals --------------------------------------------------------------------------------

    def trajectory(self) -> list[Point]:
        """Returns some points of a run of the rule, each with the inputs of the step after it."""
        # A fixed seed: proposals, and so verdicts, are the same in each run.
        draw = random.Random(1)
        state = self.beginning(draw)
        points = []
        for count in range(STEPS):
            points.append({**state, **self.inputs(draw, _USUAL, count)})
            state = self.rule_values(points[-1])
        return [*points, state]

    @cached_property
    def _decays(self) -> list[Fraction]:
        """The hyperparameters of the rules that are between 0 and 1."""
        numbers = [
            value
            for rule, _ in self.model.members
            for value in rule.hyperparameters.values()
            if isinstance(value, sp.Rational) and 0 < value < 1
        ]
        return [Fraction(int(number.p), int(number.q)) for number in dict.fromkeys(numbers)]

    def renamings(self) -> Iterator[Renaming]:
        """Yields renamings that some steps do not contradict, the likeliest first."""
        options = [
            (port, meanings_of(self.step, port, self.states, self._decays))
            for port in sorted(self.step.states, key=lambda port: port.param)
        ]
        points = self.trajectory()
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
        simulation = Simulation(self.step, renaming, self.is_uniform)
        for place in range(1, len(points) - 1):
            self.checks += len(outputs)
            values = self.file_values(outputs, simulation.inputs_at(points[place]))
            for name, value in zip(outputs, values, strict=True):
                expected = simulation.value_at(self.step.outputs[name], points[place + 1])
                if _have_difference(value, expected):
                    return False
        return True


def propose(runs: Runs) -> Iterator[Renaming]:
    """Yields renamings; no further one where terms cannot be evaluated or the work is done."""
    try:
        yield from runs.renamings()
    except (ClosedFormError, ArithmeticError, OutOfEffort):
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


def exact_tensor(array: Array) -> Array:
    """Returns the tensor of the numbers that floats hold."""
    numbers = [build.exact(number) for number in np.asarray(array, dtype=float).ravel().tolist()]
    return tensor_of(numbers, np.shape(array))


def _have_difference(left: Array, right: Array) -> bool:
    shape = np.broadcast_shapes(left.shape, right.shape)
    sides = (np.broadcast_to(side, shape).ravel() for side in (left, right))
    return any(is_different(*pair) for pair in zip(*sides, strict=True))


def is_different(value: Any, expected: Any) -> bool:
    """Returns whether an element surely is not the required one, which has a value."""
    if not is_decided(expected):
        return False
    if not is_decided(value):
        return isinstance(value, Undefined)
    left, right = (fmpq(int(e)) if isinstance(e, bool) else e for e in (value, expected))
    return not arb(left).overlaps(arb(right))
