"""Drop-ins step as torch's optimizers do under a scheduler, states of the step before included."""

from itertools import product

import pytest
import torch

from closedform.torch import optim
from tests.torch.under_schedulers import BOUND, BOUNDS, SCHEDULERS, worst_difference

CASES = list(product(optim.OPTIMIZERS, SCHEDULERS, (torch.float32, torch.float64)))


@pytest.mark.sample(every=5)
@pytest.mark.parametrize(("name", "scheduler", "dtype"), CASES)
def test_drop_in_is_torch_under_a_scheduler(name: str, scheduler: str, dtype: torch.dtype) -> None:
    assert worst_difference(name, scheduler, "eager", dtype) <= BOUNDS.get(name, BOUND)


@pytest.mark.parametrize("name", ["ASGD", "NAdam", "Rprop"])
def test_what_a_step_stores_is_that_of_torch(name: str) -> None:
    for dtype in (torch.float32, torch.float64):
        assert worst_difference(name, "LambdaLR", "eager", dtype) <= BOUND
