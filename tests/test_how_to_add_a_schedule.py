"""The page "how to add a schedule", followed literally in a copy of the repository."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from closedform import schedules
from tests.schedules import test_every_schedule

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "how_to_add_a_schedule.md"
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NEW_FILE = re.compile(r"new file `([^`]+)`:\n\n```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# What the commands of the page read; the reference values are left where they are.
COPIED = ("src/closedform", "docs", "tests/support", "tests/schedules", "tests/golden/library")
FILES = ("pyproject.toml", "tests/conftest.py", "tests/test_gallery.py", "tests/test_library.py")


def copy(folder: Path) -> None:
    for name in COPIED:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in FILES:
        shutil.copy(ROOT / name, folder / name)


def apply(text: str, folder: Path) -> None:
    """Changes one file by a block: lines with a space stand there, those with + are new."""
    first, *lines = text.splitlines()
    path = folder / first.removeprefix("--- ")
    assert first.startswith("--- "), text
    assert all(line[0] in " +" for line in lines), text
    old = "".join(f"{line[1:]}\n" for line in lines if line[0] == " ")
    content = path.read_text(encoding="utf-8")
    assert content.count(old) == 1, f"{path} holds {content.count(old)} times:\n{old}"
    new = "".join(f"{line[1:]}\n" for line in lines)
    path.write_text(content.replace(old, new), encoding="utf-8")


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    program, *words = shlex.split(command)
    assert program == "python", command
    environment = {**os.environ, "PYTHONPATH": str(folder / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True
    )


def commands(text: str) -> list[str]:
    blocks = [block for language, block in FENCE.findall(text) if language == "text"]
    return [line.removeprefix("$ ") for block in blocks for line in block.splitlines()]


def test_following_the_page_adds_the_schedule(tmp_path: Path) -> None:
    assert "square_root_cooldown" not in schedules.__all__
    text = PAGE.read_text(encoding="utf-8")
    copy(tmp_path)
    for name, content in NEW_FILE.findall(text):
        (tmp_path / name).write_text(content, encoding="utf-8")
    edits = [block for language, block in FENCE.findall(text) if language == "diff"]
    assert len(edits) == 4
    for block in edits:
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
