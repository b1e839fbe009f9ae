"""The proofs of all proved goals, replayed by the checker; false claims and edited proofs.

No test of ``make test``: it takes minutes. ``make checker`` runs it, and stores the figures of
docs/verification.md.
"""

import json
import statistics
import time
from collections import Counter
from pathlib import Path

import pytest

from closedform.verify.checker.replay import check
from closedform.verify.search.refutation import find_proof
from closedform.verify.search.statements import statement_of
from closedform.verify.search.steps import NoProofError
from tests.support.stored_results import StoredResults
from tests.verify.checker.attacks import offer_edits, offer_false_claims
from tests.verify.checker.false_claims import false_claims
from tests.verify.checker.planted import certify_or_none
from tests.verify.checker.proof_edits import HARMLESS
from tests.verify.goals import PROVED
from tests.verify.proved_goals import SOURCES, ProvedGoal, distinct_goals
from tests.verify.test_goals import GOALS
from tools.sections import add_figures

FIGURES = Path(__file__).parents[2] / "tools" / "results" / "checker.json"
MEDIAN_MS = 5
# The least share of the goals whose proofs are accepted; the reasons of the rest are stored.
SHARES = {"table": 0.9, "theorems": 0.9, "schedules": 0.99, "rules": 0.97}
REPLAYS = 50
"""Of each proof: the clock of the processor moves by whole milliseconds."""
FALSE_CLAIMS = 200
EDITS = 200
EDITS_OF_A_CLAIM = 10
WORK = 250_000
MOST_PROOFS_STILL = 0.15
"""The largest share of the edits of ``HARMLESS`` kinds that leave a proof of the goal."""


def outcome_of(goal: ProvedGoal) -> str:
    """The milliseconds in which a proof is replayed, or why there is none, as JSON."""
    statement = goal.statement()
    try:
        proof = find_proof(statement)
    except NoProofError as error:
        return json.dumps(str(error))
    begun = time.process_time()
    for _ in range(REPLAYS):
        check(statement, proof)
    return json.dumps(1000 * (time.process_time() - begun) / REPLAYS)


@pytest.mark.parametrize("source", SOURCES)
def test_proofs_of_proved_goals(source: str) -> None:
    packages = ("z3-solver", "python-flint", "sympy")
    results = StoredResults(f"search_{source}", ["src/closedform/verify"], packages)
    goals = distinct_goals(SOURCES[source]())
    outcomes = [
        json.loads(results.result(f"{goal.statement()}", lambda goal=goal: outcome_of(goal)))  # type: ignore[misc]
        for goal in goals
    ]
    reasons = Counter(outcome for outcome in outcomes if isinstance(outcome, str))
    milliseconds = [outcome for outcome in outcomes if not isinstance(outcome, str)]
    figures = {
        "goals": len(goals),
        "accepted": len(milliseconds),
        "reasons": dict(sorted(reasons.items())),
        "median ms": round(statistics.median(milliseconds), 2),
        "maximum ms": round(max(milliseconds)),
    }
    names = [g.name for g, o in zip(goals, outcomes, strict=True) if isinstance(o, str)]
    print(f"{source}: {figures}; not certified: {names}")
    add_figures(FIGURES, {source: figures})
    assert len(milliseconds) >= SHARES[source] * len(goals)
    assert figures["median ms"] <= MEDIAN_MS


def test_proofs_of_false_claims_are_rejected() -> None:
    """Claims that are false by construction, with a step at which the values show it."""
    result = offer_false_claims(false_claims(FALSE_CLAIMS), WORK, EDITS_OF_A_CLAIM)
    print(f"{result.claims}, {result.proofs} proofs offered")
    assert result.accepted == []
    assert result.claims.total() == FALSE_CLAIMS
    add_figures(
        FIGURES, {"false claims": dict(sorted(result.claims.items())), "offered": result.proofs}
    )


def test_edited_proofs_are_rejected() -> None:
    """Every field of every kind of step; what may be edited without harm is counted apart."""
    certificates = []
    for goal in [goal for goal in GOALS if goal.expected is PROVED][2::5]:
        statement = statement_of(goal.goal, goal.assume)
        proof = certify_or_none(statement)
        if proof is not None:
            certificates.append((statement, proof))
    result = offer_edits(certificates, EDITS, seed=1, harmless=False)
    assert result.texts == []
    assert result.edits.total() == EDITS
    harmless = offer_edits(certificates, EDITS, seed=1, harmless=True)
    print(f"{result.edits}; {harmless.edits}, proofs still: {harmless.texts}")
    assert set(harmless.accepted) <= set(HARMLESS)
    assert harmless.accepted.total() <= MOST_PROOFS_STILL * EDITS
    add_figures(
        FIGURES,
        {
            "edits": dict(sorted(result.edits.items())),
            "harmless edits": dict(sorted(harmless.edits.items())),
            "proofs still": dict(sorted(harmless.accepted.items())),
        },
    )
