"""Claims: goals to be proved about a subject, and how their verdicts become one.

A relation counts only together with the definedness of its sides (a prover may cancel
denominators), so a claim holds the goals that it presumes in addition to its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import sympy as sp
from flint import arb, fmpq

from closedform.effort import Effort, Watch, spend
from closedform.errors import VerificationError
from closedform.language import Schedule, UpdateRule
from closedform.language.symbols import InternalName
from closedform.verify.prover import GOAL_WORK, prove
from closedform.verify.terms.build import FALSE, TRUE, exact, negate, own_symbol, substitute
from closedform.verify.terms.definedness import Obligation, PartialOperation, obligations
from closedform.verify.terms.evaluate import Undefined, value
from closedform.verify.terms.limits import LIMITS
from closedform.verify.terms.tree import Op, Term, walk
from closedform.verify.terms.verdict import Proof, Run, Status, Verdict


def claim_effort(
    effort: float = 1.0, budget: float | None = None, *, units: int = LIMITS.claim_work
) -> Effort:
    """Returns the work that one claim may take.

    Args:
        effort: A multiple of what is allowed if nothing else is said.
        budget: Seconds of wall-clock time; None for no such limit.
        units: The work that is allowed if nothing else is said.

    Raises:
        VerificationError: One of them is not above 0.
    """
    if not _is_above_zero(effort):
        raise VerificationError(f"effort must be a number above 0, got {effort!r}")
    if budget is not None and not _is_above_zero(budget):
        raise VerificationError(f"budget must be a number of seconds above 0, got {budget!r}")
    return Effort.of(units * effort, budget)


NOTHING_PARTIAL = "its form"
"""The ground of claims without goals: nothing in the expression can fail."""


def _is_above_zero(number: object) -> bool:
    is_number = isinstance(number, int | float) and not isinstance(number, bool)
    return is_number and 0 < number < math.inf  # type: ignore[operator]


@dataclass(frozen=True, slots=True)
class Goal:
    """One thing to be proved, for all values of its symbols.

    Attributes:
        text: The statement, for readers.
        statement: The term of it.
        given: What holds where it is asked, besides the assumptions of the claim.
        is_somewhere: True where one point at which it holds is enough.
        is_sufficient: True where it is stronger than the claim, which its refutation leaves open.
        shown: Terms whose values say at a counterexample what is wrong, by their names.
    """

    text: str
    statement: Term
    given: tuple[Term, ...] = ()
    is_somewhere: bool = False
    is_sufficient: bool = False
    shown: tuple[tuple[str, Term], ...] = ()


def definedness(obligation: Obligation, conditions: tuple[Term, ...] = (), place: str = "") -> Goal:
    """Returns an obligation as a goal under what is given; ``place`` begins its text."""
    text = (
        "some branch holds"
        if obligation.kind is PartialOperation.BRANCH
        else f"{obligation.text} is defined"
    )
    premises = (*conditions, *obligation.path)
    return Goal(f"{place}{text}", obligation.goal, premises, is_sufficient=obligation.is_sufficient)


def all_defined(root: Term, premises: tuple[Term, ...] = (), place: str = "") -> list[Goal]:
    """Returns the goals that every operation in a term is defined; arguments as ``definedness``."""
    return [definedness(obligation, premises, place) for obligation in obligations(root)]


@dataclass(frozen=True, slots=True)
class Refutation:
    """A point at which a claim is false: a step of a schedule, or a step that a run comes to.

    A claim is REFUTED by nothing else. The prover's counterexample to a goal is a point among all
    that the premises admit; what makes it a refutation of the claim is a ``Reach``.

    Attributes:
        goal: The goal that is false.
        point: The values of symbols; None where the goal is false by a proof.
        reason: What is false or undefined there.
        grounds: How it was found.
        samples: The points at which the goal was true.
        run: Of a claim about the steps of a rule, the run that comes to the point.
    """

    goal: Goal
    point: Mapping[str, Any] | None
    reason: str
    grounds: tuple[str, ...]
    samples: int = 0
    run: Run | None = None

    def verdict(self, before: Iterable[Verdict]) -> Verdict:
        """Returns the verdict on the claim, with the values that show it."""
        parts = [self.goal.text]
        if self.point is not None and self.goal.shown:
            parts += [f"{name} is {value_text(at, self.point)}" for name, at in self.goal.shown]
        elif self.reason:
            parts.append(self.reason)
        if self.run is not None and self.run.steps:
            parts.append(str(self.run))
        return Verdict(
            Status.REFUTED,
            grounds=self.grounds,
            counterexample=None if self.point is None else _for_people(self.point),
            reason=", ".join(parts),
            samples=sum(earlier.samples for earlier in before) + self.samples,
            run=self.run,
        )


class Reach(Protocol):
    """The points that a claim is about, of those at which a goal of it may be false."""

    def refute(
        self,
        goal: Goal,
        verdict: Verdict,
        others: Sequence[Goal],
        assume: tuple[Term, ...],
        effort: Effort,
    ) -> Refutation | None:
        """Returns a refutation of the claim; None where none is found.

        Args:
            goal: A goal of the claim.
            verdict: Its refutation, at a point of those that its premises admit.
            others: Further goals, of which one that is false refutes the claim as well.
            assume: What the claim assumes.
            effort: The work that may be done.
        """


class AnyPoint:
    """Claims about each point that their premises admit: those about schedules and expressions.

    Each step at or above 0 of a schedule is reached, and each value is asked about.
    """

    def refute(
        self,
        goal: Goal,
        verdict: Verdict,
        others: Sequence[Goal],
        assume: tuple[Term, ...],
        effort: Effort,
    ) -> Refutation:
        """Returns the refutation at the point of the prover."""
        point = verdict.counterexample
        return Refutation(goal, point, verdict.reason, verdict.grounds, verdict.samples)


class NoPoint:
    """Claims about rules for which no runs are given: no point refutes them."""

    def refute(
        self,
        goal: Goal,
        verdict: Verdict,
        others: Sequence[Goal],
        assume: tuple[Term, ...],
        effort: Effort,
    ) -> None:
        """Returns None."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A statement about a schedule or a rule, and the goals that prove it.

    Attributes:
        name: The name of its kind, such as ``bounded``.
        sentence: The statement, for people.
        subject: The schedule or rule that it is about; None where it is about neither.
        goals: What must be proved.
        presumes: What must be proved before, such as that there is a value at all.
        assume: What is assumed of the symbols, besides their declarations.
        is_question: True for what is asked to be known: to be refuted is then no fault.
        arguments: Numbers by name, as text, with which the claim of this name can be made again
            by who reads it in an artefact; None where they say not all.
        decide: How it is decided within an effort, for claims that are not a list of goals, such
            as those about floats. It has no goals then.
        runs: Of a claim about a rule, the runs of which one refutes it. Without them it is proved
            or UNKNOWN.
    """

    name: str
    sentence: str
    subject: Schedule | UpdateRule | None
    goals: tuple[Goal, ...]
    presumes: tuple[Goal, ...] = ()
    assume: tuple[Term, ...] = ()
    is_question: bool = False
    arguments: Mapping[str, str] | None = None
    decide: Callable[[Effort], Verdict] | None = None
    runs: Reach | None = None

    def verify(
        self, *, effort: float = 1.0, budget: float | None = None, proofs: Proofs | None = None
    ) -> Verdict:
        """Returns the verdict: proved where every goal is, refuted at the first false one.

        Args:
            effort: How much work all goals together may take, as a multiple of the usual.
            budget: Seconds of wall-clock time for them; None for no such limit. A verdict that
                this limit ends depends on the machine, and says so.
            proofs: Verdicts to share with other claims; see ``Proofs``.

        Raises:
            VerificationError: ``effort`` or ``budget`` is not above 0.
        """
        return self.judge(claim_effort(effort, budget), proofs)

    def judge(self, effort: Effort, proofs: Proofs | None = None) -> Verdict:
        """Returns the verdict that can be reached within an effort; see ``verify``."""
        watch = Watch()
        return self._judge_goals(effort, proofs or Proofs()).after(watch.seconds)

    def has_proof(self, effort: Effort, proofs: Proofs) -> bool:
        """Returns whether each goal is proved; it ends at the first one that is not."""
        if self.decide is not None:
            return self.decide(effort).proved
        return all(verdict.proved for _, verdict in self._answers(effort, proofs))

    def _answers(self, effort: Effort, proofs: Proofs) -> Iterator[tuple[Goal, Verdict]]:
        """Yields each goal, what is presumed first, with its verdict."""
        goals = (*self.presumes, *self.goals)
        covering = Covering()
        proofs.ask_shared(goals, self.assume, effort, covering)
        for goal in goals:
            yield goal, proofs.ask(goal, self.assume, effort, covering)

    def _judge_goals(self, effort: Effort, proofs: Proofs) -> Verdict:
        if self.decide is not None:
            return self.decide(effort)
        goals = (*self.presumes, *self.goals)
        verdicts: list[Verdict] = []
        unknown: list[str] = []
        hints: tuple[str, ...] = ()
        run_work = LIMITS.run_work
        for goal, verdict in self._answers(effort, proofs):
            if verdict.refuted and not goal.is_sufficient:
                search = effort.portion(run_work)
                refutation = self._refutation(goal, verdict, () if hints else goals, search)
                run_work = search.left
                if refutation is not None:
                    return refutation.verdict(verdicts)
                unknown.append(_out_of_reach(goal, verdict))
                hints = (*hints, *_hints_beyond(verdict))
            elif not verdict.proved:
                # A goal that is false as it stands says in its text why nothing is proved.
                reason = "" if goal.statement is FALSE else verdict.reason
                unknown.append(f"{goal.text}: {reason}" if reason else goal.text)
            verdicts.append(verdict)
        return Verdict(
            Status.UNKNOWN if unknown else Status.PROVED,
            grounds=_grounds(verdicts) or (NOTHING_PARTIAL,),
            reason="; ".join(dict.fromkeys(filter(None, (_few(unknown), *hints)))),
            samples=sum(verdict.samples for verdict in verdicts),
            proof=() if unknown else _proof_of(goals, verdicts),
        )

    def _refutation(
        self, goal: Goal, verdict: Verdict, others: Sequence[Goal], search: Effort
    ) -> Refutation | None:
        """The refutation of the claim by that of a goal, if the claim is about its point."""
        # That a condition holds nowhere is proved, and no point shows it.
        if isinstance(self.subject, Schedule) or goal.is_somewhere:
            return AnyPoint().refute(goal, verdict, others, self.assume, search)
        return (self.runs or NoPoint()).refute(goal, verdict, others, self.assume, search)


def _out_of_reach(goal: Goal, verdict: Verdict) -> str:
    """The reason of a goal that is false at a point to which no run is known."""
    point = verdict.counterexample or {}
    place = ", ".join(f"{name} = {number}" for name, number in point.items())
    return f"{goal.text}: false at {place}, which no run was found to reach"


def _hints_beyond(verdict: Verdict) -> tuple[str, ...]:
    """Ways to decide a claim that is false at a point to which no run is known."""
    has_states = any(str(name).startswith("state.") for name in verdict.counterexample or ())
    return ("give invariants= of the states that a run reaches",) if has_states else ()


@dataclass(slots=True)
class Covering:
    """The statements that are proved in one claim, with the facts that were enough."""

    proved: dict[Term, list[tuple[frozenset[Term], Verdict]]] = field(default_factory=dict)

    def find(self, goal: Goal, facts: Iterable[Term]) -> Verdict | None:
        """Returns the proof of the statement from some of the facts, or None."""
        fact_set = set(facts)
        for fewer, verdict in () if goal.is_somewhere else self.proved.get(goal.statement, ()):
            if fewer <= fact_set:
                return verdict
        return None

    def add(self, goal: Goal, facts: Iterable[Term], verdict: Verdict) -> None:
        """Notes a proof."""
        if verdict.proved and not goal.is_somewhere:
            self.proved.setdefault(goal.statement, []).append((frozenset(facts), verdict))


@dataclass(frozen=True, slots=True)
class _Answer:
    """A verdict and the work that it took."""

    verdict: Verdict
    work: int


@dataclass(slots=True)
class Proofs:
    """Verdicts by goal: claims about one subject presume the same, which is proved once.

    A verdict is a function of the goal and of the work that is allowed. One that is known is given
    only where the same work is allowed, and its work counts again. So the verdicts of claims do not
    depend on their order, or on which of them are asked.
    """

    _known: dict[tuple[Any, ...], _Answer] = field(default_factory=dict)

    def ask_shared(
        self, goals: Iterable[Goal], assume: tuple[Term, ...], effort: Effort, covering: Covering
    ) -> None:
        """Asks once for a statement shared by many goals, under their common premises.

        Where it is proved so, it is proved for each; where not, each is asked by itself.
        """
        alike: dict[Term, list[tuple[Term, ...]]] = {}
        for goal in goals:
            if not goal.is_somewhere:
                alike.setdefault(goal.statement, []).append(goal.given)
        for statement, premises in alike.items():
            if len(set(map(frozenset, premises))) > 1:
                common_facts = tuple(
                    fact for fact in premises[0] if all(fact in facts for facts in premises)
                )
                portion = effort.portion(LIMITS.shared_work)
                self.ask(Goal("", statement, common_facts), assume, portion, covering)

    def ask(
        self, goal: Goal, assume: Iterable[Term], effort: Effort, covering: Covering
    ) -> Verdict:
        """Returns the verdict on a goal."""
        facts = tuple(dict.fromkeys((*assume, *goal.given)))
        verdict = covering.find(goal, facts)
        if verdict is not None:
            return verdict
        units = _round_units(effort.left)
        if not units and goal.statement not in (TRUE, FALSE):
            return Verdict(Status.UNKNOWN, reason=f"{effort.why()}, before it was asked")
        key = (goal.statement, goal.is_somewhere, facts, units)
        answer = self._known.get(key)
        if answer is None:
            portion = effort.portion(units)
            before = portion.left
            verdict = _decide(goal, facts, portion)
            answer = _Answer(verdict, before - portion.signed_left)
            # A verdict that the clock has ended is not a function of goal and work.
            if not effort.is_late:
                self._known[key] = answer
        else:
            spend(answer.work)
        covering.add(goal, facts, answer.verdict)
        return answer.verdict


def _round_units(units: int) -> int:
    """Units of a goal, the same ones for goals that come after others: these meet again.

    Where the last search of ``prove`` does not grow with the effort, they are one number; elsewhere
    they are rounded down to three binary digits.
    """
    if GOAL_WORK <= units <= 10 * LIMITS.search_work:
        return GOAL_WORK
    spare = max(0, units.bit_length() - 3)
    return units >> spare << spare


def _decide(goal: Goal, facts: tuple[Term, ...], effort: Effort) -> Verdict:
    if goal.statement == TRUE:
        return Verdict(Status.PROVED, grounds=("arithmetic",))
    if not goal.is_somewhere:
        return _prove(goal.statement, facts, effort)
    nowhere = prove(negate(goal.statement), assume=facts, effort=effort)
    if nowhere.proved:
        return Verdict(Status.REFUTED, nowhere.grounds, reason="it is so nowhere")
    if nowhere.refuted:
        return Verdict(Status.PROVED, ("a point",), samples=nowhere.samples)
    return nowhere


GENERALIZED = "for any choice"
"""The ground that replaces the values of many branches by one arbitrary number."""


def _prove(statement: Term, facts: tuple[Term, ...], effort: Effort) -> Verdict:
    """A proof of the statement; where it has many branches, first of what does not need them.

    A statement that holds with any number in the place of each choice holds for the choices, too.
    """
    if sum(1 for node in walk(statement) if node.op is Op.ITE) > LIMITS.few_branches:
        general = _generalize_choices(statement)
        verdict = prove(general, assume=facts, effort=effort.portion(LIMITS.general_work))
        if verdict.proved:
            return replace(verdict, grounds=(GENERALIZED, *verdict.grounds))
    return prove(statement, assume=facts, effort=effort)


def _generalize_choices(statement: Term) -> Term:
    """The statement with a separate symbol in the place of each outermost choice."""
    inner: set[Term] = set()
    places: dict[Term, Term] = {}
    pending = [statement]
    while pending:
        node = pending.pop()
        if node in inner:
            continue
        inner.add(node)
        if node.op is Op.ITE:
            places[node] = own_symbol(f"choice {len(places) + 1}")
        else:
            pending.extend(node.args)
    return substitute(statement, places)


def _for_people(point: Mapping[str, Any]) -> dict[str, sp.Rational]:
    """A point with names as text; where two print alike, the prover's own says whose it is.

    A number that is known within a ball only is left out: it follows from the run.
    """
    plain = {name for name in point if not isinstance(name, InternalName)}
    return {
        f"the prover's {name}" if name not in plain and str(name) in plain else str(name): (
            sp.Rational(int(number.p), int(number.q))
        )
        for name, number in point.items()
        if not isinstance(number, arb)
    }


def value_text(term: Term, point: Mapping[str, Any]) -> str:
    """Returns the exact value of a term at a point as text: a fraction, or digits with a ≈."""
    numbers = {
        name: number if isinstance(number, arb) else exact(number) for name, number in point.items()
    }
    result = value(term, numbers)
    if isinstance(result, Undefined):
        return f"undefined ({result.reason})"
    return number_text(result)


_MOST_DIGITS = 16


def number_text(number: fmpq | arb) -> str:
    """Returns a number as people read it: a fraction where it is short, else 8 digits."""
    if isinstance(number, fmpq):
        text = str(number)
        if len(text) <= _MOST_DIGITS:
            return text
        number = arb(number)
    # Eight digits are certain in a ball that is narrower than the last of them.
    if not number.is_finite() or not number.rad() < abs(number.mid()) * 1e-9:
        return f"≈ {number.str(8)}"
    return f"≈ {float(number.mid()):.8g}"


def _grounds(verdicts: Iterable[Verdict]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for verdict in verdicts for name in verdict.grounds))


def _proof_of(goals: Sequence[Goal], verdicts: Sequence[Verdict]) -> tuple[Proof, ...]:
    """The proofs of all goals, each one once."""
    proofs: dict[int, Proof] = {}
    for goal, verdict in zip(goals, verdicts, strict=True):
        for proof in verdict.proof:
            proofs.setdefault(id(proof), replace(proof, goal=goal.text))
    return tuple(proofs.values())


_MOST_REASONS = 3


def _few(reasons: list[str]) -> str:
    listed_reasons = "; ".join(reasons[:_MOST_REASONS])
    more = len(reasons) - _MOST_REASONS
    return f"{listed_reasons}; and {more} more" if more > 0 else listed_reasons
