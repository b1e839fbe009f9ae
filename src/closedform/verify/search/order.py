"""The order of numbers: facts and lemmas that contradict each other, refuted case by case.

Quotients are multiplied out first, by divisors of known sign. Then z3 says which facts, lemmas and
products form a core, and its disjunctions are split, the fewest open cases first.

``x > 0``, ``x < 0 or y > 1``, ``x y < x``: the case x < 0 is closed at once, the other one by
``x (y - 1) > 0``.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from flint import fmpq

from closedform.verify.checker.polynomials import Polynomial, constant_of
from closedform.verify.checker.replay import Facts, Literal
from closedform.verify.checker.terms import RejectedProofError
from closedform.verify.search.boxes import Boxes
from closedform.verify.search.core_products import CoreProducts
from closedform.verify.search.cores import Core, find_core, literals_in, narrow_core
from closedform.verify.search.linear import Search
from closedform.verify.search.products import Product
from closedform.verify.search.relevant_lemmas import Lemma, lemmas_about
from closedform.verify.search.steps import NoProofError, Place, Step, after


class Order:
    """The steps by the order of numbers of one search."""

    def __init__(self, search: Search) -> None:
        self.search = search
        self.replay = search.replay
        self.terms = search.terms
        self._products = CoreProducts(search)
        self._open_signs: set[int] = set()

    def refute_at_once(
        self, facts: Facts, factors: Sequence[tuple[Polynomial, ...]], *, with_lemmas: bool
    ) -> Step:
        """Returns a step that refutes the facts by products, choices as they are."""
        lemmas = lemmas_about(self.replay, facts) if with_lemmas else {}
        prefix, cleared_facts, _ = self._clear_quotients(facts)
        return after(prefix, self.refute_with_lemmas(cleared_facts, 0, lemmas, factors))

    def by_order(self, facts: Facts, depth: int) -> Step:
        """Returns a step by relations without quotients, at first without lemmas."""
        prefix, cleared_facts, sign = self._clear_quotients(facts)
        if sign is not None:
            divisor, literal = sign
            step = self._with_sign(cleared_facts, divisor, literal, depth)
            if step is not None:
                return after(prefix, step)
        quick = self.search.close(cleared_facts)
        return after(prefix, quick or self.refute_with_lemmas(cleared_facts, depth))

    def _clear_quotients(
        self, facts: Facts
    ) -> tuple[list[Step], Facts, tuple[int, Literal] | None]:
        """Relations without quotients: the steps, the facts, and a divisor of unknown sign."""
        forms, terms = self.replay.forms, self.terms
        prefix: list[Step] = []
        zero = terms.rational(0)
        position, open_sign = 0, None
        # Clearing a quotient may add a fact with another one: bounded, since products grow.
        while position < len(facts) and len(prefix) < 80:
            fact = facts[position]
            literal = self.replay.literal(fact)
            position += 1
            if literal is None:
                continue
            for atom in dict.fromkeys(a for m in literal.form for a, _ in m):
                if forms.atoms[atom][0] != "inv":
                    continue
                divisor = forms.term_of(forms.arguments[atom][0])
                try:
                    result = self.replay.clear_divisor(literal, divisor, facts)
                except RejectedProofError:
                    if divisor not in self._open_signs and open_sign is None:
                        open_sign = divisor, literal
                    continue
                form = forms.term_of(result.form)
                make = {">": terms.less, ">=": terms.less_equal}.get(result.relation, terms.equal)
                truth = make(zero, form)
                truth = terms.negate(truth) if result.relation == "!=" else truth
                more_facts = self.replay.knowing(facts, truth)
                if more_facts != facts and not (result.form and self.replay.entails(facts, truth)):
                    prefix.append(["clear", position - 1, Place(divisor), Place(truth)])
                    facts = more_facts
                break
        return prefix, facts, open_sign

    def _with_sign(self, facts: Facts, divisor: int, literal: Literal, depth: int) -> Step | None:
        """The facts with the sign of a divisor, where they entail one."""
        terms = self.terms
        zero = terms.rational(0)
        signs = [terms.less(zero, divisor), terms.less(divisor, zero)]
        if literal.relation in ("=", "!="):
            signs.append(terms.negate(terms.equal(divisor, zero)))
        self._open_signs.add(divisor)
        for sign in signs:
            opposite = self.replay.knowing(facts, terms.negate(sign))
            try:
                no = self.search.close(opposite) or self.refute_with_lemmas(opposite, depth)
            except NoProofError:
                continue
            self._open_signs.discard(divisor)
            yes = self.search.refute(self.replay.knowing(facts, sign), depth + 1)
            return ["split", Place(sign), yes, no]
        return None

    def refute_with_lemmas(
        self,
        facts: Facts,
        depth: int,
        lemmas: Mapping[int, Lemma] | None = None,
        factors: Sequence[tuple[Polynomial, ...]] = (),
    ) -> Step:
        """Returns a contradiction of facts and lemmas, chosen by z3."""
        lemmas = lemmas_about(self.replay, facts) if lemmas is None else lemmas
        core = self._core(facts, lemmas, factors)
        if core is None:
            raise NoProofError("no contradiction of its facts and lemmas is found")
        prefix: list[Step] = []
        more_facts = facts
        for about, number in (lemmas[truth] for truth in core.truths if truth in lemmas):
            make = self.replay.lemmas.of if len(about) == 1 else self.replay.lemmas.of_pair
            more_facts = self.replay.knowing(more_facts, make(*about)[number])
            prefix.append(["lemma", [Place(term) for term in about], number])
        relevant = {part for truth in core.truths for part in self.replay.knowing((), truth)}
        more, cleared_facts, _ = self._clear_quotients(more_facts)
        relevant |= set(cleared_facts) - set(more_facts)
        step = self._by_cases(cleared_facts, relevant, core.products, depth)
        return after([*prefix, *more], step)

    def _core(
        self,
        facts: Facts,
        lemmas: Iterable[int],
        factors: Sequence[tuple[Polynomial, ...]] = (),
    ) -> Core | None:
        """The facts and lemmas that contradict each other; None if none are found to."""
        self.search.spend()
        truths = list(dict.fromkeys((*facts, *lemmas)))
        return find_core(
            self.replay,
            self.search.solver,
            truths,
            self._bases(truths),
            self.search.effort,
            factors,
        )

    def _by_cases(
        self, facts: Facts, relevant: set[int], products: Sequence[Product], depth: int
    ) -> Step:
        """A contradiction of the wanted facts: disjunctions by cases, the fewest first."""
        self.search.spend()
        end = Boxes(self.replay, facts).contradiction()
        if end is not None:
            return end
        prefix, facts, relevant = self._round_facts(facts, relevant)
        if prefix:
            return after(prefix, self._by_cases(facts, relevant, products, depth))
        literals = [
            (place, literal)
            for place, literal in self.search.literals(facts)
            if facts[place] in relevant
        ]
        nodes = self.terms.nodes
        clauses = [fact for fact in facts if fact in relevant and nodes[fact][0] == "or"]
        differences = [place for place, literal in literals if literal.relation == "!="]
        is_end = not clauses and not differences
        if is_end and products:
            end, open_truth = self._products.contradiction(facts, products)
            if end is not None:
                return end
            if open_truth is not None:
                steps = []
                for truth in (open_truth, self.terms.negate(open_truth)):
                    more_facts = self.replay.knowing(facts, truth)
                    parts = set(self.replay.knowing((), truth))
                    steps.append(self._by_cases(more_facts, relevant | parts, products, depth))
                return ["split", Place(open_truth), *steps]
        bases = self._bases(facts) if is_end else []
        end = self.search.combine_facts(facts, literals, 3 if is_end else 1, bases)
        if end is not None:
            return end
        if is_end:
            raise NoProofError("no combination of its facts is a contradiction")
        best: tuple[int, int, list[Step | None]] | None = None
        for fact in (*clauses, *(facts[place] for place in differences)):
            alternatives = self.search.alternatives(fact)
            closing_steps = [self._closed_by(facts, relevant, part) for part in alternatives]
            count = sum(step is None for step in closing_steps)
            if best is None or count < best[0]:
                best = count, fact, closing_steps
            # At most one alternative stays open: the split does not branch the search.
            if count <= 1:
                break
        if differences and best is not None and best[0] > 1:
            end = self.search.combine_facts(facts, literals, 2, self._bases(facts))
            if end is not None:
                return end
            best = 2, facts[differences[0]], [None, None]
        open_count, fact, closing_steps = cast("tuple[int, int, list[Step | None]]", best)
        steps = []
        for part, step in zip(self.search.alternatives(fact), closing_steps, strict=True):
            if step is not None:
                steps.append(step)
                continue
            more_facts = self.replay.knowing(facts, part)
            parts = set(self.replay.knowing((), part))
            core = (relevant - {fact}) | parts, products
            if open_count > 1:
                core = self._narrow(more_facts, *core)
            steps.append(self._by_cases(more_facts, *core, depth))
        name = "cases" if nodes[fact][0] == "or" else "differ"
        return [name, facts.index(fact), *([steps] if name == "cases" else steps)]

    def _narrow(
        self, facts: Facts, relevant: set[int], products: Sequence[Product]
    ) -> tuple[set[int], Sequence[Product]]:
        """The truths and products of a core that one of its cases still needs."""
        truths = [fact for fact in facts if fact in relevant]
        core = narrow_core(self.replay, self.search.solver, truths, products, self.search.effort)
        return (relevant, products) if core is None else (set(core.truths), core.products)

    def _closed_by(self, facts: Facts, relevant: set[int], part: int) -> Step | None:
        more_facts = self.replay.knowing(facts, part)
        end = Boxes(self.replay, more_facts).contradiction()
        if end is not None:
            return end
        parts = set(self.replay.knowing((), part))
        literals = [
            (place, literal)
            for place, literal in self.search.literals(more_facts)
            if more_facts[place] in relevant or more_facts[place] in parts
        ]
        return self.search.combine_facts(more_facts, literals, 1)

    def _round_facts(self, facts: Facts, relevant: set[int]) -> tuple[list[Step], Facts, set[int]]:
        """Relevant inequalities between integers, rounded."""
        prefix: list[Step] = []
        for place, fact in enumerate(facts):
            literal = self.replay.literal(fact) if fact in relevant else None
            result = None if literal is None else self.replay.round_relation(literal)
            if result is None:
                continue
            truth = self.terms.less_equal(
                self.terms.rational(0), self.replay.forms.term_of(result.form)
            )
            if not self.replay.entails(facts, truth):
                prefix.append(["round", place, Place(truth)])
                facts = self.replay.knowing(facts, truth)
            relevant = relevant | {truth}
        return prefix, facts, relevant

    def _bases(self, facts: Sequence[int]) -> list[Polynomial]:
        """The numbers whose even powers stand in facts."""
        forms = self.replay.forms
        bases = []
        for term in self.terms.below(*facts):
            op, args, _ = self.terms.nodes[term]
            if op == "^" and constant_of(forms.of(args[1])) == 2:
                bases.append(forms.of(args[0]))
        return [*bases, *self._differences(facts)]

    def _differences(self, facts: Sequence[int]) -> list[Polynomial]:
        """Differences and sums of atoms of which facts hold the squares and the product."""
        literals = [literal for fact in facts for literal in literals_in(self.replay, fact)]
        monomials = {m for literal in literals for m in literal.form}
        squared = {atom for monomial in monomials for atom, exponent in monomial if exponent == 2}
        pairs = {
            pair
            for monomial in monomials
            for pair in itertools.combinations([a for a, e in monomial if e == 1], 2)
            if squared.issuperset(pair)
        }
        return [
            {((first, 1),): fmpq(1), ((second, 1),): fmpq(sign)}
            for first, second in sorted(pairs)[:6]
            for sign in (-1, 1)
        ]
