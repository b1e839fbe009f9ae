"""Every fault planted in the compiler, and many in each rule: minutes, run by ``make compare``."""

import random
from types import ModuleType

import pytest

from closedform.effort import Effort
from closedform.verify.translation.translation import validate
from tests.verify.faults import OF_RULES, OF_SCHEDULES, WRONG, Outcome, Sweep, compiled, faulty

FAULTS_OF_A_RULE = 60
SWEEPS = [
    pytest.param(sweep, module, id=f"{kind} {module.__name__}")
    for kind, sweep in (("schedules", OF_SCHEDULES), ("rules", OF_RULES))
    for module in sweep.modules
]


@pytest.mark.parametrize(("sweep", "module"), SWEEPS)
def test_every_planted_fault_is_caught_or_harmless(
    sweep: Sweep, module: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    run = sweep.mutants(module)
    missed, table = sweep.missed(run)
    with capsys.disabled():
        print(f"\n{module.__name__}: {len(run)} faults: {table}")
    assert not missed, "\n".join(missed)


@pytest.mark.parametrize("name", OF_RULES.sources)
def test_faulty_rules_are_not_proved(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    sample = OF_RULES.sample(name)
    faults = list(faulty(sample.source))
    counts = dict.fromkeys(("refuted", "unknown", "the same function"), 0)
    for what, rule in random.Random(7).sample(faults, min(FAULTS_OF_A_RULE, len(faults))):
        verdict = validate(rule, sample.graph, effort=Effort.of(500_000))
        if verdict.proved:
            outcome = OF_RULES.outcome_of_graph(rule, sample.graph, compiled(rule))
            assert outcome not in WRONG, what
            assert outcome is Outcome.EQUIVALENT, what
        counts["the same function" if verdict.proved else str(verdict.status).lower()] += 1
    with capsys.disabled():
        print(f"\n{sample.name}: {counts}")
