"""Reading native configs: the options of a section, the facts of the run, the param group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sympy as sp

from closedform.errors import ArgumentError, DefinitionError
from closedform.language import exact_number
from closedform.recipes.checks import refuse_unless as refuse_unless
from closedform.recipes.entries import Context, fill, parameters


def options(config: object, where: str, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options of a section, defaults filled in.

    Raises:
        ArgumentError: The section is not a mapping, or an option is unknown or missing.
    """
    return fill(parameters(**defaults), config, where)


def entry(config: object, path: str, where: str) -> Any:
    """Returns the value at a dotted path of nested mappings.

    Raises:
        ArgumentError: There is none.
    """
    found: Any = config
    for key in path.split("."):
        if not isinstance(found, Mapping) or key not in found:
            raise ArgumentError(f"missing argument {path!r}", where=where)
        found = found[key]
    return found


def fact(context: Context, *names: str) -> Any:
    """Returns a fact, under the first of its names that is given.

    Raises:
        ArgumentError: It is not given.
    """
    for name in names:
        if context.facts.get(name) is not None:
            return context.facts[name]
    raise ArgumentError(
        f"missing facts: {names[0]}", where=context.where, hint="give them as facts={…}"
    )


def number(value: object, name: str, where: str) -> sp.Expr:
    """Returns a finite number, exactly.

    Raises:
        DefinitionError: It is not one.
    """
    return exact_number(value, f"{name} of {where}")


def exact(value: object) -> sp.Expr:
    """Returns a number that was computed from checked options, exactly."""
    return exact_number(value)


def count(value: object, name: str, where: str) -> int:
    """Returns an integer.

    Raises:
        DefinitionError: It is not one.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise DefinitionError(f"{name} must be an integer, got {value!r}", where=where)
    return value


def group_rate(context: Context, base: object) -> sp.Expr:
    """Returns the rate of the param group: its own ``lr``, or else that of the optimizer."""
    return number(group(context).get("lr", base), "lr", context.where)


def group(context: Context) -> Mapping[str, Any]:
    """Returns the param group of the facts ``param_groups`` and ``group_index``.

    Raises:
        DefinitionError: The index is out of range.
    """
    groups = context.facts.get("param_groups")
    if groups is None:
        return {}
    index = count(context.facts.get("group_index", 0), "group_index", context.where)
    if not 0 <= index < len(groups):
        raise DefinitionError(
            f"group_index must be in 0..{len(groups) - 1}, got {index}", where=context.where
        )
    found: Mapping[str, Any] = groups[index]
    return found


def check_name(name: str, given: object, option: str, where: str) -> None:
    """Raises DefinitionError if a config asks for another class than the one that is named."""
    if given != name:
        raise DefinitionError(f"{option} must be {name!r}, got {given!r}", where=where)
