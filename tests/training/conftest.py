"""Fixtures of the tests of training."""

import pytest
import torch

from tests.support.torch_exporter import operators_are_listed_once

__all__ = ["operators_are_listed_once"]


@pytest.fixture(autouse=True)
def _seed_torch() -> None:
    """Models and batches of a test are drawn alike, whichever tests ran before on its worker."""
    torch.manual_seed(0)
