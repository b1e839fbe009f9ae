"""Reports: claims with their verdicts, as text, as data for an artefact, and as an exit code."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from closedform import markup
from closedform.effort import Watch
from closedform.errors import VerificationError
from closedform.verify.claims.core import Claim, Proofs, claim_effort
from closedform.verify.terms.verdict import Verdict

if TYPE_CHECKING:
    from closedform.verify.claims.certified import Certificate

ANSWER_NO = "NO"
"""How a refuted question is shown: the answer is known, and not a fault."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A claim and its verdict."""

    claim: Claim
    verdict: Verdict

    @property
    def is_fault(self) -> bool:
        """Whether something that was claimed is refuted."""
        return self.verdict.refuted and not self.claim.is_question

    @property
    def shown(self) -> str:
        """The verdict as a word: PROVED, REFUTED, UNKNOWN, or NO for a refuted question."""
        is_negative = self.verdict.refuted and self.claim.is_question
        return ANSWER_NO if is_negative else self.verdict.status.value

    @property
    def detail(self) -> str:
        """The counterexample and the reason, or the grounds of a proof."""
        if self.verdict.proved:
            return f"by {self.verdict.means}" if self.verdict.grounds else ""
        point = self.verdict.counterexample or {}
        # The prover's own symbols, such as "floor 1", have a space in their names.
        visible_numbers = {name: number for name, number in point.items() if " " not in name}
        place = ", ".join(f"{name} = {number}" for name, number in visible_numbers.items())
        return ": ".join(part for part in (place, self.verdict.reason) if part)


@dataclass(frozen=True, slots=True)
class Report:
    """The verdicts of some claims about one subject.

    Its truth value raises TypeError, as that of a verdict: ask ``all_proved``, or ``refuted`` and
    ``unknown``.

    Attributes:
        subject: What the claims are about.
        findings: Each claim with its verdict, in the order in which they were asked. They are
            about the formula, over the real numbers, but for claims about floats by name.
        floats: What is shown of the graph in floats; not part of the findings.
    """

    subject: str
    findings: tuple[Finding, ...]
    floats: tuple[Finding, ...] = ()

    @property
    def all_proved(self) -> bool:
        """Whether every claim is proved, about the formula and in floats; False without claims.

        A question that is answered, with yes or no, does not stand against it.
        """
        everything = (*self.findings, *self.floats)
        return bool(everything) and all(
            finding.verdict.proved or finding.shown == ANSWER_NO for finding in everything
        )

    @property
    def findings_proved(self) -> tuple[Finding, ...]:
        """The findings that hold everywhere."""
        return tuple(finding for finding in self.findings if finding.verdict.proved)

    @property
    def refuted(self) -> tuple[Finding, ...]:
        """The findings that are false and were claimed, those about floats among them."""
        return tuple(finding for finding in (*self.findings, *self.floats) if finding.is_fault)

    @property
    def answered_no(self) -> tuple[Finding, ...]:
        """The questions answered with no."""
        return tuple(finding for finding in self.findings if finding.shown == ANSWER_NO)

    @property
    def unknown(self) -> tuple[Finding, ...]:
        """The findings that are not decided."""
        return tuple(finding for finding in self.findings if finding.verdict.unknown)

    @property
    def seconds(self) -> float:
        """How long all of them took."""
        return sum(finding.verdict.seconds for finding in self.findings)

    def exit_code(self, *, strict: bool = False) -> int:
        """Returns 1 where something claimed is refuted, 3 where ``strict`` and unknown, else 0."""
        if self.refuted:
            return 1
        return 3 if strict and self.unknown else 0

    def __getitem__(self, name: str) -> Finding:
        """Returns the first finding of a kind of claim, such as ``bounded``.

        Raises:
            KeyError: None of that kind was asked.
        """
        for finding in self.findings:
            if finding.claim.name == name:
                return finding
        raise KeyError(f"no claim {name!r} among {', '.join(f.claim.name for f in self.findings)}")

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def __len__(self) -> int:
        return len(self.findings)

    def __bool__(self) -> bool:
        raise TypeError("a report is not a truth value: use .all_proved, .refuted and .unknown")

    def __str__(self) -> str:
        everything = (*self.findings, *self.floats)
        width = max((len(finding.claim.sentence) for finding in everything), default=0)
        lines = [self.subject]
        for finding in everything:
            if self.floats and finding is self.floats[0]:
                lines.append("its graph in floats")
            line = f"  {finding.shown:<8} {finding.claim.sentence:<{width}}  {finding.detail}"
            lines.append(line.rstrip())
        return "\n".join(lines)

    def __repr__(self) -> str:
        counts = Counter(finding.shown for finding in (*self.findings, *self.floats))
        verdicts = ", ".join(f"{number} {word}" for word, number in counts.items())
        return f"<Report {self.subject!r}: {verdicts or 'no claims'}>"

    def _repr_html_(self) -> str:
        head = ("verdict", "claim", "")

        def rows(findings: Iterable[Finding]) -> list[tuple[str, str, str]]:
            return [(finding.shown, finding.claim.sentence, finding.detail) for finding in findings]

        floats = markup.paragraph("its graph in floats") if self.floats else ""
        return markup.block(
            self.subject,
            markup.table(rows(self.findings), head),
            floats,
            markup.table(rows(self.floats), head),
        )

    def certificate(self) -> Certificate:
        """Returns the proofs of the proved claims, and the grounds of those without steps."""
        from closedform.verify.claims.certified import certificate_of

        return certificate_of(self.subject, (*self.findings, *self.floats))

    def as_metadata(self) -> str:
        """Returns the findings as JSON, for the metadata of an artefact."""
        return json.dumps([_entry(finding) for finding in self.findings], ensure_ascii=False)


def _entry(finding: Finding) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "claim": finding.claim.name,
        "sentence": finding.claim.sentence,
        "verdict": finding.verdict.status.value,
        "grounds": list(finding.verdict.grounds),
    }
    if finding.claim.arguments is not None:
        entry["arguments"] = dict(finding.claim.arguments)
    if finding.verdict.counterexample is not None:
        point = finding.verdict.counterexample
        entry["counterexample"] = {name: str(number) for name, number in point.items()}
    if finding.verdict.run is not None:
        entry["run"] = str(finding.verdict.run)
    if finding.verdict.reason:
        entry["reason"] = finding.verdict.reason
    return entry


def check(
    subject: str,
    claims: Iterable[Claim],
    *,
    effort: float = 1.0,
    budget: float | None = None,
    proofs: Proofs | None = None,
) -> Report:
    """Returns the report of some claims, asked one after the other.

    Args:
        subject: What they are about.
        claims: The claims.
        effort: How much work each of them may take, as a multiple of the usual.
        budget: Seconds of wall-clock time for each of them; None for no such limit.
        proofs: Verdicts to share; new ones if None.

    Raises:
        VerificationError: One of them is not a claim, or ``effort`` or ``budget`` is not above 0.
    """
    verdicts = Proofs() if proofs is None else proofs
    findings = []
    portion, watch = claim_effort(effort, budget), Watch()
    for claim in claims:
        if not isinstance(claim, Claim):
            raise VerificationError(
                f"verify takes claims, got {type(claim).__name__} {claim!r}",
                hint="make them with closedform.claims",
            )
        # The work that it took to make the claim counts: its bounds may have been looked for.
        verdict = claim.judge(portion, verdicts)
        findings.append(Finding(claim, verdict.after(watch.seconds)))
        portion, watch = claim_effort(effort, budget), Watch()
    return Report(subject, tuple(findings))
