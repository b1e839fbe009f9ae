"""Quotients of polynomials with rational coefficients, in lowest terms, over python-flint.

Sizes are bounded: an operation that would leave the bounds raises TooLarge before it is begun, so
that no greatest common divisor runs for ever.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from flint import Ordering, fmpq, fmpq_mpoly_ctx, fmpz

from closedform.effort import spend
from closedform.verify.terms.limits import LIMITS

# A context of flint has a fixed number of generators.
GENERATORS = 48


class TooLarge(Exception):  # noqa: N818 - a bound that is met, not a fault
    """The identity would leave the bounds on terms, degree or generators."""


def context() -> Any:
    """Returns flint's context of polynomials in GENERATORS generators; flint keeps only one."""
    return fmpq_mpoly_ctx.get([f"g{index}" for index in range(GENERATORS)], Ordering.lex)


_ONE_EXPONENT = (0,) * GENERATORS


@dataclass(frozen=True, slots=True, eq=False)
class Quotient:
    """A polynomial over another one that is not 0, in lowest terms, denominator monic."""

    above: Any
    below: Any

    def __add__(self, addend: Quotient) -> Quotient:
        if self.below == addend.below:
            return in_lowest_terms(self.above + addend.above, self.below)
        above = product(self.above, addend.below) + product(addend.above, self.below)
        return in_lowest_terms(above, product(self.below, addend.below))

    def __sub__(self, subtrahend: Quotient) -> Quotient:
        return self + Quotient(-subtrahend.above, subtrahend.below)

    def __mul__(self, factor: Quotient) -> Quotient:
        above = product(self.above, factor.above)
        return in_lowest_terms(above, product(self.below, factor.below))

    def __truediv__(self, divisor: Quotient) -> Quotient:
        if divisor.above.is_zero():
            raise ZeroDivisionError
        return in_lowest_terms(
            product(self.above, divisor.below), product(self.below, divisor.above)
        )

    def __pow__(self, exponent: int) -> Quotient:
        if exponent < 0:
            return number(fmpq(1)) / self**-exponent
        return Quotient(
            _raise_polynomial(self.above, exponent), _raise_polynomial(self.below, exponent)
        )

    @property
    def is_zero(self) -> bool:
        """Whether it is the polynomial 0."""
        return bool(self.above.is_zero())

    @property
    def key(self) -> str:
        """A text that two quotients share only if they are equal."""
        return f"{self.above}/{self.below}"

    @property
    def constant(self) -> fmpq | None:
        """The rational number that it is, or None."""
        if self.above.is_zero():
            return fmpq(0)
        if self.above.is_constant() and self.below.is_one():
            return fmpq(self.above.leading_coefficient())
        return None


def product(left: Any, right: Any) -> Any:
    """Returns the product of two polynomials, within the bounds."""
    if len(left) * len(right) > LIMITS.product_terms:
        raise TooLarge
    return left * right


def _raise_polynomial(polynomial: Any, exponent: int) -> Any:
    if exponent > 1:
        terms = len(polynomial)
        # Powers of 1 and -1 have no more bits.
        coefficients = map(fmpq, polynomial.coeffs())
        sizes = (abs(int(size)) for part in coefficients for size in (part.p, part.q))
        bits = sum(size.bit_length() for size in sizes if size > 1)
        is_long = terms > 1 and exponent * (terms - 1) > LIMITS.power_terms
        if is_long or bits * exponent > LIMITS.power_bits:
            raise TooLarge
    return polynomial**exponent


def in_lowest_terms(above: Any, below: Any) -> Quotient:
    """Returns ``above / below`` in lowest terms.

    Raises:
        TooLarge: There are too many terms, or the degrees are too high for a common divisor.
    """
    if len(above) + len(below) > LIMITS.polynomial_terms:
        raise TooLarge
    if below.is_one():
        return Quotient(above, below)
    if above.is_zero():
        return number(fmpq(0))
    if not below.is_constant():
        # The time of a gcd is not bounded by the size of its operands: its bounds are checked
        # before.
        is_long = len(above) * len(below) > LIMITS.divisor_terms
        is_high = _degree(above, below) > LIMITS.divisor_degree
        if min(len(above), len(below)) > 1 and (is_long or is_high):
            raise TooLarge
        divisor = above.gcd(below)
        if not divisor.is_one():
            above, below = above / divisor, below / divisor
    leading = below.leading_coefficient()
    return Quotient(above / leading, below / leading)


