"""The page "how to add a back end", followed literally in a copy of the repository."""

import re
from pathlib import Path

from tests.support.pages import ROOT, apply, commands, copy, edits, run, write_new_files

PAGE = ROOT / "docs" / "how_to_add_a_back_end.md"
FOLDERS = ("src/closedform", "tests/support", "tests/exporters")
FILES = ("pyproject.toml", "tests/conftest.py", "tests/test_library.py")


def test_following_the_page_adds_the_back_end(tmp_path: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    copy(tmp_path, FOLDERS, FILES)
    assert write_new_files(text, tmp_path) == ["src/closedform/exporters/array_ops.py"]
    for block in edits(text):
        apply(block, tmp_path)
    for command, least in zip(commands(text), (200, 3), strict=True):
        ran = run(command, tmp_path)
        assert ran.returncode == 0, f"{ran.stdout}{ran.stderr}"
        assert int(re.findall(r"(\d+) passed", ran.stdout)[0]) >= least, ran.stdout


def test_every_file_that_the_page_names_exists() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for path in re.findall(r"`((?:ir|exporters)/\w+\.py)`", text):
        assert (ROOT / "src" / "closedform" / path).exists(), path
