"""A bound of the error of a graph at every step of a range, by forward error analysis.

For intervals of the step, each node has an enclosure of its real value (with exact operations, and
with the number from which each constant was rounded) and a bound of the distance of the computed
value from it. An operation adds the errors of its operands and its own rounding: half an ulp, or
the error that the op table allows engines; ``RULES`` has the rule of each op. The worst intervals
are halved until that gains nothing.

A constant is assumed to be within half an ulp of the intended number, and an integer to be exact.
The real value of the graph is the schedule if the translation is correct: validation proves that.

Arrays hold one entry for each interval of the step; tables and comparisons with milestones have a
further axis. In a graph of one step the axis of the intervals comes before those of its tensors, in
one of an array of steps it is the array's. Every bound is computed in float64 and rounded outward:
it encloses the true one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from closedform.errors import VerificationError
from closedform.ir.graph import Graph, Node
from closedform.ir.ops import OPS, Op
from closedform.ir.types import DType, FloatArray
from closedform.verify.terms.limits import LIMITS

# The error of a bound that is itself computed by some operations in float64.
_WIDER = 1 + 2.0**-48
# NumPy's own functions are within 4 ulp, as the op table says of every engine.
_LIBM = 2.0**-49


@dataclass(frozen=True, slots=True)
class Enclosure:
    """Real values in [low, high] and computed ones at most ``error`` away.

    A truth is 0 or 1; its error is infinite where the computed one may be the other.

    Attributes:
        low: Lower bounds.
        high: Upper bounds.
        error: Bounds of the distance.
        is_whole: Every real value is a whole number.
    """

    low: FloatArray
    high: FloatArray
    error: FloatArray
    is_whole: bool = False

    @property
    def size(self) -> FloatArray:
        """The largest size of a real value."""
        return np.maximum(np.abs(self.low), np.abs(self.high))

    @property
    def least(self) -> FloatArray:
        """The smallest size of a real value."""
        return np.maximum(np.maximum(self.low, -self.high), 0)


ErrorRule = Callable[[Node, Sequence[Node], Sequence[Enclosure]], Enclosure]


def _ulp(size: FloatArray, dtype: DType) -> FloatArray:
    """The unit in the last place of the largest float that a value of this size is rounded to."""
    info = np.finfo(dtype.numpy)
    _, exponent = np.frexp(np.nextafter(size, np.inf))
    unit: FloatArray = np.ldexp(
        1.0, np.maximum(exponent - info.nmant - 1, info.minexp - info.nmant)
    )
    return unit


def _add_rounding(
    node: Node, low: FloatArray, high: FloatArray, error: FloatArray, *, whole: bool
) -> Enclosure:
    """An enclosure with the rounding of the op itself added."""
    is_zero = (low == 0) & (high == 0)
    low = np.where(is_zero, low, np.nextafter(low, -np.inf))
    high = np.where(is_zero, high, np.nextafter(high, np.inf))
    low, high = (np.ceil(low), np.floor(high)) if whole else (low, high)
    dtype = node.type.dtype
    size = np.maximum(np.abs(low), np.abs(high)) + error
    if dtype.is_integer:
        wraps = np.where(size > float(np.iinfo(dtype.numpy).max), np.inf, 0)
        return Enclosure(low, high, error * _WIDER + wraps, whole)
    info = np.finfo(dtype.numpy)
    # Sums, differences and products of whole numbers are exact while they fit.
    is_exact = (error == 0) & (is_zero | (whole & (size <= 2.0 ** (info.nmant + 1))))
    rounding = np.where(is_exact, 0, max(0.5, OPS[node.op].ulp) * _ulp(size, dtype))
    overflow = np.where(size >= float(info.max), np.inf, 0)
    return Enclosure(low, high, (error + rounding + overflow) * _WIDER, whole)


def _all_whole(operands: Sequence[Enclosure]) -> bool:
    return all(operand.is_whole for operand in operands)


def _corners(
    function: Callable[[FloatArray, FloatArray], FloatArray], a: Enclosure, b: Enclosure
) -> tuple[FloatArray, FloatArray]:
    values = [function(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
    return np.minimum.reduce(values), np.maximum.reduce(values)


def _const(node: Node, _: Sequence[Node], __: Sequence[Enclosure]) -> Enclosure:
    values = node.array().astype(np.float64)
    is_whole = bool((values == np.floor(values)).all())
    if not node.type.dtype.is_float:
        return Enclosure(values, values, np.zeros_like(values), is_whole)
    half = np.where(values == np.floor(values), 0, _ulp(np.abs(values), node.type.dtype) / 2)
    return Enclosure(values - half, values + half, half, is_whole)


def _add(node: Node, _: Sequence[Node], operands: Sequence[Enclosure]) -> Enclosure:
    a, b = operands
    return _add_rounding(
        node, a.low + b.low, a.high + b.high, a.error + b.error, whole=_all_whole(operands)
    )


def _sub(node: Node, _: Sequence[Node], operands: Sequence[Enclosure]) -> Enclosure:
    a, b = operands
    return _add_rounding(
        node, a.low - b.high, a.high - b.low, a.error + b.error, whole=_all_whole(operands)
    )


def _mul(node: Node, _: Sequence[Node], operands: Sequence[Enclosure]) -> Enclosure:
    a, b = operands
    low, high = _corners(np.multiply, a, b)
    error = a.size * b.error + b.size * a.error + a.error * b.error
    return _add_rounding(node, low, high, error, whole=_all_whole(operands))


def _div(node: Node, _: Sequence[Node], operands: Sequence[Enclosure]) -> Enclosure:
    a, b = operands
    low, high = _corners(np.divide, a, b)
    error = (a.error + a.size / b.least * b.error) / np.maximum(b.least - b.error, 0)
    unknown = np.where(b.least - b.error > 0, 0, np.inf)
    return _add_rounding(node, low - unknown, high + unknown, error + unknown, whole=False)


def _unary(make: Callable[[Enclosure], Enclosure]) -> ErrorRule:
    """The rule of an op of one operand that rounds nothing."""
    return lambda _, __, operands: make(operands[0])


def _extremum(function: Callable[[FloatArray, FloatArray], FloatArray]) -> ErrorRule:
    def rule(_: Node, __: Sequence[Node], operands: Sequence[Enclosure]) -> Enclosure:
        a, b = operands
        low, high = function(a.low, b.low), function(a.high, b.high)
        return Enclosure(low, high, np.maximum(a.error, b.error), _all_whole(operands))

    return rule


def _floor(_: Node, __: Sequence[Node], operands: Sequence[Enclosure]) -> Enclosure:
    (a,) = operands
    below, above = np.nextafter(a.low - a.error, -np.inf), np.nextafter(a.high + a.error, np.inf)
    is_same = np.floor(below) == np.floor(above)
    error = np.where((a.error == 0) | is_same, 0, np.ceil(a.error) + 1)
    return Enclosure(np.floor(a.low), np.floor(a.high), error, is_whole=True)


def _floor_div(node: Node, _: Sequence[Node], operands: Sequence[Enclosure]) -> Enclosure:
    a, b = operands
    low, high = _corners(np.divide, a, b)
    unknown = np.where(b.least > 0, _doubt(operands), np.inf)
    low, high = np.nextafter(low, -np.inf), np.nextafter(high, np.inf)
    return Enclosure(np.floor(low) - unknown, np.floor(high) + unknown, unknown, is_whole=True)


def _floor_mod(node: Node, _: Sequence[Node], operands: Sequence[Enclosure]) -> Enclosure:
    """Within one period the remainder is the distance from its start, else anything below b."""
    a, b = operands
    period = np.floor(a.low / b.low)
    start = period * b.low
    is_one = (
        (b.low == b.high)
        & (b.low > 0)
        & (a.low >= start)
        & (a.high < start + b.low)
        & (np.abs(a.high) < 2.0**53)
    )
    top = np.maximum(b.high, 0) - (1 if _all_whole(operands) else 0)
    low = np.where(is_one, a.low - start, np.minimum(b.low, 0))
    high = np.where(is_one, a.high - start, np.maximum(top, 0))
    unknown = np.where(b.least > 0, _doubt(operands), np.inf)
    whole = _all_whole(operands)
    if node.type.dtype.is_integer:
        return Enclosure(low, high, unknown, whole)
    return _add_rounding(node, low, high, unknown, whole=whole)


def _doubt(operands: Sequence[Enclosure]) -> FloatArray:
    """Zero where all operands are exact, else infinite: a step of the function may be missed."""
    total = np.sum(np.broadcast_arrays(*(operand.error for operand in operands)), axis=0)
    return np.where(total == 0, 0.0, np.inf)


def _sqrt(node: Node, _: Sequence[Node], operands: Sequence[Enclosure]) -> Enclosure:
    (a,) = operands
    low = np.sqrt(a.low)
    error = np.where(a.error == 0, 0, a.error / (low + np.sqrt(a.low - a.error)))
    # A computed operand below zero has no root.
    error = error + np.where(a.low >= a.error, 0, np.inf)
    return _add_rounding(node, low, np.sqrt(a.high), error, whole=False)


def _exp(node: Node, _: Sequence[Node], operands: Sequence[Enclosure]) -> Enclosure:
    (a,) = operands
    low, high = np.exp(a.low) * (1 - _LIBM), np.exp(a.high) * (1 + _LIBM)
    error = high * np.expm1(a.error) * (1 + _LIBM)
    return _add_rounding(node, low, high, error, whole=False)


def _log(node: Node, _: Sequence[Node], operands: Sequence[Enclosure]) -> Enclosure:
    (a,) = operands
    low, high = np.log(a.low), np.log(a.high)
    slack = np.maximum(np.abs(low), np.abs(high)) * _LIBM
    error = a.error / (a.low - a.error) + np.where(a.low > a.error, 0, np.inf)
    return _add_rounding(node, low - slack, high + slack, error, whole=False)


def _sine_or_cosine(node: Node, _: Sequence[Node], operands: Sequence[Enclosure]) -> Enclosure:
    """Sine and cosine: their slope is at most 1, their ulp is that of 1."""
    (a,) = operands
    low, high = np.full_like(a.low, -1.0), np.full_like(a.high, 1.0)
    if node.op is Op.SIN:
        is_rising = (a.low >= -np.pi / 2) & (a.high <= np.pi / 2)
        low = np.where(is_rising, np.sin(a.low) - _LIBM, low)
        high = np.where(is_rising, np.sin(a.high) + _LIBM, high)
    unit = float(np.finfo(node.type.dtype.numpy).eps)
    error = np.minimum(a.error, 2.0) + OPS[node.op].ulp * unit
    return Enclosure(low, high, error * _WIDER)


def _pow(node: Node, _: Sequence[Node], operands: Sequence[Enclosure]) -> Enclosure:
    """For a base >= 0; by the change of ``y * log x``, and for roots of numbers near 0 by that."""
    a, b = operands
    low, high = _corners(np.power, replace(a, low=np.maximum(a.low, 0)), b)
    high = high * (1 + _LIBM)
    base = a.low - a.error
    shift = a.error / base
    change = b.size * shift + (
        np.maximum(np.abs(np.log(a.low)), np.abs(np.log(a.high))) + shift
    ) * (b.error)
    error = np.where((base > 0) & (change < 1), high * np.expm1(change), np.inf)
    is_root = (b.low > 0) & (b.high <= 1) & (b.error < b.low) & (a.low >= a.error) & (a.high <= 1)
    # |x**p - y**p| <= |x - y|**p, and p off by e moves x**p by at most e/(p - e)/exp(1).
    near = np.power(a.error, b.low - b.error) + b.error / (b.low - b.error)
    error = np.where(is_root, np.minimum(error, near), error)
    unknown = np.where(a.low < 0, np.inf, 0)
    return _add_rounding(node, low * (1 - _LIBM) - unknown, high + unknown, error, whole=False)


def _comparison(node: Node, _: Sequence[Node], operands: Sequence[Enclosure]) -> Enclosure:
    a, b = operands
    margin = a.error + b.error
    is_decided = (np.nextafter(a.high + margin, np.inf) < b.low) | (margin == 0)
    is_decided = is_decided | (np.nextafter(b.high + margin, np.inf) < a.low)
    for whole, fraction in ((a, b), (b, a)):
        is_point = (fraction.high - fraction.low <= 2 * fraction.error) & (whole.error == 0)
        is_between = np.ceil(fraction.low - fraction.error) > np.floor(
            fraction.high + fraction.error
        )
        is_decided = is_decided | (whole.is_whole & is_point & is_between)
    if node.op is Op.EQ:
        never = (a.high < b.low) | (b.high < a.low)
        always = (a.low == a.high) & (b.low == b.high) & (a.low == b.low)
    elif node.op is Op.LT:
        always, never = a.high < b.low, a.low >= b.high
    else:
        always, never = a.high <= b.low, a.low > b.high
    low, high = np.where(always, 1.0, 0.0), np.where(never, 0.0, 1.0)
    return Enclosure(low, high, np.where(is_decided, 0, np.inf), is_whole=True)


def _where(_: Node, __: Sequence[Node], operands: Sequence[Enclosure]) -> Enclosure:
    """One branch where the condition is decided; where it may be the wrong one, their distance."""
    condition, a, b = operands
    is_sure = condition.error == 0
    first, second = is_sure & (condition.low == 1), is_sure & (condition.high == 0)
    low = np.where(first, a.low, np.where(second, b.low, np.minimum(a.low, b.low)))
    high = np.where(first, a.high, np.where(second, b.high, np.maximum(a.high, b.high)))
    larger = np.maximum(a.error, b.error)
    error = np.where(first, a.error, np.where(second, b.error, larger))
    error = np.where(is_sure, error, larger + (high - low))
    return Enclosure(low, high, error, a.is_whole and b.is_whole)


def _cast(node: Node, sources: Sequence[Node], operands: Sequence[Enclosure]) -> Enclosure:
    (a,) = operands
    dtype = node.type.dtype
    if dtype is DType.BOOL or not dtype.is_float:
        if a.is_whole and not sources[0].type.dtype.is_float:
            return a
        error = np.where(a.error == 0, 0, np.ceil(a.error) + 1)
        return Enclosure(np.trunc(a.low), np.trunc(a.high), error, is_whole=True)
    holds = sources[0].type.dtype in (DType.BOOL, DType.F32, dtype)
    if holds:
        return a
    return _add_rounding(node, a.low, a.high, a.error, whole=a.is_whole)


def _reduction(
    function: Callable[..., FloatArray], *, is_exact: Callable[[DType], bool]
) -> ErrorRule:
    """The rule of a reduction; one that is not exact in a dtype has no bound."""

    def rule(node: Node, sources: Sequence[Node], operands: Sequence[Enclosure]) -> Enclosure:
        (a,) = operands
        rank = sources[0].type.rank
        axes = tuple(axis - rank for axis in node.attribute("axes"))
        keepdims = node.attribute("keepdims")
        low, high, error = (
            function(part, axis=axes, keepdims=keepdims)
            for part in np.broadcast_arrays(a.low, a.high, a.error)
        )
        unknown = 0 if is_exact(node.type.dtype) else np.inf
        return Enclosure(low, high, error + unknown, a.is_whole)

    return rule


def _reshape(node: Node, sources: Sequence[Node], operands: Sequence[Enclosure]) -> Enclosure:
    (a,) = operands
    shape = tuple(-1 if isinstance(dim, str) else dim for dim in node.type.shape)
    shape = _intervals_of(sources[0], a) + shape
    low, high, error = (np.reshape(part, shape) for part in (a.low, a.high, a.error))
    return Enclosure(low, high, error, a.is_whole)


def _lookup(_: Node, __: Sequence[Node], operands: Sequence[Enclosure]) -> Enclosure:
    table, index = operands
    size = len(table.low)
    first = np.clip(index.low, 0, size - 1).astype(np.int64)
    last = np.clip(index.high, 0, size - 1).astype(np.int64)
    slices = [slice(int(a), int(b) + 1) for a, b in zip(first.flat, last.flat, strict=True)]
    low = np.array([table.low[part].min() for part in slices]).reshape(first.shape)
    high = np.array([table.high[part].max() for part in slices]).reshape(first.shape)
    error = np.array([table.error[part].max() for part in slices]).reshape(first.shape)
    doubt = np.where(index.error == 0, 0, np.inf)
    return Enclosure(low, high, error + doubt, table.is_whole)


def _intervals_of(source: Node, operand: Enclosure) -> tuple[int, ...]:
    """The axis of the intervals, where an enclosure has it before the axes of its node."""
    return operand.low.shape[: operand.low.ndim - source.type.rank]


def _align_ranks(sources: Sequence[Node], operands: Sequence[Enclosure]) -> list[Enclosure]:
    """Operands of a common rank: new axes come behind that of the intervals."""
    rank = max(source.type.rank for source in sources)
    result = []
    for source, operand in zip(sources, operands, strict=True):
        intervals = _intervals_of(source, operand)
        if intervals and source.type.rank < rank:
            missing = (1,) * (rank - source.type.rank)
            shape = intervals + missing + operand.low.shape[len(intervals) :]
            low, high, error = (
                np.reshape(part, shape) for part in (operand.low, operand.high, operand.error)
            )
            operand = replace(operand, low=low, high=high, error=error)
        result.append(operand)
    return result


RULES: Mapping[Op, ErrorRule] = {
    Op.CONST: _const,
    Op.ADD: _add,
    Op.SUB: _sub,
    Op.MUL: _mul,
    Op.NEG: _unary(lambda a: Enclosure(-a.high, -a.low, a.error, a.is_whole)),
    Op.ABS: _unary(lambda a: Enclosure(a.least, a.size, a.error, a.is_whole)),
    Op.DIV: _div,
    Op.FLOOR_DIV: _floor_div,
    Op.FLOOR_MOD: _floor_mod,
    Op.MIN: _extremum(np.minimum),
    Op.MAX: _extremum(np.maximum),
    Op.FLOOR: _floor,
    Op.SQRT: _sqrt,
    Op.EXP: _exp,
    Op.LOG: _log,
    Op.COS: _sine_or_cosine,
    Op.SIN: _sine_or_cosine,
    Op.POW: _pow,
    Op.LT: _comparison,
    Op.LE: _comparison,
    Op.EQ: _comparison,
    Op.AND: _extremum(np.minimum),
    Op.OR: _extremum(np.maximum),
    Op.NOT: _unary(lambda a: Enclosure(1 - a.high, 1 - a.low, a.error, is_whole=True)),
    Op.WHERE: _where,
    Op.CAST: _cast,
    Op.REDUCE_SUM: _reduction(np.sum, is_exact=lambda dtype: not dtype.is_float),  # milestones
    Op.REDUCE_MAX: _reduction(np.max, is_exact=lambda _: True),
    Op.RESHAPE: _reshape,
    Op.LOOKUP: _lookup,
}
"""How each op that graphs of schedules hold maps enclosures."""


# A round halves the ranges within this part of the largest error, until it gains less.
_GAIN = 0.02


@dataclass(frozen=True, slots=True)
class Bound:
    """A proved bound on the error at every step of a range.

    Attributes:
        absolute: No error is larger.
        relative: No error is a larger part of the value; None where a value may be zero.
        intervals: How many intervals of the step were looked at.
    """

    absolute: float
    relative: float | None
    intervals: int


def bound_error(graph: Graph, first: int, last: int, starts: Sequence[int] = ()) -> Bound:
    """Returns a bound of the error of the one output of a graph over steps first..last.

    Args:
        graph: Its one input is the step.
        first: The first step.
        last: The last step.
        starts: Steps at which intervals should begin: milestones.

    Raises:
        VerificationError: The graph holds an op whose error has no rule.
    """
    lows, highs = _intervals(first, last, starts)
    result = analyse(graph, lows, highs)
    for _ in range(LIMITS.error_rounds):
        before = float(result.error.max())
        worst = np.flatnonzero((result.error > before * (1 - _GAIN)) | (result.error == before))
        if (highs[worst] == lows[worst]).any() or len(lows) + len(worst) > LIMITS.error_intervals:
            break
        middles = lows[worst] + (highs[worst] - lows[worst]) // 2
        ends = np.concatenate([highs, highs[worst]])
        ends[worst] = middles
        lows, highs = np.concatenate([lows, middles + 1]), ends
        result = analyse(graph, lows, highs)
        if np.isfinite(before) and float(result.error.max()) > before * (1 - _GAIN):
            break
    return Bound(float(result.error.max()), _relative(result), len(lows))


def _relative(result: Enclosure) -> float | None:
    smallest = np.where(result.low > 0, result.low, -result.high)
    if (smallest <= 0).any():
        return None
    return float(np.nextafter((result.error / smallest).max(), np.inf))


def _intervals(
    first: int, last: int, starts: Sequence[int]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Intervals of steps: cut at the milestones, short ones first, lengths growing from there."""
    inner = [start for start in starts if first < start <= last]
    marks = [first, *inner[: LIMITS.error_intervals // 4]]
    parts = max(1, min(64, LIMITS.error_intervals // (4 * len(marks))))
    doublings = 64 if len(marks) <= LIMITS.few_milestones else 1
    cuts = {first}
    for start, end in zip(marks, [*marks[1:], last + 1], strict=True):
        length = end - start
        cuts |= {start, *(start + length * part // parts for part in range(parts))}
        cuts |= {start + 2**power for power in range(min(doublings, length.bit_length() - 1))}
    firsts = np.array(sorted(cuts), np.int64)
    return firsts, np.append(firsts[1:] - 1, last)


def analyse(graph: Graph, lows: NDArray[np.int64], highs: NDArray[np.int64]) -> Enclosure:
    """Returns the enclosure of the one output on each interval of steps.

    Args:
        graph: Its one input is the step, one or an array.
        lows: The first step of each interval.
        highs: The last step of each interval.

    Raises:
        VerificationError: The graph holds an op whose error has no rule.
    """
    enclosures: list[Enclosure] = []
    with np.errstate(all="ignore"):
        for node in graph.nodes:
            enclosures.append(_node(graph, node, enclosures, lows, highs))
    result = enclosures[graph.outputs[0].index]
    shape = lows.shape
    low, high, error = (
        np.broadcast_to(part, shape) for part in (result.low, result.high, result.error)
    )
    # An unknown value may be anything.
    error = np.where(np.isnan(error) | np.isnan(low) | np.isnan(high), np.inf, error)
    return Enclosure(np.nan_to_num(low, nan=-np.inf), np.nan_to_num(high, nan=np.inf), error)


def _node(
    graph: Graph,
    node: Node,
    enclosures: Sequence[Enclosure],
    lows: NDArray[np.int64],
    highs: NDArray[np.int64],
) -> Enclosure:
    if node.op is Op.INPUT:
        low, high = (part.astype(np.float64) for part in (lows, highs))
        return Enclosure(low, high, np.zeros(len(lows)), is_whole=True)
    rule = RULES.get(node.op)
    if rule is None:
        raise VerificationError(
            f"the error of {node.op} has no rule",
            where=f"graph {graph.name!r}",
            hint="a bound is for graphs of schedules",
        )
    operands = [enclosures[index] for index in node.operands]
    sources = [graph.nodes[index] for index in node.operands]
    if len(operands) > 1 and node.op is not Op.LOOKUP:
        operands = _align_ranks(sources, operands)
    return rule(node, sources, operands)
