"""Limits of terms from both sides of a point of the clock, at which conditions or floors change.

Which of two limits a comparison takes depends on which way its operands move; that is read from how
they are written. Nothing is guessed: where it cannot be read, the direction is None.
"""

from __future__ import annotations

from collections.abc import Mapping

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
    less,
    less_equal,
    negative,
    rebuild,
    subtract,
    walk,
)
from closedform.verify.terms.facts import Direction, direction_from, sign_from

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
    directions = _directions(root)
    found: dict[Term, int | None] = {}
    for node in walk(root):
        if node.op in RELATIONS:
            difference = subtract(*node.args)
            way = _WAYS[_directions(difference)[difference]]
        elif node.op is Op.FLOOR:
            way = _WAYS[directions[node.args[0]]]
        else:
            continue
        if way != 0:
            found[node] = way
    return found


def _directions(root: Term) -> dict[Term, Direction]:
    """The direction in which each node strictly moves with the clock."""
    found: dict[Term, Direction] = {}
    signs: dict[Term, Sign] = {}
    for node in walk(root):
        of_args = [signs[arg] for arg in node.args]
        signs[node] = sign_from(node, of_args)
        if node == TIME:
            found[node] = Direction.INCREASING
        elif node.op in (Op.FLOOR, Op.SIGN, Op.LOOKUP):
            found[node] = Direction.CONSTANT
        else:
            directions = [found[arg] for arg in node.args]
            found[node] = direction_from(node, directions, of_args, strictly=True)
    return found


_WAYS = {
    Direction.INCREASING: 1,
    Direction.DECREASING: -1,
    Direction.CONSTANT: 0,
    Direction.UNKNOWN: None,
}
