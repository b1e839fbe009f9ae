"""Fixtures of the tests of training."""

from importlib.util import find_spec

import pytest

HAS_TORCH = find_spec("torch") is not None
# Tests of files that need no torch run without it.
if HAS_TORCH:
    from tests.support.torch_exporter import operators_are_listed_once

    __all__ = ["operators_are_listed_once"]


@pytest.fixture(autouse=True)
def _seed_torch() -> None:
    """Models and batches of a test are drawn alike, whichever tests ran before on its worker."""
    if HAS_TORCH:
        import torch

        torch.manual_seed(0)
