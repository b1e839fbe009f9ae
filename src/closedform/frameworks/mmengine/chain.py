"""A chain of schedulers that each change the present value: the value at each update.

Every scheduler of MMEngine multiplies the present value, moves it toward a center, or replaces it,
on the clock of its own. Where one of them acts alone, or all that act multiply, the value has a
closed form; where others act together, the recursion is computed, in floats like theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import sympy as sp

from closedform.errors import DefinitionError
from closedform.language import Schedule, exact_number, floor_div, t
from closedform.recipes import kit

FactorFunction = Callable[[sp.Expr], sp.Expr]
"""A function of the number of steps that a scheduler has made before this one, from 0."""

MAX_TABLE = 100_000
"""The most updates that are computed one by one."""
MAX_EXACT_DIGITS = 200
"""A constant with more digits is rounded to ``ROUNDED_DIGITS``."""
ROUNDED_DIGITS = 30


@dataclass(frozen=True, slots=True)
class Phase:
    """The effect of a scheduler from one of its steps on, relative to the value v before that step.

    Step j gives ``center + (v - center)*ratio(j) + drive(j)``.

    Attributes:
        begin: Its first step.
        ratio: The factor of the distance to the center; None where v is replaced by ``drive``.
        center: The center; 0 if the value is multiplied.
        drive: What is added; None for nothing.
    """

    begin: int
    ratio: FactorFunction | None
    center: sp.Expr = sp.S.Zero
    drive: FactorFunction | None = None

    @property
    def multiplies(self) -> bool:
        """Whether the value is multiplied."""
        return self.ratio is not None and self.center == 0 and self.drive is None


@dataclass(frozen=True, slots=True)
class Action:
    """A scheduler on its own clock.

    Attributes:
        period: The updates between two of its steps: 1, or those of an epoch.
        first: The count of its clock at its step 0.
        end: The count from which on it does nothing; None for no end.
        phases: Its effects, by increasing step.
        failure: The step at which the framework raises an exception, and which one.
        by_epoch: Whether it acts after those that count updates.
    """

    period: int
    first: int
    end: int | None
    phases: tuple[Phase, ...]
    failure: tuple[int, str] | None = None
    by_epoch: bool = False

    def update(self, step: int) -> int:
        """Returns the update that first uses the value after a step."""
        return (self.first + step) * self.period

    def marks(self) -> set[int]:
        """Returns the updates at which it begins to do something else."""
        begins = {self.update(phase.begin) for phase in self.phases}
        if self.end is None:
            return begins
        stop = self.end * self.period
        return {mark for mark in begins if mark < stop} | {stop}

    def active(self, update: int) -> Phase | None:
        """Returns what it does from an update on, up to the next mark; None for nothing."""
        if self.end is not None and update >= self.end * self.period:
            return None
        begun = [phase for phase in self.phases if self.update(phase.begin) <= update]
        return begun[-1] if begun else None

    def steps(self, update: sp.Expr) -> sp.Expr:
        """Returns the number of its step that an update uses."""
        count = update if self.period == 1 else floor_div(update, self.period)
        return count - self.first


@dataclass(frozen=True, slots=True)
class _Active:
    """A phase in a segment of updates, relative to the value of the update before ``begin``."""

    action: Action
    phase: Phase
    begin: int

    def change(self, update: sp.Expr) -> tuple[sp.Expr, sp.Expr]:
        """Returns the factor of the distance to the center, and what is added."""
        phase, step = self.phase, self.action.steps(update)
        drive = sp.S.Zero if phase.drive is None else phase.drive(step)
        if phase.ratio is None:
            return sp.S.Zero, drive
        ratio = phase.ratio(step)
        if self.action.update(phase.begin) >= self.begin:
            return ratio, drive
        before = self.action.steps(sp.Integer(self.begin - 1))
        base = phase.ratio(before)
        if base == 0:
            return sp.S.Zero, drive
        if phase.drive is not None:
            drive -= ratio / base * phase.drive(before)
        return ratio / base, drive


def chained(name: str, base: sp.Expr, actions: Sequence[Action]) -> Schedule:
    """Returns the value of a chain of schedulers at each update.

    Those that count updates act before those that count epochs, each in the order of the list; at
    update 0 all act in that order.

    Args:
        name: The name of the schedule.
        base: The value before any of them acts.
        actions: The schedulers, in the order of the config.

    Raises:
        DefinitionError: Update 0 has no value, or schedulers that do not only multiply act together
            for more than ``MAX_TABLE`` updates.
    """
    failures = [(a.update(a.failure[0]), a.failure[1]) for a in actions if a.failure is not None]
    end, reason = min(failures, default=(None, ""))
    stages: list[kit.Stage] = []
    value = base
    for updates, active in _spans(name, actions, end):
        if updates is None or _has_closed_form(active):
            curve = _closed_form(value, active)
            stages.append((curve(t), None if updates is None else updates.stop))
            if updates is not None:
                value = _rounded(curve(sp.Integer(updates[-1])))
            continue
        values = _recursion(value, actions, active, updates)
        stages += zip(values, (update + 1 for update in updates), strict=True)
        value = values[-1]
    if end is not None:
        stages.append((kit.undefined(reason), None))
    return kit.by_intervals(name, *stages)


def _spans(
    name: str, actions: Sequence[Action], end: int | None
) -> list[tuple[range | None, list[_Active]]]:
    """The ranges of updates in which the same schedulers act, with these schedulers.

    The range from the last mark on is None.
    """
    spans: list[tuple[range | None, list[_Active]]] = []
    for begin, mark in pairwise((*_marks(actions), None)):
        if begin is None or (end is not None and begin >= end):
            break
        active = _active(actions, begin)
        stop = end if end is not None and (mark is None or mark > end) else mark
        updates = None if stop is None else range(begin, stop)
        if not _has_closed_form(active) and (updates is None or len(updates) > MAX_TABLE):
            raise DefinitionError(
                f"schedulers act together for more than {MAX_TABLE} updates, and not all multiply",
                where=name,
                hint="give them ends, or let one begin where the other ends",
            )
        spans.append((updates, active))
    return spans


def _active(actions: Sequence[Action], begin: int) -> list[_Active]:
    """The schedulers that act from an update on, in the order in which they act."""
    ordered = sorted(actions, key=lambda action: action.by_epoch)
    found = ((action, action.active(begin)) for action in ordered)
    return [
        _Active(action, phase, begin)
        for action, phase in found
        # A value that is replaced within an epoch stays until its end.
        if phase is not None and (phase.ratio is not None or begin % action.period == 0)
    ]


def _marks(actions: Sequence[Action]) -> list[int]:
    """The updates from which on something else is done, or done again."""
    marks = {0}.union(*(action.marks() for action in actions))
    again = {
        mark + -mark % action.period
        for mark in marks
        for action in actions
        if (phase := action.active(mark)) is not None and phase.ratio is None
    }
    return sorted(marks | again)


def _has_closed_form(active: Sequence[_Active]) -> bool:
    return len(active) < 2 or all(one.phase.multiplies for one in active)


def _closed_form(value: sp.Expr, active: Sequence[_Active]) -> FactorFunction:
    if len(active) == 1 and not active[0].phase.multiplies:
        (one,) = active

        def move(update: sp.Expr) -> sp.Expr:
            ratio, drive = one.change(update)
            return one.phase.center + (value - one.phase.center) * ratio + drive

        return move
    return lambda update: value * sp.Mul(*(one.change(update)[0] for one in active))


def _recursion(
    value: sp.Expr, actions: Sequence[Action], active: Sequence[_Active], updates: range
) -> list[sp.Expr]:
    """The values of the updates in which several schedulers act that do not only multiply."""
    changes = [_changes(one, updates) for one in active]
    as_listed = sorted(range(len(active)), key=lambda i: _place(actions, active[i].action))
    current, values = float(value), []
    for row, update in enumerate(updates):
        for index in as_listed if update == 0 else range(len(active)):
            one, (ratio, drive) = active[index], changes[index][row]
            if update % one.action.period == 0:
                center = float(one.phase.center)
                current = center + (current - center) * ratio + drive
        values.append(exact_number(current))
    return values


def _place(actions: Sequence[Action], action: Action) -> int:
    return next(index for index, listed in enumerate(actions) if listed is action)


def _changes(one: _Active, updates: range) -> list[tuple[float, float]]:
    """The factor and the addend of each update, relative to the update before."""
    phase, drives = one.phase, _values(one, one.phase.drive, updates)
    if phase.ratio is None:
        return [(0.0, drive) for drive in drives]
    first, period = one.action.update(phase.begin), one.action.period
    before = [max(first, update - period) for update in updates]
    ratios, old_ratios = _values(one, phase.ratio, updates), _values(one, phase.ratio, before)
    old_drives = _values(one, phase.drive, before)
    made = []
    for row, update in enumerate(updates):
        if update - period < first:
            made.append((ratios[row], drives[row]))
        elif old_ratios[row] == 0:
            # At the center: only an addend leads away from it.
            made.append((0.0 if phase.drive is None else 1.0, drives[row]))
        else:
            change = ratios[row] / old_ratios[row]
            made.append((change, drives[row] - change * old_drives[row]))
    return made


def _values(one: _Active, curve: FactorFunction | None, updates: Sequence[int]) -> list[float]:
    """The values of a curve at updates; 0 where there is none."""
    if curve is None:
        return [0.0] * len(updates)
    # A curve may have no value outside of its updates.
    inside = sp.Max(min(updates), sp.Min(max(updates), t))
    expr = curve(one.action.steps(inside))
    if expr.is_number:
        return [float(expr)] * len(updates)
    curve_of_updates: Any = Schedule(expr, name="ratio")
    return [float(value) for value in curve_of_updates(list(updates))]


def _rounded(value: sp.Expr) -> sp.Expr:
    """A constant that stays short: the numbers of a long chain of products do not."""
    is_short = value.is_Rational and value.q < 10**MAX_EXACT_DIGITS
    if is_short or (not value.is_Rational and value.count_ops() < MAX_EXACT_DIGITS):
        return value
    return sp.Rational(str(value.evalf(ROUNDED_DIGITS)))
