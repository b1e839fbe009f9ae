"""Draws for the recorded optimizers of authors: parameters, gradients and losses."""

from typing import Any

import numpy as np

SHAPES = {"w": (4, 3), "k": (2, 2, 1, 3), "v": (5,), "u": (3, 6)}
STEPS = 50


def drawn(seed: int = 30) -> tuple[dict[str, Any], list[dict[str, Any]], list[float]]:
    """Parameters, gradients with changes of sign, a step of zeros and a large one, and losses."""
    rng = np.random.default_rng(seed)
    start = {name: rng.normal(size=shape) for name, shape in SHAPES.items()}
    gradients = []
    for step in range(STEPS):
        factor = {4: 0.0, 17: 30.0}.get(step, 1.0)
        gradients.append(
            {name: factor * (rng.normal(size=shape) + 0.3) for name, shape in SHAPES.items()}
        )
    losses = [float(loss) for loss in 3 / np.arange(1, STEPS + 1) + rng.uniform(size=STEPS)]
    return start, gradients, losses


def drawn_noise(seed: int = 31) -> list[dict[str, Any]]:
    """Numbers of a normal distribution in the shapes of the parameters, for each step."""
    rng = np.random.default_rng(seed)
    return [{name: rng.normal(size=shape) for name, shape in SHAPES.items()} for _ in range(STEPS)]


def drawn_matrices(seed: int = 32) -> tuple[Any, Any]:
    """A matrix of 10 rows and 4 columns, and its gradients."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(10, 4)), rng.normal(size=(STEPS, 10, 4)) + 0.3
