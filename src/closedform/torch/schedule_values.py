"""Values of schedules as param groups hold them: numbers, tensors, tuples of both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from closedform.compiler import evaluate_schedule
from closedform.errors import DefinitionError
from closedform.language import Schedule
from closedform.lowering.analysis.domain import MAX_STEP

BLOCK = 1024
"""How many steps are computed at once."""


class Course:
    """The values of a schedule, computed a block of steps ahead.

    Invariant: ``at(step)`` is the float that the schedule itself has there, whatever the block.
    """

    __slots__ = ("_first", "_values", "schedule")

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self._first = 0
        self._values: list[float] = []

    def at(self, step: int) -> float:
        """Returns the value at a step."""
        offset = step - self._first
        if 0 <= offset < len(self._values):
            return self._values[offset]
        self._first = step - step % BLOCK
        steps = np.arange(self._first, min(self._first + BLOCK, MAX_STEP + 1))
        values: Any = evaluate_schedule(self.schedule, steps)
        self._values = values.tolist()
        return self._values[step - self._first]

    def __reduce__(self) -> tuple[type[Course], tuple[Schedule]]:
        return Course, (self.schedule,)


class Tuple:
    """The values of a tuple such as betas: a course for each entry, or None where it is kept."""

    __slots__ = ("courses",)

    def __init__(self, courses: Sequence[Course | None]) -> None:
        self.courses = tuple(courses)

    def at(self, step: int) -> tuple[float | None, ...]:
        """Returns the value of each entry at a step, None where it is kept."""
        return tuple(None if course is None else course.at(step) for course in self.courses)

    def __reduce__(self) -> tuple[type[Tuple], tuple[tuple[Course | None, ...]]]:
        return Tuple, (self.courses,)


Values = Course | Tuple


def read_values(spec: object, where: str) -> Values:
    """Returns the values of a schedule, or of a tuple of schedules, numbers and None.

    Raises:
        DefinitionError: It is neither, or a schedule has open hyperparameters.
    """
    if isinstance(spec, Schedule):
        return _course(spec, where)
    if isinstance(spec, tuple):
        entries = [_entry(entry, index, where) for index, entry in enumerate(spec)]
        if any(course is not None for course in entries):
            return Tuple(entries)
    raise DefinitionError(
        f"a schedule must be a Schedule, or a tuple for an entry such as betas, got {spec!r}",
        where=where,
        hint="closedform.Schedule(expression) makes one of a SymPy expression",
    )


def _entry(entry: Any, index: int, where: str) -> Course | None:
    if entry is None:
        return None
    if isinstance(entry, Schedule):
        return _course(entry, f"{where}, entry {index}")
    return Course(Schedule(entry, name=f"entry {index}"))


def _course(schedule: Schedule, where: str) -> Course:
    if schedule.open:
        names = ", ".join(symbol.name for symbol in schedule.open)
        raise DefinitionError(
            f"the schedule {schedule.name!r} has no value for {names}",
            where=where,
            hint="give them with bind()",
        )
    return Course(schedule)


def plain(value: object) -> Any:
    """Returns a value of a param group for exact arithmetic: a tensor as its NumPy number."""
    if isinstance(value, Tensor):
        return value.detach().cpu().numpy()[()]
    return tuple(plain(entry) for entry in value) if isinstance(value, tuple | list) else value


def copied(value: object) -> Any:
    """Returns a value of a param group that shares no memory with it."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    return tuple(copied(entry) for entry in value) if isinstance(value, tuple | list) else value


def like(old: Any, value: Any) -> Any:
    """Returns a scheduled value as its group holds it: a new tensor where the old one is one."""
    if isinstance(value, tuple):
        return tuple(like(*pair) for pair in zip(old, value, strict=True))
    if value is None:
        return copied(old)
    return old.new_full(old.shape, value) if isinstance(old, Tensor) else value


def assign(group: dict[str, Any], key: str, value: Any) -> None:
    """Writes a value to a param group: a number into its place, a tensor filled where it lies."""
    old = group[key]
    if isinstance(old, Tensor):
        old.fill_(value)
    elif isinstance(value, tuple):
        entries: list[Any] = []
        for before, after in zip(old, value, strict=True):
            if isinstance(before, Tensor) and after is not None:
                before.fill_(after)
            entries.append(before if after is None or isinstance(before, Tensor) else after)
        group[key] = tuple(entries)
    else:
        group[key] = value


def check_fits(value: object, values: Values, where: str) -> None:
    """Raises DefinitionError where a group's value cannot hold what a schedule writes."""
    if isinstance(values, Course):
        _check_number(value, where)
        return
    if not isinstance(value, tuple | list) or len(value) != len(values.courses):
        raise DefinitionError(
            f"a tuple of {len(values.courses)} schedules needs a tuple of as many values, "
            f"got {value!r}",
            where=where,
        )
    for index, (entry, course) in enumerate(zip(value, values.courses, strict=True)):
        if course is not None:
            _check_number(entry, f"{where}, entry {index}")


def _check_number(value: Any, where: str) -> None:
    if isinstance(value, Tensor):
        if value.numel() != 1 or not value.is_floating_point():
            raise DefinitionError(
                f"a scheduled tensor must be one floating-point number, got {value.dtype} of shape "
                f"{list(value.shape)}",
                where=where,
            )
        return
    if isinstance(value, tuple | list):
        raise DefinitionError(
            f"one schedule cannot drive {len(value)} values",
            where=where,
            hint="give a tuple with a schedule, a number or None for each entry",
        )
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise DefinitionError(f"only numbers can be scheduled, got {value!r}", where=where)
