import csv
import io
import json
import shlex
from pathlib import Path

import numpy as np
import onnx
import pytest

import closedform as cf
from closedform.cli.application import COMMANDS, parser_of
from tests.support.commands import CliRunner

EXAMPLES = Path(__file__).parents[2] / "examples"
CONFIG = EXAMPLES / "configs" / "gpt3_111m.yaml"
LINEAR = ["linear", "--start", "1", "--end", "0", "--steps", "10"]


def run(*arguments: object, columns: int = 100) -> str:
    environment = {"COLUMNS": str(columns), "NO_COLOR": "1"}
    result = CliRunner().invoke([str(word) for word in arguments], env=environment)
    assert result.exit_code == 0, result.stderr
    return result.stdout


def rows_of(text: str) -> list[list[str]]:
    """Rows of a printed table: the words of each line below the titles."""
    lines = text.splitlines()
    first = next(at for at, line in enumerate(lines) if line.split()[:2] == ["step", "value"])
    return [line.split() for line in lines[first + 1 :] if line.strip()]


def test_list_names_the_whole_library() -> None:
    text = run("list", columns=200)
    words = text.split()
    for name in (*cf.schedules.__all__, *cf.optimizers.__all__):
        assert name in words
    assert "torch:CosineAnnealingWarmRestarts" in words or (
        "torch:CosineAnnealingWarmRestarts;" in words
    )
    assert "keras:PiecewiseConstantDecay;" in words


def test_list_of_a_framework() -> None:
    text = run("list", "torch")
    rows = [line.split()[:3] for line in text.splitlines()]
    assert ["CosineAnnealingLR", "cosine_annealing", "T_max,"] in rows
    assert ["OneCycleLR", "one_cycle,", "one_cycle_momentum"] in rows
    assert ["AdamW", "lr=0.001,", "betas=(0.9,"] in rows
    assert "cerebras" not in text


def test_show_prints_formula_values_and_hyperparameters() -> None:
    text = run("show", *LINEAR)
    assert text.startswith("linear\n")
    assert "  start = 1\n" in text
    assert rows_of(text) == [
        ["0", "1.0", "start"],
        ["9", "0.1"],
        ["10", "0.0", "boundary,", "end"],
        ["11", "0.0"],
    ]


def test_show_a_class_of_torch() -> None:
    words = "show torch:OneCycleLR --max-lr 0.1 --total-steps 1000"
    text = run(*words.split())
    assert text.startswith("one_cycle\n")
    values = {row[0]: float(row[1]) for row in rows_of(text)}
    assert values["0"] == 0.1 / 25
    assert values["299"] == 0.1
    assert values["300"] < 0.1


def test_a_class_that_depends_on_a_metric(tmp_path: Path) -> None:
    words = ["torch:ReduceLROnPlateau", "--patience", "1", "--factor", "0.5"]
    text = run("show", *words)
    assert text.startswith("optimizer: reduce_on_plateau\nparam <- ")
    assert "  patience = 1\n" in text
    run("export", *words, "-o", tmp_path, "--params", "lr=", "--dtype", "f64")
    session = cf.OptimizerSession.from_files(tmp_path, {"lr": np.array(0.5)})
    for metric, rate in ((2.0, 0.5), (1.0, 0.5), (1.0, 0.5), (1.0, 0.25), (0.5, 0.25)):
        session.step({"lr": np.array(metric)})
        assert session.params["lr"] == rate


def test_until_limits_the_table() -> None:
    assert rows_of(run("show", *LINEAR, "--until", "4")) == [
        ["0", "1.0", "start"],
        ["4", "0.6", "end"],
    ]


def test_show_prints_one_branch_per_line() -> None:
    schedules = [
        {"class": "linear", "kwargs": {"start": 0, "end": 1, "steps": 10}},
        {"class": "constant", "kwargs": {"value": 1}},
    ]
    text = run("show", "sequential", "--schedules", json.dumps(schedules))
    assert "if t < steps\n" in text
    assert "otherwise\n" in text


