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
from closedform.verify.samples import (
    Counterexample,
    Sampler,
    Tally,
    declarations,
    examine,
    simplify_point,
)
from closedform.verify.tactics.solver import SolverMode, ask, session
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
    budget = Effort.of(LIMITS.claim_work) if effort is None else effort
    watch = Watch()
    with session():
        verdict = _prove(goal, tuple(assume), budget, seed)
    return verdict.after(watch.seconds)


def _prove(goal: Term, assumptions: tuple[Term, ...], effort: Effort, seed: int) -> Verdict:
    units = effort.left
    elementwise, premises = without_tensor_functions(goal, assumptions)
    quick_verdict = _walk_steps(elementwise, premises, effort.portion(units * LIMITS.tactics_share))
    if quick_verdict is not None:
        return quick_verdict
    sampler = Sampler(goal, assumptions, seed)

    def refute(counterexample: Counterexample, tactic: str, point_tally: Tally) -> Verdict:
        soon = effort.portion(LIMITS.simplifying_work)
        return _refuted_verdict(
            simplify_point(counterexample, goal, sampler.assumptions, soon), tactic, point_tally
        )

    # Points before tactics: most false claims fail at one of the first, which costs microseconds.
    tally = sampler.search(LIMITS.first_points, effort.portion(min(LIMITS.first_work, units / 4)))
    if tally.counterexample is not None:
        return refute(tally.counterexample, SAMPLES, tally)
    reason = "no tactic proved it"
    result = Escalation()
    until = effort.portion(units * LIMITS.tactics_share)
    try:
        facts = (*declarations(elementwise, *premises), *premises)
        result = escalate(Sequent(facts, elementwise, {}), until)
        if result.is_proved:
            return _confirm_proof(result, sampler, tally, effort)
        counterexample = _from_models(result, sampler)
        if counterexample is not None:
            return refute(counterexample, MODELS, tally)
        counterexample = _from_regions(result, sampler, until, seed)
        if counterexample is not None:
            return refute(counterexample, REGIONS, tally)
        reason = f"{len(result.open)} of its cases were not proved"
    except OutOfEffort:
        reason = effort.why()
    except TooManyCases:
        reason = "it splits into too many cases"
    again = sampler.search(LIMITS.last_points, effort.portion(LIMITS.last_work))
    total = Tally(tally.satisfied + again.satisfied, tally.undecided + again.undecided)
    if again.counterexample is not None:
        return refute(again.counterexample, SAMPLES, total)
    return _unknown(reason, total)


def _walk_steps(goal: Term, assumptions: tuple[Term, ...], effort: Effort) -> Verdict | None:
    """The verdict on a goal without symbols, or with none but the clock; None if not decided."""
    symbols_by_name = symbols(goal, *assumptions)
    statement = either(*(negate(assumption) for assumption in assumptions), goal)
    if not symbols_by_name:
        truth = holds(statement, {})
        if truth is None:
            return None
        if truth is True:
            return Verdict(Status.PROVED, (EVALUATION,), samples=1)
        return _refuted_verdict(Counterexample({}, "it is false"), EVALUATION, Tally())
    clock = next(iter(symbols_by_name.values()))
    first = _FIRST_STEPS.get(clock.value.sign)
    if len(symbols_by_name) > 1 or not clock.value.integer or first is None:
        return None
    try:
        result = walk_through(statement, clock, first, effort)
    except OutOfEffort:
        return None
    if result.counterexample is not None:
        point = {clock.value.name: fmpq(result.counterexample)}
        counterexample = examine(goal, assumptions, point)
        return (
            None if counterexample is None else _refuted_verdict(counterexample, SEGMENTS, Tally())
        )
    return Verdict(Status.PROVED, tuple(result.tactics)) if result.is_proved else None


_FIRST_STEPS = {Sign.NONNEGATIVE: 0, Sign.POSITIVE: 1}


def _confirm_proof(result: Escalation, sampler: Sampler, tally: Tally, effort: Effort) -> Verdict:
    """A proof, confirmed by more points: one that contradicts it is a fault of the prover."""
    more = sampler.search(LIMITS.confirming_points, effort.portion(LIMITS.confirming_work))
    counterexample = more.counterexample
    if counterexample is not None and not counterexample.is_undefined:
        raise VerificationError(
            f"a proof by {', '.join(result.tactics)} of {show(sampler.goal)} is contradicted at "
            f"{dict(counterexample.point)}: {counterexample.reason}",
            hint="this is a fault of the prover: please report it",
        )
    if counterexample is not None:
        return _refuted_verdict(counterexample, SAMPLES, tally)
    true_points = tally.satisfied + more.satisfied
    open_points = tally.undecided + more.undecided
    reason = (
        ""
        if true_points or open_points
        else "no point was found: perhaps nothing satisfies the assumptions"
    )
    if open_points:
        reason = f"{open_points} points agree within balls"
    return Verdict(Status.PROVED, tuple(result.tactics), None, reason, true_points)


