"""Muon on blocks of a weight, and on a sphere, beside 50 steps of the code of others.

``tests/reference/optimizers_muon.npz`` has the weight after each step, written by
``make_optimizers_muon.py``: dion with ``split_sizes`` and ``num_heads``, torch on the blocks as
separate parameters, Emerging-Optimizers with its hook for a split and on a sphere of radius 3, and
MuonH of track 3 of modded-nanogpt.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from closedform import optimizers, transforms
from closedform.language import UpdateRule
from tests.reference.draws import drawn_matrices
from tests.reference.records import ROOT
from tests.support.trajectories import trajectory

with np.load(ROOT / "optimizers_muon.npz") as file:
    WEIGHTS: Mapping[str, NDArray[np.float64]] = dict(file)

BLOCKS = (6, 2, 2)
# The iteration of track 3: twelve steps of one polynomial.
TRACK_3: dict[str, Any] = {"ns_steps": 12, "ns_coefficients": (2, -1.5, 0.5), "floor": "added"}


def _muon(lr: Any = 0.02, weight_decay: Any = 0.1, **options: Any) -> UpdateRule:
    return optimizers.muon(lr, weight_decay, scale="match_rms_adamw", **options)


RULES: dict[str, tuple[Callable[[], UpdateRule], float]] = {
    "dion_split": (lambda: _muon(partitions=BLOCKS), 1e-11),
    "dion_heads": (lambda: _muon(partitions=5), 1e-11),
    "torch_blocks": (lambda: _muon(partitions=BLOCKS), 1e-11),
    "track_3": (
        lambda: transforms.hyperball(optimizers.muon(0.018, 0, **TRACK_3)),
        1e-11,
    ),
    # Emerging-Optimizers computes in float32 only: 50 steps of roundings of 6e-8.
    "emerging_split": (lambda: _muon(partitions=BLOCKS), 1e-5),
    "emerging_hyperball": (
        lambda: transforms.hyperball(
            optimizers.muon(0.02, 0.1, nesterov=False), radius=3, eps=1e-15
        ),
        1e-5,
    ),
}


def _weights(rule: UpdateRule, radius: float = 0) -> NDArray[Any]:
    start, gradients = drawn_matrices()
    start = start * (radius / np.linalg.norm(start)) if radius else start
    steps = trajectory(rule, {"w": start}, [{"w": gradient} for gradient in gradients])
    return np.stack([feed["param.w"] for feed in steps])


def test_every_record_has_its_rule() -> None:
    assert set(WEIGHTS) == set(RULES)


@pytest.mark.parametrize("name", RULES)
def test_trajectory_is_that_of_the_authors(name: str) -> None:
    build, tolerance = RULES[name]
    weights = _weights(build(), 3 if name == "emerging_hyperball" else 0)
    np.testing.assert_allclose(weights, WEIGHTS[name], rtol=0, atol=tolerance)


def test_the_blocks_of_a_weight_are_not_the_weight() -> None:
    assert np.abs(_weights(_muon())[0] - WEIGHTS["dion_split"][0]).max() > 1e-3


def test_the_norm_stays() -> None:
    start, _ = drawn_matrices()
    norms = np.linalg.norm(WEIGHTS["track_3"], axis=(1, 2))
    # 50 steps, each of which rounds a norm of 10 twice.
    np.testing.assert_allclose(norms, np.linalg.norm(start), rtol=1e-13)
