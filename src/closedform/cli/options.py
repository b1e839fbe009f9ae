"""Options that commands share."""

from __future__ import annotations

from typing import Annotated

import typer

_MEANING = "A name of the library, SYSTEM:CLASS, or a config file."
Name = Annotated[str, typer.Argument(help=_MEANING)]
OptionalName = Annotated[str | None, typer.Argument(help=_MEANING)]

BaseValue = Annotated[
    float | None, typer.Option(help="The optimizer's own value, where a class scales it.")
]

AsImplemented = Annotated[
    bool,
    typer.Option(
        "--as-implemented", "--as-shipped", help="What the framework computes, defects included."
    ),
]
