"""The normal form of a number: a polynomial with fractions over atoms.

An atom is a symbol or an application of a function to normal forms. Equal arguments give one atom,
so what is equal by the laws of a commutative ring and by congruence has one normal form. A quotient
``a / b`` is ``a`` times the atom ``inv(b)``; the inverse of a product is the product of inverses,
which holds with ``inv(0) = 0``, too. ``cos(pi u)`` is ``cos(-pi u)`` and ``cos(pi (2 n + u))``.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd, isqrt, lcm
from typing import cast

from flint import fmpq

from closedform.verify.checker.terms import Terms, require

Monomial = tuple[tuple[int, int], ...]
"""Atoms with their exponents, ascending."""
Polynomial = dict[Monomial, fmpq]
Key = tuple[tuple[Monomial, fmpq], ...]

MOST_MONOMIALS = 20_000
MOST_FACTORS = 64
UNIT: Monomial = ()
_SMALL_PRIMES = 2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47
"""The primes that roots are reduced by."""


def times(left: Monomial, right: Monomial) -> Monomial:
    """Returns the product of two monomials."""
    if not left or not right:
        return left or right
    exponents = dict(left)
    for atom, exponent in right:
        exponents[atom] = exponents.get(atom, 0) + exponent
    return tuple(sorted(exponents.items()))


def constant(value: int | fmpq) -> Polynomial:
    """Returns a constant polynomial."""
    return {UNIT: fmpq(value)} if value != 0 else {}


def plus(left: Polynomial, right: Polynomial, factor: int | fmpq = 1) -> Polynomial:
    """Returns ``left + factor * right``."""
    result = dict(left)
    for monomial, coefficient in right.items():
        total = result.get(monomial, fmpq(0)) + coefficient * factor
        if total == 0:
            result.pop(monomial, None)
        else:
            result[monomial] = total
    return result


def product(left: Polynomial, right: Polynomial) -> Polynomial:
    """Returns the product of two polynomials."""
    require(len(left) * len(right) <= MOST_MONOMIALS, "a product has too many monomials")
    result: Polynomial = {}
    for first, a in left.items():
        for second, b in right.items():
            monomial = times(first, second)
            result[monomial] = result.get(monomial, fmpq(0)) + a * b
    return {monomial: total for monomial, total in result.items() if total != 0}


def power(base: Polynomial, exponent: int) -> Polynomial:
    """Returns a whole power."""
    if len(base) == 1 and exponent:
        ((monomial, coefficient),) = base.items()
        return {tuple((atom, e * exponent) for atom, e in monomial): coefficient**exponent}
    result = constant(1)
    for _ in range(exponent):
        result = product(result, base)
    return result


def key_of(polynomial: Polynomial) -> Key:
    """Returns a polynomial as a key of tables."""
    return tuple(sorted(polynomial.items(), key=lambda item: item[0]))


class NormalForms:
    """The normal forms of the terms of a table, and their atoms."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self.atoms: list[tuple[str, tuple[object, ...]]] = []
        self.terms_of_atoms: list[int] = []
        self.arguments: list[tuple[Polynomial, ...]] = []
        self._places: dict[tuple[str, tuple[object, ...]], int] = {}
        self._forms: dict[int, Polynomial] = {}

    def of(self, term: int) -> Polynomial:
        """Returns the normal form of a number."""
        form = self._forms.get(term)
        if form is not None:
            return form
        pending = [term]
        while pending:
            current = pending[-1]
            if current in self._forms:
                pending.pop()
                continue
            missing = [arg for arg in self._operands(current) if arg not in self._forms]
            if missing:
                pending += missing
            else:
                self._forms[current] = self._make(current)
                pending.pop()
        return self._forms[term]

    def difference(self, left: int, right: int) -> Polynomial:
        """Returns the normal form of ``left - right``."""
        form = plus(self.of(left), self.of(right), -1)
        self.terms.work += len(form)
        return form

    def _operands(self, term: int) -> tuple[int, ...]:
        op, args, _ = self.terms.nodes[term]
        return () if op in ("ite", "symbol", "rational") else args

    def _make(self, term: int) -> Polynomial:
        op, args, value = self.terms.nodes[term]
        forms = [] if op == "ite" else [self._forms[arg] for arg in args]
        if op == "rational":
            value = cast("fmpq", value)
            return constant(value)
        if op == "+":
            total: Polynomial = {}
            for form in forms:
                total = plus(total, form)
                self.terms.work += len(total)
            return total
        if op == "*":
            result = constant(1)
            for form in forms:
                self.terms.work += len(result) * len(form)
                result = product(result, form)
            return result
        if op == "/":
            return product(forms[0], self.inverse(forms[1]))
        if op == "ite":
            return self._atom("ite", args, term, ())
        if op in ("symbol", "pi", "undefined"):
            return self._atom(op, (term,), term, ())
        return self._function(op, forms, value, term)

    def _function(self, op: str, forms: list[Polynomial], value: object, term: int) -> Polynomial:
        if op == "^":
            exponent = whole_constant(forms[1])
            if exponent is not None and 0 <= exponent <= MOST_FACTORS:
                return power(forms[0], exponent)
            if exponent is not None and -MOST_FACTORS <= exponent < 0:
                return power(self.inverse(forms[0]), -exponent)
            number = constant_of(forms[0])
            if number is not None and number > 0 and constant_of(forms[1]) == fmpq(1, 2):
                return self._root(number, forms[1])
        if op == "cospi":
            turns = {m: c for m, c in forms[0].items() if m and self.is_whole({m: c / 2})}
            forms = [_even(plus(forms[0], turns, -1))]
            term = self.terms.make("cospi", (self.term_of(forms[0]),)) if turns else term
        if op in ("cospi", "exp") and not forms[0]:
            return constant(1)
        if op == "atan" and not forms[0]:
            return {}
        if op == "floor":
            number = constant_of(forms[0])
            if number is not None:
                return constant(fmpq(number.floor()))
        return self._atom(op, (value, *map(key_of, forms)), term, tuple(forms))

    def _root(self, number: fmpq, half: Polynomial) -> Polynomial:
        """The root of a positive number: a multiple of the roots of different primes."""
        inside = int(number.p) * int(number.q)
        result = constant(fmpq(1, int(number.q)))
        factors = []
        for prime in _SMALL_PRIMES:
            while inside % prime**2 == 0:
                inside //= prime**2
                result = plus({}, result, prime)
            if inside % prime == 0:
                inside //= prime
                factors.append(prime)
        if isqrt(inside) ** 2 == inside:
            result = plus({}, result, isqrt(inside))
        else:
            factors.append(inside)
        for factor in factors:
            base, exponent = self.terms.rational(factor), self.terms.rational(fmpq(1, 2))
            term = self.terms.make("^", (base, exponent))
            forms = constant(factor), half
            result = product(result, self._atom("^", (None, *map(key_of, forms)), term, forms))
        return result

    def inverse(self, form: Polynomial) -> Polynomial:
        """Returns the normal form of ``1 / form``."""
        if not form:
            return {}
        if len(form) == 1:
            ((monomial, coefficient),) = form.items()
            result = constant(1 / coefficient)
            for atom, exponent in monomial:
                inner = self._inverse_of_atom(atom)
                result = product(result, power(inner, exponent))
            return result
        leading = max(form)
        scale = form[leading]
        monic = {monomial: value / scale for monomial, value in form.items()}
        inner = self._atom("inv", (key_of(monic),), None, (monic,))
        return plus({}, inner, 1 / scale)

    def _inverse_of_atom(self, atom: int) -> Polynomial:
        if self.atoms[atom][0] == "inv":
            return self.arguments[atom][0]
        form: Polynomial = {((atom, 1),): fmpq(1)}
        return self._atom("inv", (key_of(form),), None, (form,))

    def _atom(
        self, op: str, key: tuple[object, ...], term: int | None, forms: tuple[Polynomial, ...]
    ) -> Polynomial:
        place = self._places.get((op, key))
        if place is None:
            place = self._places[op, key] = len(self.atoms)
            self.atoms.append((op, key))
            self.arguments.append(forms)
            self.terms_of_atoms.append(self._quotient_of(forms[0]) if term is None else term)
        return {((place, 1),): fmpq(1)}

    def _quotient_of(self, form: Polynomial) -> int:
        return self.terms.make("/", (self.terms.rational(1), self.term_of(form)))

    def term_of(self, form: Polynomial) -> int:
        """Returns a term whose normal form a polynomial is."""
        parts = []
        for monomial, coefficient in form.items():
            factors = [self.terms.rational(coefficient)]
            for atom, exponent in monomial:
                factors += [self.terms_of_atoms[atom]] * exponent
            parts.append(self.terms.multiply(*factors))
        return self.terms.add(*parts) if parts else self.terms.rational(0)

    def is_whole(self, form: Polynomial) -> bool:
        """Whether a polynomial has an integer value: over integers, with whole coefficients."""
        return all(
            coefficient.q == 1 and all(self.is_integer(atom) for atom, _ in monomial)
            for monomial, coefficient in form.items()
        )

    def is_integer(self, atom: int) -> bool:
        """Whether an atom has an integer value."""
        op, _ = self.atoms[atom]
        if op == "symbol":
            value = self.terms.nodes[self.terms_of_atoms[atom]][2]
            return bool(value[1])  # type: ignore[index]
        if op in ("min", "max", "abs"):
            return all(self.is_whole(form) for form in self.arguments[atom])
        return op in ("floor", "sign")


