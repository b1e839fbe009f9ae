"""Checks that the optimizers share: a hyperparameter is a number, a Schedule, or None."""

from __future__ import annotations

from typing import Any

from closedform.errors import DefinitionError
from closedform.language import Schedule, exact_number


def hyperparameter(
    value: Any, name: str, where: str, *, at_least: int | None = 0, below: int | None = None
) -> Any:
    """Returns a hyperparameter: an exact number in its range, a Schedule, or None for an input.

    Args:
        value: The argument.
        name: Its name, for errors.
        where: The optimizer that it belongs to, for errors.
        at_least: The least number allowed; None for no bound.
        below: The bound that a number stays below; None for no bound.

    Raises:
        DefinitionError: It is no number, Schedule or None, or a number out of its range.
    """
    if value is None or isinstance(value, Schedule):
        return value
    number = exact_number(value, f"{name} of {where}")
    too_low = at_least is not None and number < at_least
    too_high = below is not None and number >= below
    if too_low or too_high:
        wanted = f">= {at_least}" if below is None else f"in [{at_least}, {below})"
        raise DefinitionError(f"{name} must be {wanted}, got {value!r}", where=where)
    return number


def flag(value: Any, name: str, where: str) -> bool:
    """Returns a switch that is resolved when the rule is built.

    Raises:
        DefinitionError: It is neither True nor False.
    """
    if not isinstance(value, bool):
        raise DefinitionError(
            f"{name} must be True or False, got {type(value).__name__} {value!r}", where=where
        )
    return value


def choice(value: Any, name: str, where: str, options: tuple[str, ...]) -> str:
    """Returns one of a few named choices.

    Raises:
        DefinitionError: It is none of them.
    """
    if value not in options:
        raise DefinitionError(
            f"{name} must be one of {', '.join(map(repr, options))}, got {value!r}", where=where
        )
    return str(value)


def is_zero(value: Any) -> bool:
    """Returns whether a checked hyperparameter is the number 0, so that its term is left out."""
    return value is not None and not isinstance(value, Schedule) and bool(value == 0)
