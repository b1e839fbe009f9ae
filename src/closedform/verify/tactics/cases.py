"""Case splitting: one sequent as several without choices, that together say the same.

Each case adds to the facts what distinguishes it, and the cases cover everything, so all of them
proved is the sequent proved:

- ``ite`` by its condition; ``min``, ``max``, ``abs`` by a comparison; ``sign`` by three;
- ``floor(u)`` as a new integer n with ``n <= u < n + 1`` and the order to other floors: n exists,
  and is the floor, so this says neither more nor less.

A case whose facts the order solver refutes is left out: there is nothing to prove in it. In a long
chain of conditions each branch is given its own and the two before it, no others: fewer facts never
prove more, and what a branch needs is nearly always the border to its neighbour.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from closedform.effort import Effort
from closedform.verify.tactics.lemmas import implies
from closedform.verify.tactics.solver import SolverMode, ask, entails, has_integers
from closedform.verify.terms.build import (
    MINUS_ONE,
    ONE,
    ZERO,
    add,
    alternatives,
    both,
    is_rational,
    less,
    less_equal,
    multiply,
    negate,
    own_symbol,
    power,
    substitute,
    subtract,
)
from closedform.verify.terms.limits import LIMITS
from closedform.verify.terms.tree import Op, Term, chain, walk

_CHOICES = frozenset({Op.ITE, Op.MINIMUM, Op.MAXIMUM, Op.ABSOLUTE, Op.SIGN, Op.FLOOR})


class TooManyCases(Exception):  # noqa: N818 - a bound that is met, not a fault
    """A goal splits into more cases than are worth proving one by one."""


@dataclass(frozen=True, slots=True)
class Sequent:
    """``facts`` entail ``goal``.

    Args:
        facts: What holds.
        goal: What is to be proved.
        floors: The integer symbols that replace floors, each with the number it is the floor of.
    """

    facts: tuple[Term, ...]
    goal: Term
    floors: Mapping[Term, Term]

    def knowing(self, *facts: Term) -> Sequent:
        """Returns the sequent with more facts."""
        return replace(self, facts=(*self.facts, *facts))

    def replacing(self, replacements: Mapping[Term, Term]) -> Sequent:
        """Returns the sequent with terms replaced in its goal and facts."""
        return Sequent(
            tuple(substitute(fact, replacements) for fact in self.facts),
            substitute(self.goal, replacements),
            {name: substitute(of, replacements) for name, of in self.floors.items()},
        )


def split(sequent: Sequent, effort: Effort) -> list[Sequent]:
    """Returns the cases of a sequent: goals without choices or floors.

    Raises:
        TooManyCases: There are too many.
        OutOfEffort: Its effort is used up.
    """
    cases: list[Sequent] = []
    pending = [sequent]
    while pending:
        effort.check()
        if len(cases) + len(pending) > LIMITS.cases:
            raise TooManyCases
        current = pending.pop()
        node = _innermost_choice(current.goal)
        if node is None:
            cases.append(current)
        elif node.op is Op.FLOOR:
            pending.append(_without_floor(current, node, effort))
        elif len(chain(node)[0]) > LIMITS.short_chain:
            pending.extend(_branches_of(current, node))
        else:
            pending.extend(_without_choice(current, node, effort))
    return cases


def is_feasible(
    facts: tuple[Term, ...], effort: Effort, readings: tuple[SolverMode, ...] = (SolverMode.REAL,)
) -> bool:
    """Returns False only where the order solver shows that some facts contradict each other."""
    portion = effort.step(LIMITS.feasible_work)
    return not any(ask(facts, portion, reading, with_lemmas=False).refuted for reading in readings)


def _innermost_choice(root: Term) -> Term | None:
    """The first choice that has no other one below it; of an ite only the condition counts."""
    holds_choice: dict[Term, bool] = {}
    for node in walk(root):
        holds_choice[node] = node.op in _CHOICES or any(holds_choice[arg] for arg in node.args)
    if not holds_choice[root]:
        return None
    node = root
    while True:
        below = node.args[:1] if node.op is Op.ITE else node.args
        inner = next((arg for arg in below if holds_choice[arg]), None)
        if inner is None:
            return node
        node = inner


def _without_choice(sequent: Sequent, node: Term, effort: Effort) -> Iterator[Sequent]:
    for condition, branch in alternatives(node):
        case = sequent.knowing(condition)
        # A contradictory case proves everything; dropping it early keeps the others from doubling.
        if condition.op is Op.FALSE or not is_feasible(case.facts, effort):
            continue
        goal = substitute(case.goal, {node: branch})
        if node.op is Op.ITE:
            # Lowerings repeat a condition: deciding it once decides all choices by it.
            goal = _settle(goal, node.args[0], holds=condition == node.args[0])
        yield replace(case, goal=goal)


def _branches_of(sequent: Sequent, head: Term) -> Iterator[Sequent]:
    """The branches of a long chain, the last one first."""
    branches, last = chain(head)
    earlier_failures = [negate(condition) for condition, _ in branches]
    yield _at_branch(sequent, head, earlier_failures[-LIMITS.chain_facts :], last)
    for place, (condition, value) in reversed(list(enumerate(branches))):
        facts = [*earlier_failures[max(0, place - LIMITS.chain_facts) : place], condition]
        yield _at_branch(sequent, head, facts, value)


def _at_branch(sequent: Sequent, head: Term, facts: list[Term], value: Term) -> Sequent:
    case = sequent.knowing(*facts)
    return replace(case, goal=substitute(case.goal, {head: value}))


def _settle(goal: Term, condition: Term, *, holds: bool) -> Term:
    """The goal with every other choice by the same condition made."""
    replacements = {
        node: node.args[1 if holds else 2]
        for node in walk(goal)
        if node.op is Op.ITE and node.args[0] == condition
    }
    return substitute(goal, replacements)


def _without_floor(sequent: Sequent, node: Term, effort: Effort) -> Sequent:
    """The floor as a new integer, with its defining inequalities."""
    number = node.args[0]
    whole = own_symbol(f"floor#{len(sequent.floors)}", integer=True)
    facts = [less_equal(whole, number), less(number, add(whole, ONE))]
    for bound in (ZERO, ONE):
        facts.append(implies(less_equal(bound, number), less_equal(bound, whole)))
        facts.append(implies(less(number, bound), less_equal(whole, subtract(bound, ONE))))
    facts += _floor_of_logarithm(number, whole)
    facts += _floor_of_quotient(sequent, number, whole, effort)
    for other_whole, other_number in sequent.floors.items():
        facts.append(implies(less_equal(other_number, number), less_equal(other_whole, whole)))
        facts.append(implies(less_equal(number, other_number), less_equal(whole, other_whole)))
    case = sequent.replacing({node: whole})
    return Sequent((*case.facts, *facts), case.goal, {**case.floors, whole: number})


def _floor_of_logarithm(number: Term, whole: Term) -> list[Term]:
    """``floor(log_b a) = n`` as ``b^n <= a < b^(n + 1)``, where a > 0 and b > 1."""
    if number.op is not Op.DIVIDE or any(arg.op is not Op.LOG for arg in number.args):
        return []
    of, base = (arg.args[0] for arg in number.args)
    under = power(base, whole)
    domain = less(ONE, base), less(ZERO, of)
    return [
        implies(*domain, both(less_equal(under, of), less(of, multiply(base, under)))),
        implies(*domain, less_equal(ONE, of), less_equal(ZERO, whole)),
        implies(*domain, less(of, base), less_equal(whole, ZERO)),
        implies(*domain, less_equal(base, of), less_equal(ONE, whole)),
        implies(*domain, less(of, ONE), less_equal(whole, MINUS_ONE)),
    ]


def _floor_of_quotient(sequent: Sequent, number: Term, whole: Term, effort: Effort) -> list[Term]:
    """``floor(a / b) = n`` as ``n b <= a < (n + 1) b``, where the facts say that b > 0."""
    if number.op is not Op.DIVIDE or is_rational(number.args[1]):
        return []
    above, below = number.args
    if above.op is Op.LOG:
        return []
    portion = effort.step(LIMITS.quotient_work)
    if entails(sequent.facts, less(ZERO, below), portion, has_integers(*sequent.facts))[0]:
        next_multiple = multiply(add(whole, ONE), below)
        return [less_equal(multiply(whole, below), above), less(above, next_multiple)]
    return []
