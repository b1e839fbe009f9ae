"""Output for programs and plain terminals: JSON, lines, ASCII, files, completion, exit codes."""

import io
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import onnx
import pytest

import closedform as cf
from closedform.cli import output
from closedform.cli.application import COMMANDS
from tests.support.commands import CliRunner, Result

LINEAR = ["linear", "--start", "1", "--end", "0", "--steps", "10"]


def invoke(*words: object) -> Result:
    return CliRunner().invoke([str(word) for word in words])


def found(*words: object, code: int = 0) -> str:
    result = invoke(*words)
    assert result.exit_code == code, result.output
    return result.stdout


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "lr.onnx"
    cf.to_onnx(cf.schedules.linear(1, 0, 10), path)
    return path


def test_a_row_is_one_line() -> None:
    (line,) = [each for each in found("list").splitlines() if " cosine_annealing " in each]
    assert "torch:CosineAnnealingLR" in line
    assert "keras:" in line or "cerebras:CosineAnnealingLR" in line


def test_list_as_json() -> None:
    data = json.loads(found("list", "--json"))
    assert {e["name"] for e in data["optimizers"]} == set(cf.optimizers.__all__)
    (entry,) = [each for each in data["schedules"] if each["name"] == "warm_restarts"]
    assert entry["frameworks"]["torch"] == ["CosineAnnealingWarmRestarts"]
    torch = json.loads(found("list", "torch", "--json"))
    (step,) = [each for each in torch["schedulers"] if each["name"] == "StepLR"]
    assert step["arguments"]["gamma"] == "0.1"
    assert step["arguments"]["step_size"] is None


def test_list_of_the_frameworks() -> None:
    data = {
        entry["framework"]: entry for entry in json.loads(found("list", "--frameworks", "--json"))
    }
    assert set(data) == set(cf.frameworks.FRAMEWORKS)
    assert data["nanotron"]["repository"] == "https://github.com/huggingface/nanotron"
    assert (data["nanotron"]["configs"], data["keras"]["configs"]) == ("read and written", "")
    (line,) = [each for each in found("list", "--frameworks").splitlines() if "nanoGPT" in each]
    assert line.split() == ["nanogpt", "frozen", data["nanogpt"]["repository"], "3adf61e154c3"]


def test_show_as_json() -> None:
    data = json.loads(found("show", *LINEAR, "--json"))["schedules"]["lr"]
    assert data["hyperparameters"] == {"start": "1", "end": "0", "steps": "10"}
    assert {"step": 9, "value": 0.1, "remark": ""} in data["values"]
    rule = json.loads(found("show", "sgd", "--lr", "0.5", "--json"))["optimizer"]
    assert (rule["name"], rule["hyperparameters"]["lr"]) == ("sgd", "1/2")


def test_onnx_files_are_read_by_all_commands(model: Path, tmp_path: Path) -> None:
    assert "start = 1" in found("show", model) or "10" in found("show", model)
    assert json.loads(found("show", model, "--json"))["schedules"]["lr"]["values"]
    assert "┤" in found("plot", model)
    assert found("plot", model, "-o", tmp_path / "lr.png") == f"{tmp_path / 'lr.png'}\n"


def test_files_are_not_overwritten(model: Path, tmp_path: Path) -> None:
    before = model.read_bytes()
    words = ["export", *LINEAR[:-1], "20", "-o", model]
    result = invoke(*words)
    assert (result.exit_code, model.read_bytes()) == (2, before)
    assert result.stderr == f"error: the file '{model}' exists: add --force to overwrite it\n"
    found(*words, "--force")
    assert model.read_bytes() != before
    for command in (
        ["plot", *LINEAR, "-o", tmp_path / "lr.png"],
        ["run", model, "-o", tmp_path / "lr.csv"],
        ["diff", model, model, "--plot", tmp_path / "gap.png"],
        ["verify", *LINEAR, "-o", tmp_path / "proved.png"],
    ):
        found(*command)
        assert invoke(*command).exit_code == 2
        found(*command, "--force")


