"""``closedform verify``: output, plots and exit codes."""

import json
from pathlib import Path

import onnx
import pytest
from onnx import helper

import closedform as cf
from closedform.cli.verify import summary, weight
from tests.support.commands import CliRunner

CONFIG = Path(__file__).parents[2] / "examples" / "configs" / "gpt3_111m.yaml"
LINEAR = ["linear", "--start", "1", "--end", "0", "--steps", "10"]
BELOW = ["linear", "--start", "1", "--end", "-1", "--steps", "10"]
STAIRS = ["step_decay", "--value", "1", "--gamma", "0.5", "--steps", "10"]


def run(*words: object) -> tuple[int, str]:
    environment = {"COLUMNS": "160", "NO_COLOR": "1"}
    result = CliRunner().invoke([str(word) for word in words], env=environment)
    return result.exit_code, result.stdout + result.stderr


def test_a_schedule_is_proved() -> None:
    code, text = run("verify", *LINEAR)
    assert code == 0
    assert text.startswith("linear\nverdict")
    assert "PROVED   the value is >= 0 and <= 1 " in text
    assert "10 proved, in " in text


def test_a_claim_that_is_refuted_is_exit_code_1() -> None:
    code, text = run("verify", *BELOW)
    assert code == 1
    line = next(line for line in text.splitlines() if line.startswith("REFUTED"))
    assert "the value is never below 0" in line
    assert "t = " in line
    assert "value >= 0, it is -" in line
    assert "9 proved, 1 refuted, in " in text


def test_a_negative_answer_is_not_a_failure() -> None:
    code, text = run("verify", *STAIRS, "--strict")
    assert code == 0
    assert "NO       the value does not jump" in text
    assert "from 1 to 1/2 at step 10" in text
    assert "1 answered no" in text


def test_unknown_is_exit_code_3_if_strict(tmp_path: Path) -> None:
    path = tmp_path / "lr.onnx"
    model = cf.to_onnx(cf.schedules.linear(1, 0, 10), path)
    assert isinstance(model, onnx.ModelProto)
    claims = [{"claim": "best", "verdict": "PROVED", "sentence": "it is best"}]
    helper.set_model_props(model, {"closedform.claims": json.dumps(claims)})
    onnx.save(model, path)
    code, text = run("verify", path)
    assert code == 0
    assert "UNKNOWN  stated in the file: it is best" in text
    assert "1 unknown, in " in text
    assert run("verify", path, "--strict")[0] == 3


def test_a_refutation_outranks_an_unknown(tmp_path: Path) -> None:
    path = tmp_path / "lr.onnx"
    model = cf.to_onnx(cf.schedules.linear(1, -1, 10), path)
    assert isinstance(model, onnx.ModelProto)
    claims = [{"claim": "best", "verdict": "PROVED"}]
    helper.set_model_props(model, {"closedform.claims": json.dumps(claims)})
    onnx.save(model, path)
    assert run("verify", path, "--strict")[0] == 1


def test_exit_codes_of_several_subjects() -> None:
    assert max([0, 3, 1, 0], key=weight) == 1
    assert max([0, 3, 0], key=weight) == 3


def test_claims_of_a_file_are_verified(tmp_path: Path) -> None:
    path = tmp_path / "lr.onnx"
    model = cf.to_onnx(cf.schedules.linear(1, 0, 10), path)
    assert isinstance(model, onnx.ModelProto)
    lie = {"claim": "bounded", "verdict": "PROVED", "arguments": {"high": "1/2"}}
    helper.set_model_props(model, {"closedform.claims": json.dumps([lie])})
    onnx.save(model, path)
    code, text = run("verify", path)
    assert code == 1
    assert "REFUTED  the value is <= 1/2" in text
    assert text.startswith("lr.onnx\n")


def test_claims_are_exported_on_request(tmp_path: Path) -> None:
    for options, states_them in (((), False), (("--claims",), True)):
        path = tmp_path / f"lr{len(options)}.onnx"
        assert run("export", *LINEAR, "-o", path, *options)[0] == 0
        keys = {entry.key for entry in onnx.load(path).metadata_props}
        assert ("closedform.claims" in keys) == states_them
        assert run("verify", path)[0] == 0


def test_all_values_of_the_hyperparameters() -> None:
    code, text = run("verify", *LINEAR, "--symbolic")
    assert code == 0
    assert "the value is >= Min(end, start) and <= Max(end, start)" in text


def test_a_config_and_its_optimizer() -> None:
    code, text = run("verify", CONFIG)
    assert code == 0
    assert text.startswith("lr: ")
    assert "optimizer: " in text
    assert "every step is finite" in text


def test_an_optimizer_alone() -> None:
    code, text = run("verify", "adam")
    assert code == 0
    assert "PROVED   state.exp_avg_sq >= 0 before every step" in text


