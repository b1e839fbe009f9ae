"""The steps of a proof, replayed: each refutes the facts that it is given.

A proof of a goal refutes the assumptions with the negated goal. A step is a list, its name first:

============================================  =====================================================
step                                          meaning
============================================  =====================================================
``["split", truth, yes, no]``                 with the truth, and with its negation
``["keep", [facts], step]``                   with some of the facts, the others forgotten
``["cases", fact, [steps]]``                  a disjunction, one part each
``["differ", fact, above, below]``            two numbers that are not equal: one is below the other
``["choose", term, place, step]``             a choice is its value, as its condition is a fact
``["simplify", [facts], decisions, step]``    choices and floors decided by interval arithmetic
``["lemma", [terms], place, step]``           one more fact, by ``lemmas``
``["rewrite", fact, old, new, step]``         equals for equals in all facts, by an equation
``["round", fact, truth, step]``              an inequality between integers, its constant rounded
``["clear", fact, divisor, truth, step]``     a relation times a divisor whose sign is a fact
``["range", symbol, [ends], [steps]]``        an integer in intervals that cover its values
``["residues", symbol, q, [steps]]``          an integer as m q + r, a step for each residue r
``["contradiction", [facts], fact]``          a fact is false by interval arithmetic
``["empty", [facts]]``                        bounds of one symbol exclude each other
``["combine", products, equations]``          products and multiples of facts add up to 0 > 0
============================================  =====================================================

A fact is named by its place among the facts where the step stands, a term or truth by its row.
Interval arithmetic knows only the facts that are listed, each of which bounds one symbol: they are
the box. A decision ``[term, place]`` says which alternative of a choice holds everywhere in it, and
``[term, number]`` the value of a floor there; the value of a choice may hold choices that stand
before it in the list. A product is ``[number, [facts], [terms to be squared]]``, a multiple of an
equation is ``[fact, term]``.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from flint import fmpq

from closedform.verify.checker.intervals import Intervals, integer_bounds
from closedform.verify.checker.lemmas import Lemmas
from closedform.verify.checker.polynomials import (
    UNIT,
    NormalForms,
    Polynomial,
    clear,
    constant,
    constant_of,
    content,
    plus,
    product,
)
from closedform.verify.checker.terms import RejectedProofError, Terms, fraction, require

Facts = tuple[int, ...]
MOST_DEEP = 400
MOST_RESIDUES = 512


@dataclass(frozen=True, slots=True)
class Literal:
    """A relation of a polynomial to 0: ``>``, ``>=``, ``=`` or ``!=``."""

    relation: str
    form: Polynomial


class Replay:
    """The rules by which facts are refuted, over one table of terms."""

    def __init__(self) -> None:
        self.terms = Terms()
        self.forms = NormalForms(self.terms)
        self.lemmas = Lemmas(self.forms)
        self._literals: dict[int, Literal | None] = {}

    # --- facts -----------------------------------------------------------------------------------

    def literal(self, truth: int) -> Literal | None:
        """Returns the relation that a truth is; None of and, or, true and false."""
        if truth not in self._literals:
            op, args, _ = self.terms.nodes[truth]
            is_opposite = op == "not"
            if is_opposite:
                op, args, _ = self.terms.nodes[args[0]]
            relation = {"<": ">", "<=": ">=", "=": "!=" if is_opposite else "="}.get(op)
            if is_opposite and relation != "!=":
                relation = None
            self._literals[truth] = (
                None
                if relation is None
                else Literal(relation, self.forms.difference(args[1], args[0]))
            )
        return self._literals[truth]

    def relation(self, truth: int) -> Literal:
        """Returns the relation that a truth is, which it must be."""
        literal = self.literal(truth)
        if literal is None:
            raise RejectedProofError("this fact is not a relation")
        return literal

    def knowing(self, facts: Facts, *truths: int) -> Facts:
        """Returns the facts with more of them, conjunctions as their parts."""
        all_facts: dict[int, None] = dict.fromkeys(facts)
        pending = [self.terms.positive_form(truth) for truth in reversed(truths)]
        while pending:
            truth = pending.pop()
            op, args, _ = self.terms.nodes[truth]
            if op == "and":
                pending += reversed(args)
            elif op != "true":
                all_facts[truth] = None
        return tuple(all_facts)

    def beginning(self, assumptions: Sequence[int], goal: int) -> Facts:
        """Returns the facts that a proof refutes: declarations, assumptions, the negated goal."""
        declarations = self._declarations([*assumptions, goal])
        return self.knowing((), *declarations, *assumptions, *self.negated(goal))

    def negated(self, goal: int) -> Facts:
        """Returns the parts of a negated goal."""
        return self.knowing((), self.terms.negate(self.terms.positive_form(goal)))

    def _declarations(self, roots: Iterable[int]) -> list[int]:
        terms = self.terms
        zero = terms.rational(0)
        truths = []
        for term in terms.below(*roots):
            op, _, value = terms.nodes[term]
            if op != "symbol":
                continue
            sign = cast("tuple[str, bool, str]", value)[2]
            if sign in ("positive", "nonnegative"):
                make = terms.less if sign == "positive" else terms.less_equal
                truths.append(make(zero, term))
            elif sign != "any":
                make = terms.less if sign == "negative" else terms.less_equal
                truths.append(make(term, zero))
        return truths

    def entails(self, facts: Iterable[int], truth: int) -> bool:
        """Whether a relation is one of some facts, up to a factor, or weaker than one."""
        if truth in facts or self.terms.nodes[truth][0] == "true":
            return True
        relation = self.literal(truth)
        if relation is None:
            return False
        number = constant_of(relation.form)
        if number is not None:
            return is_satisfied(relation.relation, number)
        for fact in facts:
            self.terms.work += 1
            literal = self.literal(fact)
            if literal is not None and _is_weaker(literal, relation):
                return True
        return False

    # --- steps -----------------------------------------------------------------------------------

    def run(self, step: object, facts: Facts, places: Sequence[int], depth: int = 0) -> None:
        """Replays a step, which refutes the facts.

        Raises:
            RejectedProofError: It does not.
        """
        while True:
            require(depth <= MOST_DEEP, "the proof is too deep")
            name, *data = _list(step) or [None]
            if name in _ENDS:
                _ENDS[name](self, data, facts, places)
                return
            require(isinstance(name, str) and name in _STEPS, f"no step {name!r}")
            name = cast("str", name)
            parts = _STEPS[name](self, data, facts, places)
            if not parts:
                return
            depth += 1
            for part, part_facts in parts[1:]:
                self.run(part, part_facts, places, depth)
            step, facts = parts[0]

    def fact(self, facts: Facts, place: object) -> int:
        """Returns a fact by its place."""
        return facts[_place(place, len(facts), "fact")]

    def term(self, places: Sequence[int], place: object, *, is_truth: bool = False) -> int:
        """Returns a term of the certificate by its place."""
        term = places[_place(place, len(places), "term")]
        require(self.terms.is_truth(term) == is_truth, "a term of another kind")
        return term

    def _split(self, step: list[object], facts: Facts, places: Sequence[int]) -> Parts:
        truth, yes, no = _of_length(step, 3)
        condition = self.terms.positive_form(self.term(places, truth, is_truth=True))
        negation = self.terms.negate(condition)
        return [(yes, self.knowing(facts, condition)), (no, self.knowing(facts, negation))]

    def _keep(self, step: list[object], facts: Facts, places: Sequence[int]) -> Parts:
        remaining, rest = _of_length(step, 2)
        return [(rest, self.knowing((), *(self.fact(facts, place) for place in _list(remaining))))]

    def _cases(self, step: list[object], facts: Facts, places: Sequence[int]) -> Parts:
        place, steps = _of_length(step, 2)
        op, args, _ = self.terms.nodes[self.fact(facts, place)]
        require(op == "or", "cases of a disjunction")
        cases = zip(_of_length(_list(steps), len(args)), args, strict=True)
        return [(part, self.knowing(facts, arg)) for part, arg in cases]

    def _differ(self, step: list[object], facts: Facts, places: Sequence[int]) -> Parts:
        place, above, below = _of_length(step, 3)
        op, args, _ = self.terms.nodes[self.fact(facts, place)]
        require(op == "not", "this is not an inequation")
        left, right = self.terms.nodes[args[0]][1]
        sides = self.terms.less(left, right), self.terms.less(right, left)
        return [(above, self.knowing(facts, sides[0])), (below, self.knowing(facts, sides[1]))]

    def _choose(self, step: list[object], facts: Facts, places: Sequence[int]) -> Parts:
        place, number, rest = _of_length(step, 3)
        term = self.term(places, place)
        condition, value = self._alternative(term, number)
        conjuncts = self.knowing((), condition)
        require(all(self.entails(facts, part) for part in conjuncts), "its condition is not a fact")
        return [(rest, self._replace_terms(facts, {term: value}, condition))]

    def _alternative(self, term: int, number: object) -> tuple[int, int]:
        alternatives = self.terms.alternatives(term)
        return alternatives[_place(number, len(alternatives), "alternative")]

    def _replace_terms(self, facts: Facts, replacements: Mapping[int, int], *further: int) -> Facts:
        """Facts with terms replaced; further ones are not."""
        return self.knowing(tuple(self.terms.substitute(facts, replacements)), *further)

    def _lemma(self, step: list[object], facts: Facts, places: Sequence[int]) -> Parts:
        about, number, rest = _of_length(step, 3)
        functions = [self.term(places, place) for place in _list(about)]
        require(len(functions) in (1, 2), "a lemma is about one or two functions")
        make = self.lemmas.of if len(functions) == 1 else self.lemmas.of_pair
        lemmas = make(*functions)
        return [(rest, self.knowing(facts, lemmas[_place(number, len(lemmas), "lemma")]))]

    def _rewrite(self, step: list[object], facts: Facts, places: Sequence[int]) -> Parts:
        place, old, new, rest = _of_length(step, 4)
        equation = self.fact(facts, place)
        before, after = self.term(places, old), self.term(places, new)
        require(self.entails([equation], self.terms.equal(before, after)), "no such equation")
        return [(rest, self._replace_terms(facts, {before: after}, equation))]

    def _round(self, step: list[object], facts: Facts, places: Sequence[int]) -> Parts:
        place, truth, rest = _of_length(step, 3)
        rounded_fact = self.round_relation(self.relation(self.fact(facts, place)))
        claim = self.term(places, truth, is_truth=True)
        if rounded_fact is None:
            raise RejectedProofError("this is not about integers")
        require(_is_weaker(rounded_fact, self.relation(claim)), "it is not the rounded fact")
        return [(rest, self.knowing(facts, claim))]

    def round_relation(self, literal: Literal) -> Literal | None:
        """Returns an inequality between integers with a whole constant, at least 0."""
        if literal.relation not in (">", ">=") or constant_of(literal.form) is not None:
            return None
        scale = content(literal.form)
        whole = {monomial: value / scale for monomial, value in literal.form.items()}
        offset = whole.pop(UNIT, fmpq(0))
        if not self.forms.is_whole(whole):
            return None
        least = fmpq((-offset).ceil()) if literal.relation == ">=" else fmpq((-offset).floor()) + 1
        return Literal(">=", plus(whole, constant(least), -1))

    def _clear(self, step: list[object], facts: Facts, places: Sequence[int]) -> Parts:
        place, divisor, truth, rest = _of_length(step, 4)
        relation = self.relation(self.fact(facts, place))
        product = self.clear_divisor(relation, self.term(places, divisor), facts)
        claim = self.term(places, truth, is_truth=True)
        require(_is_weaker(product, self.relation(claim)), "it is not the product")
        return [(rest, self.knowing(facts, claim))]

    def clear_divisor(self, literal: Literal, divisor: int, facts: Facts) -> Literal:
        """Returns a relation times a power of a divisor of known sign."""
        terms = self.terms
        form = self.forms.of(divisor)
        inverse = self.forms.inverse(form)
        require(len(inverse) == 1, "this is not a divisor")
        ((monomial, scale),) = inverse.items()
        require(len(monomial) == 1 and monomial[0][1] == 1, "this is not a divisor")
        # The atom is the inverse of a multiple of the divisor, whose leading number is 1.
        result, degree = clear(literal.form, monomial[0][0], plus({}, form, scale))
        zero = terms.rational(0)
        is_positive = self.entails(facts, terms.less(zero, divisor))
        is_negative = not is_positive and self.entails(facts, terms.less(divisor, zero))
        is_nonzero = is_positive or is_negative
        is_nonzero = is_nonzero or self.entails(facts, terms.negate(terms.equal(divisor, zero)))
        require(is_nonzero, "the divisor may be 0")
        if literal.relation in (">", ">=") and degree % 2:
            require(is_positive or is_negative, "the sign of the divisor is open")
            if is_positive != (scale > 0):
                result = plus({}, result, -1)
        return Literal(literal.relation, result)

    def _range(self, step: list[object], facts: Facts, places: Sequence[int]) -> Parts:
        place, ends, steps = _of_length(step, 3)
        symbol = self.term(places, place)
        op, _, value = self.terms.nodes[symbol]
        require(op == "symbol" and isinstance(value, tuple) and value[1], "not an integer")
        require(all(type(end) is int for end in _list(ends)), "an end is an integer")
        ends = cast("list[int]", ends)
        require(all(a < b for a, b in itertools.pairwise(ends)), "the ends ascend")
        low, high = integer_bounds(self, facts, symbol)
        terms = self.terms
        parts: Parts = []
        # Each interval reaches from behind an end to the next one; the first and the last are open.
        borders = [None, *ends, None]
        parts_of_steps = _of_length(_list(steps), len(borders) - 1)
        for before, end, part in zip(borders, borders[1:], parts_of_steps, strict=False):
            if before is not None and high is not None and before >= high:
                continue
            if end is not None and low is not None and end < low:
                continue
            first = low if before is None else before + 1
            last = high if end is None else end
            if first is not None and first == last:
                number = terms.rational(first)
                part_facts = self._replace_terms(
                    facts, {symbol: number}, terms.equal(symbol, number)
                )
                parts.append((part, part_facts))
                continue
            more = [] if before is None else [terms.less_equal(terms.rational(before + 1), symbol)]
            more += [] if end is None else [terms.less_equal(symbol, terms.rational(end))]
            parts.append((part, self.knowing(facts, *more)))
        return parts

    def _residues(self, step: list[object], facts: Facts, places: Sequence[int]) -> Parts:
        symbol, quotient, steps = _of_length(step, 3)
        parts = _list(steps)
        terms = self.term(places, symbol), self.term(places, quotient)
        return list(zip(parts, self.residues(facts, *terms, len(parts)), strict=True))

    def residues(self, facts: Facts, symbol: int, quotient: int, modulus: int) -> list[Facts]:
        """Returns the facts with an integer as ``modulus q + r``, for each residue r.

        Nothing is known of the integer q. A floor of ``p + b`` is ``p + floor(b)`` for a number b
        and a polynomial p of integers with whole coefficients.
        """
        terms = self.terms
        for term in (symbol, quotient):
            op, _, value = terms.nodes[term]
            require(op == "symbol" and isinstance(value, tuple) and value[1], "not an integer")
        sign = cast("tuple[str, bool, str]", terms.nodes[quotient][2])[2]
        is_new = sign == "any" and quotient not in terms.below(*facts)
        require(is_new, "something is known of the quotient")
        require(0 < modulus <= MOST_RESIDUES, f"no modulus {modulus}")
        multiple = terms.multiply(terms.rational(modulus), quotient)
        numbers = [terms.add(multiple, terms.rational(residue)) for residue in range(modulus)]
        return [
            self.knowing((), *self._without_floors(terms.substitute(facts, {symbol: number})))
            for number in numbers
        ]

    def _without_floors(self, truths: Sequence[int]) -> list[int]:
        """Truths with the floors of integers plus a number, innermost first."""
        replacements: dict[int, int] = {}
        for term in self.terms.below(*truths):
            op, args, _ = self.terms.nodes[term]
            if op != "floor":
                continue
            (argument,) = self.terms.substitute(args, replacements)
            form = dict(self.forms.of(argument))
            offset = form.pop(UNIT, fmpq(0))
            if self.forms.is_whole(form):
                floor = self.terms.rational(fmpq(offset.floor()))
                replacements[term] = self.terms.add(self.forms.term_of(form), floor)
        return self.terms.substitute(truths, replacements)

    def _simplify(self, step: list[object], facts: Facts, places: Sequence[int]) -> Parts:
        bounds, decisions, rest = _of_length(step, 3)
        intervals = self._intervals(facts, bounds)
        replacements: dict[int, int] = {}
        for decision in _list(decisions):
            place, number = _of_length(_list(decision), 2)
            term = self.term(places, place)
            if self.terms.nodes[term][0] == "floor":
                require(type(number) is int, "a floor is an integer")
                value = self.terms.rational(cast("int", number))
                is_decided = intervals.truth(self.terms.equal(term, value)) is True
            else:
                condition, value = self._alternative(term, number)
                is_decided = intervals.truth(condition) is True
            require(is_decided, "the intervals leave this open")
            # A value may hold choices that were decided before.
            (replacements[term],) = self.terms.substitute([value], replacements)
        return [(rest, self._replace_terms(facts, replacements))]

    def _intervals(self, facts: Facts, places: object) -> Intervals:
        """The intervals of numbers by some of the facts."""
        return Intervals(self, tuple(self.fact(facts, place) for place in _list(places)))

    def _contradiction(self, step: list[object], facts: Facts, places: Sequence[int]) -> None:
        bounds, place = _of_length(step, 2)
        truth = self._intervals(facts, bounds).truth(self.fact(facts, place))
        require(truth is False, "the intervals do not refute this fact")

    def _empty(self, step: list[object], facts: Facts, places: Sequence[int]) -> None:
        (bounds,) = _of_length(step, 1)
        require(self._intervals(facts, bounds).is_empty, "the bounds do not exclude each other")

    def _combine(self, step: list[object], facts: Facts, places: Sequence[int]) -> None:
        products, equations = _of_length(step, 2)
        total: Polynomial = {}
        is_strict = False
        for item in _list(products):
            number, factors, squares = _of_length(_list(item), 3)
            weight = fraction(number)
            require(weight > 0, "a product is multiplied by a number above 0")
            form, strict = constant(weight), squares == []
            for place in _list(squares):
                root = self.forms.of(self.term(places, place))
                form = product(form, product(root, root))
            for place in _list(factors):
                literal = self.relation(self.fact(facts, place))
                require(literal.relation in (">", ">="), "a factor is an inequality")
                strict = strict and literal.relation == ">"
                form = product(form, literal.form)
            is_strict = is_strict or strict
            total = plus(total, form)
        for item in _list(equations):
            place, factor = _of_length(_list(item), 2)
            literal = self.relation(self.fact(facts, place))
            require(literal.relation == "=", "a multiple is of an equation")
            total = plus(total, product(literal.form, self.forms.of(self.term(places, factor))))
        require(is_strict, "nothing in the sum is above 0")
        require(not total, "the sum is not 0")


Parts = list[tuple[object, Facts]]


def _list(value: object) -> list[object]:
    require(isinstance(value, list), f"a list is expected, got {value!r}")
    return cast("list[object]", value)


def _place(value: object, length: int, kind: str) -> int:
    require(isinstance(value, int) and type(value) is int, f"no {kind} {value!r}")
    place = cast("int", value)
    require(0 <= place < length, f"no {kind} {place}")
    return place


def _of_length(step: list[object], length: int) -> list[object]:
    require(len(step) == length, f"a step has {length} parts here, got {len(step)}")
    return step


def is_satisfied(relation: str, number: fmpq) -> bool:
    """Returns whether a number has a relation to 0."""
    if relation == "=":
        return bool(number == 0)
    if relation == "!=":
        return bool(number != 0)
    return bool(number > 0 if relation == ">" else number >= 0)


_WEAKER = {">": {">", ">=", "!="}, ">=": {">="}, "=": {"=", ">="}, "!=": {"!="}}


def _is_weaker(fact: Literal, claim: Literal) -> bool:
    """Whether a relation of one polynomial follows from one of it, or of a multiple of it."""
    if claim.relation not in _WEAKER[fact.relation]:
        return False
    if len(fact.form) != len(claim.form):
        return False
    if not fact.form:
        return True
    monomial = next(iter(fact.form))
    if monomial not in claim.form:
        return False
    factor = claim.form[monomial] / fact.form[monomial]
    is_symmetric = fact.relation in ("=", "!=") or claim.relation == "!="
    if factor < 0 and not is_symmetric:
        return False
    return all(claim.form.get(m) == value * factor for m, value in fact.form.items())


_STEPS = {
    "split": Replay._split,
    "keep": Replay._keep,
    "cases": Replay._cases,
    "differ": Replay._differ,
    "choose": Replay._choose,
    "lemma": Replay._lemma,
    "rewrite": Replay._rewrite,
    "round": Replay._round,
    "clear": Replay._clear,
    "range": Replay._range,
    "residues": Replay._residues,
    "simplify": Replay._simplify,
}
_ENDS = {
    "contradiction": Replay._contradiction,
    "empty": Replay._empty,
    "combine": Replay._combine,
}


def check(statement: Mapping[str, object], proof: Mapping[str, object]) -> None:
    """Replays a proof of a statement.

    Args:
        statement: ``nodes``, the places of the ``assume`` and of the ``goal`` in them.
        proof: ``nodes`` that follow those of the statement, and the first ``step``.

    Raises:
        RejectedProofError: The proof does not prove the statement.
    """
    replay = Replay()
    try:
        facts, places = begin(replay, statement)
        replay.terms.read(_list(proof.get("nodes")), places)
        replay.run(proof.get("step"), facts, places)
    except (ArithmeticError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise RejectedProofError(f"the proof cannot be replayed: {error}") from error


def begin(replay: Replay, statement: Mapping[str, object]) -> tuple[Facts, list[int]]:
    """Returns the facts that a proof of a statement refutes, and the terms of its nodes."""
    places: list[int] = []
    replay.terms.read(_list(statement.get("nodes")), places)
    assume = _list(statement.get("assume"))
    assumptions = [replay.term(places, place, is_truth=True) for place in assume]
    goal = replay.term(places, statement.get("goal"), is_truth=True)
    return replay.beginning(assumptions, goal), places
