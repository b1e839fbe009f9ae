"""The page "how to add a framework", followed literally in a copy of the repository."""

import re
from pathlib import Path

from closedform import frameworks
from tests.support.pages import ROOT, commands, copy, edits, run, write_new_files

PAGE = ROOT / "docs" / "how_to_add_a_framework.md"
FOLDERS = ("src/closedform", "tests", "docs", "tools", "examples", "benchmarks")
FILES = ("pyproject.toml", "README.md", "CHANGELOG.md", "Makefile", "mkdocs.yml")
SUITES = (
    "tests/recipes/test_frameworks.py",
    "tests/recipes/test_listing.py",
    "tests/recipes/test_declarations.py",
)
"""Tests that hold for every framework of the registry; test_how_to_suites.py runs all suites."""


def test_following_the_page_adds_the_framework(tmp_path: Path) -> None:
    assert "modded-nanogpt" not in frameworks.FRAMEWORKS
    text = PAGE.read_text(encoding="utf-8")
    copy(tmp_path, FOLDERS, FILES)
    assert len(write_new_files(text, tmp_path)) == 2
    assert not edits(text)
    pages, values = (run(command, tmp_path) for command in commands(text))
    assert pages.returncode == 0, f"{pages.stdout}{pages.stderr}"
    assert values.returncode == 0, f"{values.stdout}{values.stderr}"
    assert re.search(r"\b1 passed", values.stdout)
    suites = run(f"python -m pytest -q {' '.join(SUITES)}", tmp_path)
    assert suites.returncode == 0, suites.stdout[-3000:]
