"""Schedules from logs of real runs: the family and the numbers of the config; plateaus."""

import itertools
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import closedform as cf
from closedform import schedules
from closedform.analysis.recovery import recover
from closedform.analysis.recovery.usual import PROPOSE
from closedform.language import Schedule
from closedform.recipes.logs import read_log
from tests.reference.logs import GenuineLog, label, text_logs

TRAINER = [log for log in text_logs() if log.is_of_trainer]
_WITHOUT_END = ("constant_with_warmup", "inverse_sqrt")


def expected(log: GenuineLog) -> dict[str, Any]:
    """The keys of the config that the curve depends on."""
    names = ["learning_rate", "lr_scheduler_type", "warmup_steps", "lr_scheduler_kwargs"]
    if log.config["lr_scheduler_type"] not in _WITHOUT_END:
        names.append("max_steps")
    return {name: log.config[name] for name in names if name in log.config}


def check_is_recovered(log: GenuineLog, path: Path) -> None:
    recovered = recover(path)
    kind = log.config["lr_scheduler_type"]
    assert recovered.call.startswith(f"transformers:{kind}("), recovered.call
    config = dict(recovered.config)
    if kind in _WITHOUT_END:
        del config["max_steps"]
    wanted = expected(log)
    if log.config.get("lr_scheduler_kwargs") == {"num_decay_steps": 80}:
        wanted["lr_scheduler_kwargs"] = {"num_decay_steps": 80, "min_lr_ratio": 0.0}
    assert config == wanted
    assert recovered.offset == 1
    assert recovered.candidates[0].call == recovered.call
    assert all(candidate.reason.startswith("lost") for candidate in recovered.candidates[1:])
    recipe = cf.load_recipe(recovered.config, framework="transformers")
    assert cf.diff(recipe, read_log(path)).first_step is None


@pytest.mark.parametrize("log", TRAINER, ids=label)
def test_the_scheduler_of_a_genuine_log(log: GenuineLog, tmp_path: Path) -> None:
    check_is_recovered(log, log.write(tmp_path))


@pytest.mark.parametrize("log", TRAINER, ids=label)
def test_the_scheduler_of_a_genuine_log_of_six_digits(log: GenuineLog, tmp_path: Path) -> None:
    check_is_recovered(log, log.rounded(tmp_path))


DRAWN = 60


