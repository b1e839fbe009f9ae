"""No proof of a false goal: not by the search, not the proof of a true one, not a tampered one."""

import pytest

from closedform.verify.search.statements import statement_of
from tests.verify.checker.attacks import offer_edits, offer_false_claims
from tests.verify.checker.false_claims import false_claims
from tests.verify.checker.planted import (
    certify_or_none,
    false_goals,
    is_accepted,
    tampered_proofs,
)
from tests.verify.goals import PROVED
from tests.verify.test_goals import GOALS


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


def test_no_proof_of_some_false_claims_about_the_library() -> None:
    result = offer_false_claims(false_claims(20, every=12), units=60_000, edits=5)
    assert result.accepted == []
    assert result.claims.total() == 20
    assert result.proofs >= 60


def test_edits_that_leave_no_proof_are_rejected() -> None:
    certificates = []
    for goal in [goal for goal in GOALS if goal.expected is PROVED][2::20]:
        statement = statement_of(goal.goal, goal.assume)
        proof = certify_or_none(statement, 150_000)
        if proof is not None:
            assert is_accepted(statement, proof)
            certificates.append((statement, proof))
    result = offer_edits(certificates, 150, seed=2, harmless=False)
    assert result.texts == []
    assert len(result.edits) >= 5
    harmless = offer_edits(certificates, 150, seed=2, harmless=True)
    assert harmless.accepted.total() <= 0.15 * harmless.edits.total()
