"""A linter of recipes: faults of a schedule, found before the run."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

from closedform.analysis.linting.findings import RULES, Finding, Severity
from closedform.analysis.linting.rules import CHECKS, Subject
from closedform.errors import ConfigError, ConflictError, UnknownNameError, nearest
from closedform.language import Schedule
from closedform.magnitude import check_steps
from closedform.recipes import Recipe, load_recipe
from closedform.recipes.clock import ALIASES, Facts
from closedform.recipes.recipe import recipe_of

__all__ = ["CONFLICT", "RULES", "Finding", "Severity", "finding_of", "lint"]

CONFLICT = "refused-by-framework"
"""The rule of a config that its framework refuses."""

_COMMENT = re.compile(r"closedform:\s*ignore\s+([a-z, -]+)")
_TOTALS = {name for name, fact in ALIASES.items() if fact == "total_updates"} | {"total_updates"}

_WITHOUT_HORIZON = 10_000
"""The updates that are looked at where nothing says how long the run is."""


def lint(
    source: Recipe | Schedule | str | PathLike[str] | Mapping[str, Any],
    *,
    framework: str | None = None,
    facts: Mapping[str, Any] | Facts | None = None,
    updates: int | None = None,
    ignore: Iterable[str] = (),
) -> list[Finding]:
    """Returns the faults of a recipe, the gravest first.

    Each branch of a schedule is evaluated at every update, a long one at those that matter, and
    each finding holds the exact values that show it.
    Numbers of the config that have no effect are found by reading it with twice the number. A
    comment ``closedform: ignore RULE`` in the file leaves a rule out.

    Args:
        source: A recipe, a config as :func:`~closedform.load_recipe` reads it, or the schedule of
            a rate in updates.
        framework: The framework of a config; found by its content if not given.
        facts: Numbers of the run that the config does not contain.
        updates: The number of updates of the run, where the recipe does not determine it; the
            length of a schedule, and 10,000 for a recipe, if not given.
        ignore: Rules that are left out.

    Raises:
        ClosedFormError: The config cannot be read, as for ``load_recipe``.
        UnknownNameError: A rule to ignore is unknown.
        LimitError: The run has more updates than a graph counts, 2**50.

    Example:
        >>> import closedform as cf
        >>> warmup = cf.schedules.linear(0, 1e-3, 500).then(cf.schedules.cosine(1e-3, 0, 500))
        >>> for finding in lint(warmup, updates=400):
        ...     print(finding.severity, finding.rule, finding.update)
        error warmup-not-finished 399
    """
    ignored_rules = {*ignore}
    for rule in sorted(ignored_rules):
        if rule not in RULES:
            raise UnknownNameError(f"there is no rule {rule!r}", hint=nearest(rule, RULES))
    if isinstance(source, Schedule):
        length = None if source.length is None else int(source.length)
        recipe = recipe_of(source, source.name, updates or length)
    elif isinstance(source, Recipe):
        recipe = source
    else:
        try:
            recipe = _read(source, framework, facts)
        except ConflictError as error:
            if CONFLICT in ignored_rules:  # nothing of the config can be checked
                raise
            return [finding_of(error)]
    ignored_rules |= _suppressed_rules(recipe)
    run_length = recipe.horizon or updates or _WITHOUT_HORIZON
    check_steps(run_length, "the updates of the run")
    subject = Subject(recipe, run_length)
    findings = [
        finding
        for check in CHECKS
        for finding in check(subject)
        if finding.rule not in ignored_rules
    ]
    # One finding for a fault that several groups show alike.
    distinct: dict[tuple[str, str], Finding] = {}
    for finding in findings:
        distinct.setdefault((finding.rule, finding.message), finding)
    return sorted(distinct.values(), key=lambda finding: (-finding.severity.rank, finding.rule))


def finding_of(error: ConflictError, reword: Callable[[str], str] = str) -> Finding:
    """Returns the finding of a config that its framework refuses: the keys and the file."""
    return Finding(CONFLICT, Severity.ERROR, reword(str(error)), quantity="")


def _read(
    source: str | PathLike[str] | Mapping[str, Any],
    framework: str | None,
    facts: Mapping[str, Any] | Facts | None,
) -> Recipe:
    """The recipe of a config; a length of the run that contradicts it is a fault, not an error."""
    numbers = facts if isinstance(facts, Facts) else Facts.among(facts or {})
    try:
        return load_recipe(source, framework, facts=facts)
    except ConfigError:
        if numbers.total_updates is None:
            raise
        other_facts: Mapping[str, Any] | Facts = (
            replace(facts, total_updates=None)
            if isinstance(facts, Facts)
            else {name: fact for name, fact in (facts or {}).items() if name not in _TOTALS}
        )
        recipe = load_recipe(source, framework, facts=other_facts)
        return replace(recipe, horizon=int(numbers.total_updates))


def _suppressed_rules(recipe: Recipe) -> set[str]:
    """The rules that comments of the config's file leave out."""
    path = Path(recipe.source)
    if recipe.document is None or not path.is_file():
        return set()
    comments = _COMMENT.findall(path.read_text(encoding="utf-8", errors="replace"))
    rules = {name.strip() for names in comments for name in names.split(",")}
    for name in sorted(rules - RULES.keys()):
        raise UnknownNameError(
            f"a comment ignores the rule {name!r}, which does not exist",
            where=recipe.source,
            hint=nearest(name, RULES),
        )
    return rules
