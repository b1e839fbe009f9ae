"""The frameworks beside the installed packages, every step of a run and past its end.

Not collected with the tests, since its packages are not development dependencies: transformers and
timm (both with torch) and optax. In an environment that has them::

    JAX_ENABLE_X64=1 python -m pytest tests/recipes/compare_packages.py
"""

from typing import Any

import numpy as np
import pytest

from closedform import frameworks
from tests.recipes.installed import timm_scheduler

pytestmark = pytest.mark.packages(JAX_ENABLE_X64="1")
BASE = 0.25
STEPS = 70

HUGGINGFACE: list[tuple[str, dict[str, Any]]] = [
    ("constant", {}),
    ("constant_with_warmup", {"num_warmup_steps": 7}),
    ("linear", {"num_warmup_steps": 7, "num_training_steps": 50}),
    ("linear", {"num_warmup_steps": 0, "num_training_steps": 50}),
    ("cosine", {"num_warmup_steps": 7, "num_training_steps": 50, "num_cycles": 1.25}),
    ("cosine", {"num_warmup_steps": 0, "num_training_steps": 50}),
    ("cosine_with_restarts", {"num_warmup_steps": 7, "num_training_steps": 50, "num_cycles": 3}),
    ("polynomial", {"num_warmup_steps": 7, "num_training_steps": 50, "power": 2, "lr_end": 1e-3}),
    ("inverse_sqrt", {"num_warmup_steps": 7}),
    ("inverse_sqrt", {"num_warmup_steps": 7, "timescale": 20}),
    ("cosine_with_min_lr", {"num_warmup_steps": 7, "num_training_steps": 50, "min_lr": 0.01}),
    ("cosine_with_min_lr", {"num_warmup_steps": 7, "num_training_steps": 50, "min_lr_rate": 0.1}),
    (
        "cosine_warmup_with_min_lr",
        {"num_warmup_steps": 7, "num_training_steps": 50, "min_lr_rate": 0.1},
    ),
    (
        "cosine_warmup_with_min_lr",
        {
            "num_warmup_steps": 7,
            "num_training_steps": 50,
            "min_lr_rate": 0.1,
            "warmup_lr_rate": 0.3,
        },
    ),
    (
        "warmup_stable_decay",
        {"num_warmup_steps": 7, "num_decay_steps": 9, "num_training_steps": 50},
    ),
    (
        "warmup_stable_decay",
        {
            "num_warmup_steps": 7,
            "num_decay_steps": 9,
            "num_stable_steps": 20,
            "warmup_type": "1-sqrt",
            "decay_type": "1-sqrt",
            "min_lr_ratio": 0.1,
        },
    ),
    (
        "warmup_stable_decay",
        {
            "num_warmup_steps": 7,
            "num_decay_steps": 9,
            "num_stable_steps": 20,
            "warmup_type": "cosine",
            "decay_type": "linear",
        },
    ),
]
CYCLES = {"cycle_mul": 2.0, "cycle_decay": 0.5, "cycle_limit": 3}
WARMUP = {"warmup_t": 5, "warmup_lr_init": 0.01}
TIMM: list[tuple[str, dict[str, Any]]] = [
    ("CosineLRScheduler", {"t_initial": 50, "lr_min": 0.001}),
    ("CosineLRScheduler", {"t_initial": 10, "lr_min": 0.001, "k_decay": 1.5, **CYCLES, **WARMUP}),
    ("CosineLRScheduler", {"t_initial": 10, "warmup_prefix": True, "cycle_limit": 3, **WARMUP}),
    ("TanhLRScheduler", {"t_initial": 50, "lb": -5, "ub": 2}),
    ("TanhLRScheduler", {"t_initial": 10, **CYCLES, **WARMUP}),
    ("TanhLRScheduler", {"t_initial": 10, "warmup_prefix": True, **CYCLES, **WARMUP}),
    ("PolyLRScheduler", {"t_initial": 50, "power": 2}),
    ("PolyLRScheduler", {"t_initial": 10, "k_decay": 0.5, "lr_min": 0.001, **CYCLES, **WARMUP}),
    ("StepLRScheduler", {"decay_t": 9, "decay_rate": 0.5}),
    ("StepLRScheduler", {"decay_t": 9, "decay_rate": 0.5, **WARMUP}),
    ("MultiStepLRScheduler", {"decay_t": [4, 30, 30], "decay_rate": 0.5}),
    ("MultiStepLRScheduler", {"decay_t": [9, 30], "decay_rate": 0.5, **WARMUP}),
    *(
        ("WSDLRScheduler", {"t_initial": 40, "decay_t": 15, "decay_fn": name, **WARMUP})
        for name in ("linear", "1-sqrt", "cosine", "power", "exp")
    ),
    ("WSDLRScheduler", {"t_initial": 40, "decay_t": 15, "stable_fn": "rsqrt", **WARMUP}),
    (
        "WSDLRScheduler",
        {
            "t_initial": 40,
            "decay_t": 15,
            "stable_fn": "power",
            "stable_power": 0.7,
            "stable_timescale": 4,
            "lr_min": 0.05,
        },
    ),
]
LINE = {"init_value": 0.1, "end_value": 1.0, "transition_steps": 20}
PEAK = {"init_value": 0.1, "peak_value": 1.0, "warmup_steps": 5}
OPTAX: list[tuple[str, dict[str, Any]]] = [
    ("constant_schedule", {"value": 0.3}),
    ("linear_schedule", LINE),
    ("linear_schedule", {**LINE, "transition_begin": 6}),
    ("polynomial_schedule", {**LINE, "power": 2.5, "transition_begin": 6}),
    ("exponential_decay", {"init_value": 1.0, "transition_steps": 20, "decay_rate": 0.5}),
    (
        "exponential_decay",
        {
            "init_value": 1.0,
            "transition_steps": 9,
            "decay_rate": 0.5,
            "transition_begin": 4,
            "staircase": True,
            "end_value": 0.1,
        },
    ),
    (
        "exponential_decay",
        {"init_value": 1.0, "transition_steps": 9, "decay_rate": 1.5, "end_value": 3.0},
    ),
    ("cosine_decay_schedule", {"init_value": 1.0, "decay_steps": 40, "alpha": 0.1}),
    ("cosine_decay_schedule", {"init_value": 1.0, "decay_steps": 40, "exponent": 1.5}),
    (
        "piecewise_constant_schedule",
        {"init_value": 1.0, "boundaries_and_scales": {30: 0.1, 10: 2.0}},
    ),
    (
        "piecewise_interpolate_schedule",
        {
            "interpolate_type": "cosine",
            "init_value": 1.0,
            "boundaries_and_scales": {10: 2.0, 30: 0.1},
        },
    ),
    ("linear_onecycle_schedule", {"transition_steps": 50, "peak_value": 1.0}),
    ("cosine_onecycle_schedule", {"transition_steps": 50, "peak_value": 1.0}),
    ("warmup_constant_schedule", PEAK),
    ("warmup_cosine_decay_schedule", {**PEAK, "decay_steps": 40, "end_value": 0.05}),
    ("warmup_cosine_decay_schedule", {**PEAK, "decay_steps": 40, "exponent": 2.0}),
    ("warmup_exponential_decay_schedule", {**PEAK, "transition_steps": 20, "decay_rate": 0.5}),
    (
        "sgdr_schedule",
        {"cosine_kwargs": [{**PEAK, "decay_steps": 20}, {**PEAK, "decay_steps": 30}]},
    ),
]


