"""The steps of a plot or table: the last step, evenly spaced ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from closedform.language import Schedule
from closedform.language.boundaries import boundaries
from closedform.magnitude import check_steps

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_STEPS_WITHOUT_END = 1000


def last_step(schedule: Schedule) -> int:
    """Returns the last step of a table or plot of the schedule.

    This is the last step that its domain declares, else the length of the schedule if it has one,
    else 1.5 times its last boundary, else 1000.
    """
    if schedule.last_step is not None:
        return schedule.last_step
    if schedule.length is not None and schedule.length > 0:
        return int(schedule.length)
    marks = boundaries(schedule.bound)
    return math.ceil(1.5 * marks[-1]) if marks else _STEPS_WITHOUT_END


def even_steps(end: int, most: int = 1_000_000) -> NDArray[np.int64]:
    """Returns the steps 0..end, or ``most`` evenly spaced ones if there are more.

    Raises:
        LimitError: The end is after the last step of a graph.
    """
    check_steps(end, "the last step of a plot")
    import numpy as np

    return np.arange(end + 1) if end < most else np.linspace(0, end, most).astype(np.int64)


def steps_with_sides(end: int, marks: Sequence[int], most: int) -> NDArray[np.int64]:
    """Returns a limited number of even steps, with both sides of each boundary."""
    import numpy as np

    sides = np.array([step for mark in marks for step in (mark - 1, mark)], dtype=np.int64)
    steps: NDArray[np.int64] = np.sort(np.concatenate([even_steps(end, most), sides]))
    # np.union1d imports numpy.ma, 6 ms of the first plot.
    is_new: NDArray[np.bool_] = np.append(True, steps[1:] != steps[:-1])
    return steps[is_new]


def schedule_points(
    schedule: Schedule, end: int, most: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Returns steps up to ``end`` and the values at them, with both sides of each boundary."""
    import numpy as np

    check_steps(end, "the last step of a plot")
    last = end if schedule.last_step is None else min(end, schedule.last_step)
    marks = [mark for mark in boundaries(schedule.bound) if mark <= last]
    steps = steps_with_sides(last, marks[:most], most)
    return steps, np.asarray(schedule(steps), dtype=np.float64)
