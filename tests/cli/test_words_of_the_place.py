"""Errors name an argument in Python, and the option that it is in a terminal."""

import ast
import re
from pathlib import Path

import pytest

import closedform as cf
from closedform.cli.wording import in_terminal
from closedform.errors import ConfigError
from tests.support.commands import CliRunner

RECIPES = Path(__file__).parents[2] / "src" / "closedform" / "recipes"
ARGUMENT = re.compile(r"\b(framework|facts|files|paths)=['\"{\w…]")
CONFIG = """
train:
  optim: {name: adamw, lr: 1e-3, weight_decay: 0.1}
  sched: {name: cosine, warmup: 100, min_lr: 1e-5}
  steps: 1000
"""
FUNCTIONS = "import math\n\ndef rate(step):\n    return 0.1 * math.exp(-step)\n"


def hints() -> list[str]:
    """The texts of hints in the readers that name an argument of Python."""
    texts = []
    for path in sorted(RECIPES.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.keyword) and node.arg == "hint":
                parts = [
                    str(part.value) if isinstance(part, ast.Constant) else "'x'"
                    for part in ast.walk(node.value)
                    if isinstance(part, ast.Constant | ast.FormattedValue)
                ]
                text = "".join(parts)
                if ARGUMENT.search(text):
                    texts.append(text)
    return texts


def test_no_argument_of_python_is_named_in_a_terminal() -> None:
    assert len(hints()) > 3
    for hint in hints():
        worded = in_terminal(hint)
        assert not ARGUMENT.search(worded), worded
        assert "load_recipe(" not in worded, worded


def run(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(words, env={"COLUMNS": "100", "NO_COLOR": "1"})
    return result.exit_code, result.stderr


def test_an_unknown_config_names_its_keys(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(CONFIG)
    with pytest.raises(ConfigError) as raised:
        cf.load_recipe(path)
    code, line = run("show", str(path))
    assert code == 4
    for text in (str(raised.value), line):
        assert "it has train.optim.lr, train.optim.weight_decay, train.sched.warmup" in text
        # A framework that comes near, and a key that speaks against it.
        assert re.search(r"near are [\w.\-]+ \(has lr, .*; not ", text)
    # The nearest one overlaps by names only: it would read other keys than these.
    assert "reads it so" not in line
    assert line.index("--generic reads the keys by their names") < line.index("near are")
    assert "framework=" not in line


def test_a_python_file_is_a_config_or_names_its_functions(tmp_path: Path) -> None:
    path = tmp_path / "lr.py"
    path.write_text(FUNCTIONS)
    for command in ("show", "plot", "verify", "resume"):
        words = [command, str(path), *(["--at", "3"] if command == "resume" else [])]
        code, line = run(*words)
        assert code == 4, line
        assert f"a function of the file is a schedule as well: {path}:rate" in line
    config = tmp_path / "step.py"
    config.write_text(
        "optim_wrapper = dict(optimizer=dict(type='SGD', lr=0.5))\n"
        "param_scheduler = [dict(type='MultiStepLR', by_epoch=False, milestones=[3], gamma=0.5)]\n"
        "train_cfg = dict(type='IterBasedTrainLoop', max_iters=9)\n"
    )
    assert run("show", str(config)) == (0, "")


def test_a_module_that_is_missing_is_named(tmp_path: Path) -> None:
    path = tmp_path / "registry.py"
    path.write_text("import nosuchpackage.parts\n\ndef rate(step):\n    return 0.1\n")
    code, line = run("show", f"{path}:rate")
    assert code == 2
    assert "install nosuchpackage" in line
    assert "__main__" not in line


def test_files_of_an_inherited_config_are_an_option(tmp_path: Path) -> None:
    path = tmp_path / "child.py"
    path.write_text(
        "_base_ = ['base.py']\n"
        "optim_wrapper = dict(optimizer=dict(type='SGD', lr=0.1))\n"
        "param_scheduler = [dict(type='MultiStepLR', milestones=[3])]\n"
    )
    code, line = run("show", str(path))
    assert code == 4
    assert "--files DIRECTORY" in line
    assert "load_recipe" not in line


def test_missing_facts_name_the_option(tmp_path: Path) -> None:
    path = tmp_path / "args.yaml"
    path.write_text("learning_rate: 1e-4\nlr_scheduler_type: cosine\nnum_train_epochs: 2\n")
    _, line = run("show", str(path))
    assert "missing facts: total_updates" in line
    assert "give --facts total_updates=VALUE" in line


def test_a_detected_framework_is_named_in_its_errors(tmp_path: Path) -> None:
    arguments = {"learning_rate": 1e-4, "lr_scheduler_type": "cosine", "warmup_stepz": 3}
    with pytest.raises(ConfigError, match=r"unknown key .*; the config was taken for transformers"):
        cf.load_recipe({**arguments, "max_steps": 9})
    with pytest.raises(ConfigError, match="unknown key") as raised:
        cf.load_recipe({**arguments, "max_steps": 9}, framework="transformers")
    assert "was taken for" not in str(raised.value)
