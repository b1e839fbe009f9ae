"""Equations between numbers, written or implied, by which symbols are replaced.

An equation is implied by two opposite bounds, by a sum of squares that is not above 0, and by a
power that is 0.

``x**2 + y**2 <= 0`` implies ``x = 0`` and ``y = 0``; ``a <= b`` and ``b <= a`` imply ``a = b``.
"""

from __future__ import annotations

import contextlib
from typing import Any

from closedform.verify.checker.polynomials import UNIT, constant_of, content, key_of, plus
from closedform.verify.checker.replay import Facts
from closedform.verify.search.linear import Search
from closedform.verify.search.order import Order
from closedform.verify.search.relevant_lemmas import lemmas_about
from closedform.verify.search.steps import NoProofError, Place, Step


class Rewriting:
    """The steps by equations of one search."""

    def __init__(self, search: Search, order: Order) -> None:
        self.search = search
        self.replay = search.replay
        self.terms = search.terms
        self.order = order
        self._used_equations: list[int] = []

    def by_equation(self, facts: Facts, depth: int) -> Step | None:
        """Returns a step that replaces a symbol by the number that an equation gives it."""
        forms = self.replay.forms
        for place, fact in enumerate(facts):
            literal = self.replay.literal(fact)
            if literal is None or literal.relation != "=" or fact in self._used_equations:
                continue
            for monomial, value in literal.form.items():
                if len(monomial) != 1 or monomial[0][1] != 1:
                    continue
                symbol = forms.terms_of_atoms[monomial[0][0]]
                op = self.terms.nodes[symbol][0]
                is_floor = op == "floor" and set(literal.form) <= {monomial, UNIT}
                if op != "symbol" and not is_floor:
                    continue
                solution = {m: -c / value for m, c in literal.form.items() if m != monomial}
                new = forms.term_of(solution)
                inside = self.search.below(f for f in facts if f != fact)
                # x = f(x) would be rewritten for ever, and a symbol of no other fact changes
                # nothing.
                if symbol in self.terms.below(new) or symbol not in inside:
                    continue
                more_facts = self.replay._replace_terms(facts, {symbol: new}, fact)
                # Not used again below this step, or a = b and b = a would alternate.
                self._used_equations.append(fact)
                try:
                    step = self.search.refute(more_facts, depth + 1)
                finally:
                    self._used_equations.pop()
                return ["rewrite", place, Place(symbol), Place(new), step]
        return None

    def by_opposite_bounds(self, facts: Facts, depth: int) -> Step | None:
        """Returns a step by the equation of two numbers neither of which is above the other one."""
        forms, terms = self.replay.forms, self.terms
        seen: set[Any] = set()
        for _, literal in self.search.literals(facts):
            if literal.relation != ">=" or constant_of(literal.form) is not None:
                continue
            # Forms are compared up to a positive factor: 2x - 4 >= 0 is x - 2 >= 0.
            scale = content(literal.form)
            form = {monomial: value / scale for monomial, value in literal.form.items()}
            seen.add(key_of(form))
            if key_of(plus({}, form, -1)) not in seen:
                continue
            equation = terms.equal(forms.term_of(form), terms.rational(0))
            if self.replay.entails(facts, equation):
                continue
            step = self.search.show(facts, equation)
            if step is not None:
                return self._with_equation(facts, equation, step, depth)
        return None

    def by_vanishing_power(self, facts: Facts, depth: int) -> Step | None:
        """Returns a step by the base of a power that is 0, which is 0."""
        forms, terms = self.replay.forms, self.terms
        for _, literal in self.search.literals(facts):
            if literal.relation != "=" or len(literal.form) != 1:
                continue
            atoms = [atom for monomial in literal.form for atom, _ in monomial]
            if len(atoms) != 1 or forms.atoms[atoms[0]][0] != "^":
                continue
            equation = terms.equal(forms.term_of(forms.arguments[atoms[0]][0]), terms.rational(0))
            opposite = self.replay.knowing(facts, terms.negate(equation))
            if self.replay.entails(facts, equation) or opposite == facts:
                continue
            with contextlib.suppress(NoProofError):
                step = self.order.refute_with_lemmas(
                    opposite, depth, lemmas_about(self.replay, opposite)
                )
                return self._with_equation(facts, equation, step, depth)
        return None

    def by_vanishing_sums(self, facts: Facts, depth: int) -> Step | None:
        """Returns a step by a symbol that is 0: a sum of it and numbers >= 0 is not above 0."""
        forms, terms = self.replay.forms, self.terms
        for _, literal in self.search.literals(facts):
            form = literal.form
            if literal.relation not in (">=", "=") or UNIT in form or not 0 < len(form) <= 4:
                continue
            is_sum = max(form.values()) < 0 or (literal.relation == "=" and min(form.values()) > 0)
            powers = [power for monomial in form for power in monomial]
            symbols = dict.fromkeys(forms.terms_of_atoms[atom] for atom, _ in powers)
            is_square = any(exponent % 2 == 0 for _, exponent in powers)
            if not is_sum or not is_square or any(terms.nodes[s][0] != "symbol" for s in symbols):
                continue
            for symbol in symbols:
                equation = terms.equal(symbol, terms.rational(0))
                step = self.search.show(facts, equation, degree=2)
                if step is not None:
                    return self._with_equation(facts, equation, step, depth)
        return None

    def _with_equation(self, facts: Facts, equation: int, proof: Step, depth: int) -> Step:
        """A step that refutes the facts with an equation, of which there is a proof."""
        more_facts = self.replay.knowing(facts, equation)
        return ["split", Place(equation), self.search.refute(more_facts, depth + 1), proof]
