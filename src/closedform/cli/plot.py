"""``closedform plot``: a plot of a schedule, in a file or in the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from closedform.cli.arguments import AsImplemented, BaseValue, Key, Name


def plot(
    context: typer.Context,
    name: Name,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="A .png, .svg or .pdf file.")
    ] = None,
    until: Annotated[int | None, typer.Option(help="The last step of the plot.", min=1)] = None,
    key: Key = "lr",
    base_value: BaseValue = None,
    as_implemented: AsImplemented = False,
) -> None:
    """Plot the schedule NAME in the terminal, or write it to a file with -o.

    The arguments of NAME are options: closedform plot cosine --start 3e-4 --end 0 --steps 100.
    """
    from closedform.cli.output import heading
    from closedform.cli.sources import load_source, schedule_of
    from closedform.plotting import even_steps, last_step, plot_schedule, terminal_plot

    source = load_source(
        name, context.args, key=key, base=base_value, as_implemented=as_implemented
    )
    schedule = schedule_of(source, name, key)
    title = schedule.name if source is schedule else f"{key} of {Path(name).name}"
    end = last_step(schedule) if until is None else until
    if output is not None:
        plot_schedule(schedule, output, steps=end, title=title)
        print(output)
        return
    text = terminal_plot(schedule(even_steps(end)), last=end)
    heading(title)
    print(text)
