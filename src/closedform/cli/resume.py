"""``closedform resume``: a schedule that is changed at an update of its run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from closedform.cli.arguments import (
    SourceOptions,
    json_flag,
    name_argument,
    source_bundle,
    split_name,
)
from closedform.cli.output import check_free, output_folder, print_result
from closedform.cli.parser import UsageError, command, flag, option, positive

if TYPE_CHECKING:
    from closedform.language import Schedule

HELP = """\
Change the schedule of a run at an update: another schedule, horizon or batch size.

Exactly one of --new, --total and --batch-sizes is given. The report says what changes, and whether
the value is proved not to jump. The arguments of NAME are options.

example:
  closedform resume cosine --start 3e-4 --end 0 --steps 1000 --at 600 --total 1500
"""


@command
class Options:
    """The options of ``closedform resume``."""

    name: str = name_argument()
    words: list[str]
    at: int = option("the first update with the change", type=int, required=True)
    new: str | None = option(
        "the schedule that follows, from its own step 0; its arguments in quotes: "
        '"cosine --start 3e-4 --end 0 --steps 1000"',
        metavar="NAME",
    )
    total: int | None = option("the new number of updates of the whole run", type=positive)
    batch_sizes: str | None = option(
        "the batch sizes before and after, such as 256,512: the schedule remains the same "
        "function of the samples",
        metavar="OLD,NEW",
    )
    scaling: str = option(
        "how the value scales with the batch size (default: none)",
        choices=("none", "linear", "sqrt"),
        default="none",
    )
    jump: bool = flag("do not rescale --new: the value may jump")
    output: Path | None = option("write the whole schedule to this .onnx", "-o", type=Path)
    force: bool = flag("overwrite the file")
    as_json: bool = json_flag()
    source_options: SourceOptions = source_bundle()


def run(options: Options) -> None:
    """Prints the report of the change."""
    from closedform.analysis.resuming import resume

    if options.output is not None:
        if options.output.suffix != ".onnx":
            raise UsageError(f"-o must be an .onnx file, got {str(options.output)!r}")
        check_free(options.output, force=options.force)
    resumption = resume(
        _schedule(options.name, options.words, options.source_options),
        options.at,
        _schedule(*split_name(options.new), options.source_options) if options.new else None,
        total=options.total,
        batch_sizes=_pair(options.batch_sizes),
        scaling=options.scaling,
        is_continuous=not options.jump,
    )
    print_result(resumption, as_json=options.as_json)
    if options.output is not None:
        import closedform as cf

        with output_folder(options.output.parent):
            cf.to_onnx(resumption.schedule, options.output)


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
