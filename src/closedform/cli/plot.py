"""``closedform plot``: a schedule as a picture, in a file or in the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from closedform.cli.options import AsImplemented, BaseValue, Name


def plot(
    context: typer.Context,
    name: Name,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="A .png, .svg or .pdf file.")
    ] = None,
    until: Annotated[int | None, typer.Option(help="The last step drawn.", min=1)] = None,
    key: Annotated[str, typer.Option(help="Which schedule of a config or rule.")] = "lr",
    base_value: BaseValue = None,
    as_implemented: AsImplemented = False,
) -> None:
    """Plot the schedule NAME in the terminal, or into a file with -o.

    The arguments of NAME are options: closedform plot cosine --start 3e-4 --end 0 --steps 100.
    """
    from closedform.cli.output import heading
    from closedform.cli.sources import FrameworkOptions, load_source, schedule_of
    from closedform.plotting import even_steps, last_step, plot_schedule, terminal_plot

    options = FrameworkOptions(key=key, base=base_value, as_implemented=as_implemented)
    source = load_source(name, context.args, options)
    schedule = schedule_of(source, name, key)
    title = schedule.name if source is schedule else f"{key} of {Path(name).name}"
    end = last_step(schedule) if until is None else until
    if output is not None:
        plot_schedule(schedule, output, steps=end, title=title)
        print(output)
        return
    drawing = terminal_plot(schedule(even_steps(end)), last=end)
    heading(title)
    print(drawing)
