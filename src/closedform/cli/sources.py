"""What a command works on: a name of the library, ``system:Class``, or a config file."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

import closedform as cf
from closedform.cli.arguments import free_arguments
from closedform.errors import ArgumentError, UnknownNameError, nearest
from closedform.recipes.group_values import NEEDS_BASE

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from closedform.language import Schedule, UpdateRule
    from closedform.recipes import Recipe

KINDS = ("schedules", "optimizers")
"""The parts of the library; ``optimizer:adamw`` names one of them."""

CONFIG_SUFFIXES = (".yaml", ".yml", ".json")


@dataclass(frozen=True, slots=True)
class FrameworkOptions:
    """How a class of a system is read.

    Attributes:
        key: The entry of the param group that it schedules.
        base: The value of that entry before the schedule, where the class scales it.
        as_implemented: Whether the defects of the system are kept.
    """

    key: str = "lr"
    base: float | None = None
    as_implemented: bool = False


def load_source(
    name: str, words: Sequence[str], framework: FrameworkOptions
) -> Schedule | UpdateRule | Recipe:
    """Returns what a name on the command line means, with its arguments from the other words.

    Args:
        name: A config file, ``system:Class``, or a schedule or optimizer of the library, also as
            ``schedule:name`` and ``optimizer:name``.
        words: The words that the command itself has no use for.
        framework: For a class of a system, how it is read.

    Raises:
        typer.BadParameter: The words are no arguments.
        ClosedFormError: There is no such name, or the arguments do not fit it.
    """
    if name.startswith("-"):
        raise typer.BadParameter(f"the name comes first, then its options; got {name!r}")
    arguments = free_arguments(words)
    if name.lower().endswith(CONFIG_SUFFIXES):
        if arguments:
            raise typer.BadParameter(f"a config file takes no --{next(iter(arguments))}")
        return cf.load_recipe(Path(name))
    kind, colon, own = name.partition(":")
    if colon and f"{kind}s" in KINDS:
        return _from_library(own, arguments, (f"{kind}s",))
    if colon:
        return _from_framework(name, arguments, framework)
    return _from_library(name, arguments)


def schedule_of(source: Schedule | UpdateRule | Recipe, name: str, key: str = "lr") -> Schedule:
    """Returns the schedule itself, or that of a recipe or rule for ``key``.

    Raises:
        UnknownNameError: Nothing is scheduled under that key.
    """
    from closedform.language import Schedule

    if isinstance(source, Schedule):
        return source
    scheduled = schedules_of(source)
    if key not in scheduled:
        raise UnknownNameError(
            f"no schedule for {key!r}",
            where=name,
            hint=f"choose one with --key: {', '.join(scheduled)}" if scheduled else None,
        )
    return scheduled[key]


def schedules_of(source: Schedule | UpdateRule | Recipe) -> dict[str, Schedule]:
    """Returns the schedules of a recipe or rule by key; a schedule alone stands under "lr"."""
    from closedform.language import Schedule, UpdateRule

    if isinstance(source, Schedule):
        return {"lr": source}
    if isinstance(source, UpdateRule):
        values = source.hyperparameters.items()
        return {key: value for key, value in values if isinstance(value, Schedule)}
    return dict(source.schedules)


def library(kind: str) -> dict[str, Callable[..., Any]]:
    """Returns the functions of the library by name; ``kind`` is "schedules" or "optimizers"."""
    module: ModuleType = getattr(cf, kind)
    return {
        name: getattr(module, name)
        for name in sorted(module.__all__)
        if inspect.isfunction(getattr(module, name))
    }


def _from_framework(
    name: str, arguments: dict[str, Any], framework: FrameworkOptions
) -> Schedule | UpdateRule:
    system, _, class_name = name.partition(":")
    known = cf.frameworks.names(system)
    if class_name in known.optimizers:
        return cf.frameworks.optimizer(
            system, class_name, arguments, as_implemented=framework.as_implemented
        )
    if class_name not in known.schedules:
        raise UnknownNameError(
            f"{system} has no scheduler or optimizer {class_name!r}",
            hint=nearest(class_name, (*known.schedules, *known.optimizers)),
        )
    try:
        if cf.frameworks.FRAMEWORKS[system].schedules[class_name].rule is not None:
            return cf.frameworks.metric_rule(system, class_name, arguments, base=framework.base)
        return cf.frameworks.schedule(
            system,
            class_name,
            arguments,
            key=framework.key,
            base=framework.base,
            as_implemented=framework.as_implemented,
        )
    except ArgumentError as error:
        if error.hint != NEEDS_BASE:
            raise
        raise ArgumentError(
            error.what, where=error.where, hint="give --base-value, such as --base-value 0.1"
        ) from None


def _from_library(
    name: str, arguments: Mapping[str, Any], kinds: Sequence[str] = KINDS
) -> Schedule | UpdateRule:
    known = {key: make for kind in kinds for key, make in library(kind).items()}
    if name not in known:
        what = " or ".join(kind.removesuffix("s") for kind in kinds)
        raise UnknownNameError(
            f"the library has no {what} {name!r}",
            hint=f"{_in_a_system(name) or nearest(name, known)} `closedform list` shows all",
        )
    function = known[name]
    signature = inspect.signature(function)
    given = {key: _with_schedules(value) for key, value in arguments.items()}
    for key in given:
        if key not in signature.parameters:
            raise ArgumentError(
                f"unknown argument --{key.replace('_', '-')}",
                where=name,
                hint=nearest(key, signature.parameters),
            )
    try:
        signature.bind(**given)
    except TypeError as error:
        options = " ".join(_option(parameter) for parameter in signature.parameters.values())
        raise ArgumentError(str(error), where=name, hint=f"it takes {options}") from None
    result: Schedule | UpdateRule = function(**given)
    return result


def _in_a_system(name: str) -> str | None:
    """A hint for the name of a class without its system."""
    systems = {system: cf.frameworks.names(system) for system in cf.frameworks.FRAMEWORKS}
    found = [
        repr(f"{system}:{known}")
        for system, names in systems.items()
        for known in (*names.schedules, *names.optimizers)
        if known.lower() == name.lower()
    ]
    return f"did you mean {' or '.join(found)}?" if found else None


def _with_schedules(value: Any) -> Any:
    """Replaces each {"class": name, "kwargs": {...}} by the schedule of the library."""
    if isinstance(value, list):
        return [_with_schedules(item) for item in value]
    if not isinstance(value, dict) or "class" not in value:
        return value
    return _from_library(str(value["class"]), value.get("kwargs", {}))


def _option(parameter: inspect.Parameter) -> str:
    option = f"--{parameter.name.replace('_', '-')}"
    return option if parameter.default is parameter.empty else f"[{option}]"
