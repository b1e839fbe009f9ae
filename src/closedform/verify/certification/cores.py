"""The facts and lemmas that contradict each other, over polynomials.

z3 decides conjunctions and disjunctions of relations in which each monomial is a number of its own.
Where its model is none of polynomials, products of relations that exclude it are added: of
``x > 1`` and ``y > 1`` the relation ``x y - x - y + 1 > 0``. So z3 is asked linear questions only,
whose work it counts.

``x > 0``, ``x < 0 or y > 1``, ``x y < x`` is a core of all three.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from flint import fmpq

from closedform.effort import Effort, spend
from closedform.verify.certification.combinations import (
    combine,
    has_long_numbers,
    monomials_by_use,
    spend_units,
    units_of,
)
from closedform.verify.certification.factors import factors_of
from closedform.verify.checker.polynomials import (
    UNIT,
    Key,
    Monomial,
    Polynomial,
    constant_of,
    key_of,
    plus,
    power,
    product,
    times,
    whole_constant,
)
from closedform.verify.checker.replay import Literal, Replay
from closedform.verify.tactics.solver import z3

_MOST_ROUNDS = 40
_MOST_ADDED = 24
_MOST_UNITS = 500_000
_MOST_MONOMIALS = 400
_LEAST = 1e-9
"""A product that the model makes smaller than this part of its terms is violated."""


@dataclass(frozen=True, slots=True)
class Product:
    """A relation that holds where others do: a product of them.

    Attributes:
        premises: The inequalities or the equation that are multiplied.
        square: A number whose square is a factor, besides.
        factor: What an equation is multiplied by.
        conclusion: The relation of the product.
    """

    premises: tuple[Literal, ...]
    conclusion: Literal
    square: Polynomial | None = None
    factor: Polynomial | None = None


@dataclass(frozen=True, slots=True)
class Core:
    """Truths that contradict each other, by linear arithmetic with some products."""

    truths: list[int]
    products: list[Product]


def find_core(
    replay: Replay, truths: Sequence[int], bases: Iterable[Polynomial], effort: Effort
) -> Core | None:
    """Returns truths that contradict each other; None if no contradiction is found.

    Args:
        replay: The facts and rules of the checker.
        truths: Relations, conjunctions and disjunctions.
        bases: Numbers whose squares are not below 0, besides the monomials.
        effort: The work that it may do.
    """
    literals = [literal for truth in truths for literal in literals_in(replay, truth)]
    if has_long_numbers(literal.form for literal in literals):
        return None
    question = _Question(replay, effort)
    for truth in truths:
        question.add(truth)
    products = _Products(replay, truths, literals, tuple(bases))
    for _ in range(_MOST_ROUNDS):
        effort.check()
        core = question.core()
        if core is not None or question.values is None:
            return core
        violated = products.violated(question.values) or _combined(
            question.true_literals(), question.values, products.bases, effort
        )
        if not violated:
            return None
        for violated_product in violated:
            question.add_product(violated_product)
    return None


def _combined(
    literals: Sequence[Literal],
    values: dict[Monomial, float],
    bases: Sequence[Polynomial],
    effort: Effort,
) -> list[Product]:
    """The products of a combination that excludes the relations of a model."""
    combination = combine(list(enumerate(literals)), effort, 3, bases)
    products = []
    for _, column in combination.parts if combination is not None else ():
        premises = tuple(literals[place] for place in column.facts)
        if column.factor is not None:
            factor = {column.factor: fmpq(1)}
            conclusion = Literal("=", product(premises[0].form, factor))
            products.append(Product(premises, conclusion, factor=factor))
        elif len(premises) > 1 or column.square is not None:
            products.append(_product_of(premises, column.square))
    return [item for item in products if not _holds(item.conclusion, values)]


def literals_in(replay: Replay, truth: int) -> list[Literal]:
    """Returns the relations in a truth, those of integers rounded."""
    literal = replay.literal(truth)
    if literal is not None:
        return [replay.round_relation(literal) or literal]
    op, args, _ = replay.terms.nodes[truth]
    return [inner for arg in args if op in ("and", "or") for inner in literals_in(replay, arg)]


class _Question:
    """Truths over monomials as z3's, and its answer."""

    def __init__(self, replay: Replay, effort: Effort) -> None:
        self.replay = replay
        self.effort = effort
        self.values: dict[Monomial, float] | None = None
        self._context = z3.Context()
        self._solver = z3.SolverFor("QF_LRA", ctx=self._context)
        self._variables: dict[Monomial, Any] = {}
        self._truths: list[int] = []
        self._products: list[Product] = []
        self._units = 0

    def add(self, truth: int) -> None:
        """States a truth, which may be in a core."""
        self._solver.assert_and_track(self._truth(truth), f"truth {len(self._truths)}")
        self._truths.append(truth)

    def add_product(self, implied: Product) -> None:
        """States that the premises of a product imply its conclusion."""
        negated = [z3.Not(self._relation(premise)) for premise in implied.premises]
        implication = z3.Or(*negated, self._relation(implied.conclusion))
        self._solver.assert_and_track(implication, f"product {len(self._products)}")
        self._products.append(implied)

    def core(self) -> Core | None:
        """Returns truths that contradict each other; else ``values`` has a model, if there is."""
        self._solver.set("rlimit", units_of(self.effort, _MOST_UNITS))
        answer = self._solver.check()
        self._units = spend_units(self._solver, self._units)
        self.values = None
        if answer == z3.unsat:
            names = {str(name) for name in self._solver.unsat_core()}
            return Core(
                [truth for n, truth in enumerate(self._truths) if f"truth {n}" in names],
                [item for n, item in enumerate(self._products) if f"product {n}" in names],
            )
        if answer == z3.sat:
            model = self._solver.model()
            self.values = {UNIT: 1.0}
            for monomial, variable in self._variables.items():
                value = model.eval(variable, model_completion=True)
                number = fmpq(value.numerator_as_long(), value.denominator_as_long())
                self.values[monomial] = int(number.p) / int(number.q)
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

    def _is_true(self, truth: int, values: dict[Monomial, float]) -> bool:
        literal = self.replay.literal(truth)
        if literal is not None:
            return _holds(self.replay.round_relation(literal) or literal, values)
        op, args, _ = self.replay.terms.nodes[truth]
        parts = [self._is_true(arg, values) for arg in args]
        return all(parts) if op in ("and", "true") else any(parts)

    def _truth(self, truth: int) -> Any:
        literal = self.replay.literal(truth)
        if literal is not None:
            return self._relation(self.replay.round_relation(literal) or literal)
        op, args, _ = self.replay.terms.nodes[truth]
        if op in ("true", "false"):
            return z3.BoolVal(op == "true", self._context)
        parts = [self._truth(arg) for arg in args]
        return z3.And(*parts) if op == "and" else z3.Or(*parts)

    def _relation(self, literal: Literal) -> Any:
        form = self._form(literal.form)
        match literal.relation:
            case ">":
                return form > 0
            case ">=":
                return form >= 0
            case "=":
                return form == 0
            case _:
                return form != 0

    def _form(self, form: Polynomial) -> Any:
        spend(10 * len(form))
        parts = []
        for monomial, value in form.items():
            number = z3.RealVal(f"{value.p}/{value.q}", self._context)
            parts.append(number * self._variable(monomial) if monomial else number)
        return z3.Sum(parts) if parts else z3.RealVal(0, self._context)

    def _variable(self, monomial: Monomial) -> Any:
        if monomial not in self._variables:
            self._variables[monomial] = z3.Real(f"m{len(self._variables)}", self._context)
        return self._variables[monomial]


