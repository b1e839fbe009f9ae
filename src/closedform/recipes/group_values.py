"""Values that a scheduler reads from its param group: its base value, and entries of its lists."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import sympy as sp

from closedform.errors import ArgumentError, DefinitionError
from closedform.language import Schedule, exact_number
from closedform.recipes import checks
from closedform.recipes.entries import Context, ScheduleBuilder

NEEDS_BASE = "give base, or a group that holds it"


def base_value(context: Context) -> sp.Expr:
    """Returns the value of the group that a scheduler starts from.

    Raises:
        ArgumentError: There is none.
    """
    if context.base is None:
        raise ArgumentError(
            f"a {context.framework} scheduler starts from the {context.key} of its group, got none",
            hint=NEEDS_BASE,
        )
    return exact_number(context.base, f"base of {context.where}")


def of_group(value: object, name: str, context: Context) -> Any:
    """Returns the part of an argument that belongs to the group, where it is a list.

    Raises:
        DefinitionError: The list has no part for the group.
    """
    if not isinstance(value, list | tuple):
        return value
    if context.group_index >= len(value):
        raise DefinitionError(f"{name} must hold one for each group, got {len(value)}")
    return value[context.group_index]


def number_of_group(arguments: Mapping[str, Any], name: str, context: Context) -> sp.Expr:
    """Returns the number that an argument holds for the group.

    Raises:
        ArgumentError: The argument is missing.
        DefinitionError: It is not a finite number, or a list without one for the group.
    """
    if name not in arguments:
        raise ArgumentError(f"missing argument {name!r}")
    return checks.number(of_group(arguments[name], name, context), name, context.where)


def of_base(make: Callable[..., Schedule], *names: str) -> ScheduleBuilder:
    """Returns the builder of a schedule of the library from the base value and arguments."""
    return lambda arguments, context: make(
        base_value(context), *(arguments[name] for name in names)
    )
