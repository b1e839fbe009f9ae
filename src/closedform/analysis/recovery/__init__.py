"""Schedules from logs: the shortest schedule of the library that reproduces logged values."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import Any

import numpy as np
import sympy as sp

from closedform.analysis.lags import describe_lags
from closedform.analysis.recovery.compositions import GOOD, shortest
from closedform.analysis.recovery.marks import Points
from closedform.analysis.recovery.plateau import recover_plateau
from closedform.analysis.recovery.search import LibraryCall, residual_of
from closedform.analysis.recovery.usual import SKIPPED, Usual, usual_schedules
from closedform.analysis.result import Result
from closedform.errors import ArgumentError, UnknownNameError, describe, nearest
from closedform.ir.types import StepArray
from closedform.language import Schedule, UpdateRule
from closedform.language.aliases import Number
from closedform.language.sizes import check_exponentials
from closedform.magnitude import LAST_STEP
from closedform.recipes.logs import OFFSETS, Log, logged_values, read_log
from closedform.recipes.logs.printed import DIGITS_OF_LEVELS, is_in_levels

LogSource = str | PathLike[str] | Log | Mapping[int, Number]
"""A file, a log, or the values by step."""

FEWEST_POINTS = 3
"""Values from which a schedule is recovered."""

MOST_POINTS, SEARCHED_POINTS = 20_000, 2_000
"""A longer log is searched with fewer values; what is found must have all of them."""

_FEWEST_OF_A_LAG = 20
"""Values from which skipped updates are recovered: a lag fits a short log by chance."""


@dataclass(frozen=True, slots=True)
class Candidate(Result):
    """A scheduler that was compared with a log.

    Attributes:
        call: The scheduler with the arguments that come nearest.
        is_right: Whether it reproduces every value.
        reason: The reason why it was chosen, or why not.
    """

    call: str
    is_right: bool
    reason: str

    def lines(self) -> list[str]:
        """Returns the scheduler and the reason in one line."""
        return [f"{self.call}: {self.reason}"]


@dataclass(frozen=True, slots=True)
class Recovered(Result):
    """The schedule that was found in a log.

    Attributes:
        schedule: The shortest schedule that reproduces all values; None if none was found.
        call: The call of the library that makes it, as Python code.
        residual: The largest distance from a logged value.
        precisions: The same in units of the precision of that value, at most 1.
        points: The number of logged values.
        first: The first logged update.
        last: The last one. The log does not determine the schedule after it.
        offset: The logged step of update 0 with which the log was read.
        config: The keys of a config of transformers that has this schedule; empty where it has
            none.
        candidates: The schedulers of transformers, each with its nearest arguments and why it was
            chosen or lost.
        skipped: The sentence of the updates that were skipped, which the log counts and the
            schedule does not; empty where there are none.
        rule: Instead of a schedule, the rule that reduces the rate on a plateau of a metric.
        metric: The name of that metric in the log.
    """

    DATA = (
        *("call", "residual", "precisions", "points", "first", "last", "offset", "config"),
        *("skipped", "metric", "candidates"),
    )

    schedule: Schedule | None
    call: str
    residual: float
    precisions: float
    points: int
    first: int
    last: int
    offset: int = 0
    config: Mapping[str, Any] = field(default_factory=dict)
    candidates: tuple[Candidate, ...] = ()
    skipped: str = ""
    rule: UpdateRule | None = None
    metric: str = ""

    def lines(self) -> list[str]:
        """Returns the call, and what it reproduces."""
        if not self.call:
            return [f"no schedule of the library reproduces the {self.points} values"]
        return [
            self.call,
            f"reproduces {self.points} values, updates {self.first} to {self.last}; "
            f"largest distance {self.residual:.3g}",
            *([self.skipped] if self.skipped else []),
        ]

    def data(self) -> dict[str, Any]:
        """Returns the schedule as plain data; without one its call and distances are None."""
        nothing = () if self.call else ("call", "residual", "precisions")
        return Result.data(self) | dict.fromkeys(nothing)


def recover(
    log: LogSource, *, digits: int | None = None, key: str = "lr", offset: int | None = None
) -> Recovered:
    """Returns the schedule that reproduces logged values, as people write it.

    A warmup and one decay, in the kinds that transformers has, come first; a log of transformers
    itself gives the name of its scheduler, such as ``transformers:cosine``, with its arguments.
    Otherwise it is the shortest schedule of the library: each function is tried in each of its
    forms, and compositions of them: a warmup and another schedule, stretches in a row, a floor, a
    factor at each multiple of a number of steps, a repetition. From a log with a metric, a
    reduction on its plateaus is recovered as well. Values that agree within the precision of the
    log do not prove that the run used this schedule; between and after the logged updates they do
    not determine it.

    Args:
        log: A CSV file or JSON lines with steps and learning rates, a ``Log``, or the values by
            step. The log may begin late and have gaps.
        digits: The significant digits to which the values were rounded; those that are printed if
            not given.
        key: The key of the param group: "lr", "weight_decay" or "momentum".
        offset: The logged step of update 0; if not given, that of the format, and then the other of
            0 and 1.

    Raises:
        ConfigError: The file cannot be read, or has no column of steps or learning rates.
        UnknownNameError: The log has no values of the key.
        ArgumentError: There are fewer than 3 values, or ``digits`` is not from 1 to 17.

    Example:
        >>> from closedform import schedules
        >>> lr = schedules.cosine(3e-4, 3e-5, 2000)
        >>> found = recover({step: float(f"{lr(step):.6g}") for step in range(0, 1500, 10)})
        >>> found.call
        'cosine(start=0.0003, end=3e-05, steps=2000)'
    """
    if digits is not None and not 1 <= digits <= 17:
        raise ArgumentError(f"digits must be from 1 to 17, got {digits}")
    read = _log(log, key, None if offset is None else _checked_offset(offset))
    if key not in read.values:
        raise UnknownNameError(
            f"the log has no values of {key!r}", where=read.source, hint=nearest(key, read.values)
        )
    logs = [read]
    if read.is_offset_open:
        # An offset with which the log would have a value before the first update is not its own.
        steps = read.in_order(key)[0]
        logs += [
            read.at_offset(offset)
            for offset in OFFSETS
            if len(steps) and offset != read.offset and steps[0] + read.offset >= offset
        ]
    readings = [_Reading(part.offset, _points(part, key, digits)) for part in logs]
    if digits is None and _are_levels(readings[0].points):
        in_full = [_Reading(part.offset, _points(part, key, DIGITS_OF_LEVELS)) for part in logs]
        recovery = _recover_few(in_full, read, key)
        if recovery.call:
            return recovery
    return _recover_few(readings, read, key)


def _are_levels(points: Points) -> bool:
    """Whether values of few digits are levels, such as 0.1, 0.01 and 0.001, that are in full.

    Many curves that are rounded to one digit have these values. Such a curve goes from one unit of
    the last place to the next; levels are farther apart, and each occurs several times.
    """
    changes = np.flatnonzero(np.diff(points.values))
    units = 2 * np.minimum(points.errors[changes], points.errors[changes + 1])
    return bool(
        is_in_levels(points.values)
        and np.any(points.errors > 10.0**-DIGITS_OF_LEVELS * np.abs(points.values))
        and np.all(np.abs(np.diff(points.values)[changes]) > 1.5 * units)
    )


def _recover_few(readings: Sequence[_Reading], read: Log, key: str) -> Recovered:
    """The schedule of a log, searched with few of its values where it has many."""
    count = len(readings[0].points.steps)
    if count < FEWEST_POINTS:
        raise ArgumentError(
            f"a schedule is recovered from at least {FEWEST_POINTS} values, got {count}",
            hint="log more updates",
        )
    if count > MOST_POINTS:
        stride = count // SEARCHED_POINTS
        rows = np.append(np.arange(0, count - 1, stride), count - 1)
        few = [replace(part, points=part.points.select(rows)) for part in readings]
        recovery = _recover(few, read, key)
        points = next(part.points for part in readings if part.offset == recovery.offset)
        # Curves with jumps may need the rows between.
        if recovery.schedule is not None and residual_of(recovery.schedule, points) <= 1:
            return replace(recovery, points=count)
    return _recover(readings, read, key)


@dataclass(frozen=True, slots=True)
class _Reading:
    """The values of a log with one of its offsets."""

    offset: int
    points: Points


def _recover(readings: Sequence[_Reading], log: Log, key: str) -> Recovered:
    """The schedule that people write, or else the shortest of the library."""
    nearest_of = [usual_schedules(reading.points) if key == "lr" else [] for reading in readings]
    is_explained = any(candidate.is_right for candidates in nearest_of for candidate in candidates)
    if not is_explained and len(readings[0].points.steps) >= _FEWEST_OF_A_LAG:
        for reading, most_skips in itertools.product(readings if key == "lr" else [], SKIPPED):
            for usual in usual_schedules(reading.points, most_skips):
                if usual.is_right and usual.lags is not None:
                    return _with_skips(usual, usual.lags, reading)
    for reading, candidates in zip(readings, nearest_of, strict=True):
        if not candidates or not candidates[0].is_right:
            continue
        first = candidates[0]
        if log.framework == "transformers":
            call = LibraryCall(first.text, first.schedule, first.cost, first.residual)
            return _result(call, reading, candidates, first)
        for usual in candidates:
            in_library = usual.in_library(reading.points) if usual.is_right else None
            if in_library is not None and usual.config.get("warmup_steps"):
                return _result(in_library, reading, candidates, usual)
    plateau = recover_plateau(log) if key == "lr" and log.metrics else None
    if plateau is not None:
        return replace(
            _result(None, readings[0], nearest_of[0], None),
            rule=plateau.rule,
            call=plateau.text,
            metric=plateau.metric,
            residual=plateau.residual,
            precisions=plateau.precisions,
        )
    best: tuple[LibraryCall, int] | None = None
    for place, reading in enumerate(readings):
        # A search takes seconds: with another offset only where the log then begins at update 0.
        is_likely = reading.points.steps[0] == 0 or place == 0
        shortest_call = shortest(reading.points) if is_likely else None
        # Another offset has to save more than a digit.
        if shortest_call is not None and (best is None or shortest_call.cost + 1 < best[0].cost):
            best = shortest_call, place
        if best is not None and best[0].cost <= GOOD:
            break
    if best is not None:
        return _result(best[0], readings[best[1]], nearest_of[best[1]], None)
    for reading, candidates in zip(readings, nearest_of, strict=True):
        if candidates and candidates[0].is_right:
            first = candidates[0]
            call = LibraryCall(first.text, first.schedule, first.cost, first.residual)
            return _result(call, reading, candidates, first)
    return _result(None, readings[0], nearest_of[0], None)


def _with_skips(usual: Usual, lags: StepArray, reading: _Reading) -> Recovered:
    """The schedule of a run that has skipped updates."""
    points = reading.points
    lagging = replace(reading, points=replace(points, steps=points.steps - lags))
    call = LibraryCall(usual.text, usual.schedule, usual.cost, usual.residual)
    recovery = _result(call, lagging, [], usual)
    first, last = int(points.steps[0]), int(points.steps[-1])
    text = describe_lags(points.steps, lags)
    return replace(recovery, first=first, last=last, skipped=text)


def _result(
    call: LibraryCall | None,
    reading: _Reading,
    usual_list: Sequence[Usual],
    selection: Usual | None,
) -> Recovered:
    points = reading.points
    first, last = int(points.steps[0]), int(points.steps[-1])
    candidates = tuple(_candidate(usual, call, selection) for usual in usual_list)
    if call is None:
        return Recovered(
            *(None, "", float("inf"), float("inf"), len(points.steps), first, last),
            offset=reading.offset,
            candidates=candidates,
        )
    steps = points.steps.astype(np.int64)
    apart = np.abs(np.asarray(call.schedule(steps), dtype=np.float64) - points.values)
    return Recovered(
        call.schedule.rename("recovered"),
        call.text,
        float(np.max(apart)),
        call.residual,
        len(points.steps),
        first,
        last,
        offset=reading.offset,
        config=dict(selection.config) if selection is not None else {},
        candidates=candidates,
    )


def _candidate(usual: Usual, call: LibraryCall | None, selection: Usual | None) -> Candidate:
    if not usual.is_right:
        reason = (
            f"lost: with the nearest numbers, update {usual.step:,} is {usual.gap:.3g} away from "
            "the log"
        )
    elif usual is selection:
        reason = "reproduces every value, with the fewest digits"
    elif selection is not None and (usual.kind, usual.cost) == (selection.kind, selection.cost):
        reason = "reproduces every value, with as many digits: the log does not decide"
    elif selection is not None and usual.cost > selection.cost:
        reason = f"lost: needs {usual.cost:g} digits where {selection.cost:g} are enough"
    elif selection is not None:
        reason = f"lost: the same values as {selection.kind}, which has fewer arguments"
    else:
        reason = "reproduces every value, too" if call is not None else "reproduces every value"
    return Candidate(usual.text, usual.is_right, reason)


def _log(log: LogSource, key: str, offset: int | None) -> Log:
    """The log of a source; the values by step are one."""
    if isinstance(log, Log):
        return log if offset is None else log.at_offset(offset)
    if isinstance(log, str | PathLike):
        return read_log(log, offset)
    if not isinstance(log, Mapping):
        raise ArgumentError(
            f"log must be a path, a log, or the values by step, got {describe(log)}",
            where="recover",
            hint="of values from step 0 on, dict(enumerate(values))",
        )
    cells: list[str | None] = [repr(_logged_float(value)) for value in log.values()]
    steps = np.array([_logged_step(step) - (offset or 0) for step in log], dtype=np.int64)
    return Log(steps, {key: logged_values(cells, are_floats=True)}, "<mapping>")


def _checked_offset(offset: Any) -> int:
    if isinstance(offset, int | np.integer) and abs(int(offset)) <= LAST_STEP:
        return int(offset)
    raise ArgumentError(
        f"offset must be an integer from {-LAST_STEP} to {LAST_STEP}, got {describe(offset)}",
        where="recover",
    )


def _logged_step(step: Any) -> int:
    # NaN compares false.
    is_number = isinstance(step, int | np.integer | float)
    if is_number and abs(step) <= LAST_STEP:
        return int(step)
    raise ArgumentError(
        f"a step of a log must be an integer of at most {LAST_STEP}, got {describe(step)}",
        where="recover",
    )


def _logged_float(value: Any) -> float:
    if isinstance(value, sp.Expr):
        check_exponentials(value, "a value of a log")
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise ArgumentError(
            f"a value of a log must be a number of a float64, got {describe(value)}",
            where="recover",
        ) from error


def _points(log: Log, key: str, digits: int | None) -> Points:
    """The values by step, each once; the last one counts where a step repeats."""
    steps, series, _ = log.in_order(key)
    is_last = np.append(np.diff(steps) != 0, True)[: len(steps)]
    numbers, errors = series.numbers[is_last], series.precisions[is_last]
    if digits is not None:
        with np.errstate(divide="ignore"):
            exponents = np.floor(np.log10(np.abs(numbers)))
        # Half a unit of the last digit.
        errors = np.where(numbers == 0, 0.0, 0.5 * 10.0 ** (exponents - digits + 1))
    largest = float(np.max(np.abs(numbers), initial=0.0)) or 1.0
    errors = np.maximum(errors, _LEAST * largest)
    return Points(steps[is_last].astype(np.float64), numbers, errors)


_LEAST = 1e-13
"""Least precision as a part of the largest value: that of float64 arithmetic of a framework."""
