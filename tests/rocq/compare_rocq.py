"""The proofs of all proved verdicts, checked by Rocq; false claims and edited proofs, rejected.

No test of ``make test``: it takes minutes. ``make rocq`` runs it, and stores the figures of
docs/verification.md.
"""

import itertools
import json
import random
import re
import resource
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from closedform.effort import Effort
from closedform.verify.claims.certified import CertifiedGoal
from closedform.verify.search.refutation import find_proof
from closedform.verify.search.statements import statement_of
from closedform.verify.search.steps import NoProofError
from tests.rocq.coq import COQC, Coq, compile_file, failing_line, version, with_library
from tests.rocq.corpus import (
    ProvedVerdict,
    certified,
    verdicts_of_files,
    verdicts_of_schedules,
    verdicts_of_theorems,
)
from tests.rocq.edits import edited_texts
from tests.rocq.floats import GAPPA, bounded_graph, run_gappa
from tests.test_library import SCHEDULES
from tests.verify.checker.planted import WORK, false_goals, perturb
from tests.verify.goals import PROVED, Goal
from tests.verify.proved_goals import ProvedGoal
from tests.verify.test_goals import GOALS
from tools.rocq.definitions import InexpressibleError
from tools.rocq.files import RocqFile, printed_axioms, rocq_file, unexpected_axioms
from tools.rocq.gappa import error_goals
from tools.rocq.script import claim_section
from tools.sections import add_figures

pytestmark = pytest.mark.skipif(COQC is None, reason="coqc is not installed")

FIGURES = Path(__file__).parents[2] / "tools" / "results" / "rocq.json"
GOALS_PER_FILE = 40
"""To load the libraries and to print the axioms takes 4 s a file, a goal 0.3 s."""
PROCESSES = 2
SECONDS = 300
"""For all files of theorems, schedules and exports on two cores."""
SHARES = {"theorems": 0.7, "schedules": 0.85, "files": 0.5}
"""The least shares of the verdicts that are accepted: 74 % and 90 %; the reasons are stored."""
PLANTED = 200
OTHER_STATEMENTS = 200
EDITED = 200
EDITS_PER_FILE = 5


@pytest.fixture(scope="module")
def coq(tmp_path_factory: pytest.TempPathFactory) -> Coq:
    return with_library(tmp_path_factory.mktemp("rocq"))


def store(entries: Mapping[str, Any]) -> None:
    add_figures(FIGURES, {"version": version(), **entries})


# --- verdicts ------------------------------------------------------------------------------------


def check_in_files(
    coq: Coq, name: str, goals: Sequence[CertifiedGoal]
) -> tuple[list[str], frozenset[str]]:
    """For each goal why it is not accepted, empty where it is, and the axioms that are used.

    A file with a goal that is rejected is checked again without it.
    """
    outcomes: dict[int, str] = {}
    axioms: set[str] = set()

    def check(number: int, batch: list[CertifiedGoal]) -> None:
        for attempt in itertools.count():
            file = rocq_file(f"{name}_{number}_{attempt}", name, batch)
            outcomes.update({id(batch[k]): f"not printed: {r}" for k, r in file.reasons.items()})
            result = coq.check(file, seconds=1800)
            if not result.returncode:
                axioms.update(printed_axioms(result.stdout))
                assert unexpected_axioms(result.stdout) == ()
                printed = [goal for k, goal in enumerate(batch) if k not in file.reasons]
                outcomes.update({id(goal): "" for goal in printed})
                return
            line = failing_line(result)
            assert line is not None, result.stderr
            before = "\n".join(file.text.split("\n")[:line])
            rejected = batch.pop(int(re.findall(r"^Module goal_(\d+)\.$", before, re.M)[-1]))
            words = " ".join(result.stderr.split("\n", 1)[1].split())
            outcomes[id(rejected)] = f"rejected: {words[:80]}"
            print(f"{name}: Rocq rejects {rejected.goal!r}: {words[:300]}")

    batches = [list(goals[k : k + GOALS_PER_FILE]) for k in range(0, len(goals), GOALS_PER_FILE)]
    with ThreadPoolExecutor(PROCESSES) as pool:
        list(pool.map(check, itertools.count(), batches))
    return [outcomes[id(goal)] for goal in goals], frozenset(axioms)


