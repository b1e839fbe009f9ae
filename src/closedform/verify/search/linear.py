"""Facts that are refuted without cases: by intervals, or by one combination that is 0 > 0.

``Search`` holds what all parts of a search share: the terms and rules of the checker (``Replay``),
the context of z3, the work that is left. Each step is taken in ``Replay`` first, so what is written
is what will be replayed.

``x > 1`` and ``x + y < 0`` with ``y >= 0`` is refuted by their sum: 0 > 1.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

from closedform.effort import Effort, spend
from closedform.verify.checker.polynomials import Polynomial
from closedform.verify.checker.replay import Facts, Literal, Replay
from closedform.verify.checker.terms import CHOICES
from closedform.verify.search.boxes import Boxes
from closedform.verify.search.combinations import Combination, combine
from closedform.verify.search.solver import Solver
from closedform.verify.search.steps import Place, Step


class Search(ABC):
    """One search: its terms, its work, and the refutations that need no cases."""

    def __init__(self, effort: Effort) -> None:
        self.replay = Replay()
        self.terms = self.replay.terms
        self.solver = Solver()
        self.effort = effort
        self._charged = 0

    @abstractmethod
    def refute(self, facts: Facts, depth: int = 0) -> Step:
        """Returns a step that refutes the facts, or raises NoProofError."""

    def spend(self) -> None:
        """Reports the work on the terms of the checker; raises OutOfEffort if none is left."""
        self.charge()
        self.effort.check()

    def charge(self) -> None:
        """Reports the work on the terms of the checker."""
        spend(self.terms.work - self._charged)
        self._charged = self.terms.work

    def below(self, facts: Iterable[int]) -> list[int]:
        """Returns the terms in facts, arguments first, without those inside of opaque functions."""
        nodes = self.terms.nodes
        terms = set(facts)
        pending = list(terms)
        while pending:
            op, args, _ = nodes[pending.pop()]
            if op != "opaque":
                pending += (arg for arg in args if arg not in terms)
                terms.update(args)
        return sorted(terms)

    def close(self, facts: Facts, degree: int = 1) -> Step | None:
        """Returns a step that refutes the facts by the order of products of a degree, or None."""
        end = Boxes(self.replay, facts).contradiction()
        if end is not None:
            return end
        return self.combine_facts(facts, self.literals(facts), degree)

    def combine_facts(
        self,
        facts: Facts,
        literals: Sequence[tuple[int, Literal]],
        degree: int,
        bases: Sequence[Polynomial] = (),
    ) -> Step | None:
        """Returns the combination of some facts that is 0 > 0, if there is one."""
        self.spend()
        combination = combine(self.solver, literals, self.effort, degree, bases)
        return None if combination is None else self.combination_step(combination, facts)

    def combination_step(self, combination: Combination, facts: Facts) -> Step:
        """Returns a combination as a step."""
        products: list[Any] = []
        equations: list[Any] = []
        forms = self.replay.forms
        for weight, column in combination.parts:
            if column.factor is not None:
                factor = forms.term_of({column.factor: weight})
                equations.append([column.facts[0], Place(factor)])
                continue
            squares = [] if column.square is None else [Place(forms.term_of(column.square))]
            products.append([str(weight), list(column.facts), squares])
        return ["combine", products, equations]

    def literals(self, facts: Iterable[int]) -> list[tuple[int, Literal]]:
        """Returns the relations among facts, with their places."""
        pairs = ((place, self.replay.literal(fact)) for place, fact in enumerate(facts))
        return [(place, literal) for place, literal in pairs if literal is not None]

    def innermost_choice(self, facts: Facts) -> int | None:
        """Returns a choice in facts that has none in it, or None."""
        nodes = self.terms.nodes
        holding: set[int] = set()
        for term in self.below(facts):
            op, args, _ = nodes[term]
            # Of an ite only the condition counts: choices in its branches are met after it is
            # decided.
            below = args[:1] if op == "ite" else args
            if op in CHOICES and not any(arg in holding for arg in below):
                return term
            if op in CHOICES or any(arg in holding for arg in args):
                holding.add(term)
        return None

    def alternatives(self, fact: int) -> Sequence[int]:
        """Returns the parts of a disjunction, or the orders of two numbers that are not equal."""
        op, args, _ = self.terms.nodes[fact]
        if op == "or":
            return args
        left, right = self.terms.nodes[args[0]][1]
        return self.terms.less(left, right), self.terms.less(right, left)

    def show(self, facts: Facts, truth: int, degree: int = 1) -> Step | None:
        """Returns a step that proves a relation by products of a degree, or None."""
        negation = self.terms.negate(truth)
        more_facts = self.replay.knowing(facts, negation)
        if self.terms.nodes[negation][0] != "not":
            return self.close(more_facts, degree)
        steps: list[Any] = []
        for side in self.alternatives(negation):
            step = self.close(self.replay.knowing(more_facts, side), degree)
            if step is None:
                return None
            steps.append(step)
        return ["differ", more_facts.index(negation), *steps]
