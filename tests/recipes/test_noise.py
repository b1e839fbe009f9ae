"""Noise as a function of the step: its formula, its distribution, and the classes that take it."""

import math
from typing import Any

import numpy as np
import pytest
import sympy as sp

import closedform as cf
from closedform import frameworks
from closedform.errors import ConfigError, DefinitionError
from closedform.frameworks import cerebras
from closedform.frameworks.timm.schedules import noise, uniform
from closedform.language import Schedule

PRIME = 2**24 - 3
STEPS = np.arange(40_000)


def hashed(seed: int, step: int) -> float:
    """The formula of the document in Python's integers."""
    x = (step + seed + 1) % PRIME
    for _ in range(3):
        x = (48271 * (x * x % PRIME) + 16807 * x) % PRIME
    return (x + 0.5) / PRIME


@pytest.mark.parametrize("seed", [0, 42, 10**9])
def test_uniform_is_its_formula_also_far_out(seed: int) -> None:
    schedule = Schedule(uniform(seed))
    steps = [*range(50), 2**31, 2**40 + 7, 2**50]
    expected = [hashed(seed, step) for step in steps]
    # The integers are exact; the quotient and the sum round once each, to at most 1.
    np.testing.assert_allclose(schedule(np.array(steps)), expected, rtol=0, atol=2.3e-16)


def test_uniform_looks_like_chance() -> None:
    """Moments, neighbours and a chi-squared of cells: constant values stay constant."""
    drawn = Schedule(uniform(42))(STEPS)
    assert isinstance(drawn, np.ndarray)
    # Five standard deviations of the mean and the variance of 40,000 draws, and of correlations.
    assert abs(drawn.mean() - 0.5) < 5 * math.sqrt(1 / 12 / STEPS.size)
    assert abs(drawn.var() - 1 / 12) < 5 * math.sqrt(1 / 180 / STEPS.size)
    for lag in (1, 2, 3, 7):
        assert abs(np.corrcoef(drawn[:-lag], drawn[lag:])[0, 1]) < 5 / math.sqrt(STEPS.size)
    cells, _, _ = np.histogram2d(drawn[:-1], drawn[1:], bins=20)
    expected = cells.sum() / cells.size
    surprise = float(((cells - expected) ** 2 / expected).sum())
    assert abs(surprise - 399) < 5 * math.sqrt(2 * 399)


def test_normal_noise_is_cut_and_has_no_bias() -> None:
    drawn = Schedule(noise("normal", sp.Rational(67, 100), sp.Integer(1), 7))(STEPS)
    assert isinstance(drawn, np.ndarray)
    assert np.abs(drawn).max() < 0.67
    assert abs(drawn.mean()) < 5 * drawn.std() / math.sqrt(STEPS.size)
    # The normal distribution cut at 0.67 deviations: its own deviation is 0.3726.
    assert drawn.std() == pytest.approx(0.3726, abs=0.01)


def test_noise_is_a_part_of_the_value_within_its_range(tmp_path: Any) -> None:
    plain = {"t_initial": 50, "warmup_t": 5, "warmup_lr_init": 0.01}
    kwargs = {**plain, "noise_range_t": [10, 30], "noise_pct": 0.25, "noise_type": "uniform"}
    calm = frameworks.schedule("timm", "CosineLRScheduler", plain, base=0.5)
    noisy = frameworks.schedule("timm", "CosineLRScheduler", kwargs, base=0.5, as_implemented=False)
    assert noisy.length == calm.length == 50
    for step in (0, 9, 30, 60):
        assert noisy.exact(step) == calm.exact(step)
    for step in (10, 29):
        wanted = calm(step) * (1 + 0.25 * (2 * hashed(42, step) - 1))
        assert noisy(step) == pytest.approx(wanted, rel=1e-15)
    cf.to_onnx(noisy, tmp_path / "lr.onnx", step_shape=("n",))
    steps = np.arange(70)
    in_onnxruntime = cf.ScheduleSession(tmp_path / "lr.onnx")(steps)
    # The cosines of NumPy and onnxruntime differ by a unit in the last place.
    np.testing.assert_allclose(in_onnxruntime, noisy(steps), rtol=0, atol=1e-15)


