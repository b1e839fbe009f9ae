"""The values of schedules, step by step, for the entries of param groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from closedform.compiler import evaluate_schedule
from closedform.errors import DefinitionError
from closedform.language import Schedule
from closedform.lowering.analysis.domain import MAX_STEP

# A cosine takes 1.1 to 1.4 ms, for 1 step as for 1024: the time is that of the call.
BLOCK = 1024
"""The number of steps that are computed at once."""


class ScheduleValues:
    """The values of a schedule, computed a block of steps ahead.

    Invariant: ``at(step)`` is the value of the schedule itself, independent of the blocks.
    """

    __slots__ = ("_first", "_values", "schedule")

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self._first = 0
        self._values: list[float] = []

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ScheduleValues) and self.schedule == other.schedule

    def __hash__(self) -> int:
        return hash(self.schedule)

    def at(self, step: int) -> float:
        """Returns the value at a step."""
        offset = step - self._first
        if 0 <= offset < len(self._values):
            return self._values[offset]
        # Aligned, so that going back, as after a resume, meets the same blocks.
        self._first = step - step % BLOCK
        last = MAX_STEP if self.schedule.last_step is None else self.schedule.last_step
        # Not beyond the last step, unless that is asked for.
        steps = np.arange(self._first, min(self._first + BLOCK, max(last, step) + 1))
        values: Any = evaluate_schedule(self.schedule, steps)
        self._values = values.tolist()
        return self._values[step - self._first]

    def __reduce__(self) -> tuple[type[ScheduleValues], tuple[Schedule]]:
        # A pickle has the schedule, not the block: it is computed again.
        return ScheduleValues, (self.schedule,)


class TupleValues:
    """The values of a tuple such as betas; None for an element that is not scheduled."""

    __slots__ = ("elements",)

    def __init__(self, elements: Sequence[ScheduleValues | None]) -> None:
        self.elements = tuple(elements)

    def at(self, step: int) -> tuple[float | None, ...]:
        """Returns the value of each element at a step; None if it is not scheduled."""
        return tuple(None if element is None else element.at(step) for element in self.elements)

    def __reduce__(self) -> tuple[type[TupleValues], tuple[tuple[ScheduleValues | None, ...]]]:
        return TupleValues, (self.elements,)


class FunctionValues:
    """The values of a base value times a Python function, which is called for each of them.

    Args:
        function: The factor, a function of the step.
        base: The base value.
        is_running: Whether the factor is the product of the function from step 1 on.
    """

    __slots__ = ("_base", "_function", "_products")

    schedule = None

    def __init__(
        self, function: Callable[[int], float], base: float, *, is_running: bool = False
    ) -> None:
        self._function = function
        self._base = base
        self._products = [1.0] if is_running else []

    def at(self, step: int) -> float:
        """Returns the value at a step."""
        if not self._products:
            return self._base * self._function(step)
        while len(self._products) <= step:
            # As MultiplicativeLR of torch, which calls the function once for each step, from 1.
            self._products.append(self._products[-1] * self._function(len(self._products)))
        return self._base * self._products[step]

    @property
    def text(self) -> str:
        """The name of the function, which identifies it in a state."""
        name = getattr(self._function, "__qualname__", type(self._function).__qualname__)
        return f"{self._base!r} times the Python function {name}"


EntryValues = ScheduleValues | TupleValues | FunctionValues

ScheduleSpec = Schedule | tuple[Schedule | float | None, ...]
"""The source of an entry: a Schedule; or, for a tuple, one per element, a number or None."""


def read_values(spec: ScheduleSpec, where: str) -> EntryValues:
    """Returns the values of a schedule, or of a tuple of schedules, numbers and None.

    Raises:
        DefinitionError: It is neither, or a schedule has hyperparameters without a value.
    """
    if isinstance(spec, Schedule):
        return _bound_values(spec, where)
    if isinstance(spec, tuple):
        entries = [_entry(entry, index, where) for index, entry in enumerate(spec)]
        if any(element is not None for element in entries):
            return TupleValues(entries)
    raise DefinitionError(
        f"a schedule must be a Schedule, or a tuple for an entry such as betas, got {spec!r}",
        where=where,
        hint="closedform.Schedule(expression) makes one from a SymPy expression",
    )


def _entry(entry: Any, index: int, where: str) -> ScheduleValues | None:
    if entry is None:
        return None
    if isinstance(entry, Schedule):
        return _bound_values(entry, f"{where}, entry {index}")
    return ScheduleValues(Schedule(entry, name=f"entry {index}"))


def _bound_values(schedule: Schedule, where: str) -> ScheduleValues:
    if schedule.open:
        names = ", ".join(symbol.name for symbol in schedule.open)
        raise DefinitionError(
            f"the schedule {schedule.name!r} has no value for {names}",
            where=where,
            hint="bind them with bind()",
        )
    return ScheduleValues(schedule)


def check_fits(value: object, values: EntryValues, where: str) -> None:
    """Raises DefinitionError if a schedule cannot drive the value of a group."""
    if isinstance(values, ScheduleValues | FunctionValues):
        _check_number(value, where)
        return
    if not isinstance(value, tuple | list) or len(value) != len(values.elements):
        raise DefinitionError(
            f"a tuple of {len(values.elements)} schedules needs a tuple of as many values, "
            f"got {value!r}",
            where=where,
        )
    for index, (entry, element) in enumerate(zip(value, values.elements, strict=True)):
        if element is not None:
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
