"""A traced schedule compared with the function it was traced from."""

from __future__ import annotations

import bisect
import itertools
import math
import random
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import sympy as sp

from closedform.errors import ClosedFormError, TraceError
from closedform.importers.python.join import Outcome, ValueRange
from closedform.importers.python.prover import Prover
from closedform.importers.python.tape import STEP, Conditioning, End
from closedform.language import Schedule, t
from closedform.language.exact import to_float, value_at
from closedform.magnitude import MOST_BITS

TOLERANCE = 1e-9
"""Of the largest value on the same steps: the function rounds in float64, some 1e-16 at a time."""
SINGLE_TOLERANCE = 1e-5
"""The same for float32, which rounds some 6e-8 at a time."""
_MOST_POINTS = 96
_DRAWN = 6
# Far ones, too: an unbounded loop or a drift of floats shows late.
_FAR = (0, 1, 2, 9, 100, 1000, 12_345, 10**6)
"""Steps after the start of the last interval."""
_LAST_STEP = 2**53
_GROWING = 1e100
_SMALL = 1e-4
"""Of the larger numbers that come after a step."""


VISIBLE = 5e-8
"""Of the value: a difference between floats and exact numbers that counts as another value."""
_LEAST = 1e-16
"""Smaller differences do not count: ``math.cos(math.pi / 2)`` is 6e-17."""


@dataclass(frozen=True, slots=True)
class FloatModel:
    """The value of the function in its own numbers, and the exact one, at any step.

    Attributes:
        cells: The exact values.
        outcomes: The paths, with the operations of each.
        prover: What evaluates expressions.
        variables: The values of hyperparameters.
        tolerance: The relative error of an operand of the function.
    """

    cells: tuple[ValueRange, ...]
    outcomes: tuple[Outcome, ...]
    prover: Prover
    variables: Mapping[str, object]
    tolerance: float

    def exact(self, step: int) -> float | None:
        """Returns the exact value, rounded; None where there is none."""
        cell = _cell_at(self.cells, step)
        # The prover evaluates in rationals and intervals, which is quicker than SymPy.
        value = None if cell is None else self.prover.value(cell, step)
        if cell is None or value is not None:
            return value
        try:  # a floor of a number that is an integer, but not a rational one, such as pi / pi
            return to_float(value_at(cell, {t: sp.Integer(step)}))
        except (ValueError, TypeError, OverflowError):  # a DomainError, or a pole of SymPy
            return None

    def is_long(self, step: int) -> bool:
        """Returns whether the function works out a power of integers that is too long at a step.

        Python would not end: ``step ** (10**9)`` has 10**9 bits and more.
        """
        cell = _cell_at(self.cells, step)
        if cell is None:
            return False
        powers = [power for power in cell.atoms(sp.Pow) if power.exp.is_integer]
        return any(self._power_bits(power.base, power.exp, step) > MOST_BITS for power in powers)

    def _power_bits(self, base: sp.Expr, exponent: sp.Expr, step: int) -> float:
        if not base.is_integer:
            return 0.0
        size, times = (self.prover.value(part, step) for part in (base, exponent))
        if size is None or times is None:
            return math.inf
        return max(times, 0.0) * math.log2(max(abs(size), 1.0))

    def simulate(self, step: int) -> tuple[float | None, bool]:
        """Returns the value in floats, and whether an operation is sensitive to rounding.

        The value is None where the floats take no path that returns one.
        """
        variables = {**self.variables, STEP: step}
        watch = Conditioning(self.tolerance)
        # Nearest first: at a seam, floats may take the path of the step next to it.
        for outcome in sorted(self.outcomes, key=lambda candidate: _distance(candidate, step)):
            is_there = _distance(outcome, step) == 0
            value = outcome.tape.run(variables, watch if is_there else None)
            if isinstance(value, float):
                return (value if math.isfinite(value) else None), watch.is_sensitive
            if value is End.RAISES:
                return None, watch.is_sensitive
        return None, watch.is_sensitive

    def rounds(self, step: int) -> bool:
        """Returns whether rounding gives the function another value than exact numbers do."""
        value, _ = self.simulate(step)
        return not agree(self.exact(step), value, VISIBLE)


def agree(exact: float | None, value: float | None, tolerance: float) -> bool:
    """Returns whether two values, either of which may not exist, are the same to a tolerance."""
    if exact is None or value is None:
        return exact is value
    return abs(exact - value) <= max(tolerance * max(abs(exact), abs(value)), _LEAST)


