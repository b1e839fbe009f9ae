"""A traced schedule beside the function it was traced from."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import sympy as sp

from closedform.errors import TraceError
from closedform.importers.python.join import Cell
from closedform.importers.python.prover import Prover

TOLERANCE = 1e-9
"""Of the largest value on the same steps: the function rounds in float64, some 1e-16 at a time."""
SINGLE_TOLERANCE = 1e-5
"""The same for float32, which rounds some 6e-8 at a time."""
_MOST_POINTS = 96
_DRAWN = 6
_FAR = (0, 1, 2, 9, 100, 1000, 12_345, 10**6)
"""Steps after the start of the last interval."""
_GROWING = 1e100
_SMALL = 1e-4
"""Of the larger numbers that come after a step."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """How far the schedule is from the function.

    Attributes:
        points: The number of steps that were compared.
        largest_difference: The largest difference.
        at: The step of the largest difference; None if nothing was compared.
        rounded: Steps at which the function, in floats, takes another branch than it does in exact
            numbers; they are not among the differences.
    """

    points: int
    largest_difference: float
    at: int | None
    rounded: tuple[int, ...]


def steps_of(cells: Sequence[Cell], more: Iterable[int] = ()) -> list[int]:
    """Returns the steps that are compared: the ends of intervals, their neighbours, and a sample.

    The sample is the same for the same intervals.
    """
    draw = random.Random(len(cells))
    found = dict.fromkeys(step for step in more if step >= 0)
    for cell in cells:
        if cell.end is None:
            drawn = [draw.randint(0, _FAR[-2]) for _ in range(_DRAWN)]
            found.update(dict.fromkeys(cell.first + step for step in (*_FAR, *drawn)))
            continue
        last = cell.end - 1
        ends = (cell.first, last, cell.first + 1, last - 1, (cell.first + last) // 2)
        drawn = [draw.randint(cell.first, last) for _ in range(_DRAWN)]
        found.update(dict.fromkeys(s for s in (*ends, *drawn) if cell.first <= s <= last))
    steps = list(found)
    return sorted(steps if len(steps) <= _MOST_POINTS else draw.sample(steps, _MOST_POINTS))


def compare(
    function: Callable[[int], object],
    cells: Sequence[Cell],
    leaves: Sequence[sp.Expr],
    prover: Prover,
    name: str,
    steps: Iterable[int],
    *,
    ties: Mapping[sp.Expr, bool],
    is_single: bool = False,
) -> Comparison:
    """Returns how far the cells are from the function.

    Args:
        function: The user's function.
        cells: Its values as they were traced, without open symbols.
        leaves: The values of single branches, one of which the function takes by rounding.
        prover: What evaluates expressions.
        name: The function's name, for errors.
        steps: The steps to compare.
        ties: Numbers in floats that the function compares with 0, or floors (True).
        is_single: Whether the function computes in float32.

    Raises:
        TraceError: They differ, and not by rounding.
    """
    tolerance = SINGLE_TOLERANCE if is_single else TOLERANCE
    found: list[tuple[int, float, float]] = []
    rounded: list[int] = []
    for step in steps:
        cell = _cell_at(cells, step)
        value = None if cell is None else prover.value(cell, step)
        expected = _called(function, step)
        if (value is None and expected is None) or isinstance(expected, OverflowError):
            continue
        if value is not None and isinstance(expected, float):
            found.append((step, value, expected))
        elif _has_tie(step, ties, prover) and _is_rounding(step, expected, cells, leaves, prover):
            rounded.append(step)
        else:
            raise _difference(name, step, value, expected)
    largest, at = 0.0, None
    for step, value, expected in found:
        difference = abs(value - expected)
        if difference <= tolerance * _scale(step, found, cells):
            if at is None or difference > largest:
                largest, at = difference, step
        elif _has_tie(step, ties, prover) and _is_rounding(step, expected, cells, leaves, prover):
            rounded.append(step)
        else:
            raise _difference(name, step, value, expected)
    return Comparison(len(found), largest, at, tuple(rounded))


def _difference(
    name: str, step: int, value: float | None, expected: float | OverflowError | None
) -> TraceError:
    traced = "has no value" if value is None else f"is {value!r}"
    own = "raises an exception" if expected is None else f"returns {expected!r}"
    return TraceError(
        f"the traced value differs from the function: at step {step} it {traced}, and the function "
        f"{own}",
        where=f"function {name!r}",
        hint="the function must return the same value whenever it is called with a step",
    )


def _scale(step: int, found: Sequence[tuple[int, float, float]], cells: Sequence[Cell]) -> float:
    """The size of the numbers that the function rounds: of values until a step, and beyond.

    A value that grows from 0 is a difference of larger numbers, which round more.
    """
    end = next((c.end for c in cells if c.end is not None and c.first <= step < c.end), None)
    until = max(abs(expected) for other, _, expected in found if other <= step)
    beyond = max(abs(e) for other, _, e in found if end is None or other < end)
    return max(until, min(beyond, _GROWING) * _SMALL)


def _has_tie(step: int, ties: Mapping[sp.Expr, bool], prover: Prover) -> bool:
    """Whether rounding may decide a comparison of floats, or a floor, the other way at a step."""
    for expr, is_whole in ties.items():
        value = prover.value(expr, step)
        if value is None:
            continue
        distance = abs(value - round(value)) if is_whole else abs(value)
        if distance <= TOLERANCE * max(1.0, abs(value)):
            return True
    return False


def _is_rounding(
    step: int,
    expected: float | OverflowError | None,
    cells: Sequence[Cell],
    leaves: Sequence[sp.Expr],
    prover: Prover,
) -> bool:
    """Whether another branch, or a neighbouring step, has the value of the function."""
    if not isinstance(expected, float):
        return any(_cell_at(cells, step + beside) is None for beside in (-1, 1))
    return any(
        math.isclose(value, expected, rel_tol=TOLERANCE)
        for value in _nearby(step, cells, leaves, prover)
    )


def _nearby(
    step: int, cells: Sequence[Cell], leaves: Sequence[sp.Expr], prover: Prover
) -> Iterator[float]:
    for other in (step - 1, step + 1):
        cell = _cell_at(cells, other)
        for place in (step, other):
            value = None if cell is None else prover.value(cell, place)
            if value is not None:
                yield value
    for leaf in leaves:
        value = prover.value(leaf, step)
        if value is not None:
            yield value


def _cell_at(cells: Sequence[Cell], step: int) -> sp.Expr | None:
    for cell in cells:
        if cell.first <= step and (cell.end is None or step < cell.end):
            return cell.value
    return None


def _called(function: Callable[[int], object], step: int) -> float | OverflowError | None:
    """The value of the function; None where it raises an exception or is not finite."""
    try:
        number = _as_float(function(step))
    except OverflowError as error:
        return error
    except Exception:
        return None
    return number if math.isfinite(number) else None


def _as_float(value: object) -> float:
    """The float of a number; of a fraction by Python, which divides large integers faster."""
    if isinstance(value, sp.Rational):
        return int(value.p) / int(value.q)
    return float(value)  # type: ignore[arg-type]
