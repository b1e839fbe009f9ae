"""SM3 beside optax as installed, in float64, over drawn gradients.

Not collected with the tests, since optax is not a development dependency. In an environment that
has it::

    JAX_ENABLE_X64=1 python -m pytest tests/optimizers/compare_packages.py
"""

from typing import Any

import numpy as np
import optax
import pytest

from closedform import optimizers, schedules
from tests.support.trajectories import trajectory

pytestmark = pytest.mark.packages(JAX_ENABLE_X64="1")
STEPS = 40
# optax has no scalars in SM3: it looks for a first axis.
SHAPES: dict[str, tuple[int, ...]] = {"vector": (5,), "matrix": (3, 4), "kernel": (2, 3, 2, 4)}


@pytest.mark.parametrize(
    ("betas", "eps"), [((0.9, 1.0), 1e-8), ((0.0, 1.0), 1e-3), ((0.5, 0.75), 1e-8)], ids=str
)
def test_sm3_is_that_of_optax(betas: tuple[float, float], eps: float) -> None:
    rng = np.random.default_rng(3)
    params: dict[str, Any] = {name: rng.normal(size=shape) for name, shape in SHAPES.items()}
    gradients = [
        {
            name: 10.0 ** rng.integers(-3, 3) * rng.normal(size=shape)
            for name, shape in SHAPES.items()
        }
        for _ in range(STEPS)
    ]
    gradients[1] = {name: np.zeros(shape) for name, shape in SHAPES.items()}
    rate = schedules.linear(0.1, 0, STEPS)
    rule = optimizers.sm3(rate, betas, eps)
    theirs = optax.chain(
        optax.scale_by_sm3(*betas, eps), optax.scale_by_learning_rate(lambda step: rate(int(step)))
    )
    state = theirs.init(params)
    for carried, given in zip(trajectory(rule, params, gradients), gradients, strict=True):
        updates, state = theirs.update(given, state)
        params = optax.apply_updates(params, updates)
        for name, param in params.items():
            # Forty steps of about ten roundings of 1.1e-16 on parameters near 1.
            np.testing.assert_allclose(carried[f"param.{name}"], param, rtol=1e-12, atol=1e-13)
            for axis, wanted in enumerate(state[0].mu[name]):
                ours = np.ravel(carried[f"state.{name}.accumulator_{axis}"])
                np.testing.assert_allclose(ours, wanted, rtol=1e-13)
