"""Facts about a term by how it is written: its sign, and the direction in which it moves.

One rule for each operation says how its sign follows from the signs of its operands, and one how
its direction follows from their directions and signs. Each holds for all real numbers at which the
operation is defined. What is known of the operands is the caller's: the declarations of symbols
(``sign_of``), linear forms on an interval of steps, or bounds at the ends of a run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum

from flint import arb, fmpq

from closedform.verify.terms import build
from closedform.verify.terms.tensor_functions import REDUCE_MAX, REDUCE_SUM, kind_of
from closedform.verify.terms.tree import Op, Sign, Term, fold

NON_NEGATIVE = frozenset({Sign.POSITIVE, Sign.NONNEGATIVE})
NON_POSITIVE = frozenset({Sign.NEGATIVE, Sign.NONPOSITIVE})
STRICT = frozenset({Sign.POSITIVE, Sign.NEGATIVE})
_OPPOSITE = {
    Sign.POSITIVE: Sign.NEGATIVE,
    Sign.NEGATIVE: Sign.POSITIVE,
    Sign.NONNEGATIVE: Sign.NONPOSITIVE,
    Sign.NONPOSITIVE: Sign.NONNEGATIVE,
    Sign.ANY: Sign.ANY,
}


def sign_of(term: Term) -> Sign:
    """Returns the sign of a term wherever it is defined, by the declarations of its symbols."""
    return fold(term, sign_from)


def sign_claims(number: Term) -> dict[Sign, Term]:
    """Returns the statement that a number has a sign, by sign; that of ANY is left out."""
    return {
        Sign.POSITIVE: build.less(build.ZERO, number),
        Sign.NEGATIVE: build.less(number, build.ZERO),
        Sign.NONNEGATIVE: build.less_equal(build.ZERO, number),
        Sign.NONPOSITIVE: build.less_equal(number, build.ZERO),
    }


def is_non_negative(term: Term) -> bool:
    """Returns whether a term is at least 0, wherever it is defined, by how it is written."""
    return sign_of(term) in NON_NEGATIVE


def is_integer(term: Term) -> bool:
    """Returns whether a term is an integer by how it is written.

    Integer symbols, floors, signs, and sums, products and extremes of integers are.
    """
    return fold(term, _is_integer)


def _is_integer(node: Term, args: list[bool]) -> bool:
    match node.op:
        case Op.RATIONAL:
            return bool(node.value.q == 1)
        case Op.SYMBOL:
            return bool(node.value.integer)
        case Op.ADD | Op.MULTIPLY | Op.MINIMUM | Op.MAXIMUM | Op.ABSOLUTE:
            return all(args)
        case _:
            return node.op in (Op.FLOOR, Op.SIGN)


def sign_of_number(number: fmpq | arb) -> Sign:
    """Returns the sign of a fraction, or of all numbers in a ball; of 0 it is NONNEGATIVE."""
    return sign_between(number, number)


def sign_between(low: fmpq | arb | None, high: fmpq | arb | None) -> Sign:
    """Returns the sign of all numbers from ``low`` to ``high``; None stands for no bound."""
    if low is not None and low >= 0:
        return Sign.POSITIVE if low > 0 else Sign.NONNEGATIVE
    if high is not None and high <= 0:
        return Sign.NEGATIVE if high < 0 else Sign.NONPOSITIVE
    return Sign.ANY


def sign_from(node: Term, args: Sequence[Sign]) -> Sign:
    """Returns the sign of a node where it is defined; ANY where the rules do not determine it."""
    rule = SIGN_RULES.get(node.op)
    return Sign.ANY if rule is None else rule(node, args)


def weakest(signs: Sequence[Sign]) -> Sign:
    """Returns the strongest sign that holds of all."""
    for strict, weak in ((Sign.POSITIVE, Sign.NONNEGATIVE), (Sign.NEGATIVE, Sign.NONPOSITIVE)):
        if set(signs) <= {strict, weak}:
            return weak if weak in signs else strict
    return Sign.ANY


# --- signs ---------------------------------------------------------------------------------------

SignRule = Callable[[Term, Sequence[Sign]], Sign]


def _declared_sign(node: Term, _: Sequence[Sign]) -> Sign:
    sign: Sign = node.value.sign
    return sign


def sign_of_sum(args: Sequence[Sign]) -> Sign:
    """Returns the sign of a sum of numbers of these signs."""
    for side, strict, weak in (
        (NON_NEGATIVE, Sign.POSITIVE, Sign.NONNEGATIVE),
        (NON_POSITIVE, Sign.NEGATIVE, Sign.NONPOSITIVE),
    ):
        if all(arg in side for arg in args):
            return strict if strict in args else weak
    return Sign.ANY


def sign_of_product(args: Sequence[Sign]) -> Sign:
    """Returns the sign of a product, or of a quotient, of numbers of these signs."""
    if Sign.ANY in args:
        return Sign.ANY
    is_negative = sum(arg in NON_POSITIVE for arg in args) % 2 == 1
    size = Sign.POSITIVE if all(arg in STRICT for arg in args) else Sign.NONNEGATIVE
    return _OPPOSITE[size] if is_negative else size


def _product(node: Term, args: Sequence[Sign]) -> Sign:
    """Equal factors of unknown sign make squares."""
    unknown = [arg for arg, sign in zip(node.args, args, strict=True) if sign is Sign.ANY]
    # x * x >= 0 whatever the sign of x is; x * x * x is open.
    if any(unknown.count(arg) % 2 for arg in unknown):
        return Sign.ANY
    definite_signs = [sign for sign in args if sign is not Sign.ANY]
    return sign_of_product([*definite_signs, Sign.NONNEGATIVE] if unknown else definite_signs)


def _power(node: Term, args: Sequence[Sign]) -> Sign:
    """A power to an exponent that is not whole is defined of no number below 0."""
    if args[0] in NON_NEGATIVE:
        return args[0]
    exponent = node.args[1]
    is_root = build.is_rational(exponent) and exponent.value.q != 1
    return Sign.NONNEGATIVE if is_root or _is_even(exponent) else Sign.ANY


def _is_even(exponent: Term) -> bool:
    is_whole = build.is_rational(exponent) and exponent.value.q == 1
    return is_whole and exponent.value.p % 2 == 0


def _logarithm(node: Term, _: Sequence[Sign]) -> Sign:
    (number,) = node.args
    return sign_of_number(number.value - 1) if build.is_rational(number) else Sign.ANY


def _floor(_: Term, args: Sequence[Sign]) -> Sign:
    # floor(1/2) = 0: a positive number becomes nonnegative, a negative one stays negative.
    return Sign.NONNEGATIVE if args[0] in NON_NEGATIVE else args[0]


def _extremum(node: Term, args: Sequence[Sign]) -> Sign:
    """The greater of two is at least either, the lesser at most either."""
    # From the greatest on: max(a, b) >= a has at least the sign of the first of its operands in
    # this order.
    order = [Sign.POSITIVE, Sign.NONNEGATIVE, Sign.ANY, Sign.NONPOSITIVE, Sign.NEGATIVE]
    places = sorted(order.index(arg) for arg in args)
    return order[places[0] if node.op is Op.MAXIMUM else places[-1]]


def _opaque(node: Term, args: Sequence[Sign]) -> Sign:
    """A sum or maximum of elements; that of none is 0."""
    if kind_of(node.value) not in (REDUCE_SUM, REDUCE_MAX):
        return Sign.ANY
    return weakest([args[0], Sign.NONNEGATIVE if args[0] in NON_NEGATIVE else Sign.NONPOSITIVE])


SIGN_RULES: Mapping[Op, SignRule] = {
    Op.RATIONAL: lambda node, _: sign_of_number(node.value),
    Op.SYMBOL: _declared_sign,
    Op.PI: lambda _, __: Sign.POSITIVE,
    Op.ADD: lambda _, args: sign_of_sum(args),
    Op.MULTIPLY: _product,
    Op.DIVIDE: _product,
    Op.POWER: _power,
    Op.EXP: lambda _, __: Sign.POSITIVE,
    Op.LOG: _logarithm,
    Op.ATAN: lambda _, args: args[0],
    Op.FLOOR: _floor,
    Op.MINIMUM: _extremum,
    Op.MAXIMUM: _extremum,
    Op.ABSOLUTE: lambda _, args: Sign.POSITIVE if args[0] in STRICT else Sign.NONNEGATIVE,
    Op.ITE: lambda _, args: weakest(args[1:]),
    Op.OPAQUE: _opaque,
}
"""How the sign of each kind of term follows from the signs of its operands."""


# --- directions ----------------------------------------------------------------------------------


class Direction(StrEnum):
    """The direction in which a number moves with the clock."""

    CONSTANT = "constant"
    INCREASING = "increasing"
    DECREASING = "decreasing"
    UNKNOWN = "unknown"

    @property
    def opposite(self) -> Direction:
        """The direction of the negated number."""
        return _REVERSED[self]


_REVERSED = {
    Direction.INCREASING: Direction.DECREASING,
    Direction.DECREASING: Direction.INCREASING,
    Direction.CONSTANT: Direction.CONSTANT,
    Direction.UNKNOWN: Direction.UNKNOWN,
}

Directions = Sequence[Direction]
Signs = Sequence[Sign]
DirectionRule = Callable[[Term, Directions, Signs, bool], Direction]


def direction_from(
    node: Term, directions: Directions, signs: Signs, *, strictly: bool = False
) -> Direction:
    """Returns the direction of a node where it is defined; UNKNOWN where no rule determines it.

    Args:
        node: The node.
        directions: The directions of its operands.
        signs: The signs of its operands.
        strictly: Whether a direction excludes steps without a change; by default it does not.
    """
    if all(direction is Direction.CONSTANT for direction in directions):
        return Direction.CONSTANT
    rule = DIRECTION_RULES.get(node.op)
    return Direction.UNKNOWN if rule is None else rule(node, directions, signs, strictly)


def _common(directions: Directions) -> Direction:
    """The direction of a value that moves with each of several numbers."""
    moving = set(directions) - {Direction.CONSTANT}
    if not moving:
        return Direction.CONSTANT
    return moving.pop() if len(moving) == 1 else Direction.UNKNOWN


def _extremum_direction(_: Term, directions: Directions, __: Signs, strictly: bool) -> Direction:
    """With a constant a minimum may stand still."""
    # Max and min of monotone functions are monotone, but max(f, c) is constant while f < c.
    if strictly and Direction.CONSTANT in directions:
        return Direction.UNKNOWN
    return _common(directions)


def _scale_direction(direction: Direction, factor: Sign, strictly: bool) -> Direction:
    """The direction of a constant multiple."""
    if direction is Direction.CONSTANT:
        return direction
    if factor is Sign.ANY or (strictly and factor not in STRICT):
        return Direction.UNKNOWN
    return direction if factor in NON_NEGATIVE else direction.opposite


def direction_of_product(directions: Directions, signs: Signs, strictly: bool = False) -> Direction:
    """Returns the direction of the product of two numbers."""
    for factor_direction, sign, cofactor_direction in (
        (directions[0], signs[0], directions[1]),
        (directions[1], signs[1], directions[0]),
    ):
        if factor_direction is Direction.CONSTANT:
            return _scale_direction(cofactor_direction, sign, strictly)
    if Sign.ANY in signs:
        return Direction.UNKNOWN
    # The size of a product is the product of the sizes, and a product of nonnegative functions that
    # rise rises; the sign of the product turns it.
    of_sizes = [
        direction if sign in NON_NEGATIVE else direction.opposite
        for direction, sign in zip(directions, signs, strict=True)
    ]
    size = _common(of_sizes)
    return size if sign_of_product(signs) in NON_NEGATIVE else size.opposite


def _product_direction(
    node: Term, directions: Directions, signs: Signs, strictly: bool
) -> Direction:
    if any(build.is_rational(arg) and arg.value == 0 for arg in node.args):
        return Direction.CONSTANT
    direction, sign = directions[0], signs[0]
    for factor_direction, factor_sign in zip(directions[1:], signs[1:], strict=True):
        direction = direction_of_product(
            (direction, factor_direction), (sign, factor_sign), strictly
        )
        sign = sign_of_product((sign, factor_sign))
    return direction


def _quotient_direction(_: Term, directions: Directions, signs: Signs, strictly: bool) -> Direction:
    """A product with the inverse, which moves the other way while the divisor keeps its sign."""
    # 1/f falls where f rises only while f has one sign: 1/x rises from x = -1 to x = 1, over a
    # pole.
    if signs[1] not in STRICT:
        return Direction.UNKNOWN
    return direction_of_product((directions[0], directions[1].opposite), signs, strictly)


def _power_direction(node: Term, directions: Directions, signs: Signs, strictly: bool) -> Direction:
    """The direction of a power to a constant exponent, by the direction and sign of its base."""
    # x**x has no direction by its parts.
    if directions[1] is not Direction.CONSTANT:
        return Direction.UNKNOWN
    if signs[0] in NON_NEGATIVE:
        return _scale_direction(directions[0], signs[1], strictly)
    exponent = node.args[1]
    # Below 0 only whole powers are defined: odd ones rise everywhere, even ones fall, and those to
    # an exponent below 0 have a pole at 0.
    if not (build.is_rational(exponent) and exponent.value.q == 1 and exponent.value > 0):
        return Direction.UNKNOWN
    if not _is_even(exponent):
        return directions[0]
    return directions[0].opposite if signs[0] in NON_POSITIVE else Direction.UNKNOWN


def _absolute_direction(_: Term, directions: Directions, signs: Signs, __: bool) -> Direction:
    if signs[0] is Sign.ANY:
        return Direction.UNKNOWN
    return directions[0] if signs[0] in NON_NEGATIVE else directions[0].opposite


def _same_direction(_: Term, directions: Directions, __: Signs, ___: bool) -> Direction:
    return directions[0]


def _step_direction(_: Term, directions: Directions, __: Signs, strictly: bool) -> Direction:
    """Floors and signs are constant between their jumps."""
    return Direction.UNKNOWN if strictly else directions[0]


DIRECTION_RULES: Mapping[Op, DirectionRule] = {
    Op.ADD: lambda _, directions, __, ___: _common(directions),
    Op.MULTIPLY: _product_direction,
    Op.DIVIDE: _quotient_direction,
    Op.POWER: _power_direction,
    Op.EXP: _same_direction,
    Op.LOG: _same_direction,
    Op.ATAN: _same_direction,
    Op.FLOOR: _step_direction,
    Op.SIGN: _step_direction,
    Op.MINIMUM: _extremum_direction,
    Op.MAXIMUM: _extremum_direction,
    Op.ABSOLUTE: _absolute_direction,
}
"""How the direction of each kind of term follows from the directions and signs of its operands."""
