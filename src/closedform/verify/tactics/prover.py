"""Proofs and refutations of claims, by an escalation of tactics within an effort.

The order: a goal about only the clock is walked through (``clock``). Any other one is first
evaluated at points (most false claims are refuted there, in units), then by the tactics of
``escalation``, then at points again: models of z3 for open goals, points in open regions, and more
random points. Only a tactic reports PROVED, only an exactly evaluated point REFUTED; everything
else is UNKNOWN.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping

import sympy as sp
from flint import fmpq

from closedform.effort import Effort, OutOfEffort, Watch
from closedform.errors import VerificationError
from closedform.verify.identity.canonical import is_zero
from closedform.verify.tactics.cases import Sequent, TooManyCases
from closedform.verify.tactics.clock import SEGMENTS, walk_through
from closedform.verify.tactics.escalation import EVALUATION, Escalation, escalate
from closedform.verify.tactics.samples import (
    Counterexample,
    Sampler,
    Tally,
    declarations,
    examine,
    simplified,
)
from closedform.verify.tactics.solver import Reading, ask, missing, session
from closedform.verify.terms.build import (
    either,
    equal,
    less,
    negate,
    own_symbol,
    rational,
    rebuild,
    subtract,
)
from closedform.verify.terms.evaluate import holds
from closedform.verify.terms.facts import is_non_negative
from closedform.verify.terms.limits import LIMITS
from closedform.verify.terms.tensor_functions import FUNCTIONS, REDUCE_MAX, REDUCE_SUM, kind_of
from closedform.verify.terms.tree import TRUTHS, Op, Sign, Term, show, symbols, walk
from closedform.verify.terms.verdict import Status, Verdict

SAMPLES = "samples"
MODELS = "z3's model"
REGIONS = "points of an open case"


def prove(
    goal: Term, *, assume: Iterable[Term] = (), effort: Effort | None = None, seed: int = 0
) -> Verdict:
    """Returns whether a goal holds for all values of its symbols that the assumptions admit.

    A relation is judged where both of its sides are defined: claim that, too (``definedness``).
    A point at which the goal is undefined refutes it.

    Args:
        goal: A truth. The declarations of its symbols (integer, sign) are assumptions.
        assume: More assumptions.
        effort: The work that it may do; that of one claim if None. The verdict is a function of the
            goal, the assumptions, the seed and the work that is left: not of the machine.
        seed: Where the random points begin; the same seed draws the same points.

    Raises:
        VerificationError: The goal is not a truth, a symbol is declared in two ways, or a proof and
            an exactly evaluated point contradict each other, which is a fault of the prover.

    Example:
        >>> import sympy as sp
        >>> from closedform.verify.terms.build import ONE, cospi, less, less_equal
        >>> from closedform.verify.terms.sympy_io import term
        >>> x = term(sp.Symbol("x", real=True))
        >>> prove(less_equal(cospi(x), ONE)).status
        <Status.PROVED: 'PROVED'>
        >>> prove(less(cospi(x), ONE)).counterexample
        {'x': 0}
    """
    if goal.op not in TRUTHS:
        raise VerificationError(f"only a truth can be proved, got the number {show(goal)}")
    allowed = Effort.of(LIMITS.claim_work) if effort is None else effort
    watch = Watch()
    with session():
        verdict = _prove(goal, tuple(assume), allowed, seed)
    return verdict.after(watch.seconds)


def _prove(goal: Term, assumptions: tuple[Term, ...], effort: Effort, seed: int) -> Verdict:
    units = effort.left
    elementwise, given = without_tensor_functions(goal, assumptions)
    walked = _walked(elementwise, given, effort.portion(units * LIMITS.tactics_share))
    if walked is not None:
        return walked
    sampler = Sampler(goal, assumptions, seed)

    def refuted(found: Counterexample, tactic: str, tried: Tally) -> Verdict:
        soon = effort.portion(LIMITS.simplifying_work)
        return _refuted(simplified(found, goal, sampler.assumptions, soon), tactic, tried)

    tally = sampler.search(LIMITS.first_points, effort.portion(min(LIMITS.first_work, units / 4)))
    if tally.counterexample is not None:
        return refuted(tally.counterexample, SAMPLES, tally)
    reason = "no tactic proved it"
    result = Escalation()
    until = effort.portion(units * LIMITS.tactics_share)
    try:
        facts = (*declarations(elementwise, *given), *given)
        result = escalate(Sequent(facts, elementwise, {}), until)
        if result.is_proved:
            return _proved(result, sampler, tally, effort)
        found = _from_models(result, sampler)
        if found is not None:
            return refuted(found, MODELS, tally)
        found = _from_regions(result, sampler, until, seed)
        if found is not None:
            return refuted(found, REGIONS, tally)
        reason = f"{len(result.open)} of its cases were not proved"
    except OutOfEffort:
        reason = effort.why()
    except TooManyCases:
        reason = "it splits into too many cases"
    again = sampler.search(LIMITS.last_points, effort.portion(LIMITS.last_work))
    total = Tally(tally.satisfied + again.satisfied, tally.undecided + again.undecided)
    if again.counterexample is not None:
        return refuted(again.counterexample, SAMPLES, total)
    return _unknown(reason, total)


def _walked(goal: Term, assumptions: tuple[Term, ...], effort: Effort) -> Verdict | None:
    """The verdict on a goal without symbols, or with none but the clock; None if not decided."""
    declared = symbols(goal, *assumptions)
    statement = either(*(negate(assumption) for assumption in assumptions), goal)
    if not declared:
        found = holds(statement, {})
        if found is None:
            return None
        if found is True:
            return Verdict(Status.PROVED, (EVALUATION,), samples=1)
        return _refuted(Counterexample({}, "it is false"), EVALUATION, Tally())
    clock = next(iter(declared.values()))
    first = _FIRST_STEPS.get(clock.value.sign)
    if len(declared) > 1 or not clock.value.integer or first is None:
        return None
    try:
        result = walk_through(statement, clock, first, effort)
    except OutOfEffort:
        return None
    if result.counterexample is not None:
        point = {clock.value.name: fmpq(result.counterexample)}
        counterexample = examine(goal, assumptions, point)
        return None if counterexample is None else _refuted(counterexample, SEGMENTS, Tally())
    return Verdict(Status.PROVED, tuple(result.tactics)) if result.is_proved else None


_FIRST_STEPS = {Sign.NONNEGATIVE: 0, Sign.POSITIVE: 1}


def _proved(result: Escalation, sampler: Sampler, tally: Tally, effort: Effort) -> Verdict:
    """A proof, confirmed by more points: one that contradicts it is a fault of the prover."""
    more = sampler.search(LIMITS.confirming_points, effort.portion(LIMITS.confirming_work))
    found = more.counterexample
    if found is not None and not found.is_undefined:
        raise VerificationError(
            f"a proof by {', '.join(result.tactics)} of {show(sampler.goal)} is contradicted at "
            f"{dict(found.point)}: {found.reason}",
            hint="this is a fault of the prover: please report it",
        )
    if found is not None:
        return _refuted(found, SAMPLES, tally)
    satisfied = tally.satisfied + more.satisfied
    undecided = tally.undecided + more.undecided
    reason = (
        ""
        if satisfied or undecided
        else "no point was found: perhaps nothing satisfies the assumptions"
    )
    if undecided:
        reason = f"{undecided} points agree within balls"
    return Verdict(Status.PROVED, tuple(result.tactics), None, reason, satisfied)


def _refuted(found: Counterexample, tactic: str, tally: Tally) -> Verdict:
    point = {name: sp.Rational(int(v.p), int(v.q)) for name, v in sorted(found.point.items())}
    return Verdict(Status.REFUTED, (tactic,), point, found.reason, tally.satisfied)


def _unknown(reason: str, tally: Tally) -> Verdict:
    sampled = f"it is true at {tally.satisfied} points"
    if tally.undecided:
        sampled += f", and within balls at {tally.undecided}"
    reasons = [reason, sampled, missing()]
    return Verdict(Status.UNKNOWN, (), None, "; ".join(filter(None, reasons)), tally.satisfied)


def _from_models(result: Escalation, sampler: Sampler) -> Counterexample | None:
    for model in result.models:
        found = _near(model, sampler)
        if found is not None:
            return found
    return None


def _near(model: Mapping[str, fmpq], sampler: Sampler) -> Counterexample | None:
    """A counterexample at a model of z3's with integers made whole, or one step next to it."""
    declared = symbols(sampler.goal, *sampler.assumptions)
    point = {name: model.get(name, fmpq(1)) for name in declared}
    whole = [name for name, node in declared.items() if node.value.integer]
    point.update({name: fmpq(point[name].floor()) for name in whole})
    for candidate in (point, *({**point, name: point[name] + 1} for name in whole)):
        found = examine(sampler.goal, sampler.assumptions, candidate)
        if found is not None:
            return found
    return None


