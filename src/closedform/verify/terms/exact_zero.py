"""Whether a number is exactly 0, where balls of any precision hold 0.

``log(8)/log(2) - 3``, ``cos(pi/6) - sqrt(3)/2`` and ``10**(1/3) * 100**(1/3) - 10`` are 0, and no
enclosure shows it. Theorems do, each for a kind of numbers:

1. A sum of rational multiples of real radicals is 0 only if it is one term by term, after
   ``sqrt(12) = 2 sqrt(3)`` (Besicovitch 1940; Mordell 1953 for roots of any degree).
2. An algebraic number that is not 0 is not nearer to 0 than its separation bound: where ``u`` and
   ``l`` bound the conjugates of its numerator and denominator, algebraic integers of a field of
   degree D, ``|x| >= 1 / (l * u**(D - 1))`` (Burnikel, Funke, Mehlhorn, Schirra and Schmitt 2001).
   ``2 cos(pi p/q)`` is an algebraic integer with conjugates of at most 2.
3. Powers of pi, and powers of e with distinct rational exponents, are linearly independent over the
   algebraic numbers (Lindemann, Weierstrass).
4. Rational multiples of logarithms of rationals add up to 0 only if the product of the powers is 1,
   and never to a rational other than 0 (Baker).

>>> from closedform.verify.terms import build
>>> from closedform.verify.terms.evaluate import value
>>> three = build.divide(build.log(build.rational(8)), build.log(build.TWO))
>>> is_zero(build.subtract(three, build.rational(3)), {}, value)
True
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from flint import arb, fmpq, fmpz

from closedform.effort import spend
from closedform.verify.terms import build
from closedform.verify.terms.limits import LIMITS
from closedform.verify.terms.linear import linear_forms
from closedform.verify.terms.tree import Op, Term, fold

Evaluate = Callable[[Term, Mapping[str, Any], int], Any]
"""A fraction, ball or ``Undefined`` for a term, the values of its symbols and a precision."""

_BITS = 128

Monomial = tuple[tuple[Term, fmpq], ...]
"""Powers of pi, e and logarithms, each with its exponent, in the order of their texts."""

Form = dict[Monomial, Term]
"""A sum of monomials with algebraic coefficients, terms without symbols."""

_ONE: Monomial = ()
_E = build.exp(build.ONE)


def is_zero(number: Term, point: Mapping[str, Any], evaluate: Evaluate) -> bool | None:
    """Returns whether a number is 0 at a point; None where no theorem of this module says it.

    Args:
        number: A term.
        point: Fractions for its symbols.
        evaluate: The evaluation of terms by balls.
    """

    def visit(node: Term, forms: list[Form | None]) -> Form | None:
        return _form_of(node, forms, point, evaluate)

    form = fold(number, visit)
    if form is None:
        return None
    nonzero: Form = {}
    for monomial, coefficient in form.items():
        vanishes = _is_algebraic_zero(coefficient, evaluate)
        if vanishes is None:
            return None
        if not vanishes:
            nonzero[monomial] = coefficient
    return True if not nonzero else _is_independent(nonzero)


def _is_independent(form: Form) -> bool | None:
    """Whether a sum without zero coefficients is 0, by the generators in it."""
    generators = {generator for monomial in form for generator, _ in monomial}
    if generators <= {build.PI} or generators <= {_E}:
        return False
    if len(form) == 1:
        return False  # a product of numbers other than 0
    if not all(generator.op is Op.LOG for generator in generators):
        return None
    return _is_sum_of_logarithms(form)


def _is_sum_of_logarithms(form: Form) -> bool | None:
    """Whether rational multiples of logarithms, and a rational number, add up to 0."""
    # log(8)/log(2) - 3: multiplied by log(2), which is not 0.
    lowest: dict[Term, fmpq] = {}
    for monomial in form:
        for generator, exponent in monomial:
            lowest[generator] = min(lowest.get(generator, fmpq(0)), exponent)
    factor = tuple((generator, -exponent) for generator, exponent in lowest.items() if exponent < 0)
    total = fmpq(0)
    exponents: dict[fmpq, fmpq] = {}
    for monomial, coefficient in form.items():
        scaled_monomial = _product(monomial, factor)
        if coefficient.op is not Op.RATIONAL or len(scaled_monomial) > 1:
            return None
        if not scaled_monomial:
            total += coefficient.value
            continue
        ((generator, exponent),) = scaled_monomial
        if exponent != 1:
            return None
        number = generator.args[0].value
        exponents[number] = exponents.get(number, fmpq(0)) + coefficient.value
    if total != 0:
        return False
    scale = math.lcm(1, *(int(exponent.q) for exponent in exponents.values()))
    sizes = [
        abs(int((exponent * scale).p)) * max(int(number.p).bit_length(), int(number.q).bit_length())
        for number, exponent in exponents.items()
    ]
    if sum(sizes) > LIMITS.separation_bits:
        return None
    product = fmpq(1)
    for number, exponent in exponents.items():
        power = int((exponent * scale).p)
        product *= number**power if power >= 0 else 1 / number**-power
    return bool(product == 1)


# --- sums of monomials --------------------------------------------------------------------------


def _form_of(
    node: Term, forms: list[Form | None], point: Mapping[str, Any], evaluate: Evaluate
) -> Form | None:
    match node.op:
        case Op.RATIONAL:
            return {_ONE: node}
        case Op.PI:
            return {((build.PI, fmpq(1)),): build.ONE}
        case Op.ADD:
            return _sum_forms(forms)
        case Op.MULTIPLY:
            return _multiply_forms(forms)
        case Op.DIVIDE:
            below = _inverse(forms[1])
            return None if below is None else _multiply_forms([forms[0], below])
        case Op.POWER:
            return _power_of(forms[0], _rational_of(forms[1]))
        case Op.EXP:
            exponent = _rational_of(forms[0])
            return None if exponent is None else {_product(((_E, exponent),)): build.ONE}
        case Op.LOG:
            number = _rational_of(forms[0])
            if number is None or not number > 0:
                return None
            logarithm = build.log(build.rational(number))
            return {((logarithm, fmpq(1)),): build.ONE} if number != 1 else {_ONE: build.ZERO}
        case Op.COSPI | Op.SINPI:
            turns = _rational_of(forms[0])
            return None if turns is None else {_ONE: Term(node.op, (build.rational(turns),))}
        case _:
            # Choices and floors: only where their value is a fraction.
            result = evaluate(node, point, _BITS)
            return {_ONE: build.rational(result)} if isinstance(result, fmpq) else None


def _rational_of(form: Form | None) -> fmpq | None:
    if form is None or set(form) - {_ONE}:
        return None
    coefficient = form.get(_ONE, build.ZERO)
    if coefficient.op is Op.RATIONAL:
        number: fmpq = coefficient.value
        return number
    radicals = _radicals(coefficient)
    if radicals is None or set(radicals) - {()}:
        return None
    return radicals.get((), fmpq(0))


def _product(*monomials: Monomial) -> Monomial:
    exponents: dict[Term, fmpq] = {}
    for monomial in monomials:
        for generator, exponent in monomial:
            exponents[generator] = exponents.get(generator, fmpq(0)) + exponent
    nonzero = ((generator, exponent) for generator, exponent in exponents.items() if exponent != 0)
    return tuple(sorted(nonzero, key=lambda pair: str(pair[0])))


def _sum_forms(forms: list[Form | None]) -> Form | None:
    total: Form = {}
    for form in forms:
        if form is None:
            return None
        for monomial, coefficient in form.items():
            total[monomial] = build.add(total.get(monomial, build.ZERO), coefficient)
    return total


def _multiply_forms(forms: list[Form | None]) -> Form | None:
    product: Form = {_ONE: build.ONE}
    for form in forms:
        if form is None or len(form) * len(product) > LIMITS.power_terms:
            return None
        following: Form = {}
        for left, left_coefficient in product.items():
            for right, right_coefficient in form.items():
                monomial = _product(left, right)
                term = build.multiply(left_coefficient, right_coefficient)
                following[monomial] = build.add(following.get(monomial, build.ZERO), term)
        product = following
    return product


def _inverse(form: Form | None) -> Form | None:
    """One over a form of one term; its coefficient is not 0 where the quotient has a value."""
    if form is None or len(form) != 1:
        return None
    ((monomial, coefficient),) = form.items()
    inverse = tuple((generator, -exponent) for generator, exponent in monomial)
    return {inverse: build.divide(build.ONE, coefficient)}


def _power_of(form: Form | None, exponent: fmpq | None) -> Form | None:
    if form is None or exponent is None or len(form) != 1:
        return None
    ((monomial, coefficient),) = form.items()
    if exponent.q != 1 and any(generator != _E for generator, _ in monomial):
        return None
    monomial_power = tuple((generator, power * exponent) for generator, power in monomial)
    if coefficient == build.ONE:
        return {_product(monomial_power): build.ONE}
    return {_product(monomial_power): Term(Op.POWER, (coefficient, build.rational(exponent)))}


# --- algebraic numbers --------------------------------------------------------------------------


def _is_algebraic_zero(number: Term, evaluate: Evaluate) -> bool | None:
    if number.op is Op.RATIONAL:
        return bool(number.value == 0)
    form = linear_forms(number)[number]
    if form.is_constant:
        return bool(form.constant == 0)
    radicals = _radicals(number)
    if radicals is not None:
        return not any(radicals.values())
    bits = _separation_bits(number)
    if bits is None or bits > LIMITS.separation_bits:
        return None
    # A cosine of 26,000 bits takes 25 ms.
    spend(bits)
    result = evaluate(number, {}, 2 * bits + 64)
    if isinstance(result, fmpq):
        return bool(result == 0)
    if not isinstance(result, arb):
        return None
    if not result.contains(0):
        return False
    return True if result.abs_upper() < arb(2) ** -bits else None


Radical = tuple[tuple[int, fmpq], ...]
"""Factors with exponents between 0 and 1; the factors are coprime, and none is a power."""


def _radicals(number: Term) -> dict[Radical, fmpq] | None:
    """A number as a sum of rational multiples of radicals; None if it is of another kind."""

    def visit(node: Term, sums: list[dict[Radical, fmpq] | None]) -> dict[Radical, fmpq] | None:
        operands = [operand for operand in sums if operand is not None]
        if len(operands) < len(sums):
            return None
        match node.op:
            case Op.RATIONAL:
                return {(): node.value}
            case Op.ADD:
                return _add_radicals(operands)
            case Op.MULTIPLY:
                product = operands[0]
                for operand in operands[1:]:
                    product = _multiply_radicals(product, operand)
                return product
            case Op.DIVIDE:
                inverse = _raise_radical(operands[1], fmpq(-1))
                return None if inverse is None else _multiply_radicals(operands[0], inverse)
            case Op.POWER if node.args[1].op is Op.RATIONAL:
                return _raise_radical(operands[0], node.args[1].value)
            case _:
                return None

    result = fold(number, visit)
    return None if result is None or not _are_coprime(result) else result


def _are_coprime(radicals: Mapping[Radical, fmpq]) -> bool:
    factors = sorted({factor for radical in radicals for factor, _ in radical})
    return math.lcm(*factors) == math.prod(factors)


def _add_radicals(sums: list[dict[Radical, fmpq]]) -> dict[Radical, fmpq]:
    total: dict[Radical, fmpq] = {}
    for operand in sums:
        for radical, coefficient in operand.items():
            total[radical] = total.get(radical, fmpq(0)) + coefficient
    return {radical: coefficient for radical, coefficient in total.items() if coefficient != 0}


def _multiply_radicals(
    left: Mapping[Radical, fmpq], right: Mapping[Radical, fmpq]
) -> dict[Radical, fmpq]:
    products: list[dict[Radical, fmpq]] = []
    for first, first_coefficient in left.items():
        for second, second_coefficient in right.items():
            exponents = dict(first)
            for factor, exponent in second:
                exponents[factor] = exponents.get(factor, fmpq(0)) + exponent
            products.append(_reduce(first_coefficient * second_coefficient, exponents))
    return _add_radicals(products)


def _reduce(coefficient: fmpq, exponents: Mapping[int, fmpq]) -> dict[Radical, fmpq]:
    """A radical with the whole parts of its exponents in the coefficient."""
    fractions: list[tuple[int, fmpq]] = []
    for factor, exponent in sorted(exponents.items()):
        whole = int(exponent.floor())
        coefficient *= fmpq(factor) ** whole if whole >= 0 else 1 / fmpq(factor) ** -whole
        if exponent != whole:
            fractions.append((factor, exponent - whole))
    return {tuple(fractions): coefficient}


def _raise_radical(radicals: Mapping[Radical, fmpq], power: fmpq) -> dict[Radical, fmpq] | None:
    """A power of one radical above 0; None for a sum, or for numbers that are too long."""
    if len(radicals) != 1:
        return None
    ((radical, coefficient),) = radicals.items()
    if not coefficient > 0:
        return None
    exponents = dict(radical)
    for part, direction in ((coefficient.p, 1), (coefficient.q, -1)):
        factors = _factors(fmpz(part))
        if factors is None:
            return None
        for factor, exponent in factors.items():
            exponents[factor] = exponents.get(factor, fmpq(0)) + direction * exponent
    factor_powers = {factor: exponent * power for factor, exponent in exponents.items()}
    size = sum(factor.bit_length() * abs(int(e.floor())) for factor, e in factor_powers.items())
    return None if size > LIMITS.separation_bits else _reduce(fmpq(1), factor_powers)


def _factors(number: fmpz) -> dict[int, int] | None:
    """Prime factors, the last one of which may be composite, but not a power."""
    if number == 1:
        return {}
    if number.bit_length() > LIMITS.number_bits:
        return None
    factors = {int(factor): int(count) for factor, count in number.factor(trial_limit=1000)}
    # Trial division leaves a cofactor, which may be a power of a large prime.
    if any(fmpz(factor).is_perfect_power() for factor in factors if factor > 1):
        return None
    return factors


def _separation_bits(number: Term) -> int | None:
    """Bits b, such that a number that is not 0 is at least ``2**-b`` in size; None if unknown."""
    degree = 1
    angles = 1
    roots: set[Term] = set()

    def visit(node: Term, bounds: list[tuple[float, float] | None]) -> tuple[float, float] | None:
        nonlocal degree, angles
        operands = [bound for bound in bounds if bound is not None]
        if len(operands) < len(bounds):
            return None
        match node.op:
            case Op.RATIONAL:
                return float(abs(int(node.value.p)).bit_length()), float(
                    int(node.value.q).bit_length()
                )
            case Op.ADD:
                upper, lower = operands[0]
                for other_upper, other_lower in operands[1:]:
                    upper = max(upper + other_lower, lower + other_upper) + 1
                    lower += other_lower
                return upper, lower
            case Op.MULTIPLY:
                return sum(bound[0] for bound in operands), sum(bound[1] for bound in operands)
            case Op.DIVIDE:
                (upper, lower), (other_upper, other_lower) = operands
                return upper + other_lower, lower + other_upper
            case Op.COSPI | Op.SINPI if node.args[0].op is Op.RATIONAL:
                # sin(x) is cos(pi/2 - x), an angle of twice the denominator.
                angles = math.lcm(angles, 4 * int(node.args[0].value.q))
                return 1.0, 1.0
            case Op.POWER if node.args[1].op is Op.RATIONAL:
                exponent = node.args[1].value
                upper, lower = operands[0] if exponent > 0 else operands[0][::-1]
                times, root = abs(int(exponent.p)), int(exponent.q)
                if node not in roots:
                    roots.add(node)
                    degree *= root
                upper, lower = times * upper, times * lower
                if upper >= lower:
                    return (upper + (root - 1) * lower) / root, lower
                return upper, ((root - 1) * upper + lower) / root
            case _:
                return None

    bound = fold(number, visit)
    if bound is None:
        return None
    upper, lower = bound
    field = degree * max(1, int(fmpz(angles).euler_phi()) // 2)
    bits = lower + (field - 1) * upper + 2
    return math.ceil(bits * (1 + 2.0**-40)) if bits <= LIMITS.separation_bits else None
