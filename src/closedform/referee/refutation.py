"""Refutation of a step: a run from the first states after which a parameter is not the rule's.

The run is evaluated exactly, for all numbers that round to the constants of the file, and is
repeated in onnxruntime, where the difference must be seen. It begins with the values that the
states of the file have before the first step: those that are stated, or each of those that a state
of its kind may have.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
from flint import arb, ctx

from closedform.errors import VerificationError
from closedform.ir import DType, naming
from closedform.ir.graph import Array
from closedform.language import PARAM
from closedform.referee.late_steps import late_starts, stays_at_rest
from closedform.referee.ports import Port, PortKind
from closedform.referee.replay import Engine, floats_of, replay
from closedform.referee.runs import STEPS, Runs, is_different
from closedform.referee.simulation import (
    CLOCK,
    Advance,
    Meaning,
    Point,
    Simulation,
    broadcast_tensor,
    meanings_of,
)
from closedform.verify.terms import build
from closedform.verify.terms.evaluate import Undefined, text_of
from closedform.verify.terms.sides import Sides, sides_of
from closedform.verify.terms.tensor_values import tensor_of
from closedform.verify.translation.constants import rounding_interval
from closedform.verify.translation.scales import Sizes, sizes_of_runs

MOST_BEGINNINGS = 64
"""Assignments of first values to the states of a file that are refuted, each by itself."""

# Bits of the balls: four steps of roots and quotients of numbers of 53 bits stay narrow.
_PRECISION = 192
# The value in the engine is that of the file: it is nearer to it by this factor than to the rule's,
# from which it is so many units in the last place away.
_NEARER, _SPACINGS = 4.0, 2.0
# Relative: it is seen in four digits.
_LARGE = 1e-4
_AT_REST = Sizes((0,), parameters=(None,))


@dataclass(frozen=True, slots=True)
class StepDifference:
    """A run after which a parameter of the file is not that of the rule.

    Attributes:
        steps: The steps that are taken.
        place: The element of the parameter.
        sides: Its value by the file and by the rule.
        tensors: The first parameters and states and all further inputs, as text.
        engine: The engine that computes the value of the file and not that of the rule; "" where
            their difference is below the rounding of its floats.
        value: Its value there.
        size: The difference, relative to the larger one of both sides.
    """

    steps: int
    place: str
    sides: Sides
    tensors: Mapping[str, str]
    engine: str = ""
    value: str = ""
    size: float = 0.0

    @property
    def rank(self) -> tuple[bool, float]:
        """The order of differences: those that an engine shows after the others, then by size."""
        return bool(self.engine), self.size

    def __str__(self) -> str:
        count = "1 step" if self.steps == 1 else f"{self.steps} steps"
        sides = f"{self.sides.left} by the file and {self.sides.right} by the rule"
        engine = f"; {self.engine} computes {self.value}" if self.engine else ""
        return f"after {count} {self.place} is {sides}{self.sides.suffix}{engine}"


@dataclass(frozen=True, slots=True)
class Refutation:
    """The outcome of the search for a run that refutes.

    Attributes:
        difference: The run; None where there is none.
        reason: Why there is none.
    """

    difference: StepDifference | None = None
    reason: str = ""

    @property
    def is_shown(self) -> bool:
        """Whether an engine shows the difference."""
        return self.difference is not None and bool(self.difference.engine)


def refute(runs: Runs) -> Refutation:
    """Returns a run that refutes for any first values that the states of the file may have."""
    simulations = _simulations(runs)
    if isinstance(simulations, str):
        return Refutation(reason=simulations)
    search = _Search(runs, Engine(runs.step))
    likeliest: StepDifference | None = None
    for simulation in simulations:
        difference = search.difference_of_steps(simulation)
        # A refutation must hold for every meaning of the first values, or the file may still be
        # the rule.
        if difference is None or not difference.engine:
            return Refutation(difference)
        likeliest = likeliest or difference
    return Refutation(likeliest)


def refute_evaluation(runs: Runs) -> Refutation:
    """Returns a run after which the point of evaluation of a file of a rule is another one."""
    renaming = {port: _own_meaning(port) for port in runs.step.states}
    simulation = Simulation(runs.step, renaming, runs.is_uniform)
    return Refutation(_Search(runs, Engine(runs.step)).difference_of_evaluation(simulation))


def _own_meaning(port: Port) -> Meaning:
    is_clock = port.label == naming.STEP and not port.param
    return Meaning(offset=0) if is_clock else Meaning(str(port))


# --- the first values ----------------------------------------------------------------------------


def _simulations(runs: Runs) -> list[Simulation] | str:
    """The ways in which a run of the file may begin and advance, or why these are not known."""
    options = []
    for port in runs.step.states:
        meanings = _beginnings(runs, port)
        if isinstance(meanings, str):
            return meanings
        options.append([(port, meaning) for meaning in meanings])
    if math.prod(len(entry) for entry in options) > MOST_BEGINNINGS:
        return "its states may begin in too many ways: state their first values, initial_states"
    return [Simulation(runs.step, dict(entry), runs.is_uniform) for entry in product(*options)]


def _beginnings(runs: Runs, port: Port) -> list[Meaning] | str:
    """A meaning for each first value that a state may have; of what the host gives, for each."""
    step = runs.step
    stated, dtype = step.ports.initial.get(port), step.types[port].dtype
    is_number = all(size == 1 for size in step.types[port].shape)
    if port in step.host_values:
        begins = [0, 1] if stated is None else [int(np.ravel(stated)[0])]
        is_count = port.label == naming.STEP or (dtype.is_integer and stated is not None)
        if is_number and is_count and dtype is not DType.BOOL:
            return [Meaning(offset=begin) for begin in begins]
        return (
            f"no output replaces {port}, and its values are not known: name it "
            f"{naming.STEP!r} where it counts the steps"
        )
    meanings = meanings_of(step, port, runs.states)
    if stated is not None:
        return meanings[:1] or [Meaning(number=Fraction(0))]
    of_label = [meaning for meaning in meanings if meaning.name.rpartition(".")[2] == port.label]
    if is_number and dtype.is_float:
        if of_label or runs.is_count(port):
            return of_label or [Meaning(offset=begin) for begin in (0, 1)]
        return f"the first value of {port} is not known: state it, initial_states"
    by_value: dict[Any, Meaning] = {}
    for meaning in meanings:
        by_value.setdefault(runs.first_value(meaning), meaning)
    if not is_number and (not by_value or runs.has_further_states(port)):
        by_value.setdefault(PARAM, Meaning(naming.param(port.param)))
        by_value.setdefault(0, Meaning(number=Fraction(0)))
    return list(by_value.values()) or f"the first value of {port} is not known"


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


# --- runs ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Search:
    """Runs of a file and its rule, from some first values."""

    runs: Runs
    engine: Engine

    def difference_of_steps(self, simulation: Simulation) -> StepDifference | None:
        """Returns a difference of the parameters after some steps of the file."""
        return self._clear_difference(
            simulation, lambda points: self._after_steps(simulation, points)
        )

    def difference_of_evaluation(self, simulation: Simulation) -> StepDifference | None:
        """Returns a difference of the point of evaluation at a state that a run reaches."""
        return self._clear_difference(
            simulation, lambda points: self._at_states(simulation, points)
        )

    def _clear_difference(
        self,
        simulation: Simulation,
        list_differences: Callable[[Iterator[Point]], Iterator[StepDifference]],
    ) -> StepDifference | None:
        """The first large difference that the engine shows, or else the largest one."""
        largest: StepDifference | None = None
        for trajectory in self._trajectories(simulation):
            for difference in list_differences(trajectory):
                if difference.engine and difference.size >= _LARGE:
                    return difference
                if largest is None or difference.rank > largest.rank:
                    largest = difference
        return largest

    def _trajectories(self, simulation: Simulation) -> Iterator[Iterator[Point]]:
        """Yields runs of the rule from step 0, and from later ones where it stays at rest."""
        for place, run_sizes in enumerate(sizes_of_runs(self.runs.scales)):
            yield self._points(2 + place, run_sizes)
        starts = late_starts(self.runs)
        if starts and stays_at_rest(self.runs, simulation):
            for start in starts:
                yield self._points(start, _AT_REST, start)

    def _points(self, seed: int, run_sizes: Sizes, start: int = 0) -> Iterator[Point]:
        """Yields the points of a run of the rule from a step on."""
        draw = random.Random(seed)
        state = self.runs.beginning(draw, run_sizes, start)
        for count in range(STEPS + 1):
            point = {**state, **self.runs.inputs(draw, run_sizes, count)}
            yield point
            state = self.runs.rule_values(point)

    def _after_steps(
        self, simulation: Simulation, trajectory: Iterator[Point]
    ) -> Iterator[StepDifference]:
        """Yields the differences after each step of a run of the file."""
        step = self.runs.step
        points = [next(trajectory)]
        inputs = first = self._first_inputs(simulation, points[0])
        names = list(step.outputs)
        for following in trajectory:
            values = self.runs.file_values(names, inputs)
            outputs = {
                port: broadcast_tensor(value, self.runs.sizes(step.types[port].shape))
                for port, value in zip(step.outputs.values(), values, strict=True)
            }
            inputs = simulation.advance(inputs, outputs, following)
            places = [
                place
                for name, port in step.outputs.items()
                if port.kind is PortKind.PARAM
                for place in _places(name, inputs[port], following[str(port)])
            ]
            if places:
                arrays = replay(self.engine, simulation, first, points)
                yield self._clearest(simulation, first, points, places, arrays)
            points.append(following)

    def _at_states(
        self, simulation: Simulation, trajectory: Iterator[Point]
    ) -> Iterator[StepDifference]:
        """Yields the differences of the point of evaluation at each state of a run."""
        entries = [
            entry for param in self.runs.step.shapes for entry in self.runs.model.point(param)
        ]
        points: list[Point] = []
        for point in trajectory:
            points.append(point)
            inputs = simulation.inputs_at(point)
            values = self.runs.file_values([entry.name for entry in entries], inputs)
            targets = self.runs.values([entry.term for entry in entries], point)
            places = [
                place
                for entry, *sides in zip(entries, values, targets, strict=True)
                for place in _places(entry.name, *sides)
            ]
            if places:
                arrays = self.engine.run(floats_of(self.runs.step, inputs))
                yield self._clearest(simulation, inputs, points, places, arrays)

    def _first_inputs(self, simulation: Simulation, point: Point) -> dict[Port, Array]:
        inputs = simulation.inputs_at(point)
        if _clock_of(point):  # the first values are what the states mean, which was shown
            return inputs
        for port, initial_value in self.runs.step.ports.initial.items():
            if port in inputs and not self.runs.begins_as_param(port):
                dtype = self.runs.step.types[port].dtype
                shape = self.runs.sizes(self.runs.step.types[port].shape)
                if self.runs.is_uniform:
                    initial_value = uniform_tensor(initial_value, str(port))
                inputs[port] = broadcast_tensor(rounded_tensor(initial_value, dtype), shape)
        return inputs

    def _clearest(
        self,
        simulation: Simulation,
        first: Mapping[Port, Array],
        points: Sequence[Point],
        places: Sequence[_Place],
        arrays: Mapping[str, Array],
    ) -> StepDifference:
        """The largest difference that the engine shows, or the largest one."""
        by_size = sorted(places, key=lambda place: -place.size)
        visible = [place for place in by_size if place.is_shown(place.number_in(arrays))]
        largest = (visible or by_size)[0]
        engine, value = "", ""
        if visible:
            engine, value = self.engine.name, str(largest.number_in(arrays))
        port = self.runs.step.outputs.get(largest.output, largest.output)
        label = f"{port}[{', '.join(map(str, largest.index))}]" if largest.index else str(port)
        sides = sides_of(largest.value, largest.expected)
        texts = dict(self._texts(simulation, first, points))
        steps = len(points) + _clock_of(points[0])
        return StepDifference(steps, label, sides, texts, engine, value, largest.size)

    def _texts(
        self, simulation: Simulation, first: Mapping[Port, Array], points: Sequence[Point]
    ) -> Iterator[tuple[str, str]]:
        """The inputs of a run as text: what it begins with, and what is given at each step."""
        for name in self.runs.state_names:
            yield name, text_of_tensor(points[0][name])
        for port, value in first.items():
            is_own = port.kind is PortKind.STATE and str(port) not in self.runs.state_names
            if is_own and simulation.advance_of(port) is Advance.OUTPUT:
                yield str(port), text_of_tensor(value)
        start = _clock_of(points[0])
        if start:
            for param in self.runs.step.shapes:
                yield f"{naming.grad(param)} before t = {start}", "0"
        for count, point in enumerate(points, start):
            for port in simulation.step.ports.inputs.values():
                if port in first and simulation.advance_of(port) is not Advance.OUTPUT:
                    value = simulation.value_at(port, point)
                    yield f"{port} at t = {count}", text_of_tensor(value)


def uniform_tensor(values: Array, name: str) -> Array:
    """Returns the number that all elements of a tensor are.

    Args:
        values: The tensor.
        name: What it is, for the error.

    Raises:
        VerificationError: Its elements differ.
    """
    numbers = np.unique(values)
    if numbers.size != 1:
        raise VerificationError(f"the elements of {name} begin with several numbers")
    return numbers.reshape(())


def _clock_of(point: Point) -> int:
    return int(point[CLOCK.value.name].item().p)


@dataclass(frozen=True, slots=True)
class _Place:
    """An element of an output whose values differ.

    Attributes:
        output: The output.
        index: The element.
        value: Its value by the file.
        expected: Its value by the rule.
    """

    output: str
    index: tuple[int, ...]
    value: Any
    expected: Any

    @property
    def size(self) -> float:
        """The difference, relative to the larger one of both values."""
        if isinstance(self.value, Undefined):
            return math.inf
        left, right = arb(self.value).mid(), arb(self.expected).mid()
        return float(abs(left - right) / abs(left).max(abs(right)))

    def number_in(self, arrays: Mapping[str, Array]) -> Any:
        """Returns the element in the outputs of an engine."""
        array = np.asarray(arrays[self.output])
        return array[self.index] if self.index else array.ravel()[0]

    def is_shown(self, number: Any) -> bool:
        """Whether the value in an engine is that of the file and not that of the rule."""
        if not np.isfinite(number):
            return isinstance(self.value, Undefined)
        exact = arb(build.exact(float(number)))
        if isinstance(self.value, Undefined):
            expected = arb(self.expected).mid()
            return bool(abs(exact - expected) > _LARGE * abs(expected))
        from_file, from_rule = (
            float(abs(exact - arb(side).mid())) for side in (self.value, self.expected)
        )
        spacing = float(np.spacing(np.abs(number)))
        return from_rule > max(_NEARER * from_file, _SPACINGS * spacing)


def _places(output: str, values: Array, targets: Array) -> Iterator[_Place]:
    """The elements of an output that surely differ."""
    shape = np.broadcast_shapes(values.shape, targets.shape)
    left, right = np.broadcast_to(values, shape), np.broadcast_to(targets, shape)
    for index in np.ndindex(shape):
        if is_different(left[index], right[index]):
            yield _Place(output, index, left[index], right[index])


def text_of_tensor(tensor: Array) -> str:
    """Returns exact numbers as text, nested by axes."""

    def write(part: Any) -> str:
        if isinstance(part, list):
            return f"[{', '.join(map(write, part))}]"
        return text_of(part)

    return write(np.asarray(tensor, dtype=object).tolist())