def test_show_latex() -> None:
    lr = cf.schedules.linear(1, 0, 10)
    assert lr.latex() in run("show", *LINEAR, "--latex")


def test_show_ir_is_the_graph() -> None:
    from closedform.ir.text import print_graph

    assert print_graph(cf.compile(cf.schedules.linear(1, 0, 10))) in run("show", *LINEAR, "--ir")


def test_show_an_optimizer_and_its_graph() -> None:
    text = run("show", "sgd", "--lr", "0.5", "--ir", "--params", "w=2x3")
    assert text.startswith("optimizer: sgd\nparam <- ")
    assert "  lr = 1/2\n" in text
    assert "param.w: f32[2,3] param" in text


def test_show_a_config() -> None:
    text = run("show", CONFIG)
    assert text.startswith("gpt3_111m (cerebras, guessed by trainer.init.optimizer.AdamW.betas)\n")
    assert "\nlr: " in text
    assert "boundary" in text
    assert "\noptimizer: " in run("show", CONFIG, "--all")


def test_plot_in_the_terminal() -> None:
    lines = run("plot", *LINEAR).splitlines()
    assert lines[0] == "linear"
    assert lines[1].startswith("1 ┤")
    assert lines[-1].split() == ["0", "10"]


@pytest.mark.parametrize("columns", [24, 40, 60, 80, 200])
@pytest.mark.parametrize("start", ["3e-4", "-1.2345678e-5"])
def test_a_plot_fits_the_terminal(columns: int, start: str) -> None:
    words = ["plot", "linear", f"--start={start}", "--end", "1.2345678e-9", "--steps", "100000"]
    widths = [len(line) for line in run(*words, columns=columns).splitlines()]
    assert 0.6 * min(columns, 64) < max(widths) <= columns


def test_plot_a_config() -> None:
    lines = run("plot", CONFIG, "--until", "3000").splitlines()
    assert lines[0] == "lr of gpt3_111m.yaml"
    assert lines[1].startswith("0.0006 ┤")


def test_plot_into_a_file(tmp_path: Path) -> None:
    path = tmp_path / "lr.svg"
    assert run("plot", *LINEAR, "-o", path) == f"{path}\n"
    assert path.read_bytes().startswith(b"<?xml")


def test_plot_a_class_of_a_framework() -> None:
    text = run("plot", "torch:LinearLR", "--total-iters", "30", "--base-value", "0.1")
    assert "0.1 ┤" in text


@pytest.mark.parametrize("options", [(), ("--vector",)])
def test_export_one_schedule(tmp_path: Path, options: tuple[str, ...]) -> None:
    path = tmp_path / "deeper" / "lr.onnx"
    assert str(path) in run("export", *LINEAR, "-o", path, *options)
    assert cf.ScheduleSession(path)(5) == 0.5


def test_failed_export_leaves_no_folder(tmp_path: Path) -> None:
    folder = tmp_path / "existing"
    folder.mkdir()
    for output in ("existing/new/deep/lr.onnx", "existing/new"):
        result = CliRunner().invoke(
            ["export", *LINEAR, "-o", str(tmp_path / output), "--opset", "99"]
        )
        assert (result.exit_code, list(tmp_path.iterdir())) == (2, [folder])
        assert not list(folder.iterdir())


def test_export_into_a_folder(tmp_path: Path) -> None:
    run("export", *LINEAR, "-o", tmp_path, "--dtype", "f32", "--opset", "17")
    model = onnx.load(tmp_path / "schedule.onnx")
    assert model.opset_import[0].version == 17
    assert model.graph.output[0].type.tensor_type.elem_type == onnx.TensorProto.FLOAT


