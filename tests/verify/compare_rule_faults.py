"""Every fault planted in the lowering of rules, and many in each rule; run by ``make compare``."""

import random
from types import ModuleType

import pytest

from closedform.verify.translation.translation import validate
from tests.support.mutation import mutants_of
from tests.verify.planted_faults import Outcome, table
from tests.verify.planted_rule_faults import (
    MODULES,
    compiled,
    faulty,
    judge,
    outcome_of_graph,
    samples,
)

FAULTS_OF_A_RULE = 60


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


@pytest.mark.parametrize("place", range(len(samples())), ids=lambda place: samples()[place].name)
def test_faulty_rules_are_not_proved(place: int, capsys: pytest.CaptureFixture[str]) -> None:
    sample = samples()[place]
    faults = list(faulty(sample.rule))
    counts = dict.fromkeys(("refuted", "unknown", "the same function"), 0)
    for what, rule in random.Random(7).sample(faults, min(FAULTS_OF_A_RULE, len(faults))):
        verdict = validate(rule, sample.graph, budget=0.5)
        if verdict.proved:
            outcome = outcome_of_graph(rule, sample.graph, compiled(rule))
            assert outcome is Outcome.EQUIVALENT, what
        kind = "the same function" if verdict.proved else str(verdict.status).lower()
        counts[kind] += 1
    with capsys.disabled():
        print(f"\n{sample.name}: {counts}")
