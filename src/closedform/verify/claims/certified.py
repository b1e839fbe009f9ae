"""Certificates of reports: the proofs of their verdicts as JSON, which ``verify.checker`` replays.

Each proved claim has its goals, each with the statement and the steps: of ``bounded``, that the
value is >= 0, and that it is <= 1.
"""

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

if TYPE_CHECKING:
    from closedform.verify.claims.report import Finding

VERSION = 5
"""The version of certificates: of their format, and of the normal forms that proofs refer to."""


@dataclass(frozen=True, slots=True)
class CertifiedGoal:
    """A goal of a proved claim, as data.

    Attributes:
        claim: The sentence of the claim.
        goal: The text of the goal.
        statement: The goal and its assumptions as the checker reads them; None of a claim that has
            no steps.
        proof: The proof; None where there is none.
        reason: On which grounds a claim without steps is proved; empty where there is a proof.
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
            ("proof" if goal.proof is not None else "no steps", goal.claim, goal.reason)
            for goal in self.goals
        ]
        return markup.block(repr(self)[1:-1], markup.table(rows, ("", "claim", "reason")))

    @property
    def certified(self) -> tuple[CertifiedGoal, ...]:
        """The goals with a proof, which the checker accepted."""
        return tuple(goal for goal in self.goals if goal.proof is not None)

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
                **({"proof": goal.proof} if goal.proof else {"reason": goal.reason}),
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
        verdict, sentence = finding.verdict, finding.claim.sentence
        if not verdict.proved:
            continue
        goals += [
            CertifiedGoal(sentence, proof.goal, proof.statement, proof.steps)
            for proof in verdict.proof
        ]
        if not verdict.proof:
            reason = f"by {verdict.means}" if verdict.grounds else verdict.reason
            goals.append(CertifiedGoal(sentence, sentence, None, None, reason))
    return Certificate(subject, tuple(goals))
