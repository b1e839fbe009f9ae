"""docs/determinism.md: each promise of the table, by runs whose bits are compared.

The engines that take long to compile, and runs in new processes, are in
tests/determinism/compare_determinism.py.
"""

from collections.abc import Iterator

import pytest
import torch

from closedform.runtime.c_library import c_compiler
from tests.determinism.contract import MEANINGS, PAGE, cells, promises
from tests.determinism.runs import CHECKS, ENGINES, RULES

QUICK = ("`OptimizerSession`, onnxruntime", "`OptimizerSession`, C", "torch, eager")
TEXT = PAGE.read_text(encoding="utf-8")


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_the_table_has_each_engine_and_each_way_to_run() -> None:
    expected = [(engine, column) for engine in ENGINES for column in (*CHECKS, "processors")]
    assert [(engine, column) for engine, column, _ in cells(TEXT)] == expected
    assert {text for _, column, text in cells(TEXT) if column == "processors"} == {"not measured"}


@pytest.mark.parametrize(
    ("engine", "column", "kind"), [case for case in promises(TEXT) if case[0] in QUICK]
)
def test_bits_are_equal(engine: str, column: str, kind: str) -> None:
    if "C" in engine.split() and c_compiler() is None:
        pytest.skip("there is no C compiler")
    assert CHECKS[column](ENGINES[engine], kind)


def test_runs_that_are_not_promised_to_be_equal_differ() -> None:
    """Random numbers are by the place in a shard: the comparison of bits sees a difference."""
    assert set(RULES) == set().union(*MEANINGS.values())
    assert not CHECKS["shards"](ENGINES[QUICK[0]], "random")
