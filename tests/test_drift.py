"""Pins of frameworks: each is well formed, and a line that moved is found in its repository."""

import subprocess
from pathlib import Path

import pytest

from closedform.frameworks import FRAMEWORKS
from tools import drift
from tools.drift import Pin


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_pins_are_well_formed(name: str) -> None:
    assert [*drift.faults(name)] == []


def test_pins_are_those_of_defects_and_curves() -> None:
    pins = drift.pins("litgpt")
    assert Pin("litgpt/pretrain.py", 486) in pins  # of curves.py
    assert Pin("litgpt/pretrain.py", 341) in pins  # of a defect
    assert Pin("train.py", 239) in drift.pins("nanogpt")  # a line of the file of curves.py
    assert sum(len(drift.pins(other)) for other in FRAMEWORKS) > 250


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("at commit 26857050fe3f", "at commit 36857050fe3f"),
        ("of Lightning-AI/litgpt", "of Lightning-AI/litgpt2"),
        ("at commit", "of commit"),
    ],
)
def test_a_curve_of_another_commit_is_a_fault(
    old: str, new: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [text.replace(old, new) for text in drift.docstrings("litgpt")]
    monkeypatch.setattr(drift, "docstrings", lambda name: texts)
    (fault,) = drift.faults("litgpt")
    assert fault.startswith("litgpt: curves.py follows")


def git(folder: Path, *words: str) -> str:
    names = ["-c", "user.name=n", "-c", "user.email=e@example.org"]
    return subprocess.run(
        ["git", "-C", str(folder), *names, *words], check=True, capture_output=True, text=True
    ).stdout.strip()


def test_lines_that_moved_are_listed(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    files = {name: tmp_path / name for name in ("same.py", "gone.py", "edited.py", "other.py")}
    for file in files.values():
        file.write_text("a = 1\nb = 2\n", encoding="utf-8")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "first")
    commit = git(tmp_path, "rev-parse", "HEAD")[:12]
    files["gone.py"].unlink()
    files["edited.py"].write_text("c = 3\na = 1\n", encoding="utf-8")
    files["other.py"].write_text("a = 1\nb = 2\nc = 3\n", encoding="utf-8")
    git(tmp_path, "commit", "-qam", "second")
    places = [Pin(name, line) for name in files for line in (0, 1, 2)]
    places += [Pin("edited.py", 3), Pin("elsewhere.py", 1)]
    assert [*drift.drift(commit, places, tmp_path)] == [
        *[
            "gone.py  the file is gone",
            "gone.py:1  the file is gone",
            "gone.py:2  the file is gone",
        ],
        *["edited.py  the file changed", "edited.py:1  moved to 2", "edited.py:2  changed or gone"],
        "other.py  the file changed",
        "edited.py:3  the file has 2 lines",
    ]
    assert [*drift.drift("v9", places, tmp_path)] == ["the repository has no v9"]
