"""Optimizers of torch and their drop-ins under torch's schedulers, in float64."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.optim import lr_scheduler
from torch.optim.lr_scheduler import LRScheduler

from closedform.torch import optim
from tests.torch.training import largest_difference, parameters, steps

STEPS = 50
BOUND = 1e-12
"""Of the largest parameter: 50 steps of some 20 roundings of 1.1e-16, ten times over."""

# Muon's iteration is in bfloat16, of which an ulp is 2^-8, times a rate of up to 0.1: torch
# accumulates its sums in float32, in the order of its library, and a sum next to the middle of two
# numbers of bfloat16 falls to either side. In 50 steps that is the case once or not at all.
BOUNDS = {"Muon": 0.1 * 2.0**-8}


def _jumping(epoch: int) -> float:
    """Factors with a zero and jumps by more than 100: what a step stores of the last one shows."""
    return (1.0, 0.3, 0.0, 2.5, 0.01, 7.0)[epoch // 3 % 6]


def _one_cycle(optimizer: torch.optim.Optimizer) -> LRScheduler:
    cycles = {"betas", "momentum"} & optimizer.defaults.keys()
    return lr_scheduler.OneCycleLR(
        optimizer, max_lr=0.1, total_steps=STEPS + 1, cycle_momentum=bool(cycles)
    )


SCHEDULERS: dict[str, Callable[[torch.optim.Optimizer], LRScheduler]] = {
    "StepLR": lambda optimizer: lr_scheduler.StepLR(optimizer, 3, 0.3),
    "OneCycleLR": _one_cycle,
    "CosineAnnealingLR": lambda optimizer: lr_scheduler.CosineAnnealingLR(optimizer, 17),
    "LambdaLR": lambda optimizer: lr_scheduler.LambdaLR(optimizer, _jumping),
}

MOMENTUM: dict[str, dict[str, float]] = {
    "SGD": {"momentum": 0.9},
    "RMSprop": {"momentum": 0.9},
    "ASGD": {"t0": 20},
}


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """The dtype in which torch keeps scalar states, such as ``eta`` and ``mu_product``."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def worst_difference(name: str, scheduler: str, backend: str, dtype: torch.dtype) -> float:
    """The largest difference from torch after any number of steps, of its largest parameter."""
    shapes = [(6, 4), (4, 3)] if name == "Muon" else [(6, 4), (5,), ()]
    options: dict[str, Any] = {"lr": 0.05, **MOMENTUM.get(name, {})}
    with default_dtype(dtype):
        theirs = parameters(shapes, dtype=torch.float64)
        ours = parameters(shapes, dtype=torch.float64)
        original = getattr(torch.optim, name)(theirs, **options)
        dropin = optim.OPTIMIZERS[name](ours, **options, backend=backend)
        both = ((original, theirs), (dropin, ours))
        clocks = [SCHEDULERS[scheduler](optimizer) for optimizer, _ in both]
        worst = 0.0
        for step in range(STEPS):
            for (optimizer, params), clock in zip(both, clocks, strict=True):
                steps(optimizer, params, 1, seed=step, after=clock.step)
            scale = max(float(param.detach().abs().max()) for param in theirs)
            worst = max(worst, largest_difference(ours, theirs) / scale)
    return worst
