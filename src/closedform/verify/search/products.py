"""Products of relations that exclude a model in which each monomial is one number.

Of ``x > 1`` and ``y > 1`` the relation ``x y - x - y + 1 > 0``, of ``x = y`` the relation
``x z = y z``, of any number its square. A product is a candidate where all of its monomials are
known; candidates that a model violates are added.

The relations ``x > 0``, ``y > 0``, ``x y < 0`` with the model x = 1, y = 1, x y = -1 give
``x > 0 and y > 0 => x y > 0``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from flint import Ordering, fmpq, fmpq_mpoly_ctx

from closedform.effort import spend
from closedform.verify.checker.polynomials import (
    UNIT,
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
from closedform.verify.search.combinations import monomials_by_use, quotient_of

# Bounds of what is tried; beyond them a core is not found.
_MOST_ADDED = 24  # products that are added in one round
_MOST_MONOMIALS = 400  # of a product
_MOST_FACTORED = 60  # monomials of a polynomial that is factored
_MOST_DIFFERENCES = 300
_MOST_PAIRED_ATOMS = 8
_MOST_OF_EQUATION = 4  # monomials of an equation that is multiplied by further ones
_MOST_NEW = 120  # monomials of such multiples


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
    factor: Monomial | None = None


class Products:
    """Products of relations, those first that speak of the monomials of the relations only."""

    def __init__(
        self,
        replay: Replay,
        truths: Sequence[int],
        literals: Iterable[Literal],
        bases: tuple[Polynomial, ...],
        factors: Sequence[tuple[Polynomial, ...]] = (),
    ) -> None:
        by_form = {(lit.relation, key_of(lit.form)): lit for lit in literals}
        self._relations = list(by_form.values())
        self.bases = bases
        self._monomials = {m for literal in self._relations for m in literal.form} | {UNIT}
        self._groups = [
            group
            for group in (
                *map(_Factors.of, factors),
                *_factors_of_terms(replay, truths),
                *_factors_of_forms(literal.form for literal in self._relations),
                *_conjugates(replay, (literal.form for literal in self._relations)),
                *_differences(replay, self._monomials),
            )
            if len(group.form) <= _MOST_MONOMIALS
        ]
        self._cofactors: dict[Monomial, set[Monomial]] = {}
        self._known_products: set[tuple[str, int, Monomial | int]] = set()
        self._candidates = [*self._closed_products()]
        # Where no candidate excludes a model, these list more, the most useful first. Products of
        # three are for goals by parts: in each case of a choice they cost more than they find.
        self._extensions = [
            *([self._closed_triples] if factors else []),
            *[self._pairs_of_atoms, self._multiples_of_equations] * 2,
        ]

    def against(self, values: dict[Monomial, fmpq]) -> list[Product]:
        """Returns products that a model violates, which are candidates no longer."""
        signed = [item for group in self._groups if (item := group.product_against(values))]
        scored = []
        for place, candidate in enumerate(self._candidates):
            if not holds(candidate.conclusion, values) and all(
                holds(premise, values) for premise in candidate.premises
            ):
                scored.append((len(candidate.conclusion.form), place))
        chosen = {place for _, place in sorted(scored)[:_MOST_ADDED]}
        new_products = [self._candidates[place] for place in sorted(chosen)]
        self._candidates = [c for n, c in enumerate(self._candidates) if n not in chosen]
        if not signed and not new_products and self._extensions:
            self._candidates += self._extensions.pop(0)()
            return self.against(values)
        return [*signed, *new_products]

    def _products_with(self, monomials: set[Monomial]) -> Iterator[Product]:
        """The products with some more monomials."""
        if not monomials <= self._monomials:
            self._monomials |= monomials
            self._cofactors.clear()
            yield from self._closed_products()

    def _pairs_of_atoms(self) -> Iterator[Product]:
        """The products with two atoms that stand in products of monomials."""
        atoms = {
            atom
            for monomial in self._monomials
            if sum(exponent for _, exponent in monomial) > 1
            for atom, _ in monomial
        }
        if len(atoms) > _MOST_PAIRED_ATOMS:
            return iter(())
        units = [((atom, 1),) for atom in sorted(atoms)]
        return self._products_with({times(a, b) for a in units for b in units})

    def _multiples_of_equations(self) -> Iterator[Product]:
        """The products with the monomials of multiples of short equations that have a known one."""
        monomials: set[Monomial] = set()
        for equation in self._relations:
            if equation.relation != "=" or len(equation.form) > _MOST_OF_EQUATION:
                continue
            for multiplier in _multipliers(equation.form, self._monomials):
                monomials |= {times(monomial, multiplier) for monomial in equation.form}
            if len(monomials) > _MOST_NEW:
                break
        return self._products_with(monomials)

    def _closed_products(self) -> Iterator[Product]:
        """The products whose monomials are all known, and were not when they were last listed."""
        pairs = itertools.combinations_with_replacement(enumerate(self._inequalities()), 2)
        for (i, left), (j, right) in pairs:
            if self._is_new(("pair", i, j), left.form, right.form):
                yield product_of((left, right))
        frequent = monomials_by_use(list(enumerate(self._relations)))
        for i, equation in enumerate(self._relations):
            if equation.relation != "=":
                continue
            cancelling = _multipliers(equation.form, self._monomials)
            for monomial in dict.fromkeys((*cancelling, *frequent)):
                if self._is_new(("multiple", i, monomial), equation.form, {monomial: fmpq(1)}):
                    yield multiple_of(equation, monomial)
        for i, base in enumerate((*self.bases, *({monomial: fmpq(1)} for monomial in frequent))):
            if self._is_new(("square", i, i), base, base):
                yield product_of((), base)

    def _inequalities(self) -> list[Literal]:
        return [
            literal
            for literal in self._relations
            if literal.relation in (">", ">=") and constant_of(literal.form) is None
        ]

    def _closed_triples(self) -> Iterator[Product]:
        """The products of three inequalities whose monomials are all known."""
        inequalities = self._inequalities()
        by_monomial: dict[Monomial, list[int]] = {}
        for k, third in enumerate(inequalities):
            by_monomial.setdefault(min(third.form), []).append(k)
        pairs = itertools.combinations_with_replacement(enumerate(inequalities), 2)
        for (_, left), (j, right) in pairs:
            cofactors = self._common_cofactors(left.form, right.form)
            thirds = sorted(k for m in cofactors for k in by_monomial.get(m, ()) if k >= j)
            spend(2 + len(thirds))
            for k in thirds:
                third = inequalities[k]
                if cofactors.issuperset(third.form):
                    yield product_of((left, right, third))

    def _common_cofactors(self, left: Polynomial, right: Polynomial) -> set[Monomial]:
        """The monomials whose product with each monomial of a product is known."""
        common: set[Monomial] | None = None
        for a, b in itertools.product(left, right):
            cofactors = self._cofactors_of(times(a, b))
            common = cofactors if common is None else common & cofactors
            if not common:
                break
        return common or set()

    def _is_new(
        self, name: tuple[str, int, Monomial | int], left: Polynomial, right: Polynomial
    ) -> bool:
        """Whether the monomials of a product are known, which has not been listed."""
        spend(2)
        if len(left) * len(right) > _MOST_MONOMIALS or name in self._known_products:
            return False
        if not all(self._cofactors_of(monomial).issuperset(right) for monomial in left):
            return False
        self._known_products.add(name)
        return True

    def _cofactors_of(self, divisor: Monomial) -> set[Monomial]:
        """The monomials whose product with one is known."""
        if divisor not in self._cofactors:
            spend(len(self._monomials))
            quotients = (quotient_of(monomial, divisor) for monomial in self._monomials)
            self._cofactors[divisor] = {q for q in quotients if q is not None}
        return self._cofactors[divisor]


def _multipliers(form: Polynomial, monomials: set[Monomial]) -> list[Monomial]:
    """Monomials by which one of a polynomial becomes a known one."""
    multipliers: dict[Monomial, None] = {}
    for divisor in form:
        spend(len(monomials))
        for monomial in sorted(monomials) if divisor else ():
            quotient = quotient_of(monomial, divisor)
            if quotient is not None and monomial != divisor:
                multipliers[quotient] = None
    return [*multipliers][:16]


def product_of(premises: tuple[Literal, ...], square: Polynomial | None = None) -> Product:
    """Returns the product of some inequalities and of a square."""
    spend(10)
    form = {UNIT: fmpq(1)} if square is None else product(square, square)
    for premise in premises:
        form = product(form, premise.form)
    is_strict = square is None and all(premise.relation == ">" for premise in premises)
    return Product(premises, Literal(">" if is_strict else ">=", form), square)


def multiple_of(equation: Literal, monomial: Monomial) -> Product:
    """Returns an equation times a monomial."""
    conclusion = Literal("=", product(equation.form, {monomial: fmpq(1)}))
    return Product((equation,), conclusion, factor=monomial)


@dataclass(frozen=True, slots=True)
class _Factors:
    """A product as it is written in a term: numbers, and one whose square is a factor."""

    numbers: tuple[Polynomial, ...]
    square: Polynomial | None
    form: Polynomial

    @classmethod
    def of(cls, numbers: tuple[Polynomial, ...]) -> _Factors:
        """Returns the product of some numbers."""
        form = {UNIT: fmpq(1)}
        for number in numbers:
            form = product(form, number)
        return cls(numbers, None, form)

    def product_against(self, values: dict[Monomial, fmpq]) -> Product | None:
        """Returns the product by the signs of its factors that a model violates, or None."""
        total = _value_of(self.form, values)
        signs = [_sign_of(number, values) for number in self.numbers]
        is_strict = self.square is None and 0 not in signs
        relations = [">" if sign else ">=" for sign in signs]
        if 0 in signs:
            # Then the product is 0: of one such factor the sign is said that excludes the model.
            place = signs.index(0)
            signs = [sign or 1 for sign in signs]
            signs[place] = math.prod(signs) * (-1 if total > 0 else 1)
        value = math.prod(signs) * total
        if value > 0 or (value == 0 and not is_strict):
            return None
        premises = [
            Literal(relation, plus({}, number, sign))
            for relation, number, sign in zip(relations, self.numbers, signs, strict=True)
        ]
        return product_of(tuple(premises), self.square)


def _factors_of_terms(replay: Replay, truths: Sequence[int]) -> Iterator[_Factors]:
    """The products of several numbers below some truths."""
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
        factors = _factors_of(form)
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


def _factors_of(form: Polynomial) -> list[tuple[Polynomial, int]]:
    """The irreducible factors of a polynomial that are not constant, with exponents."""
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


def _conjugates(replay: Replay, forms: Iterable[Polynomial]) -> Iterator[_Factors]:
    """Differences of two products of square roots times their sums: ``(x - y) (x + y)``."""
    for form in forms:
        numbers = [*form.values()]
        if len(form) != 2 or numbers[0] * numbers[1] > 0 or not _has_square_root(replay, form):
            continue
        conjugate = {monomial: abs(number) for monomial, number in form.items()}
        yield _Factors.of((form, conjugate))


def _has_square_root(replay: Replay, form: Polynomial) -> bool:
    forms = replay.forms
    return any(
        forms.atoms[atom][0] == "^"
        and constant_of(forms.arguments[atom][1]) == fmpq(1, 2)
        and exponent == 1
        for monomial in form
        for atom, exponent in monomial
    )


def _differences(replay: Replay, monomials: set[Monomial]) -> Iterator[_Factors]:
    """Products ``a x - a y`` of known monomials, of integers also ``a x - a y - a`` and with + a.

    They say that a multiplication by a number above 0 keeps an order.
    """
    cofactors: dict[int, list[Monomial]] = {}
    for monomial in sorted(monomials):
        for atom, exponent in monomial:
            cofactor = tuple((a, e - (a == atom)) for a, e in monomial if e > (a == atom))
            if cofactor in monomials and len(monomial) + exponent > 2:
                cofactors.setdefault(atom, []).append(cofactor)
    count = 0
    for atom, factors in sorted(cofactors.items()):
        number: Polynomial = {((atom, 1),): fmpq(1)}
        for left, right in itertools.combinations(factors, 2):
            difference = {left: fmpq(1), right: fmpq(-1)}
            is_whole = UNIT not in difference and replay.forms.is_whole(difference)
            shifts = (0, 1, -1) if is_whole and ((atom, 1),) in monomials else (0,)
            for shift in shifts:
                factor = plus(difference, {UNIT: fmpq(1)}, shift) if shift else difference
                count += 1
                if count > _MOST_DIFFERENCES:
                    return
                yield _Factors((number, factor), None, product(number, factor))


def holds(literal: Literal, values: dict[Monomial, fmpq]) -> bool:
    """Returns whether a relation holds for the values of monomials."""
    sign = _sign_of(literal.form, values)
    return {"=": sign == 0, "!=": sign != 0, ">": sign > 0, ">=": sign >= 0}[literal.relation]


def _value_of(form: Polynomial, values: dict[Monomial, fmpq]) -> fmpq:
    spend(len(form))
    total = fmpq(0)
    for monomial, number in form.items():
        value = values.get(monomial)
        if value:
            total += number * value
    return total


def _sign_of(form: Polynomial, values: dict[Monomial, fmpq]) -> int:
    """The sign of a polynomial for values of monomials."""
    value = _value_of(form, values)
    return 0 if value == 0 else 1 if value > 0 else -1
