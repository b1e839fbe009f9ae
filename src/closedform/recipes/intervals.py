"""Schedules by intervals of updates, as frameworks compute them: a chain of tests of the clock."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

import sympy as sp

from closedform.errors import DefinitionError
from closedform.language import Schedule, t
from closedform.schedules.branches import stepwise


class SupportsCeil(Protocol):
    """A number that can be rounded up."""

    def __ceil__(self) -> int: ...


LazyNumber = Callable[[], sp.Expr]
"""The expression of an interval, built only if the interval has an update."""

Stage = tuple[sp.Expr | LazyNumber, int | None]
"""A value, and the first update at which its test fails; None where it never fails."""


class UndefinedError(Exception):
    """The framework raises an exception where it would compute this value."""


def undefined(reason: str) -> LazyNumber:
    """Returns the value of an interval in which the framework raises an exception."""

    def refuse() -> sp.Expr:
        raise UndefinedError(reason)

    return refuse


def ending(expr: sp.Expr, end: int, reason: str, name: str) -> Schedule:
    """Returns a schedule that a framework computes only before update ``end``.

    Its expression is total, so it can be exported, and joined to another schedule before the end.

    Args:
        expr: The expression.
        end: The first update without a value.
        reason: What the framework does there.
        name: The name of the schedule.

    Example:
        >>> ending(t / 10, 11, "an assertion fails", "x").last_step
        10
    """
    return Schedule.of(expr, {}, name=name, domain=(sp.Lt(t, end),), ending=reason)


def first_from(mark: SupportsCeil) -> int:
    """Returns the first update t with ``t >= mark``, at least 0."""
    # Updates count from 0, also where a mark lies before the run.
    return max(0, math.ceil(mark))


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
    # 0**0 is 1: a right side of 0 must be caught before the power.
    return quotient(left**power, right**power if right != 0 else sp.S.Zero)


def by_intervals(name: str, *stages: Stage) -> Schedule:
    """Returns the schedule of a chain of tests, in the order in which a framework makes them.

    Args:
        name: The name of the schedule.
        *stages: The stages. A stage that ends no later than the stages before it has no update, and
            is not built.

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
            values.append(value if isinstance(value, sp.Basic) else value())
        # The stages before it are defined: the schedule ends where the framework raises the
        # exception.
        except UndefinedError as error:
            return ended(name, values, marks[:-1], begin, str(error))
        if end is None:
            break
        marks.append(sp.Integer(end))
        begin = end
    else:
        return ended(name, values, marks[:-1], begin, "the run has ended")
    return Schedule(stepwise(values, marks), name=name)


def ended(
    name: str, values: list[sp.Expr], marks: list[sp.Expr], end: int, reason: str
) -> Schedule:
    """Returns the schedule of values between marks, which ends at an update without a value.

    Raises:
        DefinitionError: It has no value at update 0.
    """
    if not values:
        raise DefinitionError(f"update 0 has no value: {reason}", where=name)
    return ending(stepwise(values, marks), end, reason, name)
