"""Proved verdicts about the library, with proofs of their goals: what Rocq is asked to accept."""

import os
import pickle
import resource
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import closedform as cf
from closedform.verify.claims import equal
from closedform.verify.claims.certified import CertifiedGoal
from closedform.verify.claims.core import Claim
from closedform.verify.search.refutation import find_proof
from closedform.verify.search.steps import NoProofError
from tests.test_library import SCHEDULES
from tests.verify.goals import PROVED
from tests.verify.proved_goals import ProvedGoal
from tools.theorems import THEOREMS

SECONDS_OF_SEARCH = 60
"""Of the processor, for one proof: a goal whose search takes longer has no proof."""


@dataclass(frozen=True, slots=True)
class ProvedVerdict:
    """A proved claim.

    Attributes:
        name: The subject, and the name of the claim.
        goals: Its goals.
        reason: Why it is not a statement about the reals at all points; empty where it is one.
    """

    name: str
    goals: tuple[ProvedGoal, ...] = ()
    reason: str = ""


def _verdict_of(subject: str, claim: Claim) -> ProvedVerdict:
    name = f"{subject}: {claim.name}"
    if claim.decide is not None:
        is_about_floats = claim.name.startswith("float_")
        return ProvedVerdict(
            name, reason="it is about floats" if is_about_floats else "it has no goals"
        )
    goals = tuple(dict.fromkeys((*claim.presumes, *claim.goals)))
    if any(goal.is_somewhere for goal in goals):
        return ProvedVerdict(name, reason="it holds at a point")
    facts = (tuple(dict.fromkeys((*claim.assume, *goal.given))) for goal in goals)
    return ProvedVerdict(
        name,
        tuple(
            ProvedGoal(f"{name}: {goal.text}", goal.statement, assume)
            for goal, assume in zip(goals, facts, strict=True)
        ),
    )


def verdicts_of_schedules() -> Iterator[ProvedVerdict]:
    """Yields the standard claims about the schedules of the library that are proved."""
    for name, make in SCHEDULES.items():
        for finding in make().verify().findings_proved:
            yield _verdict_of(name, finding.claim)


def verdicts_of_theorems() -> Iterator[ProvedVerdict]:
    """Yields the rows of docs/theorems.md that are proved."""
    for theorem in THEOREMS:
        if theorem.expected is PROVED:
            yield _verdict_of(theorem.name, theorem.claim())


def verdicts_of_files(folder: Path) -> Iterator[ProvedVerdict]:
    """Yields that the terms in the ONNX files of the schedules are those of their sources."""
    for name, make in SCHEDULES.items():
        schedule, path = make(), folder / f"{name}.onnx"
        cf.to_onnx(schedule, path)
        claim = equal(schedule, cf.from_onnx(path))
        verdict = claim.verify()
        if verdict.proved:
            yield _verdict_of(name, claim)
        else:
            reason = f"with exact numbers for its float constants it is {verdict.status}"
            yield ProvedVerdict(f"{name}: equal", reason=reason)


def certified(goals: Iterable[ProvedGoal]) -> Mapping[ProvedGoal, CertifiedGoal]:
    """Returns the goals with their proofs, each searched for in a process with a limit of time."""
    return {goal: _in_a_process(lambda goal=goal: _certify(goal)) for goal in goals}  # type: ignore[misc]


def _certify(goal: ProvedGoal) -> CertifiedGoal:
    statement = goal.statement()
    try:
        return CertifiedGoal(goal.name, goal.name, statement, find_proof(statement))
    except NoProofError as error:
        return CertifiedGoal(goal.name, goal.name, statement, None, str(error))


def _in_a_process(work: Callable[[], CertifiedGoal]) -> CertifiedGoal:
    read_end, write_end = os.pipe()
    child = os.fork()
    if not child:
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS_OF_SEARCH, SECONDS_OF_SEARCH))
        with open(write_end, "wb") as stream:
            pickle.dump(work(), stream)
        os._exit(0)
    os.close(write_end)
    with open(read_end, "rb") as stream:
        content = stream.read()
    os.waitpid(child, 0)
    if not content:
        return CertifiedGoal("", "", None, None, "the search takes more than a minute")
    result = pickle.loads(content)  # of the process above
    assert isinstance(result, CertifiedGoal)
    return result
