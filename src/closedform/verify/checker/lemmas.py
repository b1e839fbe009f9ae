"""The lemmas that a step of a proof may state: truths about one function, or about two.

Each holds for all real numbers at which the functions are defined. A step names the functions and
the place of the lemma in the list.
"""

from __future__ import annotations

from typing import cast

from flint import fmpq

from closedform.verify.checker.polynomials import (
    NormalForms,
    Polynomial,
    cancel,
    clear,
    plus,
    whole_constant,
)
from closedform.verify.checker.terms import CHOICES, require

_ZERO, _ONE, _TWO = fmpq(0), fmpq(1), fmpq(2)


class Lemmas:
    """The lemmas about terms of one table."""

    def __init__(self, forms: NormalForms) -> None:
        self.forms = forms
        self.terms = terms = forms.terms
        self._makers = terms.less, terms.less_equal, terms.equal, terms.implies

    def of(self, term: int) -> list[int]:
        """Returns the lemmas about one term."""
        terms = self.terms
        op, args, value = terms.nodes[term]
        zero, unit = terms.rational(0), terms.rational(1)
        lt, le, eq, implies = self._makers
        if op in CHOICES:
            return [terms.implies(when, eq(term, then)) for when, then in terms.alternatives(term)]
        if op == "pi":
            low, high = (terms.rational(fmpq(n, 100_000)) for n in (314_159, 314_160))
            return [lt(low, term), lt(term, high)]
        if op == "/":
            return self._of_quotient(term)
        if op == "cospi":
            return self._of_cosine(term)
        if op == "sinpi":
            half = terms.rational(fmpq(1, 2))
            return [eq(term, terms.make("cospi", (terms.subtract(args[0], half),)))]
        if op == "exp":
            u = args[0]
            return [
                lt(zero, term),
                le(terms.add(unit, u), term),
                implies(lt(u, zero), lt(term, unit)),
                implies(lt(zero, u), lt(unit, term)),
                implies(lt(u, unit), le(terms.multiply(term, terms.subtract(unit, u)), unit)),
            ]
        if op == "log":
            u = args[0]
            return [
                implies(lt(unit, u), lt(zero, term)),
                implies(eq(u, unit), eq(term, zero)),
                implies(lt(zero, u), lt(u, unit), lt(term, zero)),
                implies(lt(zero, u), le(term, terms.subtract(u, unit))),
                implies(lt(zero, u), le(terms.subtract(u, unit), terms.multiply(u, term))),
            ]
        if op == "atan":
            return self._of_arctangent(term)
        if op == "floor":
            return self._of_floor(term)
        if op == "lookup":
            value = cast("tuple[fmpq, ...]", value)
            whole = self.forms.is_whole(self.forms.of(args[0]))
            inside = le(zero, args[0]), le(args[0], terms.rational(len(value) - 1))
            bounds = le(terms.rational(min(value)), term), le(term, terms.rational(max(value)))
            return [implies(*inside, bound) for bound in bounds] if whole else []
        return self._of_power(term) if op == "^" else []

    def _of_quotient(self, term: int) -> list[int]:
        terms = self.terms
        a, b = self.terms.nodes[term][1]
        zero = terms.rational(0)
        lt = terms.less
        nonzero = terms.negate(terms.equal(b, zero))
        lemmas = [terms.implies(nonzero, terms.equal(terms.multiply(term, b), a))]
        if terms.nodes[a] == ("rational", (), _ONE):
            lemmas += [terms.implies(lt(zero, b), lt(zero, term))]
            lemmas += [terms.implies(lt(b, zero), lt(term, zero))]
        return lemmas

    def _of_cosine(self, term: int) -> list[int]:
        terms, (lt, le, eq, implies) = self.terms, self._makers
        (u,) = terms.nodes[term][1]
        minus, zero, unit, two = (terms.rational(n) for n in (-1, 0, 1, 2))
        halves = [terms.rational(fmpq(n, 2)) for n in (-1, 1, 3)]
        return [
            le(minus, term),
            le(term, unit),
            implies(eq(u, zero), eq(term, unit)),
            implies(eq(u, unit), eq(term, minus)),
            implies(eq(u, two), eq(term, unit)),
            implies(eq(u, halves[1]), eq(term, zero)),
            implies(lt(minus, u), lt(u, unit), lt(minus, term)),
            implies(lt(zero, u), lt(u, two), lt(term, unit)),
            implies(lt(halves[0], u), lt(u, halves[1]), lt(zero, term)),
            implies(lt(halves[1], u), lt(u, halves[2]), lt(term, zero)),
            *self._of_whole_turns(term),
        ]

    def _of_arctangent(self, term: int) -> list[int]:
        terms, (lt, _, eq, implies) = self.terms, self._makers
        (u,) = terms.nodes[term][1]
        zero, pi = terms.rational(0), terms.make("pi")
        left, right = (terms.multiply(terms.rational(fmpq(n, 2)), pi) for n in (-1, 1))
        return [
            lt(left, term),
            lt(term, right),
            implies(eq(u, zero), eq(term, zero)),
            implies(lt(zero, u), lt(zero, term)),
            implies(lt(u, zero), lt(term, zero)),
            implies(lt(zero, u), lt(term, u)),
            implies(lt(u, zero), lt(u, term)),
        ]

    def _of_floor(self, term: int) -> list[int]:
        terms, (lt, le, _, implies) = self.terms, self._makers
        (u,) = terms.nodes[term][1]
        unit = terms.rational(1)
        lemmas = [le(term, u), lt(u, terms.add(term, unit))]
        for bound in (terms.rational(0), unit):
            lemmas.append(implies(le(bound, u), le(bound, term)))
            lemmas.append(implies(lt(u, bound), le(term, terms.subtract(bound, unit))))
        if self.forms.is_whole(self.forms.of(u)):
            lemmas.append(terms.equal(term, u))
        return lemmas + self._of_floor_of_quotient(term)

    def _of_floor_of_quotient(self, term: int) -> list[int]:
        """``floor(a / b) = n`` as ``n b <= a < (n + 1) b``, where b > 0.

        Of logarithms ``floor(log a / log b)``, too: ``b^n <= a < b^(n + 1)``, where a > 0, b > 1.
        """
        terms = self.terms
        (u,) = terms.nodes[term][1]
        above, below = self._quotient(u)
        is_positive = terms.less(terms.rational(0), below)
        multiple = terms.multiply(term, below)
        lemmas = [
            terms.implies(is_positive, terms.less_equal(multiple, above)),
            terms.implies(is_positive, terms.less(above, terms.add(multiple, below))),
        ]
        op, args, _ = terms.nodes[u]
        if op == "/" and all(terms.nodes[arg][0] == "log" for arg in args):
            number, base = (terms.nodes[arg][1][0] for arg in args)
            conditions = terms.less(terms.rational(1), base), terms.less(terms.rational(0), number)
            power = terms.make("^", (base, term))
            lemmas += [
                terms.implies(*conditions, terms.less_equal(power, number)),
                terms.implies(*conditions, terms.less(number, terms.multiply(base, power))),
            ]
        return lemmas

    def _quotient(self, number: int) -> tuple[int, int]:
        """Terms a and b with ``number = a / b`` wherever b is not 0; b is 1 where there is none."""
        form = self.forms.of(number)
        inverses = {
            atom for monomial in form for atom, _ in monomial if self.forms.atoms[atom][0] == "inv"
        }
        if len(inverses) == 1:
            (atom,) = inverses
            (divisor,) = self.forms.arguments[atom]
            dividend, degree = clear(form, atom, divisor)
            if degree == 1:
                return self.forms.term_of(dividend), self.forms.term_of(divisor)
        return number, self.terms.rational(1)

    def _of_whole_turns(self, term: int) -> list[int]:
        """``cos(pi a / b)`` is 1 or -1 just where ``a / b`` is an even or an odd integer."""
        terms, (lt, _, eq, implies) = self.terms, self._makers
        (u,) = terms.nodes[term][1]
        unit, two = terms.rational(1), terms.rational(2)
        above, below = self._quotient(u)
        half = terms.multiply(terms.rational(fmpq(1, 2)), u)
        whole = terms.multiply(two, terms.make("floor", (half,)))
        is_positive = lt(terms.rational(0), below)
        values = [
            (eq(term, sign), eq(above, terms.multiply(turns, below)))
            for sign, turns in ((unit, whole), (terms.rational(-1), terms.add(whole, unit)))
        ]
        return [
            *(implies(is_positive, is_value, is_whole) for is_value, is_whole in values),
            *(implies(is_positive, is_whole, is_value) for is_value, is_whole in values),
        ]

    def _of_power(self, term: int) -> list[int]:
        terms, (lt, le, eq, implies) = self.terms, self._makers
        b, e = terms.nodes[term][1]
        zero, unit = terms.rational(0), terms.rational(1)
        tangent = terms.add(unit, terms.multiply(e, terms.subtract(b, unit)))
        in_unit = le(zero, b), le(b, unit)
        lemmas = [
            implies(lt(zero, b), lt(zero, term)),
            implies(eq(b, zero), lt(zero, e), eq(term, zero)),
            implies(eq(e, zero), eq(term, unit)),
            implies(eq(e, unit), eq(term, b)),
            implies(eq(b, unit), eq(term, unit)),
            implies(*in_unit, lt(zero, e), le(zero, term)),
            implies(*in_unit, lt(zero, e), le(term, unit)),
            implies(lt(zero, b), lt(b, unit), lt(zero, e), lt(term, unit)),
            implies(lt(unit, b), lt(zero, e), lt(unit, term)),
            implies(lt(zero, b), lt(b, unit), lt(e, zero), lt(unit, term)),
            implies(lt(unit, b), lt(e, zero), lt(term, unit)),
            implies(lt(zero, b), le(unit, e), le(tangent, term)),
            implies(lt(zero, b), le(e, zero), le(tangent, term)),
            implies(lt(zero, b), le(zero, e), le(e, unit), le(term, tangent)),
            implies(*in_unit, le(unit, e), le(term, b)),
            implies(le(zero, b), le(zero, e), le(zero, term)),
        ]
        if self.forms.of(e) == self.forms.of(terms.rational(fmpq(1, 2))):
            root = implies(le(zero, b), eq(terms.multiply(term, term), b))
            lemmas += [implies(le(zero, b), le(zero, term)), root]
        if self.forms.is_whole(self.forms.of(e)):
            nonzero = terms.negate(eq(b, zero))
            lemmas.append(implies(nonzero, terms.negate(eq(term, zero))))
        return lemmas

    def of_pair(self, first: int, second: int) -> list[int]:
        """Returns the lemmas about two terms of one function."""
        terms = self.terms
        (op, left, value), (op_of_second, right, of) = terms.nodes[first], terms.nodes[second]
        if (op, op_of_second) == ("^", "exp"):
            zero, logarithm = terms.rational(0), terms.make("log", left[:1])
            product = terms.multiply(left[1], logarithm)
            is_positive, is_same = terms.less(zero, left[0]), terms.equal(product, right[0])
            return [terms.implies(is_positive, is_same, terms.equal(first, second))]
        require(op == op_of_second and value == of, "a lemma about functions of two kinds")
        if op == "cospi":
            return self._of_cosines(first, second, left[0], right[0])
        if op == "exp":
            gap = terms.make("exp", (terms.subtract(right[0], left[0]),))
            step = terms.equal(second, terms.multiply(first, gap))
            return [step, *self._of_increasing(first, second)]
        if op == "log":
            positive = terms.less(terms.rational(0), left[0])
            return [terms.implies(positive, lemma) for lemma in self._of_increasing(first, second)]
        if op == "atan":
            return self._of_increasing(first, second)
        if op == "floor":
            return self._of_floors(first, second, left[0], right[0])
        return self._of_powers(first, second, left, right) if op == "^" else []

    def _of_floors(self, first: int, second: int, a: int, b: int) -> list[int]:
        terms, (lt, le, _, implies) = self.terms, self._makers
        unit = terms.rational(1)
        return [
            implies(le(a, b), le(first, second)),
            implies(le(b, terms.add(a, unit)), le(second, terms.add(first, unit))),
            terms.make("or", (le(first, second), lt(second, first))),
        ]

    def _of_increasing(self, first: int, second: int) -> list[int]:
        terms = self.terms
        a, b = terms.nodes[first][1][0], terms.nodes[second][1][0]
        return [
            terms.implies(terms.equal(a, b), terms.equal(first, second)),
            terms.implies(terms.less(a, b), terms.less(first, second)),
        ]

    def _of_cosines(self, first: int, second: int, a: int, b: int) -> list[int]:
        terms, (lt, le, eq, implies) = self.terms, self._makers
        zero, unit, two = (terms.rational(n) for n in (0, 1, 2))
        lemmas = [
            implies(eq(a, b), eq(first, second)),
            implies(eq(terms.add(a, b), zero), eq(first, second)),
            implies(le(zero, a), lt(a, b), le(b, unit), lt(second, first)),
            implies(le(unit, a), lt(a, b), le(b, two), lt(first, second)),
        ]
        if self.forms.of(a) == plus({}, self.forms.of(b), 2):
            square = terms.multiply(two, second, second)
            lemmas.append(eq(terms.add(first, unit), square))
        minus = terms.rational(-1)
        opposite = terms.multiply(minus, second)
        for sign in (-1, 1):
            nonzero, half = self.half_turns(a, b, sign)
            if self.forms.is_whole(half):
                lemmas.append(implies(*nonzero, eq(first, second)))
            elif self.forms.is_whole(plus(half, self.forms.of(terms.rational(fmpq(1, 2))))):
                lemmas.append(implies(*nonzero, eq(first, opposite)))
        total, gap = (
            terms.make("cospi", (angle,)) for angle in (terms.add(a, b), terms.subtract(a, b))
        )
        return [
            *lemmas,
            implies(eq(first, unit), eq(gap, second)),
            implies(eq(first, minus), eq(gap, opposite)),
            eq(terms.multiply(two, first, second), terms.add(total, gap)),
        ]

    def half_turns(self, a: int, b: int, sign: int) -> tuple[list[int], Polynomial]:
        """Returns ``(a + sign b) / 2`` without its divisors, and that they are not 0."""
        terms = self.terms
        turns = plus(self.forms.of(a), self.forms.of(b), sign)
        terms.work += len(turns)
        nonzero = []
        for atom in sorted({atom for monomial in turns for atom, _ in monomial}):
            if self.forms.atoms[atom][0] == "inv":
                (divisor,) = self.forms.arguments[atom]
                is_zero = terms.equal(self.forms.term_of(divisor), terms.rational(0))
                nonzero.append(terms.negate(is_zero))
                turns = cancel(turns, atom, divisor)
        return nonzero, {monomial: coefficient / 2 for monomial, coefficient in turns.items()}

    def _of_powers(
        self, first: int, second: int, left: tuple[int, ...], right: tuple[int, ...]
    ) -> list[int]:
        terms, (lt, le, eq, implies) = self.terms, self._makers
        (a, x), (b, y) = left, right
        zero, unit = terms.rational(0), terms.rational(1)
        lemmas = [implies(eq(a, b), eq(x, y), eq(first, second))]
        if self.forms.of(x) == self.forms.of(y):
            lemmas += [
                implies(le(zero, a), le(a, b), lt(zero, x), le(first, second)),
                implies(le(zero, a), lt(a, b), lt(zero, x), lt(first, second)),
                implies(lt(zero, a), le(a, b), lt(x, zero), le(second, first)),
            ]
            quotient = terms.make("^", (terms.make("/", (b, a)), x))
            is_product = eq(second, terms.multiply(first, quotient))
            lemmas.append(implies(lt(zero, a), le(zero, b), is_product))
        if self.forms.of(a) == self.forms.of(b):
            gap = terms.subtract(y, x)
            step = eq(second, terms.multiply(first, terms.make("^", (a, gap))))
            lemmas += [
                implies(le(unit, a), le(x, y), le(first, second)),
                implies(lt(zero, a), le(a, unit), le(x, y), le(second, first)),
                implies(lt(zero, a), lt(a, unit), lt(x, y), lt(second, first)),
                implies(lt(unit, a), lt(x, y), lt(first, second)),
                implies(lt(zero, a), step),
            ]
            length = whole_constant(self.forms.of(gap))
            if length is not None and length >= 0 and self.forms.is_whole(self.forms.of(x)):
                lemmas.append(implies(le(zero, x), step))
        return lemmas
