"""Congruence: two terms made of equal parts in one way are equal, whatever their functions are.

Each term gets a form: a sum of rational multiples of products of powers of atoms. An atom is a
symbol, a sum under a product, or a function of forms, and is known by its kind and these forms
only. The rules:

1. Sums and products of numbers commute and associate; equal summands and factors are collected;
   a rational factor is taken into a sum. Products of sums stay as they are.
2. ``(x^p)^q = x^(p q)`` for whole q, and where p is not even; ``(c x)^q = c^q x^q`` for a
   rational c above 0; ``b^u = exp(u log b)``, ``exp(u + v) = exp(u) exp(v)``.
3. min, max, and, or do not care for order; ``|c x| = |c| |x|``; ``z < min(x, y)`` is ``z < x`` and
   ``z < y``; of integers ``x <= y`` is ``x < y + 1``; a choice on a condition that is decided
   around it is one of its branches; a choice between a value and none is the value.
4. A comparison with 0 is decided where the parts of the number show its sign: a root is not below.
5. A function of whole tensors is that of its operand at all elements: what is decided at this
   element is not used in it.
6. What is left of a difference is asked of the identity engine, with each atom as a symbol.

All hold where both sides are defined. But for 6, the cost is linear. Unequal forms say nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from flint import fmpq

from closedform.verify.identity import forms
from closedform.verify.identity.forms import ONE, ZERO, Form, Known, Monomial, NoForm, Truth
from closedform.verify.terms import build
from closedform.verify.terms.canonical import is_zero
from closedform.verify.terms.facts import sign_of
from closedform.verify.terms.limits import LIMITS
from closedform.verify.terms.quotients import prime_powers
from closedform.verify.terms.tree import Op, Sign, Term, symbols

_NOTHING: Known = frozenset()
_UNDEFINED = "undefined"


def are_congruent(
    left: Term,
    right: Term,
    sign_of: Callable[[Term], Sign] | None = None,
    *,
    is_by_form: bool = False,
) -> bool:
    """Returns whether two numbers are shown to be equal wherever both are defined.

    Args:
        left: A number.
        right: Another one.
        sign_of: What is known of the sign of a term, for the identity engine.
        is_by_form: Whether to leave the engine out.

    Example:
        >>> x, y = build.symbol("x"), build.symbol("y")
        >>> root = build.square_root(build.opaque("f", build.multiply(x, y)))
        >>> same = build.divide(
        ...     build.ONE, build.square_root(build.opaque("f", build.multiply(y, x)))
        ... )
        >>> are_congruent(build.divide(x, root), build.multiply(same, x))
        True
    """
    table = Congruence()
    try:
        difference = forms.total((table.form(left), forms.scale(table.form(right), fmpq(-1))))
        if not difference or is_by_form:
            return not difference
        return is_zero(table.term_of(difference), sign_of)
    except NoForm:
        return False


def with_split_roots(root: Term, clock: Term, sign_of: Callable[[Term], Sign]) -> Term:
    """Returns a term with ``(a b)^q`` as ``a^q b^q``, where a is of the clock only and above 0.

    Args:
        root: A term.
        clock: The symbol of the step.
        sign_of: The sign of a term of the clock at the steps that are considered.
    """
    return build.rewrite(root, lambda node: _split_root(node, clock, sign_of))


def _split_root(node: Term, clock: Term, sign_of: Callable[[Term], Sign]) -> Term:
    if node.op is not Op.POWER or not build.is_rational(node.args[1]) or node.args[1].value.q == 1:
        return node
    base, exponent = node.args
    positive, others = [], []
    for factor, times in _factors(base, 1):
        is_of_clock = symbols(factor).keys() == {clock.value.name}
        is_positive = is_of_clock and sign_of(factor) is Sign.POSITIVE
        power = build.multiply(exponent, build.rational(times))
        if is_positive:
            positive.append(build.power(factor, power))
        else:
            others.append(factor if times == 1 else build.divide(build.ONE, factor))
    if not positive or not others:
        return node
    return build.multiply(build.power(build.multiply(*others), exponent), *positive)


def _factors(node: Term, times: int) -> Iterator[tuple[Term, int]]:
    """The factors of a product or quotient with their exponents, 1 or -1."""
    if node.op is Op.MULTIPLY:
        for factor in node.args:
            yield from _factors(factor, times)
    elif node.op is Op.DIVIDE:
        yield from _factors(node.args[0], times)
        yield from _factors(node.args[1], -times)
    else:
        yield node, times


@dataclass(slots=True)
class Congruence:
    """The atoms of some terms.

    Attributes:
        atoms: The number of each atom, by its kind and parts.
        bases: The forms of atoms that replace a sum, or the radicand of a root.
        primes: The rational numbers that atoms replace, as the bases of roots.
        logs: The rational numbers above 0 whose logarithms atoms are.
        unsure: Logarithms and powers of what may be below 0, of which no root is taken.
        whole: The symbols of integers.
    """

    atoms: dict[Hashable, int] = field(default_factory=dict)
    bases: dict[int, Form] = field(default_factory=dict)
    primes: dict[int, fmpq] = field(default_factory=dict)
    logs: dict[int, fmpq] = field(default_factory=dict)
    unsure: set[int] = field(default_factory=set)
    whole: set[int] = field(default_factory=set)
    _forms: dict[tuple[Term, Known], Form] = field(default_factory=dict)
    _truths: dict[tuple[Term, Known], Truth] = field(default_factory=dict)

    def form(self, root: Term, facts: Known = _NOTHING) -> Form:
        """Returns the form of a number."""
        key = root, facts
        if key not in self._forms:
            self._forms[key] = self._form(root, facts)
        return self._forms[key]

    def _atom(self, *key: Hashable) -> Form:
        return forms.power_of(self._number(*key), ONE)

    def _number(self, *key: Hashable) -> int:
        return self.atoms.setdefault(key, len(self.atoms))

    def _form(self, node: Term, facts: Known) -> Form:
        match node.op:
            case Op.RATIONAL:
                return forms.constant(node.value)
            case Op.SYMBOL:
                atom = self._number("symbol", node.value.name)
                self.whole |= {atom} if node.value.integer else set()
                return forms.power_of(atom, ONE)
            case Op.ADD:
                return forms.total(self.form(arg, facts) for arg in node.args)
            case Op.MULTIPLY:
                return self.product(self.form(arg, facts) for arg in node.args)
            case Op.DIVIDE:
                above, below = (self.form(arg, facts) for arg in node.args)
                return self.product((above, self.power(below, fmpq(-1))))
            case Op.POWER:
                return self._power(*(self.form(arg, facts) for arg in node.args))
            case Op.EXP:
                return self._exponential(self.form(node.args[0], facts))
            case Op.LOG:
                return self._logarithm(self.form(node.args[0], facts))
            case Op.ITE:
                return self._choice(node, facts)
            case Op.MINIMUM | Op.MAXIMUM:
                parts = frozenset(self.form(arg, facts) for arg in forms.flatten_op(node, node.op))
                return next(iter(parts)) if len(parts) == 1 else self._atom(node.op, parts)
            case Op.ABSOLUTE | Op.SIGN | Op.COSPI | Op.SINPI | Op.ATAN:
                return self._symmetric(node.op, self.form(node.args[0], facts))
            case Op.OPAQUE:
                return self._atom(node.op, node.value, *(self.form(arg) for arg in node.args))
            case Op.UNDEFINED:
                return self._atom(_UNDEFINED)
            case _:
                parts_of = (self.form(arg, facts) for arg in node.args)
                return self._atom(node.op, node.value, *parts_of)

    # --- sums and products -----------------------------------------------------------------------

    def product(self, factors: Iterable[Form]) -> Form:
        """Returns the product of some forms; sums of several summands become atoms."""
        factor, sums = ONE, []
        powers: dict[int, fmpq] = {}
        for form in factors:
            if not form:
                return ()
            # Sums are atoms in a product, not multiplied out: (a + b)^8 (c + d)^8 has 81 terms.
            if len(form) > 1:
                sums.append(form)
                continue
            ((monomial, times),) = form
            factor *= times
            for atom, exponent in monomial:
                powers[atom] = powers.get(atom, ZERO) + exponent
        if not powers and len(sums) == 1:
            return forms.scale(sums[0], factor)
        for form in sums:
            atom, times = self._as_atom(form)
            factor *= times
            powers[atom] = powers.get(atom, ZERO) + 1
        return self._collect_powers(factor, powers)

    def _collect_powers(self, factor: fmpq, powers: Mapping[int, fmpq]) -> Form:
        """A product of powers; whole powers of a radicand are expanded."""
        left, is_final = dict[int, fmpq](), True
        for atom, exponent in powers.items():
            base: Form = ((((atom, ONE),), ONE),)
            if exponent.q == 1 and atom in self.primes:
                base = forms.constant(self.primes[atom])
            # A whole power of a root is a power of its radicand: (r^(1/2))^2 = r.
            elif exponent.q == 1 and atom in self.bases and not self._is_sum(atom):
                base, is_final = self.bases[atom], False
            if len(base) > 1:
                base_atom, times = self._as_atom(base)
                base = ((((base_atom, ONE),), times),)
            ((monomial, times),) = base
            factor *= _power_of(times, int(exponent.p))
            for base_atom, inner in monomial:
                left[base_atom] = left.get(base_atom, ZERO) + inner * exponent
        if not is_final:
            return self._collect_powers(factor, left)
        product = tuple(sorted((a, e) for a, e in left.items() if e != 0))
        if len(product) == 1 and product[0][1] == 1 and self._is_sum(product[0][0]):
            return forms.scale(self.bases[product[0][0]], factor)
        return ((product, factor),)

    def _is_sum(self, atom: int) -> bool:
        base = self.bases.get(atom)
        return base is not None and len(base) > 1 and base[0][1] == 1

    def _as_atom(self, form: Form) -> tuple[int, fmpq]:
        """(a, c) with ``form = c a`` and a the atom of a sum whose first coefficient is 1."""
        # 2x + 2y and x + y share one atom, with the factor outside.
        leading = form[0][1]
        monic = forms.scale(form, 1 / leading)
        atom = self._number("base", monic)
        self.bases[atom] = monic
        return atom, leading

    # --- powers ----------------------------------------------------------------------------------

    def _power(self, base: Form, exponent: Form) -> Form:
        number = forms.number_of(exponent)
        if number is not None:
            return self.power(base, number)
        return self._exponential(self.product((exponent, self._logarithm(base))))

    def power(self, base: Form, exponent: fmpq) -> Form:
        """Returns a power with a rational exponent."""
        if exponent == 0:
            return forms.constant(ONE)
        if not base:
            if exponent < 0:
                raise NoForm
            return ()
        if exponent == 1:
            return base
        if exponent.q == 1:
            return self._whole_power(base, int(exponent.p))
        size = abs(base[0][1])
        return self.product((self._root_of(size, exponent), self._root(base, size, exponent)))

    def _whole_power(self, base: Form, times: int) -> Form:
        if len(base) > 1:
            atom, factor = self._as_atom(base)
            return self._collect_powers(_power_of(factor, times), {atom: fmpq(times)})
        ((monomial, factor),) = base
        powers = {a: e * times for a, e in monomial}
        return self._collect_powers(_power_of(factor, times), powers)

    def _root_of(self, number: fmpq, exponent: fmpq) -> Form:
        """A power of a rational number above 0, by its primes."""
        powers = prime_powers(number)
        return self.product(self._prime(prime, exponent * times) for prime, times in powers)

    def _prime(self, number: fmpq, exponent: fmpq) -> Form:
        atom = self._number("number", number)
        self.primes[atom] = number
        # 2^(5/2) = 4 * 2^(1/2): exponents of numbers in [0, 1), or equal numbers had several forms.
        whole = fmpq(exponent.floor())
        rest = exponent - whole
        return self._collect_powers(_power_of(number, int(whole.p)), {atom: rest})

    def _root(self, base: Form, size: fmpq, exponent: fmpq) -> Form:
        """A fractional power of ``base / size``, whose first coefficient is 1 or -1."""
        unit = forms.scale(base, 1 / size)
        if len(unit) == 1 and unit[0][1] == 1:
            monomial = unit[0][0]
            if not monomial:
                return forms.constant(ONE)
            ((atom, inner), *more) = monomial
            # (x^2)^(1/2) is |x|, not x.
            is_even = inner.q == 1 and int(inner.p) % 2 == 0
            # Of an unsure one not: ((-1)^n)^(1/2) is not (-1)^(n/2).
            if not more and not is_even and atom not in self.unsure:
                return self._collect_powers(ONE, {atom: inner * exponent})
        atom = self._number("base", unit)
        self.bases[atom] = unit
        return ((((atom, exponent),), ONE),)

    def _logarithm(self, base: Form) -> Form:
        atom = self._number("log", base)
        number = forms.number_of(base)
        if number is not None and number > 0:
            self.logs[atom] = number
        else:
            self.unsure.add(atom)
        return forms.power_of(atom, ONE)

    def _exponential(self, exponent: Form) -> Form:
        factors = []
        for monomial, times in self._expand(exponent):
            base = self._logged_number(monomial)
            if base is not None:
                factors.append(self._root_of(base, times))
            else:
                atom = self._number("exp", monomial)
                if any(factor in self.unsure for factor, _ in monomial):
                    self.unsure.add(atom)
                factors.append(forms.power_of(atom, times))
        return self.product(factors)

    def _logged_number(self, monomial: Monomial) -> fmpq | None:
        """The rational number above 0 whose logarithm a monomial is."""
        is_one = len(monomial) == 1 and monomial[0][1] == 1
        return self.logs.get(monomial[0][0]) if is_one else None

    def _expand(self, form: Form) -> Form:
        """The form with its products of sums multiplied out, where these are few."""
        result: list[Form] = []
        for monomial, times in form:
            parts: list[Form] = [forms.constant(times)]
            for atom, exponent in monomial:
                is_factor = self._is_sum(atom) and exponent.q == 1 and 0 < exponent <= 3
                factor = self.bases[atom] if is_factor else forms.power_of(atom, exponent)
                for _ in range(int(exponent.p) if is_factor else 1):
                    parts = [self.product((part, ((m, c),))) for part in parts for m, c in factor]
                if len(parts) > LIMITS.expanded_terms:
                    return form
            result += parts
        return forms.total(result)

    # --- functions and choices -------------------------------------------------------------------

    def _symmetric(self, op: Op, inner: Form) -> Form:
        """abs, sign, cos, … of multiples: their sign, and for abs and sign their size, goes out."""
        if not inner:
            return forms.constant(ONE if op is Op.COSPI else ZERO)
        leading = inner[0][1]
        is_odd = op in (Op.SIGN, Op.SINPI, Op.ATAN)
        outer = abs(leading) if op is Op.ABSOLUTE else fmpq(-1 if leading < 0 and is_odd else 1)
        by = leading if op in (Op.ABSOLUTE, Op.SIGN) else fmpq(-1 if leading < 0 else 1)
        return forms.scale(self._atom(op, forms.scale(inner, 1 / by)), outer)

    def _choice(self, node: Term, facts: Known) -> Form:
        condition, then, otherwise = node.args
        # Terms are compared where both have a value; there, the other branch is taken.
        if then.op is Op.UNDEFINED or otherwise.op is Op.UNDEFINED:
            return self.form(otherwise if then.op is Op.UNDEFINED else then, facts)
        truth = self.truth(condition, facts)
        if isinstance(truth, bool):
            return self.form(then if truth else otherwise, facts)
        # One orientation, so that ite(c, a, b) and ite(not c, b, a) are one atom.
        if forms.is_negated(truth):
            truth, then, otherwise = forms.opposite(truth), otherwise, then
        holds = self.form(then, facts | forms.facts_of(truth, True))
        fails = self.form(otherwise, facts | forms.facts_of(truth, False))
        return holds if holds == fails else self._atom(Op.ITE, truth, holds, fails)

    def truth(self, condition: Term, facts: Known = _NOTHING) -> Truth:
        """Returns the form of a condition, True or False where it is decided."""
        key = condition, facts
        if key not in self._truths:
            truth = self._truth(condition, facts)
            self._truths[key] = forms.simplify_truth(truth, facts)
        return self._truths[key]

    def _truth(self, node: Term, facts: Known) -> Truth:
        match node.op:
            case Op.TRUE | Op.FALSE:
                return node.op is Op.TRUE
            case Op.LESS | Op.LESS_EQUAL | Op.EQUAL:
                return self._relation(node, facts)
            case Op.AND | Op.OR:
                return forms.junction(node.op, [self.truth(arg, facts) for arg in node.args])
            case Op.NOT:
                return forms.opposite(self.truth(node.args[0], facts))
            case _:
                raise NoForm

    def _relation(self, node: Term, facts: Known) -> Truth:
        """``a < b`` as ``0 < b - a``; one with an extremum by its parts."""
        left, right = node.args
        parts, junction_op = forms.parts_of_relation(node.op, left, right)
        if len(parts) > 1:
            return forms.junction(junction_op, [self.truth(part, facts) for part in parts])
        above, below = self.form(right, facts), self.form(left, facts)
        difference = forms.total((above, forms.scale(below, fmpq(-1))))
        number = forms.number_of(difference)
        if number is not None:
            return build.is_satisfied(node.op, number)
        if build.ZERO in node.args:
            truth = _truth_by_sign(node.op, sign_of(build.subtract(right, left)))
            if truth is not None:
                return truth
        if node.op is not Op.EQUAL and forms.is_whole(difference, self.whole):
            # a <= b of integers is a < b + 1.
            bound = () if node.op is Op.LESS else forms.constant(ONE)
            return forms.WHOLE, forms.total((difference, bound))
        leading = difference[0][1]
        # An equation may be multiplied with -1, an inequality only with positive numbers.
        by = leading if node.op is Op.EQUAL else abs(leading)
        return node.op, forms.scale(difference, 1 / by)

    # --- back to terms ---------------------------------------------------------------------------

    def term_of(self, form: Form) -> Term:
        """Returns a form as a term with a symbol for each atom but sums and roots."""
        summands = []
        for monomial, times in form:
            powers = (self._power_term(atom, exponent) for atom, exponent in monomial)
            summands.append(build.multiply(build.rational(times), *powers))
        return build.add(*summands)

    def _power_term(self, atom: int, exponent: fmpq) -> Term:
        if atom in self.bases:
            base = self.term_of(self.bases[atom])
        elif atom in self.primes:
            base = build.rational(self.primes[atom])
        else:
            base = build.own_symbol(f"atom {atom}")
        return build.power(base, build.rational(exponent))


def _truth_by_sign(op: Op, sign: Sign) -> bool | None:
    """Whether ``0 op x`` holds for all x of a sign, or for none."""
    if sign is Sign.POSITIVE or (sign is Sign.NONNEGATIVE and op is Op.LESS_EQUAL):
        return op is not Op.EQUAL
    is_never = sign is Sign.NEGATIVE or (sign is Sign.NONPOSITIVE and op is Op.LESS)
    return False if is_never else None


def _power_of(number: fmpq, exponent: int) -> fmpq:
    """A whole power.

    Raises:
        NoForm: It has more digits than a constant may have.
    """
    bits = number.p.bit_length() + number.q.bit_length()
    if abs(exponent) > 1 and bits > 2 and bits * abs(exponent) > 2 * LIMITS.constant_bits:
        raise NoForm
    return number**exponent
