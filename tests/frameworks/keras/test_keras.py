"""The schedules of Keras beside formulas."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from closedform import frameworks


def restarted(step: int, growth: float, decay: float) -> float:
    """CosineDecayRestarts from 1 with a first length of 10 and alpha 0.1."""
    begin, length, height = 0.0, 10.0, 1.0
    while step >= begin + length:
        begin, length, height = begin + length, length * growth, height * decay
    swing = 0.5 * height * (1 + math.cos(math.pi * (step - begin) / length))
    return 0.9 * swing + 0.1


def cycled(step: int) -> float:
    """PolynomialDecay from 1 to 0.1 over 10 steps with power 2 and cycle."""
    stretched = 10 * max(1, math.ceil(step / 10))
    return 0.9 * float((1 - step / stretched) ** 2) + 0.1


START = {"initial_learning_rate": 1.0}
SLOW = {**START, "decay_steps": 10, "decay_rate": 0.5}
RESTARTS = {**START, "first_decay_steps": 10, "alpha": 0.1}
Keras = tuple[str, dict[str, Any], Callable[[int], float]]
KERAS: list[Keras] = [
    ("ExponentialDecay", SLOW, lambda t: 0.5 ** (t / 10)),
    ("ExponentialDecay", {**SLOW, "staircase": True}, lambda t: 0.5 ** (t // 10)),
    ("InverseTimeDecay", SLOW, lambda t: 1 / (1 + 0.5 * t / 10)),
    ("InverseTimeDecay", {**SLOW, "staircase": True}, lambda t: 1 / (1 + 0.5 * (t // 10))),
    (
        "PiecewiseConstantDecay",
        {"boundaries": [10, 20], "values": [1.0, 0.5, 0.1]},
        lambda t: 1.0 if t <= 10 else 0.5 if t <= 20 else 0.1,
    ),
    (
        "PolynomialDecay",
        {**START, "decay_steps": 10, "end_learning_rate": 0.1, "power": 2},
        lambda t: 0.9 * (1 - min(t, 10) / 10) ** 2 + 0.1,
    ),
    (
        "PolynomialDecay",
        {**START, "decay_steps": 10, "end_learning_rate": 0.1, "power": 2, "cycle": True},
        cycled,
    ),
    (
        "CosineDecay",
        {**START, "decay_steps": 10, "alpha": 0.1},
        lambda t: 0.9 * 0.5 * (1 + math.cos(math.pi * min(t, 10) / 10)) + 0.1,
    ),
    (
        "CosineDecay",
        {**START, "decay_steps": 10, "warmup_target": 3.0, "warmup_steps": 5},
        lambda t: 1 + 2 * t / 5 if t < 5 else 1.5 * (1 + math.cos(math.pi * min(t - 5, 10) / 10)),
    ),
    ("CosineDecayRestarts", RESTARTS, lambda t: restarted(t, 2, 1)),
    (
        "CosineDecayRestarts",
        {**RESTARTS, "t_mul": 1.0, "m_mul": 0.5},
        lambda t: restarted(t, 1, 0.5),
    ),
    (
        "CosineDecayRestarts",
        {**RESTARTS, "t_mul": 1.5, "m_mul": 0.5},
        lambda t: restarted(t, 1.5, 0.5),
    ),
]


@pytest.mark.parametrize(("name", "kwargs", "formula"), KERAS)
def test_keras(name: str, kwargs: dict[str, Any], formula: Callable[[int], float]) -> None:
    schedule = frameworks.schedule("keras", name, kwargs)
    wanted = [formula(step) for step in range(60)]
    np.testing.assert_allclose(schedule(np.arange(60)), wanted, rtol=0, atol=1e-14)
