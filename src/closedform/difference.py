"""Differences of two recipes: proved equal, or where and how far their schedules are apart.

The prover is imported where curves are close or equal: it takes as long as all the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from closedform.effort import Effort
from closedform.errors import ArgumentError, DomainError, UnknownNameError, shown
from closedform.language import Schedule, t
from closedform.language.exact import to_float
from closedform.recipes.logs import Log, Logged
from closedform.recipes.recipe import ParamGroup, Recipe, Role
from closedform.verify.terms.verdict import Status

ALL_STEPS = 1_000_000
"""Runs of at most so many updates are compared at each, longer ones at a tenth of that number."""

WITHOUT_HORIZON = 10_000
"""Updates that are compared where neither side has a horizon."""

_ROUNDING = 1e-13
"""Two float64 values of one number differ by less than this part of the largest value."""

Source = Schedule | Recipe | Log
Values = NDArray[np.float64]
Steps = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class CurveDifference:
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

    def __str__(self) -> str:
        name = f"{self.key} of {self.group}" if self.group else self.key
        end = f" ({self.reason})" if self.reason else ""
        if self.first_step is None:
            equal = self.verdict is Status.PROVED
            found = "PROVED equal" if equal else f"no difference in {self.until:,} updates"
            return f"{name}: {found}{end}"
        values = "" if self.first is None else f", {self.first[0]!r} and {self.first[1]!r}"
        gap = "" if self.at is None else f"; largest gap {self.max_gap:.6g} at update {self.at:,}"
        return f"{name}: differs from update {self.first_step:,}{values}{gap}{end}"


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference of two recipes, schedules or logs.

    Attributes:
        curves: The difference of each key and param group that both have.
        only_in_a: What the first one alone has, as "key" or "key of group".
        only_in_b: What the second one alone has.
    """

    curves: tuple[CurveDifference, ...]
    only_in_a: tuple[str, ...] = ()
    only_in_b: tuple[str, ...] = ()

    def __str__(self) -> str:
        only = (("first", self.only_in_a), ("second", self.only_in_b))
        remarks = [f"only the {side} one has {', '.join(names)}" for side, names in only if names]
        return "\n".join([*map(str, self.curves), *remarks])

    @property
    def verdict(self) -> Status:
        """PROVED if all curves are, REFUTED if one is, else UNKNOWN."""
        found = {curve.verdict for curve in self.curves}
        if Status.REFUTED in found:
            return Status.REFUTED
        return Status.PROVED if found == {Status.PROVED} else Status.UNKNOWN

    @property
    def first_step(self) -> int | None:
        """The first update at which a curve differs."""
        return min(
            (one.first_step for one in self.curves if one.first_step is not None), default=None
        )

    @property
    def _largest(self) -> CurveDifference:
        return max(self.curves, key=lambda one: (one.key == "lr", one.max_gap))

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
        b: Another one.
        until: The number of updates to compare; the longer horizon if not given. Without one the
            first 10,000 are compared, and PROVED is for every update: what is proved of those
            alone is UNKNOWN, with the range in the reason.

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
                f"{name} must be a Schedule, a Recipe or a log, got {shown(side)}",
                where="diff",
                hint="load_recipe reads a config, from_onnx an ONNX file, `closedform diff` both",
            )
    if until is not None and (isinstance(until, bool) or not isinstance(until, int) or until < 1):
        raise ArgumentError(f"until must be an integer of at least 1, got {until!r}")
    left, right = _curves(a, b), _curves(b, a)
    names = [name for name in left if name in right]
    if not names:
        raise UnknownNameError(
            f"the two have no key in common: {_listed(left)} and {_listed(right)}"
        )
    horizon = until or _horizon(a, b)
    run = _Run(horizon or WITHOUT_HORIZON, is_given=until is not None, has_end=horizon is not None)
    done: dict[tuple[int, int], CurveDifference] = {}
    curves = []
    for key, group in names:
        one, other = left[key, group], right[key, group]
        same = (id(one), id(other))
        if same not in done:
            done[same] = _compared(one, other, run)
        curves.append(replace(done[same], key=key, group=group))
    return Difference(
        tuple(curves),
        tuple(_said(name) for name in left if name not in right),
        tuple(_said(name) for name in right if name not in left),
    )


