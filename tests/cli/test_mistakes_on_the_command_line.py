"""Mistakes on the command line: each is one error, which says what to write.

Example: ``--facts a=1 b=2`` is read as ``--facts a=1 --facts b=2``, as the help shows it.
"""

import io
import sys
from pathlib import Path

import pytest

from tests.support.commands import CliRunner

CONFIG = "learning_rate: 1e-3\nlr_scheduler_type: cosine\nmax_steps: 100\n"


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "run.yaml"
    path.write_text(CONFIG)
    return str(path)


def run(*words: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(words, env={"COLUMNS": "100", "NO_COLOR": "1"})
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.parametrize("command", ["show", "lint", "plot"])
@pytest.mark.parametrize("facts", [["world_size=8", "dataset_size=50000"], ["world_size=8"]])
def test_several_facts_follow_one_option(command: str, facts: list[str], config: str) -> None:
    joined = run(command, config, "--facts", *facts)
    assert joined == run(command, config, *(word for fact in facts for word in ("--facts", fact)))
    assert joined[0] == 0, joined[2]


def test_facts_come_before_the_name_and_commas_are_an_error(config: str) -> None:
    assert run("lint", "--facts", "world_size=8", "dataset_size=50", config)[0] == 0
    code, _, error = run("lint", config, "--facts", "world_size=8,dataset_size=50")
    assert (code, "put spaces between facts" in error) == (2, True)


@pytest.mark.parametrize("position", [0, 1, 2])
def test_a_file_that_cannot_be_read_hides_no_finding(position: int, tmp_path: Path) -> None:
    names = [str(tmp_path / f"{name}.yaml") for name in ("a", "b")]
    for name in names:
        Path(name).write_text(CONFIG)
    empty = tmp_path / "empty.yaml"
    empty.write_text("")
    names.insert(position, str(empty))
    code, out, error = run("lint", *names)
    assert code == 4
    assert error.count("the file is empty") == 1
    assert out.count("cosine rises again after the run") == 2
    assert "of 3 recipes: 0 errors, 0 warnings, 2 notes; 1 not read" in out


TEXTS = {
    "net.cfg": "[net]\nlearning_rate=0.001\n",
    "solver.prototxt": "base_lr: 0.01\nmax_iter: 100\n",
    "run.txt": "python train.py --lr 0.1 --epochs 3\n",
    "run.config": '{"lr": 0.1, "num_steps": 10}',
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_file_with_an_unknown_ending_is_looked_at(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(TEXTS[name])
    code, _, error = run("show", str(path))
    assert code == 4
    assert "--generic" in error
    assert "the library has no" not in error
    path.write_text("some words\n")
    assert "the text is not a config" in run("show", str(path))[2]
    assert "is a folder: name a config in it" in run("show", str(tmp_path))[2]


def test_a_config_comes_from_a_pipe(config: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(CONFIG.encode())))
    code, out, error = run("show", "-")
    assert code == 0, error
    assert out.partition("\n")[2] == run("show", config)[1].partition("\n")[2]


def test_an_unknown_key_is_an_error(config: str) -> None:
    code, _, error = run("show", config, "--key", "foo")
    assert (code, "select one with --key: lr, weight_decay" in error) == (2, True)
    words = ("show", "torch:OneCycleLR", "--max-lr", "0.1", "--total-steps", "100", "--key")
    assert run(*words, "momentum")[0] == 0
    assert "has no schedule for 'foo'" in run(*words, "foo")[2]


def test_missing_facts_are_given_by_one_option(tmp_path: Path) -> None:
    path = tmp_path / "args.yaml"
    path.write_text("lr0: 0.01\nlrf: 0.01\nepochs: 10\n")
    assert "give --facts dataset_size=VALUE nc=VALUE" in run("show", str(path))[2]


def test_quoted_source_is_not_rewritten(tmp_path: Path) -> None:
    path = tmp_path / "f.py"
    path.write_text("def lr(step, total=100):\n    return 1e-3 if step < total else None\n")
    assert "`def lr(step, total=100):`" in run("show", f"{path}:lr")[2]


MESSAGES = {
    "show pytorch:StepLR --step-size 3": "there is no framework 'pytorch': did you mean 'torch'?",
    "show transformers:cosine --learning-rate 1e-3 --max-steps 10": (
        "the config must ask for 'cosine', got 'linear' (transformers > cosine): give "
        "lr_scheduler_type='cosine'"
    ),
    "show transformers:constant --lr-scheduler-type polynomial --learning-rate 1 --max-steps 9": (
        "must ask for 'constant', got 'polynomial' (transformers > constant): give "
        "lr_scheduler_type='constant'"
    ),
    "show cosine --start 1 --end 0 --steps 1,000": (
        "steps of cosine must be a number, got list [1, 0]: a comma makes a list: write the number "
        "of --steps without it"
    ),
    "show linear --start 1,5 --end 0 --steps 10": "write the number of --start without it",
    "show torch:StepLR --step-size 3 --base-value 1 --key foo": "has no schedule for 'foo'",
    "watch cosine log.csv --log-epoch 0": "--log-epoch",
}


@pytest.mark.parametrize("line", MESSAGES)
def test_a_message_says_what_to_write(line: str) -> None:
    code, _, error = run(*line.split())
    assert code == 2
    assert MESSAGES[line] in error


def test_a_class_of_cerebras_schedules_any_key() -> None:
    words = ["cerebras:CosineDecayLR", "--initial-learning-rate", "1", "--end-learning-rate", "0"]
    assert run("show", *words, "--total-iters", "9", "--key", "anything")[0] == 0
