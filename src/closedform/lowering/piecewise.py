"""Piecewise: a chain of Where, and tables where many branches are lines.

Branches that are split only by thresholds of the step form an ordered list of segments. A run of
segments that are linear in the step becomes three tables, indexed by the number of milestones
reached: n milestones cost a fixed number of nodes. The rest is a chain of Where.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeVar

import numpy as np
import sympy as sp
from sympy.core.relational import Relational

from closedform.ir.graph import Value
from closedform.ir.ops import Op
from closedform.language.symbols import t
from closedform.lowering.analysis.annotate import branches, interval
from closedform.lowering.analysis.domain import Domain, Interval, linear_comparison, linear_in
from closedform.lowering.context import Lowering
from closedform.lowering.simplify import simplify

# From this many lines on, tables take fewer nodes than a chain of Where.
_SHORTEST_TABLE = 5

_CURVES = (sp.cos, sp.sin, sp.atan, sp.exp, sp.log, sp.Pow)

Branch = TypeVar("Branch")


@dataclass(frozen=True, slots=True)
class Segment:
    """A branch that is taken for every step from ``first`` to ``last``."""

    first: int
    last: int
    value: sp.Expr
    domain: Domain


def lower_piecewise(low: Lowering, expr: sp.Expr, domain: Domain) -> Value:
    """Lowers a Piecewise whose branches cover the domain."""

    def operand(value: sp.Expr, inside: Domain) -> Value:
        return low.operand(value, expr, inside)

    def table(segments: Sequence[Segment]) -> Value:
        return _table(low, segments)

    def select(condition: Value, then: Value, otherwise: Value) -> Value:
        return low.emit(Op.WHERE, condition, then, otherwise)

    return join_branches(low, expr, domain, operand, table, select)


def join_branches(
    low: Lowering,
    expr: sp.Expr,
    domain: Domain,
    operand: Callable[[sp.Expr, Domain], Branch],
    table: Callable[[Sequence[Segment]], Branch],
    select: Callable[[Value, Branch, Branch], Branch],
) -> Branch:
    """Lowers a Piecewise whose branches are lowered to anything that can be selected.

    Args:
        low: The graph under construction.
        expr: The Piecewise; its branches cover the domain.
        domain: Where it is taken.
        operand: Lowers a branch on the domain where it is taken.
        table: Lowers a run of lines.
        select: The first operand where a condition holds, else the second.
    """
    cases = branches(expr, domain)
    segments = None if low.is_tensor(expr) else _ordered_segments(cases)
    if segments is not None:
        return _join_segments(low, segments, operand, table, select)
    result = operand(cases[-1][0], cases[-1][2])
    for value, condition, inside in reversed(cases[:-1]):
        test = low.condition(condition, domain)
        result = select(test, operand(value, inside), result)
    return result


def _ordered_segments(
    cases: Sequence[tuple[sp.Expr, sp.Basic, Domain]],
) -> list[Segment] | None:
    """The branches in order of steps; None if a condition is more than a threshold of t."""
    if not all(_is_threshold(condition) for _, condition, _ in cases[:-1]):
        return None
    segments = [
        Segment(int(inside.interval(t).low), int(inside.interval(t).high), value, inside)
        for value, _, inside in cases
    ]
    segments.sort(key=lambda segment: segment.first)
    return segments


def _is_threshold(condition: sp.Basic) -> bool:
    if not isinstance(condition, Relational) or condition.func not in (sp.Lt, sp.Le, sp.Gt, sp.Ge):
        return False
    linear = linear_comparison(condition, t)
    return linear is not None and linear[0] != 0


def _join_segments(
    low: Lowering,
    segments: Sequence[Segment],
    operand: Callable[[sp.Expr, Domain], Branch],
    table: Callable[[Sequence[Segment]], Branch],
    select: Callable[[Value, Branch, Branch], Branch],
) -> Branch:
    groups = _groups(segments)
    values = [
        table(group) if len(group) > 1 else operand(group[0].value, group[0].domain)
        for group in groups
    ]
    result = values[-1]
    for index in range(len(groups) - 2, -1, -1):
        boundary = low.constant(sp.Integer(groups[index + 1][0].first), low.integer)
        is_before = low.emit(Op.LT, low.step, boundary)
        result = select(is_before, values[index], result)
    return result


def _groups(segments: Sequence[Segment]) -> list[list[Segment]]:
    """Runs of lines that are long enough for a table; every other segment by itself."""
    groups: list[list[Segment]] = []
    split = ((segment, _lines(segment)) for segment in segments)
    for is_run, members in itertools.groupby(split, key=lambda member: bool(member[1])):
        run = list(members)
        flat = [line for _, lines in run for line in lines]
        is_table = is_run and len(flat) >= _SHORTEST_TABLE
        groups.extend([flat] if is_table else [[segment] for segment, _ in run])
    return groups


def _lines(segment: Segment) -> list[Segment]:
    """The lines of a segment, split where clamps begin; none if it has other parts."""
    if linear_in(segment.value, t) is not None:
        return [segment]
    # Between the crossings of its arguments, a Min or Max of lines is one of the lines.
    breaks = {
        math.ceil(root)
        for clamp in segment.value.atoms(sp.Min, sp.Max)
        for root in _crossings(clamp)
        if segment.first < root <= segment.last
    }
    if not breaks:
        return []
    starts = [segment.first, *sorted(breaks)]
    ends = [start - 1 for start in starts[1:]] + [segment.last]
    lines = []
    for first, last in zip(starts, ends, strict=True):
        inside = segment.domain.with_interval(t, Interval(Fraction(first), Fraction(last)))
        if _is_curved(segment.value, inside):
            return []
        value = simplify(segment.value, inside, "a line of a table")
        if linear_in(value, t) is None:
            return []
        lines.append(Segment(first, last, value, inside))
    return lines


def _is_curved(value: sp.Expr, domain: Domain) -> bool:
    """Whether a function that is not linear is taken of more than one number."""
    return any(
        interval(arg, domain).low != interval(arg, domain).high
        for part in value.atoms(*_CURVES)
        for arg in part.args
    )


def _crossings(clamp: sp.Expr) -> Iterator[Fraction]:
    """The steps at which two arguments of a Min or Max are equal, where both are lines."""
    lines = [line for line in (linear_in(arg, t) for arg in clamp.args) if line is not None]
    for (slope, offset), (other_slope, other_offset) in itertools.combinations(lines, 2):
        if slope != other_slope:
            yield (other_offset - offset) / (slope - other_slope)


def _table(low: Lowering, segments: Sequence[Segment]) -> Value:
    """``height[i] + slope[i] * (t - start[i])``, i the number of milestones that are reached."""
    heights, slopes, starts = zip(*(line_of(segment) for segment in segments), strict=True)
    index = milestones_reached(low, [segment.first for segment in segments[1:]])
    height = low.emit(Op.LOOKUP, _floats(low, heights), index)
    if not any(slopes):
        return height
    start = low.emit(Op.LOOKUP, low.builder.const(np.array(starts), low.integer), index)
    steps_since = low.cast(low.emit(Op.SUB, low.step, start), low.scalar)
    slope = low.emit(Op.LOOKUP, _floats(low, slopes), index)
    return low.emit(Op.ADD, low.emit(Op.MUL, slope, steps_since), height)


def line_of(segment: Segment) -> tuple[Fraction, Fraction, int]:
    """Returns height, slope and start of a line, from the end where it is smaller in size."""
    linear = linear_in(segment.value, t)
    slope, offset = linear if linear is not None else (Fraction(0), Fraction(0))
    if not slope:
        return offset, slope, segment.first
    # Counted from the end where the line is small: rounding errors are then relative to the small
    # value, and an end at 0 is exactly 0.
    start = min((segment.first, segment.last), key=lambda step: abs(offset + slope * step))
    return offset + slope * start, slope, start


def _floats(low: Lowering, numbers: Sequence[Fraction]) -> Value:
    return low.builder.const(np.array([float(number) for number in numbers]), low.scalar)


def milestones_reached(low: Lowering, milestones: Sequence[int]) -> Value:
    """Returns the number of milestones that the step has reached."""
    shape = low.step.type.shape
    column = low.step
    if shape:
        # Axes [step, milestone]: the reduction over the last one counts.
        column = low.builder.emit(Op.RESHAPE, low.step, shape=(*shape, 1))
    marks = low.builder.const(np.array(milestones), low.integer)
    is_reached = low.cast(low.emit(Op.LE, marks, column), low.integer)
    return low.builder.emit(Op.REDUCE_SUM, is_reached, axes=(len(shape),), keepdims=False)
