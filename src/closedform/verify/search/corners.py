"""A refutation at corners: a number that is affine in some shares is greatest at their ends.

A curve of a recipe mixes its ends by shares, as ``a + (b - a) s`` with 0 <= s <= 1. Where ``n > 0``
is to be refuted and ``n`` is affine in ``s``, it is enough that ``n <= 0`` for s = 0 and for s = 1:
``(h - l) n`` is ``(h - s) n(l) + (s - l) n(h)``. A share is a product of functions that always
occur together, and each is replaced by its ends before the next one.

``a + (b - a) min(1, x) > max(a, b)`` with ``x >= 0`` becomes ``a > max(a, b)`` and
``b > max(a, b)``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from flint import fmpq

from closedform.verify.checker.polynomials import (
    UNIT,
    Monomial,
    Polynomial,
    constant,
    plus,
    product,
)
from closedform.verify.checker.replay import Facts
from closedform.verify.search.guesses import Points
from closedform.verify.search.linear import Search
from closedform.verify.search.order import Order
from closedform.verify.search.parts import Parts, State, behind
from closedform.verify.search.steps import NoProofError, Step

_MOST_SHARES = 4
_BOUND_WORK = 500_000  # of the search for one end of a share, which holds at all points


def refute_at_corners(search: Search, order: Order, facts: Facts, goal: Facts) -> Step | None:
    """Returns a step that refutes facts, of which some are the negated goal, or None.

    The goal bounds a number by an extremum or a constant.
    """
    bounds = [fact for fact in goal if _is_bound(search, fact)]
    if len(bounds) != 1:
        return None
    parts = Parts(search, order, set(facts) - set(goal))
    points = parts.points(State(facts, goal), below_0=True)
    return _Corners(parts, points).refute(State(facts, (bounds[0],)), _MOST_SHARES)


def _excess(search: Search, fact: int) -> Polynomial | None:
    """The number that a fact says is above 0."""
    literal = search.replay.literal(fact)
    return literal.form if literal is not None and literal.relation == ">" else None


def _is_bound(search: Search, fact: int) -> bool:
    """Whether a fact is about a sum of products and a bound: an extremum or a constant."""
    nodes = search.terms.nodes
    op, sides, _ = nodes[fact]
    if op != "<" or all(nodes[side][0] not in ("min", "max", "rational") for side in sides):
        return False
    # A difference of two products has its sign by their order.
    return len(_excess(search, fact) or ()) > 2


def _shares(search: Search, fact: int) -> Iterator[Monomial]:
    """Products of atoms in which a number is affine, functions before hyperparameters."""
    form = _excess(search, fact) or {}
    forms = search.replay.forms
    atoms_at: dict[tuple[int, ...], list[int]] = {}
    for atom in sorted({atom for monomial in form for atom, _ in monomial}):
        exponents = [dict(monomial).get(atom, 0) for monomial in form]
        if max(exponents) == 1:
            atoms_at.setdefault(tuple(exponents), []).append(atom)
    for atoms in atoms_at.values():
        if any(forms.atoms[atom][0] != "symbol" for atom in atoms):
            yield tuple((atom, 1) for atom in atoms)


class _Corners:
    def __init__(self, parts: Parts, points: Points) -> None:
        self.parts = parts
        self.points = points
        self.search = parts.search
        self.terms = parts.terms
        self.forms = parts.forms

    def refute(self, state: State, most_shares: int) -> Step | None:
        """A step by the corners of the shares that are known to be bounded, or None."""
        (fact,) = state.goal
        shares = [*_shares(self.search, fact)] if most_shares else []
        # Factors that are all bounded by themselves have the shorter proofs, one after the other.
        ends_of: dict[Monomial, list[Monomial]] = {
            factor: [UNIT] for share in shares for factor in self._bounded_factors(share)
        }
        for share in shares:
            ends_of[share] = [UNIT, *(end for end in shares if end != share)]
        for share, upper_ends in ends_of.items():
            ends = self._ends(share, upper_ends)
            step = None if ends is None else self._between(state, share, ends, most_shares)
            if step is not None:
                return step
        return None

    def _bounded_factors(self, share: Monomial) -> list[Monomial]:
        """The factors of a share that are, as the product of the others, at most 1 at all points.

        They are min(1, x) and 1 / 2**n in the product of both, and none in ``min(n, t) / n``.
        """
        factors: list[Monomial] = []
        for item in share:
            cofactor = tuple(factor for factor in share if factor != item)
            if cofactor and all(self._ends(part, [UNIT]) for part in ((item,), cofactor)):
                factors.append((item,))
        return factors

    def _ends(
        self, share: Monomial, upper_ends: list[Monomial]
    ) -> tuple[Polynomial, Polynomial] | None:
        """The first ends of a share between which it is at all points."""
        ((atom, _), *_) = share
        is_cosine = len(share) == 1 and self.forms.atoms[atom][0] == "cospi"
        low = constant(-1 if is_cosine else 0)
        number = self.forms.term_of({share: fmpq(1)})
        if not self.points.may_hold(self.terms.less_equal(self.forms.term_of(low), number)):
            return None
        for monomial in upper_ends:
            high: Polynomial = {monomial: fmpq(1)}
            if self.points.may_hold(self.terms.less_equal(number, self.forms.term_of(high))):
                return low, high
        return None

    def _between(
        self,
        state: State,
        share: Monomial,
        ends: tuple[Polynomial, Polynomial],
        most_shares: int,
    ) -> Step | None:
        """A step by the two ends of a share."""
        terms = self.terms
        low, high = map(self.forms.term_of, ends)
        number = self.forms.term_of({share: fmpq(1)})
        (fact,) = state.goal
        excess = _excess(self.search, fact) or {}
        at_ends = [_replace(excess, share, end) for end in ends]
        bounds = terms.less_equal(low, number), terms.less_equal(number, high)
        corners = [
            terms.less_equal(self.forms.term_of(value), terms.rational(0)) for value in at_ends
        ]
        truths = *bounds, terms.less(low, high), *corners
        if not all(map(self.points.may_hold, truths)):
            return None
        lemmas: list[tuple[int, Step]] = []
        for truth in truths:
            if self.parts.replay.entails(state.facts, truth):
                continue
            if truth in corners:
                step = self._at_corner(state, truth, most_shares) or self.parts.proof(state, truth)
            else:
                # Shown by itself: facts about a share, as its other bound, cost work.
                case = replace(state, goal=(*state.goal, *bounds))
                step = self.parts.proof(case, truth, _BOUND_WORK)
            if step is None:
                return None
            lemmas.append((truth, step))
            state = self.parts.knowing(state, truth)
        share_form: Polynomial = {share: fmpq(1)}
        factors = [
            (plus(ends[1], share_form, -1), plus({}, at_ends[0], -1)),
            (plus(share_form, ends[0], -1), plus({}, at_ends[1], -1)),
            (plus(ends[1], ends[0], -1), excess),
        ]
        try:
            step = self.parts.order.refute_at_once(state.facts, factors, with_lemmas=False)
        except NoProofError:
            return None
        return behind(lemmas, step)

    def _at_corner(self, state: State, truth: int, most_shares: int) -> Step | None:
        """A step that refutes the negation of a truth by the corners of further shares."""
        negation = self.terms.negate(truth)
        facts = self.parts.knowing(state, negation).facts
        places = [place for place, fact in enumerate(facts) if fact not in state.goal]
        case = State(tuple(facts[place] for place in places), (negation,))
        step = self.refute(case, most_shares - 1)
        return None if step is None else ["keep", places, step]


def _replace(form: Polynomial, share: Monomial, end: Polynomial) -> Polynomial:
    """A polynomial with another number in the place of a share, in which it is affine."""
    atoms = {atom for atom, _ in share}
    result: Polynomial = {}
    for monomial, number in form.items():
        cofactor = tuple(item for item in monomial if item[0] not in atoms)
        part: Polynomial = {cofactor: number}
        result = plus(result, product(part, end) if cofactor != monomial else part)
    return result
