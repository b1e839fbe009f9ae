"""Differences of two recipes: proved equal, or where and how far their schedules are apart.

The prover is imported where curves are close or equal: it takes as long as all the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from closedform import markup
from closedform.analysis.lags import describe_lags, lags_of
from closedform.analysis.result import Result
from closedform.delegation import functions
from closedform.effort import Effort
from closedform.errors import ArgumentError, DomainError, UnknownNameError, describe
from closedform.ir.types import MAX_STEP, FloatArray, StepArray
from closedform.language import Schedule, t
from closedform.language.exact import to_float
from closedform.recipes.logs import OFFSETS, Log
from closedform.recipes.recipe import ParamGroup, Recipe, Role
from closedform.verify.terms.verdict import Status

ALL_STEPS = 1_000_000
"""Runs of at most so many updates are compared at each, longer ones at a tenth of that number."""

WITHOUT_HORIZON = 10_000
"""Updates that are compared where neither side has a horizon."""

# Some 450 ulp of 1: float64 values of equal formulas in different orders differ by a few ulp, and
# near a zero by more.
_ROUNDING = 1e-13
"""Two float64 values of one number differ by less than this part of the largest value."""

Source = Schedule | Recipe | Log


@dataclass(frozen=True, slots=True)
class CurveDifference(Result):
    """The difference of two schedules of one key and param group.

    Attributes:
        key: The key of the param group.
        group: The name of the param group; empty for the default one.
        verdict: PROVED equal over the run, or for every update where there is no horizon; REFUTED;
            or UNKNOWN: no difference was found, and none was excluded.
        until: The number of updates that were compared.
        first_step: The first update whose values differ by more than a rounding; None for none.
            After ``until``, where there is no horizon, it is a difference that the prover found.
        first: The two values there.
        max_gap: The largest difference.
        at: The update of the largest difference.
        area: The sum of the differences over the updates.
        reason: What was proved, or the reason why nothing was.
        is_sampled: Whether only a part of the updates was compared: ``first_step`` is then the
            first one found, and the others are close.
    """

    key: str
    group: str
    verdict: Status
    until: int
    first_step: int | None = None
    first: tuple[float, float] | None = None
    max_gap: float = 0.0
    at: int | None = None
    area: float = 0.0
    reason: str = ""
    is_sampled: bool = False

    @property
    def name(self) -> str:
        """The key, and the param group where it is not the default one."""
        return f"{self.key} of {self.group}" if self.group else self.key

    def lines(self) -> list[str]:
        """Returns the difference in one line."""
        end = f" ({self.reason})" if self.reason else ""
        if self.first_step is None:
            equal = self.verdict is Status.PROVED
            outcome = "PROVED equal" if equal else f"no difference in {self.until:,} updates"
            return [f"{self.name}: {outcome}{end}"]
        values = "" if self.first is None else f", {self.first[0]!r} and {self.first[1]!r}"
        gap = "" if self.at is None else f"; largest gap {self.max_gap:.6g} at update {self.at:,}"
        return [f"{self.name}: differs from update {self.first_step:,}{values}{gap}{end}"]


@dataclass(frozen=True, slots=True)
class Difference(Result):
    """The difference of two recipes, schedules or logs.

    Attributes:
        curves: The difference of each key and param group that both have.
        only_in_a: Names that only the first one has, as "key" or "key of group".
        only_in_b: Names that only the second one has.
        sides: The two that were compared, for a plot.
    """

    DATA = ("verdict", "curves", "only_in_a", "only_in_b")

    curves: tuple[CurveDifference, ...]
    only_in_a: tuple[str, ...] = ()
    only_in_b: tuple[str, ...] = ()
    sides: tuple[Source, Source] | None = field(default=None, repr=False, compare=False)

    def __repr__(self) -> str:
        count = len(self.curves)
        start = "" if self.first_step is None else f", from update {self.first_step:,}"
        return f"<Difference: {self.verdict}{start}, {count} curve{'s' * (count != 1)}>"

    def lines(self) -> list[str]:
        """Returns a line for each curve, and for the names that one side lacks."""
        only = (("first", self.only_in_a), ("second", self.only_in_b))
        remarks = [f"only the {side} one has {', '.join(names)}" for side, names in only if names]
        return [*map(str, self.curves), *remarks]

    def _repr_html_(self) -> str:
        first_line, *rest = self.lines() or [""]
        is_single = len(self.curves) == 1
        rows = [
            (
                curve.name,
                curve.verdict.value,
                "" if curve.first_step is None else f"{curve.first_step:,}",
                "" if curve.at is None else f"{curve.max_gap:.6g} at {curve.at:,}",
                curve.reason,
            )
            for curve in self.curves
        ]
        head = ("", "verdict", "differs from update", "largest gap", "reason")
        return markup.block(
            first_line if is_single else f"Difference: {self.verdict}",
            self._picture(),
            "" if is_single else markup.table(rows, head),
            *map(markup.paragraph, rest[len(self.curves) - 1 :]),
        )

    def _picture(self) -> str:
        """A plot of the learning rates that are furthest apart."""
        if self.sides is None or not self.curves:
            return ""
        steps, first, second = curve_values(*self.sides, self._largest)
        names = [_name_of(side) for side in self.sides]
        if names[0] == names[1]:
            names = [f"first {names[0]}", f"second {names[1]}"]
        return functions().picture({names[0]: (steps, first), names[1]: (steps, second)})

    @property
    def verdict(self) -> Status:
        """PROVED if all curves are, REFUTED if one is, else UNKNOWN."""
        verdicts = {curve.verdict for curve in self.curves}
        if Status.REFUTED in verdicts:
            return Status.REFUTED
        return Status.PROVED if verdicts == {Status.PROVED} else Status.UNKNOWN

    @property
    def first_step(self) -> int | None:
        """The first update at which a curve differs."""
        return min(
            (curve.first_step for curve in self.curves if curve.first_step is not None),
            default=None,
        )

    @property
    def _largest(self) -> CurveDifference:
        return max(self.curves, key=lambda curve: (curve.key == "lr", curve.max_gap))

    @property
    def max_gap(self) -> float:
        """The largest difference of a learning rate."""
        return self._largest.max_gap

    @property
    def at(self) -> int | None:
        """The update of the largest difference of a learning rate."""
        return self._largest.at

    @property
    def area(self) -> float:
        """The sum of the differences of that learning rate over the updates."""
        return self._largest.area


def diff(a: Source, b: Source, until: int | None = None) -> Difference:
    """Returns where and how far two recipes, schedules or logs are apart.

    The default groups are compared, the groups of one role (without weight decay, norms, biases,
    embeddings), and groups that both configs name alike. Where only one recipe has a group for a
    role, it is compared with the default group of the other, which covers these parameters there.

    Args:
        a: A recipe, a schedule, which is that of the learning rate, or a log.
        b: Another one. The steps of a log count the updates from 0 or from 1, or count
            micro-batches or epochs: where its offset was not asked for, each is tried, and the
            reason names the one with which it agrees.
        until: The number of updates to compare; the longer horizon if not given. Without one the
            first 10,000 are compared, and PROVED is for every update: what is proved only
            of those is UNKNOWN, with the range in the reason.

    Raises:
        ArgumentError: ``until`` is not positive.
        UnknownNameError: The two have no key in common.

    Example:
        >>> from closedform import schedules
        >>> one, other = schedules.linear(1, 0, 10), schedules.cosine(1, 0, 10)
        >>> found = diff(one, other, until=10)
        >>> found.verdict, found.first_step, found.at, round(found.max_gap, 3)
        (<Status.REFUTED: 'REFUTED'>, 1, 2, 0.105)
    """
    for name, side in (("a", a), ("b", b)):
        if not isinstance(side, Schedule | Recipe | Log):
            raise ArgumentError(
                f"{name} must be a Schedule, a Recipe or a log, got {describe(side)}",
                where="diff",
                hint="load_recipe reads a config, from_python a function of the step, from_onnx a "
                "file; `closedform diff` takes all of them",
            )
    is_count = isinstance(until, int) and not isinstance(until, bool)
    if until is not None and not (is_count and 1 <= until <= MAX_STEP):
        raise ArgumentError(
            f"until must be an integer of at least 1 and at most {MAX_STEP}, got {describe(until)}"
        )
    differences: list[Difference] = []
    for left, right, name in _read_in_turn(a, b):
        difference = replace(_differences(left, right, until), sides=(left, right))
        if difference.verdict is not Status.REFUTED:
            return _with_reading(difference, name) if name else difference
        differences.append(difference)
    # The reading that a reason explains, then the one that agrees longest, then the log's own.
    return max(differences, key=_agreement, default=Difference(()))


def _agreement(difference: Difference) -> tuple[bool, int]:
    """Whether a reason explains a difference, and the first step of the log that differs."""
    offset = sum(side.offset for side in difference.sides or () if isinstance(side, Log))
    is_explained = any(curve.reason for curve in difference.curves if curve.is_sampled)
    return is_explained, (difference.first_step or 0) + offset


def _name_of(source: Source) -> str:
    return Path(source.source).name if isinstance(source, Log) else source.name


def _read_in_turn(a: Source, b: Source) -> Iterator[tuple[Source, Source, str]]:
    """The two sides, with each way in which the steps of a log can be read."""
    if isinstance(a, Log) and not isinstance(b, Log):
        yield from ((reading.log, b, reading.name) for reading in readings(a, b))
    elif isinstance(b, Log) and not isinstance(a, Log):
        yield from ((a, reading.log, reading.name) for reading in readings(b, a))
    else:
        yield a, b, ""


def _with_reading(difference: Difference, reading: str) -> Difference:
    """A difference of a log, with the way in which it was read where it agrees."""
    curves = (
        replace(curve, reason=f"{curve.reason}, read with {reading}")
        if curve.first_step is None and curve.is_sampled
        else curve
        for curve in difference.curves
    )
    return replace(difference, curves=tuple(curves))


def _differences(a: Source, b: Source, until: int | None) -> Difference:
    left, right = _curves(a, b), _curves(b, a)
    names = [name for name in left if name in right]
    if not names:
        raise UnknownNameError(
            f"the two have no key in common: {_list_names(left)} and {_list_names(right)}"
        )
    horizon = until or _horizon(a, b)
    run = _Run(horizon or WITHOUT_HORIZON, is_given=until is not None, has_end=horizon is not None)
    differences: dict[tuple[int, int], CurveDifference] = {}
    curves = []
    for key, group in names:
        left_curve, right_curve = left[key, group], right[key, group]
        # Param groups share schedules: each pair of objects is compared once.
        pair_key = (id(left_curve), id(right_curve))
        if pair_key not in differences:
            differences[pair_key] = _compare(left_curve, right_curve, run)
        curves.append(replace(differences[pair_key], key=key, group=group))
    return Difference(
        tuple(curves),
        tuple(_describe(name) for name in left if name not in right),
        tuple(_describe(name) for name in right if name not in left),
    )


# --- the curves of a side ------------------------------------------------------------------------

Name = tuple[str, str]
ScheduleOrLog = Schedule | tuple[Log, str]


def _curves(source: Source, counterpart: Source) -> dict[Name, ScheduleOrLog]:
    """The curves by key and name of the param group, that of the default group being empty.

    A role that only the recipe has with which it is compared is that of parameters which the
    default group covers here.
    """
    is_multiplier = isinstance(counterpart, Log) and counterpart.is_multiplier
    if isinstance(source, Schedule):
        return {("lr", ""): _in_units_of_peak(source) if is_multiplier else source}
    if isinstance(source, Log):
        return dict(_log_curves(source, counterpart))
    groups = _groups(source)
    if isinstance(counterpart, Recipe):
        for name, group in _groups(counterpart).items():
            covering = _covering(group, groups)
            if name not in groups and covering is not None:
                groups[name] = covering
    return {
        (key, name): _in_units_of_peak(schedule) if is_multiplier and key == "lr" else schedule
        for name, group in groups.items()
        for key, schedule in group.schedules.items()
    }


def _log_curves(log: Log, counterpart: Source) -> Iterator[tuple[Name, ScheduleOrLog]]:
    """The curves of a log; one for each param group where the recipe has as many."""
    yield from (((key, ""), (log, key)) for key in log.values)
    if not isinstance(counterpart, Recipe):
        return
    names = list(_groups(counterpart))
    for key, several in log.groups.items():
        if len(names) == len(counterpart.param_groups) == 1 + len(several):
            for name, values in zip(names[1:], several, strict=True):
                yield (key, name), (replace(log, values={key: values}, groups={}), key)


def _in_units_of_peak(schedule: Schedule) -> Schedule:
    """A schedule whose largest value is 1, for a log of the multiplier of all rates."""
    from closedform.analysis.profile import Profile

    last = schedule.last_step if schedule.last_step is not None else schedule.length
    profile = Profile.of(schedule, int(WITHOUT_HORIZON if last is None else last) + 1)
    peak = schedule.exact(profile.peak.highest)
    return schedule if peak in (0, 1) else schedule.scale(1 / peak)


def _groups(recipe: Recipe) -> dict[str, ParamGroup]:
    """The param groups by their role, or by their name where several can have the role."""
    first, *rest = recipe.param_groups
    by_name = (Role.NAMED, Role.FROZEN, Role.NO_DECAY)
    return {
        "": first,
        **{
            param_group.name if param_group.role in by_name else param_group.role.value: param_group
            for param_group in rest
        },
    }


def _covering(group: ParamGroup, groups: Mapping[str, ParamGroup]) -> ParamGroup | None:
    """The one of the groups that covers the parameters of a group of another recipe.

    None where it is not clear: for a name of the config, and for parameters without weight decay
    where norms or biases have groups.
    """
    norms_or_biases = (Role.NORM, Role.BIAS)
    if group.role in norms_or_biases and Role.NO_DECAY in groups:
        return groups[Role.NO_DECAY]
    if group.role is Role.NAMED:
        return None
    if group.role is Role.NO_DECAY and any(role in groups for role in norms_or_biases):
        return None
    return groups[""]


def _describe(name: Name) -> str:
    key, group = name
    return f"{key} of {group}" if group else key


def _list_names(curves: Mapping[Name, ScheduleOrLog]) -> str:
    return ", ".join(_describe(name) for name in curves)


def _horizon(*sides: Source) -> int | None:
    """The longer horizon of two sides; None where neither has one."""
    horizons: list[int] = []
    for side in sides:
        if isinstance(side, Recipe) and side.horizon is not None:
            horizons.append(side.horizon)
        elif isinstance(side, Schedule) and side.length is not None:
            horizons.append(int(side.length))
    return max(*horizons, 1) if horizons else None


# --- two schedules -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Run:
    """The updates that are compared.

    Attributes:
        end: Their number.
        is_given: Whether the user has named it: nothing beyond is asked.
        has_end: Whether the run ends there. Otherwise a proof must be for every update.
    """

    end: int
    is_given: bool
    has_end: bool


def _compare(left: ScheduleOrLog, right: ScheduleOrLog, run: _Run) -> CurveDifference:
    if not isinstance(left, Schedule) or not isinstance(right, Schedule):
        return _with_log(left, right)
    ends = {side.last_step for side in (left, right)}
    partial = [side for side in (left, right) if side.last_step is not None]
    shortest = min((last_step + 1 for last_step in ends if last_step is not None), default=None)
    last = run.end if shortest is None else min(run.end, shortest)
    empty = CurveDifference("", "", Status.UNKNOWN, last)
    have_one_end = len(ends) == 1
    if left.bound == right.bound and have_one_end:
        return replace(empty, verdict=Status.PROVED, reason="the expressions are identical")
    steps = _sample_steps(left, right, last)
    difference = _scan(left, right, steps, empty) if len(steps) else empty
    if difference.first_step is not None:
        return difference
    # No value differs; the update after the shorter domain is then the first difference.
    if shortest is not None and not have_one_end and (shortest < run.end or not run.has_end):
        first = min(partial, key=lambda side: side.last_step or 0)
        reason = first.ending or "its domain ends there"
        return replace(difference, verdict=Status.REFUTED, first_step=shortest, reason=reason)
    return _prove(
        left,
        right,
        difference,
        replace(run, is_given=run.is_given or (bool(partial) and run.has_end)),
    )


def _sample_steps(left: Schedule, right: Schedule, end: int) -> StepArray:
    """All updates, or the joints of both and evenly spaced ones."""
    if end <= ALL_STEPS:
        return np.arange(end)
    from closedform.verify.terms.real_line import cells_of

    marks = [cell.first for side in (left, right) for cell in cells_of(side)]
    # Curves that agree elsewhere may differ in one update at a joint, which even samples miss.
    near = [mark + shift for mark in marks for shift in (-1, 0, 1) if 0 <= mark + shift < end]
    even = np.linspace(0, end - 1, ALL_STEPS // 10).astype(np.int64)
    return np.unique(np.concatenate([even, np.array(near, dtype=np.int64)]))


def _scan(
    left: Schedule, right: Schedule, steps: StepArray, empty: CurveDifference
) -> CurveDifference:
    """The differences of the float64 values, the first one confirmed exactly."""
    left_values, right_values = (
        np.asarray(side(steps), dtype=np.float64) for side in (left, right)
    )
    gaps = np.abs(left_values - right_values)
    scale = max(float(np.max(np.abs(left_values))), float(np.max(np.abs(right_values))))
    is_sampled = len(steps) < empty.until
    index = _first(left, right, steps, gaps, _ROUNDING * scale)
    difference = replace(empty, is_sampled=is_sampled)
    if index is None:
        return difference
    step = int(steps[index])
    if is_sampled and index > 0:
        step = _bisect(left, right, int(steps[index - 1]), step, _ROUNDING * scale)
    # The first of the gaps that differ from the largest by rounding: a constant gap has its start
    # as place.
    widest = int(np.flatnonzero(gaps >= np.max(gaps) - _ROUNDING * scale)[0])
    area = float(np.trapezoid(gaps, steps)) if is_sampled else float(np.sum(gaps))
    return replace(
        difference,
        verdict=Status.REFUTED,
        first_step=step,
        first=(to_float(left.exact(step)), to_float(right.exact(step))),
        max_gap=float(gaps[widest]),
        at=int(steps[widest]),
        area=area,
    )


_CANDIDATES = 32
"""The most updates whose float64 values are barely apart and that are compared exactly."""


def _first(
    left: Schedule, right: Schedule, steps: StepArray, gaps: FloatArray, rounding: float
) -> int | None:
    """The position of the first update that differs."""
    clear = np.flatnonzero(gaps > 100 * rounding)
    close = np.flatnonzero(gaps > rounding)
    # An exact comparison takes milliseconds, where a float64 gap is free: only the doubtful ones.
    for position in close[:_CANDIDATES]:
        if clear.size and position >= clear[0]:
            break
        if _differ(left, right, int(steps[position])):
            return int(position)
    return int(clear[0]) if clear.size else None


def _differ(left: Schedule, right: Schedule, step: int) -> bool:
    """Whether the exact values differ."""
    from closedform.analysis.profile import ball_at

    first, second = (ball_at(side, step) for side in (left, right))
    return first is None or second is None or not (first - second).contains(0)


def _bisect(left: Schedule, right: Schedule, agreeing: int, differing: int, rounding: float) -> int:
    """An update that differs after one that agrees, between two such."""
    while differing - agreeing > 1:
        middle = (agreeing + differing) // 2
        if abs(float(left(middle)) - float(right(middle))) > 100 * rounding:
            differing = middle
        else:
            agreeing = middle
    return differing


def _prove(
    left: Schedule, right: Schedule, difference: CurveDifference, run: _Run
) -> CurveDifference:
    """The verdict of the prover: for all updates, or else for the updates of the run."""
    from closedform.verify.claims.values import equal_to
    from closedform.verify.terms.limits import LIMITS

    last = f"{difference.until - 1:,}"
    open_reason = ""
    if not run.is_given:
        # For every update first: it implies the verdict of the run, and says more.
        verdict = equal_to(left, right).judge(Effort.of(LIMITS.comparison_work))
        if verdict.proved:
            return replace(difference, verdict=Status.PROVED, reason="equal for every update")
        if verdict.refuted and verdict.counterexample is not None:
            step = int(next(iter(verdict.counterexample.values()), 0))
            if step < difference.until or not run.has_end:
                return _difference_at(left, right, step, difference)
        open_reason = verdict.reason
    verdict = equal_to(left, right, where=t < difference.until).judge(
        Effort.of(LIMITS.comparison_work)
    )
    if verdict.proved:
        equal = f"equal for the updates 0 to {last}"
        if run.has_end:
            return replace(difference, verdict=Status.PROVED, reason=equal)
        return replace(difference, reason=f"{equal}, open beyond: {open_reason}")
    if verdict.refuted and verdict.counterexample is not None:
        step = int(next(iter(verdict.counterexample.values()), 0))
        return _difference_at(left, right, step, difference)
    return replace(difference, reason=f"no difference found, none excluded: {verdict.reason}")


def _difference_at(
    left: Schedule, right: Schedule, step: int, difference: CurveDifference
) -> CurveDifference:
    """The difference at an update that the prover names."""
    refutation = replace(difference, verdict=Status.REFUTED, first_step=step)
    if step >= difference.until:
        refutation = replace(refutation, is_sampled=True)
    try:
        left_value, right_value = left.exact(step), right.exact(step)
    except DomainError as error:
        return replace(refutation, reason=error.what)
    gap = abs(to_float(left_value - right_value))
    reason = (
        "they differ by less than a rounding" if step < difference.until else "found by the prover"
    )
    return replace(
        refutation,
        first=(to_float(left_value), to_float(right_value)),
        max_gap=gap,
        at=step,
        area=gap,
        reason=reason,
    )


# --- logs ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Reading:
    """A way in which the steps of a log are read.

    Attributes:
        log: The log with the updates of this reading.
        name: The way, for the reason; empty for that which the log states.
    """

    log: Log
    name: str


def readings(log: Log, counterpart: Source) -> Iterator[_Reading]:
    """Yields the ways in which the steps of a log can count the updates of another side.

    Those that the log or its format states come first, then the other offset, micro-batches where
    the recipe has several in an update, and epochs where it determines their updates. A log whose
    offset was asked for is read with only that offset.
    """
    yield _Reading(log, f"an offset of {log.offset}" if log.offset and log.is_offset_open else "")
    if not log.is_offset_open:
        return
    offsets = [log.offset, *(offset for offset in OFFSETS if offset != log.offset)]
    yield from (_Reading(log.at_offset(offset), f"an offset of {offset}") for offset in offsets[1:])
    if not isinstance(counterpart, Recipe):
        return
    if log.unit == "step" and (counterpart.accumulation or 1) > 1:
        count = int(counterpart.accumulation or 1)
        for offset in offsets:
            yield _Reading(
                log.at_offset(offset).in_updates(count, are_longer=False),
                f"its steps as micro-batches, {count} in an update, and an offset of {offset}",
            )
    updates = _updates_per_epoch(counterpart)
    if log.unit == "epoch" and updates is not None:
        for offset in offsets:
            yield _Reading(
                log.at_offset(offset).in_updates(updates, are_longer=True),
                f"its epochs, {updates} updates in each, and an offset of {offset}",
            )


def _updates_per_epoch(recipe: Recipe) -> int | None:
    facts = recipe.facts
    if facts.updates_per_epoch is not None:
        return int(facts.updates_per_epoch)
    if facts.dataset_size is not None and facts.global_batch_size is not None:
        # A batch that is larger than the data set makes no whole update.
        return int(facts.dataset_size) // int(facts.global_batch_size) or None
    return None


def _with_log(left: ScheduleOrLog, right: ScheduleOrLog) -> CurveDifference:
    """A log and a schedule or another log: within the printed digits at each logged update."""
    pairs = _pairs(left, right)
    count = len(pairs.steps)
    if not count:
        return CurveDifference("", "", Status.UNKNOWN, 0, reason="no logged update in common")
    apart = np.flatnonzero(pairs.is_apart)
    until = int(pairs.steps[-1]) + 1
    if not len(apart):
        reason = f"equal within the printed digits at {count} logged updates"
        return CurveDifference("", "", Status.UNKNOWN, until, reason=reason, is_sampled=True)
    gaps = np.abs(pairs.first - pairs.second)[apart]
    first, widest = apart[0], apart[np.argmax(gaps)]
    return CurveDifference(
        "",
        "",
        Status.REFUTED,
        until,
        first_step=int(pairs.steps[first]),
        first=(float(pairs.first[first]), float(pairs.second[first])),
        max_gap=float(np.max(gaps)),
        at=int(pairs.steps[widest]),
        area=float(np.sum(gaps)),
        reason=_reason(left, right),
        is_sampled=True,
    )


@dataclass(frozen=True, slots=True)
class _Pairs:
    """The values of both sides at logged updates, and whether they differ by more than digits."""

    steps: StepArray
    first: FloatArray
    second: FloatArray
    is_apart: NDArray[np.bool_]


def _pairs(left: ScheduleOrLog, right: ScheduleOrLog) -> _Pairs:
    """The values of both sides at each logged update, once for each time that it is logged."""
    if isinstance(left, Schedule):
        if isinstance(right, Schedule):
            raise TypeError("two schedules have no logged updates")
        pairs = _pairs(right, left)
        return replace(pairs, first=pairs.second, second=pairs.first)
    steps, series, _ = left[0].in_order(left[1])
    if isinstance(right, Schedule):
        values = np.asarray(right(steps), dtype=np.float64)
        return _Pairs(steps, series.numbers, values, series.apart(values))
    right_steps, right_series, _ = right[0].in_order(right[1])
    # The last of several values of an update counts.
    places = np.searchsorted(right_steps, steps, side="right") - 1
    is_common = (places >= 0) & (right_steps[places] == steps)
    places = places[is_common]
    first, second = series.numbers[is_common], right_series.numbers[places]
    slack = series.precisions[is_common] + right_series.precisions[places]
    # Both are decimals whose floats are rounded.
    slack += 2 * np.spacing(np.maximum(np.abs(first), np.abs(second)))
    return _Pairs(steps[is_common], first, second, np.abs(first - second) > slack)


def _reason(left: ScheduleOrLog, right: ScheduleOrLog) -> str:
    """The reason of a difference: another offset of the log, or updates that were skipped."""
    for shift in (1, -1, 2, -2):
        pairs = _pairs(_shift_curve(left, shift), _shift_curve(right, shift))
        if len(pairs.steps) and not pairs.is_apart.any():
            log = next(side for side in (left, right) if not isinstance(side, Schedule))[0]
            return f"the log agrees with an offset of {log.offset + shift}"
    if isinstance(left, Schedule):
        left, right = right, left
    if isinstance(left, Schedule) or not isinstance(right, Schedule):
        return ""
    steps, series, _ = left[0].in_order(left[1])
    updates = steps.astype(np.float64)
    errors = series.slack(np.asarray(right(steps), dtype=np.float64))
    lags = lags_of(right, updates, series.numbers, errors)
    return "" if lags is None else describe_lags(updates, lags)


def _shift_curve(curve: ScheduleOrLog, shift: int) -> ScheduleOrLog:
    if isinstance(curve, Schedule):
        return curve
    log, key = curve
    return log.at_offset(log.offset + shift), key


def curve_values(
    a: Source, b: Source, curve: CurveDifference
) -> tuple[StepArray, FloatArray, FloatArray]:
    """Returns the updates and the values of both sides of a curve, for a plot.

    At most 2000 updates of a pair of schedules, and all common ones of a log.
    """
    name = curve.key, curve.group
    left, right = _curves(a, b)[name], _curves(b, a)[name]
    if isinstance(left, Schedule) and isinstance(right, Schedule):
        steps = np.unique(np.linspace(0, max(curve.until - 1, 1), 2000).astype(np.int64))
        return steps, np.asarray(left(steps), float), np.asarray(right(steps), float)
    pairs = _pairs(left, right)
    return pairs.steps, pairs.first, pairs.second
