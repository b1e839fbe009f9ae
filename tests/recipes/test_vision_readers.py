"""Configs of Ultralytics and PaddleClas, beside records and the frameworks' own loops."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from closedform.errors import ClosedFormError, ConfigError
from closedform.recipes import Recipe, load_recipe
from tests.reference.records import Row, framework_records

CLOSE = 1e-12
"""Some hundred roundings of float64, as a part of the largest value."""

ULTRALYTICS = {
    row["id"]: row
    for row in framework_records()
    if row["system"] == "ultralytics"
    and "error" not in row
    and row["key"] not in ("accumulate", "beta1")
    and row["facts"].get("param_group") != "muon"
}
"""The records whose key and group the reader has; it reads no betas and no group of muon."""


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("key", ULTRALYTICS)
def test_values_of_ultralytics_are_those_of_its_records(key: str) -> None:
    row: Row = ULTRALYTICS[key]
    given = row["facts"]
    facts = {"updates_per_epoch": given["batches_per_epoch"]}
    facts |= {"dataset_size": given["images"]} if "images" in given else {}
    config = row["config"] | ({"nc": given["nc"]} if "nc" in given else {})
    recipe = load_recipe(config, framework="ultralytics", facts=facts)
    group = given.get("param_group", "weight")
    schedule = recipe.schedule(row["key"], 0 if group == "weight" else group)
    wanted = np.array(row["values"])
    apart = np.abs(np.asarray(schedule(np.array(row["steps"]))) - wanted).max()
    assert apart <= CLOSE * np.abs(wanted).max()


def counted_updates(batch: int, nbs: int, warmup: float, batches: int, epochs: int) -> int:
    """The loop of the trainer, which counts the updates that it makes."""
    ramp = round(min(warmup, epochs - 1) * batches)
    accumulate = least = max(round(nbs / batch), 1)
    last, updates = -1, 0
    for index in range(batches * epochs):
        if ramp and index <= ramp:
            accumulate = max(1, int(np.interp(index, [0, ramp], [1, nbs / batch]).round()))
        if index - last >= accumulate:
            updates += 1
            last = index
    assert accumulate == least or not ramp or batches * epochs <= ramp + 1
    return updates


@pytest.mark.parametrize(
    ("batch", "nbs", "warmup", "batches", "epochs"),
    [(64, 64, 3.0, 10, 5), (16, 64, 2.0, 11, 6), (8, 64, 3.0, 50, 4), (16, 64, 0.0, 7, 3)],
)
def test_the_length_of_a_run_of_ultralytics(
    batch: int, nbs: int, warmup: float, batches: int, epochs: int
) -> None:
    config = {"batch": batch, "nbs": nbs, "warmup_epochs": warmup, "epochs": epochs}
    recipe = load_recipe(
        {**config, "optimizer": "SGD", "lr0": 0.01}, facts={"updates_per_epoch": batches}
    )
    assert recipe.framework == "ultralytics"
    assert recipe.horizon == counted_updates(batch, nbs, warmup, batches, epochs)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"optimizer": "SDG"}, r"there is no optimizer 'SDG'.*did you mean 'SGD'"),
        ({"warmup_epoch": 3}, r"unknown key 'warmup_epoch'.*did you mean 'warmup_epochs'"),
        ({"epochs": 0}, "epochs must be above 0, got 0"),
        ({"batch": -1}, "batch must be above 0, got -1"),
        ({"lr0": "fast"}, "lr0 must be a finite number, got 'fast'"),
    ],
)
def test_mistakes_in_arguments_of_ultralytics(change: dict[str, Any], message: str) -> None:
    config = {"optimizer": "SGD", "lr0": 0.01, "lrf": 0.1, **change}
    with pytest.raises(ConfigError, match=message):
        load_recipe(config, "ultralytics", facts={"updates_per_epoch": 10})


def paddle(rate: dict[str, Any], version: str | None = None, **more: Any) -> Recipe:
    config = {
        "Global": {"epochs": 8},
        "Optimizer": {"name": "Momentum", "momentum": 0.9, "lr": rate, **more},
    }
    return load_recipe(config, version=version, facts={"updates_per_epoch": 5})


OLD = "37f9b41baa5a"
COSINE = {"name": "Cosine", "learning_rate": 0.4, "warmup_epoch": 2}


def cosine(t: float, length: float, low: float = 0.0) -> float:
    return low + (0.4 - low) * (1 + math.cos(math.pi * t / length)) / 2


@pytest.mark.parametrize(
    ("rate", "version", "value"),
    [
        ({**COSINE, "warmup_epoch": 0}, None, lambda t: cosine(t, 40)),
        ({**COSINE, "warmup_epoch": 0, "eta_min": 0.1}, None, lambda t: cosine(t, 40, 0.1)),
        # Without by_epoch the warmup of two epochs is one of two updates.
        (COSINE, None, lambda t: 0.2 * t if t < 2 else cosine(t - 2, 30)),
        (COSINE, OLD, lambda t: 0.04 * t if t < 10 else cosine(t - 10, 40)),
        (
            {"name": "Linear", "learning_rate": 0.4, "warmup_epoch": 2, "end_lr": 0.1},
            None,
            lambda t: 0.04 * t if t < 10 else 0.1 + 0.3 * (1 - min(t - 10, 30) / 30),
        ),
        (
            {"name": "Step", "learning_rate": 0.4, "step_size": 3, "gamma": 0.1},
            None,
            lambda t: 0.4 * 0.1 ** (t // 15),
        ),
        (
            {"name": "Piecewise", "decay_epochs": [3, 6], "values": [0.4, 0.2, 0.1]},
            None,
            lambda t: 0.4 if t < 15 else 0.2 if t < 30 else 0.1,
        ),
        (
            {"name": "MultiStepDecay", "learning_rate": 0.4, "milestones": [3], "gamma": 0.5},
            None,
            lambda t: 0.4 if t < 15 else 0.2,
        ),
        (
            {**COSINE, "by_epoch": True, "warmup_epoch": 0},
            None,
            lambda t: cosine(t // 5, 8),
        ),
        ({"learning_rate": 0.3}, None, lambda t: 0.3),
    ],
)
def test_rates_of_paddleclas(rate: dict[str, Any], version: str | None, value: Any) -> None:
    recipe = paddle(rate, version)
    assert (recipe.framework, recipe.horizon) == ("paddle", 40)
    found = [float(recipe.schedule()(step)) for step in range(40)]
    assert found == pytest.approx([value(step) for step in range(40)], abs=1e-15)


def test_optimizers_of_paddleclas(tmp_path: Path) -> None:
    recipe = paddle({"learning_rate": 0.3}, regularizer={"name": "L2", "coeff": 1e-4})
    assert (recipe.schedule("weight_decay")(0), recipe.optimizer().name) == (1e-4, "sgd")
    path = tmp_path / "config.yaml"
    path.write_text(
        "Global:\n  epochs: 2\nOptimizer:\n  name: AdamW\n  beta2: 0.99\n  weight_decay: 0.05\n"
        "  no_weight_decay_name: norm bias\n  clip_norm: 5\n  lr:\n    learning_rate: 0.01\n"
    )
    recipe = load_recipe(path, facts={"updates_per_epoch": 5})
    assert recipe.framework == "paddle"
    assert recipe.group("no_decay").patterns == ("norm", "bias")
    assert recipe.schedule("weight_decay", "no_decay")(0) == 0
    assert recipe.clipping is not None
    assert (recipe.clipping.threshold, recipe.clipping.kind.value) == (5, "param_norm")


@pytest.mark.parametrize(
    ("rate", "more", "message"),
    [
        ({"name": "Cosin", "learning_rate": 1}, {}, "no rate 'Cosin'.*did you mean 'Cosine'"),
        ({**COSINE, "warmup": 2}, {}, "unknown key 'warmup'.*did you mean 'warmup_epoch'"),
        (COSINE, {"name": "Momentun"}, "no optimizer 'Momentun'.*did you mean 'Momentum'"),
        (COSINE, {"regularizer": {"name": "L1"}}, "no name 'L1' .*regularizer.name"),
        ({"name": "Step", "learning_rate": 1}, {}, "step_size is missing"),
    ],
)
def test_mistakes_in_configs_of_paddleclas(
    rate: dict[str, Any], more: dict[str, Any], message: str
) -> None:
    with pytest.raises(ClosedFormError, match=message):
        paddle(rate, **more)
