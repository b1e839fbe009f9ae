"""Configs of PaddleClas, beside formulas."""

import math
from pathlib import Path
from typing import Any

import pytest

from closedform.errors import ClosedFormError
from closedform.recipes import Recipe, load_recipe


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


@pytest.mark.parametrize("by_epoch", [False, True])
def test_the_warmup_of_paddle_by_epoch_is_scaled_twice(by_epoch: bool) -> None:
    rate = {"name": "Cosine", "learning_rate": 1.0, "warmup_epoch": 5, "by_epoch": by_epoch}
    optimizer = {"name": "Momentum", "momentum": 0.9, "lr": rate}
    config = {"Global": {"epochs": 20}, "Optimizer": optimizer}
    recipe = load_recipe(config, framework="paddle", facts={"updates_per_epoch": 10})
    assert ("warmup-scaled-twice" in recipe.notes) == by_epoch