def processor_seconds() -> float:
    """The time of all processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def outcomes_of(coq: Coq, source: str, verdicts: Sequence[ProvedVerdict]) -> dict[str, Any]:
    """The figures of a table of verdicts; a verdict is accepted where all of its goals are."""
    goals = list(dict.fromkeys(goal for verdict in verdicts for goal in verdict.goals))
    by_statement: dict[Any, ProvedGoal] = {}
    for goal in goals:
        by_statement.setdefault((goal.goal, frozenset(goal.assume)), goal)
    proofs = certified(by_statement.values())
    with_proof = {goal: proof for goal, proof in proofs.items() if proof.proof is not None}
    start = processor_seconds()
    checked, axioms = check_in_files(coq, source, list(with_proof.values()))
    outcomes = dict(zip(with_proof, checked, strict=True))
    seconds = processor_seconds() - start

    def reason_of(goal: ProvedGoal) -> str:
        goal = by_statement[goal.goal, frozenset(goal.assume)]
        proof = proofs[goal]
        return f"no proof object: {proof.reason}" if proof.proof is None else outcomes[goal]

    reasons = Counter(
        verdict.reason or next(filter(None, map(reason_of, verdict.goals)), "")
        for verdict in verdicts
    )
    accepted = reasons.pop("", 0)
    figures = {
        "verdicts": len(verdicts),
        "accepted": accepted,
        "goals": len(by_statement),
        "goals accepted": checked.count(""),
        "reasons": dict(sorted(reasons.items())),
        "processor seconds": round(seconds),
        "axioms": sorted(axioms),
    }
    print(source, json.dumps(figures, indent=1))
    return figures


SOURCES: Mapping[str, Callable[[Path], Iterator[ProvedVerdict]]] = {
    "theorems": lambda _: verdicts_of_theorems(),
    "schedules": lambda _: verdicts_of_schedules(),
    "files": verdicts_of_files,
}


@pytest.mark.parametrize("source", SOURCES)
def test_verdicts_are_accepted(coq: Coq, source: str, tmp_path: Path) -> None:
    figures = outcomes_of(coq, source, list(SOURCES[source](tmp_path)))
    store({source: figures})
    assert figures["accepted"] >= SHARES[source] * figures["verdicts"]
    stored = json.loads(FIGURES.read_text(encoding="utf-8"))
    total = sum(stored[name]["processor seconds"] for name in SOURCES if name in stored)
    assert total <= PROCESSES * SECONDS


# --- floats --------------------------------------------------------------------------------------


@pytest.mark.skipif(GAPPA is None, reason="gappa is not installed")
def test_bounds_of_float_errors_are_proved(tmp_path: Path) -> None:
    """The bound that closedform reports, of each schedule in each dtype; half the error is not.

    Of each bound Rocq checks the proof of the longest goal.
    """
    reasons: Counter[str] = Counter()
    goals = halved = proofs = 0

    def is_accepted(text: str) -> bool:
        return run_gappa(text, tmp_path).returncode == 0

    start = processor_seconds()
    for name, dtype in itertools.product(SCHEDULES, ("f32", "f64")):
        case = bounded_graph(name, dtype)
        prove = partial(error_goals, case.graph, is_accepted=is_accepted)
        try:
            texts = [
                text
                for goal in prove(0, case.last, case.bound, starts=case.values.starts)
                for text in goal.texts
            ]
        except InexpressibleError as error:
            reasons[str(error)] += 1
            print(f"{name} in {dtype}: {error}")
            continue
        reasons[""] += 1
        goals += len(texts)
        proof = run_gappa(max(texts, key=len), tmp_path, "-Bcoq").stdout
        assert "Hypothesis" not in proof
        (tmp_path / "goal.v").write_text(f"{proof}Print Assumptions l1.\n", encoding="utf-8")
        result = compile_file(tmp_path, "goal.v")
        assert result.returncode == 0, result.stderr
        assert unexpected_axioms(result.stdout) == ()
        proofs += 1
        measured, step = case.measured_error()
        if measured:
            with pytest.raises(InexpressibleError, match="does not prove the bound"):
                list(prove(step, step, measured / 2))
            halved += 1
    accepted = reasons.pop("")
    figures = {
        "verdicts": reasons.total() + accepted,
        "accepted": accepted,
        "goals": goals,
        "proofs accepted by coqc": proofs,
        "halved errors rejected": halved,
        "reasons": dict(sorted(reasons.items())),
        "processor seconds": round(processor_seconds() - start),
    }
    print("floats", json.dumps(figures, indent=1))
    store({"floats": figures})
    assert all(reason.startswith(("Gappa has no ", "the error has no bound")) for reason in reasons)
    assert accepted >= 0.7 * (reasons.total() + accepted)


# --- false claims, edited proofs -----------------------------------------------------------------


def proof_of(statement: dict[str, Any]) -> CertifiedGoal | None:
    """The goal with its proof, where the search comes to one."""
    try:
        return CertifiedGoal("a goal", "a goal", statement, find_proof(statement, Effort.of(WORK)))
    except NoProofError:
        return None


def refuse_claims(
    coq: Coq, name: str, pairs: Sequence[tuple[CertifiedGoal, Any]], refused: str
) -> int:
    """Rocq accepts proofs, and no proof as one of another statement; how many there are."""
    file = rocq_file(name, "goals", [proof for proof, _ in pairs])
    opening = "Open Scope R_scope."
    head, _, sections = file.claims.partition("Definition claims")[0].partition(opening)
    claims = [head, opening, sections]
    places = [place for place in range(len(pairs)) if place not in file.reasons]
    for place in places:
        module = file.text[file.text.index(f"Module goal_{place}.") :]
        module = module[: module.index(f"End goal_{place}.")]
        variables = dict(re.findall(r"^Variable (\w+) : (.*)\.$", module, re.MULTILINE))
        claim = claim_section(f"goal_{place}", name, pairs[place][1], variables)
        claim, count = _THEOREM.subn(refused, claim)
        assert count == 1
        claims.append(claim.replace(f"Module goal_{place}.", f"Module other_{place}.").replace(
            f"End goal_{place}.", f"End other_{place}."))  # fmt: skip
    result = coq.check(RocqFile(name, file.text, "\n".join(claims), {}), seconds=1800)
    assert result.returncode == 0, result.stderr
    return len(places)


_THEOREM = re.compile(
    r"^Theorem claim :(?P<claim>.*)^Proof\. exact (?P<proof>.*)\. Qed\.$", re.DOTALL | re.MULTILINE
)
_REFUSED = (
    r"Goal\g<claim>"
    r"Proof. Fail (first [exact \g<proof> | intros; eapply \g<proof>; eassumption]). Abort."
)
"""In place of a theorem: the file is accepted only where the proof fails, with any premises."""
_DIFFERENT = r"Goal\g<claim>Proof. Fail exact \g<proof>. Abort."
"""The same, as the file of the claims asks it: a proof of a stronger statement is refused too."""


def in_batches(
    pairs: Iterator[tuple[CertifiedGoal, Any]], count: int
) -> Iterator[list[tuple[CertifiedGoal, Any]]]:
    while count > 0 and (batch := list(itertools.islice(pairs, min(count, GOALS_PER_FILE)))):
        yield batch
        count -= len(batch)


def test_false_claims_are_rejected(coq: Coq) -> None:
    """A false claim next to the proof of the true goal of which it is made."""
    proofs: dict[Goal, CertifiedGoal | None] = {}

    def pairs() -> Iterator[tuple[CertifiedGoal, Any]]:
        for goal, false in false_goals(GOALS, 10 * PLANTED):
            if goal not in proofs:
                proofs[goal] = proof_of(statement_of(goal.goal, goal.assume))
            proof = proofs[goal]
            if proof is not None:
                yield proof, statement_of(false.goal, false.assume)

    rejected = sum(
        refuse_claims(coq, f"false_{number}", batch, _REFUSED)
        for number, batch in enumerate(in_batches(pairs(), PLANTED))
    )
    print(f"Rocq rejects {rejected} false claims")
    store({"false claims rejected": rejected})
    assert rejected >= 0.9 * PLANTED


def test_proofs_of_other_statements_are_rejected(coq: Coq) -> None:
    """Certificates of a statement with an edit, proved anew: true, but not what is claimed."""
    chance = random.Random(38)

    def pairs() -> Iterator[tuple[CertifiedGoal, Any]]:
        statements = set()
        for goal in itertools.chain.from_iterable(itertools.repeat(GOALS)):
            edited = perturb(goal, chance) if goal.expected is PROVED else None
            if edited is None or (edited.goal, edited.assume) in statements:
                continue
            statements.add((edited.goal, edited.assume))
            proof = proof_of(statement_of(edited.goal, edited.assume))
            if proof is not None:
                yield proof, statement_of(goal.goal, goal.assume)

    rejected = sum(
        refuse_claims(coq, f"other_{number}", batch, _DIFFERENT)
        for number, batch in enumerate(in_batches(pairs(), OTHER_STATEMENTS))
    )
    print(f"Rocq rejects {rejected} proofs of other statements")
    store({"other statements rejected": rejected})
    assert rejected >= 0.9 * OTHER_STATEMENTS


def test_edited_proofs_are_rejected(coq: Coq) -> None:
    """A file with one edit is rejected, or its theorem is not the claim, or it still proves it."""
    goals = [goal for goal in GOALS if goal.expected is PROVED][::5]
    proofs = [proof_of(statement_of(goal.goal, goal.assume)) for goal in goals]
    edited: list[tuple[str, RocqFile]] = []
    for number, proof in enumerate(proof for proof in proofs if proof is not None):
        name = f"edited_{number}"
        file = rocq_file(name, "a goal", [proof])
        if file.reasons or len(file.text) > 20_000:
            continue
        claims = file.claims.partition("Definition claims")[0]
        edited += [
            (kind, RocqFile(f"{name}_{edit}", text, claims.replace(name, f"{name}_{edit}"), {}))
            for edit, (kind, text) in enumerate(edited_texts(file.text, EDITS_PER_FILE, number))
        ]
    edited = edited[:EDITED]
    with ThreadPoolExecutor(PROCESSES) as pool:
        results = list(pool.map(lambda entry: coq.check(entry[1]), edited))
    rejected: Counter[str] = Counter()
    still_proved: list[str] = []
    for (kind, file), result in zip(edited, results, strict=True):
        if result.returncode:
            rejected[kind] += 1
        else:
            still_proved.append(f"{kind}, in {file.name}")
    print(f"Rocq rejects {rejected.total()} edited proofs, {dict(rejected)}")
    print(f"{len(still_proved)} still prove the claim: {still_proved}")
    store({"edits rejected": rejected.total(), "edits that still prove": len(still_proved)})
    assert rejected.total() + len(still_proved) == EDITED
    assert len(still_proved) <= 0.2 * EDITED
