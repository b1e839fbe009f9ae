"""The page "how to add a pass", followed literally in a copy of the repository."""

import re
from pathlib import Path

from closedform.ir import passes
from tests.support.pages import ROOT, apply, commands, copy, edits, run, write_new_files

PAGE = ROOT / "docs" / "how_to_add_a_pass.md"
FOLDERS = ("src/closedform", "tests/support", "tests/ir", "tests/golden")
FILES = ("pyproject.toml", "tests/conftest.py")


def test_following_the_page_adds_the_pass(tmp_path: Path) -> None:
    assert not hasattr(passes, "Floors")
    text = PAGE.read_text(encoding="utf-8")
    copy(tmp_path, FOLDERS, FILES)
    assert write_new_files(text, tmp_path) == ["src/closedform/ir/passes/floors.py"]
    assert len(edits(text)) == 9
    for block in edits(text):
        apply(block, tmp_path)
    (command,) = commands(text)
    done = run(command, tmp_path)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    assert re.search(r"\b1\d\d passed", done.stdout)