def _refuted_verdict(counterexample: Counterexample, tactic: str, tally: Tally) -> Verdict:
    point = {
        name: sp.Rational(int(v.p), int(v.q)) for name, v in sorted(counterexample.point.items())
    }
    return Verdict(Status.REFUTED, (tactic,), point, counterexample.reason, tally.satisfied)


def _unknown(reason: str, tally: Tally) -> Verdict:
    evidence = f"it is true at {tally.satisfied} points"
    if tally.undecided:
        evidence += f", and within balls at {tally.undecided}"
    return Verdict(Status.UNKNOWN, (), None, f"{reason}; {evidence}", tally.satisfied)


def _from_models(result: Escalation, sampler: Sampler) -> Counterexample | None:
    for model in result.models:
        counterexample = _near(model, sampler)
        if counterexample is not None:
            return counterexample
    return None


def _near(model: Mapping[str, fmpq], sampler: Sampler) -> Counterexample | None:
    """A counterexample at a model of z3's with integers made whole, or one step next to it."""
    symbols_by_name = symbols(sampler.goal, *sampler.assumptions)
    point = {name: model.get(name, fmpq(1)) for name in symbols_by_name}
    whole = [name for name, node in symbols_by_name.items() if node.value.integer]
    # The relaxation gives integers fractions; the claim is examined at the integer below and above.
    point.update({name: fmpq(point[name].floor()) for name in whole})
    for candidate in (point, *({**point, name: point[name] + 1} for name in whole)):
        counterexample = examine(sampler.goal, sampler.assumptions, candidate)
        if counterexample is not None:
            return counterexample
    return None


def _from_regions(
    result: Escalation, sampler: Sampler, effort: Effort, seed: int
) -> Counterexample | None:
    """Points of the open cases: integer parameters at random, z3 finds the rest."""
    chance = random.Random(seed)
    symbols_by_name = symbols(sampler.goal, *sampler.assumptions)
    for case in result.open[:6]:
        for drawn_facts in _random_facts(symbols_by_name, chance):
            effort.check()
            model = ask(
                (*case.facts, *drawn_facts), effort.portion(LIMITS.region_work), SolverMode.INTEGER
            ).model
            counterexample = None if model is None else _near(model, sampler)
            if counterexample is not None:
                return counterexample
    return None


def _random_facts(
    symbols_by_name: Mapping[str, Term], chance: random.Random
) -> Iterator[list[Term]]:
    """Equalities that fix all integers but the clock, and lower bounds of some other symbols."""
    for draw in range(LIMITS.region_draws):
        facts = []
        for name, node in symbols_by_name.items():
            # z3 solves for one integer, the clock, more often than for several in products.
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
    rewritten: dict[Term, Term] = {}
    names_of_functions: list[tuple[Term, Term]] = []
    for node in walk(*statements):
        rebuilt_node = (
            rebuild(node, tuple(rewritten[arg] for arg in node.args)) if node.args else node
        )
        rewritten[node] = (
            _symbol_of(rebuilt_node, names_of_functions)
            if _is_tensor_function(rebuilt_node)
            else rebuilt_node
        )
    return rewritten[goal], tuple(rewritten[assumption] for assumption in statements[1:])


def _is_tensor_function(node: Term) -> bool:
    return node.op is Op.OPAQUE and kind_of(node.value) in FUNCTIONS


def _symbol_of(node: Term, names_of_functions: list[tuple[Term, Term]]) -> Term:
    """The symbol of an equal function, or a new one."""
    for function, name in names_of_functions:
        if function.value == node.value and all(
            is_zero(subtract(left, right))
            for left, right in zip(node.args, function.args, strict=True)
        ):
            return name
    is_reduction = kind_of(node.value) in (REDUCE_SUM, REDUCE_MAX)
    is_large = is_reduction and is_non_negative(node.args[0])
    # A sum or maximum of numbers >= 0 is >= 0, that of none included.
    sign = Sign.NONNEGATIVE if is_large else Sign.ANY
    name = own_symbol(f"{kind_of(node.value)}#{len(names_of_functions)}", sign=sign)
    names_of_functions.append((node, name))
    return name
