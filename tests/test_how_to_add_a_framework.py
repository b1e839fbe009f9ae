"""The page "how to add a framework", followed literally in a copy of the repository."""

import re
from pathlib import Path

from closedform import frameworks
from tests.support.pages import ROOT, apply, commands, copy, edits, run, write_new_files

PAGE = ROOT / "docs" / "how_to_add_a_framework.md"
FOLDERS = ("src/closedform", "tests/support")
FILES = ("pyproject.toml", "tests/conftest.py")


def test_following_the_page_adds_the_framework(tmp_path: Path) -> None:
    assert "modded-nanogpt" not in frameworks.FRAMEWORKS
    text = PAGE.read_text(encoding="utf-8")
    copy(tmp_path, FOLDERS, FILES)
    for folder in ("src/closedform/recipes/modded_nanogpt", "tests/recipes"):
        (tmp_path / folder).mkdir()
    assert len(write_new_files(text, tmp_path)) == 3
    assert len(edits(text)) == 1
    for block in edits(text):
        apply(block, tmp_path)
    done = [run(command, tmp_path) for command in commands(text)]
    assert len(done) == 1
    assert done[0].returncode == 0, f"{done[0].stdout}{done[0].stderr}"
    assert re.search(r"\b1 passed", done[0].stdout)
