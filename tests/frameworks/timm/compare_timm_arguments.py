"""Arguments of timm's train.py, next to the scheduler that timm's own factory makes of them.

Not collected with the tests, since timm is not a development dependency: ``make compare``. The loop
is that of ``train.py``: a step of updates after each of them, a step of epochs after each of them.
"""

import random
from argparse import Namespace
from typing import Any

import numpy as np
import pytest
import torch

from closedform.errors import ClosedFormError
from closedform.recipes import load_recipe
from tests.recipes.installed import timm_scheduler

pytestmark = pytest.mark.packages(JAX_ENABLE_X64="1")
DRAWN = 300
LEAST_READ = 250
"""Drawn arguments that timm accepts, at least: the others are refused by both."""
PER_EPOCH = 3
BASE = 0.1


def drawn(seed: int) -> dict[str, Any]:
    """Arguments of a run of a few epochs."""
    draw = random.Random(seed)
    epochs, warmup = draw.randint(6, 20), draw.choice([0, 1, 3, 5])
    kind = draw.choice(["cosine", "tanh", "poly", "step", "multistep", "wsd", "rsqrt", "constant"])
    arguments: dict[str, Any] = {
        "sched": kind,
        "opt": "sgd",
        "lr": BASE,
        "epochs": epochs,
        "warmup_epochs": warmup,
        "warmup_lr": draw.choice([0.0, 1e-5, 0.2]),
        "min_lr": draw.choice([0.0, 1e-3]),
        "cooldown_epochs": draw.choice([0, 2]),
        "decay_rate": draw.choice([0.1, 0.5, 0.97]),
        "decay_epochs": draw.choice([2, 2.5, 4]),
        "decay_milestones": sorted(draw.sample(range(1, epochs), 2)),
        "warmup_prefix": draw.random() < 0.4,
        "sched_on_updates": draw.random() < 0.5,
    }
    if kind in ("cosine", "tanh", "poly") and draw.random() < 0.4:
        arguments |= {"lr_cycle_limit": 2, "lr_cycle_mul": draw.choice([1.0, 2.0])}
    if kind in ("cosine", "poly") and draw.random() < 0.3:
        arguments["lr_k_decay"] = 2.0
    if kind in ("wsd", "rsqrt"):
        arguments["decay_epochs"] = draw.choice([None, 0.3, 2])
        arguments["lr_decay_fn"] = draw.choice([None, "linear", "cosine", "1-sqrt"])
    return {key: value for key, value in arguments.items() if value is not None}


DEFAULTS = {
    "decay_epochs": None,
    "lr_cycle_decay": 0.5,
    "lr_cycle_limit": 1,
    "lr_decay_fn": None,
    "lr_stable_timescale": None,
}
"""Defaults of train.py that are not those of the factory."""


def of_timm(arguments: dict[str, Any]) -> tuple[list[float], int]:
    """The rate of every update of the run, and the number of its epochs."""
    timm = timm_scheduler()
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=BASE)
    factory = timm.scheduler_factory
    keywords = factory.scheduler_kwargs(Namespace(**{**DEFAULTS, **arguments}))
    scheduler, epochs = factory.create_scheduler_v2(
        optimizer, **keywords, updates_per_epoch=PER_EPOCH
    )
    rates, updates = [], 0
    for epoch in range(epochs):
        for _ in range(PER_EPOCH):
            rates.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            updates += 1
            scheduler.step_update(num_updates=updates)
        scheduler.step(epoch + 1, None)
    return rates, epochs


@pytest.mark.parametrize("seed", range(DRAWN))
def test_rates_are_those_of_the_factory(seed: int) -> None:
    arguments = drawn(seed)
    try:
        wanted, epochs = of_timm(arguments)
    except (AssertionError, ValueError):
        with pytest.raises(ClosedFormError):
            load_recipe(arguments, facts={"updates_per_epoch": PER_EPOCH})
        return
    recipe = load_recipe(arguments, facts={"updates_per_epoch": PER_EPOCH})
    assert recipe.framework == "timm"
    assert recipe.horizon == epochs * PER_EPOCH
    computed = recipe.schedule()(np.arange(len(wanted)))
    # Both compute in float64, with other orders of the same operations.
    np.testing.assert_allclose(computed, wanted, rtol=0, atol=1e-13)


def test_most_of_the_drawn_arguments_have_rates() -> None:
    accepted = 0
    for seed in range(DRAWN):
        try:
            of_timm(drawn(seed))
        except (AssertionError, ValueError):
            continue
        accepted += 1
    assert accepted >= LEAST_READ
