"""The ops that array libraries have under one name: one table over a namespace.

    array_ops(np)[Op.ADD](node, (a, b))   →   a + b

The namespace is ``numpy``, ``jax.numpy`` or ``mlx.core``. Where a library computes another value
than the graph language, the table of that library overrides the row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from closedform.ir.graph import Node
from closedform.ir.ops import Op
from closedform.ir.types import sizes_for

ArrayOp = Callable[[Node, tuple[Any, ...]], Any]
"""From a node and its operands, arrays of one library, to its value."""


def direct(function: Callable[..., Any]) -> ArrayOp:
    """Returns the op that is one function of the same operands."""
    return lambda _, operands: function(*operands)


def array_ops(xp: Any) -> Mapping[Op, ArrayOp]:
    """Returns the ops that are functions of a namespace; conversions and draws are in none."""
    functions = {
        Op.INPUT: lambda operand: operand,
        Op.ADD: xp.add,
        Op.SUB: xp.subtract,
        Op.MUL: xp.multiply,
        Op.NEG: xp.negative,
        Op.ABS: xp.abs,
        Op.DIV: xp.divide,
        Op.FLOOR_DIV: xp.floor_divide,
        Op.FLOOR_MOD: xp.remainder,
        Op.MIN: xp.minimum,
        Op.MAX: xp.maximum,
        Op.FLOOR: xp.floor,
        Op.SQRT: xp.sqrt,
        Op.EXP: xp.exp,
        Op.LOG: xp.log,
        Op.COS: xp.cos,
        Op.SIN: xp.sin,
        Op.ATAN: xp.arctan,
        Op.POW: xp.power,
        Op.LT: xp.less,
        Op.LE: xp.less_equal,
        Op.EQ: xp.equal,
        Op.AND: xp.logical_and,
        Op.OR: xp.logical_or,
        Op.NOT: xp.logical_not,
        Op.WHERE: xp.where,
        Op.MATMUL: xp.matmul,
        Op.LOOKUP: xp.take,
    }
    return {
        **{op: direct(function) for op, function in functions.items()},
        Op.REDUCE_SUM: _reduction(xp.sum),
        Op.REDUCE_MAX: _reduction(xp.max),
        Op.TRANSPOSE: lambda node, operands: xp.transpose(
            operands[0], tuple(node.attribute("permutation"))
        ),
        Op.RESHAPE: lambda node, operands: xp.reshape(
            operands[0], sizes_for(node.attribute("shape"), operands[0].size)
        ),
        Op.BROADCAST_TO: lambda node, operands: xp.broadcast_to(
            operands[0], tuple(node.attribute("shape"))
        ),
        Op.SLICE: lambda node, operands: operands[0][places_of(node)],
        Op.CONCAT: lambda node, operands: xp.concatenate(operands, axis=node.attribute("axis")),
    }


def places_of(node: Node) -> tuple[slice, ...]:
    """Returns the index of the elements that a slice takes."""
    axis, start, stop = (node.attribute(name) for name in ("axis", "start", "stop"))
    return (*(slice(None),) * axis, slice(start, stop))


def _reduction(function: Callable[..., Any]) -> ArrayOp:
    def reduce(node: Node, operands: tuple[Any, ...]) -> Any:
        axes = tuple(node.attribute("axes"))
        return function(operands[0], axis=axes, keepdims=bool(node.attribute("keepdims")))

    return reduce