def _even(form: Polynomial) -> Polynomial:
    """The polynomial or its opposite, the one of them whose greatest monomial is positive."""
    if form and form[max(form)] < 0:
        return plus({}, form, -1)
    return form


def constant_of(form: Polynomial) -> fmpq | None:
    """Returns the number that a polynomial is; None where it is not constant."""
    if not form:
        return fmpq(0)
    return form[UNIT] if len(form) == 1 and UNIT in form else None


def whole_constant(form: Polynomial) -> int | None:
    """Returns the integer that a polynomial is, or None."""
    number = constant_of(form)
    return int(number.p) if number is not None and number.q == 1 else None


def content(form: Polynomial) -> fmpq:
    """Returns the positive number by which the non-constant part is whole and without divisor."""
    parts = [coefficient for monomial, coefficient in form.items() if monomial != UNIT]
    above = gcd(*(int(part.p) for part in parts))
    below = lcm(*(int(part.q) for part in parts))
    return fmpq(above, below) if parts else fmpq(1)


def clear(form: Polynomial, atom: int, divisor: Polynomial) -> tuple[Polynomial, int]:
    """Returns ``form`` times the least power of a divisor that frees it of ``inv(divisor)``."""
    form = cancel(form, atom, divisor)
    degree = max((dict(monomial).get(atom, 0) for monomial in form), default=0)
    powers = [constant(1)]
    for _ in range(degree):
        powers.append(product(powers[-1], divisor))
    result: Polynomial = {}
    for monomial, coefficient in form.items():
        exponents: Mapping[int, int] = dict(monomial)
        rest = tuple(item for item in monomial if item[0] != atom)
        factor = powers[degree - exponents.get(atom, 0)]
        result = plus(result, product({rest: coefficient}, factor))
    return result, degree


def cancel(form: Polynomial, atom: int, divisor: Polynomial) -> Polynomial:
    """Returns the polynomial with ``inv(divisor) * divisor`` as 1, for an atom that is not 0."""
    if len(divisor) != 1 or sum(exponent for _, exponent in next(iter(divisor))) != 1:
        return form
    base = next(iter(divisor))[0][0]
    result: Polynomial = {}
    for monomial, coefficient in form.items():
        exponents = dict(monomial)
        common = min(exponents.get(atom, 0), exponents.get(base, 0))
        for part in (atom, base):
            if common:
                exponents[part] -= common
        rest = tuple(sorted((part, e) for part, e in exponents.items() if e))
        result = plus(result, {rest: coefficient})
    return result
