"""Functions of sums over indices, and their differentials.

An exponential of a sum is the product of those of its parts. This holds where the graph is defined:
divisors are not 0, and roots and logarithms are of positive numbers.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import z3

from closedform.errors import VerificationError
from tests.proofs.gradients.index_sums import (
    NUMBER,
    Access,
    Sum,
    Summand,
    product,
    restrict,
    scale,
)
from tests.proofs.gradients.normal_forms import (
    as_term,
    call,
    conjuncts,
    contains,
    name_function,
    normal,
    substitute,
    text_of,
)

INFINITY = "infinity"
"""The tensor of the number +∞, which is read under an exponential only."""


def by_cases(function: Callable[[Sum], Sum], value: Sum) -> Sum:
    """Returns a function of a sum, apart for the truths of its conditions."""
    value = normal(value)
    for summand in value:
        for condition in conjuncts(summand.condition):
            # A condition on a bound index is a part of the sum, not a case of its value.
            if any(contains(condition, index) for index, _ in summand.bound):
                continue
            truth = condition.arg(0) if z3.is_not(condition) else condition
            pairs = ((truth, z3.BoolVal(True)), (truth, z3.BoolVal(False)))
            then, otherwise = (
                by_cases(
                    function,
                    tuple(
                        replace(s, condition=z3.simplify(z3.substitute(s.condition, pair)))
                        for s in value
                    ),
                )
                for pair in pairs
            )
            return normal((*restrict(then, truth), *restrict(otherwise, z3.Not(truth))))
    return function(value)


def exponential(value: Sum) -> Sum:
    """Returns the exponential of a sum."""
    return by_cases(_exponential, value)


def _exponential(value: Sum) -> Sum:
    result: Sum = (Summand(Fraction(1)),)
    for summand in normal(value):
        # exp(-inf) is 0: the mask of an attention.
        if any(access.tensor == INFINITY for access in summand.accesses):
            if summand.factor > 0 or len(summand.accesses) > 1 or summand.bound:
                raise VerificationError("an exponential of infinity is not read")
            return ()
        if len(summand.accesses) == 1 and not summand.bound and z3.is_true(summand.condition):
            (access,) = summand.accesses
            definition = access.definition
            if definition is not None and definition.function == "log" and access.power == 1:
                result = product(result, power(definition.at(access.index), summand.factor))
                continue
        unit = (replace(summand, factor=Fraction(1)),)
        result = product(result, (Summand(Fraction(1), (call("exp", unit, summand.factor),)),))
    return normal(result)


_POSITIVE = ("exp", "logistic")


def _is_positive(access: Access) -> bool:
    definition = access.definition
    return (
        access.tensor == NUMBER
        or access.power.denominator > 1
        or (definition is not None and definition.function in _POSITIVE)
    )


def _split(value: Sum, *, is_whole: bool) -> tuple[Fraction, list[Access], Sum]:
    """A sum in normal form as a number and powers times another sum.

    The number is positive, and so are the powers unless they are taken out of a whole power.
    """
    first = value[0]
    common: list[Access] = []
    for access in first.accesses:
        if not (is_whole or _is_positive(access)):
            continue
        powers = [_power_of(access, summand) for summand in value]
        if all(power is not None for power in powers):
            common.append(replace(access, power=min(power for power in powers if power)))
    numerators = [abs(summand.factor.numerator) for summand in value]
    denominators = [summand.factor.denominator for summand in value]
    number = Fraction(math.gcd(*numerators), math.lcm(*denominators))
    if is_whole and len(value) == 1 and not first.bound:
        number = first.factor
    inverse = tuple(replace(access, power=-access.power) for access in common)
    rest = normal(product(value, (Summand(1 / number, inverse),)))
    return number, common, rest


def _power_of(access: Access, summand: Summand) -> Fraction | None:
    """The power of a number in a summand, if it does not depend on the bound indices."""
    if any(contains(i, index) for i in access.index for index, _ in summand.bound):
        return None
    index = tuple(map(text_of, access.index))
    for other in summand.accesses:
        if other.tensor == access.tensor and tuple(map(text_of, other.index)) == index:
            return other.power
    return None


def _is_unit(value: Sum) -> bool:
    return (
        len(value) == 1
        and value[0].factor == 1
        and not value[0].accesses
        and not value[0].bound
        and z3.is_true(value[0].condition)
    )


def power(value: Sum, exponent: Fraction) -> Sum:
    """Returns a power of a sum; a sum that is 0 has positive powers only."""
    if exponent.denominator == 1 and 0 <= exponent <= 4:
        return _power(normal(value), exponent)
    return by_cases(lambda part: _power(part, exponent), value)


def _power(value: Sum, exponent: Fraction) -> Sum:
    is_whole = exponent.denominator == 1
    if not value:
        if exponent > 0:
            return ()
        raise VerificationError("a divisor is 0")
    if is_whole and 0 <= exponent <= 4:
        result: Sum = (Summand(Fraction(1)),)
        for _ in range(int(exponent)):
            result = product(result, _renew(value))
        return normal(result)
    logistic = _logistic_of(value)
    if logistic is not None and exponent < 0:
        return (Summand(Fraction(1), (replace(logistic, power=-exponent),)),)
    number, common, rest = _split(value, is_whole=is_whole)
    factors = [replace(access, power=access.power * exponent) for access in common]
    if not is_whole:
        for whole, sign in ((number.numerator, 1), (number.denominator, -1)):
            factors += [
                Access(NUMBER, (z3.IntVal(prime),), sign * count * exponent)
                for prime, count in _prime_powers(whole)
            ]
    if not _is_unit(rest):
        factors.append(call("sum", rest, exponent))
    scalar = number ** int(exponent) if is_whole else Fraction(1)
    return normal((Summand(scalar, tuple(factors)),))


def _logistic_of(value: Sum) -> Access | None:
    """The logistic function that is the inverse of a sum of the form 1 + exp(-u)."""
    if len(value) != len({"one", "exponential"}):
        return None
    units = [summand for summand in value if _is_unit((summand,))]
    others = [summand for summand in value if summand not in units]
    if len(units) != 1 or len(others[0].accesses) != 1 or others[0].factor != 1:
        return None
    (access,) = others[0].accesses
    definition = access.definition
    is_plain = not others[0].bound and z3.is_true(others[0].condition)
    if not is_plain or definition is None or definition.function != "exp":
        return None
    argument = scale(definition.at(access.index), -access.power)
    return call("logistic", normal(argument))


def _prime_powers(number: int) -> Iterator[tuple[int, int]]:
    """The small primes of a number, with their powers, and the number that is left."""
    for prime in (2, 3, 5, 7, 11, 13):
        count = 0
        while number % prime == 0:
            number //= prime
            count += 1
        if count:
            yield prime, count
    if number > 1:
        yield number, 1


def _renew(value: Sum) -> Sum:
    return substitute(value, ())


def logarithm(value: Sum) -> Sum:
    """Returns the logarithm of a sum of positive value."""
    return by_cases(_logarithm, value)


def _logarithm(value: Sum) -> Sum:
    if not value:
        raise VerificationError("a logarithm of 0 is not read")
    number, common, rest = _split(value, is_whole=False)
    parts: Sum = ()
    for access in common:
        definition = access.definition
        if definition is not None and definition.function == "exp":
            parts += scale(definition.at(access.index), access.power)
        else:
            base = (Summand(Fraction(1), (replace(access, power=Fraction(1)),)),)
            parts += scale((Summand(Fraction(1), (call("log", normal(base)),)),), access.power)
    if number != 1:
        parts += (Summand(Fraction(1), (call("log", (Summand(number),)),)),)
    if not _is_unit(rest):
        parts += (Summand(Fraction(1), (call("log", rest),)),)
    return normal(parts)


def apply(function: str, value: Sum) -> Sum:
    """Returns a function of a sum that has no rules but its derivative."""
    return by_cases(lambda part: (Summand(Fraction(1), (call(function, part),)),), value)


def is_negative(value: Sum) -> Any:
    """Returns the condition of z3 that a sum is below 0; nothing is said of 0."""
    value = normal(value)
    for summand in value:
        for condition in conjuncts(summand.condition):
            if not any(contains(condition, index) for index, _ in summand.bound):
                truth = condition.arg(0) if z3.is_not(condition) else condition
                then, otherwise = (
                    tuple(
                        replace(s, condition=z3.substitute(s.condition, (truth, z3.BoolVal(side))))
                        for s in value
                    )
                    for side in (True, False)
                )
                return z3.simplify(z3.If(truth, is_negative(then), is_negative(otherwise)))
    if not value:
        raise VerificationError("the order of equal numbers is not read")
    if all(not s.accesses and not s.bound and z3.is_true(s.condition) for s in value):
        return z3.BoolVal(sum(summand.factor for summand in value) < 0)
    if _is_of_integers(value):
        # Integers meet at more than single points: their ties are not left out.
        raise VerificationError("the order of integers as real numbers is not read")
    _, _, rest = _split(value, is_whole=False)
    below, above = (
        name_function("negative", rest),
        name_function("negative", normal(scale(rest, Fraction(-1)))),
    )
    name, order = min(below, above, key=lambda pair: pair[0])
    function = z3.Function(name, *[z3.IntSort()] * len(order), z3.BoolSort())
    truth = function(*order) if order else z3.Bool(name)
    return truth if name == below[0] else z3.Not(truth)


def _is_of_integers(value: Sum) -> bool:
    """Whether a sum depends on integers only, which may be equal everywhere."""
    return all(access.tensor == NUMBER for summand in value for access in summand.accesses)


def _integer(value: Sum) -> Any:
    """The multiple of a sum of integers that is an integer of z3."""
    common = math.lcm(*(summand.factor.denominator for summand in value))
    result = z3.IntVal(0)
    for summand in value:
        if summand.bound or any(access.power != 1 for access in summand.accesses):
            raise VerificationError("a comparison of sums of integers is not read")
        term = z3.IntVal(int(summand.factor * common))
        for access in summand.accesses:
            term = term * as_term(access.index[0])
        result = result + z3.If(summand.condition, term, z3.IntVal(0))
    return result


def are_equal_numbers(first: Sum, second: Sum) -> Any:
    """Returns the condition that two sums are equal, off ties: equal numbers have one place."""
    difference = normal((*first, *scale(second, Fraction(-1))))
    if not difference:
        return z3.BoolVal(True)
    if _is_of_integers(difference):
        return _integer(difference) == 0
    if len(first) == len(second) == 1:
        left, right = first[0], second[0]
        if (
            left.factor == right.factor
            and len(left.accesses) == len(right.accesses) == 1
            and left.accesses[0].tensor == right.accesses[0].tensor
            and left.accesses[0].power == right.accesses[0].power == 1
            and not (left.bound or right.bound)
            and z3.is_true(left.condition)
            and z3.is_true(right.condition)
        ):
            pairs = zip(left.accesses[0].index, right.accesses[0].index, strict=True)
            return z3.simplify(z3.And(*(as_term(i) == as_term(j) for i, j in pairs)))
    return z3.BoolVal(False)


def differential(value: Sum, tensor: str, change: str) -> Sum:
    """Returns the change of a sum, to first order, by a change of a tensor.

    Args:
        value: The sum.
        tensor: The name of the tensor.
        change: The name of its change.

    Raises:
        VerificationError: A function has no derivative here.
    """
    result: Sum = ()
    for summand in normal(value):
        for place, access in enumerate(summand.accesses):
            slope = _slope(access, tensor, change)
            if not slope:
                continue
            lower = replace(access, power=access.power - 1)
            accesses = (*summand.accesses[:place], lower, *summand.accesses[place + 1 :])
            before = replace(
                summand,
                factor=summand.factor * access.power,
                accesses=tuple(a for a in accesses if a.power),
            )
            result += product((before,), slope)
    return normal(result)


def _slope(access: Access, tensor: str, change: str) -> Sum:
    """The change of the number of which an access is a power."""
    if access.tensor == tensor:
        return (Summand(Fraction(1), (Access(change, access.index),)),)
    definition = access.definition
    if definition is None:
        return ()
    inner = substitute(
        differential(definition.argument, tensor, change),
        tuple(zip(definition.parameters, access.index, strict=True)),
    )
    if not inner:
        return ()
    this = (Summand(Fraction(1), (replace(access, power=Fraction(1)),)),)
    match definition.function:
        case "sum":
            return inner
        case "exp":
            return product(this, inner)
        case "log":
            return product(power(definition.at(access.index), Fraction(-1)), inner)
        case "logistic":
            return product((*this, *scale(product(this, this), Fraction(-1))), inner)
        case "tanh":
            return product((Summand(Fraction(1)), *scale(product(this, this), Fraction(-1))), inner)
    raise VerificationError(f"{definition.function} has no derivative here")
