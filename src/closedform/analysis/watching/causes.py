"""The causes for which a run departs from its recipe, each decided by all updates that were seen.

A cause is another clock: the time at which the schedule is read for each update. A scheduler that
is stepped once per micro-batch reads it at ``A u``, one that resumed at the epoch at ``u - d`` from
some update on, and a decay over another horizon at a stretched time. A cause counts if the schedule
at these times has every value that was seen, the ones that agree with the recipe among them. The
numbers of a cause (how many micro-batches, which horizon) are searched among all integers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from closedform.analysis.lags import describe_lags, least_lags
from closedform.analysis.result import Result
from closedform.ir.types import FloatArray
from closedform.language import Schedule
from closedform.language.aliases import Number
from closedform.recipes.clock import Facts

LONGEST = 200_000
"""Updates of a schedule that are searched."""

LAST_TIME = 1e12
"""A time beyond this is not one of a run."""

MOST_STEPS = 64
"""Steps of a scheduler in an update."""

MOST_CHECKED = 200
"""Values of a cause that are compared with every update."""

_BEND = 1e-3
"""The part of its range by which a curve must depart from a line, to be told from another line."""


Times = FloatArray | float
Warp = Callable[[Times, Times], Times]
"""From the number of a cause and an update, one or several, to the time of the schedule there."""


class CauseKind(StrEnum):
    """The kind of a cause."""

    OFFSET = "offset-by-one"
    NOT_SCHEDULED = "not-scheduled"
    MICRO_BATCH = "stepped-per-micro-batch"
    PROCESSES = "stepped-per-process"
    SEVERAL = "stepped-several-times"
    SLOW = "stepped-too-seldom"
    RESUMED = "resumed-from-the-wrong-step"
    WARMUP = "warmup-in-other-units"
    HORIZON = "horizon-of-another-run"
    RATE = "another-base-rate"
    SKIPPED = "updates-skipped"
    OTHER_HORIZON = "resumed-with-another-horizon"
    UNKNOWN = "unknown"


def digits_of(number: int) -> int:
    """Returns the significant digits of an integer: those before its last zeros.

    Example:
        >>> [digits_of(n) for n in (0, 500, 512, -40)]
        [1, 1, 3, 2]
    """
    return len(str(number).rstrip("0")) or 1


@dataclass(frozen=True, slots=True)
class Cause(Result):
    """A cause that explains every value that was seen.

    Attributes:
        kind: Its kind.
        text: A sentence with its numbers.
    """

    kind: CauseKind
    text: str

    def lines(self) -> list[str]:
        """Returns the sentence."""
        return [self.text]


@dataclass(frozen=True, slots=True)
class RunNumbers:
    """The numbers of a run that decide between causes; None where one is not known.

    Attributes:
        accumulation: Micro-batches in an update.
        processes: Processes.
        updates_per_epoch: Updates in an epoch.
        horizon: Updates of the run.
        start: The update with which the run begins or resumes.
    """

    accumulation: int | None = None
    processes: int | None = None
    updates_per_epoch: int | None = None
    horizon: int | None = None
    start: int = 0

    @classmethod
    def of(cls, facts: Facts) -> RunNumbers:
        """Returns the numbers that are facts of a run."""

        def count(number: Number | None) -> int | None:
            return None if number is None else int(number)

        return cls(
            count(facts.gradient_accumulation),
            count(facts.world_size),
            count(facts.updates_per_epoch),
            count(facts.total_updates),
        )


@dataclass(frozen=True, slots=True)
class Seen:
    """The values of one key of one param group that were seen.

    Attributes:
        updates: The updates.
        values: The values.
        errors: How far the true values may be from them.
        has_agreeing_group: Whether another group follows its schedule.
    """

    updates: FloatArray
    values: FloatArray
    errors: FloatArray
    has_agreeing_group: bool = False


def likely_causes(schedule: Schedule, measurements: Seen, numbers: RunNumbers) -> list[Cause]:
    """Returns the causes that explain every value that was seen, the likeliest first.

    Args:
        schedule: The schedule of the recipe.
        measurements: The values, of which at least one departs from it.
        numbers: What is known of the run.
    """
    with np.errstate(all="ignore"):
        search = _Search(schedule, measurements, numbers)
        if not search.departing.size:
            return []
        causes = list(search.causes())
    best: dict[CauseKind, Cause] = {}
    for cause in causes:
        best.setdefault(cause.kind, cause)
    return list(best.values())


class _Search:
    """The causes of one departure."""

    def __init__(self, schedule: Schedule, measurements: Seen, numbers: RunNumbers) -> None:
        # Only a run that departs needs these modules, which import much.
        from closedform.analysis.numeric import is_supported
        from closedform.analysis.profile import rise_of_formula

        self.schedule, self.seen, self.numbers = schedule, measurements, numbers
        length = numbers.horizon or (None if schedule.length is None else int(schedule.length))
        last_seen = int(measurements.updates[-1])
        self.end = min(max(length or 4 * (last_seen + 1), 2), LONGEST)
        self.horizon = length or self.end
        self.is_smooth = is_supported(schedule.bound)
        self.curve = self.at(np.arange(self.end, dtype=np.float64))
        self.rise = rise_of_formula(self.curve)
        self.warmup = self.rise.top
        expected = self.at(measurements.updates)
        # Not "> errors": NaN must count as apart.
        is_apart = ~(np.abs(expected - measurements.values) <= measurements.errors)
        self.departing = np.flatnonzero(is_apart)
        self.first = int(measurements.updates[self.departing[0]]) if self.departing.size else 0

    def at(self, times: Times) -> FloatArray:
        """The schedule at times, also between two updates; NaN where it has no value."""
        times = np.asarray(times, dtype=np.float64)
        is_outside = ~((times >= 0) & (times < LAST_TIME))
        times = np.where(is_outside, 0.0, times)
        last = self.schedule.last_step
        if last is not None:
            is_outside |= times > last
            times = np.minimum(times, float(last))
        if bool(np.all(times == np.floor(times))):
            values = np.asarray(self.schedule(times.astype(np.int64)), dtype=np.float64)
        elif self.is_smooth:
            from closedform.analysis.numeric import values_of

            values = np.array(values_of(self.schedule.bound, times), dtype=np.float64)
        else:
            values = np.full(times.shape, np.nan)
        return np.where(is_outside, np.nan, values)

    def fits(self, times: Times) -> bool:
        """Whether the schedule at other times has every value that was seen."""
        return self.has(self.at(times))

    def has(self, values: FloatArray) -> bool:
        """Whether these are the values that were seen."""
        return bool(np.all(np.abs(values - self.seen.values) <= self.seen.errors))

    def causes(self) -> Iterator[Cause]:
        """The causes that fit, the likeliest first."""
        is_resumed = self.numbers.start > 0 and self.first == int(self.seen.updates[0])
        if is_resumed:
            yield from self._resumptions()
        yield from self._not_scheduled()
        yield from self._rebuilt()
        yield from self._offset()
        several = list(self._several())
        are_expected = [cause for cause in several if cause.kind is not CauseKind.SEVERAL]
        yield from are_expected
        # Where the curve is flat before, a shift would have begun there by chance.
        before = self.curve[max(self.first - 2, 0) : self.first + 1]
        is_flat = len(before) > 1 and bool(np.ptp(before[:2]) == 0)
        early = self.first in (0, 1, self.warmup, self.warmup + 1) or is_flat
        is_excluded = self.numbers.accumulation == 1 and self.numbers.processes == 1
        # A run that departs at its first updates is likelier stepped too often, a later one wrongly
        # resumed.
        if early and not is_excluded:
            yield from several
        if not early and not is_resumed:
            yield from self._resumptions()
        yield from self._skips()
        yield from self._warmup()
        yield from self._horizon()
        yield from several
        yield from self._slow()
        if early and not is_resumed:
            yield from self._resumptions()
        yield from self._rate()

    # --- one cause each ---------------------------------------------------------------------------

    def _not_scheduled(self) -> Iterator[Cause]:
        values = self.seen.values
        if np.ptp(self.curve) == 0 or not self.has(np.full_like(values, values[-1])):
            return
        # One value is not yet a constant, unless it is the rate that the group was made with.
        is_base = abs(values[-1] - float(np.max(self.curve))) <= self.seen.errors[-1]
        if len(self.departing) < 2 and not is_base and not self.seen.has_agreeing_group:
            return
        yield Cause(
            CauseKind.NOT_SCHEDULED, f"the group is not scheduled: it stays at {values[-1]:.6g}"
        )

    def _offset(self) -> Iterator[Cause]:
        u = self.seen.updates
        if self.fits(u + 1):
            yield Cause(
                CauseKind.OFFSET,
                "offset by one: update u has the value of u + 1, as where the scheduler is stepped "
                "before the optimizer",
            )
        if self.fits(np.maximum(u - 1, 0)):
            yield Cause(
                CauseKind.OFFSET,
                "offset by one: update u has the value of u - 1, as where the scheduler is stepped "
                "one update late",
            )

    def _several(self) -> Iterator[Cause]:
        """More steps of the scheduler than updates."""
        counts = np.arange(2, MOST_STEPS + 1, dtype=np.float64)
        warps: tuple[Warp, ...] = (lambda n, u: n * u, lambda n, u: n * u + n - 1)
        fitting = [int(count) for warp in warps for count in self._matching(counts, warp)]
        numbers_by_kind = {
            CauseKind.MICRO_BATCH: (self.numbers.accumulation, "micro-batch"),
            CauseKind.PROCESSES: (self.numbers.processes, "process"),
        }
        is_explained = False
        for kind, (number, unit) in numbers_by_kind.items():
            if number is not None and number in fitting:
                is_explained = True
                yield Cause(
                    kind,
                    f"the scheduler is stepped {number} times an update, once per {unit}: the run "
                    f"has {number} {unit}es",
                )
        product = (self.numbers.accumulation or 1) * (self.numbers.processes or 1)
        for count in [] if is_explained else fitting[:1]:
            more = "once for each micro-batch or process"
            if product == count:
                more = "once for each micro-batch of each process"
            yield Cause(
                CauseKind.SEVERAL, f"the scheduler is stepped {count} times an update: {more}"
            )

    def _slow(self) -> Iterator[Cause]:
        counts = np.arange(2, max(3, min(self.end, 100_000)), dtype=np.float64)
        for count in self._matching(counts, lambda n, u: np.floor(u / n))[:1]:
            n = int(count)
            unit = "epoch" if n == self.numbers.updates_per_epoch else f"{n} updates"
            if len(self.departing) > 1 or n == self.numbers.updates_per_epoch:
                yield Cause(
                    CauseKind.SLOW, f"the scheduler is stepped once in {unit}, not each update"
                )

    def _resumptions(self) -> Iterator[Cause]:
        begin = self.first
        if begin == 0:
            return
        shifts = np.arange(-begin, self.end - begin, dtype=np.float64)
        shifts = shifts[shifts != 0]
        matches = self._matching(shifts, lambda shift, u: np.where(u >= begin, u + shift, u))
        per_epoch = self.numbers.updates_per_epoch
        epochs = {-begin} if per_epoch is None else {-begin, begin // per_epoch - begin}
        matches.sort(key=lambda shift: (int(shift) not in epochs, abs(shift)))
        for shift in matches[:1]:
            step = begin + int(shift)
            remark = ""
            if step == 0:
                remark = ", as where its state was not restored"
            elif per_epoch is not None and step == begin // per_epoch:
                remark = ", which is the epoch"
            yield Cause(
                CauseKind.RESUMED,
                f"resumed from the wrong step: update {begin:,} has the value of update {step:,}"
                f"{remark}",
            )

    def _rebuilt(self) -> Iterator[Cause]:
        """A scheduler that is built at a resumption sets the first rate, until its next step."""
        places, count = self.departing, len(self.seen.values)
        if self.first == 0 or places[-1] == count - 1 or np.any(np.diff(places) == 1):
            return
        if np.all(np.abs(self.seen.values - self.curve[0])[places] <= self.seen.errors[places]):
            yield Cause(
                CauseKind.RESUMED,
                f"resumed with the first rate: update {self.first:,} has the value of update 0, "
                "and the next one is right, as where the scheduler was built after the "
                "optimizer's state was loaded",
            )

    def _warmup(self) -> Iterator[Cause]:
        """Another length of the warmup; the decay goes on to the same end."""
        w, end = float(self.warmup), float(self.horizon)
        if w <= 0 or end <= w:
            return
        lengths = np.arange(0, min(self.horizon, LONGEST), dtype=np.float64)
        lengths = lengths[lengths != w]

        def rise(length: Times, times: Times) -> Times:
            return times * w / np.maximum(length, 1e-300)

        def after_rise(fall: Warp) -> Warp:
            return lambda length, times: np.where(
                times < length, rise(length, times), fall(length, times)
            )

        warps = [
            # The decay ends where it did, is the same at each update, or comes later as a whole.
            after_rise(lambda length, times: w + (times - length) * (end - w) / (end - length)),
            after_rise(lambda length, times: np.maximum(times, w)),
            after_rise(lambda length, times: times - length + w),
            *([rise] if self._is_power_law() else []),
        ]
        for warp in warps:
            matches = self._matching(lengths, warp)
            for length in self._best(matches, self._units(w)):
                yield Cause(
                    CauseKind.WARMUP,
                    f"warmup in other units: it takes {length:,} updates instead of "
                    f"{self.warmup:,}{self._ratio(length, self.warmup)}",
                )
                return

    def _is_power_law(self) -> bool:
        """Whether the curve after the warmup has no other time than the length of the warmup."""
        after = np.arange(self.warmup, self.end // 2)
        if len(after) < 3 or not np.all(self.curve[after] > 0):
            return False
        ratios = self.curve[2 * after[1:]] / self.curve[after[1:]]
        return bool(np.ptp(ratios) <= 1e-9 and abs(ratios[0] - 1) > 1e-9)

    def _horizon(self) -> Iterator[Cause]:
        """Another end of the decay, after the same warmup or with a warmup that is a part of it.

        A decay of a separate length after a flat stretch begins later, or earlier.
        """
        w, end = float(self.warmup), float(self.horizon)
        limit = min(max(10 * self.horizon, 2000), LONGEST)
        lengths = np.arange(self.warmup + 1, limit, dtype=np.float64)
        multiples = [end * factor for factor in (*range(2, 65), 100, 1000)]
        lengths = np.unique(np.concatenate([lengths, multiples]))
        lengths = lengths[lengths != end]

        def decay(length: Times, times: Times) -> FloatArray:
            return np.where(times < w, times, w + (times - w) * (end - w) / (length - w))

        def whole(length: Times, times: Times) -> Times:
            return times * end / length

        flat = float(self.rise.last)

        def after_flat(length: Times, times: Times) -> FloatArray:
            moved_times = times - (length - end)
            return np.where(moved_times >= flat, moved_times, np.minimum(times, flat))

        begin = self.first

        def after_departure(warp: Warp) -> Warp:
            return lambda length, times: np.where(times >= begin, warp(length, times), times)

        def held_at_end(warp: Warp) -> Warp:
            return lambda length, times: np.minimum(warp(length, times), end)

        warps: list[Warp] = [decay, whole, *([after_flat] if flat > w + 1 else [])]
        # A rate that is held at the end of its decay, where that of the recipe may rise again.
        warps += [held_at_end(decay), held_at_end(whole)]
        later = [after_departure(warp) for warp in warps if len(self.departing) > 2 and begin > 0]
        for warp in (*warps, *later):
            matches = self._matching(lengths, warp)
            for length in self._best(matches, self._units(end)):
                such_as = "such as " if len(matches) > 1 else ""
                kind, start = CauseKind.HORIZON, "horizon of another run: the decay"
                if warp in later:
                    kind = CauseKind.OTHER_HORIZON
                    start = f"resumed with another horizon: from update {begin:,} on the decay"
                yield Cause(
                    kind,
                    f"{start} ends after {such_as}{length:,} updates instead of "
                    f"{self.horizon:,}{self._ratio(length, self.horizon)}",
                )
                return

    def _skips(self) -> Iterator[Cause]:
        """Updates without a step of the scheduler: a whole lag that never falls."""
        lags = least_lags(self.at, self.seen.updates, self.seen.values, self.seen.errors)
        if lags is not None:
            yield Cause(CauseKind.SKIPPED, describe_lags(self.seen.updates, lags))

    def _rate(self) -> Iterator[Cause]:
        expected, values = self.at(self.seen.updates), self.seen.values
        if np.ptp(self.curve) == 0 and self.has(np.full_like(values, values[-1])):
            text = f"another value: {values[-1]:.6g} instead of {expected[-1]:.6g}, at every update"
            yield Cause(CauseKind.RATE, text)
            return
        is_positive = np.abs(expected) > 10 * self.seen.errors
        if not is_positive.any():
            return
        place = int(np.argmax(np.abs(expected)))
        ratio = float(self.seen.values[place] / expected[place])
        if ratio != 1 and self.has(expected * ratio):
            yield Cause(
                CauseKind.RATE,
                f"another base value: each value is {ratio:.6g} times that of the recipe",
            )
            return
        yield from self._range(expected)

    def _range(self, expected: FloatArray) -> Iterator[Cause]:
        """Another peak and another end of the same curve; any line has the ends of another one."""
        line = np.polynomial.Polynomial.fit(self.seen.updates, expected, 1)(self.seen.updates)
        span = np.ptp(expected)
        if len(expected) < 4 or np.max(np.abs(expected - line)) <= _BEND * span:
            return
        low, high = int(np.argmin(expected)), int(np.argmax(expected))
        slope = (self.seen.values[high] - self.seen.values[low]) / span
        offset = self.seen.values[low] - slope * expected[low]
        if self.has(slope * expected + offset):
            ends = np.array([np.max(self.curve), np.min(self.curve)])
            numbers = " instead of ".join(
                " and ".join(f"{end:.6g}" for end in pair) for pair in (slope * ends + offset, ends)
            )
            yield Cause(CauseKind.RATE, f"other rates: the same curve between {numbers}")

    # --- numbers ----------------------------------------------------------------------------------

    def _matching(self, numbers: FloatArray, warp: Warp) -> list[float]:
        """The numbers of a cause, of those that are tried, with which every value is had."""
        if not numbers.size:
            return []
        is_match = np.ones(len(numbers), dtype=bool)
        # A few departing updates exclude nearly all numbers; the others are compared with all.
        count = len(self.departing)
        for place in {0, count // 2, count - 1}:
            index = int(self.departing[place])
            expected_values = self.at(warp(numbers, self.seen.updates[index]))
            gap = np.abs(expected_values - self.seen.values[index])
            is_match &= gap <= self.seen.errors[index]
        matches = sorted(
            numbers[is_match].tolist(), key=lambda number: (digits_of(int(number)), number)
        )
        return [
            number
            for number in matches[:MOST_CHECKED]
            if self.fits(warp(number, self.seen.updates))
        ]

    def _unit_sizes(self) -> dict[int, str]:
        """The numbers of a unit of updates, with their names."""
        names_by_size = {
            self.numbers.accumulation: "micro-batches of an update",
            self.numbers.processes: "processes",
            self.numbers.updates_per_epoch: "updates of an epoch",
        }
        return {size: name for size, name in names_by_size.items() if size is not None and size > 1}

    def _units(self, number: float) -> set[int]:
        """The number in other units: micro-batches, processes, epochs."""
        sizes = [*self._unit_sizes()]
        factors = sizes + [first * second for first in sizes for second in sizes if first != second]
        units = {round(number * factor) for factor in factors}
        return units | {round(number / factor) for factor in factors} | {0}

    def _best(self, matches: Sequence[float], likely: set[int]) -> Iterable[int]:
        integers = [int(number) for number in matches]
        return sorted(integers, key=lambda n: (n not in likely, digits_of(n), n))[:1]

    def _ratio(self, left: int, right: int) -> str:
        for size, name in self._unit_sizes().items():
            if left == right * size:
                return f", {size} times as many: the {name}"
            if left * size == right:
                return f", one in {size}: the {name}"
        return ""
