"""``closedform watch``: a log beside its recipe, with the likely cause of a departure."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

from closedform.cli.arguments import (
    LogOptions,
    SourceOptions,
    json_flag,
    log_bundle,
    source_bundle,
)
from closedform.cli.output import print_result
from closedform.cli.parser import UsageError, argument, command, flag, option, positive

if TYPE_CHECKING:
    from closedform.analysis.watching import LogReport
    from closedform.language import Schedule
    from closedform.recipes import Recipe

DEPARTED = 1
"""Exit code if a value departs from the recipe."""

HELP = """\
Compare each logged value of LOG with RECIPE, and name the likely cause of the first that departs.

RECIPE is a config file or a name with its arguments in quotes. The causes are an offset by one, a
scheduler that is stepped per micro-batch or per process, a warmup in other units, the horizon of
another run, a wrong step after resuming, a group without schedule; each is decided by evaluating
the recipe under it for all updates. --facts world_size=8 gradient_accumulation=4 help to decide.

With --follow the log is read again as it grows, until the last update of the run. The exit code is
1 if a value departs.

example:
  closedform watch recipe.yaml log.csv --follow
"""


@command
class Options:
    """The options of ``closedform watch``."""

    recipe: str = argument("the recipe", metavar="RECIPE")
    log: str = argument("the log of the run", metavar="LOG")
    follow: bool = flag("read the log as it grows")
    interval: int = option("seconds between two readings (default: 5)", type=positive, default=5)
    log_options: LogOptions = log_bundle()
    source_options: SourceOptions = source_bundle()
    as_json: bool = json_flag()


def run(options: Options) -> int:
    """Prints the first departure, or that there is none."""
    from closedform.cli.sources import load_curves

    source = load_curves(options.recipe, options.source_options)
    report = _watch(source, options)
    while options.follow and (
        report is None or (report.departure is None and not report.is_complete)
    ):
        size = _size(options.log)
        threading.Event().wait(options.interval)
        if _size(options.log) != size or report is None:
            report = _watch(source, options, is_growing=True)
    if report is None:
        raise UsageError(f"{options.log} is not a log", hint="give --pattern for a log of text")
    print_result(report, as_json=options.as_json)
    return 0 if report.departure is None else DEPARTED


def _watch(
    recipe: Recipe | Schedule, options: Options, *, is_growing: bool = False
) -> LogReport | None:
    """The report on the log as it is now; None while it is not yet a log."""
    from closedform.analysis.watching import RunNumbers, watch_log
    from closedform.cli.sources import load_log
    from closedform.errors import ArgumentError, ConfigError
    from closedform.recipes.clock import Facts

    try:
        read = load_log(options.log, options.log_options)
    except (ArgumentError, ConfigError):
        if is_growing:
            return None
        raise
    if read is None:
        return None
    numbers = RunNumbers.of(Facts.of(options.source_options.facts))
    return watch_log(recipe, read, numbers)


def _size(log: str) -> int:
    path = Path(log)
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())