def ours(system: str, name: str, kwargs: dict[str, Any]) -> Any:
    return frameworks.schedule(system, name, kwargs, base=BASE)(np.arange(STEPS))


@pytest.mark.parametrize(("name", "kwargs"), HUGGINGFACE)
def test_huggingface(name: str, kwargs: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    optimization = pytest.importorskip("transformers.optimization")
    make = optimization.TYPE_TO_SCHEDULER_FUNCTION[optimization.SchedulerType(name)]
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=BASE)
    scheduler = make(optimizer, **kwargs)
    theirs = [factor(step) * BASE for factor in scheduler.lr_lambdas for step in range(STEPS)]
    # Their float64 operations round about five times.
    np.testing.assert_allclose(ours("huggingface", name, kwargs), theirs, rtol=0, atol=1e-15)


@pytest.mark.parametrize(("name", "kwargs"), TIMM)
def test_timm(name: str, kwargs: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    scheduler = timm_scheduler()
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=BASE)
    made = getattr(scheduler, name)(optimizer, **kwargs)
    theirs = [made._get_lr(step)[0] for step in range(STEPS)]
    np.testing.assert_allclose(ours("timm", name, kwargs), theirs, rtol=0, atol=1e-15)


@pytest.mark.parametrize(("name", "kwargs"), OPTAX)
def test_optax(name: str, kwargs: dict[str, Any]) -> None:
    optax = pytest.importorskip("optax")
    made = getattr(optax, name)(**kwargs)
    theirs = [float(made(step)) for step in range(STEPS)]
    # optax computes in float32: a few units in the last place of the largest value.
    computed = ours("optax", name, kwargs)
    np.testing.assert_allclose(computed, theirs, rtol=0, atol=2e-6 * np.abs(computed).max())


def test_optax_join() -> None:
    optax = pytest.importorskip("optax")
    theirs = optax.join_schedules([optax.linear_schedule(0.0, 1.0, 10)] * 2, [8])
    part = {"class": "linear_schedule", "kwargs": {**LINE, "init_value": 0, "transition_steps": 10}}
    computed = ours("optax", "join_schedules", {"schedules": [part, part], "boundaries": [8]})
    np.testing.assert_allclose(computed, [float(theirs(step)) for step in range(STEPS)], atol=2e-6)
