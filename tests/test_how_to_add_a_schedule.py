"""The page "how to add a schedule", followed literally in a copy of the repository."""

import re
from pathlib import Path

import pytest

from closedform import schedules
from tests.schedules import test_every_schedule
from tests.support.pages import ROOT, apply, commands, copy, edits, run, write_new_files

PAGE = ROOT / "docs" / "how_to_add_a_schedule.md"
FOLDERS = (
    "src/closedform",
    "docs",
    "tools",
    "tests/support",
    "tests/schedules",
    "tests/golden/library",
)
FILES = ("pyproject.toml", "tests/conftest.py", "tests/test_gallery.py", "tests/test_library.py")


def test_following_the_page_adds_the_schedule(tmp_path: Path) -> None:
    assert "square_root_cooldown" not in schedules.__all__
    text = PAGE.read_text(encoding="utf-8")
    copy(tmp_path, FOLDERS, FILES)
    write_new_files(text, tmp_path)
    assert len(edits(text)) == 4
    for block in edits(text):
        apply(block, tmp_path)
    done = [run(command, tmp_path) for command in commands(text)]
    assert len(done) == 5
    for result in done:
        assert result.returncode == 0, f"{result.args}\n{result.stdout}{result.stderr}"
    assert re.search(r"\d+ passed", done[2].stdout)
    assert "failed" not in done[2].stdout
    assert done[4].stdout.startswith("square_root_cooldown\n")
    card = (tmp_path / "docs" / "gallery.md").read_text(encoding="utf-8")
    assert "## square_root_cooldown\n\nA fall from `start` to 0" in card
    assert (tmp_path / "docs" / "gallery" / "square_root_cooldown.svg").exists()


def test_a_row_left_out_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedules, "__all__", [*schedules.__all__, "square_root_cooldown"])
    with pytest.raises(AssertionError):
        test_every_schedule.test_every_schedule_has_a_row_and_an_example()


def test_an_edit_that_no_longer_fits_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n", encoding="utf-8")
    with pytest.raises(AssertionError, match="holds 0 times"):
        apply("--- a.py\n x = 2\n+y = 3\n", tmp_path)