def drawn_configs() -> list[dict[str, Any]]:
    """Configs of transformers with rates and lengths that people write."""
    draw = random.Random(36)
    configs = []
    for kind, _ in itertools.product([*PROPOSE][1:], range(DRAWN // (len(PROPOSE) - 1) + 1)):
        warmup = draw.choice([15, 20, 25, 40, 100, 150])
        total = warmup + draw.choice([100, 250, 300, 460, 900, 1000])
        rate = draw.choice([1e-5, 2e-5, 3e-4, 5e-4, 6e-4, 1e-3, 2.5e-4, 0.1])
        kwargs: dict[str, dict[str, Any]] = {
            "cosine_with_restarts": {"num_cycles": draw.choice([2, 3, 4])},
            "cosine_with_min_lr": {"min_lr_rate": draw.choice([0.1, 0.01, 0.05])},
            "polynomial": {"power": draw.choice([2.0, 0.5]), "lr_end": 0.0},
            "warmup_stable_decay": {
                "num_decay_steps": draw.choice([20, 50, 80]),
                "decay_type": draw.choice(["linear", "1-sqrt"]),
                "min_lr_ratio": draw.choice([0, 0.1]),
            },
        }
        config = {
            "learning_rate": rate,
            "lr_scheduler_type": kind,
            "warmup_steps": warmup,
            "max_steps": total,
            "lr_scheduler_kwargs": kwargs.get(kind, {}),
        }
        configs.append(config)
    return configs


def is_same(recovered: Schedule | None, config: dict[str, Any]) -> bool:
    if recovered is None:
        return False
    steps = np.arange(config["max_steps"])
    lr = cf.load_recipe(config, framework="transformers").schedule()
    apart = np.abs(np.asarray(lr(steps)) - np.asarray(recovered(steps)))
    return bool(np.max(apart) <= 1e-12 * config["learning_rate"])  # 4,500 ulp: another formula


@pytest.mark.parametrize("every", [1, 7])
def test_drawn_configs_are_recovered_exactly_from_six_digits(every: int, tmp_path: Path) -> None:
    """At least 95 of 100, logged at each update, or every seventh, and the first and the last.

    A warmup that is shorter than the distance of two logged updates is not in such a log.
    """
    configs = drawn_configs()
    wrong = []
    chosen = configs[::2] if every == 1 else configs[1::2]
    for config in chosen:
        lr = cf.load_recipe(config, framework="transformers").schedule()
        steps = {0, *range(0, config["max_steps"], every), config["max_steps"] - 1}
        rows = [
            {"step": step + 1, "learning_rate": float(f"{lr(step):.6g}")} for step in sorted(steps)
        ]
        path = tmp_path / "trainer_state.json"
        path.write_text(json.dumps({"log_history": rows}), encoding="utf-8")
        recovered = recover(path)
        if not is_same(recovered.schedule, config):
            wrong.append((config, recovered.call))
    assert len(wrong) <= 0.05 * len(chosen), "\n".join(map(str, wrong))


@pytest.mark.parametrize("stride", [10, 25])
@pytest.mark.parametrize("has_first", [False, True])
def test_a_warmup_that_ends_between_two_logged_updates(
    stride: int, has_first: bool, tmp_path: Path
) -> None:
    """The peak and the end of the warmup are not in the log; the decay decides."""
    config = {
        "learning_rate": 3e-4,
        "lr_scheduler_type": "cosine",
        "warmup_steps": 7,
        "max_steps": 625,
    }
    lr = cf.load_recipe(config, framework="transformers").schedule()
    steps = sorted({*([1] if has_first else []), *range(stride, 626, stride)})
    rows = [{"step": step, "learning_rate": float(lr(step - 1))} for step in steps]
    path = tmp_path / "trainer_state.json"
    path.write_text(json.dumps({"log_history": rows}), encoding="utf-8")
    assert recover(path).config == config


# --- findings of users ---------------------------------------------------------------------------


@pytest.mark.parametrize("digits", [17, 7, 3])
@pytest.mark.parametrize("first", [0, 1])
def test_a_line_after_a_warmup_is_not_a_triangle(digits: int, first: int, tmp_path: Path) -> None:
    """Neither cyclic nor slanted_triangular, and no rate below 0, from step 0 or 1 on."""
    lr = schedules.linear(0, 3e-4, 20).then(schedules.linear(3e-4, 0, 180))
    path = tmp_path / "log.csv"
    rows = "".join(f"{step + first},{float(lr(step)):.{digits}g}\n" for step in range(200))
    path.write_text(f"step,lr\n{rows}", encoding="utf-8")
    recovered = recover(path)
    assert recovered.call == (
        "linear(start=0, end=0.0003, steps=20).then(linear(start=0.0003, end=0, steps=180))"
    )
    assert recovered.offset == first


def test_no_rate_is_below_zero(tmp_path: Path) -> None:
    lr = schedules.wsd(peak=0.003, end=0, steps=800, warmup=0, decay=160)
    path = tmp_path / "log.csv"
    rows = "".join(f"{step},{float(lr(step)):.7f}\n" for step in range(0, 800, 5))
    path.write_text(f"step,lr\n{rows}", encoding="utf-8")
    recovered = recover(path)
    assert recovered.schedule is not None
    assert "=-" not in recovered.call
    assert cf.diff(recovered.schedule, lr, until=800).max_gap <= 1e-6


# --- plateaus ------------------------------------------------------------------------------------

PLATEAUS: list[dict[str, Any]] = [
    {"factor": 0.1, "patience": 3},
    {"factor": 0.5, "patience": 2, "cooldown": 3},
    {"factor": 0.3, "patience": 0, "threshold": 1e-2, "min_lr": 1e-4},
    {"factor": 0.2, "patience": 4, "mode": "max"},
]


@pytest.mark.parametrize("arguments", PLATEAUS, ids=str)
def test_a_plateau_is_recovered_from_its_metric(arguments: dict[str, Any], tmp_path: Path) -> None:
    draw = random.Random(1)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.01)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, **arguments)
    sign = -1 if arguments.get("mode") == "max" else 1
    name = "val_accuracy" if sign < 0 else "val_loss"
    rows = [f"epoch,{name},train_loss,lr"]
    for epoch in range(80):
        metric = sign * round(1 / (1 + min(epoch, 40) / 10) + 0.05 * draw.random(), 4)
        rows.append(f"{epoch},{metric},{draw.random()},{optimizer.param_groups[0]['lr']!r}")
        optimizer.step()
        scheduler.step(metric)
    path = tmp_path / "metrics.csv"
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    recovered = recover(path)
    assert recovered.rule is not None, recovered.call
    assert recovered.metric == name
    assert f"factor={arguments['factor']}" in recovered.call
    assert f"patience={arguments['patience']}" in recovered.call
