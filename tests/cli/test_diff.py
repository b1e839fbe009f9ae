"""``closedform diff``: its table, JSON, plot, exit codes and sources."""

import json
from pathlib import Path

import pytest

import closedform as cf
from tests.support.commands import CliRunner

LINEAR = "linear --start 1e-3 --end 0 --steps 10"
TRAINER = "learning_rate: 1e-3\nper_device_train_batch_size: 1\n"


def run(*words: object, code: int = 0) -> str:
    result = CliRunner().invoke(["diff", *map(str, words)])
    assert result.exit_code == code, result.output
    return result.output


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "trainer.yaml"
    path.write_text(TRAINER, encoding="utf-8")
    return path


def test_a_config_and_a_schedule(config: Path) -> None:
    output = run(config, LINEAR, "--facts", "total_steps=10")
    assert "PROVED" in output
    assert "only A has weight_decay" in output
    output = run(config, LINEAR, "--facts-a", "total_steps=11", code=1)
    assert "differ" in output


def test_json(config: Path) -> None:
    cosine = "cosine --start 1e-3 --end 0 --steps 10"
    found = json.loads(run(config, cosine, "--facts", "total_steps=10", "--json", code=1))
    (curve,) = found["curves"]
    assert (found["verdict"], curve["first_step"], curve["at"]) == ("REFUTED", 1, 2)
    assert found["only_in_a"] == ["weight_decay", "lr of no_decay", "weight_decay of no_decay"]


def test_onnx_python_and_log(config: Path, tmp_path: Path) -> None:
    cf.to_onnx(cf.schedules.linear(1e-3, 0, 10), tmp_path / "lr.onnx")
    (tmp_path / "train.py").write_text("def get_lr(t):\n    return 1e-3 * (1 - t / 10)\n")
    (tmp_path / "log.csv").write_text("step,lr\n1,1e-3\n2,9e-4\n")
    assert "PROVED" in run(tmp_path / "lr.onnx", LINEAR)
    assert "PROVED" in run(f"{tmp_path / 'train.py'}:get_lr", LINEAR, "--until", 10)
    assert "digits" in run(tmp_path / "log.csv", LINEAR, "--log-offset", 1)
    assert "read with an offset of 1" in " ".join(run(tmp_path / "log.csv", LINEAR).split())
    asked = run(tmp_path / "log.csv", LINEAR, "--log-offset", 0, code=1)
    assert "agrees with an offset of 1" in " ".join(asked.split())


def test_plot(config: Path, tmp_path: Path) -> None:
    target = tmp_path / "gap.svg"
    run(config, LINEAR, "--facts", "total_steps=12", "--plot", target, code=1)
    assert target.read_text(encoding="utf-8").startswith("<?xml")


def test_framework_and_version(config: Path) -> None:
    run(config, LINEAR, "--framework-a", "transformers@4.57.1", "--facts", "total_steps=10")
    facts = ("--facts", "total_steps=10 warmup_steps=0")
    assert "PROVED" in run(config, config, *facts, "--key", "lr", "--framework-b", "llama-factory")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--facts", "total_steps"), "expected name=value, got 'total_steps'"),
        (("--facts", "total_step=3"), "unknown fact 'total_step': did you mean 'total_steps'?"),
        (("--key", "momentum", "--facts", "total_steps=3"), "do not share 'momentum'"),
        ((), "missing facts: total_updates"),
    ],
)
def test_is_refused(words: tuple[str, ...], message: str, config: Path) -> None:
    output = " ".join(run(config, LINEAR, *words, code=2).replace("│", " ").split())
    assert message in output


def test_an_optimizer_has_no_curve() -> None:
    assert "adamw is an optimizer, not a schedule" in run("adamw", LINEAR, code=2)
