"""Checks that the schedules share: numbers, lengths, milestones."""

from __future__ import annotations

import math
from collections.abc import Sequence

import sympy as sp

from closedform.errors import DefinitionError, DomainError, nearest
from closedform.language import exact_number, hyper, t

NO_STEPS = "a schedule over no steps has no value; use constant(end)"
NO_WARMUP = "the value at step 0 would be infinite; 1 is the shortest"


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


def check_choice(value: object, choices: Sequence[str], name: str, where: str) -> None:
    """Refuses a name that is not one of the choices.

    Raises:
        DefinitionError: It is not one of them; the nearest one is suggested.
    """
    if value not in choices:
        raise DefinitionError(
            f"{name} must be one of {', '.join(choices)}, got {value!r}",
            where=where,
            hint=nearest(str(value), choices),
        )


def steps_symbol(number: sp.Rational) -> sp.Symbol:
    """Returns the symbol of a number of steps, an integer one where the number is."""
    return hyper("steps", integer=bool(number.is_Integer), positive=True)


def whole_length(steps: sp.Expr) -> sp.Expr:
    """Returns the first integer step at or after ``steps``: there the shape is complete."""
    return steps if isinstance(steps, sp.Symbol) and steps.is_integer else sp.ceiling(steps)


def stepwise(values: Sequence[sp.Expr], marks: Sequence[sp.Expr]) -> sp.Expr:
    """Returns ``values[i]`` from ``marks[i - 1]`` on and before ``marks[i]``.

    Args:
        values: One more than there are marks.
        marks: Increasing numbers; at those up to 0 the next value holds from the start.
    """
    branches: list[tuple[sp.Expr, sp.Basic]] = []
    for value, following, mark in zip(values, values[1:], marks, strict=False):
        if mark > 0 and value != following:
            # Not `t < mark`, nor an evaluated Piecewise: SymPy takes 3 ms for each to find that it
            # cannot decide it (1.14).
            branches.append((value, sp.Lt(t, mark, evaluate=False)))
    return sp.Piecewise(*branches, (values[-1], True), evaluate=False) if branches else values[-1]


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
