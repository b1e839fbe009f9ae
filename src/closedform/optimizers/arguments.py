"""Checks that the optimizers share: a hyperparameter is a number, a Schedule, or None."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sympy as sp

from closedform.errors import DefinitionError
from closedform.language import Schedule, exact_number
from closedform.language.aliases import Hyper
from closedform.magnitude import LAST_STEP, number_text


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
    number = exact_number(value, f"{name} of {where}")
    too_low = at_least is not None and number < at_least
    too_high = below is not None and number >= below
    above = at_most is not None and number > at_most
    if too_low or too_high or above:
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


MOST_UNROLLED = 100
"""The most iterations of a matrix function that are unrolled; ten are enough for float64."""


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


def choice(value: object, name: str, where: str, options: tuple[str, ...]) -> str:
    """Returns one of a few named choices.

    Raises:
        DefinitionError: It is not one of them.
    """
    if value not in options:
        raise DefinitionError(
            f"{name} must be one of {', '.join(map(repr, options))}, got {value!r}", where=where
        )
    return str(value)


def number_or_zero(value: Any) -> sp.Expr:
    """Returns a checked hyperparameter where it is a number, else 0: for states not yet read."""
    return sp.Integer(0) if value is None or isinstance(value, Schedule) else value


def is_zero(value: object) -> bool:
    """Returns whether a checked hyperparameter is the number 0, so that its term is left out."""
    return value is not None and not isinstance(value, Schedule) and bool(value == 0)
