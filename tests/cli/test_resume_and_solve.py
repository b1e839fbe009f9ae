"""``closedform resume`` and ``closedform solve``; lengths in units; ``--files``."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

import closedform as cf
from closedform import schedules
from tests.support.commands import CliRunner

COSINE = ("cosine", "--start", "3e-4", "--end", "0", "--steps", "1000")


def run(*words: object, code: int = 0) -> str:
    result = CliRunner().invoke([*map(str, words)])
    assert result.exit_code == code, result.output
    return result.output


def test_a_new_total_without_a_jump(tmp_path: Path) -> None:
    path = tmp_path / "lr.onnx"
    output = run("resume", *COSINE, "--at", 600, "--total", 1500, "-o", path)
    assert "no jump there: PROVED; unchanged before it: PROVED" in output
    assert "length: 1000 -> 1500" in output
    session = cf.ScheduleSession(path)
    assert session(1050) == pytest.approx(3e-4 * (1 + math.cos(math.pi * 0.8)) / 2, rel=1e-12)


def test_a_schedule_that_follows_and_its_jump() -> None:
    new = "linear --start 1 --end 0 --steps 100"
    found = json.loads(run("resume", *COSINE, "--at", 500, "--new", new, "--json"))
    assert (found["continuity"], found["new_length"]) == ("PROVED", 600)
    assert found["factor"] == pytest.approx(1.5e-4, rel=1e-12)
    found = json.loads(run("resume", *COSINE, "--at", 500, "--new", new, "--jump", "--json"))
    assert (found["continuity"], found["after"], found["factor"]) == ("REFUTED", 1.0, 1.0)


def test_a_batch_size_of_a_config(tmp_path: Path) -> None:
    config = tmp_path / "trainer.yaml"
    config.write_text("learning_rate: 1e-3\nper_device_train_batch_size: 1\n", encoding="utf-8")
    words = ("--facts", "total_steps=100", "--at", 20, "--batch-sizes", "256,512", "--json")
    found = json.loads(run("resume", config, *words))
    assert (found["new_length"], found["before"], found["continuity"]) == (60, 0.0008, "PROVED")


def test_solve_for_a_number_of_steps() -> None:
    assert "steps = 1332, the nearest" in run("solve", *COSINE, "--for", "steps", "--area", 0.2)
    found = json.loads(run("solve", *COSINE, "--for", "steps", "--area", 0.2, "--json"))
    assert (found["low"], found["high"], found["is_exact"]) == (1332, 1333, False)
    values = [float(np.sum(schedules.cosine(3e-4, 0, n)(range(n)))) for n in (1332, 1333)]
    # Sums of 1,333 float64 values of one sign: at most as many half ulps.
    assert [found["at_low"], found["at_high"]] == pytest.approx(values, rel=1333 * 2**-53)


def test_solve_for_a_value() -> None:
    line = ("linear", "--start", 1, "--end", 0, "--steps", 100)
    wanted = ("--value", 0.5, "--at", 20)
    assert run("solve", *line, "--for", "start", *wanted) == "start = 5/8, exactly\n"
    power = ("polynomial", "--start", 1, "--end", 0, "--steps", 100, "--power", 2)
    output = run("solve", *power, "--for", "power", *wanted, "--range", "1,10")
    assert float(output.split()[2].rstrip(",")) == pytest.approx(math.log(0.5) / math.log(0.8))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("solve", *COSINE, "--for", "steps"), "give either --area or --value"),
        (("solve", *COSINE, "--for", "end", "--value", "1"), "--value and --at are given together"),
        (("solve", *COSINE, "--for", "end", "--area", "x"), "expected a number, got 'x'"),
        (("solve", *COSINE, "--for", "end", "--area", 1, "--range", "7"), "such as 10,1000"),
        (("solve", *COSINE, "--for", "stepz", "--area", 1), "has no hyperparameter 'stepz'"),
        (("resume", *COSINE, "--at", 10), "exactly one of --new, --total and --batch-sizes"),
        (("resume", *COSINE, "--at", 10, "--batch-sizes", "8"), "two numbers such as 256,512"),
        (("resume", *COSINE, "--at", 10, "--total", 20, "-o", "a.txt"), "must be an .onnx file"),
        (("show", *COSINE[:-1], "2e9tokens"), "need the facts global_batch_size, sequence_length"),
        (("show", *COSINE[:-1], "1..2tokens"), "a length begins with a number, got '1..2tokens'"),
        (("show", *COSINE[:-1], "3epochs:up"), "rounding must be one of exact, floor, ceil"),
    ],
)
def test_mistakes(words: tuple[object, ...], message: str) -> None:
    assert message in " ".join(run(*words, code=2).split())


def test_lengths_in_units() -> None:
    facts = ("--facts", "tokens_per_update=4e6 updates_per_epoch=50 total_steps=200")
    for length in ("2.002e9tokens:floor", "10 epochs", "2.5fraction"):
        words = ("show", *COSINE[:-1], length, *facts, "--json")
        data = json.loads(run(*words))["schedules"]["lr"]
        assert data["hyperparameters"]["steps"] == "500", length


def test_files_that_a_config_inherits_from(tmp_path: Path) -> None:
    base = tmp_path / "shared" / "base.py"
    base.parent.mkdir()
    base.write_text(
        "optim_wrapper = dict(optimizer=dict(type='SGD', lr=0.1))\n"
        "train_cfg = dict(type='IterBasedTrainLoop', max_iters=100)\n"
        "param_scheduler = [dict(type='LinearLR', start_factor=1.0, end_factor=0.5, begin=0,"
        " end=10, by_epoch=False)]\n",
        encoding="utf-8",
    )
    config = tmp_path / "config.py"
    config.write_text("_base_ = 'base.py'\n", encoding="utf-8")
    files = ("--files", base.parent)
    shown = json.loads(run("show", config, "--framework", "mmengine", *files, "--json"))
    assert shown["schedules"]["lr"]["values"][0]["value"] == 0.1
    sides = ("--framework-a", "mmengine", "--framework-b", "mmengine")
    assert "PROVED" in run("diff", config, base, *sides, "--files-a", base.parent)