class _Products:
    """Products of relations, those first that speak of the monomials of the relations only."""

    def __init__(
        self,
        replay: Replay,
        truths: Sequence[int],
        literals: Iterable[Literal],
        bases: tuple[Polynomial, ...],
    ) -> None:
        by_form = {(lit.relation, key_of(lit.form)): lit for lit in literals}
        self._relations = list(by_form.values())
        self.bases = bases
        self._monomials = {m for literal in self._relations for m in literal.form} | {UNIT}
        self._groups = [
            factors
            for factors in (
                *_factors_of_terms(replay, truths),
                *_factors_of_forms(literal.form for literal in self._relations),
                *_differences(replay, self._monomials),
            )
            if len(factors.form) <= _MOST_MONOMIALS
        ]
        self._candidates = self._closed_products()
        self._widenings = [self._pairs_of_atoms, self._multiples_of_equations] * 2

    def violated(self, values: dict[Monomial, float]) -> list[Product]:
        """Returns products that a model violates, which are candidates no longer."""
        signed = [product for group in self._groups if (product := group.violated(values))]
        scored = []
        for place, candidate in enumerate(self._candidates):
            spend(len(candidate.conclusion.form))
            if not _holds(candidate.conclusion, values) and all(
                _holds(premise, values) for premise in candidate.premises
            ):
                scored.append((len(candidate.conclusion.form), place))
        chosen = {place for _, place in sorted(scored)[:_MOST_ADDED]}
        added = [self._candidates[place] for place in sorted(chosen)]
        self._candidates = [c for n, c in enumerate(self._candidates) if n not in chosen]
        if not signed and not added and self._widenings:
            self._widen(self._widenings.pop(0)())
            return self.violated(values)
        return [*signed, *added]

    def _widen(self, monomials: set[Monomial]) -> None:
        """Admits products with some more monomials."""
        if not monomials <= self._monomials:
            known = {key_of(candidate.conclusion.form) for candidate in self._candidates}
            self._monomials |= monomials
            self._candidates += [
                candidate
                for candidate in self._closed_products()
                if key_of(candidate.conclusion.form) not in known
            ]

    def _pairs_of_atoms(self) -> set[Monomial]:
        """The products of two atoms that stand in products of monomials."""
        atoms = {
            atom
            for monomial in self._monomials
            if sum(exponent for _, exponent in monomial) > 1
            for atom, _ in monomial
        }
        if len(atoms) > _MOST_PAIRED_ATOMS:
            return set()
        units = [((atom, 1),) for atom in sorted(atoms)]
        return {times(a, b) for a in units for b in units}

    def _multiples_of_equations(self) -> set[Monomial]:
        """The monomials of multiples of short equations that have a known one."""
        monomials: set[Monomial] = set()
        for equation in self._relations:
            if equation.relation != "=" or len(equation.form) > _MOST_OF_EQUATION:
                continue
            for multiplier in _multipliers(equation.form, self._monomials):
                monomials |= {times(monomial, multiplier) for monomial in equation.form}
            if len(monomials) > _MOST_NEW:
                break
        return monomials

    def _closed_products(self) -> list[Product]:
        """The products whose monomials are all known."""
        products = []
        varying = [
            literal
            for literal in self._relations
            if literal.relation in (">", ">=") and constant_of(literal.form) is None
        ]
        for place, left in enumerate(varying):
            for right in varying[place:]:
                if self._is_closed(left.form, right.form):
                    products.append(_product_of((left, right)))
        numbered = list(enumerate(self._relations))
        multipliers = monomials_by_use(numbered)
        for equation in self._relations:
            if equation.relation != "=":
                continue
            cancelling = _multipliers(equation.form, self._monomials)
            for monomial in dict.fromkeys((*cancelling, *multipliers)):
                factor = {monomial: fmpq(1)}
                if self._is_closed(equation.form, factor):
                    conclusion = Literal("=", product(equation.form, factor))
                    products.append(Product((equation,), conclusion, factor=factor))
        for base in (*self.bases, *({monomial: fmpq(1)} for monomial in multipliers)):
            if self._is_closed(base, base):
                products.append(_product_of((), base))
        spend(2 * sum(len(item.conclusion.form) for item in products))
        return products

    def _is_closed(self, left: Polynomial, right: Polynomial) -> bool:
        spend(1)
        if len(left) * len(right) > _MOST_MONOMIALS:
            return False
        return all(times(a, b) in self._monomials for a in left for b in right)


