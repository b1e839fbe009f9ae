"""Every entry of the zoo: exported and equal to torch, or refused with a way out."""

from pathlib import Path

import pytest

from tests.training.functions import FUNCTIONS
from tests.training.situations import SITUATIONS
from tests.training.zoo import ZOO, Entry, after, vectors
from tests.training.zoo_check import check

# torch calls index_reduce beta, and its own jvp what it deprecates.
pytestmark = [
    pytest.mark.filterwarnings("ignore:index_reduce:UserWarning"),
    pytest.mark.filterwarnings("ignore:`torch.jit.script`:DeprecationWarning"),
]

ENTRIES = {**ZOO, **SITUATIONS}

# Sums of squares of results diverge later: nothing bounds them.
FEW_STEPS = 4


@pytest.mark.parametrize("name", ENTRIES)
def test_entry_equals_torch_or_is_refused(name: str, tmp_path: Path) -> None:
    print(f"\n{name}: {check(ENTRIES[name], tmp_path)}")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_with_a_free_batch_equals_torch(name: str, tmp_path: Path) -> None:
    entry = Entry(after(FUNCTIONS[name]), vectors())
    print(f"\n{name}: {check(entry, tmp_path, FEW_STEPS)}")
