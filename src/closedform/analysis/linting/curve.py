"""A schedule over a run, branch by branch: every update is evaluated, none is sampled.

The branches are the cells of the prover: between two of them a condition of the formula changes.
Values are float64; a finding that rests on them is confirmed with exact ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from closedform.errors import VerificationError
from closedform.ir.types import FloatArray
from closedform.language import Schedule
from closedform.verify.claims.continuity import cells_of
from closedform.verify.tactics.real_line import RealCell, moving
from closedform.verify.terms.limits import LIMITS
from closedform.verify.terms.tree import Op

# The values past the end are looked at up to this multiple of the run, on so many updates.
_BEYOND, _LOOKS = 4, 256


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
class Turn:
    """An update after the run at which the fall of a schedule ends."""

    update: int
    value: float


@dataclass(frozen=True, slots=True)
class Curve:
    """A schedule over a run.

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
    def of(cls, schedule: Schedule, updates: int) -> Curve:
        """Returns the curve of a schedule without open hyperparameters."""
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
        steps = (step for step in grid | later | beyond if end is None or step <= end)
        return np.array(sorted(steps), dtype=np.int64)


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


def _values(schedule: Schedule, steps: NDArray[np.int64]) -> FloatArray:
    return np.broadcast_to(np.asarray(schedule(steps), dtype=np.float64), steps.shape)


def _evaluate(
    schedule: Schedule, first: int, last: int, *, is_stepped: bool
) -> tuple[Branch, tuple[int, int] | None, int]:
    """The branch, its first and last update with an effect, and how often its value falls."""
    change = rise = 0.0
    low, lowest, high, highest = np.inf, first, -np.inf, first
    effects: tuple[int, int] | None = None
    begin = previous = float(schedule(first))
    falls = 0
    # Chunks: a run of 10^9 updates does not fit in memory at once.
    for start in range(first, last + 1, LIMITS.audit_chunk):
        steps = np.arange(start, min(start + LIMITS.audit_chunk, last + 1))
        values = _values(schedule, steps)
        differences = np.diff(values, prepend=previous)
        change = max(change, float(np.abs(differences).max()))
        falls += int(np.count_nonzero(differences < 0))
        previous = float(values[-1])
        # The least value up to each update: the rise is measured after it, not before.
        floor = np.minimum(np.minimum.accumulate(values), low)
        rise = max(rise, float((values - floor).max()))
        if values.min() < low:
            low, lowest = float(values.min()), int(steps[values.argmin()])
        if values.max() > high:
            high, highest = float(values.max()), int(steps[values.argmax()])
        nonzero = np.flatnonzero(values)
        if nonzero.size:
            begin_effect = int(steps[nonzero[0]]) if effects is None else effects[0]
            effects = (begin_effect, int(steps[nonzero[-1]]))
    branch = Branch(
        first, last, is_stepped, begin, previous, change, lowest, low, highest, high, rise
    )
    return branch, effects, falls
