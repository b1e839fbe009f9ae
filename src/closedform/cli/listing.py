"""``closedform list``: what the library holds, and what other systems call it."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Callable


def list_names(
    system: Annotated[
        str | None, typer.Argument(help="Only the classes of this system, such as torch.")
    ] = None,
) -> None:
    """List schedules and optimizers by family, and the names that other systems use."""
    import closedform as cf
    from closedform.cli.output import heading, table

    if system is None:
        for kind in ("schedules", "optimizers"):
            heading(kind)
            rows = [(_family(function), name, _says(function)) for name, function in _sorted(kind)]
            table(("family", "name", "what"), rows)
            print()
    for name in cf.dialects.DIALECTS if system is None else (system,):
        known = cf.dialects.names(name)
        heading(f"{name}: closedform show {name}:CLASS")
        classes = {"schedules": known.schedules, "optimizers": known.optimizers}
        table(("kind", "classes"), ((kind, ", ".join(of)) for kind, of in classes.items()))
        print()


def _sorted(kind: str) -> list[tuple[str, Callable[..., Any]]]:
    from closedform.cli.sources import library

    return sorted(library(kind).items(), key=lambda item: (_family(item[1]), item[0]))


def _family(function: Callable[..., Any]) -> str:
    return function.__module__.split(".")[-1].replace("_", " ")


def _says(function: Callable[..., Any]) -> str:
    first_line = (inspect.getdoc(function) or "").partition("\n")[0]
    return first_line.removeprefix("Returns ").replace("``", "").rstrip(".:")