_MOST_PAIRED_ATOMS = 8
_MOST_OF_EQUATION = 4
_MOST_NEW = 120


def _multipliers(form: Polynomial, monomials: set[Monomial]) -> list[Monomial]:
    """Monomials by which one of a polynomial becomes a known one."""
    multipliers: dict[Monomial, None] = {}
    for divisor in form:
        spend(len(monomials))
        for monomial in sorted(monomials) if divisor else ():
            exponents = dict(monomial)
            for atom, exponent in divisor:
                exponents[atom] = exponents.get(atom, 0) - exponent
            if monomial != divisor and min(exponents.values()) >= 0:
                multipliers[tuple((atom, e) for atom, e in sorted(exponents.items()) if e)] = None
    return [*multipliers][:16]


def _product_of(premises: tuple[Literal, ...], square: Polynomial | None = None) -> Product:
    form = {UNIT: fmpq(1)} if square is None else product(square, square)
    for premise in premises:
        form = product(form, premise.form)
    is_strict = square is None and all(premise.relation == ">" for premise in premises)
    return Product(premises, Literal(">" if is_strict else ">=", form), square)


@dataclass(frozen=True, slots=True)
class _Factors:
    """A product as it is written in a term: numbers, and one whose square is a factor."""

    numbers: tuple[Polynomial, ...]
    square: Polynomial | None
    form: Polynomial

    def violated(self, values: dict[Monomial, float]) -> Product | None:
        """Returns the product by the signs of its factors that a model violates, or None."""
        spend(len(self.form))
        total = _value_of(self.form, values)
        signs = [_sign_of(number, values) for number in self.numbers]
        if 0 in signs:
            # Then the product is 0: of one such factor the sign is said that excludes the model.
            place = signs.index(0)
            signs = [sign or 1 for sign in signs]
            signs[place] = math.prod(signs) * (-1 if total > 0 else 1)
        premises = [
            Literal(">=" if _sign_of(number, values) == 0 else ">", plus({}, number, sign))
            for number, sign in zip(self.numbers, signs, strict=True)
        ]
        candidate = _product_of(tuple(premises), self.square)
        return None if _holds(candidate.conclusion, values) else candidate


