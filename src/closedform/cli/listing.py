"""``closedform list``: the schedules and optimizers of the library and of the frameworks."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from closedform.recipes.entries import Parameter


def list_names(
    framework: Annotated[
        str | None, typer.Argument(help="List the classes of this framework, such as torch.")
    ] = None,
) -> None:
    """List schedules and optimizers by family, with their names in other frameworks."""
    from closedform.cli.output import heading, table

    if framework is not None:
        _list_framework(framework)
        return
    heading("schedules")
    rows = [(*_row(function, name), _elsewhere(name)) for name, function in _sorted("schedules")]
    table(("family", "name", "description", "in other frameworks"), rows)
    print()
    heading("optimizers")
    rules = [_row(function, name) for name, function in _sorted("optimizers")]
    table(("family", "name", "description"), rules)
    print("\nclosedform show NAME, closedform show FRAMEWORK:CLASS, closedform list FRAMEWORK")


def _list_framework(name: str) -> None:
    """Prints the classes of a framework, with their arguments and library equivalents."""
    import closedform as cf
    from closedform.cli.output import heading, table

    known = cf.frameworks.names(name)
    framework = cf.frameworks.FRAMEWORKS[name]
    heading(f"{name}: closedform show {name}:CLASS")
    classes = (framework.schedules[each] for each in known.schedules)
    rows = [(e.name, ", ".join(e.builds), _arguments(e.parameters)) for e in classes]
    table(("scheduler", "library equivalent", "arguments"), rows)
    if known.optimizers:
        print()
        rules = (framework.optimizers[each] for each in known.optimizers)
        table(("optimizer", "arguments"), ((e.name, _arguments(e.parameters)) for e in rules))


def _arguments(parameters: Sequence[Parameter]) -> str:
    import closedform as cf

    required = cf.frameworks.REQUIRED
    return ", ".join(
        p.name if p.default is required else f"{p.name}={p.default}" for p in parameters
    )


def _elsewhere(name: str) -> str:
    """The names in other frameworks, one framework per line."""
    import closedform as cf

    known = cf.frameworks.known_as(name).items()
    return "\n".join(f"{framework}:{', '.join(classes)}" for framework, classes in known)


def _row(function: Callable[..., Any], name: str) -> tuple[str, str, str]:
    return _family(function), name, _summary(function)


def _sorted(kind: str) -> list[tuple[str, Callable[..., Any]]]:
    from closedform.cli.sources import library

    return sorted(library(kind).items(), key=lambda item: (_family(item[1]), item[0]))


def _family(function: Callable[..., Any]) -> str:
    return function.__module__.split(".")[-1].replace("_", " ")


def _summary(function: Callable[..., Any]) -> str:
    first_line = (inspect.getdoc(function) or "").partition("\n")[0]
    return first_line.removeprefix("Returns ").replace("``", "").rstrip(".:")
