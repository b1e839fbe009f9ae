"""The profile of a schedule over a run: its branches, its first rise, its peak and its end.

The branches are the cells of the prover: between two of them a condition of the formula changes.
Each update of a branch is evaluated. Of a branch of more than ``_MOST_VALUES`` updates as many are,
and then those around the extreme values and the largest changes, so that the work does not grow
with the run. Values are float64; what rests on them is confirmed with exact ones.

The first rise is found by :func:`first_rise`, in the values of a schedule or in those of a log,
which have errors: of a linear warmup to update 10 with a cosine after it, the ``top`` is 10.
:func:`warmup_length` confirms it with exact values at a milestone of the formula.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from flint import arb, fmpq
from numpy.typing import NDArray

from closedform.errors import ClosedFormError, VerificationError
from closedform.ir.types import FloatArray
from closedform.language import Schedule
from closedform.magnitude import LAST_STEP
from closedform.verify.terms.evaluate import Undefined, value
from closedform.verify.terms.real_line import RealCell, cells_of, moving
from closedform.verify.terms.sympy_io import value_term
from closedform.verify.terms.tree import Op

# The values past the end are looked at up to this multiple of the run, on so many updates.
_BEYOND, _LOOKS = 4, 256

# Some 450 ulp: float64 values of equal formulas in different orders differ by a few ulp.
_ROUNDING = 1e-13
"""The part of the largest value by which a value of a formula may be off."""

_DIP = 0.5
"""The part of the greatest value so far by which a formula may fall within its first rise.

