"""Compares a run with its recipe: every value of every param group, update by update."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from closedform.analysis.result import Result
from closedform.analysis.watching.causes import Cause, RunNumbers, Seen, likely_causes
from closedform.compiler import evaluate_schedule
from closedform.errors import ArgumentError, DepartureError, describe
from closedform.language import Schedule
from closedform.recipes import Recipe
from closedform.recipes.logs import TOLERANCE

BLOCK = 1024
"""Updates whose values are computed at once."""

SINGLE_TOLERANCE = 4e-7
"""The same for values of float32."""

MOST_SEEN = 100_000
"""The most values of a key that are stored for the causes."""


@dataclass(frozen=True, slots=True)
class Departure(Result):
    """The first value of a run that is not that of the recipe.

    Attributes:
        update: The update.
        group: The position of the param group.
        key: The key of the param group: "lr", "weight_decay" or "momentum".
        value: The value of the run.
        expected: The value of the recipe.
        causes: The causes that explain every value that was seen, the likeliest first.
        line: The line of the log; None for a run that is watched as it goes.
    """

    DATA = ("update", "line", "group", "key", "value", "expected", "causes")

    update: int
    group: int
    key: str
    value: float
    expected: float
    causes: tuple[Cause, ...] = ()
    line: int | None = None

    @property
    def cause(self) -> Cause | None:
        """The likeliest cause; None if none explains the values."""
        return self.causes[0] if self.causes else None

    def lines(self) -> list[str]:
        """Returns the value and its likely causes in one line."""
        place = "" if self.line is None else f", line {self.line}"
        group = f" of param group {self.group}" if self.group else ""
        first = (
            f"update {self.update:,}{place}: {self.key}{group} is {self.value!r}, the recipe has "
            f"{self.expected!r}"
        )
        if not self.causes:
            return [f"{first}; no cause of the list explains it"]
        rest = "".join(f"; or {cause}" for cause in self.causes[1:3])
        return [f"{first}; likely cause: {self.causes[0]}{rest}"]


class Track:
    """The values of one key of one param group, and what was seen of them.

    Args:
        schedule: The schedule of the recipe.
        group: The position of the param group.
        key: The key.
    """

    __slots__ = ("first", "group", "high", "key", "low", "peak", "schedule", "seen", "size")

    def __init__(self, schedule: Schedule, group: int, key: str) -> None:
        self.schedule, self.group, self.key = schedule, group, key
        self.first, self.size = 0, 0
        self.low: list[float] = []
        self.high: list[float] = []
        self.seen: list[tuple[int, float]] = []
        self.peak = 0.0

    def load(self, update: int) -> None:
        """Computes the bounds of the block of an update."""
        self.first = update - update % BLOCK
        last = self.schedule.last_step
        end = self.first + BLOCK if last is None else min(self.first + BLOCK, last + 1)
        if end <= update:
            end = update + 1
        steps = np.arange(self.first, end)
        values = np.asarray(evaluate_schedule(self.schedule, steps), dtype=np.float64)
        self.peak = max(self.peak, float(np.max(np.abs(values))))
        # Lists of Python floats: to take a number out of an array costs more than both comparisons.
        self.low = (values - TOLERANCE * self.peak).tolist()
        self.high = (values + TOLERANCE * self.peak).tolist()
        self.size = len(self.low)

    def expected(self, update: int) -> float:
        """Returns the value of the recipe."""
        return float(self.schedule(update))


class Watch:
    """Compares the param groups of a run with a recipe, update by update.

    A check of four groups with three keys takes a few microseconds: the values of the recipe are
    computed a block ahead.

    Args:
        recipe: The recipe, or the schedule of the learning rate of every group.
        groups: The values of the run's param groups before its first update.
        numbers: What is known of the run, which decides between causes.
        group_names: The param group of the recipe for each one of the run, by name or position; if
            None, the group of the same position, or the one with the same values.

    Raises:
        ArgumentError: No key of a group is in the recipe.
    """

    def __init__(
        self,
        recipe: Recipe | Schedule,
        groups: Sequence[Mapping[str, Any]],
        numbers: RunNumbers | None = None,
        group_names: Sequence[int | str] | None = None,
    ) -> None:
        if not isinstance(recipe, Recipe | Schedule):
            raise ArgumentError(
                f"the recipe must be a Recipe or a Schedule, got {describe(recipe)}",
                where="watch",
                hint="load_recipe reads a config",
            )
        run_numbers = numbers or RunNumbers()
        self.numbers = complete_numbers(run_numbers, recipe)
        self.tracks = [
            Track(schedule, position, key)
            for position, (schedules, group) in enumerate(
                zip(
                    _assign_schedules(recipe, groups, group_names, run_numbers.start),
                    groups,
                    strict=True,
                )
            )
            for key, schedule in schedules.items()
            if value_of(group, key) is not None and not schedule.open
        ]
        if not self.tracks:
            raise ArgumentError(
                "no key of the param groups is in the recipe",
                where="watch",
                hint="watch an optimizer with lr",
            )
        self._readers = [_reader(groups[track.group], track.key) for track in self.tracks]
        self._limit = -1
        self._base = 0

    def check(self, update: int, groups: Sequence[Mapping[str, Any]]) -> list[Departure]:
        """Returns the departures of an update, without their causes.

        Args:
            update: The update that the values are used in.
            groups: The param groups.
        """
        if not self._base <= update < self._limit:
            for track in self.tracks:
                track.load(update)
            self._base = self.tracks[0].first
            self._limit = min(track.first + track.size for track in self.tracks)
        place = update - self._base
        departing: list[Departure] = []
        for track, (entry, index) in zip(self.tracks, self._readers, strict=True):
            value = groups[track.group][entry]
            if index is not None:
                value = value[index]
            # Not ``value < low or value > high``, which is false for nan.
            if not track.low[place] <= value <= track.high[place]:
                departure = self._departure(track, update, value)
                if departure is not None:
                    departing.append(departure)
        return departing

    def _departure(self, track: Track, update: int, value: Any) -> Departure | None:
        """The departure of a value, unless it is that of the recipe in float32."""
        number = float(value)
        expected = track.expected(update)
        # A number that is not Python's comes from a tensor (``capturable=True``), in float32.
        is_single = type(value) is not float and type(value) is not int
        tolerance = (SINGLE_TOLERANCE if is_single else TOLERANCE) * track.peak
        if abs(number - expected) <= tolerance:
            return None
        if len(track.seen) < MOST_SEEN:
            track.seen.append((update, number))
        return Departure(update, track.group, track.key, number, expected)

    def explain(self, departure: Departure, first: int, update: int) -> Departure:
        """Returns a departure with the causes that explain all values from ``first`` on.

        The values that did not depart follow the recipe, so that only the others are stored.

        Args:
            departure: The first departure.
            first: The first update that was seen.
            update: The last one.
        """
        tracks = [track for track in self.tracks if track.key == departure.key]
        track = next(candidate for candidate in tracks if candidate.group == departure.group)
        updates = np.arange(max(first, update - MOST_SEEN), update + 1)
        values = np.asarray(evaluate_schedule(track.schedule, updates), dtype=np.float64)
        for at, number in track.seen:
            if at >= updates[0]:
                values[at - updates[0]] = number
        # Above 0 for schedules of zeros, too: the errors are divisors.
        errors = np.full(values.shape, 4 * TOLERANCE * max(track.peak, 1e-300))
        agrees = any(candidate is not track and not candidate.seen for candidate in tracks)
        measurements = Seen(updates.astype(np.float64), values, errors, agrees)
        causes = likely_causes(track.schedule, measurements, self.numbers)
        return replace(departure, causes=tuple(causes))


def stop(departure: Departure) -> None:
    """Raises DepartureError for a departure."""
    raise DepartureError(str(departure))


def value_of(group: Mapping[str, Any], key: str) -> Any:
    """Returns the value of a key of a param group; None if it has none."""
    if key == "momentum" and "momentum" not in group and "betas" in group:
        # beta1 is Adam's momentum, as for ``cycle_momentum`` of torch's OneCycleLR.
        return group["betas"][0]
    return group.get(key)


def _reader(group: Mapping[str, Any], key: str) -> tuple[str, int | None]:
    """The entry of a group that holds a key, and the position in it."""
    if key == "momentum" and "momentum" not in group:
        return "betas", 0
    return key, None


def complete_numbers(numbers: RunNumbers, recipe: Recipe | Schedule) -> RunNumbers:
    """Returns the numbers of a run with those that its recipe has."""
    if isinstance(recipe, Schedule):
        return numbers
    facts = RunNumbers.of(recipe.facts)
    return RunNumbers(
        numbers.accumulation or facts.accumulation or recipe.accumulation,
        numbers.processes or facts.processes,
        numbers.updates_per_epoch or facts.updates_per_epoch,
        numbers.horizon or recipe.horizon,
        numbers.start,
    )


def _assign_schedules(
    recipe: Recipe | Schedule,
    groups: Sequence[Mapping[str, Any]],
    group_names: Sequence[int | str] | None,
    start: int,
) -> list[Mapping[str, Schedule]]:
    """The schedules of each param group of the run."""
    if isinstance(recipe, Schedule):
        return [{"lr": recipe}] * len(groups)
    if group_names is not None:
        if len(group_names) != len(groups):
            raise ArgumentError(
                f"groups must name one param group of the recipe for each of the {len(groups)} of "
                f"the run, got {len(group_names)}",
                where="watch",
            )
        return [recipe.group(name).schedules for name in group_names]
    if len(recipe.param_groups) == len(groups):
        return [group.schedules for group in recipe.param_groups]
    if len(recipe.param_groups) == 1:
        return [recipe.schedules] * len(groups)

    def distance(values: Mapping[str, Any], schedules: Mapping[str, Schedule]) -> int:
        number: Callable[[Any], float] = float
        pairs = [(value_of(values, key), schedule) for key, schedule in schedules.items()]
        return sum(
            abs(number(value) - float(schedule(start))) > TOLERANCE * abs(number(value))
            for value, schedule in pairs
            if value is not None and not schedule.open
        )

    choices = [group.schedules for group in recipe.param_groups]
    return [min(choices, key=lambda schedules: distance(values, schedules)) for values in groups]
