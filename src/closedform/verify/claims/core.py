"""Claims: goals to be proved about a subject, and how their verdicts become one.

A relation counts only together with the definedness of its sides (a prover may cancel
denominators), so a claim holds the goals that it presumes in addition to its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from flint import arb, fmpq

from closedform.effort import Effort, Watch, spend
from closedform.errors import VerificationError
from closedform.language import Schedule, UpdateRule
from closedform.language.symbols import InternalName
from closedform.verify.tactics.prover import prove
from closedform.verify.terms.build import FALSE, TRUE, exact, negate, own_symbol, substitute
from closedform.verify.terms.definedness import Obligation, PartialOperation, obligations
from closedform.verify.terms.evaluate import Undefined, value
from closedform.verify.terms.limits import LIMITS
from closedform.verify.terms.tree import Op, Term, walk
from closedform.verify.terms.verdict import Status, Verdict


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
"""The tactic of claims without goals: nothing in the expression can fail."""


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
        note: What a counterexample has to be read with, if it is not at the start.
        start: The values of symbols at the start, by their names.
    """

    text: str
    statement: Term
    given: tuple[Term, ...] = ()
    is_somewhere: bool = False
    is_sufficient: bool = False
    shown: tuple[tuple[str, Term], ...] = ()
    note: str = ""
    start: tuple[tuple[str, Any], ...] = ()


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
class Claim:
    """A statement about a schedule or a rule, and the goals that prove it.

    Attributes:
        name: The name of its kind, such as ``bounded``.
        sentence: The statement, for people.
        subject: The schedule or rule that it is about.
        goals: What must be proved.
        presumes: What must be proved before, such as that there is a value at all.
        assume: What is assumed of the symbols, besides their declarations.
        is_question: True for what is asked to be known: to be refuted is then no fault.
        arguments: Numbers by name, as text, with which the claim of this name can be made again
            by who reads it in an artefact; None where they say not all.
        decide: How it is decided within an effort, for claims that are not about terms: those
            about floats. It has no goals then.
    """

    name: str
    sentence: str
    subject: Schedule | UpdateRule
    goals: tuple[Goal, ...]
    presumes: tuple[Goal, ...] = ()
    assume: tuple[Term, ...] = ()
    is_question: bool = False
    arguments: Mapping[str, str] | None = None
    decide: Callable[[Effort], Verdict] | None = None

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

    def _judge_goals(self, effort: Effort, proofs: Proofs) -> Verdict:
        if self.decide is not None:
            return self.decide(effort)
        goals = (*self.presumes, *self.goals)
        covering = Covering()
        proofs.ask_shared(goals, self.assume, effort, covering)
        verdicts: list[Verdict] = []
        unknown: list[str] = []
        for goal in goals:
            verdict = proofs.ask(goal, self.assume, effort, covering)
            if verdict.refuted and not goal.is_sufficient:
                return _refutation_of(goal, verdict, verdicts)
            if not verdict.proved:
                # A goal that is false as it stands says in its text why nothing is proved.
                reason = "" if goal.statement is FALSE else verdict.reason
                unknown.append(f"{goal.text}: {reason}" if reason else goal.text)
            verdicts.append(verdict)
        return Verdict(
            Status.UNKNOWN if unknown else Status.PROVED,
            tactics=_tactics(verdicts) or (NOTHING_PARTIAL,),
            reason=_few(unknown),
            samples=sum(verdict.samples for verdict in verdicts),
        )


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
    """Units down to three binary digits: goals that come after others meet one another again."""
    spare = max(0, units.bit_length() - 3)
    return units >> spare << spare


def _decide(goal: Goal, facts: tuple[Term, ...], effort: Effort) -> Verdict:
    if goal.statement == TRUE:
        return Verdict(Status.PROVED, tactics=("arithmetic",))
    if not goal.is_somewhere:
        return _prove(goal.statement, facts, effort)
    nowhere = prove(negate(goal.statement), assume=facts, effort=effort)
    if nowhere.proved:
        return Verdict(Status.REFUTED, nowhere.tactics, reason="it is so nowhere")
    if nowhere.refuted:
        return Verdict(Status.PROVED, ("a point",), samples=nowhere.samples)
    return nowhere


GENERALIZED = "for any choice"
"""The tactic that replaces the values of many branches by one arbitrary number."""


def _prove(statement: Term, facts: tuple[Term, ...], effort: Effort) -> Verdict:
    """A proof of the statement; where it has many branches, first of what does not need them.

    A statement that holds with any number in the place of each choice holds for the choices, too.
    """
    if sum(1 for node in walk(statement) if node.op is Op.ITE) > LIMITS.few_branches:
        general = _generalize_choices(statement)
        verdict = prove(general, assume=facts, effort=effort.portion(LIMITS.general_work))
        if verdict.proved:
            return replace(verdict, tactics=(GENERALIZED, *verdict.tactics))
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


def _refutation_of(goal: Goal, verdict: Verdict, before: list[Verdict]) -> Verdict:
    """The refutation of one goal as that of the claim, with the values that show it."""
    point = verdict.counterexample
    parts = [goal.text]
    if point is not None and goal.shown:
        parts += [f"{name} is {value_text(displays, point)}" for name, displays in goal.shown]
    elif verdict.reason:
        parts.append(verdict.reason)
    is_start = point is not None and all(point.get(name, at) == at for name, at in goal.start)
    if goal.note and not is_start:
        parts.append(goal.note)
    return Verdict(
        Status.REFUTED,
        tactics=verdict.tactics,
        counterexample=None if point is None else _for_people(point),
        reason=", ".join(parts),
        samples=sum(earlier.samples for earlier in before) + verdict.samples,
    )


def _for_people(point: Mapping[str, Any]) -> dict[str, Any]:
    """A point with names as text; where two print alike, the prover's own says whose it is."""
    plain = {name for name in point if not isinstance(name, InternalName)}
    return {
        f"the prover's {name}" if name not in plain and str(name) in plain else str(name): number
        for name, number in point.items()
    }


def value_text(term: Term, point: Mapping[str, Any]) -> str:
    """Returns the exact value of a term at a point as text: a fraction, or digits with a ≈."""
    result = value(term, {name: exact(number) for name, number in point.items()})
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


def _tactics(verdicts: Iterable[Verdict]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for verdict in verdicts for name in verdict.tactics))


_MOST_REASONS = 3


def _few(reasons: list[str]) -> str:
    listed_reasons = "; ".join(reasons[:_MOST_REASONS])
    more = len(reasons) - _MOST_REASONS
    return f"{listed_reasons}; and {more} more" if more > 0 else listed_reasons