def _from_regions(
    result: Escalation, sampler: Sampler, effort: Effort, seed: int
) -> Counterexample | None:
    """Points of the open cases: integer parameters at random, z3 finds the rest."""
    chance = random.Random(seed)
    declared = symbols(sampler.goal, *sampler.assumptions)
    for case in result.open[:6]:
        for fixed in _random_facts(declared, chance):
            effort.check()
            model = ask(
                (*case.facts, *fixed), effort.portion(LIMITS.region_work), Reading.INTEGER
            ).model
            found = None if model is None else _near(model, sampler)
            if found is not None:
                return found
    return None


def _random_facts(declared: Mapping[str, Term], chance: random.Random) -> Iterator[list[Term]]:
    """Equalities that fix all integers but the clock, and lower bounds of some other symbols."""
    for draw in range(LIMITS.region_draws):
        facts = []
        for name, node in declared.items():
            if node.value.integer and name not in ("t", "s"):
                large = chance.choice((1, 2, 3, 97, 1000))
                number = chance.randint(1, 60) if draw % 3 else large
                facts.append(equal(node, rational(number)))
            elif not node.value.integer and chance.random() < 0.4:
                facts.append(less(rational(chance.randint(0, 6), 4), node))
        yield facts


def without_tensor_functions(
    goal: Term, assumptions: Iterable[Term]
) -> tuple[Term, tuple[Term, ...]]:
    """Returns a goal and assumptions with each function of tensors as a symbol.

    What is proved of the symbols is proved of the functions; what is not may still be true.
    """
    statements = (goal, *assumptions)
    if not any(_is_tensor_function(node) for node in walk(*statements)):
        return goal, statements[1:]
    done: dict[Term, Term] = {}
    known: list[tuple[Term, Term]] = []
    for node in walk(*statements):
        made = rebuild(node, tuple(done[arg] for arg in node.args)) if node.args else node
        done[node] = _symbol_of(made, known) if _is_tensor_function(made) else made
    return done[goal], tuple(done[assumption] for assumption in statements[1:])


def _is_tensor_function(node: Term) -> bool:
    return node.op is Op.OPAQUE and kind_of(node.value) in FUNCTIONS


def _symbol_of(node: Term, known: list[tuple[Term, Term]]) -> Term:
    """The symbol of an equal function, or a new one."""
    for other, name in known:
        if other.value == node.value and all(
            is_zero(subtract(left, right))
            for left, right in zip(node.args, other.args, strict=True)
        ):
            return name
    is_reduction = kind_of(node.value) in (REDUCE_SUM, REDUCE_MAX)
    is_large = is_reduction and is_non_negative(node.args[0])
    sign = Sign.NONNEGATIVE if is_large else Sign.ANY
    name = own_symbol(f"{kind_of(node.value)}#{len(known)}", sign=sign)
    known.append((node, name))
    return name
