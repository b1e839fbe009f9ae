"""``closedform resume``: a schedule that is changed at an update of its run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from closedform.cli.arguments import (
    SourceOptions,
    add_json,
    add_name,
    add_source_options,
    split_name,
)
from closedform.cli.parser import Parser, UsageError, positive

if TYPE_CHECKING:
    from closedform.analysis.resuming import Resumed
    from closedform.language import Schedule

_HELP = """\
Change the schedule of a run at an update: another schedule, horizon or batch size.

Exactly one of --new, --total and --batch-sizes is given. The report says what changes, and whether
the value is proved not to jump. The arguments of NAME are options.

example:
  closedform resume cosine --start 3e-4 --end 0 --steps 1000 --at 600 --total 1500
"""


def parser(prog: str) -> Parser:
    """Returns the parser of the command."""
    command = Parser(prog, _HELP, has_arguments=True)
    add_name(command)
    command.add_argument("--at", type=int, required=True, help="the first update with the change")
    command.add_argument(
        "--new",
        metavar="NAME",
        help="the schedule that follows, from its own step 0; its arguments in quotes: "
        '"cosine --start 3e-4 --end 0 --steps 1000"',
    )
    command.add_argument(
        "--total", type=positive, help="the new number of updates of the whole run"
    )
    command.add_argument(
        "--batch-sizes",
        metavar="OLD,NEW",
        help="the batch sizes before and after, such as 256,512: the schedule remains the same "
        "function of the samples",
    )
    command.add_argument(
        "--scaling",
        choices=("none", "linear", "sqrt"),
        default="none",
        help="how the value scales with the batch size (default: none)",
    )
    command.add_argument(
        "--jump", action="store_true", help="do not rescale --new: the value may jump"
    )
    command.add_argument("-o", "--output", type=Path, help="write the whole schedule to this .onnx")
    command.add_argument("--force", action="store_true", help="overwrite the file")
    add_json(command)
    add_source_options(command)
    return command


def run(
    *,
    name: str,
    words: list[str],
    at: int,
    new: str | None,
    total: int | None,
    batch_sizes: str | None,
    scaling: str,
    jump: bool,
    output: Path | None,
    force: bool,
    as_json: bool,
    options: SourceOptions,
) -> None:
    """Prints the report of the change."""
    from closedform.analysis.resuming import resume
    from closedform.cli.output import check_free, output_folder

    if output is not None:
        if output.suffix != ".onnx":
            raise UsageError(f"-o must be an .onnx file, got {str(output)!r}")
        check_free(output, force=force)
    resumption = resume(
        _schedule(name, words, options),
        at,
        None if new is None else _schedule(*split_name(new), options),
        total=total,
        batch_sizes=_pair(batch_sizes),
        scaling=scaling,
        is_continuous=not jump,
    )
    print(json.dumps(_plain(resumption), indent=2) if as_json else resumption)
    if output is not None:
        import closedform as cf

        with output_folder(output.parent):
            cf.to_onnx(resumption.schedule, output)


def _schedule(name: str, words: list[str], options: SourceOptions) -> Schedule:
    """The schedule that a name denotes; that of a config has the length of its run."""
    from closedform.cli.sources import load_source, schedule_of
    from closedform.language import Schedule

    source = load_source(name, words, options)
    schedule = schedule_of(source, name, options.key)
    horizon = getattr(source, "horizon", None)
    if schedule.length is not None or horizon is None:
        return schedule
    return Schedule(schedule.bound, name=schedule.name, length=horizon)


def _pair(text: str | None) -> tuple[float, float] | None:
    if text is None:
        return None
    from closedform.cli.arguments import parse_literal

    sizes = parse_literal(text)
    if not isinstance(sizes, list) or len(sizes) != 2:
        raise UsageError(f"--batch-sizes must be two numbers such as 256,512, got {text!r}")
    return sizes[0], sizes[1]


def _plain(resumption: Resumed) -> dict[str, Any]:
    """The report as JSON; numbers are the nearest floats."""
    from closedform.language.exact import to_float

    return {
        "at": resumption.at,
        "before": to_float(resumption.before),
        "after": to_float(resumption.after),
        "history": str(resumption.history),
        "continuity": str(resumption.continuity),
        "old_length": resumption.old_length,
        "new_length": resumption.new_length,
        "factor": to_float(resumption.factor),
    }