def test_noise_from_a_step_on_with_a_seed() -> None:
    kwargs = {"decay_t": 30, "noise_range_t": 3, "noise_seed": 8, "noise_type": "uniform"}
    schedule = frameworks.schedule("timm", "StepLRScheduler", kwargs, base=1, as_implemented=False)
    assert [schedule(step) for step in (0, 2)] == [1, 1]
    assert schedule(90) == pytest.approx(1 + 0.67 * (2 * hashed(8, 90) - 1), rel=1e-15)


def test_noise_of_torch_is_refused_as_implemented() -> None:
    kwargs = {"decay_t": 3, "noise_range_t": 5}
    with pytest.raises(DefinitionError) as caught:
        frameworks.schedule("timm", "StepLRScheduler", kwargs, base=1)
    assert str(caught.value) == (
        "noise has no value as implemented: timm draws it from torch's generator "
        "(timm > StepLRScheduler): give as_implemented=False for noise that is a formula of the "
        "step"
    )


NAMES = ["stem.weight", "stem.bias", "blocks.0.weight", "blocks.1.weight", "head.weight"]
LAYERS = ["stem*", "blocks.0*", "blocks.1*", ["head*", "fc*"]]


def test_layer_decay_scales_the_schedulers_of_timm() -> None:
    groups = cerebras.layer_decay_groups(NAMES, LAYERS, 0.5, key="lr_scale")
    assert [group["params"] for group in groups][:2] == [NAMES[:2], NAMES[2:3]]
    groups = [{**group, "lr": 0.8} for group in groups]
    built = frameworks.schedules("timm", "StepLRScheduler", {"decay_t": 7}, groups)
    assert [float(schedule.exact(0)) for schedule in built if schedule] == [0.1, 0.2, 0.4, 0.8]


def test_layer_decay_scales_the_schedules_of_cerebras() -> None:
    groups = cerebras.layer_decay_groups(NAMES, LAYERS, 0.5)
    inner = {"class": "ConstantLR", "kwargs": {"learning_rate": 0.8}}
    built = frameworks.schedules("cerebras", "ScalePerParamLR", {"scheduler": inner}, groups)
    assert [float(schedule.exact(0)) for schedule in built if schedule] == [0.1, 0.2, 0.4, 0.8]


def test_factors_by_layer_type_reach_the_schedules() -> None:
    names = ["embedding.weight", "decoder.linear.weight", "decoder.linear.bias"]
    config = {"adjust_learning_rate": {"embedding": 0.5, "decoder_kernel": 0.25}}
    groups = cerebras.configure_param_groups(names, [], config)
    line = {"scheduler": "Linear", "initial_learning_rate": 0, "end_learning_rate": 1}
    given = {"config": [{**line, "total_iters": 4}], "adjust_learning_rate": {"embedding": 7}}
    built = frameworks.schedules("cerebras", "configure_lr_scheduler", given, groups)
    values = {
        group["params"][0]: schedule.exact(2)
        for group, schedule in zip(groups, built, strict=True)
        if schedule is not None
    }
    assert values == {
        "embedding.weight": sp.Rational(1, 4),
        "decoder.linear.weight": sp.Rational(1, 8),
        "decoder.linear.bias": sp.Rational(1, 2),
    }


BAD = {
    "decay": ((NAMES, LAYERS, 0), "decay must be a number above 0, got 0 (layer_decay_groups)"),
    "no layer": (
        (NAMES, LAYERS[:3], 0.5),
        "parameter 'head.weight' belongs to no layer (layer_decay_groups): globs are on the whole "
        "name",
    ),
    "empty layer": (
        (NAMES[:4], LAYERS, 0.5),
        "layer ['head*', 'fc*'] has no parameter (layer_decay_groups)",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_layers_are_refused(name: str) -> None:
    arguments, message = BAD[name]
    with pytest.raises(ConfigError) as caught:
        cerebras.layer_decay_groups(*arguments)
    assert str(caught.value) == message
