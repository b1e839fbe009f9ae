"""Compares a log with its recipe: the first value that departs, and the cause."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from closedform.analysis.difference import readings
from closedform.analysis.result import Result
from closedform.analysis.watching.causes import RunNumbers, Seen, likely_causes
from closedform.analysis.watching.watch import Departure, complete_numbers
from closedform.ir.types import StepArray
from closedform.language import Schedule
from closedform.recipes import Recipe
from closedform.recipes.logs import TOLERANCE, Log, Series


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
    departures: list[tuple[Departure, Schedule, StepArray, Series]] = []
    count = last = 0
    agreeing: set[str] = set()
    for group, key in _series(log):
        schedule = _schedule(recipe, group, key)
        updates, series, lines = log.in_order(key, group)
        if schedule is None or not len(updates):
            continue
        count += len(updates)
        last = max(last, int(updates[-1]))
        expected = np.asarray(schedule(updates), dtype=np.float64)
        apart = np.flatnonzero(series.apart(expected))
        if not apart.size:
            agreeing.add(key)
            continue
        place = int(apart[0])
        departure = Departure(
            int(updates[place]),
            group,
            key,
            float(series.numbers[place]),
            float(expected[place]),
            line=None if lines is None else int(lines[place]),
        )
        departures.append((departure, schedule, updates, series))
    horizon = numbers.horizon
    if not departures:
        return LogReport(None, count, last, reading, horizon)
    first, schedule, updates, series = min(
        departures, key=lambda entry: (entry[0].update, entry[0].group)
    )
    scale = TOLERANCE * max(float(np.max(np.abs(series.numbers))), 1e-300)
    measurements = Seen(
        updates.astype(np.float64),
        series.numbers,
        series.precisions + 4 * scale,
        first.key in agreeing,
    )
    causes = likely_causes(schedule, measurements, numbers)
    return LogReport(replace(first, causes=tuple(causes)), count, last, reading, horizon)


def _series(log: Log) -> Iterator[tuple[int, str]]:
    """The position of the param group and the key of each column of values."""
    yield from ((0, key) for key in log.values)
    for key, several in log.groups.items():
        yield from ((group, key) for group in range(1, len(several) + 1))


def _schedule(recipe: Recipe | Schedule, group: int, key: str) -> Schedule | None:
    """The schedule of a group of a log; that of the default group where the recipe has fewer."""
    if isinstance(recipe, Schedule):
        return recipe if key == "lr" else None
    groups = recipe.param_groups
    schedule = groups[group if group < len(groups) else 0].schedules.get(key)
    return None if schedule is None or schedule.open else schedule
