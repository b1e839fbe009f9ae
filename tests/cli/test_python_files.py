"""Functions of a user's Python file as subjects of the commands."""

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from tests.support.commands import CliRunner

TRAIN = """
import math
from dataclasses import dataclass

import settings
from closedform import schedules

linear = schedules.linear(1, 0, 10)
WORDS = "no function"


@dataclass
class Config:
    warmup: int = 10


def get_lr(step, peak=1.0, warmup=Config().warmup, shape="cosine"):
    if step < warmup:
        return peak * step / warmup
    if shape == "constant":
        return peak
    return peak * 0.5 * (1 + math.cos(math.pi * min(1.0, (step - warmup) / settings.DECAY)))


def drawn(step):
    import random
    return random.random()


if __name__ == "__main__":
    raise RuntimeError("training begins")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "settings.py").write_text("DECAY = 90\n")
    (tmp_path / "broken.py").write_text("rate = 1 / 0\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words: str) -> Any:
    return CliRunner().invoke(words, env={"COLUMNS": "100", "NO_COLOR": "1"})


def test_a_function_is_exported(folder: Path) -> None:
    result = run("export", "train.py:get_lr", "--peak", "0.5", "-o", "lr.onnx")
    assert result.exit_code == 0, result.stderr
    assert "note: importing train.py, which runs its code" in result.stderr
    assert "get_lr: 2 paths, compared at" in result.stderr
    session = onnxruntime.InferenceSession(folder / "lr.onnx")
    values = [float(session.run(None, {"step": np.array(step)})[0]) for step in (0, 5, 10, 55, 100)]
    # Up to 0.5, rounded some five times.
    assert values == pytest.approx([0.0, 0.25, 0.5, 0.25, 0.0], abs=1e-15)


def test_a_parameter_is_an_input(folder: Path) -> None:
    result = run("export", "train.py:get_lr", "--input", "warmup", "-o", "lr.onnx")
    assert result.exit_code == 0, result.stderr
    session = onnxruntime.InferenceSession(folder / "lr.onnx")
    feeds = [{"step": np.array(5)}, {"step": np.array(5), "warmup": np.array(20)}]
    assert [float(session.run(None, feed)[0]) for feed in feeds] == [0.5, 0.25]


def test_other_arguments_are_those_of_the_function(folder: Path) -> None:
    result = run("show", "train.py:get_lr", "--shape", "constant", "--warmup", "4")
    assert result.exit_code == 0, result.stderr
    assert "cos" not in result.stdout


def test_a_schedule_of_a_file(folder: Path) -> None:
    result = run("show", "train.py:linear")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith("linear\n")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("train.py:get_l", "train.py has no 'get_l': did you mean 'get_lr'?"),
        ("absent.py:get_lr", "cannot read 'absent.py': give the path of a Python file"),
        ("broken.py:rate", "broken.py cannot be imported: ZeroDivisionError: division by zero"),
        ("train.py:WORDS", "a schedule is read from a function of the step, got str"),
        ("train.py:drawn", "random.random draws random numbers (train.py, line "),
    ],
)
def test_errors(folder: Path, name: str, message: str) -> None:
    result = run("show", name)
    assert result.exit_code != 0
    assert message in result.stderr
