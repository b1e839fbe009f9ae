"""The products of a core as steps: those whose premises are facts, or follow from them.

Of the product ``x > 0 and y > 1 => x y > x`` with the facts x > 0 and y >= 2, the premise y > 1 is
shown first.
"""

from __future__ import annotations

from collections.abc import Sequence

from closedform.verify.checker.replay import Facts, Literal
from closedform.verify.search.combinations import Column, combine
from closedform.verify.search.linear import Search
from closedform.verify.search.products import Product, multiple_of, product_of
from closedform.verify.search.steps import Place, Step


class CoreProducts:
    """Contradictions by the products of a core."""

    def __init__(self, search: Search) -> None:
        self.search = search
        self.replay = search.replay
        self.terms = search.terms

    def contradiction(
        self, facts: Facts, products: Sequence[Product]
    ) -> tuple[Step | None, int | None]:
        """Returns a contradiction of the facts and the products whose premises follow from them.

        Else a premise of one that is neither true nor false.
        """
        open_truth: int | None = None
        columns: list[Column] = []
        prefix: list[tuple[int, Step]] = []
        for item in products:
            places: list[int] = []
            for premise in item.premises:
                place = self._place_of(facts, premise)
                if place is None:
                    truth = self._truth_of(premise)
                    step = self.search.close(self.replay.knowing(facts, self.terms.negate(truth)))
                    if step is None:
                        if open_truth is None and not self._is_decided(facts, truth):
                            open_truth = truth
                        break
                    prefix.append((truth, step))
                    facts = self.replay.knowing(facts, truth)
                    place = facts.index(truth)
                places.append(place)
            else:
                columns.append(self._column(facts, places, item))
        self.search.spend()
        combination = combine(
            self.search.solver, self.search.literals(facts), self.search.effort, 1, columns=columns
        )
        if combination is None:
            return None, open_truth
        step = self.search.combination_step(combination, facts)
        for truth, refutation in reversed(prefix):
            step = ["split", Place(truth), step, refutation]
        return step, None

    def _is_decided(self, facts: Facts, truth: int) -> bool:
        """Whether a relation is a fact or refuted by facts."""
        return (
            self.terms.nodes[truth][0] == "="
            or self.search.close(self.replay.knowing(facts, truth)) is not None
        )

    def _truth_of(self, literal: Literal) -> int:
        """A relation as a term."""
        zero, number = self.terms.rational(0), self.replay.forms.term_of(literal.form)
        makers = {">": self.terms.less, ">=": self.terms.less_equal, "=": self.terms.equal}
        return makers[literal.relation](zero, number)

    def _place_of(self, facts: Facts, premise: Literal) -> int | None:
        """The place of a fact that is a relation, or a stricter one of the same number."""
        truth = self._truth_of(premise)
        for place, literal in self.search.literals(facts):
            is_equation = literal.relation == "="
            if is_equation == (premise.relation == "=") and self.replay.entails(
                [facts[place]], truth
            ):
                return place
        return None

    def _column(self, facts: Facts, places: Sequence[int], item: Product) -> Column:
        """A product as a column: with the numbers of the facts, which may be multiples."""
        literals = tuple(self.replay.relation(facts[place]) for place in places)
        of_facts = (
            product_of(literals, item.square)
            if item.factor is None
            else multiple_of(literals[0], item.factor)
        )
        conclusion = of_facts.conclusion
        is_strict = conclusion.relation == ">"
        return Column(conclusion.form, tuple(places), item.square, item.factor, is_strict)
