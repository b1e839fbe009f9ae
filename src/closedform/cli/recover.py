"""``closedform recover``: the shortest schedule that reproduces a log."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from closedform.cli.arguments import LogOptions, json_flag, log_bundle
from closedform.cli.output import note_line, print_result
from closedform.cli.parser import argument, command, option, positive

if TYPE_CHECKING:
    from closedform.analysis.recovery import Recovered

NOT_FOUND = 1
"""Exit code if no schedule reproduces the values."""

HELP = """\
Find the shortest schedule of the library that reproduces the values of a log.

LOG is a CSV file or JSON lines with the columns step and lr, the state of a trainer, TensorBoard's
or MLflow's files, or text with a --pattern. The exit code is 1 if no schedule of the library
reproduces all values within their digits.

example:
  closedform recover log.csv
"""


@command
class Options:
    """The options of ``closedform recover``."""

    log: str = argument("the log", metavar="LOG")
    digits: int | None = option("significant digits of the values", type=positive)
    key: str = option("lr, weight_decay or momentum (default: lr)", default="lr")
    log_options: LogOptions = log_bundle()
    as_json: bool = json_flag()


def run(options: Options) -> int:
    """Prints the schedule."""
    from closedform.analysis.recovery import recover
    from closedform.cli.sources import load_log
    from closedform.recipes.logs import read_log

    source = load_log(options.log, options.log_options) or read_log(options.log)
    recovery = recover(source, digits=options.digits, key=options.key)
    print_result(recovery, as_json=options.as_json)
    if not options.as_json:
        _explain(recovery)
    return 0 if recovery.call else NOT_FOUND


def _explain(recovery: Recovered) -> None:
    """The offset, the metric, and the schedulers that were compared with the log."""
    if recovery.offset:
        note_line(f"the log counts from {recovery.offset}: its step {recovery.offset} is update 0")
    if recovery.metric:
        note_line(f"the metric is {recovery.metric}")
    if recovery.config:
        note_line(f"a config of transformers: {json.dumps(recovery.config)}")
    for candidate in recovery.candidates:
        note_line(str(candidate))
