"""A pytest plugin that checks recipes: ``pytest -p closedform.pytest``.

The option ``closedform_recipes`` of pytest's configuration lists patterns of config files, relative
to its directory; each file is a test, which fails if :func:`closedform.lint` has an error. Further
options: ``closedform_facts`` (lines ``name=value``), ``closedform_ignore`` (rules),
``closedform_fail_on`` (``error`` or ``warning``).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from closedform.analysis.linting import Finding, Severity, lint
from closedform.cli.arguments import parse_facts
from closedform.errors import ClosedFormError


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declares the options of the plugin."""
    parser.addini("closedform_recipes", "patterns of recipes to check", "linelist", [])
    parser.addini("closedform_facts", "facts of the runs, name=value", "linelist", [])
    parser.addini("closedform_ignore", "rules that are left out", "linelist", [])
    parser.addini("closedform_fail_on", "the least severity that fails", "string", "error")


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> RecipeFile | None:
    """Collects a file that matches one of the patterns."""
    config = parent.config
    try:
        path = file_path.relative_to(config.rootpath)
    except ValueError:
        return None
    patterns = config.getini("closedform_recipes")
    if any(path.match(pattern) for pattern in patterns):
        return RecipeFile.from_parent(parent, path=file_path)
    return None


class RecipeFile(pytest.File):
    """A recipe file."""

    def collect(self) -> Iterator[RecipeItem]:
        """Yields its only test."""
        yield RecipeItem.from_parent(self, name="lint")


class FaultyRecipeError(Exception):
    """A recipe has findings."""

    def __init__(self, findings: list[Finding]) -> None:
        self.findings = findings
        super().__init__("\n".join(map(str, findings)))


class RecipeItem(pytest.Item):
    """The check of a recipe."""

    def runtest(self) -> None:
        """Checks the recipe.

        Raises:
            FaultyRecipeError: A finding is as grave as ``closedform_fail_on``.
        """
        config = self.config
        facts = parse_facts(config.getini("closedform_facts"))
        least = Severity(config.getini("closedform_fail_on")).rank
        findings = lint(self.path, facts=facts, ignore=config.getini("closedform_ignore"))
        grave = [finding for finding in findings if finding.severity.rank >= least]
        if grave:
            raise FaultyRecipeError(grave)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> str:
        """Returns the findings, or the error of the file, without a traceback."""
        if isinstance(excinfo.value, FaultyRecipeError | ClosedFormError):
            return str(excinfo.value)
        return str(super().repr_failure(excinfo, style))

    def reportinfo(self) -> tuple[Path, int, str]:
        """Returns the place of the test."""
        return self.path, 0, f"recipe {self.path.name}"
