"""The page "how to add an optimizer", followed literally in a copy of the repository."""

from pathlib import Path

import pytest

from closedform import optimizers
from tests import test_library
from tests.support.pages import ROOT, apply, commands, copy, edits, run, write_new_files

PAGE = ROOT / "docs" / "how_to_add_an_optimizer.md"
FOLDERS = ("src/closedform", "docs", "tools", "tests/support")
FILES = ("pyproject.toml", "tests/conftest.py", "tests/test_library.py", "tests/test_gallery.py")


def test_following_the_page_adds_the_optimizer(tmp_path: Path) -> None:
    assert "sign_momentum" not in optimizers.__all__
    text = PAGE.read_text(encoding="utf-8")
    copy(tmp_path, FOLDERS, FILES)
    (tmp_path / "tests" / "optimizers").mkdir()
    assert len(write_new_files(text, tmp_path)) == 2
    assert len(edits(text)) == 3
    for block in edits(text):
        apply(block, tmp_path)
    done = [run(command, tmp_path) for command in commands(text)]
    assert len(done) == 4
    for result in done:
        assert result.returncode == 0, f"{result.args}\n{result.stdout}{result.stderr}"
    assert "2 passed" in done[0].stdout
    assert "3 passed" in done[1].stdout
    assert "1 passed" in done[2].stdout
    assert done[3].stdout.startswith("optimizer: sign_momentum\n")


def test_a_row_left_out_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimizers, "__all__", [*optimizers.__all__, "sign_momentum"])
    with pytest.raises(AssertionError):
        test_library.test_every_entry_of_the_library_is_here()
