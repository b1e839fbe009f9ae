"""Faults planted in the lowering and the simplifier are found by translation validation.

A few of each module here; all of them in ``compare_faults.py``, which ``make compare`` runs.
"""

from dataclasses import replace
from types import ModuleType

import pytest

from closedform.ir.graph import Graph
from closedform.lowering import piecewise, trigonometry
from closedform.verify.terms.verdict import Status, Verdict
from closedform.verify.translation.translation import validate
from tests.support.mutation import mutants_of, planted
from tests.verify import faults
from tests.verify.faults import HANDLERS, OF_SCHEDULES, PASSES, Outcome, drawn, judged

EVERY = 3
"""The part of the library that is compiled with faults here."""
SWEEP = replace(OF_SCHEDULES, tried=2)
"""A fault is tried on two schedules of those whose compilation runs its line."""


@pytest.mark.sample(every=2)
@pytest.mark.parametrize("module", [*HANDLERS, *PASSES], ids=lambda module: module.__name__)
def test_planted_faults_are_caught(module: ModuleType) -> None:
    mutants = drawn(SWEEP, module, 2, seed=20, every=EVERY)
    assert mutants, "no mutant of this module is run by a sample"
    missed, table = SWEEP.missed(mutants, EVERY)
    assert not missed, f"{missed}\n{table}"


@pytest.mark.parametrize(
    ("status", "wanted"),
    [
        (Status.PROVED, Outcome.MISSED),
        (Status.REFUTED, Outcome.REFUTED),
        (Status.UNKNOWN, Outcome.UNKNOWN),
    ],
)
def test_the_judge(status: Status, wanted: Outcome) -> None:
    assert judged(Verdict(status), lambda: Outcome.MISSED, Outcome.REFUTED) is wanted


def test_a_wrong_graph_that_is_said_to_be_proved_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge does not believe the prover."""
    sample, other = OF_SCHEDULES.sample("cosine"), OF_SCHEDULES.sample("linear")
    monkeypatch.setattr(faults, "validate", lambda *_, **__: Verdict(Status.PROVED))
    found = OF_SCHEDULES.outcome_of_graph(sample.source, other.graph, sample.graph)
    assert found is Outcome.MISSED
    same = OF_SCHEDULES.outcome_of_graph(sample.source, sample.graph, sample.graph)
    assert same in (Outcome.EQUIVALENT, Outcome.COARSER)


def test_a_mutant_changes_a_graph_while_it_is_planted_and_no_longer() -> None:
    sample = OF_SCHEDULES.sample("cosine")
    fault = next(
        mutant
        for mutant in mutants_of(trigonometry)
        if mutant.function == "raised_cosine" and "2 * rise" in mutant.what
    )
    assert OF_SCHEDULES.outcome(fault, sample) is Outcome.REFUTED
    with planted(fault) as bearers:
        assert bearers == 1
    assert validate(sample.source, sample.graph).proved
    assert isinstance(sample.graph, Graph)


def test_faults_are_planted_everywhere() -> None:
    """Each handler and pass has mutants of several kinds: none is left out by the generator."""
    for module in (*HANDLERS, *PASSES):
        found = mutants_of(module)
        assert len({mutant.function for mutant in found}) >= 2, module.__name__
    kinds = {mutant.what for mutant in mutants_of(piecewise)}
    assert any("Op.WHERE" in what for what in kinds)
    assert any(" - " in what and " + " in what for what in kinds)
