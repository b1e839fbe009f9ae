"""Rules beside 50 steps of optax.contrib, pytorch_optimizer and code of authors.

``tests/reference/optimizers_authors.npz`` has parameters after some of the steps, in float64,
written by ``make_optimizers_authors.py``.
"""

from collections.abc import Callable, Mapping

import numpy as np
import pytest
from numpy.typing import NDArray

from closedform import optimizers
from closedform.errors import DefinitionError
from closedform.language import UpdateRule
from tests.reference.draws import drawn
from tests.reference.records import ROOT
from tests.support.trajectories import trajectory

with np.load(ROOT / "optimizers_authors.npz") as file:
    ARRAYS: Mapping[str, NDArray[np.float64]] = dict(file)
RECORDED = (1, 2, 3, 10, 25, 50)

RULES: dict[str, Callable[[], UpdateRule]] = {
    "acprop": lambda: optimizers.acprop(0.01, weight_decay=0.1),
    "dog": lambda: optimizers.dog(weight_decay=0.1),
    "dog_distance": lambda: optimizers.dog(0.5, 0.1, eps=1e-6, first="distance"),
    "dog_rate": lambda: optimizers.dog(first_value=0.1, first="rate"),
    "dowg": lambda: optimizers.dowg(weight_decay=0.1),
    "dowg_estimate": lambda: optimizers.dowg(0.5, 0.01, eps=1e-3),
    "momo": lambda: optimizers.momo(0.1, weight_decay=0.1),
    "momo_adapted": lambda: optimizers.momo(1, 0.8, 0.5, 0.01, adapt_lower_bound=True),
    "adamuon": lambda: optimizers.adamuon(weight_decay=0.1),
    "adamuon_original": lambda: optimizers.adamuon(scale="original"),
}


def test_every_record_has_its_rule() -> None:
    assert {key.split("/")[0] for key in ARRAYS} == set(RULES)


@pytest.mark.parametrize("name", RULES)
def test_trajectory_is_that_of_the_authors(name: str) -> None:
    start, gradients, losses = drawn()
    keys = [key for key in start if f"{name}/{key}" in ARRAYS]
    rule = RULES[name]()
    more = [{"loss": np.float64(loss)} for loss in losses]
    steps = list(
        trajectory(
            rule,
            {key: start[key] for key in keys},
            [{key: gradient[key] for key in keys} for gradient in gradients],
            more=more if "loss" in rule.hyperparameters else None,
        )
    )
    for place, step in enumerate(RECORDED):
        for key in keys:
            # 50 steps of about 20 roundings of 1.1e-16 on parameters near 1, which a root of a
            # small sum of squares enlarges.
            np.testing.assert_allclose(
                steps[step - 1][f"param.{key}"],
                ARRAYS[f"{name}/{key}"][place],
                rtol=1e-10,
                atol=1e-12,
                err_msg=f"{key}, step {step}",
            )


BAD: dict[str, tuple[Callable[[], UpdateRule], str]] = {
    "acprop betas": (
        lambda: optimizers.acprop(betas=(0.9, 1.5)),
        "betas[1] must be in [0, 1), got 1.5 (acprop)",
    ),
    "adamuon scale": (
        lambda: optimizers.adamuon(scale="rms"),
        "scale must be one of 'match_rms_adamw', 'original', got 'rms' (adamuon)",
    ),
    "dog first": (
        lambda: optimizers.dog(first="guess"),
        "first must be one of 'heuristic', 'distance', 'rate', got 'guess' (dog)",
    ),
    "dowg estimate": (
        lambda: optimizers.dowg(estimate=-2),
        "estimate must be >= 0, got -2 (dowg)",
    ),
    "momo bound": (
        lambda: optimizers.momo(lower_bound=-0.5),
        "lower_bound must be >= 0, got -0.5 (momo)",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_argument_is_refused(name: str) -> None:
    build, message = BAD[name]
    with pytest.raises(DefinitionError) as caught:
        build()
    assert str(caught.value) == message
