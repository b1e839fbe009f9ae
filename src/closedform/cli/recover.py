"""``closedform recover``: the shortest schedule that reproduces a log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from closedform.cli.arguments import LogOptions, add_json, add_log_options
from closedform.cli.parser import Parser, positive

if TYPE_CHECKING:
    from closedform.analysis.recovery import Recovered

NOT_FOUND = 1
"""Exit code if no schedule reproduces the values."""

_HELP = """\
Find the shortest schedule of the library that reproduces the values of a log.

LOG is a CSV file or JSON lines with the columns step and lr, the state of a trainer, TensorBoard's
or MLflow's files, or text with a --pattern. The exit code is 1 if no schedule of the library
reproduces all values within their digits.

example:
  closedform recover log.csv
"""


def parser(prog: str) -> Parser:
    """Returns the parser of the command."""
    command = Parser(prog, _HELP)
    command.add_argument("log", metavar="LOG", help="the log")
    command.add_argument("--digits", type=positive, help="significant digits of the values")
    command.add_argument("--key", default="lr", help="lr, weight_decay or momentum (default: lr)")
    add_log_options(command)
    add_json(command)
    return command


def run(*, log: str, digits: int | None, key: str, log_options: LogOptions, as_json: bool) -> int:
    """Prints the schedule."""
    from closedform.analysis.recovery import recover
    from closedform.cli.output import working
    from closedform.recipes.logs import read_log

    source = read_log(
        log, log_options.offset, pattern=log_options.pattern, column=log_options.column
    )
    with working(f"look for a schedule with the values of {Path(log).name}"):
        recovery = recover(source, digits=digits, key=key)
    if as_json:
        print(json.dumps(_plain(recovery), indent=2))
    elif not recovery.call:
        print(f"no schedule of the library reproduces the {recovery.points} values")
    else:
        print(recovery.call)
        print(
            f"reproduces {recovery.points} values, updates {recovery.first} to {recovery.last}; "
            f"largest distance {recovery.residual:.3g}"
        )
    if not as_json:
        _explain(recovery)
    return 0 if recovery.call else NOT_FOUND


def _explain(recovery: Recovered) -> None:
    """The offset, the metric, and the schedulers that were compared with the log."""
    from closedform.cli.output import note_line

    if recovery.offset:
        note_line(f"the log counts from {recovery.offset}: its step {recovery.offset} is update 0")
    if recovery.metric:
        note_line(f"the metric is {recovery.metric}")
    if recovery.config:
        note_line(f"a config of transformers: {json.dumps(recovery.config)}")
    for candidate in recovery.candidates:
        note_line(str(candidate))


FIELDS = ("call", "residual", "precisions", "points", "first", "last", "offset", "config", "metric")
"""The fields that ``--json`` prints."""


def _plain(recovery: Recovered) -> dict[str, Any]:
    fields = {name: getattr(recovery, name) for name in FIELDS}
    fields["candidates"] = [
        {"call": candidate.call, "is_right": candidate.is_right, "reason": candidate.reason}
        for candidate in recovery.candidates
    ]
    if not recovery.call:
        fields |= dict.fromkeys(("call", "residual", "precisions"))
    return fields