# --- the curves of a side ------------------------------------------------------------------------

Name = tuple[str, str]
Curve = Schedule | tuple[Log, str]


def _curves(source: Source, compared: Source) -> dict[Name, Curve]:
    """The curves by key and name of the param group, that of the default group being empty.

    A role that only the recipe has with which it is compared is that of parameters which the
    default group covers here.
    """
    if isinstance(source, Schedule):
        return {("lr", ""): source}
    if isinstance(source, Log):
        return {(key, ""): (source, key) for key in source.values}
    groups = _groups(source)
    if isinstance(compared, Recipe):
        for name, group in _groups(compared).items():
            covering = _covering(group, groups)
            if name not in groups and covering is not None:
                groups[name] = covering
    return {
        (key, name): schedule
        for name, group in groups.items()
        for key, schedule in group.schedules.items()
    }


def _groups(recipe: Recipe) -> dict[str, ParamGroup]:
    """The param groups by their role, or by their name where several can have the role."""
    first, *rest = recipe.param_groups
    by_name = (Role.NAMED, Role.FROZEN, Role.NO_DECAY)
    return {"": first, **{one.name if one.role in by_name else one.role.value: one for one in rest}}


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


def _said(name: Name) -> str:
    key, group = name
    return f"{key} of {group}" if group else key


def _listed(curves: Mapping[Name, Curve]) -> str:
    return ", ".join(_said(name) for name in curves)


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


def _compared(one: Curve, other: Curve, run: _Run) -> CurveDifference:
    if not isinstance(one, Schedule) or not isinstance(other, Schedule):
        return _with_log(one, other)
    ends = {side.last_step for side in (one, other)}
    partial = [side for side in (one, other) if side.last_step is not None]
    shortest = min((known + 1 for known in ends if known is not None), default=None)
    last = run.end if shortest is None else min(run.end, shortest)
    empty = CurveDifference("", "", Status.UNKNOWN, last)
    have_one_end = len(ends) == 1
    if one.bound == other.bound and have_one_end:
        return replace(empty, verdict=Status.PROVED, reason="the expressions are identical")
    steps = _sampled(one, other, last)
    found = _scanned(one, other, steps, empty) if len(steps) else empty
    if found.first_step is not None:
        return found
    if shortest is not None and not have_one_end and (shortest < run.end or not run.has_end):
        first = min(partial, key=lambda side: side.last_step or 0)
        reason = first.ending or "its domain ends there"
        return replace(found, verdict=Status.REFUTED, first_step=shortest, reason=reason)
    return _proved(
        one, other, found, replace(run, is_given=run.is_given or (bool(partial) and run.has_end))
    )


