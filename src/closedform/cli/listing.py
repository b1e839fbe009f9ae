"""``closedform list``: the schedules and optimizers of the library and of the frameworks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from closedform.cli.arguments import json_flag
from closedform.cli.output import heading, print_json, table
from closedform.cli.parser import UsageError, argument, command, flag
from closedform.docstrings import summary

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from closedform.recipes.entries import Parameter
    from closedform.recipes.framework import Framework

HELP = """\
List schedules and optimizers by family, with their names in other frameworks.

examples:
  closedform list torch
  closedform list --frameworks
"""


@command
class Options:
    """The options of ``closedform list``."""

    framework: str | None = argument("list the classes of this framework, such as torch", nargs="?")
    frameworks: bool = flag("list the frameworks, with their repositories")
    as_json: bool = json_flag()


def run(options: Options) -> None:
    """Prints the names."""
    if options.frameworks and options.framework is not None:
        raise UsageError(
            f"--frameworks lists all of them, got the name {options.framework!r}",
            hint=f"closedform list {options.framework} lists the classes of one",
        )
    if options.frameworks:
        _list_frameworks(as_json=options.as_json)
        return
    if options.framework is not None:
        _list_framework(options.framework, as_json=options.as_json)
        return
    data = {
        kind: [_entry(*item) for item in _sort_names(kind)] for kind in ("schedules", "optimizers")
    }
    if options.as_json:
        print_json(data)
        return
    heading("schedules")
    rows = [
        (e["family"], e["name"], e["description"], _lines(e["frameworks"]))
        for e in data["schedules"]
    ]
    table(("family", "name", "description", "in other frameworks"), rows)
    print()
    heading("optimizers")
    rules = [(e["family"], e["name"], e["description"]) for e in data["optimizers"]]
    table(("family", "name", "description"), rules)
    print("\nclosedform show NAME, closedform show FRAMEWORK:CLASS, closedform list FRAMEWORK")


def _list_frameworks(*, as_json: bool) -> None:
    """Prints the frameworks: whether configs are read and written, and the origin of formulas."""
    import closedform as cf

    data = [
        {"framework": name, **_origin(framework)}
        for name, framework in sorted(cf.frameworks.FRAMEWORKS.items())
    ]
    if as_json:
        print_json(data)
        return
    table(tuple(data[0]), [tuple(entry.values()) for entry in data])


def _origin(framework: Framework) -> dict[str, str]:
    """Whether configs of a framework are read and written, and the origin of its formulas."""
    ways = {"read": framework.reader, "written": framework.writer}
    return {
        "configs": " and ".join(word for word, function in ways.items() if function is not None),
        "tier": framework.tier.value,
        "repository": framework.repository,
        "commit": framework.commit,
    }


def _list_framework(name: str, *, as_json: bool) -> None:
    """Prints the classes of a framework, with their arguments and library equivalents."""
    import closedform as cf

    names = cf.frameworks.names(name)
    framework = cf.frameworks.FRAMEWORKS[name]
    schedulers = [framework.schedules[class_name] for class_name in names.schedules]
    optimizers = [framework.optimizers[class_name] for class_name in names.optimizers]
    if as_json:
        data = {
            "framework": name,
            **_origin(framework),
            "schedulers": [
                {"name": e.name, "builds": list(e.builds), "arguments": _defaults(e.parameters)}
                for e in schedulers
            ],
            "optimizers": [
                {"name": e.name, "arguments": _defaults(e.parameters)} for e in optimizers
            ],
        }
        print_json(data)
        return
    heading(f"{name}: closedform show {name}:CLASS")
    rows = [(e.name, ", ".join(e.builds), _arguments(e.parameters)) for e in schedulers]
    table(("scheduler", "library equivalent", "arguments"), rows)
    if optimizers:
        print()
        rules = [(e.name, _arguments(e.parameters)) for e in optimizers]
        table(("optimizer", "arguments"), rules)


def _defaults(parameters: Sequence[Parameter]) -> dict[str, str | None]:
    """The default of each argument as text, None where it is required."""
    import closedform as cf

    sentinel = cf.frameworks.REQUIRED
    return {p.name: None if p.default is sentinel else str(p.default) for p in parameters}


def _arguments(parameters: Sequence[Parameter]) -> str:
    defaults = _defaults(parameters)
    return ", ".join(name if text is None else f"{name}={text}" for name, text in defaults.items())


def _entry(name: str, function: Callable[..., Any]) -> dict[str, Any]:
    """A function of the library; schedules with their names in other frameworks."""
    import closedform as cf

    entry: dict[str, Any] = {
        "family": _family(function),
        "name": name,
        "description": _summary(function),
    }
    if name in cf.schedules.__all__:
        aliases = cf.frameworks.known_as(name).items()
        entry["frameworks"] = {framework: list(classes) for framework, classes in aliases}
    return entry


def _lines(frameworks: dict[str, list[str]]) -> str:
    """The names in other frameworks, one framework per line."""
    return "\n".join(f"{name}:{', '.join(classes)}" for name, classes in frameworks.items())


def _sort_names(kind: str) -> list[tuple[str, Callable[..., Any]]]:
    from closedform.cli.sources import library

    return sorted(library(kind).items(), key=lambda item: (_family(item[1]), item[0]))


def _family(function: Callable[..., Any]) -> str:
    return function.__module__.split(".")[-1].replace("_", " ")


def _summary(function: Callable[..., Any]) -> str:
    return summary(function).rstrip(".:")
