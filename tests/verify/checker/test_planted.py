"""No proof of a false goal: not by the search, not the proof of a true one, not a tampered one."""

from __future__ import annotations

import pytest

from closedform.verify.certification.statements import statement_of
from tests.verify.checker.planted import (
    certify_or_none,
    false_goals,
    is_accepted,
    tampered_proofs,
)
from tests.verify.tactics.test_goals import GOALS


def accepted_false_goals(count: int, tampered_count: int) -> tuple[list[str], int]:
    """The false goals for which something is accepted, and how many proofs were tampered with."""
    accepted = []
    tried = 0
    for place, (goal, false) in enumerate(false_goals(GOALS, count)):
        statement = statement_of(false.goal, false.assume)
        if certify_or_none(statement) is not None:
            accepted.append(f"{false.name}: the search")
        proof = certify_or_none(statement_of(goal.goal, goal.assume))
        if proof is None:
            continue
        if is_accepted(statement, proof):
            accepted.append(f"{false.name}: the proof of the true goal")
        for tampered in tampered_proofs(proof, tampered_count, place):
            tried += 1
            if is_accepted(statement, tampered):
                accepted.append(f"{false.name}: {tampered}")
    return accepted, tried


def test_no_proof_of_some_planted_false_goals() -> None:
    accepted, tried = accepted_false_goals(6, 12)
    assert accepted == []
    assert tried >= 24


@pytest.mark.exhaustive
def test_no_proof_of_two_hundred_planted_false_goals() -> None:
    accepted, tried = accepted_false_goals(200, 10)

    assert accepted == []
    assert tried >= 1000