def _sampled(one: Schedule, other: Schedule, end: int) -> Steps:
    """All updates, or the joints of both and evenly spaced ones."""
    if end <= ALL_STEPS:
        return np.arange(end)
    from closedform.verify.claims.continuity import cells_of

    marks = [cell.first for side in (one, other) for cell in cells_of(side)]
    near = [mark + shift for mark in marks for shift in (-1, 0, 1) if 0 <= mark + shift < end]
    even = np.linspace(0, end - 1, ALL_STEPS // 10).astype(np.int64)
    return np.unique(np.concatenate([even, np.array(near, dtype=np.int64)]))


def _scanned(
    one: Schedule, other: Schedule, steps: Steps, empty: CurveDifference
) -> CurveDifference:
    """The differences of the float64 values, the first one confirmed exactly."""
    ours, theirs = (np.asarray(side(steps), dtype=np.float64) for side in (one, other))
    apart = np.abs(ours - theirs)
    scale = max(float(np.max(np.abs(ours))), float(np.max(np.abs(theirs))))
    is_sampled = len(steps) < empty.until
    index = _first(one, other, steps, apart, _ROUNDING * scale)
    found = replace(empty, is_sampled=is_sampled)
    if index is None:
        return found
    step = int(steps[index])
    if is_sampled and index > 0:
        step = _bisected(one, other, int(steps[index - 1]), step, _ROUNDING * scale)
    widest = int(np.flatnonzero(apart >= np.max(apart) - _ROUNDING * scale)[0])
    area = float(np.trapezoid(apart, steps)) if is_sampled else float(np.sum(apart))
    return replace(
        found,
        verdict=Status.REFUTED,
        first_step=step,
        first=(to_float(one.exact(step)), to_float(other.exact(step))),
        max_gap=float(apart[widest]),
        at=int(steps[widest]),
        area=area,
    )


_CANDIDATES = 32
"""Steps whose float64 values are barely apart and that are compared exactly."""


def _first(
    one: Schedule, other: Schedule, steps: Steps, apart: Values, rounding: float
) -> int | None:
    """The position of the first update that differs."""
    clear = np.flatnonzero(apart > 100 * rounding)
    close = np.flatnonzero(apart > rounding)
    for position in close[:_CANDIDATES]:
        if clear.size and position >= clear[0]:
            break
        if _differ(one, other, int(steps[position])):
            return int(position)
    return int(clear[0]) if clear.size else None


def _differ(one: Schedule, other: Schedule, step: int) -> bool:
    """Whether the exact values differ."""
    from flint import arb

    from closedform.verify.claims.reading import CLOCK, read_schedule
    from closedform.verify.terms.build import rational, substitute
    from closedform.verify.terms.evaluate import Undefined, value

    found = []
    for side in (one, other):
        at = value(substitute(read_schedule(side).value, {CLOCK: rational(step)}), {})
        if isinstance(at, Undefined):
            return True
        found.append(arb(at))
    return not (found[0] - found[1]).contains(0)


def _bisected(one: Schedule, other: Schedule, same: int, apart: int, rounding: float) -> int:
    """An update that differs after one that agrees, between two such."""
    while apart - same > 1:
        middle = (same + apart) // 2
        if abs(float(one(middle)) - float(other(middle))) > 100 * rounding:
            apart = middle
        else:
            same = middle
    return apart


def _proved(one: Schedule, other: Schedule, found: CurveDifference, run: _Run) -> CurveDifference:
    """The verdict of the prover: for all updates, or else for those of the run."""
    from closedform.verify.claims.values import equal_to
    from closedform.verify.terms.limits import LIMITS

    last = f"{found.until - 1:,}"
    open_reason = ""
    if not run.is_given:
        verdict = equal_to(one, other).judge(Effort.of(LIMITS.audit_work))
        if verdict.proved:
            return replace(found, verdict=Status.PROVED, reason="equal for every update")
        if verdict.refuted and verdict.counterexample is not None:
            step = int(next(iter(verdict.counterexample.values()), 0))
            if step < found.until or not run.has_end:
                return _difference_at(one, other, step, found)
        open_reason = verdict.reason
    verdict = equal_to(one, other, where=t < found.until).judge(Effort.of(LIMITS.audit_work))
    if verdict.proved:
        equal = f"equal for the updates 0 to {last}"
        if run.has_end:
            return replace(found, verdict=Status.PROVED, reason=equal)
        return replace(found, reason=f"{equal}, open beyond: {open_reason}")
    if verdict.refuted and verdict.counterexample is not None:
        step = int(next(iter(verdict.counterexample.values()), 0))
        return _difference_at(one, other, step, found)
    return replace(found, reason=f"no difference found, none excluded: {verdict.reason}")


def _difference_at(
    one: Schedule, other: Schedule, step: int, found: CurveDifference
) -> CurveDifference:
    """The difference at an update that the prover names."""
    refuted = replace(found, verdict=Status.REFUTED, first_step=step)
    if step >= found.until:
        refuted = replace(refuted, is_sampled=True)
    try:
        ours, theirs = one.exact(step), other.exact(step)
    except DomainError as error:
        return replace(refuted, reason=error.what)
    gap = abs(to_float(ours - theirs))
    reason = "they differ by less than a rounding" if step < found.until else "found by the prover"
    return replace(
        refuted,
        first=(to_float(ours), to_float(theirs)),
        max_gap=gap,
        at=step,
        area=gap,
        reason=reason,
    )


# --- logs ----------------------------------------------------------------------------------------


def _with_log(one: Curve, other: Curve) -> CurveDifference:
    """A log beside a schedule or another log: within the printed digits at each logged update."""
    pairs = list(_pairs(one, other))
    if not pairs:
        return CurveDifference("", "", Status.UNKNOWN, 0, reason="no logged update in common")
    gaps = [(abs(a.value - b.value), a.precision + b.precision, step) for step, a, b in pairs]
    apart = [index for index, (gap, precision, _) in enumerate(gaps) if gap > precision]
    until = max(step for step, _, _ in pairs) + 1
    if not apart:
        reason = f"equal within the printed digits at {len(pairs)} logged updates"
        return CurveDifference("", "", Status.UNKNOWN, until, reason=reason, is_sampled=True)
    widest = max(apart, key=lambda index: gaps[index][0])
    step, a, b = pairs[apart[0]]
    return CurveDifference(
        "",
        "",
        Status.REFUTED,
        until,
        first_step=step,
        first=(float(a.value), float(b.value)),
        max_gap=float(gaps[widest][0]),
        at=gaps[widest][2],
        area=float(sum(gaps[index][0] for index in apart)),
        reason=_shift(one, other),
        is_sampled=True,
    )


def _pairs(one: Curve, other: Curve) -> Iterator[tuple[int, Logged, Logged]]:
    logs = [_by_step(side) if not isinstance(side, Schedule) else None for side in (one, other)]
    steps = sorted(set.intersection(*(set(log) for log in logs if log is not None)))
    for step in steps:
        yield (
            step,
            *(
                _exactly(side, step) if isinstance(side, Schedule) else (log or {})[step]
                for side, log in zip((one, other), logs, strict=True)
            ),
        )  # type: ignore[misc]


def _by_step(curve: Any) -> dict[int, Logged]:
    log, key = curve
    return {
        step: found
        for step, found in zip(log.steps, log.values[key], strict=True)
        if found is not None
    }


def _exactly(schedule: Schedule, step: int) -> Logged:
    number = Fraction(to_float(schedule.exact(step)))
    return Logged(number, abs(number) / 2**52)


def _shift(one: Curve, other: Curve) -> str:
    """A hint if the log agrees when it is read one or two updates earlier or later."""
    for shift in (1, -1, 2, -2):
        moved = [_moved(side, shift) for side in (one, other)]
        pairs = list(_pairs(*moved))
        if pairs and all(abs(a.value - b.value) <= a.precision + b.precision for _, a, b in pairs):
            return f"the log agrees with an offset of {shift}"
    return ""


def _moved(curve: Curve, shift: int) -> Curve:
    if isinstance(curve, Schedule):
        return curve
    log, key = curve
    chosen = [index for index, step in enumerate(log.steps) if step >= shift]
    steps = tuple(log.steps[index] - shift for index in chosen)
    values = {name: tuple(one[index] for index in chosen) for name, one in log.values.items()}
    return Log(steps, values, log.source), key


def curve_values(a: Source, b: Source, curve: CurveDifference) -> tuple[Steps, Values, Values]:
    """Returns the updates and the values of both sides of a curve, for a plot.

    At most 2000 updates of a pair of schedules, and all common ones of a log.
    """
    name = curve.key, curve.group
    one, other = _curves(a, b)[name], _curves(b, a)[name]
    if isinstance(one, Schedule) and isinstance(other, Schedule):
        steps = np.unique(np.linspace(0, max(curve.until - 1, 1), 2000).astype(np.int64))
        return steps, np.asarray(one(steps), float), np.asarray(other(steps), float)
    pairs = list(_pairs(one, other))
    return (
        np.array([step for step, _, _ in pairs]),
        np.array([float(left.value) for _, left, _ in pairs]),
        np.array([float(right.value) for _, _, right in pairs]),
    )
