"""Every fault planted in the lowering and the passes: minutes, run by ``make compare``."""

from types import ModuleType

import pytest

from tests.support.mutation import mutants_of
from tests.verify.planted_faults import MODULES, Outcome, judge, samples, table


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_every_planted_fault_is_caught_or_no_fault(
    module: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = frozenset().union(*(one.lines for one in samples()))
    run = [mutant for mutant in mutants_of(module) if (mutant.path, mutant.line) in lines]
    results = [(mutant, *judge(mutant)) for mutant in run]
    with capsys.disabled():
        print(f"\n{module.__name__}: {len(run)} faults: {table(results)}")
    missed = [f"{mutant} ({name})" for mutant, one, name in results if one is Outcome.MISSED]
    assert not missed, "\n".join(missed)
