"""Checks of the arguments that frameworks share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sympy as sp

from closedform.errors import DefinitionError
from closedform.language import arguments, exact_number
from closedform.language.arguments import NO_WARMUP, positive_steps, rational_milestones, whole
from closedform.language.arguments import flag as flag
from closedform.recipes.entries import Check
from closedform.schedules.inverse import falling_rate

steps = positive_steps
"""A number of steps above 0."""

rate = falling_rate
"""The rate of an inverse time decay, at least 0."""


def warmup(value: object, name: str, where: str) -> sp.Rational:
    """Returns the number of flat steps before an inverse root, above 0.

    Raises:
        DomainError: It is not above 0.
    """
    return positive_steps(value, name, where, NO_WARMUP)


def number(value: object, name: str, where: str) -> sp.Expr:
    """Returns a finite number, exactly.

    Raises:
        DefinitionError: It is not such a value.
    """
    return exact_number(value, f"{name} of {where}")


def refuse_unless(condition: object, message: str, where: str) -> None:
    """Raises DefinitionError unless a condition of the framework holds."""
    if not condition:
        raise DefinitionError(message, where=where)


def numbers(value: object, name: str, where: str) -> tuple[sp.Expr, ...]:
    """Returns a list of finite numbers, exactly.

    Raises:
        DefinitionError: It is not a list, or one of them is not a finite number.
    """
    if not isinstance(value, list | tuple):
        raise DefinitionError(
            f"{name} must be a list of numbers, got {type(value).__name__} {value!r}", where=where
        )
    return tuple(number(item, f"{name}[{index}]", where) for index, item in enumerate(value))


def milestones(value: object, name: str, where: str) -> tuple[sp.Rational, ...]:
    """Returns milestones as rational numbers, in any order.

    Raises:
        DefinitionError: They are not a list, or one is not a finite rational number.
    """
    return rational_milestones(value, where, name)


def integer_milestones(value: object, name: str, where: str) -> tuple[sp.Integer, ...]:
    """Returns milestones that are integers, in any order.

    Raises:
        DefinitionError: They are not a list, or one is not an integer.
    """
    marks = milestones(value, name, where)
    items: Any = value
    for index, mark in enumerate(marks):
        if not mark.is_Integer:
            raise DefinitionError(
                f"{name}[{index}] must be an integer, got {items[index]!r}", where=where
            )
    return marks


def counted_milestones(value: object, name: str, where: str) -> tuple[sp.Integer, ...]:
    """Returns milestones that are ints, in any order; floats such as 3.0 are refused.

    Raises:
        DefinitionError: They are not a list, or one is not an int.
    """
    marks = integer_milestones(value, name, where)
    items: Any = value
    for index, mark in enumerate(items):
        if isinstance(mark, float):
            raise DefinitionError(
                f"{name}[{index}] must be an int, got the float {mark!r}", where=where
            )
    return marks


def _number_that(condition: str, holds: Callable[[sp.Expr], bool]) -> Check:
    """The check of a finite number for which ``holds``; ``condition`` is that test in words."""

    def check(value: object, name: str, where: str) -> sp.Expr:
        result = number(value, name, where)
        if not holds(result):
            raise DefinitionError(f"{name} must {condition}, got {value!r}", where=where)
        return result

    return check


def in_range(low: int, high: int, *, is_open_below: bool = False) -> Check:
    """Returns the check of a number in [low, high], or in (low, high]."""
    condition = f"be in {'(' if is_open_below else '['}{low}, {high}]"
    return _number_that(condition, lambda x: low <= x <= high and not (is_open_below and x == low))


def at_least(low: int) -> Check:
    """Returns the check of a number that is not below ``low``."""
    return _number_that(f"be at least {low}", lambda x: x >= low)


positive = _number_that("be above 0", lambda x: x > 0)
"""A finite number above 0, exactly."""

divisor = _number_that("be another number than 0", lambda x: x != 0)
"""A finite number other than 0, exactly."""

last_epoch = _number_that("be an integer >= -1", lambda x: x.is_Integer and x >= -1)
"""The step before the first one, an integer >= -1."""


def count(least: int) -> Check:
    """Returns the check of an int that is at least ``least``; floats such as 3.0 are refused."""
    return lambda value, name, where: whole(value, name, where, at_least=least)


def optional(check: Check) -> Check:
    """Returns the check that accepts None as well."""

    def check_unless_none(value: object, name: str, where: str) -> object:
        return None if value is None else check(value, name, where)

    return check_unless_none


def choice(*names: str) -> Check:
    """Returns the check of a name that must be one of ``names``."""

    def check(value: object, name: str, where: str) -> str:
        arguments.choice(value, name, where, names)
        return str(value)

    return check
