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
"""


def parser(prog: str) -> Parser:
    """Returns the parser of the command."""
    found = Parser(prog, _HELP)
    found.add_argument(
        "source", help="a config of a framework, or FILE.py:FUNCTION, which is imported"
    )
    found.add_argument("--to", required=True, help="the framework to write the config for")
    found.add_argument(
        "--from",
        "--framework",
        dest="framework",
        help="the framework of the config; recognized if not given",
    )
    found.add_argument(
        "--facts",
        action="append",
        metavar="NAME=VALUE",
        help="a number of the run, as in --facts global_batch_size=512",
    )
    found.add_argument("--files", type=Path, help=FILES_HELP)
    add_generic(found)
    found.add_argument(
        "--total", type=positive, help="the updates of the run, if the config has none"
    )
    found.add_argument(
        "--as",
        dest="kind",
        choices=("config", "table", "extension"),
        default="config",
        help="config; table, the values of the run as CSV; or extension, Python source with the "
        "closed form for the framework's extension point",
    )
    found.add_argument(
        "-o", "--output", type=Path, help="the file to write (default: standard output)"
    )
    found.add_argument("--force", action="store_true", help="overwrite the file")
    return found


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
    from closedform.analysis.writing import Verdict, write_recipe
    from closedform.cli.output import check_free, note_line
    from closedform.cli.sources import load_source
    from closedform.language import Schedule
    from closedform.recipes.recipe import Recipe, recipe_of

    chosen, paths = generic_options(framework, map, is_generic=generic)
    options = SourceOptions(framework=chosen, facts=parse_facts(facts), files=files, paths=paths)
    loaded = load_source(source, (), options)
    if isinstance(loaded, Schedule):
        loaded = recipe_of(loaded, source, total)
    if not isinstance(loaded, Recipe):
        raise UsageError(f"{source} is an optimizer", hint="name a config or a schedule")
    recipe = loaded
    written = write_recipe(recipe, to, total, kind)
    print(_verdict(written), file=sys.stderr)
    for note, text in recipe.notes.items():
        note_line(f"{note}: {text}")
    if written.verdict is Verdict.IMPOSSIBLE:
        return 1
    if output is None:
        print(written.text, end="")
        return 0
    check_free(output, force=force)
    output.write_text(written.text, encoding="utf-8")
    return 0


def _verdict(written: Written) -> str:
    lines = [f"{written.framework}: {written.verdict}"]
    if written.until is not None:
        lines[0] += f" update {written.until}"
    if written.gap is not None:
        lines[0] += f", largest gap {written.gap:.3g} of the largest rate, at update {written.at}"
    if written.why:
        lines.append(f"  {written.why}")
    if written.facts:
        used = ", ".join(f"{name}={value}" for name, value in written.facts.items())
        lines.append(f"  facts to read it with: {used}")
    lines += [f"  not written: {what}" for what in written.left_out]
    lines += [f"  made by {written.framework}: {what}" for what in written.added]
    return "\n".join(lines)
