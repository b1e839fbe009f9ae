"""Schedules by intervals of updates, as frameworks compute them: a chain of tests of the clock."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import sympy as sp

from closedform.errors import DefinitionError, DomainError
from closedform.language import Schedule
from closedform.language.aliases import Number
from closedform.schedules.arguments import stepwise


class SupportsFloor(Protocol):
    """A number that can be rounded to integers."""

    def __floor__(self) -> int: ...

    def __ceil__(self) -> int: ...


Value = Callable[[], sp.Expr]
"""The expression of an interval, built only if the interval has an update."""


class UndefinedError(Exception):
    """The framework raises an exception where it would compute this value."""


class PartialSchedule(Schedule):
    """A schedule that a framework computes up to an update and not from there on.

    Its expression is total, so it can be exported and joined to another schedule before ``end``;
    a value at or after ``end`` is refused.

    Attributes:
        end: The first update without a value.
        reason: What the framework does there.
    """

    __slots__ = ("end", "reason")

    end: int
    reason: str

    def __init__(
        self, expr: sp.Expr, *, name: str, end: int, reason: str, **hyperparameters: Number
    ) -> None:
        super().__init__(expr, name=name, length=None, domain=(), **hyperparameters)
        object.__setattr__(self, "end", end)
        object.__setattr__(self, "reason", reason)

    def __getstate__(self) -> dict[str, Any]:
        own = {key: getattr(self, key) for key in Schedule.__slots__ if key != "_cache"}
        return {**own, "end": self.end, "reason": self.reason}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PartialSchedule):
            return False
        return super().__eq__(other) is True and self.end == other.end

    def __hash__(self) -> int:
        return hash((super().__hash__(), self.end))

    def __call__(self, step: Any) -> Any:
        """Returns the value at a step, or at each step of an array.

        Raises:
            DomainError: A step is at or after ``end``.
        """
        self._check(step)
        return super().__call__(step)

    def exact(self, step: int) -> sp.Expr:
        """Returns the exact value at a step.

        Raises:
            DomainError: The step is at or after ``end``.
        """
        self._check(step)
        return super().exact(step)

    def shift(self, steps: int) -> Schedule:
        """Returns this schedule as seen ``steps`` later; its end comes as much earlier."""
        moved = super().shift(steps)
        return PartialSchedule(
            moved.expr,
            name=self.name,
            end=self.end - steps,
            reason=self.reason,
            **moved.hyperparameters,
        )

    def _with(
        self, expr: sp.Expr, hyperparameters: Mapping[str, Any], *, length: Any = ...
    ) -> Schedule:
        whole = super()._with(expr, hyperparameters, length=length)
        return PartialSchedule(
            whole.expr,
            name=self.name,
            end=self.end,
            reason=self.reason,
            **whole.hyperparameters,
        )

    def _check(self, step: Any) -> None:
        last = _largest(step)
        if last is not None and last >= self.end:
            raise DomainError(
                f"update {int(last)} has no value: {self.reason}",
                where=f"schedule {self.name!r}",
                hint=f"the last update with a value is {self.end - 1}",
            )


def _largest(step: Any) -> Any:
    """The largest of the steps of a number, an array, or nested lists; None if there are none."""
    if isinstance(step, list | tuple):
        found = [last for last in map(_largest, step) if last is not None]
        return max(found, default=None)
    if hasattr(step, "max"):
        return step.max() if step.size else None
    return step


def first_from(mark: SupportsFloor) -> int:
    """Returns the first update t with ``t >= mark``, at least 0."""
    return max(0, math.ceil(mark))


def first_after(mark: SupportsFloor) -> int:
    """Returns the first update t with ``t > mark``, at least 0."""
    return max(0, math.floor(mark) + 1)


def quotient(left: sp.Expr, right: sp.Expr) -> sp.Expr:
    """Returns ``left / right``.

    Raises:
        UndefinedError: ``right`` is 0.
    """
    if right == 0:
        raise UndefinedError("division by zero")
    return left / right


def power_quotient(left: sp.Expr, right: sp.Expr, power: sp.Expr) -> sp.Expr:
    """Returns ``(left / right)**power`` as a quotient of powers.

    A difference of whole numbers on the left stays exact in floating point, so that its root is
    defined where it is 0.

    Raises:
        UndefinedError: ``right`` is 0.
    """
    return quotient(left**power, right**power if right != 0 else sp.S.Zero)


def by_intervals(name: str, *stages: tuple[Value, int | None]) -> Schedule:
    """Returns the schedule of a chain of tests, in the order in which a framework makes them.

    Args:
        name: The name of the schedule.
        *stages: A value and the first update at which its test fails; None where it never fails.
            A stage whose end is not after those before it has no update, and is not built.

    Raises:
        DefinitionError: The value of update 0 is undefined.
    """
    values: list[sp.Expr] = []
    marks: list[sp.Expr] = []
    begin = 0
    for value, end in stages:
        if end is not None and end <= begin:
            continue
        try:
            values.append(value())
        except UndefinedError as error:
            return _until(name, values, marks[:-1], begin, str(error))
        if end is None:
            break
        marks.append(sp.Integer(end))
        begin = end
    else:
        return _until(name, values, marks[:-1], begin, "the run has ended")
    return Schedule(stepwise(values, marks), name=name)


def _until(
    name: str, values: list[sp.Expr], marks: list[sp.Expr], end: int, reason: str
) -> Schedule:
    if not values:
        raise DefinitionError(f"update 0 has no value: {reason}", where=name)
    return PartialSchedule(stepwise(values, marks), name=name, end=end, reason=reason)
