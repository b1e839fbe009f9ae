"""``closedform lint``: faults of recipes, found before the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from closedform.cli.arguments import SourceOptions, json_flag, source_bundle
from closedform.cli.output import error_line, heading, print_json, table
from closedform.cli.parser import UsageError, argument, command, flag, option, positive
from closedform.cli.wording import in_terminal
from closedform.errors import ClosedFormError, ConflictError

if TYPE_CHECKING:
    from closedform.analysis.linting import Finding

FAULTY = 1
"""Exit code if a finding is as grave as ``--fail-on``."""

HELP = """\
Check each RECIPE before the run: a config file, or a name with its arguments in quotes.

Every update of the run is evaluated: a warmup or decay that does not end, updates without effect,
jumps, rates outside of the config's own limits, groups and numbers of the config without effect,
lengths in other units, known defects of the framework. --rules lists the rules.

A comment `closedform: ignore RULE` in a config leaves a rule out there. The exit code is 1 if a
finding is as grave as --fail-on, 4 or 2 if a recipe cannot be read.

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
    from closedform.analysis.linting import CONFLICT, RULES, Severity, finding_of, lint
    from closedform.cli.application import code_of
    from closedform.cli.sources import load_curves

    if options.rules:
        table(("rule", "severity", "fault"), [(name, *rule) for name, rule in RULES.items()])
        return 0
    if not options.recipes:
        raise UsageError("give the recipes to check", hint="closedform lint recipe.yaml")
    findings: dict[str, list[Finding]] = {}
    errors: dict[str, Exception] = {}
    for recipe in options.recipes:
        try:
            curves = load_curves(recipe, options.source_options)
            findings[recipe] = lint(curves, updates=options.updates, ignore=options.ignore or ())
        except (ClosedFormError, OSError) as error:
            if isinstance(error, ConflictError) and CONFLICT not in (options.ignore or ()):
                findings[recipe] = [finding_of(error, in_terminal)]
                continue
            # One file that cannot be read does not hide the findings of the others.
            if len(options.recipes) == 1:
                raise
            errors[recipe] = error
    rows_of_all = [(recipe, row) for recipe, rows in findings.items() for row in rows]
    if options.as_json:
        data = {"findings": [{"recipe": recipe, **row.data()} for recipe, row in rows_of_all]}
        unread = [{"recipe": recipe, "error": str(error)} for recipe, error in errors.items()]
        print_json(data | ({"errors": unread} if unread else {}))
    else:
        for recipe, rows in findings.items():
            if len(options.recipes) > 1:
                heading(recipe)
            print("\n".join(map(str, rows)) or "no findings")
    for reason in errors.values():
        error_line(reason)
    if len(options.recipes) > 1 and not options.as_json:
        severities = [row.severity for _, row in rows_of_all]
        counts = [f"{severities.count(kind)} {kind}s" for kind in reversed(Severity)]
        print(f"\nof {len(options.recipes)} recipes: {', '.join(counts)}; {len(errors)} not read")
    if errors:
        return max(map(code_of, errors.values()))
    least = Severity(options.fail_on).rank
    return FAULTY if any(row.severity.rank >= least for _, row in rows_of_all) else 0
