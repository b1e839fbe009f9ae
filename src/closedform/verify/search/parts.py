"""A refutation by what is shown of the parts of a goal first: ranges of floors, signs, orders.

The search looks for a contradiction of all facts at once. Where it finds none, its facts are shown
to have smaller ones in between, each by another search with the facts about the same symbols:

1. **floors** that have one or two values: each becomes its value;
2. **signs** of divisors, of bases of powers and of factors, and factors that are at most 1;
3. **orders** of parts that differ by one symbol, as ``1 / (t + 1)`` and ``1 / (s + 1)`` for t < s.

They are facts of the last search, which multiplies them as the goal does: of ``a <= b`` and
``c <= d``, where a and d are at least 0, the relation ``a c <= b d``.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from flint import fmpq

from closedform.effort import OutOfEffort
from closedform.verify.checker.polynomials import Polynomial, constant, constant_of, plus
from closedform.verify.checker.replay import Facts
from closedform.verify.checker.terms import CHOICES, RejectedProofError
from closedform.verify.search.guesses import Points
from closedform.verify.search.linear import Search
from closedform.verify.search.order import Order
from closedform.verify.search.steps import NoProofError, Place, Step

# Limits of the search; beyond them a goal has no proof by parts.
_QUICK_WORK = 6_000  # of the search for one fact in between without lemmas
_PART_WORK = 40_000  # with lemmas
_CHOICE_WORK = 350_000  # of one with choices
_MOST_FACTORS = 3
_MOST_PRODUCTS = 12


@dataclass(frozen=True, slots=True)
class State:
    """Facts, and the ones among them that are of the goal."""

    facts: Facts
    goal: Facts


def refute_by_parts(search: Search, order: Order, facts: Facts, goal: Facts) -> Step:
    """Returns a step that refutes facts, those of the negated goal among them.

    Raises:
        NoProofError: No such step was found.
    """
    return Parts(search, order, set(facts) - set(goal)).refute(State(facts, goal))


class Parts:
    """The parts of one goal: their candidates for truths in between, and the proofs of these."""

    def __init__(self, search: Search, order: Order, assumptions: set[int]) -> None:
        self.search = search
        self.order = order
        self._assumptions = assumptions
        self.replay = search.replay
        self.terms = search.replay.terms
        self.forms = search.replay.forms
        self._symbols: dict[int, frozenset[int]] = {}

    def refute(self, state: State) -> Step:
        """A step for each case of the goal."""
        nodes = self.terms.nodes
        for fact in state.goal:
            op, args, _ = nodes[fact]
            if op != "or":
                continue
            steps = []
            for part in args:
                facts = self.replay.knowing(state.facts, part)
                goal = self.replay.knowing(tuple(f for f in state.goal if f != fact), part)
                steps.append(self.refute(State(facts, goal)))
            return ["cases", state.facts.index(fact), steps]
        condition = self._plain_condition(state)
        if condition is not None:
            return self._by_condition(state, condition)
        return self._by_parts(state, self.points(state), frozenset())

    # --- conditions ------------------------------------------------------------------------------

    def _plain_condition(self, state: State) -> int | None:
        """The condition of a choice of the goal which has only symbols."""
        nodes = self.terms.nodes
        for term in self._below(state.goal):
            if nodes[term][0] in CHOICES:
                (condition, _), *_ = self.terms.alternatives(term)
                literal = self.replay.literal(condition)
                atoms = [] if literal is None else [a for m in literal.form for a, _ in m]
                if atoms and all(self.forms.atoms[atom][0] == "symbol" for atom in atoms):
                    return term
        return None

    def _by_condition(self, state: State, choice: int) -> Step:
        (condition, _), *_ = self.terms.alternatives(choice)
        steps = []
        for truth in (condition, self.terms.negate(condition)):
            case = self.knowing(state, truth)
            step = self.refutation(case, set(case.facts) - set(case.goal), _PART_WORK)
            if step is None:
                step = self._with_choices(case)
            steps.append(step)
        return ["split", Place(condition), *steps]

    def _with_choices(self, state: State) -> Step:
        """A step with the choices made of which a condition is a fact."""
        nodes = self.terms.nodes
        for term in self._below(state.goal):
            if nodes[term][0] not in CHOICES:
                continue
            for number, (condition, value) in enumerate(self.terms.alternatives(term)):
                parts = self.replay.knowing((), condition)
                if all(self.replay.entails(state.facts, part) for part in parts):
                    case = self._replacing(state, {term: value}, condition)
                    return ["choose", Place(term), number, self._with_choices(case)]
        return self.refute(state)

    def _replacing(self, state: State, replacements: Mapping[int, int], fact: int) -> State:
        """The facts with terms replaced, and one fact as it is."""
        goal = self.terms.substitute(state.goal, replacements)
        facts = self.replay._replace_terms(state.facts, replacements, fact)
        return State(facts, self.replay.knowing((), *goal))

    # --- parts -----------------------------------------------------------------------------------

    def points(self, state: State, *, below_0: bool = False) -> Points:
        """Returns points at which the facts hold that are not of the goal."""
        facts = [fact for fact in state.facts if fact not in state.goal]
        solver, effort = self.search.solver, self.search.effort
        return Points(self.replay, solver, facts, state.goal, effort, below_0=below_0)

    def _by_parts(self, state: State, points: Points, attempts: frozenset[int]) -> Step:
        """A step by what is shown of the parts of the goal, arguments first."""
        lemmas: list[tuple[int, Step]] = []
        for number, truths in self._candidates(state):
            if self.terms.nodes[number][0] == "floor" and number not in attempts:
                attempts |= {number}
                values = self._values_of(state, points, number, lemmas)
                state = self.knowing(state, *(truth for truth, _ in lemmas))
                if values:
                    conclusions = self._conclusions(state, [number], of_quotients=False)
                    lemmas += conclusions
                    state = self.knowing(state, *(truth for truth, _ in conclusions))
                if values:
                    return behind(lemmas, self._by_values(state, points, number, values, attempts))
            for truth in truths:
                if self.replay.entails(state.facts, truth):
                    break
                if truth in attempts or not points.may_hold(truth):
                    continue
                attempts |= {truth}
                step = self.proof(state, truth)
                if step is not None:
                    lemmas.append((truth, step))
                    state = self.knowing(state, truth)
                    break
        conclusions = self._conclusions(state, self._below(state.goal), of_quotients=True)
        state = self.knowing(state, *(truth for truth, _ in conclusions))
        return behind([*lemmas, *conclusions], self._at_once(state))

    def _conclusions(
        self, state: State, functions: Iterable[int], *, of_quotients: bool
    ) -> list[tuple[int, Step]]:
        """Lemmas whose premises are facts, all or those that can be cleared of quotients."""
        nodes = self.terms.nodes
        conclusions: list[tuple[int, Step]] = []
        for term in functions:
            if nodes[term][0] not in ("floor", "^", "log", "exp"):
                continue
            for number, lemma in enumerate(self.replay.lemmas.of(term)):
                *premises, truth = nodes[lemma][1] if nodes[lemma][0] == "or" else (lemma,)
                literal = self.replay.literal(truth)
                atoms = [] if literal is None else [a for m in literal.form for a, _ in m]
                is_quotient = any(self.forms.atoms[atom][0] == "inv" for atom in atoms)
                if is_quotient < of_quotients or self.replay.entails(state.facts, truth):
                    continue
                if all(
                    self.replay.entails(state.facts, self.terms.negate(premise))
                    for premise in premises
                ):
                    facts = self.replay.knowing(state.facts, self.terms.negate(truth), lemma)
                    cases = [
                        self.search.close(self.replay.knowing(facts, part))
                        for part in (*premises, truth)
                    ]
                    if None not in cases:
                        step = ["cases", facts.index(lemma), cases] if premises else cases[0]
                        conclusions.append((truth, ["lemma", [Place(term)], number, step]))
                        state = self.knowing(state, truth)
        return conclusions

    def _at_once(self, state: State) -> Step:
        # Products order two numbers; what is to be equal follows from equations.
        factors = [*self._products(state)] if self._is_order(state) else []
        for with_lemmas in (False, True):
            try:
                return self.order.refute_at_once(state.facts, factors, with_lemmas=with_lemmas)
            except NoProofError:
                continue
        return self.search.refute(state.facts)

    def _is_order(self, state: State) -> bool:
        """Whether the goal orders two numbers, and is not that they are equal."""
        return any(self.terms.nodes[fact][0] != "not" for fact in state.goal)

    def _values_of(
        self, state: State, points: Points, floor: int, lemmas: list[tuple[int, Step]]
    ) -> list[int]:
        """The values of a floor, numbers or another floor and a number; none where it has more.

        Their bounds are added to the lemmas.
        """
        terms = self.terms
        zero = terms.rational(0)
        floors = [f for f in self._below(state.goal) if terms.nodes[f][0] == "floor"]
        for base in (zero, *(f for f in floors if f < floor)):
            difference = floor if base == zero else terms.subtract(floor, base)
            ends = points.range_of(difference)
            if ends is None or ends[1] - ends[0] > 1:
                continue
            numbers = dict.fromkeys(fmpq(end.floor()) for end in ends)
            bounds = [terms.rational(number) for number in numbers]
            if base != zero:
                bounds = [terms.add(base, number) for number in bounds]
            proofs: list[tuple[int, Step]] = []
            for truth in (terms.less_equal(bounds[0], floor), terms.less_equal(floor, bounds[-1])):
                if self.replay.entails(state.facts, truth):
                    continue
                relevant = self.knowing(state, *(earlier for earlier, _ in proofs))
                step = self.proof(relevant, truth)
                if step is None:
                    break
                proofs.append((truth, step))
            lemmas += proofs
            state = self.knowing(state, *(truth for truth, _ in proofs))
            if all(
                self.replay.entails(state.facts, truth)
                for truth in (
                    terms.less_equal(bounds[0], floor),
                    terms.less_equal(floor, bounds[-1]),
                )
            ):
                return bounds
        return []

    def _by_values(
        self,
        state: State,
        points: Points,
        floor: int,
        values: Sequence[int],
        attempts: frozenset[int],
    ) -> Step:
        """A step for each value of a floor, which its bounds leave."""
        value, *others = values
        if others:
            truth = self.terms.less_equal(floor, value)
            low = self.knowing(state, truth)
            yes = self._by_values(low, points, floor, [value], attempts)
            negation, next_bound = self.terms.negate(truth), self.terms.less_equal(others[0], floor)
            place = self.replay.knowing(state.facts, negation).index(negation)
            high = self.knowing(state, negation, next_bound)
            no = self._by_values(high, points, floor, others, attempts)
            return ["split", Place(truth), yes, ["round", place, Place(next_bound), no]]
        equation = self.terms.equal(floor, value)
        facts = self.replay.knowing(state.facts, equation)
        case = self._replacing(replace(state, facts=facts), {floor: value}, equation)
        rest = self._by_parts(case, points, attempts)
        step = ["rewrite", facts.index(equation), Place(floor), Place(value), rest]
        refutation = self.search.show(state.facts, equation)
        if refutation is None:
            raise NoProofError("a floor has another value")
        return ["split", Place(equation), step, refutation]

    def _candidates(self, state: State) -> Iterator[tuple[int, list[int]]]:
        """Parts of the goal, arguments first, with truths: one of each list is enough."""
        terms = self.terms
        zero, unit = terms.rational(0), terms.rational(1)
        below = self._below(state.goal)
        pairs = self._pairs(state, below)
        is_order = self._is_order(state)
        factors = {arg for term in below for arg in self._factors(term)}
        for term in below:
            op, args, _ = terms.nodes[term]
            if terms.is_truth(term) or constant_of(self.forms.of(term)) is not None:
                continue
            if op == "/":
                for divisor in self._divisors(args[1]):
                    yield term, [terms.less(zero, divisor), terms.less(divisor, zero)]
                if all(terms.nodes[arg][0] == "log" for arg in args):
                    numbers = [terms.nodes[arg][1][0] for arg in args]
                    for left, right in (numbers, args):
                        yield term, [terms.less(left, right), terms.less_equal(right, left)]
            if op == "^":
                yield term, [terms.less(zero, args[0]), terms.less_equal(zero, args[0])]
                if is_order:
                    yield term, [terms.less_equal(args[0], unit), terms.less_equal(unit, args[0])]
            if op == "log":
                yield term, [terms.less(unit, args[0]), terms.less(zero, args[0])]
            if op == "floor":
                yield term, []
            if op == "^" or op in CHOICES or term in factors:
                yield term, [terms.less_equal(zero, term), terms.less_equal(term, zero)]
                if is_order and (op in ("^", "/") or op in CHOICES):
                    yield term, [terms.less_equal(term, unit)]
            for other in pairs.get(term, ()):
                yield term, [terms.less_equal(term, other), terms.less_equal(other, term)]

    def _pairs(self, state: State, below: Sequence[int]) -> dict[int, list[int]]:
        """Parts with the parts that they are with another symbol, which a fact compares."""
        nodes = self.terms.nodes
        all_parts = set(below)
        pairs: dict[int, list[int]] = {}
        for fact in state.facts:
            literal = self.replay.literal(fact)
            atoms = [] if literal is None else [a for m in literal.form for a, _ in m]
            symbols = [self.forms.terms_of_atoms[atom] for atom in dict.fromkeys(atoms)]
            if len(symbols) != 2 or any(nodes[symbol][0] != "symbol" for symbol in symbols):
                continue
            for first, second in (symbols, symbols[::-1]):
                parts = [
                    term
                    for term in below
                    if not self.terms.is_truth(term)
                    and nodes[term][0] != "symbol"
                    and first in self._symbols_of(term)
                    and second not in self._symbols_of(term)
                ]
                counterparts = self.terms.substitute(parts, {first: second})
                for part, other in zip(parts, counterparts, strict=True):
                    if other in all_parts and part not in pairs.get(other, ()):
                        pairs.setdefault(max(part, other), [])
                        if min(part, other) not in pairs[max(part, other)]:
                            pairs[max(part, other)].append(min(part, other))
        return pairs

    def _products(self, state: State) -> Iterator[tuple[Polynomial, ...]]:
        """Products of factors of the goal, of what two products differ by, and of ``1 - f``."""
        unit = constant(1)
        products: list[list[Polynomial]] = []
        for term in self._below(state.goal):
            factors = [self.forms.of(factor) for factor in self._factors(term)]
            if 0 < len(factors) <= _MOST_FACTORS and len(products) < _MOST_PRODUCTS:
                products.append(factors)
                choices = []
                for factor, number in zip(factors, self._factors(term), strict=True):
                    is_unit = self.replay.entails(
                        state.facts, self.terms.less_equal(number, self.terms.rational(1))
                    )
                    choices.append(
                        [unit, factor, plus(unit, factor, -1)] if is_unit else [unit, factor]
                    )
                for choice in itertools.product(*choices):
                    numbers = tuple(f for f in choice if constant_of(f) is None)
                    if numbers:
                        yield numbers
        for first, second in itertools.combinations(products, 2):
            yield from _exchanges(first, second)

    def _divisors(self, divisor: int) -> list[int]:
        """The factors of a divisor that are not constant, and the divisor.

        A product of sums is a sum in a normal form, which is cleared by its own sign.
        """
        factors: list[int] = []
        pending = [divisor]
        while pending:
            factor = pending.pop()
            op, args, _ = self.terms.nodes[factor]
            if op == "*":
                pending += reversed(args)
            elif constant_of(self.forms.of(factor)) is None:
                factors.append(factor)
        return factors if divisor in factors or not factors else [*factors, divisor]

    def _factors(self, term: int) -> list[int]:
        """The factors of a product or a quotient that are not constant."""
        op, args, _ = self.terms.nodes[term]
        factors: list[int] = []
        if op == "/":
            above, below = args
            inner = self.terms.nodes[above]
            factors = [*(inner[1] if inner[0] == "*" else (above,))]
            factors.append(self.terms.make("/", (self.terms.rational(1), below)))
        elif op == "*":
            factors = [*args]
        return [f for f in factors if constant_of(self.forms.of(f)) is None]

    # --- proofs ----------------------------------------------------------------------------------

    def knowing(self, state: State, *truths: int) -> State:
        """Returns the facts with some more truths."""
        return replace(state, facts=self.replay.knowing(state.facts, *truths))

    def proof(self, state: State, truth: int, work: int = _PART_WORK) -> Step | None:
        """Returns the step that refutes the negation of a relation by facts about its symbols."""
        symbols = self._symbols_of(truth)
        negation = self.terms.negate(truth)
        facts = [fact for fact in state.facts if fact not in state.goal]
        state = self.knowing(state, negation)
        # Of t also s with t < s <= 10.
        more_symbols = symbols | {
            symbol
            for fact in facts
            for symbol in self._symbols_of(fact)
            if len(self._symbols_of(fact)) == 2 and self._symbols_of(fact) & symbols
        }
        relevant = {fact for fact in facts if self._symbols_of(fact) <= more_symbols}
        step = self.refutation(state, relevant | {negation}, _QUICK_WORK)
        if step is not None:
            return step
        parts = set(self._below((truth,)))
        relevant = {f for f in relevant if f in self._assumptions or set(self._sides(f)) <= parts}
        if any(self.terms.nodes[part][0] in CHOICES for part in parts):
            work = max(work, _CHOICE_WORK)
        # Lemmas grow with the square of the number of functions.
        work = max(work, _PART_WORK * sum(self.terms.nodes[part][0] == "^" for part in parts) ** 2)
        narrow = {fact for fact in relevant if self._symbols_of(fact) <= symbols}
        step = self.refutation(state, narrow | {negation}, work)
        if step is None and relevant != narrow:
            step = self.refutation(state, relevant | {negation}, work)
        return step

    def _sides(self, fact: int) -> list[int]:
        """The sides of a relation that are not constant."""
        sides = self.terms.nodes[fact][1]
        return [
            side
            for side in sides
            if self.terms.is_truth(side) or constant_of(self.forms.of(side)) is None
        ]

    def refutation(self, state: State, subset: set[int], work: int) -> Step | None:
        """Returns the step that refutes some of the facts, or None; quick work has no cases."""
        places = [place for place, fact in enumerate(state.facts) if fact in subset]
        facts = tuple(state.facts[place] for place in places)
        effort = self.search.effort
        self.search.effort = effort.portion(work)
        try:
            if work == _QUICK_WORK:
                return ["keep", places, self.order.refute_at_once(facts, (), with_lemmas=False)]
            return ["keep", places, self.search.refute(facts)]
        except (NoProofError, RejectedProofError, OutOfEffort):
            return None
        finally:
            self.search.effort = effort
            effort.check()

    def _below(self, facts: Iterable[int]) -> list[int]:
        return self.terms.below(*facts)

    def _symbols_of(self, term: int) -> frozenset[int]:
        if term not in self._symbols:
            nodes = self.terms.nodes
            self._symbols[term] = frozenset(
                part for part in self.terms.below(term) if nodes[part][0] == "symbol"
            )
        return self._symbols[term]


def _exchanges(
    first: Sequence[Polynomial], second: Sequence[Polynomial]
) -> Iterator[tuple[Polynomial, ...]]:
    """Products of common factors, the difference of two others, and some of either product.

    ``a b - c d`` is ``(a - c) b + c (b - d)``.
    """
    common = [factor for factor in first if factor in second]
    left = [factor for factor in first if factor not in common]
    right = [factor for factor in second if factor not in common]
    if not left or len(left) != len(right):
        return
    for place, (a, b) in enumerate(zip(left, right, strict=True)):
        others = [(left[n], right[n]) for n in range(len(left)) if n != place]
        for choice in itertools.product(*others):
            yield (*common, plus(a, b, -1), *choice)


def behind(lemmas: Sequence[tuple[int, Step]], step: Step) -> Step:
    """A step behind the truths that it uses, each with its proof."""
    for truth, refutation in reversed(lemmas):
        step = ["split", Place(truth), step, refutation]
    return step
