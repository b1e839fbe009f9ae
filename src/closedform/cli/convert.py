"""``closedform convert``: a config as that of another framework, with a verdict."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from closedform.cli.arguments import (
    FILES_HELP,
    SourceOptions,
    add_generic,
    generic_options,
    parse_facts,
)
from closedform.cli.parser import Parser, UsageError, positive

if TYPE_CHECKING:
    from closedform.analysis.writing import Written

_HELP = """\
Convert a config to that of another framework: exact (proved), exact until, nearest.

The config is read back by the framework's own semantics and compared. The verdict goes to standard
error; the exit code is 1 if the conversion is impossible.

example:
  closedform convert train.yaml --to megatron -o train.args
"""


def parser(prog: str) -> Parser:
    """Returns the parser of the command."""
    command = Parser(prog, _HELP)
    command.add_argument(
        "source", help="a config of a framework, or FILE.py:FUNCTION, which is imported"
    )
    command.add_argument("--to", required=True, help="the framework to write the config for")
    command.add_argument(
        "--from",
        "--framework",
        dest="framework",
        help="the framework of the config; recognized if not given",
    )
    command.add_argument(
        "--facts",
        action="append",
        metavar="NAME=VALUE",
        help="a number of the run, as in --facts global_batch_size=512",
    )
    command.add_argument("--files", type=Path, help=FILES_HELP)
    add_generic(command)
    command.add_argument(
        "--total", type=positive, help="the updates of the run, if the config has none"
    )
    command.add_argument(
        "--as",
        dest="kind",
        choices=("config", "table", "extension"),
        default="config",
        help="config; table, the values of the run as CSV; or extension, Python source with the "
        "closed form for the framework's extension point",
    )
    command.add_argument(
        "-o", "--output", type=Path, help="the file to write (default: standard output)"
    )
    command.add_argument("--force", action="store_true", help="overwrite the file")
    return command


def run(
    *,
    source: str,
    to: str,
    framework: str | None,
    facts: list[str] | None,
    files: Path | None,
    generic: bool,
    map: list[str] | None,
    total: int | None,
    kind: str,
    output: Path | None,
    force: bool,
) -> int:
    """Writes the config of another framework."""
    from closedform.analysis.writing import Verdict, check_target, write_recipe
    from closedform.cli.output import check_free, note_line, write_output
    from closedform.cli.sources import load_source
    from closedform.language import Schedule
    from closedform.recipes.recipe import Recipe, recipe_of

    check_target(to, kind)
    framework_name, paths = generic_options(framework, map, is_generic=generic)
    options = SourceOptions(
        framework=framework_name, facts=parse_facts(facts), files=files, paths=paths
    )
    subject = load_source(source, (), options)
    if isinstance(subject, Schedule):
        subject = recipe_of(subject, source, total)
    if not isinstance(subject, Recipe):
        raise UsageError(f"{source} is an optimizer", hint="name a config or a schedule")
    recipe = subject
    conversion = write_recipe(recipe, to, total, kind)
    print(_verdict(conversion), file=sys.stderr)
    for note, text in recipe.notes.items():
        note_line(f"{note}: {text}")
    if conversion.verdict is Verdict.IMPOSSIBLE:
        return 1
    if output is None:
        print(conversion.text, end="")
        return 0
    check_free(output, force=force)
    write_output(output, conversion.text)
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
