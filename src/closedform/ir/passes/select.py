"""Selections and the conditions that they depend on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from closedform.ir.analysis.interval import full
from closedform.ir.graph import Graph, Node, Value
from closedform.ir.ops import Op
from closedform.ir.passes.rewrite import Rewriter, Rule, first_of, fits, rewrite
from closedform.ir.types import TensorType

Operands = tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Select:
    """Decides conditions and drops the branches that are never taken.

    A replacement has the type of the node. Constants are those whose elements are all the same.

    1. ``where(c, a, b)`` -> a or b where the range of c decides it.
    2. ``where(not c, a, b)`` -> ``where(c, b, a)``; of integers ``where(k < x, a, b)`` ->
       ``where(x < k + 1, b, a)`` for a constant k that is not the largest.
    3. ``where(c, where(c, a, b), d)`` -> ``where(c, a, d)``; ``where(c, a, where(c, b, d))`` ->
       ``where(c, a, d)``.
    4. A scalar condition that the ranges decide -> a constant. A comparison is true only if neither
       side may be NaN.
    5. ``and(x, true)``, ``or(x, false)`` -> x, where ranges decide the other operand.
    6. ``not (a < b)`` -> ``b <= a``, ``not (a <= b)`` -> ``b < a``, where neither may be NaN: a
       comparison with NaN is false both ways.
    7. Of integers: ``x <= k`` -> ``x < k + 1``, ``k <= x`` -> ``k - 1 < x``, where that fits.
    8. Of integers: ``x + k < m`` -> ``x < m - k``, so with the sides exchanged, and so with eq;
       where ``x + k`` never wraps and ``m - k`` fits.

    It never evaluates one branch only, and never merges conditions that merely imply each other.
    """

    name: str = "select"

    def __call__(self, graph: Graph) -> Graph:
        """Returns the rewritten graph; the same object if nothing is decided."""
        return rewrite(graph, first_of(RULES))


def _take_branch(rewriter: Rewriter, node: Node, operands: Operands) -> Value | None:
    """Rule 1."""
    condition, then, otherwise = operands
    interval = rewriter.interval(condition)
    if interval.low == interval.high:
        return fits(then if interval.low else otherwise, node)
    return None


def _remove_negation(rewriter: Rewriter, _: Node, operands: Operands) -> Value | None:
    """Rule 2."""
    condition, then, otherwise = operands
    if rewriter.node(condition).op is Op.NOT:
        return rewriter.emit(Op.WHERE, rewriter.operands(condition)[0], otherwise, then)
    if rewriter.node(condition).op is not Op.LT:
        return None
    least, value = rewriter.operands(condition)
    number = _integer(rewriter, least)
    if number is None or number == full(least.type.dtype).high:
        return None
    if _integer(rewriter, value) is not None:  # both are constants: exchanging them has no end
        return None
    bound = _constant(rewriter, number + 1, least.type)
    return rewriter.emit(Op.WHERE, rewriter.emit(Op.LT, value, bound), otherwise, then)


def _flatten_choice(rewriter: Rewriter, node: Node, operands: Operands) -> Value | None:
    """Rule 3."""
    condition, then, otherwise = operands
    for place, branch in ((1, then), (2, otherwise)):
        if rewriter.node(branch).op is not Op.WHERE:
            continue
        inner = rewriter.operands(branch)
        if inner[0] != condition:
            continue
        branches = (inner[1], otherwise) if place == 1 else (then, inner[2])
        result = rewriter.try_emit(node.type, Op.WHERE, condition, *branches)
        if result is not None:
            return result
    return None


def _decide_condition(rewriter: Rewriter, node: Node, _: Operands) -> Value | None:
    """Rule 4."""
    interval = rewriter.bound(node)
    if node.type.shape or interval.low != interval.high:
        return None
    return rewriter.const(np.asarray(bool(interval.low)), node.type)


def _neutral(rewriter: Rewriter, node: Node, operands: Operands) -> Value | None:
    """Rule 5."""
    neutral = int(node.op is Op.AND)
    for value, other in (operands, operands[::-1]):
        interval = rewriter.interval(other)
        if interval.low == interval.high == neutral and value.type == node.type:
            return value
    return None


def _not_comparison(rewriter: Rewriter, _: Node, operands: Operands) -> Value | None:
    """Rule 6."""
    inner = rewriter.node(operands[0])
    if inner.op not in (Op.LT, Op.LE):
        return None
    first, second = rewriter.operands(operands[0])
    if rewriter.interval(first).maybe_nan or rewriter.interval(second).maybe_nan:
        return None
    return rewriter.emit(Op.LE if inner.op is Op.LT else Op.LT, second, first)


def _strict(rewriter: Rewriter, _: Node, operands: Operands) -> Value | None:
    """Rule 7."""
    first, second = operands
    limits = full(first.type.dtype)
    number = _integer(rewriter, second)
    if number is not None and number < limits.high:
        return rewriter.emit(Op.LT, first, _constant(rewriter, number + 1, second.type))
    number = _integer(rewriter, first)
    if number is not None and number > limits.low:
        return rewriter.emit(Op.LT, _constant(rewriter, number - 1, first.type), second)
    return None


def _move_constant(rewriter: Rewriter, node: Node, operands: Operands) -> Value | None:
    """Rule 8."""
    for place, value in enumerate(operands):
        bound = operands[1 - place]
        number = _integer(rewriter, bound)
        offset = rewriter.offset(value)
        if number is None or offset is None:
            continue
        base, shift = offset
        if not full(bound.type.dtype).contains(number - shift):
            continue
        moved_bound = _constant(rewriter, number - shift, bound.type)
        result = rewriter.try_emit(
            node.type, node.op, *((base, moved_bound) if place == 0 else (moved_bound, base))
        )
        if result is not None:
            return result
    return None


def _integer(rewriter: Rewriter, value: Value) -> int | None:
    number = rewriter.number(value) if value.type.dtype.is_integer else None
    return None if number is None else int(number)


def _constant(rewriter: Rewriter, number: int, type_: TensorType) -> Value:
    shape = tuple(int(dim) for dim in type_.shape)
    return rewriter.const(np.full(shape, number, type_.dtype.numpy), type_)


RULES: Mapping[Op, tuple[Rule, ...]] = {
    Op.WHERE: (_take_branch, _remove_negation, _flatten_choice),
    Op.LT: (_decide_condition, _move_constant),
    Op.LE: (_decide_condition, _strict),
    Op.EQ: (_decide_condition, _move_constant),
    Op.AND: (_decide_condition, _neutral),
    Op.OR: (_decide_condition, _neutral),
    Op.NOT: (_decide_condition, _not_comparison),
}
"""The rewrites that are tried on each op, in order."""
