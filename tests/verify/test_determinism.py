"""Verdicts are the same, byte for byte, whatever hashes, orders and earlier goals are."""

import os
import subprocess
import sys
from typing import Any

import pytest

from closedform import Schedule, claims, schedules, t
from closedform.effort import METER
from closedform.verify.claims import core
from closedform.verify.claims.core import Proofs
from closedform.verify.prover import prove
from closedform.verify.terms.tree import Term
from closedform.verify.terms.verdict import Verdict
from tests.support.sampling import is_exhaustive
from tests.verify.test_goals import GOALS
from tests.verify.verdicts import line_of

# Every 62nd subject, none of which takes more than a second; compare_determinism.py has all.
EVERY = 62


def verdicts_of_process(hash_seed: int, order: int, every: int = EVERY) -> str:
    """The output of a process with another hash seed and another order of subjects."""
    return subprocess.run(
        [sys.executable, "-m", "tests.verify.verdicts", str(every), str(order)],
        env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def test_hashes_and_orders_change_no_verdict() -> None:
    first = verdicts_of_process(0, 0)
    assert first.count("\n") >= 8
    for seed in range(1, 3 if is_exhaustive() else 2):
        assert verdicts_of_process(seed, seed) == first, seed


def test_a_goal_takes_the_same_work_after_others() -> None:
    chosen = GOALS[::40]

    def asked() -> list[tuple[str, int]]:
        found = []
        for goal in chosen:
            before = METER.work
            verdict = prove(goal.goal, assume=goal.assume)
            found.append((line_of(goal.name, verdict), METER.work - before))
        return found

    first = asked()
    chosen = chosen[::-1]
    assert asked()[::-1] == first


def test_what_other_claims_have_proved_decides_nothing_more() -> None:
    lr = schedules.wsd(1, 0, 100, 10, 20)
    asked = [claims.total(lr), claims.bounded(lr, 0, 1), claims.finite(lr), claims.continuous(lr)]
    alone = [claim.verify() for claim in asked]
    for order in (asked, asked[::-1]):
        shared = Proofs()
        together = {claim.name: claim.verify(proofs=shared) for claim in order}
        assert [together[claim.name] for claim in asked] == alone


def test_shared_proofs_count_their_work_again() -> None:
    claim = claims.bounded(schedules.cosine(1, 0, 100), 0, 1)
    shared = Proofs()
    works = []
    for _ in range(2):
        before = METER.work
        claim.verify(proofs=shared)
        works.append(METER.work - before)
    # Without the work of its goals the second time would take a tenth.
    assert works[1] > 0.8 * works[0]


@pytest.mark.parametrize("multiple", [0.3, 1, 1.4])
def test_a_goal_that_is_asked_later_is_not_proved_again(
    multiple: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The effort that is left differs; the stages of the search are the same."""
    goals: list[Term] = []

    def count(goal: Term, **given: Any) -> Verdict:
        goals.append(goal)
        return prove(goal, **given)

    monkeypatch.setattr(core, "prove", count)
    shared, lr = Proofs(), schedules.cosine(1, 0, 100)
    assert claims.bounded(lr, 0, 1).verify(proofs=shared).proved
    asked = len(goals)
    assert claims.bounded(lr, 0, 1).verify(effort=multiple, proofs=shared).proved
    assert len(goals) == asked > 0


def test_a_limit_of_time_names_itself() -> None:
    lr = schedules.cosine(1, 0, 100)
    verdict = claims.bounded(lr, 0, 1).verify(budget=1e-9)
    assert verdict.unknown
    assert "the limit of 1e-09 s of wall-clock time was reached" in verdict.reason
    assert "depends on the machine" in verdict.reason


def test_little_effort_is_said_without_a_clock() -> None:
    verdict = claims.bounded(Schedule(t % 7), 0, 6).verify(effort=1e-6)
    assert verdict.unknown
    assert "the effort was used up" in verdict.reason
    assert "wall-clock" not in verdict.reason
