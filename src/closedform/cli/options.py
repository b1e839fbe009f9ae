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

AsShipped = Annotated[bool, typer.Option("--as-shipped", help="Keep the defects of the system.")]
