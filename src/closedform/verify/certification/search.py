"""The search for a proof that the checker replays.

It works on the facts and rules of the checker (``Replay``): each step is taken there first, so what
is written is what will be replayed. z3 says which facts and lemmas contradict each other, and which
combination of them is 0 > 0. Nothing here is trusted.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Mapping, Sequence
from math import lcm
from typing import Any, cast

from flint import fmpq

from closedform.effort import Effort, OutOfEffort, spend
from closedform.verify.certification.boxes import Boxes
from closedform.verify.certification.combinations import (
    Column,
    Combination,
    combine,
)
from closedform.verify.certification.cores import Core, find_core, literals_in, narrow_core
from closedform.verify.certification.parts import refute_by_parts
from closedform.verify.certification.products import Product, multiple_of, product_of
from closedform.verify.certification.solver import Solver
from closedform.verify.certification.steps import (
    NoProofError as NoProofError,
)
from closedform.verify.certification.steps import (
    Place,
    Step,
    number_places,
    places_in,
)
from closedform.verify.checker.polynomials import (
    UNIT,
    Polynomial,
    constant_of,
    content,
    key_of,
    plus,
)
from closedform.verify.checker.replay import Facts, Literal, Replay, begin, check
from closedform.verify.checker.terms import CHOICES, RejectedProofError
from closedform.verify.terms.limits import LIMITS

_FUNCTIONS = ("cospi", "sinpi", "exp", "log", "floor", "^", "lookup", "pi", "opaque")
_CURVES = ("cospi", "sinpi", "exp", "log", "lookup", "pi", "opaque")
# Bounds of the search; where they end it, the goal has no proof.
_MOST_RANGES = 20_000
_MOST_ENDS = 16
_MOST_LEMMAS = 600
_MOST_RESIDUES = 120
_MOST_STEPS = 128
_SHARE_AT_ONCE = 0.5  # of the work, before the goal is proved by its parts
_LEAST_FOR_PARTS = 1_000_000


def certify(statement: Mapping[str, Any], effort: Effort | None = None) -> dict[str, Any]:
    """Returns a proof of a statement, replayed by the checker.

    Args:
        statement: The statement, as ``statement_of`` prints it.
        effort: The work that the search may do; that of one claim if None.

    Raises:
        NoProofError: No proof was found.
    """
    search = _Search(Effort.of(LIMITS.search_work) if effort is None else effort)
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


class _Search:
    def __init__(self, effort: Effort) -> None:
        self.replay = Replay()
        self.terms = self.replay.terms
        self.effort = effort
        self.solver = Solver()
        self._charged = 0
        self._have_residues_failed = False
        self.ranges = _MOST_RANGES
        self._open_signs: set[int] = set()
        self._used_equations: list[int] = []

    def charge(self) -> None:
        """Reports the work on the terms of the checker."""
        spend(self.terms.work - self._charged)
        self._charged = self.terms.work

    def spend(self) -> None:
        self.charge()
        self.effort.check()

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

    # --- steps -----------------------------------------------------------------------------------

    def refute_whole(self, facts: Facts, goal: Facts) -> Step:
        """Returns a step that refutes the facts: at once, else by what is shown of the parts."""
        effort = self.effort
        if effort.left < _LEAST_FOR_PARTS:
            return self._refute_conjuncts(facts, goal)
        self.effort = effort.portion(effort.left * _SHARE_AT_ONCE)
        try:
            return self._refute_conjuncts(facts, goal)
        except (NoProofError, OutOfEffort):
            self.effort = effort
            self.charge()
            return refute_by_parts(self, facts, goal)

    def _refute_conjuncts(self, facts: Facts, goal: Facts) -> Step:
        """A step that refutes all facts together, or each part of a negated conjunction."""
        try:
            return self.refute(facts)
        except NoProofError:
            clauses = [fact for fact in goal if self.terms.nodes[fact][0] == "or"]
            if not clauses:
                raise
            parts = self.terms.nodes[clauses[0]][1]
            steps = [self.refute(self.replay.knowing(facts, part), 1) for part in parts]
            return ["cases", facts.index(clauses[0]), steps]

    def refute_at_once(
        self, facts: Facts, factors: Sequence[tuple[Polynomial, ...]], *, with_lemmas: bool
    ) -> Step:
        """Returns a step that refutes the facts by products, choices as they are."""
        lemmas = self._lemmas_about(facts) if with_lemmas else {}
        prefix, cleared_facts, _ = self._clear_quotients(facts)
        return _after(prefix, self._with_lemmas(cleared_facts, 0, lemmas, factors))

    def refute(self, facts: Facts, depth: int = 0) -> Step:
        """Returns a step that refutes the facts."""
        self.spend()
        # The checker recurses once for each step, and Python's stack holds about 1000 frames.
        if depth > 60:
            raise NoProofError("it splits too deep")
        boxes = Boxes(self.replay, facts)
        # The cheapest steps first: what one interval or one equation decides needs no z3.
        end = boxes.contradiction()
        if end is not None:
            return end
        simple, step = boxes.decide_choices()
        if step is not None:
            return [*step, self.refute(simple, depth + 1)]
        rewritten = self._by_equation(facts, depth)
        if rewritten is not None:
            return rewritten
        rounding_step = self._by_rounding(facts, depth)
        if rounding_step is not None:
            return rounding_step
        equation = self._by_integer_equations(facts) or self._by_opposite_bounds(facts, depth)
        if equation is not None:
            return equation
        vanishing = self._by_vanishing_sums(facts, depth) or self._by_vanishing_power(facts, depth)
        if vanishing is not None:
            return vanishing
        ranges = self._by_ranges(facts, depth)
        if ranges is not None:
            return ranges
        difference = self._by_integer_difference(facts, depth)
        if difference is not None:
            return difference
        try:
            choice = self._innermost_choice(facts)
            if choice is not None:
                return self._by_choice(facts, choice, depth)
            return self._by_order(facts, depth)
        except NoProofError:
            residues = self._by_residues(facts, depth)
            if residues is None:
                raise
            return residues

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

    def _by_residues(self, facts: Facts, depth: int) -> Step | None:
        """The only symbol, an integer, by its residues, where floors repeat with a period."""
        nodes = self.terms.nodes
        below = self._below(facts)
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
            steps = [self.refute(case, depth + 1) for case in cases]
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

    def _below(self, facts: Iterable[int]) -> list[int]:
        """The terms in facts, arguments first, without those inside of opaque functions."""
        nodes = self.terms.nodes
        terms = set(facts)
        pending = list(terms)
        while pending:
            op, args, _ = nodes[pending.pop()]
            if op != "opaque":
                pending += (arg for arg in args if arg not in terms)
                terms.update(args)
        return sorted(terms)

    def _by_choice(self, facts: Facts, choice: int, depth: int) -> Step:
        alternatives = self.terms.alternatives(choice)
        for number, (condition, value) in enumerate(alternatives):
            if all(self.replay.entails(facts, p) for p in self.replay.knowing((), condition)):
                rest = self.replay._replace_terms(facts, {choice: value}, condition)
                return ["choose", Place(choice), number, self.refute(rest, depth + 1)]
        # A condition that is known to be false would be split on for ever.
        condition = next(
            condition
            for condition, _ in alternatives
            if not self.replay.entails(facts, self.terms.negate(condition))
        )
        truths = [condition, self.terms.negate(condition)]
        steps = []
        for truth in truths:
            more_facts = self.replay.knowing(facts, truth)
            steps.append(self.close(more_facts) or self.refute(more_facts, depth + 1))
        return ["split", Place(condition), *steps]

    def close(self, facts: Facts, degree: int = 1) -> Step | None:
        """Returns a step that refutes the facts by the order of products of a degree, or None."""
        end = Boxes(self.replay, facts).contradiction()
        if end is not None:
            return end
        return self._combine_facts(facts, self._literals(facts), degree)

    def _combine_facts(
        self,
        facts: Facts,
        literals: Sequence[tuple[int, Literal]],
        degree: int,
        bases: Sequence[Polynomial] = (),
    ) -> Step | None:
        """The combination of some facts that is 0 > 0, if there is one."""
        self.spend()
        combination = combine(self.solver, literals, self.effort, degree, bases)
        return None if combination is None else self._combination(combination, facts)

    def _innermost_choice(self, facts: Facts) -> int | None:
        nodes = self.terms.nodes
        holding: set[int] = set()
        for term in self._below(facts):
            op, args, _ = nodes[term]
            # Of an ite only the condition counts: choices in its branches are met after it is
            # decided.
            below = args[:1] if op == "ite" else args
            if op in CHOICES and not any(arg in holding for arg in below):
                return term
            if op in CHOICES or any(arg in holding for arg in args):
                holding.add(term)
        return None

    def _by_equation(self, facts: Facts, depth: int) -> Step | None:
        """A symbol replaced by what an equation says that it is."""
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
                rest = {m: -c / value for m, c in literal.form.items() if m != monomial}
                new = forms.term_of(rest)
                inside = self._below(f for f in facts if f != fact)
                # x = f(x) would be rewritten for ever, and a symbol of no other fact changes
                # nothing.
                if symbol in self.terms.below(new) or symbol not in inside:
                    continue
                more_facts = self.replay._replace_terms(facts, {symbol: new}, fact)
                # Not used again below this step, or a = b and b = a would alternate.
                self._used_equations.append(fact)
                try:
                    step = self.refute(more_facts, depth + 1)
                finally:
                    self._used_equations.pop()
                return ["rewrite", place, Place(symbol), Place(new), step]
        return None

    def _by_rounding(self, facts: Facts, depth: int) -> Step | None:
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
            return ["round", place, Place(truth), self.refute(more_facts, depth + 1)]
        return None

    def _by_integer_equations(self, facts: Facts) -> Step | None:
        """Two equations between integers whose difference is none: 2 a = t and 2 b + 1 = t."""
        forms, terms = self.replay.forms, self.terms
        literals = [literal for _, literal in self._literals(facts) if literal.relation == "="]
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
                step = self._combine_facts(negation, self._literals(negation), 1)
                more_facts = self.replay.knowing(facts, truth)
                rounded_truth = terms.less_equal(terms.rational(0), forms.term_of(bound.form))
                rounded_facts = self.replay.knowing(more_facts, rounded_truth)
                end = self._combine_facts(rounded_facts, self._literals(rounded_facts), 1)
                if step is None or end is None:
                    continue
                rounding = ["round", more_facts.index(truth), Place(rounded_truth), end]
                return ["split", Place(truth), rounding, step]
        return None

    def _by_integer_difference(self, facts: Facts, depth: int) -> Step | None:
        """The order of two integers that are not equal, where only one of them can be below."""
        for place, literal in self._literals(facts):
            scale = content(literal.form)
            whole = {monomial: value / scale for monomial, value in literal.form.items()}
            if literal.relation != "!=" or not self.replay.forms.is_whole(whole):
                continue
            sides = self._alternatives(facts[place])
            if any(self.replay.entails(facts, side) for side in sides):
                continue
            closing_steps = [self.close(self.replay.knowing(facts, side)) for side in sides]
            if closing_steps == [None, None]:
                continue
            steps = [
                step or self.refute(self.replay.knowing(facts, side), depth + 1)
                for side, step in zip(sides, closing_steps, strict=True)
            ]
            return ["differ", place, *steps]
        return None

    def _by_opposite_bounds(self, facts: Facts, depth: int) -> Step | None:
        """The equation of two numbers neither of which is above the other one."""
        forms, terms = self.replay.forms, self.terms
        seen: set[Any] = set()
        for _, literal in self._literals(facts):
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
            step = self.show(facts, equation)
            if step is not None:
                more_facts = self.replay.knowing(facts, equation)
                return ["split", Place(equation), self.refute(more_facts, depth + 1), step]
        return None

    def _by_vanishing_power(self, facts: Facts, depth: int) -> Step | None:
        """The base of a power that is 0, as an equation."""
        forms, terms = self.replay.forms, self.terms
        for _, literal in self._literals(facts):
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
                step = self._with_lemmas(opposite, depth, self._lemmas_about(opposite))
                more_facts = self.replay.knowing(facts, equation)
                return ["split", Place(equation), self.refute(more_facts, depth + 1), step]
        return None

    def _by_vanishing_sums(self, facts: Facts, depth: int) -> Step | None:
        """A symbol that is 0, since a sum of squares and numbers >= 0 with it is not above 0."""
        forms, terms = self.replay.forms, self.terms
        for _, literal in self._literals(facts):
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
                step = self.show(facts, equation, degree=2)
                if step is not None:
                    more_facts = self.replay.knowing(facts, equation)
                    return ["split", Place(equation), self.refute(more_facts, depth + 1), step]
        return None

    def show(self, facts: Facts, truth: int, degree: int = 1) -> Step | None:
        """Returns a step that proves a relation by products of a degree, or None."""
        negation = self.terms.negate(truth)
        more_facts = self.replay.knowing(facts, negation)
        if self.terms.nodes[negation][0] != "not":
            return self.close(more_facts, degree)
        left, right = self.terms.nodes[truth][1]
        steps: list[Any] = []
        for side in (self.terms.less(left, right), self.terms.less(right, left)):
            step = self.close(self.replay.knowing(more_facts, side), degree)
            if step is None:
                return None
            steps.append(step)
        return ["differ", more_facts.index(negation), *steps]

    # --- one integer -----------------------------------------------------------------------------

    def _by_ranges(self, facts: Facts, depth: int) -> Step | None:
        """The ranges of the only symbol, an integer, between the steps where choices change."""
        nodes = self.terms.nodes
        below = self._below(facts)
        symbols = [term for term in below if nodes[term][0] == "symbol"]
        if len(symbols) != 1 or not nodes[symbols[0]][2][1]:  # type: ignore[index]
            return None
        symbol = symbols[0]
        low, high = self._bounds(facts, symbol)
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
            # What floors say of a symbol is bounded by their order, but told by its values.
            if high is not None and high - low < _MOST_STEPS:
                ends = list(range(low, high))
            elif self._is_of_integers(below):
                with contextlib.suppress(NoProofError):
                    residues = self._by_residues(facts, depth)
                    if residues is not None:
                        return residues
        if not ends:
            if high is None:
                return None
            # One range without choices: by its order, else in two halves.
            # Halves double the cases; an argument by order is one case, if there is one.
            if self._innermost_choice(facts) is None and high - low > 3:
                try:
                    return self._by_order(facts, depth)
                except NoProofError:
                    pass
            is_short = high - low < _MOST_STEPS
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
            steps.append(self.refute(more_facts, depth + (not is_split)))
        return ["range", Place(symbol), ends, steps]

    def _bounds(self, facts: Facts, symbol: int) -> tuple[int | None, int | None]:
        from closedform.verify.checker.intervals import integer_bounds

        return integer_bounds(self.replay, facts, symbol)

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

    # --- order -----------------------------------------------------------------------------------

    def _literals(self, facts: Iterable[int]) -> list[tuple[int, Literal]]:
        pairs = ((place, self.replay.literal(fact)) for place, fact in enumerate(facts))
        return [(place, literal) for place, literal in pairs if literal is not None]

    def _by_order(self, facts: Facts, depth: int) -> Step:
        prefix, cleared_facts, sign = self._clear_quotients(facts)
        if sign is not None:
            divisor, literal = sign
            step = self._with_sign(cleared_facts, divisor, literal, depth)
            if step is not None:
                return _after(prefix, step)
        quick = self.close(cleared_facts)
        return _after(prefix, quick or self._with_lemmas(cleared_facts, depth))

    def _with_lemmas(
        self,
        facts: Facts,
        depth: int,
        lemmas: Mapping[int, tuple[tuple[int, ...], int]] | None = None,
        factors: Sequence[tuple[Polynomial, ...]] = (),
    ) -> Step:
        """A contradiction of facts and lemmas, chosen by z3."""
        lemmas = self._lemmas_about(facts) if lemmas is None else lemmas
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
        return _after([*prefix, *more], step)

    def _by_cases(
        self, facts: Facts, relevant: set[int], products: Sequence[Product], depth: int
    ) -> Step:
        """A contradiction of the wanted facts: disjunctions by cases, the fewest first."""
        self.spend()
        end = Boxes(self.replay, facts).contradiction()
        if end is not None:
            return end
        prefix, facts, relevant = self._round_facts(facts, relevant)
        if prefix:
            return _after(prefix, self._by_cases(facts, relevant, products, depth))
        literals = [
            (place, literal) for place, literal in self._literals(facts) if facts[place] in relevant
        ]
        nodes = self.terms.nodes
        clauses = [fact for fact in facts if fact in relevant and nodes[fact][0] == "or"]
        differences = [place for place, literal in literals if literal.relation == "!="]
        is_end = not clauses and not differences
        if is_end and products:
            end, open_truth = self._by_products(facts, products)
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
        end = self._combine_facts(facts, literals, 3 if is_end else 1, bases)
        if end is not None:
            return end
        if is_end:
            raise NoProofError("no combination of its facts is a contradiction")
        best: tuple[int, int, list[Step | None]] | None = None
        for fact in (*clauses, *(facts[place] for place in differences)):
            alternatives = self._alternatives(fact)
            closing_steps = [self._closed_by(facts, relevant, part) for part in alternatives]
            count = sum(step is None for step in closing_steps)
            if best is None or count < best[0]:
                best = count, fact, closing_steps
            # At most one alternative stays open: the split does not branch the search.
            if count <= 1:
                break
        if differences and best is not None and best[0] > 1:
            end = self._combine_facts(facts, literals, 2, self._bases(facts))
            if end is not None:
                return end
            best = 2, facts[differences[0]], [None, None]
        open_count, fact, closing_steps = cast("tuple[int, int, list[Step | None]]", best)
        steps = []
        for part, step in zip(self._alternatives(fact), closing_steps, strict=True):
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

    def _alternatives(self, fact: int) -> Sequence[int]:
        """The parts of a disjunction, or the orders of two numbers that are not equal."""
        op, args, _ = self.terms.nodes[fact]
        if op == "or":
            return args
        left, right = self.terms.nodes[args[0]][1]
        return self.terms.less(left, right), self.terms.less(right, left)

    def _narrow(
        self, facts: Facts, relevant: set[int], products: Sequence[Product]
    ) -> tuple[set[int], Sequence[Product]]:
        """The truths and products of a core that one of its cases still needs."""
        truths = [fact for fact in facts if fact in relevant]
        core = narrow_core(self.replay, self.solver, truths, products, self.effort)
        return (relevant, products) if core is None else (set(core.truths), core.products)

    def _by_products(
        self, facts: Facts, products: Sequence[Product]
    ) -> tuple[Step | None, int | None]:
        """A contradiction of the facts and the products whose premises follow from them.

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
                    step = self.close(self.replay.knowing(facts, self.terms.negate(truth)))
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
        self.spend()
        combination = combine(self.solver, self._literals(facts), self.effort, 1, columns=columns)
        if combination is None:
            return None, open_truth
        step = self._combination(combination, facts)
        for truth, refutation in reversed(prefix):
            step = ["split", Place(truth), step, refutation]
        return step, None

    def _is_decided(self, facts: Facts, truth: int) -> bool:
        """Whether a relation is a fact or refuted by facts."""
        return (
            self.terms.nodes[truth][0] == "="
            or self.close(self.replay.knowing(facts, truth)) is not None
        )

    def _truth_of(self, literal: Literal) -> int:
        """A relation as a term."""
        zero, number = self.terms.rational(0), self.replay.forms.term_of(literal.form)
        makers = {">": self.terms.less, ">=": self.terms.less_equal, "=": self.terms.equal}
        return makers[literal.relation](zero, number)

    def _place_of(self, facts: Facts, premise: Literal) -> int | None:
        """The place of a fact that is a relation, or a stricter one of the same number."""
        truth = self._truth_of(premise)
        for place, literal in self._literals(facts):
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

    def _closed_by(self, facts: Facts, relevant: set[int], part: int) -> Step | None:
        more_facts = self.replay.knowing(facts, part)
        end = Boxes(self.replay, more_facts).contradiction()
        if end is not None:
            return end
        parts = set(self.replay.knowing((), part))
        literals = [
            (place, literal)
            for place, literal in self._literals(more_facts)
            if more_facts[place] in relevant or more_facts[place] in parts
        ]
        return self._combine_facts(more_facts, literals, 1)

    def _combination(self, combination: Combination, facts: Facts) -> Step:
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
                no = self.close(opposite) or self._with_lemmas(opposite, depth)
            except NoProofError:
                continue
            self._open_signs.discard(divisor)
            yes = self.refute(self.replay.knowing(facts, sign), depth + 1)
            return ["split", Place(sign), yes, no]
        return None

    # --- z3 --------------------------------------------------------------------------------------

    def _lemmas_about(self, facts: Facts) -> dict[int, tuple[tuple[int, ...], int]]:
        """The lemmas about the functions in facts, each with its name."""
        lemmas: dict[int, tuple[tuple[int, ...], int]] = {}
        forms = self.replay.forms
        terms_before: list[int] = []
        seen_atoms: set[int] = set()
        pending = list(facts)
        # Lemmas mention further functions (a sine its cosine); one more round states lemmas
        # about these.
        for _ in range(2):
            atoms = self._atoms_in(pending) - seen_atoms
            seen_atoms |= atoms
            pending = []
            for atom in sorted(atoms):
                op = forms.atoms[atom][0]
                term = forms.terms_of_atoms[atom]
                if op not in _FUNCTIONS and op != "inv":
                    continue
                names: list[tuple[tuple[int, ...], int, int]] = [
                    ((term,), n, t) for n, t in enumerate(self.replay.lemmas.of(term))
                ]
                # Pairs grow with the square of the number of functions.
                for earlier in terms_before[:10]:
                    pair_of_ops = self.terms.nodes[earlier][0], self.terms.nodes[term][0]
                    is_of_one_op = pair_of_ops[0] == pair_of_ops[1] != "/"
                    if is_of_one_op or set(pair_of_ops) == {"^", "exp"}:
                        for pair in ((earlier, term), (term, earlier)):
                            try:
                                truths = self.replay.lemmas.of_pair(*pair)
                            except RejectedProofError:
                                continue
                            names += [
                                (pair, n, t)
                                for n, t in enumerate(truths)
                                if not self._extends(pair, t, seen_atoms)
                            ]
                terms_before.append(term)
                for about, number, truth in names:
                    if truth not in lemmas and len(lemmas) < _MOST_LEMMAS:
                        lemmas[truth] = about, number
                        pending.append(truth)
        return lemmas

    def _extends(self, pair: tuple[int, int], truth: int, atoms: set[int]) -> bool:
        """Whether a lemma about two cosines, or two powers of one exponent, has new functions.

        There is such a lemma about each pair: its functions would have lemmas in their turn.
        """
        nodes, forms = self.terms.nodes, self.replay.forms
        (op, left, _), (op_of_second, right, _) = nodes[pair[0]], nodes[pair[1]]
        are_powers = op == op_of_second == "^"
        is_product = op == "cospi" or (are_powers and forms.of(left[1]) == forms.of(right[1]))
        return is_product and not self._atoms_in([truth]) <= atoms

    def _atoms_in(self, truths: Iterable[int]) -> set[int]:
        """The atoms in the relations of some truths, and in the arguments of atoms."""
        forms = self.replay.forms
        atoms: set[int] = set()
        relations = list(truths)
        pending: list[Polynomial] = []
        while relations:
            truth = relations.pop()
            op, args, _ = self.terms.nodes[truth]
            literal = self.replay.literal(truth)
            if literal is not None:
                pending.append(literal.form)
            elif op in ("and", "or", "not"):
                relations += args
        while pending:
            for monomial in pending.pop():
                for atom, _ in monomial:
                    if atom not in atoms:
                        atoms.add(atom)
                        pending += forms.arguments[atom]
        return atoms

    def _core(
        self,
        facts: Facts,
        lemmas: Iterable[int],
        factors: Sequence[tuple[Polynomial, ...]] = (),
    ) -> Core | None:
        """The facts and lemmas that contradict each other; None if none are found to."""
        self.spend()
        truths = list(dict.fromkeys((*facts, *lemmas)))
        return find_core(
            self.replay, self.solver, truths, self._bases(truths), self.effort, factors
        )


def _after(prefix: Iterable[Step], step: Step) -> Step:
    """A step behind others, each of which has one next step."""
    for before in reversed(list(prefix)):
        step = [*before, step]
    return step