def test_export_an_optimizer(tmp_path: Path) -> None:
    run("export", "sgd", "--lr", "0.5", "--params", "w=2x3", "--params", "b=3", "-o", tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["init.onnx", "step.onnx"]
    params = {"w": np.ones((2, 3), np.float32), "b": np.ones(3, np.float32)}
    session = cf.OptimizerSession.from_files(tmp_path, params)
    session.step(params)
    assert np.array_equal(session.params["b"], np.full(3, 0.5, np.float32))


def test_export_headers(tmp_path: Path) -> None:
    header = tmp_path / "new" / "learning_rate.h"
    assert str(header) in run("export", *LINEAR, "-o", header, "--dtype", "f32")
    assert "float learning_rate(int64_t t)" in header.read_text(encoding="ascii")
    rule = tmp_path / "update.h"
    run("export", "--optimizer", "adamw", "--lr", "0.5", "-o", rule)
    assert "CLOSEDFORM_API void update_step(" in rule.read_text(encoding="ascii")


TWO_SCHEDULES = """\
--lr 1e-3 --train-iters 10 --global-batch-size 1 --lr-decay-style linear
--weight-decay-incr-style linear --start-weight-decay 0 --end-weight-decay 0.1
"""


@pytest.mark.parametrize("name", ["x.h", "x.onnx"])
def test_a_file_is_of_one_schedule(name: str, tmp_path: Path) -> None:
    output = tmp_path / name
    run("export", CONFIG, "-o", output)
    assert output.is_file()
    config = tmp_path / "run.args"
    config.write_text(TWO_SCHEDULES, encoding="utf-8")
    words = ["export", str(config), "--framework", "megatron", "-o", str(tmp_path / f"two{name}")]
    result = CliRunner().invoke(words)
    assert result.exit_code == 2
    assert "lr, weight_decay" in " ".join(result.stderr.split())
    assert sorted(tmp_path.iterdir()) == sorted([config, output])


def test_export_a_config(tmp_path: Path) -> None:
    run("export", CONFIG, "-o", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["schedule.onnx"]
    words = ["export", str(CONFIG), "-o", str(tmp_path), "--params", "w=4"]
    refused = CliRunner().invoke(words)
    assert (refused.exit_code, "exists: add --force" in refused.stderr) == (2, True)
    run(*words, "--force")
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["init.onnx", "schedule.onnx", "step.onnx"]
    lr = cf.load_recipe(CONFIG).schedules["lr"]
    assert cf.ScheduleSession(tmp_path / "schedule.onnx")(1525) == lr(1525)


def test_run_prints_csv_that_reads_back(tmp_path: Path) -> None:
    path = tmp_path / "lr.onnx"
    lr = cf.schedules.cosine(3e-4, 3e-5, 100)
    cf.to_onnx(lr, path)
    text = run("run", path, "--steps", "0:200:7", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(text)))
    steps = np.array([int(row["step"]) for row in rows])
    assert np.array_equal(steps, np.arange(0, 200, 7))
    session = np.asarray(cf.ScheduleSession(path)(steps))
    assert np.array_equal(np.array([float(row["value"]) for row in rows]), session)


def test_run_writes_the_same_csv_into_a_file(tmp_path: Path) -> None:
    cf.to_onnx(cf.schedules.linear(1, 0, 10), tmp_path / "lr.onnx")
    printed = run("run", tmp_path / "lr.onnx", "--format", "csv")
    run("run", tmp_path / "lr.onnx", "-o", tmp_path / "lr.csv")
    assert (tmp_path / "lr.csv").read_text() == printed


def test_run_takes_the_inputs_of_the_graph(tmp_path: Path) -> None:
    path = tmp_path / "lr.onnx"
    run("export", *LINEAR, "-o", path, "--input", "start")
    assert rows_of(run("run", path, "--steps", "1"))[0] == ["0", "1.0"]
    assert rows_of(run("run", path, "--steps", "1", "--start", "0.25"))[0] == ["0", "0.25"]


def test_convert_writes_a_config_and_its_verdict(tmp_path: Path) -> None:
    flags = tmp_path / "train.args"
    flags.write_text("--lr 1e-3\n--train-iters 100\n--lr-warmup-iters 10\n")
    words = [str(flags), "--to", "olmo", "--facts", "global_batch_size=8"]
    result = CliRunner().invoke(["convert", *words])
    assert result.exit_code == 0, result.stderr
    # OLMo counts the update itself, and its warmup cannot begin below 0.
    assert result.stderr.startswith("olmo: nearest, largest gap 0.0")
    assert "name: linear_with_warmup" in result.stdout
    made = tmp_path / "made.yaml"
    assert run("convert", flags, *words[1:-3], "automodel", *words[-2:], "-o", made) == ""
    recipe = cf.load_recipe(made, framework="automodel")
    assert recipe.schedule().exact(5) == cf.load_recipe(
        flags, facts={"global_batch_size": 8}
    ).schedule().exact(5)


def test_convert_writes_an_extension(tmp_path: Path) -> None:
    flags = tmp_path / "train.args"
    flags.write_text("--lr 1e-3\n--train-iters 100\n--lr-warmup-iters 10\n")
    words = [str(flags), "--to", "transformers", "--facts", "global_batch_size=8"]
    result = CliRunner().invoke(["convert", *words, "--as", "extension"])
    assert result.exit_code == 0, result.stderr
    assert "def learning_rate(t):\n    if t < 11:\n" in result.stdout
    assert result.stderr.startswith("transformers: exact\n")


def test_convert_says_why_it_is_impossible(tmp_path: Path) -> None:
    config = tmp_path / "train.yaml"
    config.write_text(
        "optimizers: {sgd: {lr: 0.1}}\nschedulers: [{multistep: {milestones: [5ba, 7ba, 9ba]}}]\n"
        "max_duration: 10ba\n"
    )
    result = CliRunner().invoke(["convert", str(config), "--to", "olmo"])
    assert (result.exit_code, result.stdout) == (1, "")
    assert "olmo: impossible\n  olmo has no multistep decay" in result.stderr


def test_curves_are_plotted_in_one_frame_with_a_mark_each(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text("step,lr\n0,1.0\n5,0.5\n9,0.1\n")
    lines = run(
        "plot", "linear --start 1 --end 0 --steps 10", "constant --value 1", log
    ).splitlines()
    assert lines[0] == "3 curves"
    frame = [line for line in lines if "┤" in line or "│" in line]
    assert len(frame) == 10
    assert {"*", "+", "o"} <= set("".join(frame))
    assert [line.split(maxsplit=1)[0] for line in lines[13:]] == ["*", "o"]
    assert "+ constant" in lines[13]


def test_every_example_of_the_help_is_a_valid_command_line() -> None:
    for name in COMMANDS:
        command = parser_of(name)
        text = command.description or ""
        lines = [line for line in text.splitlines() if line.startswith("  closedform ")]
        assert lines, name
        for line in lines:
            words = shlex.split(line.partition(" > ")[0])[1:]
            assert words[0] == name
            command.parse(words[1:])


def test_tables_of_smooth_schedules_have_a_middle() -> None:
    words = ["torch:PolynomialLR", "--total-iters", "100", "--power", "2", "--base-value", "1"]
    text = run("show", *words)
    assert " 50    0.25" in text


def test_a_constant_of_a_config_is_plotted_on_request(tmp_path: Path) -> None:
    config = tmp_path / "run.yaml"
    config.write_text(
        "learning_rate: 1.0e-3\nlr_scheduler_type: cosine\nmax_steps: 100\nweight_decay: 0.1\n"
    )
    assert "0.1 ┤" in run("plot", config, "--key", "weight_decay")


@pytest.mark.parametrize("key", ["lr", "weight_decay"])
def test_a_config_is_plotted_to_the_end_of_its_run(tmp_path: Path, key: str) -> None:
    config = str(tmp_path / "hf.yaml")
    Path(config).write_text(
        "learning_rate: 1.0e-3\nlr_scheduler_type: cosine\nmax_steps: 210\nwarmup_steps: 20\n"
        "weight_decay: 0.1\n"
    )
    axis = run("plot", config, "--key", key).splitlines()[-1]
    assert axis.split() == ["0", "210"]