def test_a_class_of_a_framework() -> None:
    words = "torch:OneCycleLR --max-lr 1 --total-steps 10 --anneal-strategy linear --base-value 1"
    code, text = run("verify", *words.split())
    assert code == 1
    assert "the value is never below 0" in text


def test_counterexamples_are_plotted(tmp_path: Path) -> None:
    path = tmp_path / "lr.svg"
    code, text = run("verify", *BELOW, "-o", path)
    assert code == 1
    assert text.endswith(f"{path}\n")
    image = path.read_text()
    assert image.startswith("<?xml")
    plain = tmp_path / "plain.svg"
    run("plot", *BELOW, "-o", plain)
    assert "#c62f3b" in image
    assert "#c62f3b" not in plain.read_text()


def test_a_counterexample_binds_hyperparameters(tmp_path: Path) -> None:
    path = tmp_path / "lr.svg"
    assert run("verify", *STAIRS, "--symbolic", "-o", path)[0] == 0
    assert path.exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["adam", "-o", "x.png"], "there is no schedule to plot: omit -o"),
        (
            [*LINEAR, "--symbolic", "-o", "x.png"],
            "end has no value to plot with: omit -o or --symbolic",
        ),
        (["lr.onnx", "--start", "3"], "an .onnx file takes no --start"),
        ([*LINEAR, "--against", "linear"], "--against is for an .onnx file, got 'linear'"),
    ],
)
def test_invalid_requests(words: list[str], message: str) -> None:
    code, text = run("verify", *words)
    assert code == 2
    assert message in " ".join(text.replace("│", " ").split())


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    code, text = run("verify", tmp_path / "none.onnx")
    assert code == 4
    assert text.startswith("error: ")
    assert "none.onnx" in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["no_such_schedule"], "the library has no schedule or optimizer 'no_such_schedule'"),
        ([*LINEAR, "--stop", "3"], "unknown argument --stop"),
        (["no_such.py:lr"], "cannot read 'no_such.py'"),
    ],
)
def test_a_wrong_name_or_argument_is_exit_code_2(words: list[str], message: str) -> None:
    code, text = run("verify", *words)
    assert code == 2
    assert message in text


def test_what_cannot_be_read_is_exit_code_4(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    assert run("verify", path)[0] == 4
    path.write_text("{")
    assert run("verify", path)[0] == 4


def test_verdicts_as_json() -> None:
    code, text = run("verify", *BELOW, "--json")
    (found,) = json.loads(text)
    assert (code, found["exit_code"], found["subject"]) == (1, 1, "linear")
    verdicts = [row["verdict"] for row in found["rows"]]
    assert (verdicts.count("PROVED"), verdicts.count("REFUTED")) == (9, 1)
    (refuted,) = (row for row in found["rows"] if row["verdict"] == "REFUTED")
    assert refuted["claim"] == "the value is never below 0"
    assert int(refuted["counterexample"]["t"]) > 5


@pytest.mark.parametrize(
    ("against", "status", "code"),
    [("steps 10", "PROVED", 0), ("steps 11", "REFUTED", 1), ("adamw", "a schedule, and", 2)],
)
def test_a_file_beside_its_source(tmp_path: Path, against: str, status: str, code: int) -> None:
    path = tmp_path / "lr.onnx"
    cf.to_onnx(cf.schedules.linear(1, 0, 10), path)
    is_rule = against == "adamw"
    source = against if is_rule else f"linear --start 1 --end 0 --{against}"
    found, text = run("verify", path, "--against", source)
    assert found == code
    if not is_rule:
        assert f"{status:<7}  the file is 'linear'" in text
        is_open = "stated, not checked: the file says PROVED" in text
        assert is_open == (status == "REFUTED")
    assert status in text


def test_a_source_in_a_python_file_and_a_file_of_a_rule(tmp_path: Path) -> None:
    source = tmp_path / "mine.py"
    source.write_text(
        "import closedform as cf\nrule = cf.optimizers.adamw(cf.schedules.linear(1, 0, 10))\n"
    )
    cf.to_onnx(cf.optimizers.adamw(cf.schedules.linear(1, 0, 10)), tmp_path, params={"w": (2, 3)})
    for name in ("step", "init"):
        report = cf.verify_file(tmp_path / f"{name}.onnx", against=f"{source}:rule")
        verdicts = {row.name: row.verdict for row in report.rows}
        assert verdicts.pop("translation") == "PROVED", report
        assert verdicts.pop("capturable", "none") == {"step": "PROVED", "init": "none"}[name]
        assert set(verdicts.values()) <= {"STATED"}  # about floats
    report = cf.verify_file(tmp_path / "step.onnx")
    assert {row.verdict for row in report.rows} == {"PROVED", "STATED", "UNKNOWN"}
    assert report.rows[-1].detail == "name its rule: --against adamw"


def test_summary_of_nothing() -> None:
    assert summary((), 0.0) == "no claims, in 0.00 s"
