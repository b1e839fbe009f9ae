"""Every entry of the zoo: exported and equal to torch, or refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.training.methods import METHODS
from tests.training.situations import SITUATIONS
from tests.training.zoo import ZOO
from tests.training.zoo_check import check, check_in_half

ENTRIES = {**ZOO, **SITUATIONS, **METHODS}


@pytest.mark.parametrize("name", ENTRIES)
def test_entry_equals_torch_or_is_refused(name: str, tmp_path: Path) -> None:
    print(f"\n{name}: {check(ENTRIES[name], tmp_path)}")


@pytest.mark.parametrize("name", METHODS)
def test_an_entry_in_float16_equals_torch_or_is_refused(name: str) -> None:
    print(f"\n{name}: {check_in_half(METHODS[name])}")