def _degree(*polynomials: Any) -> int:
    return max(int(polynomial.total_degree()) for polynomial in polynomials)


def number(constant: fmpq) -> Quotient:
    """Returns a rational number as a quotient."""
    ring = context()
    terms = {_ONE_EXPONENT: constant} if constant != 0 else {}
    return Quotient(ring.from_dict(terms), ring.from_dict({_ONE_EXPONENT: fmpq(1)}))


def generator(index: int) -> Quotient:
    """Returns the generator of an index."""
    return Quotient(context().gen(index), number(fmpq(1)).below)


def from_terms(terms: Mapping[tuple[int, ...], fmpq]) -> Quotient:
    """Returns the polynomial of some monomials."""
    return Quotient(context().from_dict(dict(terms)), number(fmpq(1)).below)


def factors(quotient: Quotient) -> tuple[fmpq, list[tuple[Quotient, int]]]:
    """Returns the constant and the irreducible factors with their powers, those below negative."""
    constant, factor_powers = fmpq(1), []
    for polynomial, direction in ((quotient.above, 1), (quotient.below, -1)):
        if _degree(polynomial) > LIMITS.factored_degree or len(polynomial) > LIMITS.factored_terms:
            raise TooLarge
        lead, parts = polynomial.factor()
        constant *= fmpq(lead) ** direction
        unit = number(fmpq(1)).below
        factor_powers += [(Quotient(part, unit), direction * int(times)) for part, times in parts]
    return constant, factor_powers


def prime_powers(number: fmpq, coprime: Iterable[int] = ()) -> list[tuple[fmpq, int]]:
    """Returns a number above 0 as powers of primes; a long one also of coprime integers."""
    powers: list[tuple[fmpq, int]] = []
    for part, direction in ((number.p, 1), (number.q, -1)):
        limit = None if part <= _LARGEST_FACTORED else _LARGEST_DIVISOR
        for cofactor, times in fmpz(int(part)).factor(trial_limit=limit):
            for factor in coprime:
                while cofactor % factor == 0:
                    cofactor //= factor
                    powers.append((fmpq(factor), direction * int(times)))
            powers.append((fmpq(cofactor), direction * int(times)))
    return powers


def coprime_factors(numbers: Collection[fmpq]) -> set[int]:
    """Returns coprime integers that all numbers are products of; none if all are short.

    Example:
        >>> cofactor = (2**61 - 1) * (2**89 - 1)
        >>> factors = coprime_factors([fmpq(cofactor), fmpq(cofactor * 1000003, 2)])
        >>> factors == {2, 1000003, cofactor}
        True
    """
    if all(max(abs(number.p), number.q) <= _LARGEST_FACTORED for number in numbers):
        return set()
    coprime = {int(p.p) for number in numbers if number for p, _ in prime_powers(abs(number))}
    while pair := next((p for p in combinations(coprime, 2) if math.gcd(*p) > 1), None):
        # A greatest common divisor of two integers takes less than 0.1 us.
        spend(len(coprime) ** 2 // 16)
        common = math.gcd(*pair)
        coprime = coprime - {*pair} | {common, *(factor // common for factor in pair)} - {1}
    return coprime


_LARGEST_FACTORED, _LARGEST_DIVISOR = 2**48, 1000


def summands(quotient: Quotient) -> list[tuple[fmpq, Quotient]]:
    """Returns the quotient as a sum of rational multiples of quotients with one term above.

    The polynomial part comes first, so that ``pT/(pT - 1)`` is ``1 + 1/(pT - 1)``. Multiples of
    one quotient are one.
    """
    unit = number(fmpq(1)).below
    parts = [(quotient.above, unit)]
    if not quotient.below.is_one():
        whole, rest = divmod(quotient.above, quotient.below)
        parts = [(whole, unit), (rest, quotient.below)]
    terms_by_key: dict[str, tuple[fmpq, Quotient]] = {}
    for above, below in parts:
        for exponents, coefficient in above.to_dict().items():
            term = in_lowest_terms(context().from_dict({exponents: fmpq(1)}), below)
            lead = fmpq(term.above.leading_coefficient())
            term = Quotient(term.above / lead, term.below)
            before = terms_by_key.get(term.key, (fmpq(0), term))[0]
            terms_by_key[term.key] = before + fmpq(coefficient) * lead, term
    return [(multiple, term) for multiple, term in terms_by_key.values() if multiple != 0]
