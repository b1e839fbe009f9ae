"""The cheapest entries of the zoo; compare_zoo.py has all of them."""

from pathlib import Path

import pytest
import torch

from tests.training.methods import METHODS
from tests.training.situations import SITUATIONS
from tests.training.zoo import ZOO
from tests.training.zoo_check import check, check_in_16_bits

CHEAP = (
    "max_norm",
    "captured tensor",
    "drop path",
    "own loss",
    "nested batch",
    "written attribute",
    "masks by values",
    "labelled rows",
    "clipped policy",
    "written view of a parameter",
    "gradient in the forward",
    "length of a tensor",
    "fake quantisation of channels",
    "float64, Huber",
    "float64, smooth L1",
    "float64, limits",
    "deviation over the rows",
    "batch norm, mean of all batches",
    "gradient penalty",
    "packed, the longest decides",
    "momentum target",
    "graph attention",
    "hazard",
    "nuclear norm",
)
ENTRIES = {**ZOO, **SITUATIONS, **METHODS}


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("name", CHEAP)
def test_entry_equals_torch_or_is_refused(name: str, tmp_path: Path) -> None:
    check(ENTRIES[name], tmp_path)


@pytest.mark.parametrize("name", ["centred teacher", "two views"])
def test_an_entry_in_float16_equals_torch(name: str) -> None:
    assert check_in_16_bits(ENTRIES[name], torch.float16).startswith("gradients")


def test_the_zoo_is_large() -> None:
    assert len(ENTRIES) >= 110
    assert sum(entry.refused is None for entry in ENTRIES.values()) >= 105
