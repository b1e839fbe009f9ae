"""Every drop-in with its compiled step next to torch's optimizer under torch's schedulers."""

from itertools import product

import pytest
import torch

from closedform.torch import optim
from tests.torch.training import COMPILING
from tests.torch.under_schedulers import BOUND, BOUNDS, SCHEDULERS, worst_difference


@pytest.mark.filterwarnings(COMPILING)
@pytest.mark.parametrize(("name", "scheduler"), list(product(optim.OPTIMIZERS, SCHEDULERS)))
def test_compiled_drop_in_is_torch_under_a_scheduler(name: str, scheduler: str) -> None:
    assert worst_difference(name, scheduler, "compile", torch.float32) <= BOUNDS.get(name, BOUND)
