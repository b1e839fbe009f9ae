"""A chain of schedulers that each change the present value: the value at each update.

Every scheduler of MMEngine multiplies the present value, moves it toward a center, or replaces it,
on the clock of its own. Where one of them acts alone, or all that act multiply, the value has a
closed form; where others act together, the recursion is computed, in floats like theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import sympy as sp
from numpy.typing import NDArray

from closedform.errors import DefinitionError
from closedform.language import Schedule, exact_number, floor_div, t
from closedform.recipes.intervals import UndefinedError, by_intervals

Curve = Callable[[sp.Expr], sp.Expr]
"""A function of the number of steps that a scheduler has made before this one, from 0."""

MAX_TABLE = 100_000
"""The most updates that are computed one by one."""
MAX_EXACT_DIGITS = 200
"""A constant with more digits is rounded to ``ROUNDED_DIGITS``."""
ROUNDED_DIGITS = 30


@dataclass(frozen=True, slots=True)
class Piece:
    """What a scheduler does from one of its steps on, relative to the value v before that step.

    Step j gives ``center + (v - center)*ratio(j) + drive(j)``.

    Attributes:
        begin: Its first step.
        ratio: The factor of the distance to the center; None where v is replaced by ``drive``.
        center: The center; 0 if the value is multiplied.
        drive: What is added; None for nothing.
    """

    begin: int
    ratio: Curve | None
    center: sp.Expr = sp.S.Zero
    drive: Curve | None = None

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
        pieces: What it does, by increasing step.
        failure: The step at which the framework raises an exception, and which one.
        by_epoch: Whether it acts after those that count updates.
    """

    period: int
    first: int
    end: int | None
    pieces: tuple[Piece, ...]
    failure: tuple[int, str] | None = None
    by_epoch: bool = False

    def update(self, step: int) -> int:
        """Returns the update that first uses the value after a step."""
        return (self.first + step) * self.period

    def marks(self) -> set[int]:
        """Returns the updates at which it begins to do something else."""
        begins = {self.update(piece.begin) for piece in self.pieces}
        if self.end is None:
            return begins
        stop = self.end * self.period
        return {mark for mark in begins if mark < stop} | {stop}

    def active(self, update: int) -> Piece | None:
        """Returns what it does from an update on, up to the next mark; None for nothing."""
        if self.end is not None and update >= self.end * self.period:
            return None
        begun = [piece for piece in self.pieces if self.update(piece.begin) <= update]
        return begun[-1] if begun else None

    def steps(self, update: sp.Expr) -> sp.Expr:
        """Returns the number of its step that an update uses."""
        count = update if self.period == 1 else floor_div(update, self.period)
        return count - self.first


@dataclass(frozen=True, slots=True)
class _Active:
    """A piece in a segment of updates, relative to the value of the update before ``begin``."""

    action: Action
    piece: Piece
    begin: int

    def change(self, update: sp.Expr) -> tuple[sp.Expr, sp.Expr]:
        """Returns the factor of the distance to the center, and what is added."""
        piece, step = self.piece, self.action.steps(update)
        drive = sp.S.Zero if piece.drive is None else piece.drive(step)
        if piece.ratio is None:
            return sp.S.Zero, drive
        ratio = piece.ratio(step)
        if self.action.update(piece.begin) >= self.begin:
            return ratio, drive
        before = self.action.steps(sp.Integer(self.begin - 1))
        base = piece.ratio(before)
        if base == 0:
            return sp.S.Zero, drive
        if piece.drive is not None:
            drive -= ratio / base * piece.drive(before)
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
    marks = _marks(actions)
    failures = [(a.update(a.failure[0]), a.failure[1]) for a in actions if a.failure is not None]
    end, reason = min(failures, default=(None, ""))
    stages: list[tuple[Callable[[], sp.Expr], int | None]] = []
    value = base
    for begin, stop in pairwise((*marks, None)):
        if begin is None or (end is not None and begin >= end):
            break
        active = _active(actions, begin)
        if end is not None and (stop is None or stop > end):
            stop = end
        if _has_closed_form(active):
            curve = _closed_form(value, active)
            stages.append((_of_clock(curve), stop))
            if stop is not None:
                value = _rounded(curve(sp.Integer(stop - 1)))
            continue
        values = _recursion(name, value, actions, active, begin, stop)
        stages += [(_constant(v), begin + index + 1) for index, v in enumerate(values)]
        value = values[-1]
    if end is not None:
        stages.append((_raising(reason), None))
    return by_intervals(name, *stages)


