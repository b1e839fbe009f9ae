"""The warmup of a learning rate: its first rise."""

from __future__ import annotations

import numpy as np

from closedform.errors import ClosedFormError
from closedform.language import Schedule
from closedform.verify.claims.continuity import cells_of

MOST_STEPS = 1_000_000
"""Updates in which the end of the rise is looked for."""

_FIRST_BLOCK = 1024


def warmup_length(schedule: Schedule, horizon: int | None) -> int | None:
    """Returns the update at which the first rise ends; 0 if the first step does not rise.

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
    if not _rises_at(schedule, 0):
        return 0
    near = _end_of_rise(schedule, horizon)
    milestones = sorted({cell.first for cell in cells_of(schedule) if cell.first > 0})
    for first in milestones:
        # The last cell of a rise may end at its peak, or one update before it.
        for peak in (first, first - 1):
            if near <= peak and _rises_at(schedule, peak - 1) and not _rises_at(schedule, peak):
                return peak
    return None


def _rises_at(schedule: Schedule, step: int) -> bool:
    if step < 0:
        return False
    try:
        return bool(schedule.exact(step + 1) > schedule.exact(step))
    except ClosedFormError:  # after the last step of its domain
        return False


def _end_of_rise(schedule: Schedule, horizon: int | None) -> int:
    """The first update of float64 values that is not below the next one."""
    last = schedule.last_step
    most = min(horizon or MOST_STEPS, MOST_STEPS if last is None else last)
    size = _FIRST_BLOCK
    while True:
        size = min(size, most)
        values = np.asarray(schedule(np.arange(size + 1)))
        falls = np.flatnonzero(np.diff(values) <= 0)
        if falls.size:
            return int(falls[0])
        if size >= most:
            return most
        size *= 8
