"""The identity engine: terms as quotients of polynomials, zero if the numerator is.

Generators are symbols and functions of canonical arguments. What is used of the functions:

1. cos and sin of sums by addition; of whole multiples of one base angle by Chebyshev's recursion;
   ``sin^2 = 1 - cos^2``; ``cos(pi n) = (-1)^n`` for whole n; multiples of pi/4 and pi/6 by roots.
2. ``b^(x + n) = b^n b^x`` for whole n; powers of one base with commensurable exponents are powers
   of one generator; roots: ``(b^(1/n))^n = b``.
3. ``(x y)^p = x^p y^p`` and ``log(x y) = log x + log y``, if ``sign_of`` says that the factors are
   positive (a factor above may be 0 in a power), or all but one: where the left side is defined,
   that one is then not negative.
4. ``exp(u + v) = exp(u) exp(v)``, ``exp(x log b) = b^x``, ``log(exp(u)) = u`` and, for ``b > 0``,
   ``log(b^x) = x log b``.
5. ``floor(n + x) = n + floor(x)`` for whole n, and for x >= 0 and whole q
   ``floor(x^(1/q)) = floor(floor(x)^(1/q))``, since the left side changes only where x is whole
   (Graham, Knuth and Patashnik, Concrete Mathematics, 3.10); likewise, for x > 0,
   ``ceiling(x^(1/q)) = 1 + floor((ceiling(x) - 1)^(1/q))``.
6. Any other function of equal canonical arguments is equal to itself.

It assumes, and a claim must add, that denominators are not 0 and all operations are defined.
Where they are, each rule holds; at ``b = 0`` the second one by continuity from above. So a zero
numerator shows that the term is 0 wherever it is defined. A nonzero numerator shows nothing.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Hashable
from contextlib import suppress
from functools import reduce
from typing import Any

from flint import fmpq, fmpz

from closedform.verify.terms.build import add, divide, exp, floor, multiply, power, rational
from closedform.verify.terms.limits import LIMITS
from closedform.verify.terms.quotients import (
    GENERATORS,
    Quotient,
    TooLarge,
    coprime_factors,
    factors,
    from_terms,
    generator,
    number,
    prime_powers,
    summands,
)
from closedform.verify.terms.tree import TRUTHS, Op, Sign, Term, walk

SignOf = Callable[[Term], Sign]


def is_zero(term: Term, sign_of: SignOf | None = None) -> bool:
    """Returns whether a term is 0 wherever it is defined; False where that is not found.

    Args:
        term: A number without undefined branches.
        sign_of: What is known of the sign of a term; nothing if not given.
    """
    engine = Canonical(sign_of or (lambda _: Sign.ANY))
    try:
        return engine.is_zero(term)
    except (TooLarge, ZeroDivisionError, NotCanonical):
        return False


class NotCanonical(Exception):  # noqa: N818 - a result, not an error
    """A term has no canonical form: it is undefined, or a base is 0."""


class Canonical:
    """Canonical forms of one term and its parts, over one table of generators."""

    def __init__(self, sign_of: SignOf) -> None:
        self.terms: dict[int, Term] = {}  # generators that are terms
        self._sign_of = sign_of
        self._generators: dict[Hashable, int] = {}
        self.whole: set[int] = set()  # generators that are integers
        self._logs: dict[int, Quotient] = {}  # generators log(f), by index: f
        self._logarithms: dict[int, Quotient] = {}  # generators exp(f), b^f by index: f, f log(b)
        self._relations: dict[int, tuple[int, Quotient]] = {}  # index: g^n = value
        self._floors: dict[int, tuple[Quotient, int]] = {}  # generators floor(f^(1/q)): f, q
        self._denominators: dict[Hashable, int] = {}  # of the multiples of an angle or exponent
        self._forms: dict[Term, Quotient] = {}
        self._scanning = False
        self._coprime: set[int] = set()  # factors of the numbers that are too long to factor

    def is_zero(self, term: Term) -> bool:
        """Whether the numerator of a term is 0 by the relations of the generators."""
        form = self.of(term)
        above = self._normal(form.above)
        # A denominator that is 0 by the relations shows nothing: 0/0 is not 0.
        return above.is_zero() and not self._normal(form.below).is_zero()

    def of(self, term: Term) -> Quotient:
        """The canonical form. The first of two passes finds the common base angles."""
        self._coprime = coprime_factors({n.value for n in walk(term) if n.op is Op.RATIONAL})
        # cos(x/2) and cos(x/3) are polynomials in cos(x/6): all denominators must be seen before
        # the first generator is chosen.
        for scanning in (True, False):
            self._scanning = scanning
            self._forms = {}
            for node in walk(term):
                if node.op not in TRUTHS:
                    self._forms[node] = self._form(node)
        return self._forms[term]

    # --- one node --------------------------------------------------------------------------------

    def _form(self, node: Term) -> Quotient:
        operands = [self._forms[arg] for arg in node.args if arg in self._forms]
        match node.op:
            case Op.RATIONAL:
                return number(node.value)
            case Op.ADD:
                return reduce(operator.add, operands)
            case Op.MULTIPLY:
                return reduce(operator.mul, operands)
            case Op.DIVIDE:
                return operands[0] / operands[1]
            case Op.COSPI:
                return self._turn(operands[0])[0]
            case Op.SINPI:
                return self._turn(operands[0])[1]
            case Op.POWER:
                return self._power(*operands)
            case Op.EXP:
                return self._exponential(operands[0])
            case Op.LOG:
                return self._logarithm(operands[0])
            case Op.FLOOR:
                return self._floor(operands[0])
            case Op.UNDEFINED:
                raise NotCanonical
            case _:
                return self._atom(node)

    def _atom(self, node: Term) -> Quotient:
        """A symbol, pi, or a function that is only equal to itself."""
        keys: list[Hashable] = []
        for arg in node.args:
            form = self._forms.get(arg)
            keys.append(arg if form is None else form.key)
        index = self._index((node.op, node.value, *keys))
        self.terms[index] = node
        if node.op is Op.SIGN or (node.op is Op.SYMBOL and node.value.integer):
            self.whole.add(index)
        return generator(index)

    def _index(self, key: Hashable) -> int:
        if key not in self._generators:
            if len(self._generators) == GENERATORS:
                raise TooLarge
            self._generators[key] = len(self._generators)
        return self._generators[key]

    def _base(self, kind: str, of: Hashable, multiple: fmpq) -> tuple[int, int]:
        """The generator of a kind for the common part of all multiples; this one's whole factor."""
        family = (kind, of)
        common = math.lcm(self._denominators.get(family, 1), int(multiple.q))
        self._denominators[family] = common
        return self._index((kind, of, common)), int((multiple * common).p)

    # --- floors ----------------------------------------------------------------------------------

    def _floor(self, operand: Quotient) -> Quotient:
        """A floor, its whole part outside, and that of a root as that of a root of an integer."""
        whole, rest = self._whole_part(operand)
        integers, real = self._integers_and_rest(rest)
        if real.is_zero:
            return whole + self._floor_atom(_on_grid(integers), 1)
        scale = _common_denominator(integers)
        root = self._radicand(real * number(fmpq(scale)))
        if root is None:
            return whole + self._floor_atom(rest, 1)
        level = self._floor_of_root(*root)
        if integers.is_zero:
            return whole + level
        return whole + self._floor((level + integers * number(fmpq(scale))) / number(fmpq(scale)))

    def _floor_of_root(self, sign: int, radicand: Quotient, degree: int) -> Quotient:
        if sign > 0:
            return self._floor_atom(self._floor(radicand), degree)
        minus_one = number(fmpq(-1))
        integers, real = self._integers_and_rest(radicand)
        if real.is_zero:
            # The ceiling of a multiple of 1/s is the floor of the number 1 - 1/s above it.
            before = self._floor(radicand - number(fmpq(1, _common_denominator(integers))))
        else:
            before = minus_one + minus_one * self._floor(minus_one * radicand)
        return minus_one + minus_one * self._floor_atom(before, degree)

    def _whole_part(self, operand: Quotient) -> tuple[Quotient, Quotient]:
        """An integer and the rest: whole multiples of products of integers are taken out."""
        integers, _ = self._integers_and_rest(operand)
        multiples = {key: fmpq(value).floor() for key, value in integers.above.to_dict().items()}
        whole = from_terms({key: fmpq(times) for key, times in multiples.items() if times != 0})
        return whole, operand - whole

    def _integers_and_rest(self, operand: Quotient) -> tuple[Quotient, Quotient]:
        """The rational multiples of products of integers in a sum, and the rest of it."""
        if not operand.below.is_one():
            return number(fmpq(0)), operand
        terms = operand.above.to_dict().items()
        integers = from_terms({key: fmpq(value) for key, value in terms if self._is_integer(key)})
        return integers, operand - integers

    def _radicand(self, operand: Quotient) -> tuple[int, Quotient, int] | None:
        """(sign, x, q) of ``x^(1/q)``, x not below 0, or of ``-x^(1/q)``, x above 0; else None."""
        coefficient, parts = _factors(operand)
        roots = [self._root_of_generator(factor) for factor, _ in parts]
        # In lowest terms: a root of degree 4 that is squared is one of degree 2.
        shares = [fmpq(times, root) for (_, times), (root, _) in zip(parts, roots, strict=True)]
        degree = math.lcm(*(int(share.q) for share in shares))
        if not 1 < degree <= _LARGEST_DEGREE:
            return None
        radicand = number(abs(coefficient) ** degree)
        for (root, base), share in zip(roots, shares, strict=True):
            # The operand of a root is not below 0 where the root is defined; it may be 0.
            is_radicand = root > 1 and coefficient > 0
            if not is_radicand and not self._has_sign(base, is_strict=coefficient < 0):
                return None
            radicand = radicand * base ** int(share * degree)
        return (1 if coefficient > 0 else -1), radicand, degree

    def _root_of_generator(self, factor: Quotient) -> tuple[int, Quotient]:
        """(q, x) of a generator that is ``x^(1/q)``; (1, x) of any other factor x."""
        for index, (degree, value) in self._relations.items():
            if factor.key == generator(index).key:
                return degree, value
        return 1, factor

    def _has_sign(self, form: Quotient, *, is_strict: bool) -> bool:
        """Whether a number is known to be above 0 or, where that is enough, not below it."""
        if form.constant is not None:
            return bool(form.constant > 0)
        sign = self._sign_of_form(form)
        return sign is Sign.POSITIVE or (sign is Sign.NONNEGATIVE and not is_strict)

    def _floor_atom(self, operand: Quotient, degree: int) -> Quotient:
        """The floor of a root of a given degree as a generator; of the operand itself for 1."""
        constant = operand.constant
        if constant is not None and (degree == 1 or constant >= 0):
            level = fmpz(int(constant.floor()))
            return number(fmpq(level if degree == 1 else level.root(degree)))
        for index, (inner, root) in self._floors.items():
            if operand.key == generator(index).key:
                return self._floor_atom(inner, degree * root)
        index = self._index((Op.FLOOR, degree, operand.key))
        self._floors[index] = operand, degree
        self._name(index, lambda: floor(power(self.term_of(operand), rational(1, degree))))
        self.whole.add(index)
        return generator(index)

    # --- angles ----------------------------------------------------------------------------------

    def _turn(self, turns: Quotient) -> tuple[Quotient, Quotient]:
        """Cosine and sine of pi times a quotient, summand by summand."""
        cosine, sine = number(fmpq(1)), number(fmpq(0))
        for multiple, part in summands(turns):
            c, s = self._angle(multiple, part)
            cosine, sine = cosine * c - sine * s, sine * c + cosine * s
        return cosine, sine

    def _angle(self, multiple: fmpq, part: Quotient) -> tuple[Quotient, Quotient]:
        constant = part.constant
        if constant is not None:
            # Reduced to [-1, 1) half turns.
            return self._constant_angle(multiple - 2 * fmpq(((multiple + 1) / 2).floor()), part)
        if multiple.q == 1 and self._is_whole(part):
            if int(multiple.p) % 2 == 0:
                return number(fmpq(1)), number(fmpq(0))
            index = self._index(("alternating", part.key))
            # (-1)^n is its own inverse: its square is 1.
            self._relations[index] = 2, number(fmpq(1))
            return generator(index), number(fmpq(0))
        return self._general_angle(multiple, part)

    def _constant_angle(self, multiple: fmpq, part: Quotient) -> tuple[Quotient, Quotient]:
        """An angle from -pi to pi, by one from -pi/2 to pi/2."""
        # Angles whose sine and cosine are square roots of rationals.
        if int(multiple.q) in (1, 2, 3, 4, 6):
            return self._special_angle(multiple)
        if abs(multiple) <= fmpq(1, 2):
            return self._general_angle(multiple, part)
        half_turn = fmpq(1) if multiple > 0 else fmpq(-1)
        cosine, sine = self._general_angle(half_turn - multiple, part)
        return number(fmpq(-1)) * cosine, sine

    def _general_angle(self, multiple: fmpq, part: Quotient) -> tuple[Quotient, Quotient]:
        cosine, times = self._base("cos", part.key, multiple)
        sine, _ = self._base("sin", part.key, multiple)
        c, s = generator(cosine), generator(sine)
        # Normal forms hold each sine to a power below 2, so that equal polynomials are equal.
        self._relations[sine] = 2, number(fmpq(1)) - c * c
        return (c, s) if self._scanning else _chebyshev(c, s, times)

    def _special_angle(self, multiple: fmpq) -> tuple[Quotient, Quotient]:
        """Multiples of pi/4 and pi/6."""
        half = number(fmpq(1, 2))
        if int(multiple.q) == 4:
            root = self._root(number(fmpq(2)), 2) * half
            return _chebyshev(root, root, int((multiple * 4).p))
        if int(multiple.q) in (3, 6):
            root = self._root(number(fmpq(3)), 2) * half
            return _chebyshev(root, half, int((multiple * 6).p))
        return _chebyshev(number(fmpq(0)), number(fmpq(1)), int((multiple * 2).p))

    def _is_whole(self, part: Quotient) -> bool:
        if not part.below.is_one():
            return False
        return self._is_integer(next(iter(part.above.to_dict())))

    def _is_integer(self, exponents: tuple[int, ...]) -> bool:
        """Whether a monomial is a product of integers."""
        return all(not times or index in self.whole for index, times in enumerate(exponents))

    # --- powers ----------------------------------------------------------------------------------

    def _power(self, base: Quotient, exponent: Quotient) -> Quotient:
        constant = exponent.constant
        if constant is not None and constant.q == 1:
            return base ** int(constant.p)
        result = number(fmpq(1))
        for factor, times in self._split(base):
            for multiple, part in summands(exponent):
                result = result * self._raise(factor, multiple * times, part)
        return result

    def _raise(self, base: Quotient, multiple: fmpq, part: Quotient) -> Quotient:
        """``base ^ (multiple * part)``."""
        if base.constant == 1:
            return base
        if part.constant is not None:
            whole = fmpq(multiple.floor())
            rest = multiple - whole
            result = base ** int(whole.p)
            if rest == 0:
                return result
            return result * self._root(base, int(rest.q)) ** int(rest.p)
        index, times = self._base("power", (base.key, part.key), multiple)
        if self._scanning:
            return generator(index)
        if self._sign_of_form(base) is Sign.POSITIVE:
            exponent = part * number(multiple / times)
            self._logarithms[index] = exponent * self._logarithm(base)
            self._name(index, lambda: power(self.term_of(base), self.term_of(exponent)))
        return generator(index) ** times

    def _root(self, base: Quotient, degree: int) -> Quotient:
        """The root of a base: the common root of all that are taken of it, to a power."""
        index, times = self._base("root", base.key, fmpq(1, degree))
        common = self._denominators["root", base.key]
        self._relations[index] = common, base
        return generator(index) ** times

    def _split(self, base: Quotient) -> list[tuple[Quotient, int]]:
        """The base as positive factors with whole powers, or itself."""
        constant = base.constant
        if constant is not None:
            if constant == 0:
                raise NotCanonical
            return self._primes(constant) if constant > 0 else [(base, 1)]
        if base.below.is_one() and len(base.above) == 1 and base.above.total_degree() == 1:
            return [(base, 1)] if base.above.leading_coefficient() == 1 else self._positive(base)
        return self._positive(base)

    def _positive(self, base: Quotient) -> list[tuple[Quotient, int]]:
        content, parts = factors(base)
        if len(parts) == 1 and content == 1 and parts[0][1] == 1:
            return [(base, 1)]
        positive: list[tuple[Quotient, int]] = []
        zeros: list[tuple[Quotient, int]] = []
        cofactor = number(fmpq(1))
        for factor, times in parts:
            sign = self._sign_of_form(factor)
            if sign in (Sign.NEGATIVE, Sign.NONPOSITIVE):
                factor = number(fmpq(-1)) * factor
                content = -content if times % 2 else content
                sign = Sign.POSITIVE if sign is Sign.NEGATIVE else Sign.NONNEGATIVE
            if sign is Sign.POSITIVE:
                positive.append((factor, times))
            # 0^p needs p > 0; as a divisor a factor that may be 0 stays with the others.
            elif sign is Sign.NONNEGATIVE and times > 0:
                zeros.append((factor, times))
            else:
                cofactor = cofactor * factor**times
        # All factors have signs: (x y)^p = x^p y^p.
        if cofactor.constant == 1:
            return positive + zeros + self._primes(content) if content > 0 else [(base, 1)]
        for factor, times in zeros:
            cofactor = cofactor * factor**times
        if content < 0:
            content, cofactor = -content, number(fmpq(-1)) * cofactor
        return [*positive, *self._primes(content), (cofactor, 1)]

    def _primes(self, constant: fmpq) -> list[tuple[Quotient, int]]:
        return [(number(prime), times) for prime, times in prime_powers(constant, self._coprime)]

    def _sign_of_form(self, form: Quotient) -> Sign:
        try:
            return self._sign_of(self.term_of(form))
        except TooLarge:  # it holds powers or cosines, which have no term here
            return Sign.ANY

    def term_of(self, form: Quotient) -> Term:
        """Returns a polynomial in generators that are terms as a term.

        Raises:
            TooLarge: A generator is not a term, or it is not a polynomial.
        """
        if not form.below.is_constant():
            raise TooLarge
        parts = []
        for exponents, coefficient in form.above.to_dict().items():
            powers = [rational(fmpq(coefficient))]
            for index, times in enumerate(exponents):
                if times:
                    if index not in self.terms:
                        raise TooLarge
                    powers.append(power(self.terms[index], rational(times)))
            parts.append(multiply(*powers))
        below = fmpq(form.below.leading_coefficient())
        return divide(add(*parts), rational(below))

    # --- exp and log -----------------------------------------------------------------------------

    def _exponential(self, exponent: Quotient) -> Quotient:
        result = number(fmpq(1))
        for multiple, part in summands(exponent):
            base, rest = self._without_log(part)
            if base is not None:
                result = result * self._power(base, number(multiple) * rest)
            else:
                result = result * self._exponential_of(multiple, part)
        return result

    def _exponential_of(self, multiple: fmpq, part: Quotient) -> Quotient:
        """``exp(multiple * part)``, the part without logarithms."""
        index, times = self._base("exp", part.key, multiple)
        if self._scanning:
            return generator(index)
        exponent = part * number(multiple / times)
        self._logarithms[index] = exponent
        self._name(index, lambda: exp(self.term_of(exponent)))
        return generator(index) ** times

    def _name(self, index: int, term: Callable[[], Term]) -> None:
        """Notes the term of a generator, where it has one."""
        if index not in self.terms:
            with suppress(TooLarge):
                self.terms[index] = term()

    def _without_log(self, part: Quotient) -> tuple[Quotient | None, Quotient]:
        """``part = log(base) * rest``: base and rest, or None and the part."""
        exponents = next(iter(part.above.to_dict()))
        for index, base in self._logs.items():
            if exponents[index] == 1:
                return base, part / generator(index)
        return None, part

    def _logarithm(self, argument: Quotient) -> Quotient:
        result = number(fmpq(0))
        for factor, times in self._split(argument):
            if factor.constant == 1:
                continue
            exponent = self._known_logarithm(factor)
            if exponent is not None:
                result = result + number(fmpq(times)) * exponent
                continue
            index = self._index(("log", factor.key))
            self._logs[index] = factor
            result = result + number(fmpq(times)) * generator(index)
        return result

    def _known_logarithm(self, factor: Quotient) -> Quotient | None:
        """The logarithm of an exponential or a power of a positive base."""
        for index, logarithm in self._logarithms.items():
            if factor.key == generator(index).key:
                return logarithm
        return None

    # --- relations -------------------------------------------------------------------------------

    def _normal(self, above: Any) -> Any:
        """A polynomial with each relation ``g^n = value`` used, times the values' denominators."""
        for _ in range(LIMITS.canonical_rounds):
            before = above
            for index in sorted(self._relations, reverse=True):
                above = self._replace(above, index)
            if above == before:
                return above
        return above

    def _replace(self, above: Any, index: int) -> Any:
        degree, value = self._relations[index]
        terms = above.to_dict()
        if max((exponents[index] for exponents in terms), default=0) < degree:
            return above
        by_power: dict[int, dict[tuple[int, ...], fmpq]] = {}
        for exponents, coefficient in terms.items():
            whole, rest = divmod(exponents[index], degree)
            left = (*exponents[:index], rest, *exponents[index + 1 :])
            part = by_power.setdefault(int(whole), {})
            part[left] = part.get(left, fmpq(0)) + coefficient
        result = number(fmpq(0))
        for whole, part in by_power.items():
            result = result + from_terms(part) * value**whole
        return result.above


