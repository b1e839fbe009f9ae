"""Signs of the factors of facts: of one factor by the signs of the product and of the others.

``(a - b) c > 0`` with ``c > 0`` says ``a > b``. Each step is a split whose one side is refuted by a
product of facts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from flint import Ordering, fmpq, fmpq_mpoly_ctx

from closedform.verify.certification.steps import Place, Step
from closedform.verify.checker.polynomials import Polynomial, constant_of, plus, product
from closedform.verify.checker.replay import Facts, Replay

_MOST_ROUNDS = 24
_MOST_MONOMIALS = 120


@dataclass(frozen=True, slots=True)
class _Factor:
    """A factor with its exponent, and the fact that says its sign: its place and polynomial."""

    form: Polynomial
    exponent: int
    place: int | None = None
    fact_form: Polynomial | None = None
    sign: int = 0
    is_strict: bool = False


def factors_of(form: Polynomial) -> list[tuple[Polynomial, int]]:
    """Returns the irreducible factors of a polynomial that are not constant, with exponents."""
    atoms = sorted({atom for monomial in form for atom, _ in monomial})
    if not atoms:
        return []
    context = fmpq_mpoly_ctx.get([f"x{atom}" for atom in atoms], Ordering.lex)
    rows = {
        tuple(dict(monomial).get(atom, 0) for atom in atoms): value
        for monomial, value in form.items()
    }
    _, parts = context.from_dict(rows).factor()
    return [
        (
            {
                tuple((atom, int(e)) for atom, e in zip(atoms, exponents, strict=True) if e): value
                for exponents, value in part.to_dict().items()
            },
            int(exponent),
        )
        for part, exponent in parts
    ]


class Signs:
    """The facts with the signs of factors, until two exclude each other.

    Attributes:
        facts: The facts with those that were added.
    """

    def __init__(
        self, replay: Replay, facts: Facts, refute_quickly: Callable[[Facts], Step | None]
    ) -> None:
        self.replay = replay
        self.terms = replay.terms
        self.facts = facts
        self._refute_quickly = refute_quickly
        self._splits: list[tuple[Place, Step]] = []

    def before(self, step: Step) -> Step:
        """Returns a step behind the splits by which the facts were added."""
        for truth, refutation in reversed(self._splits):
            step = ["split", truth, step, refutation]
        return step

    def refute(self) -> Step | None:
        """Returns a step that refutes the facts; None where their factors do not."""
        done: set[int] = set()
        for _ in range(_MOST_ROUNDS):
            is_new = False
            for place, fact in enumerate(self.facts):
                literal = self.replay.literal(fact)
                if fact in done or literal is None or len(literal.form) > _MOST_MONOMIALS:
                    continue
                factors = [_Factor(*pair) for pair in factors_of(literal.form)]
                # A single factor to the power 1 is the fact itself.
                if len(factors) + sum(factor.exponent > 1 for factor in factors) < 2:
                    done.add(fact)
                    continue
                signed = [self._with_sign(factor) for factor in factors]
                step, added = self._learn(place, literal.relation, literal.form, signed)
                if step is not None:
                    return self.before(step)
                if added:
                    done.add(fact)
                    is_new = True
                    step = self._refute_quickly(self.facts)
                    if step is not None:
                        return self.before(step)
            if not is_new:
                return None
        return None

    def _with_sign(self, factor: _Factor) -> _Factor:
        """A factor with the fact that says its sign, which is added where it follows."""
        best = factor
        for place, fact in enumerate(self.facts):
            literal = self.replay.literal(fact)
            if literal is None or literal.relation == "!=":
                continue
            ratio = _ratio(literal.form, factor.form)
            if ratio is None or literal.relation == "=":
                continue
            is_strict = literal.relation == ">"
            if best.place is None or (is_strict and not best.is_strict):
                sign = 1 if ratio > 0 else -1
                best = replace(
                    factor, place=place, fact_form=literal.form, sign=sign, is_strict=is_strict
                )
        if best.is_strict:
            return best
        # Strict signs first: they make products strict, and imply the others.
        for sign, is_strict in ((1, True), (-1, True), (1, False), (-1, False)):
            if best.place is not None and not is_strict:
                break
            truth = self._sign_truth(factor.form, sign, is_strict)
            refutation = self._refute_quickly(self._with(self.terms.negate(truth)))
            if refutation is not None:
                self._add(truth, refutation)
                return self._signed(factor, self.facts, truth, sign, is_strict=is_strict)
        return best

    def _signed(
        self, factor: _Factor, facts: Facts, truth: int, sign: int, *, is_strict: bool
    ) -> _Factor:
        """A factor whose sign one of the facts says."""
        form = self.replay.relation(truth).form
        place = facts.index(truth)
        return replace(factor, place=place, fact_form=form, sign=sign, is_strict=is_strict)

    def _sign_truth(self, form: Polynomial, sign: int, is_strict: bool) -> int:
        make = self.terms.less if is_strict else self.terms.less_equal
        number = self.replay.forms.term_of(plus({}, form, sign))
        return make(self.terms.rational(0), number)

    def _with(self, truth: int) -> Facts:
        return self.replay.knowing(self.facts, truth)

    def _add(self, truth: int, refutation: Step) -> None:
        self._splits.append((Place(truth), refutation))
        self.facts = self._with(truth)

    # --- products --------------------------------------------------------------------------------

    def _learn(
        self, place: int, relation: str, form: Polynomial, factors: list[_Factor]
    ) -> tuple[Step | None, bool]:
        """A contradiction, or whether a fact about one factor was added."""
        open_factors = [
            factor
            for factor in factors
            if factor.exponent % 2 and not (factor.is_strict if relation != ">" else factor.sign)
        ]
        if relation in (">", ">=") and not open_factors:
            return self._product_step(place, form, factors), False
        if len(open_factors) != 1 or len(factors) < 2:
            return None, False
        (rest,) = open_factors
        if rest.exponent != 1 or relation == "!=":
            return None, False
        others = [factor for factor in factors if factor is not rest]
        if relation == "=":
            return None, self._learn_equation(place, form, rest, others)
        # The sign of the rest: that of the coefficient times the signs of the others.
        for sign in (1, -1):
            truth = self._sign_truth(rest.form, sign, relation == ">")
            if self.replay.entails(self.facts, truth):
                continue
            negation = self.terms.negate(truth)
            facts = self._with(negation)
            if negation not in facts:
                continue
            opposite = self._signed(rest, facts, negation, -sign, is_strict=relation == ">=")
            step = self._product_step(place, form, [*others, opposite])
            if step is not None:
                self._add(truth, step)
                return None, True
        return None, False

    def _learn_equation(
        self, place: int, form: Polynomial, rest: _Factor, others: list[_Factor]
    ) -> bool:
        terms = self.terms
        number, zero = self.replay.forms.term_of(rest.form), terms.rational(0)
        truth = terms.equal(number, zero)
        if self.replay.entails(self.facts, truth):
            return False
        facts = self._with(terms.negate(truth))
        steps = []
        for side, sign in ((terms.less(number, zero), -1), (terms.less(zero, number), 1)):
            side_facts = self.replay.knowing(facts, side)
            signed = self._signed(rest, side_facts, side, sign, is_strict=True)
            step = self._product_step(place, form, [*others, signed])
            if step is None:
                return False
            steps.append(step)
        self._add(truth, ["differ", facts.index(terms.negate(truth)), *steps])
        return True

    def _product_step(self, place: int, form: Polynomial, factors: list[_Factor]) -> Step | None:
        """A fact and the product of signs of its factors that add up to 0 > 0."""
        literal = self.replay.relation(self.facts[place])
        total: Polynomial = {(): fmpq(1)}
        facts: list[int] = []
        squares: list[Any] = []
        is_strict = True
        for factor in factors:
            for _ in range(factor.exponent // 2):
                squares.append(Place(self.replay.forms.term_of(factor.form)))
                total = product(total, product(factor.form, factor.form))
                is_strict = False
            if factor.exponent % 2:
                if factor.place is None or factor.fact_form is None:
                    return None
                facts.append(factor.place)
                total = product(total, factor.fact_form)
                is_strict = is_strict and factor.is_strict
        ratio = _ratio(total, form)
        if ratio is None:
            return None
        if literal.relation == "=":
            if not is_strict:
                return None
            number = self.replay.forms.term_of({(): -ratio})
            return ["combine", [["1", facts, squares]], [[place, Place(number)]]]
        if ratio > 0 or not (is_strict or literal.relation == ">"):
            return None
        # The product is ratio times the fact, and the ratio is below 0: -ratio fact + product is 0,
        # a sum of two numbers of which none is below 0 and one is above.
        return ["combine", [[str(-ratio), [place], []], ["1", facts, squares]], []]


def _ratio(form: Polynomial, factor: Polynomial) -> fmpq | None:
    """The number by which one polynomial is a multiple of another one, or None."""
    if len(form) != len(factor) or constant_of(factor) is not None:
        return None
    monomial = next(iter(factor))
    if monomial not in form:
        return None
    ratio = form[monomial] / factor[monomial]
    is_multiple = all(form.get(m) == value * ratio for m, value in factor.items())
    return ratio if is_multiple else None