def _factors_of_terms(replay: Replay, truths: Sequence[int]) -> Iterator[_Factors]:
    """The products below some truths that are not monomials."""
    forms, nodes = replay.forms, replay.terms.nodes
    for term in replay.terms.below(*truths):
        op, args, _ = nodes[term]
        if op != "*":
            continue
        numbers: list[Polynomial] = []
        square: Polynomial | None = None
        for arg in args:
            base = forms.of(arg)
            inner, inner_args, _ = nodes[arg]
            if constant_of(base) is not None:
                continue
            if inner == "^" and whole_constant(forms.of(inner_args[1])) == 2 and square is None:
                square = forms.of(inner_args[0])
            else:
                numbers.append(base)
        if len(numbers) + (square is not None) > 1:
            form = {UNIT: fmpq(1)} if square is None else product(square, square)
            for number in numbers:
                form = product(form, number)
            yield _Factors(tuple(numbers), square, form)


def _factors_of_forms(forms: Iterable[Polynomial]) -> Iterator[_Factors]:
    """The factors of some polynomials that have more than one."""
    for form in forms:
        if len(form) > _MOST_FACTORED or all(len(m) < 2 and sum(e for _, e in m) < 2 for m in form):
            continue
        spend(20 * len(form))
        factors = factors_of(form)
        numbers = tuple(factor for factor, exponent in factors if exponent % 2)
        square: Polynomial | None = None
        for factor, exponent in factors:
            if exponent > 1:
                square = product(square or {UNIT: fmpq(1)}, power(factor, exponent // 2))
        if len(numbers) + (square is not None) > 1:
            total = {UNIT: fmpq(1)} if square is None else product(square, square)
            for number in numbers:
                total = product(total, number)
            yield _Factors(numbers, square, total)


_MOST_FACTORED = 60
_MOST_DIFFERENCES = 300


def _differences(replay: Replay, monomials: set[Monomial]) -> Iterator[_Factors]:
    """Products ``a x - a y`` of known monomials, of integers also ``a x - a y - a`` and with + a.

    They say that a multiplication by a number above 0 keeps an order.
    """
    cofactors: dict[int, list[Monomial]] = {}
    for monomial in sorted(monomials):
        for atom, exponent in monomial:
            rest = tuple((a, e - (a == atom)) for a, e in monomial if e > (a == atom))
            if rest in monomials and len(monomial) + exponent > 2:
                cofactors.setdefault(atom, []).append(rest)
    count = 0
    for atom, rests in sorted(cofactors.items()):
        number: Polynomial = {((atom, 1),): fmpq(1)}
        for left, right in itertools.combinations(rests, 2):
            difference = {left: fmpq(1), right: fmpq(-1)}
            is_whole = UNIT not in difference and replay.forms.is_whole(difference)
            shifts = (0, 1, -1) if is_whole and ((atom, 1),) in monomials else (0,)
            for shift in shifts:
                factor = plus(difference, {UNIT: fmpq(1)}, shift) if shift else difference
                count += 1
                if count > _MOST_DIFFERENCES:
                    return
                yield _Factors((number, factor), None, product(number, factor))


def _holds(literal: Literal, values: dict[Monomial, float]) -> bool:
    """Whether a relation holds for the values of monomials, but for rounding."""
    sign = _sign_of(literal.form, values)
    return {"=": sign == 0, "!=": sign != 0, ">": sign > 0, ">=": sign >= 0}[literal.relation]


def _value_of(form: Polynomial, values: dict[Monomial, float]) -> float:
    return sum(float(number) * values.get(monomial, 0.0) for monomial, number in form.items())


def _sign_of(form: Polynomial, values: dict[Monomial, float]) -> int:
    """The sign of a polynomial for values of monomials; 0 within rounding."""
    parts = [float(number) * values.get(monomial, 0.0) for monomial, number in form.items()]
    total = sum(parts)
    if abs(total) <= _LEAST * sum(map(abs, parts)):
        return 0
    return 1 if total > 0 else -1
