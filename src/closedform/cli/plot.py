"""``closedform plot``: schedules and logs in one plot, in a file or in the terminal."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from closedform.cli.arguments import (
    NAME_HELP,
    LogOptions,
    SourceOptions,
    add_log_options,
    add_source_options,
    add_until,
)
from closedform.cli.parser import Parser, UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from closedform.language import Schedule
    from closedform.recipes.logs import Log

_HELP = """\
Plot schedules and logs in the terminal, or write the plot to a file with -o.

The arguments of one NAME are options. Several are plotted together, their arguments in quotes, and
the values of a log as points.

examples:
  closedform plot cosine --start 3e-4 --end 0 --steps 100
  closedform plot recipe.yaml "cosine --start 3e-4 --end 0 --steps 100" log.csv --compare -o lr.png
"""
_CLOCKS = ("updates", "micro-batches", "samples", "tokens", "epochs")


def parser(prog: str) -> Parser:
    """Returns the parser of the command."""
    command = Parser(prog, _HELP, has_arguments=True)
    command.add_argument("names", nargs="+", metavar="name", help=f"{NAME_HELP}, or a log")
    command.add_argument("-o", "--output", type=Path, help="a .png, .svg or .pdf file")
    command.add_argument("--force", action="store_true", help="overwrite the file")
    add_until(command, "the last step of the plot")
    command.add_argument(
        "--clock",
        choices=_CLOCKS,
        default="updates",
        help="the unit of the horizontal axis; it needs --facts, such as tokens_per_update=4e6",
    )
    command.add_argument("--log", choices=("x", "y", "xy"), default="", help="logarithmic axes")
    command.add_argument("--area", action="store_true", help="fill the area and write its sum")
    command.add_argument(
        "--no-milestones", action="store_true", help="do not mark where a branch changes"
    )
    command.add_argument(
        "--compare", action="store_true", help="draw the differences from the first curve below"
    )
    command.add_argument("--title", help="the title")
    add_log_options(command)
    add_source_options(command)
    return command


def run(
    *,
    names: list[str],
    words: list[str],
    output: Path | None,
    force: bool,
    until: int | None,
    clock: str,
    log: str,
    area: bool,
    no_milestones: bool,
    compare: bool,
    title: str | None,
    log_options: LogOptions,
    options: SourceOptions,
) -> None:
    """Draws the plot."""
    from closedform.cli.output import check_free, output_folder

    if output is not None:
        check_free(output, force=force)
    if len(names) > 1 and words:
        raise UsageError(
            f"{words[0]} can be an argument of several names",
            hint=f'put a name and its arguments in quotes: "{names[0]} {words[0]} …"',
        )
    curves: dict[str, Schedule | Log] = {}
    ends: list[int] = []
    for name in names:
        label, curve, end = _curve(name, words, log_options, options)
        curves[f"{label} #{len(curves) + 1}" if label in curves else label] = curve
        ends.append(end)
    end = max(ends) if until is None else until
    if output is None:
        drawings = {"clock": clock != "updates", "log": bool(log), "area": area}
        drawings |= {"compare": compare}
        for option, is_given in drawings.items():
            if is_given:
                raise UsageError(f"--{option} is for a file", hint="give one, such as -o lr.png")
        _print(curves, end, options.key)
        return
    from closedform.plotting import plot

    single = next(iter(curves)) if len(curves) == 1 else None
    with output_folder(output.parent):
        plot(
            curves,
            output,
            steps=end,
            key=options.key,
            clock=clock,
            facts={name: value for name, value in options.facts.items() if clock != "updates"},
            log=log,
            area=area,
            milestones=not no_milestones,
            compare=compare,
            title=title or single,
        )
    print(output)


def _curve(
    text: str, words: list[str], log_options: LogOptions, options: SourceOptions
) -> tuple[str, Schedule | Log, int]:
    """The label, curve and last step of a name, which may have its arguments behind it."""
    from closedform.cli.arguments import split_name
    from closedform.cli.sources import load_log, load_source, schedule_of
    from closedform.plotting import last_step
    from closedform.recipes import Recipe

    name, own_words = split_name(text)
    read = load_log(name, log_options)
    if read is not None:
        if not read.steps:
            from closedform.errors import ConfigError

            raise ConfigError("the log has no steps with values", where=name)
        return Path(name).name, read, max(read.steps)
    source = load_source(name, [*own_words, *words], options)
    schedule = schedule_of(source, name, options.key)
    if source is schedule:
        return text if own_words else schedule.name, schedule, last_step(schedule)
    horizon = source.horizon if isinstance(source, Recipe) else None
    end = last_step(schedule) if horizon is None else horizon
    return f"{options.key} of {Path(name).name}", schedule, end


def _print(curves: dict[str, Schedule | Log], end: int, key: str) -> None:
    """Prints all curves as one plot of characters, logs as points."""
    from closedform.cli.output import has_color, heading, is_unicode
    from closedform.language import Schedule
    from closedform.plotting import overlay

    heading(next(iter(curves)) if len(curves) == 1 else f"{len(curves)} curves")
    print(
        overlay(
            {label: _points(curve, end, key) for label, curve in curves.items()},
            width=_plot_width(),
            is_ascii=not is_unicode(sys.stdout.encoding),
            are_colored=has_color(sys.stdout),
            points=[label for label, curve in curves.items() if not isinstance(curve, Schedule)],
        )
    )


def _points(
    curve: Schedule | Log, end: int, key: str
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    from closedform.language import Schedule

    if isinstance(curve, Schedule):
        from closedform.plotting.steps import schedule_points

        return schedule_points(curve, end, _MOST_POINTS)
    from closedform.plotting.figure import points_of  # a twentieth of a second

    return points_of(curve, end, key)


_MOST_POINTS = 2000
_MARGIN = 14
"""The longest label, -1.23457e-05, and the axis."""


def _plot_width() -> int:
    """The width of a plot that fits the terminal; 64 characters where there is space."""
    return max(8, min(64, shutil.get_terminal_size().columns - _MARGIN))
