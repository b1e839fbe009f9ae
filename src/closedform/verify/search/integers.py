"""Integers: rounded relations, equations that no integers meet, ranges, residues, inequations.

The only symbol of some facts, an integer, is split into the ranges between the steps at which
choices change, or by its remainders where floors repeat with a period.

``2 a = t`` and ``2 b + 1 = t`` are contradictory, and ``t mod 4 = 1`` decides ``floor(t / 4)``.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Sequence
from math import lcm

from flint import fmpq

from closedform.verify.checker.intervals import integer_bounds
from closedform.verify.checker.polynomials import UNIT, content, plus
from closedform.verify.checker.replay import Facts, Literal
from closedform.verify.checker.terms import CURVES
from closedform.verify.search.linear import Search
from closedform.verify.search.order import Order
from closedform.verify.search.steps import NoProofError, Place, Step

_CURVES = (*CURVES, "lookup", "pi", "opaque")
# Bounds of the search; where they end it, the goal has no proof.
_MOST_RANGES = 20_000
_MOST_ENDS = 16
_MOST_RESIDUES = 120
_MOST_STEPS = 128


class Integers:
    """The steps about integers of one search."""

    def __init__(self, search: Search, order: Order) -> None:
        self.search = search
        self.replay = search.replay
        self.terms = search.terms
        self.order = order
        self.ranges = _MOST_RANGES
        self._have_residues_failed = False

    def _has_floors(self, terms: Iterable[int]) -> bool:
        return any(self.terms.nodes[term][0] == "floor" for term in terms)

    def _is_of_integers(self, terms: Iterable[int]) -> bool:
        """Whether terms have no functions but floors and choices, and no divisor but numbers."""
        nodes = self.terms.nodes
        return all(
            nodes[term][0] not in (*_CURVES, "/", "^")
            or (nodes[term][0] == "^" and nodes[nodes[term][1][1]][0] == "rational")
            for term in terms
        )

    def by_residues(self, facts: Facts, depth: int) -> Step | None:
        """Returns a step by the residues of the only symbol, where floors have a period."""
        nodes = self.terms.nodes
        below = self.search.below(facts)
        symbols = [term for term in below if nodes[term][0] == "symbol"]
        is_integer = len(symbols) == 1 and nodes[symbols[0]][2][1]  # type: ignore[index]
        if self._have_residues_failed or not is_integer or not self._has_floors(below):
            return None
        modulus = self._period(below)
        if not 1 < modulus <= _MOST_RESIDUES:
            return None
        name = f"quotient {len(self.terms.nodes)}"
        quotient = self.terms.make("symbol", (), (name, True, "any"))
        cases = self.replay.residues(facts, symbols[0], quotient, modulus)
        try:
            steps = [self.search.refute(case, depth + 1) for case in cases]
        except NoProofError:
            # The cases around this one have fewer facts: their residues fail, too.
            self._have_residues_failed = True
            raise
        return ["residues", Place(symbols[0]), Place(quotient), steps]

    def _period(self, terms: Iterable[int]) -> int:
        """The steps after which floors of the only symbol have risen by integers.

        ``floor(17 t / 10)`` rises by 17 in 10 steps, and its quotient by 17 by 1.
        """
        forms = self.replay.forms
        rates: dict[int, fmpq] = {}
        period = 1
        for term in terms:
            op, args, _ = self.terms.nodes[term]
            if op == "symbol":
                rates[self._atom_of(term)] = fmpq(1)
            if op != "floor":
                continue
            form = forms.of(args[0])
            if not all(forms.is_integer(atom) for monomial in form for atom, _ in monomial):
                continue
            rate = fmpq(0)
            for monomial, value in form.items():
                if len(monomial) == 1 and monomial[0][1] == 1:
                    rate += value * rates.get(monomial[0][0], 0)
                elif monomial:
                    period = lcm(period, int(value.q))
            period = lcm(period, int(rate.q))
            if len(forms.of(term)) == 1 and UNIT not in forms.of(term):
                rates[self._atom_of(term)] = rate
        return period

    def _atom_of(self, term: int) -> int:
        """The atom that a symbol or a floor is."""
        ((monomial, _),) = self.replay.forms.of(term).items()
        return monomial[0][0]

    def by_ranges(self, facts: Facts, depth: int) -> Step | None:
        """Returns a step by ranges of the only symbol, an integer, in which no choice changes."""
        nodes = self.terms.nodes
        below = self.search.below(facts)
        symbols = [term for term in below if nodes[term][0] == "symbol"]
        if len(symbols) != 1 or not nodes[symbols[0]][2][1]:  # type: ignore[index]
            return None
        symbol = symbols[0]
        low, high = integer_bounds(self.replay, facts, symbol)
        if low is None or low == high:
            return None
        # A fact about the symbol is true in all ranges: at its end nothing changes.
        inside = [term for term in below if term not in facts]
        ends = sorted(self._ends(inside, symbol, low, high))
        is_split = bool(ends)
        if len(ends) > _MOST_ENDS:
            # Choices that a half decides are gone in both of its halves.
            ends = [ends[len(ends) // 2]]
        if not ends and self._has_floors(below):
            # Order only bounds floors; the values of the symbol decide them.
            if high is not None and high - low < _MOST_STEPS:
                ends = list(range(low, high))
            elif self._is_of_integers(below):
                with contextlib.suppress(NoProofError):
                    residues = self.by_residues(facts, depth)
                    if residues is not None:
                        return residues
        if not ends:
            if high is None:
                return None
            # Halves double the cases; a choice has two, and an argument by order is one.
            is_short = high - low < _MOST_STEPS
            has_choices = self.search.innermost_choice(facts) is not None
            if has_choices and not is_short:
                return None
            if not has_choices and high - low > 3:
                try:
                    return self.order.by_order(facts, depth)
                except NoProofError:
                    pass
            ends = list(range(low, high)) if is_short else [(low + high) // 2]
        self.ranges -= len(ends)
        if self.ranges < 0:
            raise NoProofError("it has too many ranges")
        terms = self.terms
        steps = []
        for before, end in itertools.pairwise([None, *ends, None]):
            first = low if before is None else before + 1
            last = high if end is None else end
            if first == last:
                number = terms.rational(first)
                equation = terms.equal(symbol, number)
                more_facts = self.replay._replace_terms(facts, {symbol: number}, equation)
            else:
                more = []
                if before is not None:
                    more.append(terms.less_equal(terms.rational(before + 1), symbol))
                if end is not None:
                    more.append(terms.less_equal(symbol, terms.rational(end)))
                more_facts = self.replay.knowing(facts, *more)
            # Ranges between the ends of choices are disjoint work, so they do not count as depth.
            steps.append(self.search.refute(more_facts, depth + (not is_split)))
        return ["range", Place(symbol), ends, steps]

    def _ends(self, below: Sequence[int], symbol: int, low: int, high: int | None) -> set[int]:
        forms = self.replay.forms
        ((monomial, _),) = forms.of(symbol).items()
        ends: set[int] = set()
        for term in below:
            op, args, _ = self.terms.nodes[term]
            if op in ("<", "<=", "="):
                form = forms.difference(args[1], args[0])
            elif op in ("min", "max"):
                form = forms.difference(args[0], args[1])
            elif op in ("abs", "sign"):
                form = forms.of(args[0])
            else:
                continue
            slope = form.get(monomial)
            if slope is None or len(form) > 2 or (len(form) == 2 and () not in form):
                continue
            at = -form.get((), fmpq(0)) / slope
            # Last integers before the root: for a whole root r the relation may change at r - 1 | r
            # and at r | r + 1.
            ends |= {int(at.floor()), int(at.ceil()) - 1}
        return {end for end in ends if end >= low and (high is None or end < high)}

    def by_rounding(self, facts: Facts, depth: int) -> Step | None:
        """Returns a step that rounds an inequality between integers: 2 t > 3 is t >= 2."""
        for place, fact in enumerate(facts):
            literal = self.replay.literal(fact)
            rounded_literal = None if literal is None else self.replay.round_relation(literal)
            if rounded_literal is None:
                continue
            zero = self.terms.rational(0)
            truth = self.terms.less_equal(zero, self.replay.forms.term_of(rounded_literal.form))
            if self.replay.entails(facts, truth):
                continue
            more_facts = self.replay.knowing(facts, truth)
            return ["round", place, Place(truth), self.search.refute(more_facts, depth + 1)]
        return None

    def by_integer_equations(self, facts: Facts, _: int) -> Step | None:
        """Returns a step by two equations that no integers meet: 2 a = t and 2 b + 1 = t."""
        forms, terms = self.replay.forms, self.terms
        literals = [
            literal for _, literal in self.search.literals(facts) if literal.relation == "="
        ]
        for first, second in itertools.combinations(literals[:12], 2):
            for monomial in first.form.keys() & second.form.keys() - {UNIT}:
                scale = -first.form[monomial] / second.form[monomial]
                form = plus(first.form, second.form, scale)
                bound = self.replay.round_relation(Literal(">=", form))
                opposite = self.replay.round_relation(Literal(">=", plus({}, form, -1)))
                if bound is None or opposite is None:
                    continue
                # Of a + c = 0 with integers a follows a + ceil(c) >= 0 >= a + floor(c).
                if not plus(bound.form, opposite.form).get(UNIT, 0) < 0:
                    continue
                truth = terms.less_equal(terms.rational(0), forms.term_of(form))
                negation = self.replay.knowing(facts, terms.negate(truth))
                step = self.search.combine_facts(negation, self.search.literals(negation), 1)
                more_facts = self.replay.knowing(facts, truth)
                rounded_truth = terms.less_equal(terms.rational(0), forms.term_of(bound.form))
                rounded_facts = self.replay.knowing(more_facts, rounded_truth)
                end = self.search.combine_facts(
                    rounded_facts, self.search.literals(rounded_facts), 1
                )
                if step is None or end is None:
                    continue
                rounding = ["round", more_facts.index(truth), Place(rounded_truth), end]
                return ["split", Place(truth), rounding, step]
        return None

    def by_integer_difference(self, facts: Facts, depth: int) -> Step | None:
        """Returns a step by the order of two unequal integers, where only one can be below."""
        for place, literal in self.search.literals(facts):
            scale = content(literal.form)
            whole = {monomial: value / scale for monomial, value in literal.form.items()}
            if literal.relation != "!=" or not self.replay.forms.is_whole(whole):
                continue
            sides = self.search.alternatives(facts[place])
            if any(self.replay.entails(facts, side) for side in sides):
                continue
            closing_steps = [self.search.close(self.replay.knowing(facts, side)) for side in sides]
            if closing_steps == [None, None]:
                continue
            steps = [
                step or self.search.refute(self.replay.knowing(facts, side), depth + 1)
                for side, step in zip(sides, closing_steps, strict=True)
            ]
            return ["differ", place, *steps]
        return None