def _active(actions: Sequence[Action], begin: int) -> list[_Active]:
    """The schedulers that act from an update on, in the order in which they act."""
    ordered = sorted(actions, key=lambda action: action.by_epoch)
    found = ((action, action.active(begin)) for action in ordered)
    return [
        _Active(action, piece, begin)
        for action, piece in found
        # A value that is replaced within an epoch stays until its end.
        if piece is not None and (piece.ratio is not None or begin % action.period == 0)
    ]


def _marks(actions: Sequence[Action]) -> list[int]:
    """The updates from which on something else is done, or done again."""
    marks = {0}.union(*(action.marks() for action in actions))
    again = {
        mark + -mark % action.period
        for mark in marks
        for action in actions
        if (piece := action.active(mark)) is not None and piece.ratio is None
    }
    return sorted(marks | again)


def _has_closed_form(active: Sequence[_Active]) -> bool:
    return len(active) < 2 or all(one.piece.multiplies for one in active)


def _closed_form(value: sp.Expr, active: Sequence[_Active]) -> Curve:
    if len(active) == 1 and not active[0].piece.multiplies:
        (one,) = active

        def move(update: sp.Expr) -> sp.Expr:
            ratio, drive = one.change(update)
            return one.piece.center + (value - one.piece.center) * ratio + drive

        return move
    return lambda update: value * sp.Mul(*(one.change(update)[0] for one in active))


def _recursion(
    name: str,
    value: sp.Expr,
    actions: Sequence[Action],
    active: Sequence[_Active],
    begin: int,
    stop: int | None,
) -> list[sp.Expr]:
    """The values of the updates in which several schedulers act that do not only multiply."""
    if stop is None or stop - begin > MAX_TABLE:
        raise DefinitionError(
            f"schedulers act together for more than {MAX_TABLE} updates, and not all multiply",
            where=name,
            hint="give them ends, or let one begin where the other ends",
        )
    updates = np.arange(begin, stop)
    changes = [_changes(one, updates) for one in active]
    as_listed = sorted(range(len(active)), key=lambda i: _place(actions, active[i].action))
    current, values = float(value), []
    for row, update in enumerate(updates):
        for index in as_listed if update == 0 else range(len(active)):
            one, (ratios, drives) = active[index], changes[index]
            if update % one.action.period == 0:
                center = float(one.piece.center)
                current = center + (current - center) * ratios[row] + drives[row]
        values.append(exact_number(current))
    return values


def _place(actions: Sequence[Action], action: Action) -> int:
    return next(index for index, listed in enumerate(actions) if listed is action)


def _changes(
    one: _Active, updates: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The factor and the addend of each update, relative to the update before."""
    piece, period = one.piece, one.action.period
    ratios = np.zeros(len(updates)) if piece.ratio is None else _values(one, piece.ratio, updates)
    drives = np.zeros(len(updates)) if piece.drive is None else _values(one, piece.drive, updates)
    if piece.ratio is None:
        return ratios, drives
    before = np.maximum(updates - period, one.action.update(piece.begin))
    starts = updates - period < one.action.update(piece.begin)
    old = np.where(starts, 1.0, _values(one, piece.ratio, before))
    old_drives = np.zeros(len(updates))
    if piece.drive is not None:
        old_drives = np.where(starts, 0.0, _values(one, piece.drive, before))
    at_center = old == 0
    kept = 1.0 if piece.drive is not None else 0.0
    change = np.where(at_center, kept, ratios / np.where(at_center, 1.0, old))
    return change, np.where(at_center, drives, drives - change * old_drives)


def _values(one: _Active, curve: Curve, updates: NDArray[np.int64]) -> NDArray[np.float64]:
    # A curve may have no value outside of its updates.
    inside = sp.Max(int(updates.min()), sp.Min(int(updates.max()), t))
    found = Schedule(curve(one.action.steps(inside)), name="ratio")(updates)
    return np.broadcast_to(np.asarray(found, dtype=np.float64), updates.shape)


def _rounded(value: sp.Expr) -> sp.Expr:
    """A constant that stays short: the numbers of a long chain of products do not."""
    is_short = value.is_Rational and value.q < 10**MAX_EXACT_DIGITS
    if is_short or (not value.is_Rational and value.count_ops() < MAX_EXACT_DIGITS):
        return value
    return sp.Rational(str(value.evalf(ROUNDED_DIGITS)))


def _of_clock(curve: Curve) -> Callable[[], sp.Expr]:
    return lambda: curve(t)


def _constant(value: sp.Expr) -> Callable[[], sp.Expr]:
    return lambda: value


def _raising(reason: str) -> Callable[[], sp.Expr]:
    def refuse() -> sp.Expr:
        raise UndefinedError(reason)

    return refuse
