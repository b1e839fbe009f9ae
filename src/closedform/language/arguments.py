"""Checks of the arguments of schedules, optimizers, transforms and classes of frameworks.

    whole(2.5, "period", "sophia")
    →   DefinitionError: period must be an integer >= 1, got 2.5 (sophia)

A check takes the argument, its name and what it belongs to, and returns the value that is used.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import sympy as sp

from closedform.errors import DefinitionError, DomainError, nearest
from closedform.language.aliases import Hyper
from closedform.language.schedule import Schedule
from closedform.language.symbols import exact_number
from closedform.magnitude import LAST_STEP, number_text

NO_STEPS = "a schedule over no steps has no value; use constant(end)"
NO_WARMUP = "the value at step 0 would be infinite; 1 is the shortest"

MOST_UNROLLED = 100
"""The most iterations of a matrix function that are unrolled; ten are enough for float64."""


def hyperparameter(
    value: object,
    name: str,
    where: str,
    *,
    at_least: int | None = 0,
    below: int | None = None,
    at_most: int | None = None,
) -> Any:
    """Returns a hyperparameter: an exact number in its range, a Schedule, or None for an input.

    Args:
        value: The argument.
        name: Its name, for errors.
        where: The optimizer that it belongs to, for errors.
        at_least: The least number allowed; None for no bound.
        below: The bound that a number stays below; None for no bound.
        at_most: The largest number allowed, with ``at_least``; None for no bound.

    Raises:
        DefinitionError: It is not a number, Schedule or None, or a number out of its range.
    """
    if value is None or isinstance(value, Schedule):
        return value
    return _number_in_range(value, name, where, at_least, below=below, at_most=at_most)


def _number_in_range(
    value: object,
    name: str,
    where: str,
    at_least: int | None,
    *,
    below: int | None = None,
    at_most: int | None = None,
) -> sp.Expr:
    number = exact_number(value, f"{name} of {where}")
    is_low = at_least is not None and number < at_least
    is_high = below is not None and number >= below
    if is_low or is_high or (at_most is not None and number > at_most):
        allowed_range = f">= {at_least}" if below is None else f"in [{at_least}, {below})"
        allowed_range = allowed_range if at_most is None else f"in [{at_least}, {at_most}]"
        raise DefinitionError(f"{name} must be {allowed_range}, got {value!r}", where=where)
    return number


def hyperparameters(where: str, **values: object) -> dict[str, Any]:
    """Returns hyperparameters by name, numbers >= 0; those checked before may be among them.

    ``betas`` are two numbers in [0, 1), which become ``beta1`` and ``beta2``.

    Raises:
        DefinitionError: One is not a number, a Schedule or None, or is a number below 0.
    """
    results: dict[str, Any] = {}
    for name, value in values.items():
        if name == "betas":
            results |= decay_rates(value, where)
        else:
            results[name] = hyperparameter(value, name, where)
    return results


def number(value: object, name: str, where: str) -> Any:
    """Returns an exact number >= 0 that is used up when the states are made.

    Raises:
        DefinitionError: It is a Schedule, None, no number, or negative.
    """
    if value is None or isinstance(value, Schedule):
        kind = "None" if value is None else "a Schedule"
        raise DefinitionError(
            f"{name} must be a number, got {kind}",
            where=where,
            hint="a state starts from it, before there is a step",
        )
    return hyperparameter(value, name, where)


def bounded_number(
    value: object, name: str, where: str, low: int, high: int | None = None
) -> sp.Expr:
    """Returns an exact number from ``low`` on, below ``high`` or equal to it.

    Raises:
        DefinitionError: It is not a number, or out of this range.
    """
    if isinstance(value, Schedule):
        raise DefinitionError(
            f"{name} must be a number, got a Schedule",
            where=where,
            hint="it has one value for the whole run",
        )
    return _number_in_range(value, name, where, low, at_most=high)


def number_or_schedule(
    value: object, name: str, where: str, low: int, high: int | None = None
) -> sp.Expr:
    """Returns an exact number as :func:`bounded_number` does, or the expression of a Schedule.

    The values of a schedule are not compared with the range: its claims are
    (:func:`closedform.claims.bounded`).

    Raises:
        DefinitionError: It is neither, a number out of the range, or a schedule with a
            hyperparameter that has no value.
    """
    if not isinstance(value, Schedule):
        return bounded_number(value, name, where, low, high)
    if value.open:
        raise DefinitionError(
            f"the schedule of {name} has no value for {value.open[0]}",
            where=where,
            hint="give it one with bind()",
        )
    return value.bound


def several(value: object, name: str, where: str, example: tuple[float, ...]) -> tuple[Hyper, ...]:
    """Returns the entries of a tuple that is as long as the example, unchecked.

    Raises:
        DefinitionError: It is not a sequence of two or three, as many as the example.
    """
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) != len(example):
        count = {2: "two", 3: "three"}[len(example)]
        raise DefinitionError(
            f"{name} must be {count} numbers, got {value!r}", where=where, hint=f"try {example}"
        )
    return tuple(value)


def decay_rates(
    value: object, where: str, example: tuple[float, ...] = (0.9, 0.999)
) -> dict[str, Any]:
    """Returns the hyperparameters ``beta1``, ``beta2`` and so on, numbers in [0, 1).

    Raises:
        DefinitionError: There are not as many as in the example, or a number is out of its range.
    """
    return {
        f"beta{index + 1}": hyperparameter(beta, f"betas[{index}]", where, below=1)
        for index, beta in enumerate(several(value, "betas", where, example))
    }


def whole(
    value: object, name: str, where: str, *, at_least: int = 1, at_most: int = LAST_STEP
) -> int:
    """Returns a number of steps that is fixed when the rule is built.

    Raises:
        DefinitionError: It is not an integer, too small, or too large.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < at_least:
        raise DefinitionError(
            f"{name} must be an integer >= {at_least}, got {_in_words(value)}", where=where
        )
    if value > at_most:
        raise DefinitionError(
            f"{name} must be at most {at_most}, got {_in_words(value)}", where=where
        )
    return value


