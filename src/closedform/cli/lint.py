"""``closedform lint``: faults of recipes, found before the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from closedform.cli.arguments import SourceOptions, json_flag, source_bundle
from closedform.cli.output import heading, print_json, table
from closedform.cli.parser import UsageError, argument, command, flag, option, positive

if TYPE_CHECKING:
    pass

FAULTY = 1
"""Exit code if a finding is as grave as ``--fail-on``."""

HELP = """\
Check each RECIPE before the run: a config file, or a name with its arguments in quotes.

Every update of the run is evaluated: a warmup or decay that does not end, updates without effect,
jumps, rates outside of the config's own limits, groups and numbers of the config without effect,
lengths in other units, known defects of the framework. --rules lists the rules.

A comment `closedform: ignore RULE` in a config leaves a rule out there. The exit code is 1 if a
finding is as grave as --fail-on.

example:
  closedform lint recipe.yaml --facts world_size=8
"""


@command
class Options:
    """The options of ``closedform lint``."""

    recipes: list[str] = argument("the recipes", metavar="RECIPE", nargs="*")
    rules: bool = flag("list the rules")
    fail_on: str = option(
        "the least severity that fails (default: error)",
        choices=("warning", "error"),
        default="error",
    )
    ignore: list[str] | None = option(
        "leave a rule out; may be repeated", action="append", metavar="RULE"
    )
    updates: int | None = option("the number of updates of the run", type=positive)
    source_options: SourceOptions = source_bundle()
    as_json: bool = json_flag()


def run(options: Options) -> int:
    """Prints the findings."""
    from closedform.analysis.linting import RULES, Severity, lint
    from closedform.cli.sources import load_curves

    if options.rules:
        table(("rule", "severity", "fault"), [(name, *rule) for name, rule in RULES.items()])
        return 0
    if not options.recipes:
        raise UsageError("give the recipes to check", hint="closedform lint recipe.yaml")
    findings = {
        recipe: lint(
            load_curves(recipe, options.source_options),
            updates=options.updates,
            ignore=options.ignore or (),
        )
        for recipe in options.recipes
    }
    if options.as_json:
        rows_of_all = [(recipe, row) for recipe, rows in findings.items() for row in rows]
        print_json({"findings": [{"recipe": recipe, **row.data()} for recipe, row in rows_of_all]})
    else:
        for recipe, rows in findings.items():
            if len(options.recipes) > 1:
                heading(recipe)
            print("\n".join(map(str, rows)) or "no findings")
    least = Severity(options.fail_on).rank
    is_faulty = any(row.severity.rank >= least for rows in findings.values() for row in rows)
    return FAULTY if is_faulty else 0
