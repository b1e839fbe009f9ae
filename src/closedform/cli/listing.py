"""``closedform list``: what the library holds, and what other systems call it."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from closedform.recipes.entries import Parameter


def list_names(
    system: Annotated[
        str | None, typer.Argument(help="Only the classes of this system, such as torch.")
    ] = None,
) -> None:
    """List schedules and optimizers by family, and the names that other systems use."""
    from closedform.cli.output import heading, table

    if system is not None:
        _list_system(system)
        return
    heading("schedules")
    rows = [(*_row(function, name), _elsewhere(name)) for name, function in _sorted("schedules")]
    table(("family", "name", "what", "in other systems"), rows)
    print()
    heading("optimizers")
    rules = [_row(function, name) for name, function in _sorted("optimizers")]
    table(("family", "name", "what"), rules)
    print("\nclosedform show NAME, closedform show SYSTEM:CLASS, closedform list SYSTEM")


def _list_system(system: str) -> None:
    """The classes of a system, with what they build and their arguments."""
    import closedform as cf
    from closedform.cli.output import heading, table

    known = cf.frameworks.names(system)
    framework = cf.frameworks.FRAMEWORKS[system]
    heading(f"{system}: closedform show {system}:CLASS")
    classes = (framework.schedules[name] for name in known.schedules)
    rows = [(e.name, ", ".join(e.builds), _arguments(e.parameters)) for e in classes]
    table(("scheduler", "of the library", "arguments"), rows)
    if known.optimizers:
        print()
        rules = (framework.optimizers[name] for name in known.optimizers)
        table(("optimizer", "arguments"), ((e.name, _arguments(e.parameters)) for e in rules))


def _arguments(parameters: Sequence[Parameter]) -> str:
    import closedform as cf

    required = cf.frameworks.REQUIRED
    return ", ".join(
        p.name if p.default is required else f"{p.name}={p.default}" for p in parameters
    )


def _elsewhere(name: str) -> str:
    """The names that other systems use, one system a line."""
    import closedform as cf

    known = cf.frameworks.known_as(name).items()
    return "\n".join(f"{system}:{', '.join(classes)}" for system, classes in known)


def _row(function: Callable[..., Any], name: str) -> tuple[str, str, str]:
    return _family(function), name, _says(function)


def _sorted(kind: str) -> list[tuple[str, Callable[..., Any]]]:
    from closedform.cli.sources import library

    return sorted(library(kind).items(), key=lambda item: (_family(item[1]), item[0]))


def _family(function: Callable[..., Any]) -> str:
    return function.__module__.split(".")[-1].replace("_", " ")


def _says(function: Callable[..., Any]) -> str:
    first_line = (inspect.getdoc(function) or "").partition("\n")[0]
    return first_line.removeprefix("Returns ").replace("``", "").rstrip(".:")
