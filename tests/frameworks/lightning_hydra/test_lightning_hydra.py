"""lightning-hydra-template: plateaus next to torch's, the clock, and the forms of its configs."""

import itertools
from typing import Any

import numpy as np
import pytest
import torch

from closedform import frameworks
from closedform.errors import ClosedFormError, MissingFactsError
from closedform.recipes import load_recipe
from closedform.recipes.clock import Unit

ADAM = {"_target_": "torch.optim.Adam", "_partial_": True, "lr": 1.0}


def scheduler(name: str, **arguments: Any) -> dict[str, Any]:
    return {"_target_": f"torch.optim.lr_scheduler.{name}", "_partial_": True, **arguments}


MODES = list(itertools.product(("min", "max"), ("rel", "abs"), (1.0, -1.0, 0.0)))
ARGUMENTS: list[dict[str, Any]] = [
    {"patience": 2},
    {"patience": 0, "factor": 0.5, "eps": 1e-3},
    {"patience": 3, "cooldown": 2, "min_lr": 0.05},
    {"patience": 1, "eps": 0.0},
]


@pytest.mark.parametrize(("mode", "threshold_mode", "loss"), MODES)
@pytest.mark.parametrize("arguments", ARGUMENTS, ids=lambda given: f"patience {given['patience']}")
def test_a_plateau_is_that_of_torch(
    arguments: dict[str, Any], mode: Any, threshold_mode: Any, loss: float
) -> None:
    given = {**arguments, "mode": mode, "threshold_mode": threshold_mode}
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.5)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, **given)
    wanted = []
    for _ in range(40):
        wanted.append(optimizer.param_groups[0]["lr"])
        plateau.step(loss)
    config = {
        "model": {"optimizer": {**ADAM, "lr": 0.5}, "scheduler": scheduler(METRIC, **given)},
        "trainer": {"max_epochs": 40},
    }
    schedule = frameworks.schedule("lightning-hydra", METRIC, config, facts={"constant_loss": loss})
    # Each change rounds the rate once more.
    np.testing.assert_allclose(schedule(np.arange(40)), wanted, rtol=1e-14)


METRIC = "ReduceLROnPlateau"


def test_the_scheduler_is_stepped_after_each_epoch() -> None:
    line = scheduler("LinearLR", start_factor=0.5, total_iters=4)
    config = {"model": {"optimizer": ADAM, "scheduler": line}, "trainer": {"max_epochs": 10}}
    epochs, updates = load_recipe(config), load_recipe(config, facts={"updates_per_epoch": 3})
    assert updates.clock is not None
    assert (updates.clock.unit, epochs.horizon, updates.horizon) == (Unit.EPOCH, 10, 30)
    steps = range(33)
    assert [updates.schedule().exact(t) for t in steps] == [
        epochs.schedule().exact(t // 3) for t in steps
    ]
    stepped = load_recipe(config, facts={"updates_per_epoch": 3, "interval": "step"})
    assert stepped.horizon == 30
    assert [stepped.schedule().exact(t) for t in steps] == [
        epochs.schedule().exact(t) for t in steps
    ]


def test_the_file_of_a_model_is_a_config() -> None:
    recipe = load_recipe({"_target_": "src.models.Module", "optimizer": ADAM, "scheduler": None})
    assert (recipe.framework, recipe.horizon) == ("lightning-hydra", None)
    assert recipe.schedule().exact(5) == 1


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ({"_target_": "torch.optim.lr_scheduler.StepLR", "step_size": 3}, "give _partial_: true"),
        (scheduler("StepLR"), "missing argument 'step_size'"),
        (scheduler("StepLR", step_size=3, gama=0.1), "unknown argument 'gama'"),
        (scheduler("NoLR"), "torch has no scheduler 'NoLR'"),
        ({**scheduler("StepLR"), "_target_": "src.MyLR"}, "must be a class of torch.optim"),
        (scheduler(METRIC, factor=1.0), "factor must be below 1"),
    ],
)
def test_a_scheduler_that_hydra_cannot_make_is_refused(node: dict[str, Any], message: str) -> None:
    config = {"model": {"optimizer": ADAM, "scheduler": node}}
    with pytest.raises(ClosedFormError, match=message):
        load_recipe(config, facts={"constant_loss": 1.0})


def test_a_plateau_needs_the_loss() -> None:
    config = {"model": {"optimizer": ADAM, "scheduler": scheduler(METRIC)}}
    with pytest.raises(MissingFactsError, match="missing facts: constant_loss"):
        load_recipe(config)
