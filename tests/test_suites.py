"""The table of `make compare`, and the stored results of its suites."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import suites
from tests.support.inputs import ROOT, digest
from tests.support.suites import (
    SUITES,
    Records,
    State,
    Suite,
    command_of,
    comparisons,
    main,
    run,
    selected,
)

NAMES = [suite.name for suite in SUITES]


def test_every_comparison_is_in_one_suite() -> None:
    files = [file for suite in SUITES for file in suite.files if "compare_" in file]
    paths = [path.relative_to(ROOT).as_posix() for path in ROOT.glob("tests/**/compare_*.py")]
    assert sorted(files) == sorted(paths)
    assert len(set(NAMES)) == len(NAMES)


@pytest.mark.parametrize(
    ("mark", "is_compared", "variables"),
    [
        ("", False, {}),
        ("pytestmark = pytest.mark.filterwarnings('ignore')", False, {}),
        ("pytestmark = pytest.mark.packages()", True, {}),
        ("pytestmark = [a, pytest.mark.packages(A='1', B='x')]", True, {"A": "1", "B": "x"}),
    ],
)
def test_a_comparison_says_its_title_and_its_environment(
    tmp_path: Path, mark: str, is_compared: bool, variables: dict[str, str]
) -> None:
    path = tmp_path / "tests" / "a" / "compare_two_words.py"
    path.parent.mkdir(parents=True)
    path.write_text(f'"""Words beside words.\n\nMore.\n"""\n\n{mark}\n', encoding="utf-8")
    assert comparisons((), tmp_path) == (
        Suite(
            "a/two_words",
            "Words beside words",
            ("tests/a/compare_two_words.py",),
            is_compared=is_compared,
            variables=variables,
        ),
    )
    special = Suite("b", "", ("tests/a/compare_two_words.py::test_a",))
    assert comparisons((special,), tmp_path) == ()


@pytest.mark.parametrize("suite", SUITES, ids=NAMES)
def test_the_files_of_a_suite_exist(suite: Suite) -> None:
    assert suite.files
    for name in (*suite.inputs(), *(word for word in suite.afterwards if word.endswith(".py"))):
        assert (ROOT / name).exists(), name


def repository(folder: Path) -> Path:
    """A repository with one suite, `tests/a/compare_a.py`, its helper and one file of src."""
    files = ["src/closedform/a.py", "tests/support/b.py", "tests/a/compare_a.py", "tests/a/help.py"]
    for name in (*files, "tests/a/test_a.py", "tests/conftest.py", "constraints.txt"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x = 1\n", encoding="utf-8")
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    for words in (["init", "-q"], ["add", "-A"], [*identity, "commit", "-qm", "first"]):
        subprocess.run(["git", *words], cwd=folder, check=True)
    return folder


SUITE = Suite("a", "a claim", ("tests/a/compare_a.py",))


@pytest.mark.parametrize(
    ("file", "state"),
    [
        ("src/closedform/a.py", State.STALE),
        ("tests/support/b.py", State.STALE),
        ("tests/a/compare_a.py", State.STALE),
        ("tests/a/help.py", State.STALE),
        ("constraints.txt", State.STALE),
        ("tests/a/test_a.py", State.FRESH),
        ("README.md", State.FRESH),
    ],
)
def test_a_result_is_stale_where_an_input_changes(tmp_path: Path, file: str, state: State) -> None:
    root = repository(tmp_path / "root")
    records = Records(tmp_path / "suites.json", root)
    assert records.state(SUITE) is State.NEVER_RUN
    assert records.lines([SUITE]) == ["never run a"]
    records.write(SUITE, records.origin(SUITE), has_passed=True, counts="3 passed")
    assert records.state(SUITE) is State.FRESH
    (root / file).write_text("x = 2\n", encoding="utf-8")
    assert records.state(SUITE) is state
    head = subprocess.run(
        ["git", "rev-parse", "--short=12", "HEAD"], cwd=root, capture_output=True, text=True
    ).stdout.strip()
    changed = " (1 inputs changed since)" if state is State.STALE else ""
    assert records.lines([SUITE]) == [f"{state:9} a{' ' * 20}{head} 3 passed{changed}"]


def test_a_failed_suite_stays_failed_until_it_passes(tmp_path: Path) -> None:
    root = repository(tmp_path / "root")
    records = Records(tmp_path / "suites.json", root)
    records.write(SUITE, records.origin(SUITE), has_passed=False, counts="1 failed")
    assert records.state(SUITE) is State.FAILED
    assert records.lines([SUITE])[0].startswith("failed")
    records.write(SUITE, records.origin(SUITE), has_passed=True, counts="1 passed")
    assert records.state(SUITE) is State.FRESH


def test_results_of_other_suites_and_histories_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "suites.json"
    records = Records(path, repository(tmp_path / "root"))
    path.write_text(
        json.dumps({"a": {"commit": "0" * 12, "inputs": "", "has_passed": True, "counts": ""}}),
        encoding="utf-8",
    )
    assert records.lines([SUITE]) == [f"stale     a{' ' * 20}{'0' * 12}"]
    other = Suite("b", "", ("tests/a/test_a.py",))
    records.write(other, records.origin(other), has_passed=True, counts="")
    assert set(records.read()) == {"a", "b"}


@pytest.mark.parametrize(
    ("body", "counts"), [("assert True", "1 passed"), ("assert False", "1 failed")]
)
def test_the_outcome_of_pytest_is_stored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], body: str, counts: str
) -> None:
    file = tmp_path / "test_planted.py"
    file.write_text(f"def test_planted():\n    {body}\n", encoding="utf-8")
    root = repository(tmp_path / "root")
    records = Records(tmp_path / "suites.json", root)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(file)]
    assert run(SUITE, command, records) is (counts == "1 passed")
    record = records.read()["a"]
    assert (record.counts, record.has_passed) == (counts, counts == "1 passed")
    assert record.inputs == digest(SUITE.inputs(root), root=root)
    assert capsys.readouterr().out.startswith("== a: a claim\n")


def test_a_file_that_changes_during_a_run_makes_the_result_stale(tmp_path: Path) -> None:
    root = repository(tmp_path / "root")
    records = Records(tmp_path / "suites.json", root)
    edit = f"open({str(root / 'constraints.txt')!r}, 'w').write('x = 3'); print('1 passed')"
    assert run(SUITE, [sys.executable, "-c", edit], records)
    assert records.state(SUITE) is State.STALE


def test_a_page_that_cannot_be_written_fails_the_suite(tmp_path: Path) -> None:
    root = repository(tmp_path / "root")
    records = Records(tmp_path / "suites.json", root)
    suite = Suite("a", "", SUITE.arguments, afterwards=("-c", "raise SystemExit(3)"))
    assert not run(suite, [sys.executable, "-c", "print('2 passed in 0.1s')"], records)
    assert records.state(suite) is State.FAILED


def test_a_run_goes_on_with_what_is_not_fresh(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = Records(tmp_path / "suites.json", repository(tmp_path / "root"))
    other = Suite("b", "", SUITE.arguments)
    monkeypatch.setattr(suites, "SUITES", (SUITE, other, Suite("c", "", (), is_default=False)))
    records.write(SUITE, records.origin(SUITE), has_passed=True, counts="")
    assert selected([], records) == [other]
    assert selected(["a"], records) == [SUITE]
    with pytest.raises(SystemExit, match="there is no suite 'd'; known are a, b, c"):
        selected(["d"], records)


def test_the_command_names_the_environment() -> None:
    main_suite, compared = SUITES[0], SUITES[1]
    assert command_of(main_suite, 4)[:8] == [
        sys.executable, "-m", "pytest", "-q", "-n", "4", "--dist", "loadfile",
    ]  # fmt: skip
    assert command_of(compared, 4)[0] == str(ROOT / ".venv-compare/bin/python")


def test_the_status_lists_every_suite(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(SUITES)
    assert {line.split()[0] for line in lines} <= {state.split()[0] for state in State}


def test_a_suite_whose_program_is_missing_is_skipped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    suite = Suite("a", "", (), program="no-such-program")
    monkeypatch.setattr(suites, "SUITES", (suite,))
    assert main(["run", "a"]) == 0
    assert capsys.readouterr().out == "== a: skipped, no-such-program is not installed\n"
