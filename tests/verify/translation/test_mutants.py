"""Faults planted in the lowering and the passes are found by translation validation.

A few of each module here; all of them in ``compare_mutants.py``, which ``make compare`` runs.
"""

from types import ModuleType

import pytest

from closedform.ir.graph import Graph
from closedform.lowering import piecewise, trigonometry
from closedform.verify.translation.translation import validate
from tests.support.mutation import mutants_of, planted
from tests.verify.planted_faults import (
    HANDLERS,
    PASSES,
    Outcome,
    drawn,
    judge,
    outcome_of,
    samples,
    table,
)


@pytest.mark.parametrize("module", [*HANDLERS, *PASSES], ids=lambda module: module.__name__)
def test_planted_faults_are_caught(module: ModuleType) -> None:
    results = [(mutant, *judge(mutant)) for mutant in drawn([module], 4, seed=20)]
    missed = [f"{mutant} ({name})" for mutant, one, name in results if one is Outcome.MISSED]
    assert not missed, table(results)
    assert results, "no mutant of this module is run by a sample"


def test_a_mutant_changes_a_graph_while_it_is_planted_and_no_longer() -> None:
    sample = next(one for one in samples() if one.name == "cosine")
    fault = next(
        mutant
        for mutant in mutants_of(trigonometry)
        if mutant.function == "raised_cosine" and "2 * rise" in mutant.what
    )
    assert outcome_of(fault, sample) is Outcome.REFUTED
    with planted(fault) as bearers:
        assert bearers == 1
    assert validate(sample.schedule, sample.graph).proved
    assert isinstance(sample.graph, Graph)


def test_faults_are_planted_everywhere() -> None:
    """Each handler and pass has mutants of several kinds: none is left out by the generator."""
    for module in (*HANDLERS, *PASSES):
        found = mutants_of(module)
        assert len({mutant.function for mutant in found}) >= 2, module.__name__
    kinds = {mutant.what for mutant in mutants_of(piecewise)}
    assert any("Op.WHERE" in what for what in kinds)
    assert any(" - " in what and " + " in what for what in kinds)