def _in_words(value: object) -> str:
    return number_text(value) if isinstance(value, int) else repr(value)


def step_count(value: object, name: str, where: str, low: int = 1) -> sp.Integer:
    """Returns a number of steps.

    Raises:
        DefinitionError: It is not an integer, or below ``low``.
    """
    return sp.Integer(whole(value, name, where, at_least=low))


def whole_number(value: object, name: str, where: str, *, least: int) -> int:
    """Returns a count that is fixed when the schedule is built.

    Raises:
        DefinitionError: It is a bool, a string, or not a finite number.
        DomainError: It is not an integer, or less than ``least``.
    """
    number = exact_number(value, f"{name} of {where}")
    if not number.is_Integer or number < least:
        raise DomainError(f"{name} must be an integer >= {least}, got {value!r}", where=where)
    return int(number)


def positive_steps(value: object, name: str, where: str, hint: str = NO_STEPS) -> sp.Rational:
    """Returns a number of steps above 0, which may be a fraction.

    Args:
        value: The argument.
        name: Its name, for errors.
        where: The schedule that it belongs to, for errors.
        hint: What to do where it is not above 0.

    Raises:
        DefinitionError: It is a bool, a string, or not a finite rational number.
        DomainError: It is not above 0.
    """
    number = exact_number(value, f"{name} of {where}")
    if not number.is_Rational:
        raise DefinitionError(f"{name} must be a rational number, got {value!r}", where=where)
    if number <= 0:
        raise DomainError(f"{name} must be above 0, got {value!r}", where=where, hint=hint)
    return number


def run_length(value: object, name: str, where: str, hint: str = NO_STEPS) -> sp.Rational:
    """Returns a length in steps above 0: a whole number, or an exact fraction.

    A float that is not whole is most often another argument, such as a rate.

    Raises:
        DefinitionError: It is a bool, a string, a float that is not whole, or not a finite
            rational number.
        DomainError: It is not above 0.
    """
    if isinstance(value, float) and math.inf > value > 0 and not value.is_integer():
        raise DefinitionError(
            f"{name} must be a whole number of steps, got {value!r}",
            where=where,
            hint="look at the order of the arguments; a part of a step is a Fraction",
        )
    return positive_steps(value, name, where, hint)


def rational_milestones(
    milestones: object, where: str, name: str = "milestones"
) -> tuple[sp.Rational, ...]:
    """Returns milestones as exact rational numbers, in the given order.

    Raises:
        DefinitionError: They are not a sequence, or one of them is not a finite rational number.
    """
    if not isinstance(milestones, Sequence) or isinstance(milestones, str | bytes):
        raise DefinitionError(
            f"{name} must be a sequence of steps, got {type(milestones).__name__} {milestones!r}",
            where=where,
            hint="give a list, [] for none",
        )
    marks = []
    for index, milestone in enumerate(milestones):
        mark = exact_number(milestone, f"{name}[{index}] of {where}")
        if not mark.is_Rational:
            raise DefinitionError(
                f"{name}[{index}] must be a rational number, got {milestone!r}", where=where
            )
        marks.append(mark)
    return tuple(marks)


def flag(value: object, name: str, where: str) -> bool:
    """Returns a switch that is resolved when the rule is built.

    Raises:
        DefinitionError: It is neither True nor False.
    """
    if not isinstance(value, bool):
        raise DefinitionError(
            f"{name} must be True or False, got {type(value).__name__} {value!r}", where=where
        )
    return value


def choice(value: object, name: str, where: str, options: Sequence[str]) -> str:
    """Returns one of a few named choices.

    Raises:
        DefinitionError: It is not one of them; the nearest one is suggested.
    """
    if value not in options:
        raise DefinitionError(
            f"{name} must be one of {', '.join(options)}, got {value!r}",
            where=where,
            hint=nearest(str(value), options),
        )
    return str(value)


def number_or_zero(value: Any) -> sp.Expr:
    """Returns a checked hyperparameter where it is a number, else 0: for states not yet read."""
    return sp.Integer(0) if value is None or isinstance(value, Schedule) else value


def is_zero(value: object) -> bool:
    """Returns whether a checked hyperparameter is the number 0, so that its term is left out."""
    return value is not None and not isinstance(value, Schedule) and bool(value == 0)
