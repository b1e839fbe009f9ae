"""fairseq2: its cycles next to its own function, the defaults of its recipes, param groups."""

import math
from typing import Any

import numpy as np
import pytest
import sympy as sp

from closedform import frameworks
from closedform.errors import ClosedFormError, MissingFactsError
from closedform.recipes import load_recipe


def cosine(step: int, length: int, warmup: int, mul: float, lr_mul: float) -> float:
    """The rate of CosineAnnealingLR for a rate of 1 and a final one of 0.1 (027bdebca4b9)."""
    if step < warmup:
        return step / warmup
    position = step - warmup
    if mul == 1.0:
        cycle, cycle_len = position // length, length
        position -= cycle * cycle_len
    else:
        cycle = int(math.log(1 - position / length * (1 - mul), mul))
        cycle_len = int(mul**cycle * length)
        position -= int((1 - mul**cycle) / (1 - mul) * length)
    low, high = 0.1 * lr_mul**cycle, lr_mul**cycle
    return low + 0.5 * (high - low) * (1 + math.cos(math.pi * position / cycle_len))


@pytest.mark.parametrize("mul", [0.5, 0.9, 1.0, 1.1, 1.5, 2.0])
@pytest.mark.parametrize(("length", "warmup", "lr_mul"), [(3, 4, 0.5), (10, 0, 1.0)])
def test_cycles_are_those_of_the_framework(
    length: int, warmup: int, mul: float, lr_mul: float
) -> None:
    parameters = {"cycle_len": length, "num_warmup_steps": warmup, "final_lr_scale": 0.1}
    config = {
        "optimizer": {"config": {"lr": 1.0}},
        "lr_scheduler": {
            "name": "cosine_annealing",
            "config": {**parameters, "cycle_mul": mul, "lr_mul": lr_mul},
        },
        "regime": {"num_steps": 100},
    }
    schedule = frameworks.schedule("fairseq2", "cosine_annealing", config)
    wanted = []
    for step in range(120):
        try:
            wanted.append(cosine(step, length, warmup, mul, lr_mul))
        except (ValueError, ZeroDivisionError):
            break
    if mul <= 1:
        assert schedule.last_step == (None if len(wanted) == 120 else len(wanted) - 1)
    # A few roundings of the largest value, 1.
    np.testing.assert_allclose(schedule(np.arange(len(wanted))), wanted, rtol=0, atol=2e-15)


def test_a_warmup_beyond_the_run_turns_the_cycles_round() -> None:
    config = {
        "optimizer": {"config": {"lr": 1.0}},
        "lr_scheduler": {
            "name": "cosine_annealing",
            "config": {"num_warmup_steps": 10, "lr_mul": 0.5, "final_lr_scale": 0.1},
        },
        "regime": {"num_steps": 5},
    }
    schedule = frameworks.schedule("fairseq2", "cosine_annealing", config)
    wanted = [cosine(step, -5, 10, 1.0, 0.5) for step in range(25)]
    # A few roundings of the largest value.
    np.testing.assert_allclose(schedule(np.arange(25)), wanted, rtol=0, atol=2e-14)


def test_a_config_changes_the_defaults_of_its_recipe() -> None:
    config: dict[str, Any] = {"regime": {"num_steps": 1000}, "optimizer": {"config": {"lr": 1.0}}}
    with pytest.raises(MissingFactsError, match="missing facts: recipe"):
        load_recipe(config)
    tuned = load_recipe(config, facts={"recipe": "lm/sft"})
    assert float(tuned.schedule()(500)) == pytest.approx(0.6, rel=1e-15)
    assert tuned.clipping is not None
    speech = load_recipe({**config, "recipe": "wav2vec2/asr"})
    assert [speech.schedule().exact(t) for t in (100, 499, 1000)] == [1, 1, sp.Rational(1, 20)]
    assert speech.accumulation == 4
    other = {**config, "lr_scheduler": {"name": "myle", "config": {"num_warmup_steps": 4}}}
    myle = load_recipe(other, facts={"recipe": "lm/train"})
    assert [myle.schedule().exact(t) for t in (0, 4, 16)] == [0, 1, sp.S.Half]
    constant = load_recipe({**config, "lr_scheduler": None}, facts={"recipe": "lm/sft"})
    assert constant.schedule().exact(7) == 1
    with pytest.raises(ClosedFormError, match="there is no recipe 'lm/tune'"):
        load_recipe({**config, "recipe": "lm/tune"})


def test_the_groups_of_the_optimizer_come_before_the_default_one() -> None:
    config = {
        "optimizer": {"config": {"lr": 1.0, "groups": [{"params": "encoder.*", "lr": 0.5}]}},
        "lr_scheduler": {"name": "polynomial_decay", "config": {"final_lr": [0.25, 0.0]}},
        "regime": {"num_steps": 10},
    }
    recipe = load_recipe(config)
    default, encoder = recipe.param_groups
    assert [default.schedules["lr"].exact(t) for t in (0, 10)] == [1, 0]
    assert [encoder.schedules["lr"].exact(t) for t in (0, 10)] == [sp.S.Half, sp.S.Half / 2]
    assert encoder.patterns == ("encoder.*",)


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("cosine_annealing", {"final_lr": 0.1}, "exactly one of final_lr and final_lr_scale"),
        ("polynomial_decay", {"num_warmup_steps": 10}, "the warmup must be below 10, got 10"),
        ("myle", {"num_warmup_steps": 0}, "num_warmup_steps must be at least 1, got 0"),
        ("tri_stage", {"stage_ratio": [0.5, 0.5]}, "stage_ratio must hold three parts of 1"),
        ("noam", {"start_lr": 0.1}, "unknown key 'start_lr'"),
        ("cosine", {}, "there is no lr_scheduler 'cosine'"),
    ],
)
def test_what_fairseq2_refuses_is_refused(
    name: str, parameters: dict[str, Any], message: str
) -> None:
    config = {
        "optimizer": {"config": {"lr": 1.0}},
        "lr_scheduler": {"name": name, "config": parameters},
        "regime": {"num_steps": 10},
    }
    with pytest.raises(ClosedFormError, match=message):
        load_recipe(config)
