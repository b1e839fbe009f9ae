"""Certificates of reports: proofs as data, which ``verify.checker`` replays without the prover."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from closedform import markup
from closedform.errors import VerificationError
from closedform.files import replace_file
from closedform.verify.checker.replay import check
from closedform.verify.checker.terms import RejectedProofError
from closedform.verify.search.refutation import NoProofError, find_proof
from closedform.verify.search.statements import statement_of
from closedform.verify.terms.tree import walk

if TYPE_CHECKING:
    from closedform.verify.claims.core import Claim, Goal
    from closedform.verify.claims.report import Finding

VERSION = 5
"""The version of certificates: of their format, and of the normal forms that proofs refer to."""
_MOST_NODES = 3000


@dataclass(frozen=True, slots=True)
class CertifiedGoal:
    """A goal of a proved claim, as data.

    Attributes:
        claim: The sentence of the claim.
        goal: The text of the goal.
        statement: The goal and its assumptions as the checker reads them; None where it cannot.
        proof: The proof; None where there is none.
        reason: Why there is none; empty where there is one.
    """

    claim: str
    goal: str
    statement: Mapping[str, Any] | None
    proof: Mapping[str, Any] | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Certificate:
    """The proofs of the proved claims of a report.

    Attributes:
        subject: What the claims are about.
        goals: All goals of the proved claims.
    """

    subject: str
    goals: tuple[CertifiedGoal, ...]

    def __repr__(self) -> str:
        count = len(self.certified)
        return f"<Certificate of {self.subject!r}: {count} of {len(self.goals)} goals have proofs>"

    def _repr_html_(self) -> str:
        rows = [
            ("certified" if goal.proof is not None else "uncertified", goal.claim, goal.reason)
            for goal in self.goals
        ]
        return markup.block(repr(self)[1:-1], markup.table(rows, ("", "claim", "reason")))

    @property
    def certified(self) -> tuple[CertifiedGoal, ...]:
        """The goals with a proof, which the checker accepted."""
        return tuple(goal for goal in self.goals if goal.proof is not None)

    @property
    def uncertified(self) -> tuple[CertifiedGoal, ...]:
        """The goals without a proof, each with its reason."""
        return tuple(goal for goal in self.goals if goal.proof is None)

    def check(self) -> None:
        """Replays all proofs.

        Raises:
            VerificationError: The checker rejects one.
        """
        for goal in self.certified:
            try:
                check(goal.statement or {}, goal.proof or {})
            except RejectedProofError as error:
                raise VerificationError(
                    f"the checker rejects the proof of {goal.goal!r}: {error}",
                    where=self.subject,
                ) from error

    def write(self, path: Path) -> None:
        """Writes the certificate as JSON.

        Raises:
            VerificationError: The file cannot be written.
        """
        goals = [
            {
                "claim": goal.claim,
                "goal": goal.goal,
                "statement": goal.statement,
                **({"proof": goal.proof} if goal.proof else {"uncertified": goal.reason}),
            }
            for goal in self.goals
        ]
        content = {"version": VERSION, "subject": self.subject, "goals": goals}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(path, f"{json.dumps(content, ensure_ascii=False)}\n".encode())
        except OSError as error:
            raise VerificationError(
                f"the certificate cannot be written: {error.strerror or error}",
                where=f"file {str(path)!r}",
            ) from error


def certificate_of(subject: str, findings: Iterable[Finding]) -> Certificate:
    """Returns the certificate of the proved claims among some findings."""
    goals: list[CertifiedGoal] = []
    for finding in findings:
        if not finding.verdict.proved:
            continue
        claim = finding.claim
        if claim.decide is not None:
            is_about_floats = claim.name.startswith("float_")
            reason = "it is about floats" if is_about_floats else "it has no goals"
            goals.append(CertifiedGoal(claim.sentence, claim.sentence, None, None, reason))
        goals += [
            _certify_goal(claim, goal) for goal in dict.fromkeys((*claim.presumes, *claim.goals))
        ]
    return Certificate(subject, tuple(goals))


def _certify_goal(claim: Claim, goal: Goal) -> CertifiedGoal:
    if goal.is_somewhere:
        return CertifiedGoal(claim.sentence, goal.text, None, None, "it holds at a point")
    facts = tuple(dict.fromkeys((*claim.assume, *goal.given)))
    if sum(1 for _ in walk(goal.statement, *facts)) > _MOST_NODES:
        return CertifiedGoal(claim.sentence, goal.text, None, None, "it is too large")
    statement = statement_of(goal.statement, facts)
    try:
        return CertifiedGoal(claim.sentence, goal.text, statement, find_proof(statement))
    except NoProofError as error:
        return CertifiedGoal(claim.sentence, goal.text, statement, None, str(error))
