"""The pages "how to add …", followed in a copy, leave every suite of what they change green.

The tests of the single pages run the commands of the page. What a page forgets fails here: a total
table without its row, a golden text, a page that is written from the code.
"""

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.pages import ROOT, apply, commands, copy, edits, run, write_new_files

FOLDERS = ("src/closedform", "tests", "docs", "tools", "examples", "benchmarks")
FILES = ("pyproject.toml", "README.md", "CHANGELOG.md", "Makefile", "mkdocs.yml")
SUITES: Mapping[str, tuple[str, ...]] = {
    "a_back_end": ("tests/exporters", "tests/ir", "tests/test_library.py"),
    "a_framework": ("tests/frameworks", "tests/recipes", "tests/test_frameworks_page.py"),
    "a_schedule": ("tests/schedules", "tests/test_library.py", "tests/test_gallery.py"),
    "an_op": ("tests/ir", "tests/exporters", "tests/properties", "tests/verify/certificates"),
    "an_optimizer": ("tests/optimizers", "tests/test_library.py", "tests/test_gallery.py"),
}
"""The tests of the code that a page changes, by the name of the page."""


def page(name: str) -> str:
    return (ROOT / "docs" / f"how_to_add_{name}.md").read_text(encoding="utf-8")


def follow(name: str, folder: Path) -> None:
    """Copies the repository and changes the copy as a page says, with the commands of the page."""
    text = page(name)
    copy(folder, FOLDERS, FILES)
    write_new_files(text, folder)
    for block in edits(text):
        apply(block, folder)
    for command in commands(text):
        result = run(command, folder)
        assert result.returncode == 0, f"{command}\n{result.stdout[-3000:]}{result.stderr[-3000:]}"


def test_every_page_has_suites() -> None:
    pages = {path.stem for path in (ROOT / "docs").glob("how_to_add_*.md")}
    assert pages == {f"how_to_add_{name}" for name in SUITES}
    assert all((ROOT / suite).exists() for suites in SUITES.values() for suite in suites)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", SUITES)
def test_following_a_page_leaves_its_suites_green(name: str, tmp_path: Path) -> None:
    follow(name, tmp_path)
    # A machine with other load needs a multiple of the minutes that an idle one needs.
    result = run(f"python -m pytest -q {' '.join(SUITES[name])}", tmp_path, limit=3600)
    assert result.returncode == 0, result.stdout[-4000:]