def test_a_log_without_steps_has_no_plot(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text(f"step,lr\n{'9' * 400},0.1\n1e99999999999,0.1\n", encoding="utf-8")
    result = invoke("plot", log)
    assert result.exit_code == 2
    assert "no row of the log has a whole number in step and a number in lr" in result.stderr


def test_the_path_of_a_file_does_not_become_a_folder(tmp_path: Path) -> None:
    words = ["export", "sgd", "--lr", "0.5", "--params", "w=3", "-o", tmp_path / "c.txt"]
    result = invoke(*words)
    assert (result.exit_code, list(tmp_path.iterdir())) == (2, [])
    assert "error: -o is a folder, or a file .onnx (one schedule)" in result.stderr
    result = invoke("export", *LINEAR, "-o", tmp_path / "lr.txt")
    assert f"got '{tmp_path / 'lr.txt'}'" in result.stderr
    found("export", *LINEAR, "-o", tmp_path / "run-0.1")
    assert (tmp_path / "run-0.1" / "schedule.onnx").is_file()


def test_dtypes_of_an_export(tmp_path: Path) -> None:
    path = tmp_path / "lr.onnx"
    found("export", *LINEAR, "-o", path, "--scalar-dtype", "f32", "--step-dtype", "i32")
    step = onnx.load(path).graph.input[0].type.tensor_type.elem_type
    assert step == onnx.TensorProto.INT32
    words = ["--lr", "0.5", "--params", "w=3", "--step-dtype", "i32"]
    found("export", "sgd", *words, "-o", tmp_path / "rule")
    session = cf.OptimizerSession.from_files(tmp_path / "rule", {"w": np.zeros(3, np.float32)})
    session.step({"w": np.ones(3, np.float32)})
    assert session.params["w"].tolist() == [-0.5, -0.5, -0.5]


def test_facts_of_a_config(tmp_path: Path) -> None:
    path = tmp_path / "trainer.yaml"
    path.write_text("learning_rate: 1e-3\nper_device_train_batch_size: 1\n", encoding="utf-8")
    facts = ["--facts", "total_steps=10", "--framework", "transformers"]
    for command in ("show", "plot"):
        assert "0.001" in found(command, path, *facts)
        assert invoke(command, path).exit_code in (2, 4)


def test_exit_codes(tmp_path: Path, model: Path) -> None:
    (tmp_path / "log.csv").write_text("step,lr\n0,1\n1,0.9\n", encoding="utf-8")
    (tmp_path / "broken.yaml").write_text("{", encoding="utf-8")
    linear = " ".join(LINEAR)
    for code, words in (
        (0, ["diff", model, linear]),
        (1, ["diff", model, "cosine --start 1 --end 0 --steps 10"]),
        (2, ["diff", model, "cosin"]),
        (2, ["diff", model, "cosine 'a"]),
        (0, ["diff", tmp_path / "log.csv", linear]),
        (3, ["diff", tmp_path / "log.csv", linear, "--strict"]),
        (4, ["diff", model, tmp_path / "broken.yaml"]),
        (4, ["show", tmp_path / "none.onnx"]),
        (2, ["show", "linear", "--start", "1", "--end", "0", "--steps", "0"]),
    ):
        assert (words, invoke(*words).exit_code) == (words, code)


def in_ascii(*words: object) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "closedform", *map(str, words)],
        env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"},
        capture_output=True,
        check=True,
    )
    return done.stdout.decode("ascii")


def test_a_terminal_of_ascii() -> None:
    lines = in_ascii("plot", *LINEAR).splitlines()
    assert lines[1].startswith("1 +*")
    assert lines[-2].strip("+- ") == ""
    milestones = ",".join(str(10 * step) for step in range(1, 40))
    words = ["--value", "1", "--gamma", "0.5", "--milestones", milestones]
    assert "... and " in in_ascii("show", "multi_step", *words)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell: str, tmp_path: Path) -> None:
    script = found("completion", shell)
    for command in COMMANDS:
        assert command in script
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"needs {shell}, to read the script")
    path = tmp_path / "script"
    path.write_text(script, encoding="utf-8")
    subprocess.run([program, "-n", str(path)], check=True)


def test_bash_completes_commands_options_and_names(tmp_path: Path) -> None:
    path = tmp_path / "script"
    path.write_text(found("completion", "bash"), encoding="utf-8")

    def completed(*words: str) -> list[str]:
        line = " ".join(f"'{word}'" for word in words)
        code = (
            f"source {path}; COMP_WORDS=(closedform {line}); COMP_CWORD={len(words)}; "
            '_closedform; printf "%s\\n" "${COMPREPLY[@]}"'
        )
        done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True)
        return done.stdout.split()

    assert completed("sh") == ["show"]
    assert completed("show", "cosine_a") == ["cosine_annealing"]
    assert completed("diff", "--framework-") == ["--framework-a", "--framework-b"]
    assert completed("list", "llama") == ["llama-factory"]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command(command: str) -> None:
    result = invoke(command, "--help")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith(f"usage: closedform {command}")
    assert all(len(line) <= 100 for line in result.stdout.splitlines())


class Screen(io.StringIO):
    """A stream that is a terminal, or is none."""

    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__()
        self.is_terminal = is_terminal

    def isatty(self) -> bool:
        return self.is_terminal


@pytest.mark.parametrize("is_terminal", [True, False])
def test_long_work_is_shown_on_a_terminal_only(
    monkeypatch: pytest.MonkeyPatch, *, is_terminal: bool
) -> None:
    screen = Screen(is_terminal=is_terminal)
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(sys, "stdout", screen)
    with output.working("closedform verify"):
        threading.Event().wait(2.5)
        print("PROVED")
    shown = "\r\x1b[Kclosedform verify … 2 s\r\x1b[K" if is_terminal else ""
    assert screen.getvalue() == f"{shown}PROVED\n"
    assert sys.stdout is screen


def test_short_work_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen(is_terminal=True)
    monkeypatch.setattr(sys, "stderr", screen)
    with output.working("run"):
        pass
    assert screen.getvalue() == ""


def test_a_long_line_is_folded_between_words_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    text = "  next param = " + " + ".join(["weight_decay"] * 8)
    output.print_folded(text)
    assert capsys.readouterr().out == f"{text}\n"
    screen = Screen(is_terminal=True)
    monkeypatch.setattr(sys, "stdout", screen)
    output.print_folded(text)
    lines = screen.getvalue().splitlines()
    assert max(map(len, lines)) <= 40
    assert " ".join(" ".join(lines).split()) == " ".join(text.split())


@pytest.mark.skipif(os.name != "posix", reason="a shell of Windows closes no stream")
@pytest.mark.parametrize(
    ("redirection", "message"),
    [(">&-", "error: cannot write to the standard output: it is closed"), (">&- 2>&-", "")],
)
def test_a_closed_output_is_an_error(redirection: str, message: str) -> None:
    command = f"'{sys.executable}' -m closedform list {redirection}"
    result = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert result.returncode == 4
    assert result.stderr.strip() == message
