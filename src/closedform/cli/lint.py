"""``closedform lint``: faults of recipes, found before the run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from closedform.cli.arguments import SourceOptions, add_json, add_source_options, split_name
from closedform.cli.parser import Parser, UsageError, positive

if TYPE_CHECKING:
    from closedform.analysis.linting import Finding

FAULTY = 1
"""Exit code if a finding is as grave as ``--fail-on``."""

_HELP = """\
Check each RECIPE before the run: a config file, or a name with its arguments in quotes.

Every update of the run is evaluated: a warmup or decay that does not end, updates without effect,
jumps, rates outside of the config's own limits, groups and numbers of the config without effect,
lengths in other units, known defects of the framework. --rules lists the rules.

A comment `closedform: ignore RULE` in a config leaves a rule out there. The exit code is 1 if a
finding is as grave as --fail-on.

example:
  closedform lint recipe.yaml --facts world_size=8
"""


def parser(prog: str) -> Parser:
    """Returns the parser of the command."""
    command = Parser(prog, _HELP)
    command.add_argument("recipes", metavar="RECIPE", nargs="*", help="the recipes")
    command.add_argument("--rules", action="store_true", help="list the rules")
    command.add_argument(
        "--fail-on",
        choices=("warning", "error"),
        default="error",
        help="the least severity that fails (default: error)",
    )
    command.add_argument(
        "--ignore", action="append", metavar="RULE", help="leave a rule out; may be repeated"
    )
    command.add_argument("--updates", type=positive, help="the number of updates of the run")
    add_source_options(command)
    add_json(command)
    return command


def run(
    *,
    recipes: list[str],
    rules: bool,
    fail_on: str,
    ignore: list[str] | None,
    updates: int | None,
    options: SourceOptions,
    as_json: bool,
) -> int:
    """Prints the findings."""
    from closedform.analysis.linting import RULES, Severity, lint
    from closedform.cli.output import heading, table

    if rules:
        table(("rule", "severity", "fault"), [(name, *rule) for name, rule in RULES.items()])
        return 0
    if not recipes:
        raise UsageError("give the recipes to check", hint="closedform lint recipe.yaml")
    findings = {
        recipe: lint(_source(recipe, options), updates=updates, ignore=ignore or ())
        for recipe in recipes
    }
    if as_json:
        plain = [_plain(recipe, row) for recipe, rows in findings.items() for row in rows]
        print(json.dumps({"findings": plain}, indent=1, ensure_ascii=False))
    else:
        for recipe, rows in findings.items():
            if len(recipes) > 1:
                heading(recipe)
            print("\n".join(map(str, rows)) or "no findings")
    least = Severity(fail_on).rank
    is_faulty = any(row.severity.rank >= least for rows in findings.values() for row in rows)
    return FAULTY if is_faulty else 0


def _source(recipe: str, options: SourceOptions) -> Any:
    from closedform.cli.sources import load_source
    from closedform.language import UpdateRule

    # A path may hold spaces, as those that pre-commit passes.
    name, words = (recipe, []) if Path(recipe).is_file() else split_name(recipe)
    source = load_source(name, words, options)
    if isinstance(source, UpdateRule):
        raise UsageError(f"{name} is an optimizer", hint="name a config or a schedule")
    return source


def _plain(recipe: str, finding: Finding) -> dict[str, Any]:
    return {"recipe": recipe, **finding.plain()}
