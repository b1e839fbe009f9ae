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
    log_bundle,
    source_bundle,
    until_option,
)
from closedform.cli.output import check_free, has_color, heading, is_unicode, output_folder
from closedform.cli.parser import UsageError, argument, command, flag, option

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from closedform.language import Schedule
    from closedform.recipes.logs import Log

HELP = """\
Plot schedules and logs in the terminal, or write the plot to a file with -o.

The arguments of one NAME are options. Several are plotted together, their arguments in quotes, and
the values of a log as points.

examples:
  closedform plot cosine --start 3e-4 --end 0 --steps 100
  closedform plot recipe.yaml "cosine --start 3e-4 --end 0 --steps 100" log.csv --compare -o lr.png
"""
_CLOCKS = ("updates", "micro-batches", "samples", "tokens", "epochs")


@command
class Options:
    """The options of ``closedform plot``."""

    names: list[str] = argument(f"{NAME_HELP}, or a log", nargs="+", metavar="name")
    words: list[str]
    output: Path | None = option("a .png, .svg or .pdf file", "-o", type=Path)
    force: bool = flag("overwrite the file")
    until: int | None = until_option("the last step of the plot")
    clock: str = option(
        "the unit of the horizontal axis; it needs --facts, such as tokens_per_update=4e6",
        choices=_CLOCKS,
        default="updates",
    )
    log: str = option("logarithmic axes", choices=("x", "y", "xy"), default="")
    area: bool = flag("fill the area and write its sum")
    no_milestones: bool = flag("do not mark where a branch changes")
    compare: bool = flag("draw the differences from the first curve below")
    title: str | None = option("the title")
    log_options: LogOptions = log_bundle()
    source_options: SourceOptions = source_bundle()


def run(options: Options) -> None:
    """Draws the plot."""
    check_free(options.output, force=options.force)
    if len(options.names) > 1 and options.words:
        raise UsageError(
            f"{options.words[0]} can be an argument of several names",
            hint="put a name and its arguments in quotes: "
            f'"{options.names[0]} {options.words[0]} …"',
        )
    curves: dict[str, Schedule | Log] = {}
    ends: list[int] = []
    for name in options.names:
        label, curve, end = _curve(name, options.words, options.log_options, options.source_options)
        curves[f"{label} #{len(curves) + 1}" if label in curves else label] = curve
        ends.append(end)
    end = max(ends) if options.until is None else options.until
    if options.output is None:
        drawings = {
            "clock": options.clock != "updates",
            "log": bool(options.log),
            "area": options.area,
        }
        drawings |= {"compare": options.compare}
        for option, is_given in drawings.items():
            if is_given:
                raise UsageError(f"--{option} is for a file", hint="give one, such as -o lr.png")
        _print(curves, end, options.source_options.key)
        return
    from closedform.plotting import plot

    single = next(iter(curves)) if len(curves) == 1 else None
    with output_folder(options.output.parent):
        plot(
            curves,
            options.output,
            steps=end,
            key=options.source_options.key,
            clock=options.clock,
            facts={
                name: value
                for name, value in options.source_options.facts.items()
                if options.clock != "updates"
            },
            log=options.log,
            area=options.area,
            milestones=not options.no_milestones,
            compare=options.compare,
            title=options.title or single,
        )
    print(options.output)


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
        return Path(name).name, read, int(read.steps.max())
    source = load_source(name, [*own_words, *words], options)
    schedule = schedule_of(source, name, options.key)
    if source is schedule:
        return text if own_words else schedule.name, schedule, last_step(schedule)
    horizon = source.horizon if isinstance(source, Recipe) else None
    end = last_step(schedule) if horizon is None else horizon
    return f"{options.key} of {Path(name).name}", schedule, end


def _print(curves: dict[str, Schedule | Log], end: int, key: str) -> None:
    """Prints all curves as one plot of characters, logs as points."""
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
