"""The application ``closedform``: its commands, global options and error output.

``closedform --help`` imports only typer and rich; each command imports the rest when it runs.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from closedform import __version__
from closedform.cli.audit import audit
from closedform.cli.convert import convert
from closedform.cli.diff import diff
from closedform.cli.export import export
from closedform.cli.listing import list_names
from closedform.cli.output import error_line
from closedform.cli.plot import plot
from closedform.cli.run import run
from closedform.cli.show import show
from closedform.cli.verify import verify
from closedform.cli.web import gallery, web
from closedform.errors import ClosedFormError

FREE_ARGUMENTS = {"allow_extra_args": True, "ignore_unknown_options": True}
"""The context settings of commands whose options are arguments of a schedule or graph."""

_EXAMPLES = """
Compile training schedules and optimizer steps to static graphs.

closedform show cosine --start 3e-4 --end 0 --steps 100

closedform plot torch:LinearLR --total-iters 30 --base-value 0.1

closedform export recipe.yaml -o build --params w=64x10 --params b=10
"""


class Group(TyperGroup):
    """Commands that report an error as one line on stderr, with exit code 1."""

    def invoke(self, ctx: Any) -> Any:
        """Runs the command; with --traceback, errors are raised."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise
        except (ClosedFormError, OSError) as error:
            if ctx.params.get("traceback"):
                raise
            error_line(error)
            raise typer.Exit(1) from None


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"closedform {__version__}")
        raise typer.Exit


def options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
    traceback: Annotated[
        bool, typer.Option("--traceback", help="Show the traceback of an error.")
    ] = False,
) -> None:
    """Declares the global options, which ``Group`` reads."""


app = typer.Typer(
    cls=Group,
    help=_EXAMPLES,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.callback()(options)
app.command("list")(list_names)
app.command("show", context_settings=FREE_ARGUMENTS)(show)
app.command("plot", context_settings=FREE_ARGUMENTS)(plot)
app.command("export", context_settings=FREE_ARGUMENTS)(export)
app.command("run", context_settings=FREE_ARGUMENTS)(run)
app.command("verify", context_settings=FREE_ARGUMENTS)(verify)
app.command("audit", context_settings=FREE_ARGUMENTS)(audit)
app.command("convert")(convert)
app.command("diff")(diff)
app.command("web")(web)
app.command("gallery")(gallery)
