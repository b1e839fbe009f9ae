"""Directions: which values of a graph rise or fall with the step, in floats.

Rounding is monotone, so what IEEE 754 rounds keeps the direction of its operands: sums, products
with a factor of one sign, quotients, minima, maxima, floors, conversions. Ops that engines compute
in special ways (``exp`` and its like, ``ulp`` above 0 in the op table) have none.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from closedform.ir.analysis.interval import Interval, full
from closedform.ir.analysis.ranges import Ranges
from closedform.ir.graph import Graph, Node, Role
from closedform.ir.ops import OPS, Op


class Direction(IntEnum):
    """How a value changes with the step; ``NONE`` where that is not known."""

    FALLING = -1
    CONSTANT = 0
    RISING = 1
    NONE = 2


def directions(graph: Graph, table: Ranges) -> tuple[Direction, ...]:
    """Returns for each node its direction over the steps of a table of intervals."""
    node_directions: list[Direction] = []
    for index, node in enumerate(graph.nodes):
        operands = tuple(table.of(operand) for operand in node.operands)
        operand_directions = tuple(node_directions[operand] for operand in node.operands)
        interval = table.of(index)
        is_fixed = interval.low == interval.high and not interval.maybe_nan
        node_directions.append(
            Direction.CONSTANT
            if is_fixed
            else _direction(node, operand_directions, operands, interval)
        )
    return tuple(node_directions)


def _direction(
    node: Node,
    operand_directions: Sequence[Direction],
    operands: Sequence[Interval],
    interval: Interval,
) -> Direction:
    if node.op is Op.INPUT:
        is_step = node.attribute("role") is Role.STEP
        return Direction.RISING if is_step else Direction.NONE
    if node.op is Op.WHERE:
        return _of_where(operand_directions, operands[0])
    if all(direction is Direction.CONSTANT for direction in operand_directions):
        return Direction.CONSTANT
    # exp of an engine is within 4 ulp and need not be monotone; a sum that wraps is not either.
    is_inexact = OPS[node.op].ulp and node.type.dtype.is_float
    if is_inexact or (node.type.dtype.is_integer and interval == full(node.type.dtype)):
        return Direction.NONE
    match node.op:
        case Op.ADD | Op.MIN | Op.MAX | Op.AND | Op.OR:
            return _common(operand_directions)
        case Op.SUB:
            return _common((operand_directions[0], _turn_direction(operand_directions[1])))
        case Op.NEG | Op.NOT:
            return _turn_direction(operand_directions[0])
        case Op.MUL:
            return _common(
                (
                    _times(operand_directions[0], operands[1]),
                    _times(operand_directions[1], operands[0]),
                )
            )
        case Op.DIV | Op.FLOOR_DIV:
            return _of_quotient(operand_directions, operands)
        case Op.FLOOR | Op.CAST | Op.RESHAPE | Op.BROADCAST_TO | Op.REDUCE_SUM | Op.REDUCE_MAX:
            return operand_directions[0]
        case Op.LT | Op.LE:
            # a < b turns true as a falls or b rises, with false < true.
            return _common((_turn_direction(operand_directions[0]), operand_directions[1]))
        case _:
            return Direction.NONE


def _of_where(operand_directions: Sequence[Direction], condition: Interval) -> Direction:
    if condition.low != condition.high:
        return Direction.NONE
    return operand_directions[1] if condition.low else operand_directions[2]


def _of_quotient(
    operand_directions: Sequence[Direction], operands: Sequence[Interval]
) -> Direction:
    above, below = operands
    if below.contains(0):
        return Direction.NONE
    by_dividend = _times(operand_directions[0], below)
    # 1/x falls as x rises, on either side of 0.
    by_divisor = _times(_turn_direction(operand_directions[1]), above)
    return _common((by_dividend, by_divisor))


def _times(direction: Direction, factor: Interval) -> Direction:
    """The direction of a product as one factor changes, the other one of this interval."""
    if direction is Direction.CONSTANT or factor.low >= 0:
        return direction
    return _turn_direction(direction) if factor.high <= 0 else Direction.NONE


def _turn_direction(direction: Direction) -> Direction:
    return direction if direction is Direction.NONE else Direction(-direction)


def _common(operand_directions: Sequence[Direction]) -> Direction:
    """The direction of what rises with all of these."""
    moving = {direction for direction in operand_directions if direction is not Direction.CONSTANT}
    if not moving:
        return Direction.CONSTANT
    return moving.pop() if len(moving) == 1 else Direction.NONE


__all__ = ["Direction", "directions"]
