"""The standard claims about any schedule or update rule: asked where nothing else is named.

Total, finite and bounded are claimed of every schedule, and never below 0 of one whose
hyperparameters have values. The rest are questions: a schedule may jump, and go on for ever.

Of a rule: states that stay at or above 0, and finite steps. A schedule inside it is replaced by any
number at or above 0: it is verified on its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import sympy as sp

from closedform.errors import ClosedFormError, VerificationError
from closedform.language import Schedule, UpdateRule, t
from closedform.verify.claims.continuity import continuous, jumps
from closedform.verify.claims.core import Claim, Goal, Proofs, claim_effort
from closedform.verify.claims.defined import finite, reached, total, where_safe
from closedform.verify.claims.floats import standard_float_claims
from closedform.verify.claims.guesses import (
    BoundCandidate,
    bounds,
    candidates_of,
    phases,
    sample_cells,
)
from closedform.verify.claims.invariants import (
    FURTHER,
    non_negative_states,
    not_contradicted,
    preserved_conditions,
)
from closedform.verify.claims.reading import Condition, ScheduleReading, read_schedule
from closedform.verify.claims.report import Finding, Report, check
from closedform.verify.claims.rule import finite_steps_of, invariant_of
from closedform.verify.claims.runs import Runs
from closedform.verify.claims.step import open_symbols, step_of
from closedform.verify.claims.values import bounded, ends_at, monotone, non_negative
from closedform.verify.terms.build import FALSE
from closedform.verify.terms.limits import LIMITS
from closedform.verify.terms.tree import Op, walk


def verify_schedule(
    lr: Schedule,
    *claims: Claim,
    assume: Iterable[Condition] = (),
    effort: float = 1.0,
    budget: float | None = None,
) -> Report:
    """Returns the verdicts of some claims about a schedule; of the standard ones if none is given.

    Args:
        lr: The schedule; hyperparameters without a value are quantified over all their values.
        *claims: Claims made with ``closedform.claims``.
        assume: Conditions on open hyperparameters, for the standard claims.
        effort: How much work each claim may take, as a multiple of the usual.
        budget: Seconds of wall-clock time for each claim; None for no such limit.

    Raises:
        VerificationError: One of them is not a claim, ``effort`` or ``budget`` is not above 0, or
            the prover cannot read the schedule.

    Example:
        >>> from closedform import schedules
        >>> report = verify_schedule(schedules.linear(0, 1, 10))
        >>> report["bounded"].claim.sentence, report.exit_code()
        ('the value is >= 0 and <= 1', 0)
    """
    subject = f"schedule {lr.name!r}"
    if claims:
        return check(subject, claims, effort=effort, budget=budget)
    standard = _Standard(lr, tuple(assume), effort, budget)
    report = check(subject, standard.claims(), effort=effort, budget=budget, proofs=standard.proofs)
    findings = tuple(_with_jumps(lr, finding) for finding in report)
    return replace(report, findings=findings, floats=about_floats(lr, effort, budget))


def about_floats(
    lr: Schedule, effort: float = 1.0, budget: float | None = None
) -> tuple[Finding, ...]:
    """Returns what is shown of the graph of a schedule in floats; nothing where it has no graph."""
    try:
        stated = standard_float_claims(lr)
    except ClosedFormError:
        return ()
    findings = check("", stated, effort=effort, budget=budget).findings
    # That floats decide as the exact numbers do is what a reader expects: only the open is news.
    return tuple(
        finding
        for finding in findings
        if finding.claim.name != "float_decides" or not finding.verdict.proved
    )


def _with_jumps(lr: Schedule, finding: Finding) -> Finding:
    """A refuted question of continuity, with all jumps instead of the first one."""
    if finding.claim.name != "continuous" or not finding.verdict.refuted or lr.open:
        return finding
    until = LIMITS.jump_steps if lr.length is None else int(lr.length)
    jumps_found = jumps(lr, until)
    if not jumps_found:
        return finding
    listed_jumps = ", ".join(str(jump) for jump in jumps_found[: LIMITS.named_jumps])
    more = (
        f" and {len(jumps_found) - LIMITS.named_jumps} more"
        if len(jumps_found) > LIMITS.named_jumps
        else ""
    )
    reason = f"{listed_jumps}{more}, up to step {until}"
    return replace(finding, verdict=replace(finding.verdict, reason=reason))


@dataclass(slots=True)
class _Standard:
    """The standard claims about one schedule, made one after the other."""

    lr: Schedule
    assume: tuple[Condition, ...]
    effort: float
    budget: float | None
    proofs: Proofs = field(default_factory=Proofs)

    def claims(self) -> Iterator[Claim]:
        """Yields the claims; bounds and phases are guessed when they are reached."""
        lr, assume = self.lr, self.assume
        reading = read_schedule(lr, assume)
        yield total(lr, assume=assume)
        yield finite(lr, assume=assume)
        yield where_safe(lr, assume=assume)
        branches = sum(1 for node in walk(reading.value) if node.op is Op.ITE)
        if 0 < branches <= LIMITS.reached_branches:
            yield reached(lr, assume=assume)
        samples = sample_cells(reading)
        candidates = candidates_of(reading, samples)
        low, high = (
            self._bound(bounds(candidates, samples, is_lower=side), is_lower=side)
            for side in (True, False)
        )
        if low is not None or high is not None:
            yield bounded(lr, low, high, assume=assume)
        if not lr.open or assume:
            yield non_negative(lr, assume=assume)
        yield continuous(lr, assume=assume, is_question=True)
        yield from self._phases(reading)
        yield from self._end()

    def _bound(self, guesses: Iterable[BoundCandidate], *, is_lower: bool) -> Any:
        """The first guess that is proved; else the first one that is not refuted; else None.

        Both bounds together may take the work of one claim.
        """
        effort = claim_effort(self.effort / 2, None if self.budget is None else self.budget / 2)
        portion = effort.left // 2
        undecided_bound = None
        for guess in islice(guesses, LIMITS.standard_guesses):
            sides = (guess.expr, None) if is_lower else (None, guess.expr)
            claim = bounded(self.lr, *sides, assume=self.assume)
            if not effort.left:
                break
            verdict = claim.judge(effort.portion(portion), self.proofs)
            if verdict.proved:
                return guess.expr
            if verdict.unknown and undecided_bound is None:
                undecided_bound = guess.expr
        return undecided_bound

    def _phases(self, reading: ScheduleReading) -> Iterator[Claim]:
        """One claim for all phases of a schedule without open hyperparameters."""
        if self.lr.open:
            return
        claims = []
        words = []
        for phase in phases(reading):
            until = [] if phase.last is None else [t <= phase.last]
            where = sp.And(t >= phase.first, *until)
            claims.append(monotone(self.lr, phase.direction, where=where))
            place = "on" if phase.last is None else f"to {phase.last}"
            words.append(f"{phase.direction} from {phase.first} {place}")
        if claims:
            goals = tuple(goal for claim in claims for goal in claim.goals)
            presumes = tuple(dict.fromkeys(goal for claim in claims for goal in claim.presumes))
            yield replace(
                claims[0],
                sentence=f"the value is {', '.join(words)}",
                goals=goals,
                presumes=presumes,
                is_question=True,
            )

    def _end(self) -> Iterator[Claim]:
        lr = self.lr
        end = lr.duration if lr.length is None else lr.length
        if end is None:
            return
        value = lr.exact(int(end)) if not lr.open else lr.bound.xreplace({t: end})
        if value.has(t, sp.Piecewise) or (value.is_number and not value.is_Rational):
            return
        yield replace(ends_at(lr, value, end, assume=self.assume), is_question=True)


def verify_rule(
    rule: UpdateRule, *claims: Claim, effort: float = 1.0, budget: float | None = None
) -> Report:
    """Returns the verdicts of some claims about a rule; of the standard ones if none is given.

    The standard claims: the states that begin at or above 0 and stay there, each as an invariant;
    and that the parameter and every state are finite after every step. Where such states are not
    enough, other invariants are looked for, such as a mean of squares that is never below the
    square of a mean. REFUTED is a run of the rule; it is in ``verdict.run``.

    Args:
        rule: The rule.
        *claims: Claims made with ``closedform.claims``.
        effort: How much work each claim may take, as a multiple of the usual.
        budget: Seconds of wall-clock time for each claim; None for no such limit.

    Raises:
        VerificationError: One of them is not a claim, ``effort`` or ``budget`` is not above 0, or
            the prover cannot read the rule.

    Example:
        >>> from closedform import optimizers
        >>> report = verify_rule(optimizers.adam())
        >>> [(finding.claim.sentence, finding.shown) for finding in report]
        [('state.exp_avg_sq >= 0 before every step', 'PROVED'), ('every step is finite', 'PROVED')]
    """
    subject = f"rule {rule.name!r}"
    if claims:
        return check(subject, claims, effort=effort, budget=budget)
    try:
        return _standard(rule, subject, effort, budget)
    except VerificationError as error:
        # Functions of whole tensors are beyond the prover; the report says so.
        goal = Goal(error.what, FALSE, is_sufficient=True)
        return check(subject, [Claim("finite", "every step is finite", rule, (goal,))])


def _standard(rule: UpdateRule, subject: str, effort: float, budget: float | None) -> Report:
    open_names = [key for key, value in rule.hyperparameters.items() if isinstance(value, Schedule)]
    step = step_of(rule, open_names)
    assume = [symbol >= 0 for name, symbol in open_symbols(step).items() if name in open_names]
    # A run has the values of the schedule; a proof is for any number in its place.
    runs = Runs(step, {name: rule.hyperparameters[name] for name in open_names})
    proofs = Proofs()

    def preserve(candidates: Sequence[sp.Basic]) -> list[sp.Basic]:
        share = claim_effort(effort, budget)
        return preserved_conditions(step, candidates, assume, share, proofs)

    def is_enough(invariants: Sequence[sp.Basic]) -> bool:
        claim = finite_steps_of(step, invariants, assume)
        return claim.has_proof(claim_effort(effort, budget), proofs)

    invariants = preserve(list(non_negative_states(step)))
    if not is_enough(invariants):
        for candidates in FURTHER:
            likely_conditions = not_contradicted(list(candidates(step)), runs)
            conditions = preserve([*invariants, *likely_conditions]) if likely_conditions else []
            if len(conditions) > len(invariants) and is_enough(conditions):
                invariants = conditions
                break
    claims = [invariant_of(step, sp.And(*invariants), assume)] if invariants else []
    claims.append(finite_steps_of(step, invariants, assume))
    claims = [replace(claim, runs=runs) for claim in claims]
    return check(subject, claims, effort=effort, budget=budget, proofs=proofs)