def _distance(outcome: Outcome, step: int) -> int:
    """The distance of a step from the steps of a path."""
    first, end = outcome.task.first, outcome.task.end
    if step < first:
        return first - step
    return 0 if end is None or step < end else step - end + 1


class RoundedSteps(Container[object]):
    """The steps at which rounding gives the function another value than exact numbers do.

    There, the value differs by more than 5e-8 of it: ``floor``, a comparison or an index in floats
    takes another branch, terms cancel, or the function computes in float32. Whether a step is one
    of them is computed: the operations of the function are run in its numbers, and compared with
    the exact value. So ``in`` holds for any step. Iteration gives the compared steps among them.

    Args:
        steps: The steps among the compared ones.
        model: What answers; None for a function with an open hyperparameter, of which no step is
            known.
    """

    def __init__(self, steps: Iterable[int], model: FloatModel | None) -> None:
        self._compared = tuple(steps)
        self._model = model

    def __contains__(self, step: object) -> bool:
        if isinstance(step, bool) or not isinstance(step, int | np.integer) or step < 0:
            return False
        return self._model is not None and self._model.rounds(int(step))

    def __iter__(self) -> Iterator[int]:
        return iter(self._compared)

    def __len__(self) -> int:
        return len(self._compared)

    def __eq__(self, value: object) -> bool:
        if isinstance(value, tuple):
            return self._compared == value
        if not isinstance(value, RoundedSteps):
            return NotImplemented
        cells = [None if side._model is None else side._model.cells for side in (self, value)]
        return self._compared == value._compared and cells[0] == cells[1]

    def __hash__(self) -> int:
        return hash(self._compared)

    def __repr__(self) -> str:
        return f"RoundedSteps{self._compared}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """How far the schedule is from the function.

    Attributes:
        points: The number of steps that were compared.
        largest_difference: The largest difference.
        at: The step of the largest difference; None if nothing was compared.
        rounded: Steps at which the function, in floats, has another value than it has in exact
            numbers, ``step in rounded`` for any step; they are not among the differences.
    """

    points: int
    largest_difference: float
    at: int | None
    rounded: RoundedSteps


def steps_of(cells: Sequence[ValueRange], more: Iterable[int] = ()) -> list[int]:
    """Returns the steps that are compared: the ends of intervals, their neighbours, and a sample.

    The sample is the same for the same intervals.
    """
    # A seed of the trace itself: twice the same function is compared at the same steps.
    draw = random.Random(len(cells))
    distinct = dict.fromkeys(step for step in more if step >= 0)
    for cell in cells:
        if cell.end is None:
            samples = [draw.randint(0, _FAR[-2]) for _ in range(_DRAWN)]
            distinct.update(dict.fromkeys(cell.first + step for step in (*_FAR, *samples)))
            continue
        last = cell.end - 1
        ends = (cell.first, last, cell.first + 1, last - 1, (cell.first + last) // 2)
        samples = [draw.randint(cell.first, last) for _ in range(_DRAWN)]
        distinct.update(dict.fromkeys(s for s in (*ends, *samples) if cell.first <= s <= last))
    steps = list(distinct)
    return sorted(steps if len(steps) <= _MOST_POINTS else draw.sample(steps, _MOST_POINTS))


def compare(
    function: Callable[[int], object],
    model: FloatModel,
    name: str,
    steps: Iterable[int],
    *,
    is_single: bool = False,
) -> Comparison:
    """Returns how far the exact values are from the function.

    Args:
        function: The user's function.
        model: Its values as they were traced, without open symbols.
        name: The function's name, for errors.
        steps: The steps to compare.
        is_single: Whether the function computes in float32.

    Raises:
        TraceError: They differ, and not by rounding.
    """
    tolerance = SINGLE_TOLERANCE if is_single else TOLERANCE
    values: list[tuple[int, float, float]] = []
    rounded_steps: list[int] = []
    for step in steps:
        if model.is_long(step):
            continue
        exact = model.exact(step)
        expected = _call(function, step)
        # An overflow says that the float is too large, not that there is no number.
        if (exact is None and expected is None) or isinstance(expected, OverflowError):
            continue
        if exact is not None and expected is not None:
            values.append((step, exact, expected))
        elif _is_rounding(step, expected, model):
            rounded_steps.append(step)
        else:
            raise _difference(name, step, exact, expected)
    largest, at = 0.0, None
    scales = _Scales(values, model.cells)
    for step, exact, expected in values:
        difference = abs(exact - expected)
        if difference <= tolerance * scales.at(step):
            if at is None or difference > largest:
                largest, at = difference, step
        elif _is_rounding(step, expected, model):
            rounded_steps.append(step)
        else:
            raise _difference(name, step, exact, expected)
    return Comparison(len(values), largest, at, RoundedSteps(rounded_steps, model))


def compare_graph(
    schedule: Schedule, steps: Iterable[int], exact: Callable[[int], float | None], where: str
) -> None:
    """Compares the values of the graph of a schedule, in float64, with its exact values.

    The exact values are those that were compared with the original; a graph in which a floor or a
    comparison takes another branch is not the original, either.

    Args:
        schedule: The schedule, without open hyperparameters.
        steps: The steps to compare.
        exact: The exact value at a step, rounded; None where there is none.
        where: The original, for errors.

    Raises:
        TraceError: They differ by more than rounding.
    """
    values = {step: exact(step) for step in sorted(set(steps)) if 0 <= step <= _LAST_STEP}
    exact_values = {step: value for step, value in values.items() if value is not None}
    try:
        numbers = schedule(np.array(list(exact_values), dtype=np.int64))
    except ClosedFormError:  # there is no graph, or the domain ends before: an export says so
        return
    scales = itertools.accumulate(map(abs, exact_values.values()), max)
    largest = min(max(map(abs, exact_values.values()), default=0.0), _GROWING) * _SMALL
    for (step, value), number, scale in zip(exact_values.items(), numbers, scales, strict=True):
        # Beyond the largest float both are infinite.
        if number != value and not abs(number - value) <= TOLERANCE * max(scale, largest):
            raise TraceError(
                f"the graph of the schedule differs from its exact values: at step {step} it "
                f"computes {float(number)!r} in float64, and the exact value is {value!r}",
                where=where,
                hint="a floor, a comparison or a sum of terms that cancel rounds to another value "
                "there: write it with integers, or as a table of steps",
            )


def _is_rounding(step: int, expected: float | None, model: FloatModel) -> bool:
    """Whether the operations of the function, in floats, give its value, and can round to it."""
    value, is_sensitive = model.simulate(step)
    return is_sensitive and agree(value, expected, model.tolerance)


def _difference(
    name: str, step: int, value: float | None, expected: float | OverflowError | None
) -> TraceError:
    traced_text = "has no value" if value is None else f"is {value!r}"
    native_text = "raises an exception" if expected is None else f"returns {expected!r}"
    return TraceError(
        f"the traced value differs from the function: at step {step} it {traced_text}, and "
        f"the function {native_text}",
        where=f"function {name!r}",
        hint="the function must return the same value whenever it is called with a step",
    )


class _Scales:
    """The size of the numbers that the function rounds: of values until a step, and beyond.

    A value that grows from 0 is a difference of larger numbers, which round more.

    Args:
        values: The steps in order, with two values each.
        cells: The exact values.
    """

    def __init__(
        self, values: Sequence[tuple[int, float, float]], cells: Sequence[ValueRange]
    ) -> None:
        self._steps = [step for step, _, _ in values]
        sizes = [abs(expected) for _, _, expected in values]
        self._until = list(itertools.accumulate(sizes, max))
        self._ends = [cell.end for cell in cells]

    def at(self, step: int) -> float:
        """Returns the size at one of the steps."""
        until = self._until[bisect.bisect_right(self._steps, step) - 1]
        end = next((end for end in self._ends if end is not None and step < end), None)
        last = len(self._steps) if end is None else bisect.bisect_left(self._steps, end)
        return max(until, min(self._until[last - 1], _GROWING) * _SMALL)


def _cell_at(cells: Sequence[ValueRange], step: int) -> sp.Expr | None:
    for cell in cells:
        if cell.first <= step and (cell.end is None or step < cell.end):
            return cell.value
    return None


def _call(function: Callable[[int], object], step: int) -> float | OverflowError | None:
    """The value of the function; None where it raises an exception or is not finite."""
    try:
        number = _as_float(function(step))
    except OverflowError as error:
        return error
    except Exception:
        return None
    return number if math.isfinite(number) else None


def _as_float(value: object) -> float:
    """The float of a number; raises OverflowError where it is too large."""
    return to_float(value) if isinstance(value, sp.Rational) else float(value)  # type: ignore[arg-type]
