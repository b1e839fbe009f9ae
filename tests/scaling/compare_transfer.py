"""Widths from 64 to 1,024: activations that keep their scale, and the best learning rates.

`make transfer` runs it, about 30 minutes on a core, and writes tools/results/scaling.json.
"""

import json
import math
from collections.abc import Mapping
from typing import Any

import pytest
import torch

from tests.scaling.models import FLATNESS, WIDTHS, coordinates, final_loss, spread
from tools.build_scaling import RESULTS, best_powers

RATES: Mapping[str, tuple[range, int]] = {
    "mlp": (range(-10, -4), 200),
    "mlp-sgd": (range(-6, 2), 200),
    "transformer": (range(-11, -4), 60),
}
"""The powers of 2 that are tried as learning rates, and the steps of a training."""
CHECKED = {"mlp": (2.0**-7, 4), "mlp-sgd": (2.0**-3, 4), "transformer": (2.0**-7, 2)}
"""The learning rate of the coordinate check, near the best one, and its seeds."""
CHECKED_STEPS = 10
"""After 4 steps the logits of the transformer, which begin at 0, still differ by 1.28."""
MODES = {"mup": True, "standard": False}


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    torch.set_num_threads(1)
    measured: dict[str, Any] = {"coordinates": {}, "losses": {}}
    for name, (lr, seeds) in CHECKED.items():
        for mode, is_mup in MODES.items():
            measured["coordinates"][f"{name}/{mode}"] = {
                str(width): coordinates(name, width, lr, CHECKED_STEPS, is_mup=is_mup, seeds=seeds)
                for width in WIDTHS
            }
    for name, (powers, steps) in RATES.items():
        for mode, is_mup in MODES.items():
            measured["losses"][f"{name}/{mode}"] = {
                str(width): {
                    str(power): finite(final_loss(name, width, 2.0**power, steps, is_mup=is_mup))
                    for power in powers
                }
                for width in WIDTHS
            }
    RESULTS.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")
    return measured


def finite(loss: float) -> float | None:
    """The loss, None for a training that diverged: JSON has no infinity."""
    return loss if math.isfinite(loss) else None


@pytest.mark.parametrize("name", CHECKED)
def test_activations_keep_their_scale_with_mup(name: str, results: dict[str, Any]) -> None:
    scales = list(results["coordinates"][f"{name}/mup"].values())
    assert max(spread(scales).values()) < FLATNESS


@pytest.mark.parametrize("name", CHECKED)
def test_activations_grow_without_it(name: str, results: dict[str, Any]) -> None:
    scales = list(results["coordinates"][f"{name}/standard"].values())
    assert max(spread(scales).values()) > 1.5


@pytest.mark.parametrize("name", RATES)
def test_the_best_rate_stays_within_a_factor_of_two(name: str, results: dict[str, Any]) -> None:
    powers = best_powers(results["losses"][f"{name}/mup"])
    assert all(abs(power - powers[0]) <= 1 for power in powers), powers


@pytest.mark.parametrize("name", ["mlp", "transformer"])
def test_the_best_rate_of_adam_falls_without_it(name: str, results: dict[str, Any]) -> None:
    powers = best_powers(results["losses"][f"{name}/standard"])
    assert powers[0] - powers[-1] >= 3, powers
