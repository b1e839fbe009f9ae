"""The command line ``closedform``: list, show, plot, export, run, verify, audit, diff, web.

It needs the extra ``cli`` (typer and rich); importing this package does not.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import typer

    app: typer.Typer

__all__ = ["app", "main"]

_REQUIRED = ("rich", "typer")


def main() -> None:
    """Runs the command line; the console script ``closedform`` calls this."""
    try:
        from closedform.cli.application import app
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in _REQUIRED:
            raise
        sys.stderr.write(
            f"error: the command line requires the package {missing!r}, which is not installed: "
            'pip install "closedform[cli]"\n'
        )
        raise SystemExit(2) from None
    app(prog_name="closedform")


def __getattr__(name: str) -> object:
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from closedform.cli.application import app

    return app


def __dir__() -> list[str]:
    return sorted(__all__)
