"""The proofs of all proved goals, replayed by the checker, with the figures.

No test of ``make test``: it takes minutes. ``make compare`` runs it.
"""

import statistics
import time
from collections import Counter

import pytest

from closedform.verify.certification.search import NoProofError, certify
from closedform.verify.checker.replay import check
from tests.verify.proved_goals import SOURCES, distinct_goals

MEDIAN = 0.005
# The least share of the goals whose proofs are accepted; the reasons of the rest are printed.
SHARES = {"table": 0.8, "theorems": 0.8, "schedules": 0.8, "rules": 0.5}


@pytest.mark.parametrize("source", SOURCES)
def test_proofs_of_proved_goals(source: str) -> None:
    goals = distinct_goals(SOURCES[source]())
    reasons: Counter[str] = Counter()
    seconds = []
    for goal in goals:
        statement = goal.statement()
        try:
            proof = certify(statement)
        except NoProofError as error:
            reasons[str(error)] += 1
            continue
        begun = time.process_time()
        check(statement, proof)
        seconds.append(time.process_time() - begun)
    median = statistics.median(seconds)
    print(
        f"{source}: {len(seconds)} of {len(goals)} goals, median {1000 * median:.2f} ms; "
        f"not certified: {dict(reasons)}"
    )
    assert len(seconds) >= SHARES[source] * len(goals)
    assert median <= MEDIAN
