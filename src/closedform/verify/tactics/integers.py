"""Consequences for integers: tighter facts, cases, and symbols eliminated by equalities.

All of it is sound for integers and adds nothing over the reals but what integers allow:

- ``a < b`` between integers is ``a + 1 <= b`` (scaled, where coefficients are fractions);
- ``a != b`` is ``a < b`` or ``b < a``; a disjunction of equalities is one case each;
- two floors of numbers at most 1 apart differ by 0 or 1;
- ``a <= b`` is ``a = b`` where the facts contradict ``a < b``;
- an equality that gives a symbol as a term without it replaces it everywhere;
- ``floor(n + u)`` is ``n + floor(u)`` for an integer n.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import permutations

from closedform.effort import Effort
from closedform.verify.identity.canonical import integral_scale, is_zero, whole_part
from closedform.verify.tactics.cases import Sequent, is_feasible
from closedform.verify.tactics.solver import SolverMode, ask, entails
from closedform.verify.terms import build
from closedform.verify.terms.limits import LIMITS
from closedform.verify.terms.tree import Op, Term, symbols, walk

_READINGS = (SolverMode.REAL, SolverMode.INTEGER)
_CURVED = frozenset(
    {Op.FLOOR, Op.COSPI, Op.SINPI, Op.POWER, Op.LOG, Op.EXP, Op.DIVIDE, Op.OPAQUE, Op.LOOKUP}
)


def integer_cases(sequent: Sequent, effort: Effort) -> list[Sequent]:
    """Returns the cases of a sequent that integers allow to tell apart, facts tightened."""
    return list(_cases(sequent, frozenset(), 0, effort))


def _cases(
    sequent: Sequent, seen_pairs: frozenset[tuple[Term, Term]], depth: int, effort: Effort
) -> Iterator[Sequent]:
    facts = tuple(tighten(sequent.facts))
    tight = Sequent(facts, sequent.goal, sequent.floors)
    if depth < LIMITS.integer_depth:
        for fact in facts:
            alternatives = _alternatives(fact)
            if alternatives:
                rest = Sequent(
                    tuple(premise for premise in facts if premise is not fact),
                    sequent.goal,
                    sequent.floors,
                )
                for alternative in alternatives:
                    case = rest.knowing(*tighten([alternative]))
                    if is_feasible(case.facts, effort, _READINGS):
                        yield from _cases(case, seen_pairs, depth + 1, effort)
                return
        pair = _neighbouring_floors(tight, seen_pairs, effort)
        if pair is not None:
            lower, upper = pair
            # Integers from 0 to 1 apart are 0 or 1 apart.
            for difference in (build.ZERO, build.ONE):
                case = tight.knowing(build.equal(upper, build.add(lower, difference)))
                if is_feasible(case.facts, effort, _READINGS):
                    yield from _cases(case, seen_pairs | {pair}, depth + 1, effort)
            return
    yield tight.knowing(*_squeeze_equalities(facts, effort))


def tighten(facts: Iterable[Term]) -> Iterator[Term]:
    """Yields the facts, strict comparisons of integers as ``a + 1 <= b``."""
    for fact in facts:
        if fact.op is Op.AND:
            yield from tighten(fact.args)
            continue
        if fact.op is Op.LESS:
            # Both sides are integers after a product with the common denominator.
            scale = integral_scale(build.subtract(fact.args[1], fact.args[0]))
            if scale is not None:
                left, right = (build.multiply(build.rational(scale), arg) for arg in fact.args)
                yield build.less_equal(build.add(left, build.ONE), right)
                continue
        yield fact


def _alternatives(fact: Term) -> list[Term]:
    """A fact as a list of alternatives that integers allow to be decided one by one."""
    if fact.op is Op.NOT:
        left, right = fact.args[0].args
        if integral_scale(build.subtract(left, right)) is not None:
            return [build.less(left, right), build.less(right, left)]
    if fact.op is Op.OR and all(part.op is Op.EQUAL for part in fact.args):
        return list(fact.args)
    return []


def _neighbouring_floors(
    sequent: Sequent, seen_pairs: frozenset[tuple[Term, Term]], effort: Effort
) -> tuple[Term, Term] | None:
    """Two floors whose numbers are provably at most 1 apart, the lower one first."""
    names_in_facts = {node for fact in sequent.facts for node in walk(fact) if node.op is Op.SYMBOL}
    floors = [name for name in sequent.floors if name in names_in_facts]
    for pair in permutations(floors, 2):
        if pair in seen_pairs or pair[::-1] in seen_pairs:
            continue
        lower, upper = (sequent.floors[name] for name in pair)
        distance = build.subtract(upper, lower)
        goal = build.both(
            build.less_equal(build.ZERO, distance), build.less_equal(distance, build.ONE)
        )
        if entails(sequent.facts, goal, effort.step(LIMITS.neighbours_work), has_integers=False)[0]:
            return pair
    return None


def _squeeze_equalities(facts: tuple[Term, ...], effort: Effort) -> list[Term]:
    """Equalities of integers between which the facts leave no room."""
    equalities = []
    for fact in facts:
        if fact.op is not Op.LESS_EQUAL:
            continue
        left, right = fact.args
        if integral_scale(build.subtract(left, right)) is None:
            continue
        if ask((*facts, build.less(left, right)), effort.step(LIMITS.squeeze_work)).refuted:
            equalities.append(build.equal(left, right))
    return equalities


def eliminate(sequent: Sequent, effort: Effort) -> Sequent:
    """Returns the sequent with symbols replaced by their values from equalities among the facts."""
    for _ in range(LIMITS.eliminations):
        effort.check()
        definition = next(_definitions(sequent.facts), None)
        if definition is None:
            break
        fact, name, meaning = definition
        rest = tuple(premise for premise in sequent.facts if premise is not fact)
        sequent = Sequent(rest, sequent.goal, sequent.floors).replacing({name: meaning})
    return sequent.replacing(_floors_of_integers(sequent))


def _floors_of_integers(sequent: Sequent) -> dict[Term, Term]:
    """Floors of integers, and of integers and a rest, with the integers taken out."""
    split_floors = {}
    for node in walk(sequent.goal, *sequent.facts):
        if node.op is Op.FLOOR:
            parts = whole_part(node.args[0])
            if parts is not None:
                split_floors[node] = build.add(parts[0], build.floor(parts[1]))
    return split_floors


def _definitions(facts: Iterable[Term]) -> Iterator[tuple[Term, Term, Term]]:
    """Equalities as (fact, symbol, the term without it that it equals)."""
    for fact in facts:
        if fact.op is not Op.EQUAL:
            continue
        difference = build.subtract(*fact.args)
        for name in symbols(difference).values():
            # A symbol within such a function is not the solution of a line.
            if any(node.op in _CURVED and name in walk(node) for node in walk(difference)):
                continue
            rest = build.substitute(difference, {name: build.ZERO})
            # Only 1 and -1 as factors: the quotient by another number need not be an integer.
            for unit in (build.ONE, build.MINUS_ONE):
                if is_zero(
                    build.subtract(build.subtract(difference, rest), build.multiply(unit, name))
                ):
                    yield fact, name, build.multiply(build.MINUS_ONE, unit, rest)


def conditions_of(goal: Term) -> tuple[tuple[Term, ...], Term]:
    """Returns a disjunction as facts and the disjunct to be proved from them.

    ``not a or not b or c`` is ``a and b => c``. The largest disjunct is the goal.
    """
    if goal.op is not Op.OR:
        return (), goal
    target = max(goal.args, key=lambda part: sum(1 for _ in walk(part)))
    return tuple(build.negate(part) for part in goal.args if part is not target), target
