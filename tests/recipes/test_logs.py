"""Logs: genuine ones beside their own configs, every format, patterns, intervals of numbers."""

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import closedform as cf
from closedform import schedules
from closedform.errors import ArgumentError, ConfigError
from closedform.recipes.logs import FORMATS, PRESETS, Log, is_log, logged_values, read_log
from closedform.recipes.logs.columns import key_columns
from closedform.recipes.logs.formats import format_of
from closedform.recipes.logs.patterns import LONGEST_PATTERN, parse_pattern
from closedform.verify.terms.verdict import Status
from tests.reference.logs import GenuineLog, label, text_logs

LOGS = text_logs()
TRAINER = [log for log in LOGS if log.is_of_trainer]


def check_agrees(log: GenuineLog, read: Log) -> None:
    """The own config agrees, with the offset that the program has; changed configs differ."""
    own = cf.diff(log.recipe(), read)
    offset = 1 if log.is_of_trainer else 0
    assert own.verdict is Status.UNKNOWN, own
    assert own.first_step is None, own
    assert read.offset == offset
    assert own.curves[0].reason.endswith("an offset of 1") == log.is_of_trainer
    for name, other in log.changed().items():
        difference = cf.diff(other, read)
        assert difference.verdict is Status.REFUTED, name
        assert difference.first_step is not None


@pytest.mark.parametrize("log", LOGS, ids=label)
def test_a_genuine_log_agrees_with_its_own_config_and_with_no_other(
    log: GenuineLog, tmp_path: Path
) -> None:
    check_agrees(log, read_log(log.write(tmp_path)))


@pytest.mark.parametrize("log", TRAINER, ids=label)
def test_a_genuine_log_of_six_digits_agrees(log: GenuineLog, tmp_path: Path) -> None:
    check_agrees(log, read_log(log.rounded(tmp_path)))


def test_the_other_offset_is_one_that_was_asked_for(tmp_path: Path) -> None:
    log = TRAINER[0]
    read = read_log(log.write(tmp_path), offset=0)
    difference = cf.diff(log.recipe(), read)
    assert difference.verdict is Status.REFUTED
    assert difference.curves[0].reason == "the log agrees with an offset of 1"


def test_the_param_groups_of_lightning(tmp_path: Path) -> None:
    log = next(log for log in LOGS if log.name == "StepLR")
    read = read_log(log.write(tmp_path))
    assert read.in_order("lr", 1)[1].numbers[:31:30].tolist() == [0.02, 0.01]
    first = {key: float(read.in_order(key)[1].numbers[0]) for key in read.values}
    assert first == {"lr": 0.2, "momentum": 0.9, "weight_decay": 1e-4}


# --- formats -------------------------------------------------------------------------------------

LINE = schedules.linear(0, Fraction(1, 1000), 8)


def row(step: int) -> str:
    return repr(float(LINE(step)))


