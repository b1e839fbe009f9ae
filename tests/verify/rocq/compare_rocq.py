"""The proofs of all proved goals, checked by Rocq, and planted false statements, with the figures.

No test of ``make test``: it takes minutes. ``make compare`` runs it where `coqc` is installed.
"""

from __future__ import annotations

import itertools
import re
import resource
from collections import Counter

import pytest

from closedform.verify.certification.search import NoProofError, certify
from closedform.verify.claims.certified import CertifiedGoal
from closedform.verify.rocq.files import RocqFile, rocq_file, unexpected_axioms
from tests.verify.proved_goals import SOURCES, distinct_goals
from tests.verify.rocq.coq import COQC, Coq, with_library

pytestmark = pytest.mark.skipif(COQC is None, reason="coqc is not installed")

GOALS_PER_FILE = 8
SECONDS = 300
"""Of the processor, for all files of one source; half of it on two cores."""
PLANTED = 200


@pytest.fixture(scope="module")
def coq(tmp_path_factory: pytest.TempPathFactory) -> Coq:
    return with_library(tmp_path_factory.mktemp("rocq"))


def proved_goals(source: str, reasons: Counter[str], step: int = 1) -> list[CertifiedGoal]:
    goals = []
    for goal in distinct_goals(SOURCES[source]())[::step]:
        statement = goal.statement()
        try:
            proof = certify(statement, work=60)
        except NoProofError as error:
            reasons[f"no proof object: {error}"] += 1
            continue
        goals.append(CertifiedGoal(goal.name, goal.name, statement, proof))
    return goals


@pytest.mark.parametrize("source", ["theorems", "schedules"])
def test_proofs_of_proved_goals(coq: Coq, source: str) -> None:
    reasons: Counter[str] = Counter()
    total = len(distinct_goals(SOURCES[source]()))
    accepted = 0
    start = resource.getrusage(resource.RUSAGE_CHILDREN)
    goals = iter(proved_goals(source, reasons))
    for number in itertools.count():
        batch = list(itertools.islice(goals, GOALS_PER_FILE))
        if not batch:
            break
        file = rocq_file(f"{source}_{number}", source, batch)
        reasons.update(f"not printed: {reason}" for reason in file.reasons.values())
        result = coq.check(file)
        assert result.returncode == 0, f"{file.name}: {result.stderr}"
        assert unexpected_axioms(result.stdout) == ()
        accepted += len(batch) - len(file.reasons)
    end = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = end.ru_utime + end.ru_stime - start.ru_utime - start.ru_stime
    print(f"{source}: Rocq accepts {accepted} of {total} goals, {seconds:.0f} s; {dict(reasons)}")
    assert accepted >= 0.8 * total
    assert seconds <= SECONDS


def falsify(text: str, number: int) -> str:
    """A file of one goal with the opposite of its conclusion, or with a false part of it."""
    text = re.sub(r"^Theorem holds :.*?^Proof\. exact steps\. Qed\.$", "", text, flags=_LINES)
    text = re.sub(r"^Definition theorems.*", "", text, flags=_LINES)
    head, middle, rest = re.split(r"^(Lemma steps : .*)$", text, maxsplit=1, flags=re.MULTILINE)
    premises, arrow, conclusion = middle.removesuffix(".").rpartition(" -> ")
    if not arrow:
        premises, _, conclusion = conclusion.partition(" : ")
        arrow = " : "
    false = (f"(~ {conclusion})", f"({conclusion} /\\ 1 < 0)", f"({conclusion} -> False)")
    return f"{head}{premises}{arrow}{false[number % len(false)]}.{rest}"


_LINES = re.DOTALL | re.MULTILINE


def test_false_statements_are_rejected(coq: Coq) -> None:
    """The scripts of true goals, for false ones; the opposite is false where the goal is true."""
    goals = proved_goals("table", Counter(), step=5)
    files = [rocq_file("false_claim", "a false claim", [goal]) for goal in goals]
    texts = [file.text for file in files if not file.reasons]
    accepted = [
        number
        for number in range(PLANTED)
        if coq.check(
            RocqFile("false_claim", falsify(texts[number % len(texts)], number), "", {})
        ).returncode
        == 0
    ]
    print(f"Rocq accepts {len(accepted)} of {PLANTED} false statements")
    assert not accepted
