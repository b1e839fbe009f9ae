"""Every entry of the zoo: exported and equal to torch, or refused with a way out."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.training.situations import SITUATIONS
from tests.training.zoo import ZOO
from tests.training.zoo_check import check

ENTRIES = {**ZOO, **SITUATIONS}


@pytest.mark.parametrize("name", ENTRIES)
def test_entry_equals_torch_or_is_refused(name: str, tmp_path: Path) -> None:
    print(f"\n{name}: {check(ENTRIES[name], tmp_path)}")
