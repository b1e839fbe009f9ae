"""Limits of terms from both sides of a point of the clock, at which conditions or floors change.

Which of two limits a comparison takes depends on which way its operands move; that is read from how
they are written. Nothing is guessed: where it cannot be read, the direction is None.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from closedform.verify.tactics.real_line import TIME
from closedform.verify.terms import (
    FALSE,
    MINUS_ONE,
    RELATIONS,
    Op,
    Sign,
    Term,
    add,
    floor,
    fold,
    is_rational,
    less,
    less_equal,
    negative,
    rebuild,
    subtract,
    walk,
)

Directions = Mapping[Term, int]
"""Of comparisons and floors: 1 where ``left - right``, or the argument of the floor, rises with the
clock, -1 where it falls. What is not in it does not depend on the clock."""


def limits(root: Term, directions: Directions) -> tuple[Term, Term]:
    """Returns the limits of a term from the left and from the right, as terms in the point.

    Example:
        >>> from closedform.verify.terms import rational
        >>> condition = less(TIME, rational(5))
        >>> limits(condition, {condition: 1})
        (t <= 5, t < 5)
    """

    def make(node: Term, args: list[tuple[Term, Term]]) -> tuple[Term, Term]:
        lefts, rights = tuple(arg[0] for arg in args), tuple(arg[1] for arg in args)
        way = directions.get(node, 0)
        if way == 0:
            return rebuild(node, lefts), rebuild(node, rights)
        if node.op is Op.EQUAL:
            return FALSE, FALSE
        if node.op is Op.FLOOR:
            if way > 0:
                return _floor_just_below(lefts[0]), floor(rights[0])
            return floor(lefts[0]), _floor_just_below(rights[0])
        # Rising: at its root the difference was below 0 just before, and is above 0 just after.
        if way > 0:
            return less_equal(*lefts), less(*rights)
        return less(*lefts), less_equal(*rights)

    return fold(root, make)


def _floor_just_below(node: Term) -> Term:
    """The floor of what is less than ``node`` by next to nothing: ceil(node) - 1."""
    return add(negative(floor(negative(node))), MINUS_ONE)


def directions_of(root: Term) -> dict[Term, int | None]:
    """Returns the direction of each comparison and floor that moves with the clock.

    A floor within an operand counts as constant: it is, but where it jumps.
    """
    ways = _directions(root)
    found: dict[Term, int | None] = {}
    for node in walk(root):
        if node.op in RELATIONS:
            way = _direction(subtract(*node.args))
        elif node.op is Op.FLOOR:
            way = ways[node.args[0]]
        else:
            continue
        if way != 0:
            found[node] = way
    return found


def _direction(root: Term) -> int | None:
    return _directions(root)[root]


def _directions(root: Term) -> dict[Term, int | None]:
    """Which way each node strictly moves with the clock: 1, -1, 0; None where it is not read."""
    ways: dict[Term, int | None] = {}
    signs: dict[Term, int | None] = {}
    for node in walk(root):
        signs[node] = _sign(node, [signs[arg] for arg in node.args])
        args = [ways[arg] for arg in node.args]
        if node == TIME:
            ways[node] = 1
        elif node.op in (Op.FLOOR, Op.SIGN, Op.LOOKUP) or all(way == 0 for way in args):
            ways[node] = 0
        else:
            rule = _RULES.get(node.op)
            ways[node] = None if rule is None else rule(node, args, signs)
    return ways


_Signs = Mapping[Term, int | None]
_Ways = list[int | None]


def _common(_: Term, ways: _Ways, __: _Signs) -> int | None:
    """Sums: one way if no operand goes another."""
    moved = {way for way in ways if way != 0}
    return moved.pop() if len(moved) == 1 else None


def _all_together(_: Term, ways: _Ways, __: _Signs) -> int | None:
    """Minima and maxima: one way if all operands go it; beside a constant they may stand still."""
    return ways[0] if len(set(ways)) == 1 else None


def _of_product(node: Term, ways: _Ways, signs: _Signs) -> int | None:
    moved = [index for index, way in enumerate(ways) if way != 0]
    if len(moved) != 1:
        return None
    way = ways[moved[0]]
    for index, arg in enumerate(node.args):
        if index != moved[0]:
            way = _times(way, signs[arg])
    return way


def _of_quotient(node: Term, ways: _Ways, signs: _Signs) -> int | None:
    above, below = node.args
    if ways[1] == 0:
        return _times(ways[0], signs[below])
    if ways[0] == 0 and signs[below] is not None:
        turned = _times(ways[1], signs[above])
        return None if turned is None else -turned
    return None


def _of_power(node: Term, ways: _Ways, signs: _Signs) -> int | None:
    """A power of what is not negative, to a constant exponent of known sign."""
    base, exponent = node.args
    if ways[1] != 0 or not is_non_negative(base):
        return None
    return _times(ways[0], signs[exponent])


def _same(_: Term, ways: _Ways, __: _Signs) -> int | None:
    return ways[0]


_RULES: Mapping[Op, Callable[[Term, _Ways, _Signs], int | None]] = {
    Op.ADD: _common,
    Op.MINIMUM: _all_together,
    Op.MAXIMUM: _all_together,
    Op.MULTIPLY: _of_product,
    Op.DIVIDE: _of_quotient,
    Op.POWER: _of_power,
    Op.EXP: _same,
    Op.LOG: _same,
}


def _times(way: int | None, sign: int | None) -> int | None:
    return None if way is None or sign is None else way * sign


_DECLARED = {Sign.POSITIVE: 1, Sign.NEGATIVE: -1}


def _sign(node: Term, signs: _Ways) -> int | None:
    """1 or -1 where a node is above or below 0 by how it is written, 0 where it is 0."""
    if is_rational(node):
        return int(node.value > 0) - int(node.value < 0)
    match node.op:
        case Op.SYMBOL:
            return _DECLARED.get(node.value.sign)
        case Op.EXP | Op.PI:
            return 1
        case Op.POWER:
            return 1 if signs[0] == 1 else None
        case Op.MULTIPLY | Op.DIVIDE:
            result: int | None = 1
            for sign in signs:
                result = _times(result, sign)
            return result
        case Op.ADD | Op.MINIMUM | Op.MAXIMUM:
            return _sign_of_sum(node, signs)
        case _:
            return None


def _sign_of_sum(node: Term, signs: _Ways) -> int | None:
    """1 where one term is above 0 and none may be below."""
    least = all(is_non_negative(arg) for arg in node.args)
    enough = all if node.op is Op.MINIMUM else any
    return 1 if least and enough(sign == 1 for sign in signs) else None


def is_non_negative(root: Term) -> bool:
    """Returns whether a term is at least 0 by how it is written, wherever it is defined."""

    def make(node: Term, args: list[bool]) -> bool:
        if is_rational(node):
            return bool(node.value >= 0)
        match node.op:
            case Op.SYMBOL:
                return node.value.sign in (Sign.POSITIVE, Sign.NONNEGATIVE)
            case Op.ADD | Op.MULTIPLY | Op.DIVIDE | Op.MINIMUM | Op.FLOOR:
                return all(args)
            case Op.MAXIMUM:
                return any(args)
            case Op.POWER:
                return args[0]
            case Op.ABSOLUTE | Op.EXP | Op.PI:
                return True
            case _:
                return False

    return fold(root, make)
