"""The search for a proof that the checker replays.

The facts and the negated goal are refuted: what one interval or one equation decides comes first,
then cases, ranges and the order of numbers, at last the parts of the goal. Nothing here is trusted:
the checker replays what is found.

``0 <= x``, ``x <= 1`` and the negated goal ``x > 2`` are refuted by one step, ``contradiction``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from flint import fmpq

from closedform.effort import Effort, OutOfEffort
from closedform.verify.checker.replay import Facts, begin, check
from closedform.verify.checker.terms import RejectedProofError
from closedform.verify.search.boxes import Boxes
from closedform.verify.search.corners import refute_at_corners
from closedform.verify.search.extremes import separate_extremes
from closedform.verify.search.integers import Integers
from closedform.verify.search.linear import Search
from closedform.verify.search.order import Order
from closedform.verify.search.parts import refute_by_parts
from closedform.verify.search.rewriting import Rewriting
from closedform.verify.search.steps import (
    NoProofError,
    Place,
    Step,
    after,
    number_places,
    places_in,
)
from closedform.verify.terms.limits import LIMITS

_SHARE_AT_ONCE = 0.6  # of the work, for the corners and for all facts at once, before the parts
_LEAST_FOR_PARTS = 1_000_000  # work: with less, corners and parts are not tried
_MOST_DEPTH = 60


def find_proof(statement: Mapping[str, Any], effort: Effort | None = None) -> dict[str, Any]:
    """Returns a proof of a statement, replayed by the checker.

    Args:
        statement: The statement, as ``statement_of`` prints it.
        effort: The work that the search may do; that of one claim if None.

    Raises:
        NoProofError: No proof was found.
    """
    search = Refutation(Effort.of(LIMITS.search_work) if effort is None else effort)
    try:
        facts, places = begin(search.replay, statement)
        step = search.refute_whole(facts, search.replay.negated(places[statement["goal"]]))
        proof = search.numbered_proof(step, places)
        check(statement, proof)
    except (RejectedProofError, RecursionError, OutOfEffort) as error:
        raise NoProofError(str(error) or "the work is used up") from error
    finally:
        search.charge()
    return proof


class Refutation(Search):
    """The search for one refutation, in the order of the cost of its steps."""

    def __init__(self, effort: Effort) -> None:
        super().__init__(effort)
        self.order = Order(self)
        self.integers = Integers(self, self.order)
        self.rewriting = Rewriting(self, self.order)

    def refute_whole(self, facts: Facts, goal: Facts) -> Step:
        """Returns a step that refutes the facts: at once, else by what is shown of the parts."""
        self.spend()
        step = self._refute_at_corners(facts, goal)
        if step is not None:
            return step
        steps, new_facts = separate_extremes(self, facts)
        if steps:
            parts = tuple(fact for fact in new_facts if fact not in facts or fact in goal)
            return after(steps, self.refute_whole(new_facts, parts))
        effort = self.effort
        if effort.left < _LEAST_FOR_PARTS:
            return self._refute_conjuncts(facts, goal)
        self.effort = effort.portion(effort.left * _SHARE_AT_ONCE)
        try:
            return self._refute_conjuncts(facts, goal)
        except (NoProofError, OutOfEffort):
            self.effort = effort
            self.charge()
            return refute_by_parts(self, self.order, facts, goal)

    def _refute_at_corners(self, facts: Facts, goal: Facts) -> Step | None:
        """A step at the corners of shares; None where there is none, or little work is left."""
        effort = self.effort
        if effort.left < _LEAST_FOR_PARTS:
            return None
        self.effort = effort.portion(effort.left * _SHARE_AT_ONCE)
        try:
            return refute_at_corners(self, self.order, facts, goal)
        except OutOfEffort:
            return None
        finally:
            self.effort = effort
            self.charge()

    def _refute_conjuncts(self, facts: Facts, goal: Facts) -> Step:
        """A step that refutes all facts together, or each part of a conjunction or an equation."""
        try:
            return self.refute(facts)
        except NoProofError:
            clauses = [fact for fact in goal if self.terms.nodes[fact][0] in ("or", "not")]
            if not clauses:
                raise
            place, is_or = facts.index(clauses[0]), self.terms.nodes[clauses[0]][0] == "or"
            steps = [
                self.refute(self.replay.knowing(facts, part), 1)
                for part in self.alternatives(clauses[0])
            ]
            return ["cases", place, steps] if is_or else ["differ", place, *steps]

    def refute(self, facts: Facts, depth: int = 0) -> Step:
        """Returns a step that refutes the facts."""
        self.spend()
        # The checker recurses once for each step, and Python's stack holds about 1000 frames.
        if depth > _MOST_DEPTH:
            raise NoProofError("it splits too deep")
        boxes = Boxes(self.replay, facts)
        # The cheapest steps first: what one interval or one equation decides needs no z3.
        end = boxes.contradiction()
        if end is not None:
            return end
        simple, step = boxes.decide_choices()
        if step is not None:
            return [*step, self.refute(simple, depth + 1)]
        steps, new_facts = separate_extremes(self, facts)
        if steps:
            return after(steps, self.refute(new_facts, depth + 1))
        for take_step in (
            self.rewriting.by_equation,
            self.integers.by_rounding,
            self.integers.by_integer_equations,
            self.rewriting.by_opposite_bounds,
            self.rewriting.by_vanishing_sums,
            self.rewriting.by_vanishing_power,
            self.integers.by_ranges,
            self.integers.by_integer_difference,
        ):
            step = take_step(facts, depth)
            if step is not None:
                return step
        try:
            choice = self.innermost_choice(facts)
            if choice is not None:
                return self._by_choice(facts, choice, depth)
            return self.order.by_order(facts, depth)
        except NoProofError:
            residues = self.integers.by_residues(facts, depth)
            if residues is None:
                raise
            return residues

    def _by_choice(self, facts: Facts, choice: int, depth: int) -> Step:
        alternatives = self.terms.alternatives(choice)
        for number, (condition, value) in enumerate(alternatives):
            if all(self.replay.entails(facts, p) for p in self.replay.knowing((), condition)):
                rest = self.replay._replace_terms(facts, {choice: value}, condition)
                return ["choose", Place(choice), number, self.refute(rest, depth + 1)]
        # A condition that is known to be false would be split on for ever.
        open_conditions = [
            condition
            for condition, _ in alternatives
            if not self.replay.entails(facts, self.terms.negate(condition))
        ]
        if not open_conditions:
            raise NoProofError("the alternatives of a choice are all excluded")
        condition = open_conditions[0]
        truths = [condition, self.terms.negate(condition)]
        steps = []
        for truth in truths:
            more_facts = self.replay.knowing(facts, truth)
            steps.append(self.close(more_facts) or self.refute(more_facts, depth + 1))
        return ["split", Place(condition), *steps]

    def numbered_proof(self, step: Step, places: list[int]) -> dict[str, Any]:
        """The steps with the numbers of rows, and the rows that the statement lacks."""
        rows: list[Any] = []
        # Reversed: of two rows of one term the first number wins.
        row_of = {term: row for row, term in reversed(list(enumerate(places)))}
        nodes = self.terms.nodes
        places_of_step = [part.term for part in places_in(step)]
        for term in self.terms.below(*places_of_step):
            if term in row_of:
                continue
            op, args, value = nodes[term]
            text: Any = value
            if isinstance(value, fmpq):
                text = str(value)
            elif op == "lookup":
                value = cast("tuple[fmpq, ...]", value)
                text = [str(entry) for entry in value]
            elif isinstance(value, tuple):
                text = list(value)
            row_of[term] = len(places) + len(rows)
            rows.append([op, [row_of[arg] for arg in args], text])
        return {"nodes": rows, "step": number_places(step, row_of)}