WANDB = '"Step","run - _step","run - train/learning_rate","run - train/learning_rate__MIN"\n'
TEXTS = {
    "wandb.csv": WANDB + "".join(f'"{i}","{i}","{row(i)}","0"\n' for i in range(9)),
    "history.jsonl": "".join(
        f'{{"_step": {i}, "train/lr": {row(i)}, "loss": 1, "gpu": {{"use": 3}}}}\n'
        for i in range(9)
    ),
    "scalars.json": "".join(f'{{"lr": {row(i)}, "iter": {i}, "step": {i}}}\n' for i in range(9)),
    "rows.json": json.dumps([{"step": i, "lr": float(LINE(i))} for i in range(9)]),
    "metrics.csv": "epoch,lr-AdamW,step,loss\n"
    + "".join(f"0,{row(i)},{i},\n0,,{i},1.5\n" for i in range(9)),
    "mlflow.csv": "run_id,key,value,step,timestamp\n"
    + "".join(f"a,lr,{row(i)},{i},1\na,loss,2.5,{i},1\n" for i in range(9)),
    "tensorboard.csv": "Wall time,Step,Value\n" + "".join(f"1.5,{i},{row(i)}\n" for i in range(9)),
    "semicolons.csv": "step;lr\n" + "".join(f"{i};{row(i)}\n" for i in range(9)),
    "tabs.tsv": "step\tlr\n" + "".join(f"{i}\t{row(i)}\n" for i in range(9)),
    "epochs.csv": "epoch,lr\n" + "".join(f"{i},{row(i)}\n" for i in range(9)),
    "nested.jsonl": "".join(f'{{"step": {i}, "train": {{"lr": {row(i)}}}}}\n' for i in range(9)),
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_format_is_read(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(TEXTS[name], encoding="utf-8")
    log = read_log(path)
    assert log.steps[-1] + log.offset == 8
    assert cf.diff(LINE, log).first_step is None
    assert cf.diff(LINE.scale(Fraction(11, 10)), log).first_step is not None
    assert is_log(path)


def test_mlflow_folders_and_files(tmp_path: Path) -> None:
    folder = tmp_path / "mlruns" / "0" / "abc" / "metrics"
    (folder / "train").mkdir(parents=True)
    lines = "".join(f"1699999999999 {row(i)} {i}\n" for i in range(9))
    (folder / "lr").write_text(lines, encoding="utf-8")
    (folder / "train" / "loss").write_text("1 2.5 0\n", encoding="utf-8")
    for path in (folder / "lr", folder, folder.parent):
        assert is_log(path)
        assert cf.diff(LINE, read_log(path)).first_step is None
    (folder / "lr").write_text("1 2\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="must have a time, a value and a step, got '1 2'"):
        read_log(folder / "lr")


def test_several_runs_in_an_export_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "wandb.csv"
    path.write_text('"Step","a - lr","b - lr"\n1,0.1,0.2\n2,0.1,0.2\n', encoding="utf-8")
    with pytest.raises(ConfigError, match=r"several runs: 'a - lr' and 'b - lr' .*column='a - lr'"):
        read_log(path)
    assert not np.isnan(read_log(path, column="b - lr").values["lr"].numbers[0])
    with pytest.raises(ArgumentError, match="there is no column 'c - lr', got Step, a - lr"):
        read_log(path, column="c - lr")


def test_names_of_columns() -> None:
    names = (
        "lr-AdamW",
        "lr/1",
        "opt/lr",
        "learning_rate/group_2",
        "lr_mult",
        "wd",
        "clr",
        "lr-AdamW-1",
    )
    chosen = {(c.key, c.group): c.name for c in key_columns(names, "")}
    assert chosen == {
        ("lr", 0): "lr-AdamW",
        ("lr", 1): "lr/1",
        ("lr", 2): "learning_rate/group_2",
        ("weight_decay", 0): "wd",
    }


def test_every_format_has_a_name_of_its_own() -> None:
    assert len({form.name for form in FORMATS}) == len(FORMATS)


# --- printed lines -------------------------------------------------------------------------------

PRINTED = {
    "nanochat": (
        "step {step:05d}/21400 ({step:.2f}%) | loss: 9.3 | lrm: {lr:.4f} | dt: 1,190.2ms\n",
        0,
    ),
    "megatron": (
        " [2026-11-01 10:00:00] iteration {step:8d}/  500000 | consumed samples:  512 | "
        "elapsed time per iteration (ms): 91.3 | learning rate: {lr:.6E} | loss scale: 1.0 |\n",
        0,
    ),
    "torchtitan": (
        "[rank0]:2026-11-01 10:00:00 - root - INFO - \x1b[31mstep: {step:2d}  \x1b[32mloss:  7.9  "
        "\x1b[39mmemory: 0.5GiB(1%)  lr: {lr:.6g}\x1b[0m\n",
        1,
    ),
    "mmengine": (
        "2026/11/01 10:00:00 - mmengine - INFO - Epoch(train)   [1][{step:5d}/1000]  "
        "base_lr: 9.0000e-01 lr: {lr:.4e}  eta: 1:00:00  time: 0.3\n",
        1,
    ),
    "fairseq": (
        "2026-11-01 | INFO | train_inner | epoch 001:  {step} / 1000 loss=9.1, wps=3, ups=2, "
        "wpb=9, bsz=8, num_updates={step}, lr={lr:.6g}, gnorm=3\n",
        0,
    ),
    "deepspeed": (
        "[2026-11-01 10:00:00,123] [INFO] [logging.py:107:log_dist] [Rank 0] step={step}, "
        "skipped=0, lr=[{lr:.6g}, {lr:.6g}], mom=[(0.9, 0.999), (0.9, 0.999)]\n",
        0,
    ),
    "transformers": (
        "{{'loss': 2.1, 'grad_norm': 1.5, 'learning_rate': {lr:.6g}, 'epoch': 0.{step}}}\n"
        " 10%|#         | {step}/1000 [00:10<01:00,  8.3it/s]",
        1,
    ),
    "tqdm": (
        " 10%|#         | {step}/1000 [00:10<01:00,  8.3it/s, loss=2.1, lr={lr:.4e}]\n",
        0,
    ),
}


STEPS = [*range(0, 300, 7)]
CURVE = schedules.linear(0, Fraction(1, 1000), 100).then(
    schedules.linear(Fraction(1, 1000), 0, 200)
)


def bar(step: int, total: int, more: str = "") -> str:
    return f"\r {step}%|##   | {step}/{total} [00:10<01:00,  8.3it/s{more}]"


def dictionary(step: int, quote: str) -> str:
    rate = f"'learning_rate': {quote}{float(CURVE(step - 1)):.6g}{quote}"
    return f"\r{{'loss': {quote}2.1{quote}, {rate}, 'epoch': {quote}{step / 99:.2f}{quote}}}\n"


def trainer_text(every: int, quote: str) -> str:
    """Bars are drawn late, an evaluation has its own, and data sets have one before."""
    text = bar(9, 9, " Map") + bar(0, 300)
    for step in range(every, 300, every):
        text += bar(step - 2, 300) + dictionary(step, quote) + bar(step, 300)
        if step % (5 * every) == 0:
            text += "".join(bar(k, 38) for k in range(38)) + "\r{'eval_loss': 1.2, 'epoch': 1.0}\n"
    return text


def bar_text(of: str, length: int) -> str:
    """A bar that is drawn with the old rate, too, when its count rises."""
    parts = []
    for step in range(300):
        epoch, batch = divmod(step, length)
        for update in (max(step - 1, 0), step):
            more = f", v_num=1, lr={float(CURVE(update)):.4e}"
            start = f"Epoch {epoch}:" if of == "epochs" else ""
            parts.append(f"\r{start}{bar(batch, length, more)[1:]}")
        if batch == length - 1:
            parts.append(f"\r{start}{bar(length, length, more)[1:]}")
    return "".join(parts) + "\n"


TEXTS_OF_RUNS = {
    "a dictionary and bars": trainer_text(10, ""),
    "another stride": trainer_text(15, ""),
    "strings in the dictionary": trainer_text(10, "'"),
    "one bar": bar_text("run", 300),
    "a bar of each epoch": bar_text("epochs", 75),
    "skipped updates": "".join(
        f"[Rank 0] step={step}, skipped={3 if step > 50 else 2}, "
        f"lr=[{float(CURVE(step - (3 if step > 50 else 2))):.6g}], mom=[(0.9, 0.999)]\n"
        for step in range(10, 300, 10)
    ),
    "epochs of mmcv": "".join(
        f"mmdet - INFO - Epoch [{1 + step // 75}][{1 + step % 75}/75]\tlr: "
        f"{float(CURVE(step)):.3e}, eta: 0:10:00\n"
        for step in STEPS
    ),
    "iterations of mmcv": "".join(
        f"mmseg - INFO - Iter [{1 + step}/300]\tlr: {float(CURVE(step)):.3e}, eta: 1:00\n"
        for step in STEPS
    ),
}


@pytest.mark.parametrize("name", TEXTS_OF_RUNS)
def test_a_text_is_read_without_a_pattern(name: str, tmp_path: Path) -> None:
    path = tmp_path / "train.txt"
    path.write_text(TEXTS_OF_RUNS[name], encoding="utf-8")
    log = read_log(path)
    assert len(log.steps) >= 19
    assert cf.diff(CURVE, log).first_step is None
    other = schedules.linear(0, Fraction(1, 1000), 90).then(
        schedules.linear(Fraction(1, 1000), 0, 210)
    )
    assert cf.diff(other, log).first_step is not None


def test_a_dictionary_without_a_count_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "train.txt"
    path.write_text("".join(dictionary(step, "") for step in range(10, 300, 10)), encoding="utf-8")
    with pytest.raises(ArgumentError, match=r"a whole number in epoch .* its bar of progress"):
        read_log(path)


@pytest.mark.parametrize("base", [0, 1])
@pytest.mark.parametrize("length", [60, 75])
def test_a_count_within_epochs(base: int, length: int, tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    rows = [f"{base + s // length},{s % length},{float(CURVE(s))!r}" for s in STEPS]
    path.write_text("\n".join(["epoch,iter,lr", *rows]), encoding="utf-8")
    with pytest.raises(ArgumentError, match=r"again in each epoch: line \d+ has \d+ in epoch \d"):
        read_log(path)
    assert cf.diff(CURVE, read_log(path, updates_per_epoch=length)).first_step is None
    assert cf.diff(CURVE, read_log(path, updates_per_epoch=length + 1)).first_step is not None
    # A count of all updates has epochs beside it, too, and evaluations have their own.
    rows = [f"{base + s // length},{s},{float(CURVE(s))!r}" for s in STEPS]
    rows[9:9] = [f"{base + 2},3,"]
    path.write_text("\n".join(["epoch,iter,lr", *rows]), encoding="utf-8")
    assert cf.diff(CURVE, read_log(path, updates_per_epoch=length)).first_step is None


@pytest.mark.parametrize("program", PRESETS)
def test_the_lines_of_a_program(program: str, tmp_path: Path) -> None:
    line, offset = PRINTED[program]
    scale = 1000.0 if program == "nanochat" else 1.0
    lines = [line.format(step=i + offset, lr=float(LINE(i)) * scale) for i in range(12)]
    path = tmp_path / "train.txt"
    path.write_text("starting\n" + "warning: no lr\n".join(lines), encoding="utf-8")
    for log in (read_log(path), read_log(path, pattern=program)):
        assert log.offset == offset
        assert log.lines is not None
        assert log.lines[:2].tolist() == [2, 4]
        assert cf.diff(LINE, log).first_step is None
        assert cf.diff(schedules.linear(0, 1, 7), log).first_step is not None


def test_a_pattern_of_a_user(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    lines = [f"[ep 0] it {1000 + i:,} of (9,000) * loss=2 * rate={row(i)}!\n" for i in range(9)]
    path.write_text("".join(lines), encoding="utf-8")
    pattern = "it {step} of ({total}) .* rate={lr}!"
    assert cf.diff(LINE, read_log(path, 1000, pattern=pattern)).first_step is None
    with pytest.raises(ConfigError, match=r"no line of the log matches 'it \{step\} lr \{lr\}'"):
        read_log(path, pattern="it {step} lr {lr}")
    with pytest.raises(ConfigError, match="this is not a log: it is not one of TensorBoard's"):
        read_log(path)


BAD_PATTERNS = {
    "step {step}": r"a pattern must have a count and a rate, got \{step\}",
    "lr": "'lr' is neither a pattern nor one of nanochat, megatron",
    "{step} {lr} {": r"'\{' is not a field",
    "{step} {l r} {lr}": "is not a field",
    "{step}{lr}" + "x" * LONGEST_PATTERN: "a pattern must have at most 1000 characters, got 1010",
}


@pytest.mark.parametrize("pattern", BAD_PATTERNS)
def test_bad_patterns_are_refused(pattern: str, tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_text("step 1 lr 2\n", encoding="utf-8")
    with pytest.raises(ArgumentError, match=BAD_PATTERNS[pattern]):
        read_log(path, pattern=pattern)


HOSTILE = ("1" * 20_000, " " * 20_000, "step 1 " * 3000, "a" * 20_000, "1 " * 10_000, "1,1" * 7000)


@pytest.mark.parametrize("line", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_line_takes_linear_time(line: str) -> None:
    """A pattern with 60 gaps: one that tried them in turn would not end."""
    pattern = parse_pattern("step {step}" + " .* {a}.*1" * 60 + ".* lr {lr}")
    assert pattern.match(line) is None
    assert parse_pattern("{step}{b} {c} .*lr {lr}").match(line) is None


def test_a_brace_a_star_and_a_bracket_are_literal() -> None:
    pattern = parse_pattern("{{step}} [{step}]* (.+) lr={lr}")
    assert pattern.match("x {step} [ 7]*   (.+) lr=-1.5e-3,") == {"step": "7", "lr": "-1.5e-3"}


# --- intervals -----------------------------------------------------------------------------------


def test_intervals_of_printed_numbers() -> None:
    def widths(cells: list[str], updates: int = 0, are_floats: bool = False) -> list[float]:
        series = logged_values(cells, updates=updates, are_floats=are_floats)
        return [float(precision) for precision in series.precisions]

    assert widths(["2.50e-4", "1.00e-4"]) == [5e-7, 5e-7]
    assert widths(["0.00025", "0.000125"]) == [5e-7, 5e-7]
    ulp = 2.0**-54
    assert widths(["0.30000000000000004", "0"]) == [4 * ulp, 4 * ulp]
    assert widths(["0.30000000000000004"], updates=160) == [14 * ulp]
    assert widths(["0.0003"]) == [5e-5]
    assert widths(["0.0003"], are_floats=True) == [pytest.approx(5e-10, rel=1e-15)]
    assert widths(["0", "0.000"]) == [0.0, 5e-4]
    assert widths(["0.10000000149011612"]) == [4 * 2.0**-27]


def test_a_constant_rate_of_one_digit_is_that_rate(tmp_path: Path) -> None:
    path = tmp_path / "trainer_state.json"
    rows = [{"step": i, "learning_rate": 3e-4} for i in range(1, 9)]
    path.write_text(json.dumps({"log_history": rows}), encoding="utf-8")
    assert cf.diff(schedules.constant(3e-4), read_log(path)).first_step is None
    assert cf.diff(schedules.constant(3.001e-4), read_log(path)).first_step is not None


# --- clocks --------------------------------------------------------------------------------------


def test_a_log_in_micro_batches_and_one_in_epochs(tmp_path: Path) -> None:
    config = {
        "learning_rate": 1e-3,
        "lr_scheduler_type": "linear",
        "max_steps": 12,
        "warmup_steps": 3,
        "gradient_accumulation_steps": 4,
    }
    recipe = cf.load_recipe(config, framework="transformers")
    lr = recipe.schedule()
    path = tmp_path / "log.csv"
    path.write_text(
        "step,lr\n" + "".join(f"{i + 1},{float(lr(i // 4))!r}\n" for i in range(48)),
        encoding="utf-8",
    )
    reason = cf.diff(recipe, read_log(path)).curves[0].reason
    assert reason.endswith("micro-batches, 4 in an update, and an offset of 1")
    recipe = cf.load_recipe(config, framework="transformers", facts={"updates_per_epoch": 3})
    path.write_text(
        "epoch,lr\n" + "".join(f"{i},{float(lr(3 * i))!r}\n" for i in range(4)), encoding="utf-8"
    )
    reason = cf.diff(recipe, read_log(path)).curves[0].reason
    assert reason.endswith("its epochs, 3 updates in each, and an offset of 0")


# --- refused -------------------------------------------------------------------------------------


def test_files_that_are_not_logs(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no such file"):
        read_log(tmp_path / "none.csv")
    config = tmp_path / "config.json"
    config.write_text('{"lr": 1e-3, "step": 3}', encoding="utf-8")
    assert not is_log(config)
    assert format_of(config) is None
    path = tmp_path / "broken.csv"
    path.write_bytes(b"step,lr\n\xff\xfe\n")
    with pytest.raises(ConfigError, match="cannot read the file"):
        read_log(path)


def test_the_extra_for_event_files_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "tensorboard", None)
    path = tmp_path / "events.out.tfevents.1.host"
    path.write_bytes(b"")
    assert is_log(path)
    with pytest.raises(ConfigError, match=r'pip install "closedform\[tensorboard\]"'):
        read_log(path)


def test_levels_that_were_rounded_are_known_to_half_a_unit() -> None:
    values = [0.1 * 0.5 ** (update // 25) for update in range(100)]
    series = logged_values([str(round(value, 2)) for value in values])
    assert not series.apart(np.array(values)).any()
