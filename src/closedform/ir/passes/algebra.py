"""Exact identities of arithmetic, casts and data movement, and of conditional selections."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from closedform.errors import GraphError
from closedform.ir.analysis.interval import Interval, full
from closedform.ir.graph import Graph, Node, Value, node_of
from closedform.ir.ops import Op
from closedform.ir.passes.rewrite import (
    Rewriter,
    RewriteRule,
    first_of,
    fits,
    is_negative_zero,
    is_positive_zero,
    rewrite,
)
from closedform.ir.types import HOLDS, DType, TensorType

Operands = tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Algebra:
    """Replaces a node by a cheaper one that has the same bits for all operands.

    A NaN is one value, whose sign and payload are unspecified; the sign of a zero is significant.
    A replacement has the type of the node: no identity applies where a constant widens the shape.
    Constants are those whose elements are all the same.

    1. ``x * 1``, ``x / 1`` -> x; ``x * -1``, ``x / -1`` -> ``neg x``.
    2. ``x + -0.0``, ``x - 0.0`` -> x; of integers ``x + 0``, ``x - 0``. ``x + 0.0`` and
       ``x - -0.0`` -> x only where the range of x excludes 0, since ``-0.0 + 0.0`` is 0.0.
       ``-0.0 - x`` and of integers ``0 - x`` -> ``neg x``; ``0.0 - x`` stays, being 0.0 at 0.0.
    3. ``neg neg x``, ``not not x`` -> x; ``abs abs x``, ``abs neg x`` -> ``abs x``; ``abs x`` -> x
       where x > 0 (integers: x >= 0; a float that is >= 0 may be -0.0).
    4. ``x + neg y`` -> ``x - y``, ``x - neg y`` -> ``x + y``, ``neg x * neg y`` -> ``x * y``,
       ``neg x / neg y`` -> ``x / y``: IEEE rounding is symmetric, and integers wrap.
    5. A cast to the own dtype -> x. ``cast(cast(x, B), C)`` -> ``cast(x, C)`` where B holds every
       value of the dtype of x.
    6. ``min(x, x)``, ``max(x, x)``, ``and(x, x)``, ``or(x, x)``, ``where(c, x, x)`` -> x.
    7. ``min(x, y)``, ``max(x, y)`` -> x where the ranges prove that x wins or equals y, and y is
       no NaN. Where the ranges touch at 0, a float may differ in the sign of zero: it stays.
    8. A reshape, transpose or broadcast to the operand's own shape, and a reduction over no axes ->
       x; two in a row -> one.
    9. A ``broadcast_to`` under an elementwise op that broadcasts to the same type anyway goes; not
       where a condition of a ``where`` bounds it, since that bound may prove an index.
    10. A scalar number whose range is one number -> that constant; not 0.0, whose sign is unknown,
        and not where it may be NaN.

    It never reassociates, distributes, turns a division into a multiplication, or drops
    ``x * 0.0``, ``x - x``, ``x / x``: they are not exact, or not for NaN and infinities.
    """

    name: str = "algebra"

    def __call__(self, graph: Graph) -> Graph:
        """Returns the rewritten graph; the same object if no identity applies."""
        return rewrite(graph, first_of(_ARITHMETIC, _without_broadcast, _single_number))


def _mul_one(rewriter: Rewriter, node: Node, operands: Operands) -> Value | None:
    # 1 * x is x, 1 / x is not.
    orders = [operands, operands[::-1]] if node.op is Op.MUL else [operands]
    for value, factor in orders:
        number = rewriter.number(factor)
        if number == 1 and value.type == node.type:
            return value
        if number == -1 and value.type == node.type:
            return rewriter.emit(Op.NEG, value)
    return None


def _add_zero(rewriter: Rewriter, node: Node, operands: Operands) -> Value | None:
    for value, zero in (operands, operands[::-1]):
        number = rewriter.number(zero)
        if number != 0 or value.type != node.type:
            continue
        # -0.0 + 0.0 is 0.0: the sign of a zero would change.
        if not is_positive_zero(number) or not rewriter.interval(value).contains(0):
            return value
    return None


def _sub_zero(rewriter: Rewriter, node: Node, operands: Operands) -> Value | None:
    first, second = operands
    number = rewriter.number(second)
    if number == 0 and first.type == node.type:
        exact = not is_negative_zero(number) or not rewriter.interval(first).contains(0)
        return first if exact else None
    number = rewriter.number(first)
    # 0.0 - 0.0 is 0.0 and neg 0.0 is -0.0, so that only -0.0 - x is neg x.
    if number == 0 and not is_positive_zero(number) and second.type == node.type:
        return rewriter.emit(Op.NEG, second)
    return None


def _negations(rewriter: Rewriter, node: Node, operands: Operands) -> Value | None:
    """RewriteRule 4."""
    first, second = operands
    negated_first, negated_second = (_under(rewriter, value, Op.NEG) for value in operands)
    if node.op is Op.SUB:
        return None if negated_second is None else rewriter.emit(Op.ADD, first, negated_second)
    if node.op is Op.ADD and negated_second is not None:
        return rewriter.emit(Op.SUB, first, negated_second)
    if node.op is Op.ADD and negated_first is not None:
        return rewriter.emit(Op.SUB, second, negated_first)
    if node.op is Op.ADD or negated_first is None or negated_second is None:
        return None
    return rewriter.emit(node.op, negated_first, negated_second)


def _under(rewriter: Rewriter, value: Value, op: Op) -> Value | None:
    """The operand of a value of this unary op, else None."""
    return rewriter.operands(value)[0] if rewriter.node(value).op is op else None


def _twice(rewriter: Rewriter, node: Node, operands: Operands) -> Value | None:
    return _under(rewriter, operands[0], node.op)


def _abs(rewriter: Rewriter, _: Node, operands: Operands) -> Value | None:
    (operand,) = operands
    if rewriter.node(operand).op is Op.ABS:
        return operand
    inner = _under(rewriter, operand, Op.NEG)
    if inner is not None:
        return rewriter.emit(Op.ABS, inner)
    low = rewriter.interval(operand).low
    is_exact = low > 0 or (low == 0 and operand.type.dtype.is_integer)
    return operand if is_exact else None


def _cast(rewriter: Rewriter, node: Node, operands: Operands) -> Value | None:
    (operand,) = operands
    if operand.type == node.type:
        return operand
    source = _under(rewriter, operand, Op.CAST)
    if source is None or operand.type.dtype not in HOLDS[source.type.dtype]:
        return None
    return rewriter.emit(Op.CAST, source, to=node.type.dtype)


def _idempotent(_: Rewriter, node: Node, operands: Operands) -> Value | None:
    return fits(operands[-1], node) if operands[-1] == operands[-2] else None


def _decide_comparison(rewriter: Rewriter, node: Node, operands: Operands) -> Value | None:
    """RewriteRule 7."""
    for winner, loser in (operands, operands[::-1]):
        lesser, greater = (winner, loser) if node.op is Op.MIN else (loser, winner)
        is_ordered = _is_before(
            rewriter.interval(lesser), rewriter.interval(greater), node.type.dtype
        )
        # min and max return NaN if either operand is NaN.
        is_number = not rewriter.interval(loser).maybe_nan
        if is_ordered and is_number and winner.type == node.type:
            return winner
    return None


def _is_before(first: Interval, second: Interval, dtype: DType) -> bool:
    if first.high == second.low:
        # Touching at 0, the operands may be 0.0 and -0.0, which min and max order and intervals do
        # not.
        return dtype.is_integer or first.high != 0
    return first.high < second.low


def _still(_: Rewriter, node: Node, operands: Operands) -> Value | None:
    return fits(operands[0], node)


def _reshape(rewriter: Rewriter, node: Node, operands: Operands) -> Value | None:
    source = _under(rewriter, operands[0], node.op)
    return None if source is None else rewriter.emit(node.op, source, shape=node.type.shape)


def _transpose(rewriter: Rewriter, node: Node, operands: Operands) -> Value | None:
    order = node.attribute("permutation")
    if order == tuple(range(node.type.rank)):
        return operands[0]
    source = _under(rewriter, operands[0], Op.TRANSPOSE)
    if source is None:
        return None
    inner = rewriter.node(operands[0]).attribute("permutation")
    return rewriter.emit(Op.TRANSPOSE, source, permutation=tuple(inner[axis] for axis in order))


def _over_no_axes(_: Rewriter, node: Node, operands: Operands) -> Value | None:
    return None if node.attribute("axes") else operands[0]


def _without_broadcast(rewriter: Rewriter, node: Node, operands: Operands) -> Value | None:
    """RewriteRule 9."""
    if node.op not in ELEMENTWISE:
        return None
    for place, operand in enumerate(operands):
        source = _under(rewriter, operand, Op.BROADCAST_TO)
        if source is None:
            continue
        narrow_operands = (*operands[:place], source, *operands[place + 1 :])
        try:
            narrow_node = node_of(node.op, narrow_operands, {})
        except GraphError:  # the source broadcasts to its own shape, not to the other operands
            continue
        # The broadcast may carry a bound that a condition gave it; the narrow node must not lose
        # it.
        if narrow_node.type == node.type and rewriter.bound(narrow_node) == rewriter.bound(node):
            return rewriter.emit(node.op, *narrow_operands)
    return None


def _single_number(rewriter: Rewriter, node: Node, operands: Operands) -> Value | None:
    """Rule 10; the node is bounded without being added."""
    dtype = node.type.dtype
    if (
        node.op in (Op.INPUT, Op.CONST)
        or node.type.shape
        or not (dtype.is_integer or dtype in (DType.F32, DType.F64))
    ):
        return None
    interval = rewriter.bound(node)
    if interval.low != interval.high or interval.maybe_nan:
        return None
    # An interval [0, 0] does not tell 0.0 from -0.0.
    if dtype.is_float and (interval.low == 0 or interval.has_infinity):
        return None
    return rewriter.const(np.asarray(interval.low, dtype.numpy), node.type)


ELEMENTWISE = frozenset(
    {Op.ADD, Op.SUB, Op.MUL, Op.DIV, Op.FLOOR_DIV, Op.FLOOR_MOD, Op.MIN, Op.MAX, Op.POW}
    | {Op.LT, Op.LE, Op.EQ, Op.AND, Op.OR, Op.WHERE}
)
"""The ops that broadcast their operands."""

_ARITHMETIC: Mapping[Op, tuple[RewriteRule, ...]] = {
    Op.ADD: (_add_zero, _negations),
    Op.SUB: (_sub_zero, _negations),
    Op.MUL: (_mul_one, _negations),
    Op.DIV: (_mul_one, _negations),
    Op.NEG: (_twice,),
    Op.NOT: (_twice,),
    Op.ABS: (_abs,),
    Op.CAST: (_cast,),
    Op.MIN: (_idempotent, _decide_comparison),
    Op.MAX: (_idempotent, _decide_comparison),
    Op.AND: (_idempotent,),
    Op.OR: (_idempotent,),
    Op.WHERE: (_idempotent,),
    Op.RESHAPE: (_still, _reshape),
    Op.BROADCAST_TO: (_still, _reshape),
    Op.TRANSPOSE: (_transpose,),
    Op.REDUCE_SUM: (_over_no_axes,),
    Op.REDUCE_MAX: (_over_no_axes,),
}
"""The identities that are tried on each op, in order."""


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
        return rewrite(graph, first_of(_SELECTIONS))


def _take_branch(rewriter: Rewriter, node: Node, operands: Operands) -> Value | None:
    """RewriteRule 1."""
    condition, then, otherwise = operands
    interval = rewriter.interval(condition)
    if interval.low == interval.high:
        return fits(then if interval.low else otherwise, node)
    return None


def _remove_negation(rewriter: Rewriter, _: Node, operands: Operands) -> Value | None:
    """RewriteRule 2."""
    condition, then, otherwise = operands
    if rewriter.node(condition).op is Op.NOT:
        return rewriter.emit(Op.WHERE, rewriter.operands(condition)[0], otherwise, then)
    if rewriter.node(condition).op is not Op.LT:
        return None
    least, value = rewriter.operands(condition)
    number = _integer(rewriter, least)
    # k + 1 would wrap.
    if number is None or number == full(least.type.dtype).high:
        return None
    if _integer(rewriter, value) is not None:  # both are constants: exchanging them has no end
        return None
    bound = _constant(rewriter, number + 1, least.type)
    return rewriter.emit(Op.WHERE, rewriter.emit(Op.LT, value, bound), otherwise, then)


def _flatten_choice(rewriter: Rewriter, node: Node, operands: Operands) -> Value | None:
    """RewriteRule 3."""
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
    """RewriteRule 4."""
    interval = rewriter.bound(node)
    if node.type.shape or interval.low != interval.high:
        return None
    return rewriter.const(np.asarray(bool(interval.low)), node.type)


def _neutral(rewriter: Rewriter, node: Node, operands: Operands) -> Value | None:
    """RewriteRule 5."""
    # true is neutral for and, false for or.
    neutral = int(node.op is Op.AND)
    for value, other in (operands, operands[::-1]):
        interval = rewriter.interval(other)
        if interval.low == interval.high == neutral and value.type == node.type:
            return value
    return None


def _not_comparison(rewriter: Rewriter, _: Node, operands: Operands) -> Value | None:
    """RewriteRule 6."""
    inner = rewriter.node(operands[0])
    if inner.op not in (Op.LT, Op.LE):
        return None
    first, second = rewriter.operands(operands[0])
    if rewriter.interval(first).maybe_nan or rewriter.interval(second).maybe_nan:
        return None
    return rewriter.emit(Op.LE if inner.op is Op.LT else Op.LT, second, first)


def _strict(rewriter: Rewriter, _: Node, operands: Operands) -> Value | None:
    """RewriteRule 7."""
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
    """RewriteRule 8."""
    for place, value in enumerate(operands):
        bound = operands[1 - place]
        number = _integer(rewriter, bound)
        offset = rewriter.offset(value)
        if number is None or offset is None:
            continue
        base, shift = offset
        # x + k does not wrap by ``offset``; m - k is checked here, so both comparisons are of exact
        # integers.
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


_SELECTIONS: Mapping[Op, tuple[RewriteRule, ...]] = {
    Op.WHERE: (_take_branch, _remove_negation, _flatten_choice),
    Op.LT: (_decide_condition, _move_constant),
    Op.LE: (_decide_condition, _strict),
    Op.EQ: (_decide_condition, _move_constant),
    Op.AND: (_decide_condition, _neutral),
    Op.OR: (_decide_condition, _neutral),
    Op.NOT: (_decide_condition, _not_comparison),
}
"""The rewrites that are tried on each op, in order."""
