"""``closedform convert``: a config as that of another framework, with a verdict."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from closedform.cli.arguments import SourceOptions, config_bundle
from closedform.cli.output import check_free, note_line, write_output
from closedform.cli.parser import UsageError, argument, command, flag, option, positive

if TYPE_CHECKING:
    from closedform.analysis.writing import Written

HELP = """\
Convert a config to that of another framework: exact (proved), exact until, nearest.

The config is read back by the framework's own semantics and compared. The verdict goes to standard
error; the exit code is 1 if the conversion is impossible.

example:
  closedform convert train.yaml --to megatron -o train.args
"""


@command
class Options:
    """The options of ``closedform convert``."""

    source: str = argument("a config of a framework, or FILE.py:FUNCTION, which is imported")
    to: str = option("the framework to write the config for", required=True)
    source_options: SourceOptions = config_bundle(
        framework=option(
            "the framework of the config; recognized if not given", "--from", "--framework"
        ),
        facts="a number of the run, as in --facts global_batch_size=512",
    )
    total: int | None = option("the updates of the run, if the config has none", type=positive)
    kind: str = option(
        "config; table, the values of the run as CSV; or extension, Python source with the "
        "closed form for the framework's extension point",
        "--as",
        choices=("config", "table", "extension"),
        default="config",
    )
    output: Path | None = option("the file to write (default: standard output)", "-o", type=Path)
    force: bool = flag("overwrite the file")


def run(options: Options) -> int:
    """Writes the config of another framework."""
    from closedform.analysis.writing import Verdict, check_target, write_recipe
    from closedform.cli.sources import load_source
    from closedform.language import Schedule
    from closedform.recipes.recipe import Recipe, recipe_of

    check_target(options.to, options.kind)
    subject = load_source(options.source, (), options.source_options)
    if isinstance(subject, Schedule):
        subject = recipe_of(subject, options.source, options.total)
    if not isinstance(subject, Recipe):
        raise UsageError(f"{options.source} is an optimizer", hint="name a config or a schedule")
    conversion = write_recipe(subject, options.to, options.total, options.kind)
    print(_verdict(conversion), file=sys.stderr)
    for note, text in subject.notes.items():
        note_line(f"{note}: {text}")
    if conversion.verdict is Verdict.IMPOSSIBLE:
        return 1
    if options.output is None:
        print(conversion.text, end="")
        return 0
    check_free(options.output, force=options.force)
    write_output(options.output, conversion.text)
    return 0


def _verdict(conversion: Written) -> str:
    lines = [f"{conversion.framework}: {conversion.verdict}"]
    if conversion.until is not None:
        lines[0] += f" update {conversion.until}"
    if conversion.gap is not None:
        lines[0] += (
            f", largest gap {conversion.gap:.3g} of the largest rate, at update {conversion.at}"
        )
    if conversion.why:
        lines.append(f"  {conversion.why}")
    if conversion.facts:
        facts = ", ".join(f"{name}={value}" for name, value in conversion.facts.items())
        lines.append(f"  facts to read it with: {facts}")
    lines += [f"  not written: {part}" for part in conversion.left_out]
    lines += [f"  made by {conversion.framework}: {part}" for part in conversion.added]
    return "\n".join(lines)
