"""Compares a log with its recipe: the first value that departs, and the cause."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from closedform.analysis.difference import readings
from closedform.analysis.result import Result
from closedform.analysis.watching.causes import RunNumbers, Seen, likely_causes
from closedform.analysis.watching.watch import Departure, complete_numbers
from closedform.language import Schedule
from closedform.recipes import Recipe
from closedform.recipes.logs import TOLERANCE, Log, Logged


@dataclass(frozen=True, slots=True)
class LogReport(Result):
    """The comparison of a log with its recipe.

    Attributes:
        departure: The first departure; None if every logged value agrees.
        values: The number of values that were compared.
        last: The last update.
        reading: The way in which the steps of the log were read, where it is not that of the log.
        horizon: The updates of the run; None if the recipe does not determine them.
    """

    DATA = ("values", "last", "reading", "departure")

    departure: Departure | None
    values: int
    last: int
    reading: str
    horizon: int | None

    @property
    def is_complete(self) -> bool:
        """Whether the log has the last update of the run."""
        return self.horizon is not None and self.last + 1 >= self.horizon

    def lines(self) -> list[str]:
        """Returns the departure, or how many values agree, in one line."""
        if self.departure is not None:
            return self.departure.lines()
        read = f", read with {self.reading}" if self.reading else ""
        return [f"{self.values:,} values agree, up to update {self.last:,}{read}"]


def watch_log(recipe: Recipe | Schedule, log: Log, numbers: RunNumbers | None = None) -> LogReport:
    """Returns the first value of a log that departs from a recipe, and the cause.

    Args:
        recipe: The recipe, or the schedule of the learning rate.
        log: The log; where its offset was not asked for, it is read in each way that
            ``closedform diff`` tries.
        numbers: What is known of the run, which decides between causes.
    """
    run_numbers = complete_numbers(numbers or RunNumbers(), recipe)
    reports: list[tuple[tuple[bool, int], LogReport]] = []
    for reading in readings(log, recipe):
        report = _report(recipe, reading.log, reading.name, run_numbers)
        if report.departure is None:
            return report
        # The reading that a cause explains, then the one that agrees longest, then the log's own.
        rank = bool(report.departure.causes), report.departure.update + reading.log.offset
        reports.append((rank, report))
    return max(reports, key=lambda entry: entry[0])[1]


def _report(recipe: Recipe | Schedule, log: Log, reading: str, numbers: RunNumbers) -> LogReport:
    departures: list[tuple[Departure, Schedule, _Series]] = []
    count = last = 0
    agreeing: set[str] = set()
    for series in _series(log):
        schedule = _schedule(recipe, series.group, series.key)
        if schedule is None or not len(series.updates):
            continue
        count += len(series.updates)
        last = max(last, int(series.updates.max()))
        expected = np.asarray(schedule(series.updates), dtype=np.float64)
        slack = series.errors + TOLERANCE * max(float(np.max(np.abs(expected))), 1e-300)
        apart = np.flatnonzero(np.abs(expected - series.values) > slack)
        if not apart.size:
            agreeing.add(series.key)
            continue
        place = int(apart[0])
        departure = Departure(
            int(series.updates[place]),
            series.group,
            series.key,
            float(series.values[place]),
            float(expected[place]),
            line=series.lines[place],
        )
        departures.append((departure, schedule, series))
    horizon = numbers.horizon
    if not departures:
        return LogReport(None, count, last, reading, horizon)
    first, schedule, series = min(departures, key=lambda entry: (entry[0].update, entry[0].group))
    scale = TOLERANCE * max(float(np.max(np.abs(series.values))), 1e-300)
    measurements = Seen(
        series.updates.astype(np.float64),
        series.values,
        series.errors + 4 * scale,
        series.key in agreeing,
    )
    causes = likely_causes(schedule, measurements, numbers)
    return LogReport(replace(first, causes=tuple(causes)), count, last, reading, horizon)


@dataclass(frozen=True, slots=True)
class _Series:
    """The logged values of a key of a param group, by update."""

    group: int
    key: str
    updates: Any
    values: Any
    errors: Any
    lines: list[int | None]


def _series(log: Log) -> list[_Series]:
    columns: list[tuple[int, str, tuple[Logged | None, ...]]] = [
        (0, key, values) for key, values in log.values.items()
    ]
    columns += [
        (position, key, values)
        for key, several in log.groups.items()
        for position, values in enumerate(several, 1)
    ]
    series = []
    for group, key, values in columns:
        rows = [
            (step, value, log.line_of(place))
            for place, (step, value) in enumerate(zip(log.steps, values, strict=True))
            if value is not None and step >= 0
        ]
        rows.sort(key=lambda row: row[0])
        series.append(
            _Series(
                group,
                key,
                np.array([step for step, _, _ in rows], dtype=np.int64),
                np.array([float(value.value) for _, value, _ in rows]),
                np.array([float(value.precision) for _, value, _ in rows]),
                [line for _, _, line in rows],
            )
        )
    return series


def _schedule(recipe: Recipe | Schedule, group: int, key: str) -> Schedule | None:
    """The schedule of a group of a log; that of the default group where the recipe has fewer."""
    if isinstance(recipe, Schedule):
        return recipe if key == "lr" else None
    groups = recipe.param_groups
    schedule = groups[group if group < len(groups) else 0].schedules.get(key)
    return None if schedule is None or schedule.open else schedule
