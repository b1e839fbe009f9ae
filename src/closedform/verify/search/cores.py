"""The facts and lemmas that contradict each other, over polynomials.

z3 decides conjunctions and disjunctions of relations in which each monomial is one number.
Where its model is none of polynomials, products of relations that exclude it are added: of
``x > 1`` and ``y > 1`` the relation ``x y - x - y + 1 > 0``. So z3 is asked linear questions only,
whose work it counts.

``x > 0``, ``x < 0 or y > 1``, ``x y < x`` is a core of all three.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from flint import fmpq

from closedform.effort import Effort
from closedform.verify.checker.polynomials import UNIT, Key, Monomial, Polynomial, key_of
from closedform.verify.checker.replay import Literal, Replay
from closedform.verify.search.combinations import combine
from closedform.verify.search.products import (
    Product,
    Products,
    holds,
    multiple_of,
    product_of,
)
from closedform.verify.search.solver import (
    Question,
    Solver,
    has_long_numbers,
    print_relation,
)

_MOST_ROUNDS = 40
_MOST_UNITS = 500_000


@dataclass(frozen=True, slots=True)
class Core:
    """Truths that contradict each other, by linear arithmetic with some products."""

    truths: list[int]
    products: list[Product]


def find_core(
    replay: Replay,
    solver: Solver,
    truths: Sequence[int],
    bases: Iterable[Polynomial],
    effort: Effort,
    factors: Sequence[tuple[Polynomial, ...]] = (),
) -> Core | None:
    """Returns truths that contradict each other; None if no contradiction is found.

    Args:
        replay: The facts and rules of the checker.
        solver: The context of its questions.
        truths: Relations, conjunctions and disjunctions.
        bases: Numbers whose squares are not below 0, besides the monomials.
        effort: The work that it may do.
        factors: Further products, by their factors; then products of three inequalities count, too.
    """
    literals = [literal for truth in truths for literal in literals_in(replay, truth)]
    if has_long_numbers(literal.form for literal in literals):
        return None
    products: Products | None = None
    with solver.question() as z3_question:
        question = _Question(replay, z3_question, effort)
        for truth in truths:
            question.add(truth)
        for _ in range(_MOST_ROUNDS):
            effort.check()
            core = question.core()
            if core is not None or question.values is None:
                return core
            # Most contradictions need no products, whose list takes longer than the first answer.
            products = products or Products(replay, truths, literals, tuple(bases), factors)
            violated = products.against(question.values) or _products_of_combination(
                solver, question.true_literals(), question.values, products.bases, effort
            )
            for violated_product in violated:
                question.add_product(violated_product)
            if not violated:
                return None
    return None


def narrow_core(
    replay: Replay,
    solver: Solver,
    truths: Iterable[int],
    products: Iterable[Product],
    effort: Effort,
) -> Core | None:
    """Returns the truths and products among some that contradict each other, or None."""
    with solver.question() as z3_question:
        question = _Question(replay, z3_question, effort)
        for truth in truths:
            question.add(truth)
        for implied in products:
            question.add_product(implied)
        return question.core()


def _products_of_combination(
    solver: Solver,
    literals: Sequence[Literal],
    values: dict[Monomial, fmpq],
    bases: Sequence[Polynomial],
    effort: Effort,
) -> list[Product]:
    """The products of a combination that excludes the relations of a model."""
    combination = combine(solver, list(enumerate(literals)), effort, 3, bases)
    products = []
    for _, column in combination.parts if combination is not None else ():
        premises = tuple(literals[place] for place in column.facts)
        if column.factor is not None:
            products.append(multiple_of(premises[0], column.factor))
        elif len(premises) > 1 or column.square is not None:
            products.append(product_of(premises, column.square))
    return [item for item in products if not holds(item.conclusion, values)]


def literals_in(replay: Replay, truth: int) -> list[Literal]:
    """Returns the relations in a truth, those of integers rounded."""
    literal = replay.literal(truth)
    if literal is not None:
        return [replay.round_relation(literal) or literal]
    op, args, _ = replay.terms.nodes[truth]
    return [inner for arg in args for inner in literals_in(replay, arg)] if op != "not" else []


class _Question:
    """Truths over monomials as z3's, and its answer."""

    def __init__(self, replay: Replay, question: Question, effort: Effort) -> None:
        self.replay = replay
        self.effort = effort
        self.values: dict[Monomial, fmpq] | None = None
        self._question = question
        self._names: dict[Monomial, str] = {}
        self._truths: list[int] = []
        self._products: list[Product] = []

    def add(self, truth: int) -> None:
        """States a truth, which may be in a core."""
        self._question.state(self._print(truth), f"truth_{len(self._truths)}")
        self._truths.append(truth)

    def add_product(self, implied: Product) -> None:
        """States that the premises of a product imply its conclusion."""
        premises = [f"(not {self._print_relation(premise)})" for premise in implied.premises]
        parts = [*premises, self._print_relation(implied.conclusion)]
        self._question.state(f"(or {' '.join(parts)})", f"product_{len(self._products)}")
        self._products.append(implied)

    def core(self) -> Core | None:
        """Returns truths that contradict each other; else ``values`` has a model, if any."""
        are_consistent = self._question.check(self.effort, _MOST_UNITS)
        self.values = None
        if are_consistent is False:
            names = self._question.core()
            return Core(
                [truth for n, truth in enumerate(self._truths) if f"truth_{n}" in names],
                [item for n, item in enumerate(self._products) if f"product_{n}" in names],
            )
        if are_consistent:
            values = self._question.values()
            self.values = {UNIT: fmpq(1)}
            for monomial, name in self._names.items():
                self.values[monomial] = values.get(name, fmpq(0))
        return None

    def true_literals(self) -> list[Literal]:
        """Returns relations that hold in the model and make all truths true."""
        values = self.values or {}
        chosen: dict[tuple[str, Key], Literal] = {}
        pending = list(self._truths)
        while pending:
            truth = pending.pop()
            literal = self.replay.literal(truth)
            op, args, _ = self.replay.terms.nodes[truth]
            if literal is not None:
                literal = self.replay.round_relation(literal) or literal
                chosen[literal.relation, key_of(literal.form)] = literal
            elif op == "and":
                pending += args
            elif op == "or":
                pending += [arg for arg in args if self._is_true(arg, values)][:1]
        return list(chosen.values())[::-1]

    def _is_true(self, truth: int, values: dict[Monomial, fmpq]) -> bool:
        literal = self.replay.literal(truth)
        if literal is not None:
            return holds(self.replay.round_relation(literal) or literal, values)
        op, args, _ = self.replay.terms.nodes[truth]
        parts = [self._is_true(arg, values) for arg in args]
        return all(parts) if op in ("and", "true") else any(parts)

    def _print(self, truth: int) -> str:
        literal = self.replay.literal(truth)
        if literal is not None:
            return self._print_relation(self.replay.round_relation(literal) or literal)
        op, args, _ = self.replay.terms.nodes[truth]
        if op in ("true", "false"):
            return op
        return f"({op} {' '.join(self._print(arg) for arg in args)})"

    def _print_relation(self, literal: Literal) -> str:
        return print_relation(literal, self._name_of)

    def _name_of(self, monomial: Monomial) -> str:
        if monomial not in self._names:
            self._names[monomial] = f"m{len(self._names)}"
            self._question.declare(self._names[monomial])
        return self._names[monomial]
