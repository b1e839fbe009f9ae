"""Signs of terms from the signs of their arguments, by rules that hold for all real numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from closedform.verify import terms
from closedform.verify.terms import Op, Sign, Term

_ABOVE = frozenset({Sign.POSITIVE, Sign.NONNEGATIVE})
_BELOW = frozenset({Sign.NEGATIVE, Sign.NONPOSITIVE})
STRICT = frozenset({Sign.POSITIVE, Sign.NEGATIVE})
_OPPOSITE = {
    Sign.POSITIVE: Sign.NEGATIVE,
    Sign.NEGATIVE: Sign.POSITIVE,
    Sign.NONNEGATIVE: Sign.NONPOSITIVE,
    Sign.NONPOSITIVE: Sign.NONNEGATIVE,
    Sign.ANY: Sign.ANY,
}

Rule = Callable[[Term, list[Sign]], Sign]


def of_node(node: Term, args: list[Sign]) -> Sign:
    """Returns the sign of a node where it is defined; ANY where the rules do not say it."""
    rule = RULES.get(node.op)
    return Sign.ANY if rule is None else rule(node, args)


def _rational(node: Term, _: list[Sign]) -> Sign:
    if node.value == 0:
        return Sign.NONNEGATIVE
    return Sign.POSITIVE if node.value > 0 else Sign.NEGATIVE


def _declared(node: Term, _: list[Sign]) -> Sign:
    sign: Sign = node.value.sign
    return sign


def _sum(_: Term, args: list[Sign]) -> Sign:
    for side, strict, weak in (
        (_ABOVE, Sign.POSITIVE, Sign.NONNEGATIVE),
        (_BELOW, Sign.NEGATIVE, Sign.NONPOSITIVE),
    ):
        if all(arg in side for arg in args):
            return strict if strict in args else weak
    return Sign.ANY


def _product(_: Term, args: list[Sign]) -> Sign:
    if Sign.ANY in args:
        return Sign.ANY
    is_negative = sum(arg in _BELOW for arg in args) % 2 == 1
    size = Sign.POSITIVE if all(arg in STRICT for arg in args) else Sign.NONNEGATIVE
    return _OPPOSITE[size] if is_negative else size


def _power(node: Term, args: list[Sign]) -> Sign:
    exponent = node.args[1]
    if args[0] in _ABOVE:
        return args[0]
    is_even = terms.is_rational(exponent) and exponent.value.q == 1 and exponent.value.p % 2 == 0
    return Sign.NONNEGATIVE if is_even else Sign.ANY


def _floor(_: Term, args: list[Sign]) -> Sign:
    if args[0] in _ABOVE:
        return Sign.NONNEGATIVE
    return args[0] if args[0] in _BELOW else Sign.ANY


def _extremum(node: Term, args: list[Sign]) -> Sign:
    """The greater of two is at least either, the lesser at most either."""
    order = [Sign.POSITIVE, Sign.NONNEGATIVE, Sign.ANY, Sign.NONPOSITIVE, Sign.NEGATIVE]
    places = sorted(order.index(arg) for arg in args)
    return order[places[0] if node.op is Op.MAXIMUM else places[-1]]


def weakest(args: list[Sign]) -> Sign:
    """Returns the strongest statement of sign that holds of all."""
    for strict, weak in ((Sign.POSITIVE, Sign.NONNEGATIVE), (Sign.NEGATIVE, Sign.NONPOSITIVE)):
        if set(args) <= {strict, weak}:
            return weak if weak in args else strict
    return Sign.ANY


RULES: Mapping[Op, Rule] = {
    Op.RATIONAL: _rational,
    Op.SYMBOL: _declared,
    Op.PI: lambda node, args: Sign.POSITIVE,
    Op.ADD: _sum,
    Op.MULTIPLY: _product,
    Op.DIVIDE: _product,
    Op.POWER: _power,
    Op.EXP: lambda node, args: Sign.POSITIVE,
    Op.FLOOR: _floor,
    Op.MINIMUM: _extremum,
    Op.MAXIMUM: _extremum,
    Op.ABSOLUTE: lambda node, args: Sign.POSITIVE if args[0] in STRICT else Sign.NONNEGATIVE,
    Op.ITE: lambda node, args: weakest(args[1:]),
}
"""What the sign of each kind of term follows from."""