Within a warmup, Eden of icefall falls by 0.14 % at an epoch, a rate of ultralytics by 9 %, one of
SpeechBrain by 41 % after its first update; a restart falls further.
"""

_MOST_OF_A_RISE = 1_000_000
"""The most updates in which the end of the first rise is looked for."""

_MOST_VALUES = 1 << 17
"""The most updates of a branch that are evaluated before it is looked at more closely."""
_PARTS, _LARGEST_CHANGES = 65, 16
"""The values at which a search looks in a gap, and the number of gaps with the largest changes."""


@dataclass(frozen=True, slots=True)
class Branch:
    """The updates of a run on which one formula holds.

    Attributes:
        first: The first update.
        last: The last one, within the run.
        is_stepped: Whether a floor moves in the formula: it is held over an epoch, or repeats.
        begin: The value at the first update.
        end: The value at the last one.
        change: The largest change between two updates within it.
        lowest: The update of the least value.
        low: That value.
        highest: The update of the greatest value.
        high: That value.
        rise: The greatest value after the least one, less the least one.
    """

    first: int
    last: int
    is_stepped: bool
    begin: float
    end: float
    change: float
    lowest: int
    low: float
    highest: int
    high: float
    rise: float

    @property
    def is_constant(self) -> bool:
        """Whether all values are one."""
        return self.low == self.high


@dataclass(frozen=True, slots=True)
class Rise:
    """The values of a series before its first fall.

    Attributes:
        top: The position of the first one that is as great as any of them; 0 where none is greater
            than the first value.
        last: The position of the last one that is as great.
    """

    top: int
    last: int


def first_rise(values: FloatArray, errors: FloatArray, dip: float = 0.0) -> Rise:
    """Returns the rise that a series begins with.

    Args:
        values: The values; at least one.
        errors: How far the true values may be from them.
        dip: The part of the greatest value so far by which a value may be below it in a rise.

    Example:
        >>> first_rise(np.array([0.0, 0.5, 1.0, 1.0, 0.5, 2.0]), np.zeros(6))
        Rise(top=2, last=3)
    """
    highest = np.maximum.accumulate(values - errors)[:-1]
    # Not "<": NaN must count as a fall, and where it is the first value, as the top.
    falls = np.flatnonzero(~(values[1:] + errors[1:] >= highest - dip * np.abs(highest)))
    rising = values[: falls[0] + 1] if falls.size else values
    tops = np.flatnonzero(~(rising < np.max(rising) - errors[: rising.size]))
    return Rise(int(tops[0]), int(tops[-1]))


def rise_of_formula(values: FloatArray) -> Rise:
    """Returns the rise that the float64 values of a formula begin with."""
    errors = np.full(values.shape, _ROUNDING * np.nanmax(np.abs(values), initial=0.0))
    return first_rise(values, errors, _DIP)


@dataclass(frozen=True, slots=True)
class Turn:
    """An update after the run at which the fall of a schedule ends."""

    update: int
    value: float


@dataclass(frozen=True, slots=True)
class Profile:
    """The profile of a schedule over a run.

    Attributes:
        schedule: The schedule, in updates.
        updates: The number of updates of the run.
        branches: Its branches.
        leading_zeros: The updates with the value 0 that it begins with.
        trailing_zeros: Those that it ends with.
        falls: The number of updates whose value is below that of the update before.
    """

    schedule: Schedule
    updates: int
    branches: tuple[Branch, ...]
    leading_zeros: int
    trailing_zeros: int
    falls: int

    @classmethod
    def of(cls, schedule: Schedule, updates: int) -> Profile:
        """Returns the profile of a schedule without open hyperparameters."""
        branches = []
        first_effect, last_effect, falls = updates, -1, 0
        previous: float | None = None
        for first, last, is_stepped in _stretches(schedule, updates):
            branch, effects, fallen = _evaluate(schedule, first, last, is_stepped=is_stepped)
            branches.append(branch)
            falls += fallen + (previous is not None and branch.begin < previous)
            previous = branch.end
            if effects is not None:
                first_effect, last_effect = min(first_effect, effects[0]), effects[1]
        return cls(
            schedule,
            updates,
            tuple(branches),
            first_effect,
            updates - 1 - last_effect if last_effect >= 0 else 0,
            falls,
        )

    @property
    def peak(self) -> Branch:
        """The branch with the greatest value."""
        return max(self.branches, key=lambda branch: branch.high)

    @property
    def lowest(self) -> Branch:
        """The branch with the least value."""
        return min(self.branches, key=lambda branch: branch.low)

    @property
    def end(self) -> float:
        """The value of the last update."""
        return self.branches[-1].end

    def settled_at(self) -> int | None:
        """Returns the update at which a gradual decay ends; None where none ends within the run."""
        *earlier, tail = self.branches
        if not earlier or not tail.is_constant:
            return None
        # Constant stretches of one value in a row count as one tail.
        index = len(self.branches) - 1
        while index > 0 and self.branches[index - 1].is_constant:
            if self.branches[index - 1].end != self.end:
                return None
            index -= 1
        decay = self.branches[index - 1] if index > 0 else None
        if decay is None or decay.begin <= decay.end or decay.low < self.end - 1e-12:
            return None
        return self.branches[index].first

    def turn_after(self) -> Turn | None:
        """Returns where the fall after the run ends: at a constant, or at a rise.

        None if the value does not fall after the run, or falls without an end.
        """
        steps = self._later_steps()
        values = _values(self.schedule, steps)
        if values.size < 2 or not np.isfinite(values).all():
            return None
        rises = np.flatnonzero(np.diff(values) > 0)
        if rises.size:
            values, steps = values[: rises[0] + 1], steps[: rises[0] + 1]
            is_ended = True
        else:
            # Three equal values: an exponential that still falls has none in float64 before it
            # underflows.
            is_ended = bool((values[-3:] == values[-1]).all()) and values.size > 3
        if not is_ended or not values[-1] < values[0]:
            return None
        at = int(np.argmin(values))
        return Turn(int(steps[at]), float(values[at]))

    def falls_after(self) -> Turn | None:
        """Returns the first update after the run, of those looked at, with a lower value."""
        steps = self._later_steps()
        values = _values(self.schedule, steps)
        lower = np.flatnonzero(values < values[0] * (1 - 1e-9))
        return Turn(int(steps[lower[0]]), float(values[lower[0]])) if lower.size else None

    def _later_steps(self) -> NDArray[np.int64]:
        run = self.updates
        grid = {run - 1 + (_BEYOND - 1) * run * look // _LOOKS for look in range(_LOOKS + 1)}
        end = self.schedule.last_step
        marks: set[int] = set()
        for cell in _cells(self.schedule):
            marks.update((cell.first - 1, cell.first))
        later = {mark for mark in marks if run <= mark < _BEYOND**3 * run}
        beyond = {2 * max(later), 3 * max(later)} if later else set()
        most = LAST_STEP if end is None else min(end, LAST_STEP)
        steps = (step for step in grid | later | beyond if step <= most)
        return np.array(sorted(steps), dtype=np.int64)


def warmup_length(schedule: Schedule, horizon: int | None) -> int | None:
    """Returns the update at which the first rise ends; 0 if nothing rises before a value falls.

    Returns None where it does not end at a number that the formula has: a maximum between two of
    its milestones has no length in tokens.

    Args:
        schedule: A learning rate without open hyperparameters.
        horizon: The updates of the run.

    Example:
        >>> from closedform import schedules
        >>> warmup_length(schedules.trapezoidal(1, 0, 100, warmup=10, decay=30), 100)
        10
        >>> warmup_length(schedules.noam(512, 40), 100) is None
        True
    """
    end = schedule.last_step
    most = min(horizon or _MOST_OF_A_RISE, _MOST_OF_A_RISE if end is None else end)
    top = rise_of_formula(_values(schedule, np.arange(most + 1))).top
    if not top:
        return 0
    milestones = sorted({cell.first for cell in cells_of(schedule) if cell.first > 0})
    for first in milestones:
        # The last cell of a rise may end at its peak, or one update before it.
        for peak in (first, first - 1):
            if top <= peak and _rises_at(schedule, peak - 1) and not _rises_at(schedule, peak):
                return peak
    return None


def _rises_at(schedule: Schedule, step: int) -> bool:
    if step < 0:
        return False
    try:
        return bool(schedule.exact(step + 1) > schedule.exact(step))
    except ClosedFormError:  # after the last step of its domain
        return False


def _cells(schedule: Schedule) -> list[RealCell]:
    try:
        return cells_of(schedule)
    except VerificationError:  # a lookup or function that the prover does not read
        return []


def _stretches(schedule: Schedule, updates: int) -> Iterator[tuple[int, int, bool]]:
    """First and last update of each branch, and whether a floor moves in it."""
    cells = _cells(schedule)
    if not cells:
        yield 0, updates - 1, True
    for cell in cells:
        last = updates - 1 if cell.last is None else min(cell.last, updates - 1)
        if cell.first <= last:
            yield cell.first, last, bool(moving(cell.value, Op.FLOOR))


def ball_at(schedule: Schedule, step: int) -> arb | None:
    """Returns a ball with the exact value at an update; None where the schedule has none."""
    result = value(value_term(schedule), {"t": fmpq(step)})
    return None if isinstance(result, Undefined) else arb(result)


def _values(schedule: Schedule, steps: NDArray[np.int64]) -> FloatArray:
    return np.broadcast_to(np.asarray(schedule(steps), dtype=np.float64), steps.shape)


def _evaluate(
    schedule: Schedule, first: int, last: int, *, is_stepped: bool
) -> tuple[Branch, tuple[int, int] | None, int]:
    """The branch, its first and last update with an effect, and how often its value falls."""
    steps, values = _samples(schedule, first, last)
    differences = np.diff(values)
    changes = np.abs(differences[np.diff(steps) == 1])
    # The least value up to each update: the rise is measured after it, not before.
    rise = float((values - np.minimum.accumulate(values)).max())
    low, high = int(values.argmin()), int(values.argmax())
    nonzero = np.flatnonzero(values)
    branch = Branch(
        first=first,
        last=last,
        is_stepped=is_stepped,
        begin=float(values[0]),
        end=float(values[-1]),
        change=float(changes.max(initial=0.0)),
        lowest=int(steps[low]),
        low=float(values[low]),
        highest=int(steps[high]),
        high=float(values[high]),
        rise=rise,
    )
    effects = (int(steps[nonzero[0]]), int(steps[nonzero[-1]])) if nonzero.size else None
    return branch, effects, int(np.count_nonzero(differences < 0))


def _samples(schedule: Schedule, first: int, last: int) -> tuple[NDArray[np.int64], FloatArray]:
    """All updates of a branch and their values; of a long branch those that matter.

    They are evenly spaced at first. Then those are added that a search finds in the gaps next to
    the least and the greatest value, where the value becomes or ceases to be 0, and where it
    changes most.
    """
    steps = _between(first, last, _MOST_VALUES)
    values = _values(schedule, steps)
    if last - first < _MOST_VALUES:
        return steps, values
    edges = np.flatnonzero(np.diff((values != 0).astype(np.int8)))
    steepest = np.argsort(-np.abs(np.diff(values)), kind="stable")[:_LARGEST_CHANGES]
    searches: list[tuple[Search, Iterable[int]]] = [
        (_at_least, [int(values.argmin())]),
        (_at_greatest, [int(values.argmax())]),
        (_at_edge, {*edges[:1].tolist(), *edges[-1:].tolist()}),
        (_at_change, steepest.tolist()),
    ]
    places_looked_at = [steps]
    for search, places in searches:
        for place in places:
            low = int(steps[place if search in (_at_edge, _at_change) else max(place - 1, 0)])
            high = int(steps[min(place + 1, steps.size - 1)])
            places_looked_at += _search_steps(schedule, low, high, search)
    steps = np.unique(np.concatenate(places_looked_at))
    return steps, _values(schedule, steps)


Search = Callable[[FloatArray], tuple[int, int]]
"""Returns between which two of some values to look further."""


def _at_least(values: FloatArray) -> tuple[int, int]:
    place = int(values.argmin())
    return max(place - 1, 0), min(place + 1, values.size - 1)


def _at_greatest(values: FloatArray) -> tuple[int, int]:
    return _at_least(-values)


def _at_change(values: FloatArray) -> tuple[int, int]:
    place = int(np.abs(np.diff(values)).argmax())
    return place, place + 1


def _at_edge(values: FloatArray) -> tuple[int, int]:
    return _at_change((values != 0).astype(np.float64))


def _search_steps(
    schedule: Schedule, low: int, high: int, search: Search
) -> Iterator[NDArray[np.int64]]:
    """Yields the updates at which a search has looked, until none are left out."""
    while True:
        steps = _between(low, high, _PARTS)
        yield steps
        if high - low < _PARTS:
            return
        first, last = search(_values(schedule, steps))
        low, high = int(steps[first]), int(steps[last])


def _between(first: int, last: int, most: int) -> NDArray[np.int64]:
    """The integers from ``first`` to ``last``; if they are more than ``most``, as many of them."""
    span = last - first
    if span < most:
        return np.arange(first, last + 1, dtype=np.int64)
    # Python's integers: float64 has not all of 2**53 and more.
    return np.array([first + span * part // (most - 1) for part in range(most)], dtype=np.int64)