def _chebyshev(cosine: Quotient, sine: Quotient, times: int) -> tuple[Quotient, Quotient]:
    """Cosine and sine of a whole multiple of an angle."""
    if abs(times) > LIMITS.angle_multiples:
        raise TooLarge
    two = number(fmpq(2))
    c, following = number(fmpq(1)), cosine
    s, after = number(fmpq(0)), number(fmpq(1))
    for _ in range(abs(times)):
        c, following = following, two * cosine * following - c
        s, after = after, two * cosine * after - s
    return c, (sine * s if times >= 0 else number(fmpq(-1)) * sine * s)


_LARGEST_DEGREE = 12


def _factors(quotient: Quotient) -> tuple[fmpq, list[tuple[Quotient, int]]]:
    """The factors of a quotient; the quotient itself where it is too large."""
    try:
        return factors(quotient)
    except TooLarge:
        return fmpq(1), [(quotient, 1)]


def _common_denominator(polynomial: Quotient) -> int:
    return math.lcm(*(int(fmpq(value).q) for value in polynomial.above.to_dict().values()))


def _on_grid(polynomial: Quotient) -> Quotient:
    """A polynomial with its constant rounded down to a multiple of what the other terms are."""
    terms = polynomial.above.to_dict()
    constant = next((fmpq(value) for key, value in terms.items() if not any(key)), fmpq(0))
    steps = polynomial - number(constant)
    scale = _common_denominator(steps)
    return steps + number((scale * constant).floor() / fmpq(scale))
