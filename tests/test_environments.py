"""Outcomes of the tests in other environments: read, stored, and their skips fixed."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.environments import (
    ENVIRONMENTS,
    Environment,
    Outcome,
    new_skips,
    parts,
    read,
    read_summary,
    state_of,
    store,
)
from tests.support.inputs import ROOT

ORIGIN = {"commit": "0" * 12, "inputs": "1"}
SUMMARY = """\
..s [100%]
SKIPPED [2] tests/conftest.py:103: needs the extra torch
SKIPPED [1] tests/exporters/test_mlx.py:21: could not import 'mlx.core': No module named 'mlx'
SKIPPED [2] tests/conftest.py:145: needs the extra torch
SKIPPED [1] tests/conftest.py:145: needs the extra torch in tests/torch/test_fused.py
2 failed, 70 passed, 6 skipped, 4 deselected, 1 error in 8.21s
"""


def test_a_summary_of_pytest_is_read() -> None:
    outcome = read_summary(SUMMARY, ORIGIN)
    assert (outcome.passed, outcome.failed) == (70, 3)
    assert outcome.skips == {
        "needs the extra torch": 5,
        "could not import 'mlx.core': No module named 'mlx'": 1,
    }
    nothing = read_summary("no tests ran in 0.1s", ORIGIN)
    assert (nothing.passed, nothing.failed) == (0, 0)


@pytest.mark.parametrize("text", ["", "..s [ 50%]"])
def test_a_run_that_was_killed_has_failed(text: str) -> None:
    assert read_summary(text, ORIGIN).failed == 1


@pytest.mark.parametrize(
    ("skips", "growth"),
    [
        ({"a": 2}, {}),
        ({"a": 1}, {}),
        ({}, {}),
        ({"a": 3}, {"a": 1}),
        ({"a": 2, "b": 1}, {"b": 1}),
    ],
)
def test_more_skips_are_found(skips: dict[str, int], growth: dict[str, int]) -> None:
    stored = Outcome(**ORIGIN, passed=1, failed=0, skips={"a": 2})
    assert new_skips(Outcome(**ORIGIN, passed=1, failed=0, skips=skips), stored) == growth
    assert new_skips(Outcome(**ORIGIN, passed=1, failed=0, skips=skips), None) == {}


def test_outcomes_are_stored_by_environment_and_part(tmp_path: Path) -> None:
    path = tmp_path / "environments.json"
    assert read(path) == {}
    failed = read_summary(SUMMARY, ORIGIN)
    outcome = replace(failed, failed=0)
    store("core", "tests/a", outcome, path)
    store("core", "tests/b", outcome, path)
    store("lowest", "tests/a", outcome, path)
    assert read(path) == {
        "core": {"tests/a": outcome, "tests/b": outcome},
        "lowest": {"tests/a": outcome},
    }
    store("core", "tests/a", failed, path)
    assert read(path) == {"core": {"tests/b": outcome}, "lowest": {"tests/a": outcome}}


@pytest.mark.parametrize(
    ("line", "is_read"),
    [
        ('"numpy>=1"', True),
        ('\n    "numpy>=2", # the first with a stable ABI\n', False),
        ('"numpy>=2"]\n[tool.ruff]\nsrc = ["src"', False),
        ('"numpy>=2"]\n[project.optional-dependencies]\ntorch = ["torch"', True),
    ],
)
def test_an_environment_is_of_what_pip_reads(tmp_path: Path, line: str, is_read: bool) -> None:
    project, constraints = tmp_path / "pyproject.toml", tmp_path / "constraints.txt"
    environment = Environment("core", ("-e", "."), constraints.name)
    constraints.write_text("numpy==2.0\n")
    project.write_text('[project]\ndependencies = ["numpy>=2"]')
    state = state_of(environment, tmp_path)
    project.write_text(f"[project]\ndependencies = [{line}]")
    assert (state_of(environment, tmp_path) != state) == is_read


def test_an_environment_is_of_its_constraints(tmp_path: Path) -> None:
    constraints = tmp_path / "constraints.txt"
    environment = Environment("core", ("-e", "."), constraints.name)
    (tmp_path / "pyproject.toml").write_text('[project]\ndependencies = ["numpy>=2"]')
    constraints.write_text("numpy==2.0\n")
    state = state_of(environment, tmp_path)
    constraints.write_text("numpy==2.1\n")
    assert state_of(environment, tmp_path) != state
    others = replace(environment, requirements=("-e", ".[dev]"))
    assert state_of(others, tmp_path) != state_of(environment, tmp_path)


def test_the_parts_are_all_tests_once() -> None:
    files = [file for part in parts() for file in ROOT.glob(part)]
    found = {
        test for file in files for test in (file.rglob("test_*.py") if file.is_dir() else [file])
    }
    assert found == set((ROOT / "tests").rglob("test_*.py"))
    assert len(files) == len(set(files))


def test_stored_parts_exist_and_none_has_failed() -> None:
    results = read()
    assert set(results) <= set(ENVIRONMENTS)
    for outcomes in results.values():
        assert set(outcomes) <= set(parts())
        assert all(outcome.failed == 0 for outcome in outcomes.values())
