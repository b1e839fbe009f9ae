"""Chains of MMEngine's param schedulers; their values are in the framework records."""

from typing import Any

import numpy as np
import pytest

from closedform import frameworks
from closedform.errors import ClosedFormError
from closedform.language import Schedule
from closedform.recipes import load_recipe

LR = {"type": "LinearLR", "by_epoch": False, "end": 5}


def schedule(*schedulers: dict[str, Any], epoch_length: int = 4, key: str = "lr") -> Schedule:
    config = {"optimizer": {"lr": 0.1, "betas": (0.8, 0.9)}, "param_scheduler": list(schedulers)}
    return frameworks.schedule(
        "mmengine", "list", config, key=key, facts={"epoch_length": epoch_length}
    )


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"type": "LinearRL"}, "unknown param scheduler 'LinearRL'"),
        ({"type": "ReduceOnPlateauLR"}, "it depends on a metric"),
        ({"by_epoch": False}, "must be a mapping with a type"),
        ({**LR, "ende": 4}, "unknown argument 'ende'"),
        ({**LR, "begin": 5}, "end must be above begin, got 5 and 5"),
        ({**LR, "last_step": 3}, "last_step is not read"),
        ({**LR, "start_factor": 1.5}, "start_factor must be from 0 to 1, got 1.5"),
        ({**LR, "convert_to_iter_based": True}, "convert_to_iter_based needs by_epoch"),
        ({"type": "StepLR", "step_size": 2.5}, "step_size must be an integer, got 2.5"),
        ({"type": "StepParamScheduler", "step_size": 2}, "missing argument 'param_name'"),
        ({"type": "MultiStepLR", "milestones": 3}, "milestones must be a list, got 3"),
        (
            {"type": "CosineAnnealingLR", "eta_min": 0.1, "eta_min_ratio": 0.2},
            "eta_min and eta_min_ratio exclude each other",
        ),
        (
            {"type": "CosineRestartLR", "periods": [2, 3], "eta_min": 0},
            "periods and restart_weights must be as many",
        ),
    ],
)
def test_refused(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(ClosedFormError, match=message) as caught:
        schedule(spec)
    assert "param_scheduler[0]" in str(caught.value)


def test_schedulers_that_act_together_follow_the_recursion() -> None:
    warmup = {"type": "LinearLR", "by_epoch": False, "end": 7, "start_factor": 0.2}
    decay = {"type": "PolyLR", "by_epoch": False, "end": 20, "power": 2.0, "eta_min": 0.01}
    value, wanted = 0.1, []
    for step in range(20):
        if step < 7:
            value *= 0.2 if step == 0 else 1 + 0.8 / (6 * 0.2 + (step - 1) * 0.8)
        if step:
            value = 0.01 + (value - 0.01) * (1 - 1 / (20 - step)) ** 2
        wanted.append(value)
    computed = schedule(warmup, decay)(np.arange(20))
    np.testing.assert_allclose(computed, wanted, rtol=1e-13)  # 20 roundings of 2**-53, twice


def test_endless_schedulers_that_act_together_are_refused() -> None:
    decay = {"type": "ExponentialLR", "by_epoch": False, "gamma": 0.9}
    wave = {"type": "CosineAnnealingLR", "by_epoch": False, "T_max": 9, "eta_min": 0.01}
    with pytest.raises(ClosedFormError, match="act together for more than 100000 updates"):
        schedule(decay, wave)


def test_the_momentum_of_betas_is_the_first() -> None:
    assert float(schedule(LR, key="momentum").exact(3)) == 0.8


def test_epochs_count_whole_epochs() -> None:
    made = schedule({"type": "MultiStepLR", "milestones": [1, 3]})
    assert [float(made.exact(step)) for step in (3, 4, 11, 12)] == [0.1, 0.01, 0.01, 0.001]


def scaled_config(batch: int | None, counts: int = 1) -> dict[str, Any]:
    loader = {} if batch is None else {"train_dataloader": {"batch_size": batch}}
    wrapper = {"optimizer": {"type": "SGD", "lr": 0.5}, "accumulative_counts": counts}
    scale = {"enable": True, "base_batch_size": 256}
    train = {"by_epoch": False, "max_iters": 10}
    return {"optim_wrapper": wrapper, "auto_scale_lr": scale, "train_cfg": train, **loader}


@pytest.mark.parametrize("batch", [16, 32, 100])
@pytest.mark.parametrize("processes", [1, 6, 16])
@pytest.mark.parametrize("counts", [1, 3])
def test_the_rate_is_scaled_by_the_samples_of_all_processes(
    batch: int, processes: int, counts: int
) -> None:
    # Runner.scale_lr of mmengine 0.10.7: the accumulation does not count.
    expected = 0.5 * (processes * batch / 256)
    samples = batch * processes * counts
    for size, facts in (
        (batch, {"world_size": processes}),
        (batch, {"world_size": processes, "global_batch_size": samples}),
        (batch, {"global_batch_size": samples}),
        (None, {"global_batch_size": samples}),
    ):
        config = scaled_config(size, counts)
        recipe = load_recipe(config, framework="mmengine", facts=facts)
        assert float(recipe.schedule("lr").exact(0)) == pytest.approx(expected, rel=1e-15)


@pytest.mark.parametrize(
    ("batch", "facts", "message"),
    [
        (None, {}, "missing facts: global_batch_size"),
        (32, {}, "missing facts: world_size"),
        (
            32,
            {"world_size": 8, "global_batch_size": 128},
            r"an update must have 32 \* 8 \* 1 samples, got the fact global_batch_size 128 "
            r"\(<mapping>: auto_scale_lr\): leave the fact out",
        ),
    ],
)
def test_a_scale_without_its_samples_is_refused(
    batch: int | None, facts: dict[str, int], message: str
) -> None:
    with pytest.raises(ClosedFormError, match=message):
        load_recipe(scaled_config(batch), framework="mmengine", facts=facts)
