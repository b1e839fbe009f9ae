"""Fitting one curve to a part of a schedule: exact parameters where they are simple numbers.

A line and a cosine are found from only the values. Of powers, exponentials and logarithms the
moving part is looked for in the expression; the values give the two numbers around it. Each fit is
compared with the values at other updates in many digits: it proposes a form and proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import sympy as sp

from closedform.errors import ClosedFormError
from closedform.language import Schedule, t
from closedform.language.integers import FloorDiv, FloorMod
from closedform.recipes.forms import CurveName, CurveSegment

DIGITS = 60
"""The decimal digits that a curve is recognized with."""

MOST_BASES = 40
"""The most moving parts of an expression that are tried."""

_CLOSE = sp.Float("1e-25", DIGITS)
_LONGEST_POINT = 2
"""A segment of so many updates goes on with the curve before it, if that has its values."""


@dataclass(frozen=True, slots=True)
class SampledPart:
    """A part of a schedule, with its values at some updates.

    Attributes:
        schedule: The schedule.
        first: The first update.
        count: The updates that are known to belong to it.
        stride: The updates that have one value.
        values: The values at some updates, in many digits or exact.
    """

    schedule: Schedule
    first: int
    count: int
    stride: int
    values: Mapping[int, sp.Expr]

    @property
    def steps(self) -> list[int]:
        """The updates of the values, in order."""
        return sorted(self.values)

    def value(self, step: int) -> sp.Expr:
        """Returns the value at an update in many digits."""
        return self.schedule.exact(step).evalf(DIGITS)


Numbers = tuple[sp.Expr, ...] | None


def fit_segment(
    schedule: Schedule, first: int, end: int | None, last: int, before: CurveSegment | None
) -> CurveSegment | None:
    """Returns the segment of a schedule from ``first`` on, None if no curve has its values.

    Args:
        schedule: The schedule.
        first: The first update.
        end: The first update after it, None for no end.
        last: An update up to which values are looked at where there is no end.
        before: The segment before it.
    """
    last_step = schedule.last_step
    reach = last if end is None else end
    reach = reach if last_step is None else min(reach, last_step + 1)
    for stride in (1, *strides(schedule)):
        part = _part(schedule, first, reach - first, stride)
        if part is None:
            continue
        # Two points are on any curve.
        if before is not None and part.count <= _LONGEST_POINT and _agrees(before, part):
            return CurveSegment(first, end, before.curve, before.numbers, before.stride)
        for curve, fit in _FITS:
            for numbers in fit(part):
                segment = CurveSegment(first, end, curve, numbers, stride)
                if _agrees(segment, part):
                    return segment
    return None


def strides(schedule: Schedule) -> tuple[int, ...]:
    """Returns the lengths of the epochs that a schedule counts.

    Example:
        >>> from closedform.language import floor_div
        >>> strides(Schedule(floor_div(t, 5) / 3, name="by epoch"))
        (5,)
    """
    divisors = {
        int(quotient.args[1])
        for quotient in schedule.bound.atoms(FloorDiv)
        if quotient.args[1].is_Integer and quotient.args[1] > 1 and (quotient.args[0] - t).is_number
    }
    return tuple(sorted(divisors))


def periods(schedule: Schedule) -> tuple[tuple[sp.Expr, sp.Expr], ...]:
    """Returns the shifts and the lengths of the cycles that a schedule has.

    Example:
        >>> from closedform.language import floor_mod
        >>> periods(Schedule(floor_mod(t - 2, 5), name="saw"))
        ((2, 5),)
    """
    shifts_and_periods = set()
    for cycle in schedule.bound.atoms(FloorMod, FloorDiv):
        slope = sp.diff(cycle.args[0], t)
        if slope.is_Rational and slope > 0 and cycle.args[1].is_Rational:
            shift = -cycle.args[0].subs(t, 0) / slope
            shifts_and_periods.add((shift, cycle.args[1] / slope))
    return tuple(sorted(shifts_and_periods))


def simple(value: sp.Expr) -> sp.Expr | None:
    """Returns the simplest number that a value of many digits is: a decimal, or a fraction.

    Example:
        >>> simple(sp.Float("0.00065", 60)), simple((sp.Integer(2) / 3).evalf(60))
        (13/20000, 2/3)
    """
    if value.is_Rational:
        return value
    if not value.is_Float:
        return None
    if abs(value) < sp.Float("1e-35", DIGITS):
        return sp.S.Zero
    near = sp.Float("1e-30", DIGITS) * max(abs(value), sp.Float("1e-10", DIGITS))
    for digits in (17, 24):
        decimal = sp.Rational(str(sp.Float(value, digits)))
        if abs(decimal - value) < near:
            return decimal
    # One in 10^12 random numbers is as near as 1e-30 to a fraction with such a denominator.
    fraction = sp.Rational(value).limit_denominator(10**9)
    return fraction if abs(fraction - value) < near else None


def _part(schedule: Schedule, first: int, count: int, stride: int) -> SampledPart | None:
    """Some values; None where they cannot be computed, or do not keep to the stride."""
    begin = first if stride == 1 else -(-first // stride) * stride
    blocks = (count - (begin - first)) // stride if stride > 1 else count
    if blocks < 1:
        return None
    marks = {0, 1, 2, blocks // 5, blocks // 3, blocks // 2, 4 * blocks // 5, blocks - 1}
    steps = [begin + mark * stride for mark in sorted(marks) if 0 <= mark < blocks]
    try:
        values = {step: _number(schedule.exact(step)) for step in steps}
        is_constant_per_stride = all(
            schedule.exact(step + stride - 1) == schedule.exact(step) for step in steps
        )
    except ClosedFormError:
        return None
    return (
        SampledPart(schedule, begin, blocks * stride, stride, values)
        if is_constant_per_stride
        else None
    )


def _number(value: sp.Expr) -> sp.Expr:
    """An exact fraction, or many digits."""
    return value if value.is_Rational else value.evalf(DIGITS)


def _agrees(segment: CurveSegment, part: SampledPart) -> bool:
    scale = max((abs(value) for value in part.values.values()), default=sp.S.One) or sp.S.One
    return all(_is_near(segment.value(step), value, scale) for step, value in part.values.items())


def _is_near(number_at: sp.Expr, value: sp.Expr, scale: sp.Expr) -> bool:
    number = number_at.evalf(DIGITS)
    return bool(number.is_real) and bool(abs(number - value) < scale * _CLOSE)


def _constant(part: SampledPart) -> Iterator[tuple[sp.Expr, ...]]:
    level = simple(part.values[part.first])
    if level is not None:
        yield (level,)


def _line(part: SampledPart) -> Iterator[tuple[sp.Expr, ...]]:
    first, last = part.steps[0], part.steps[-1]
    if first == last:
        return
    slope = simple((part.values[last] - part.values[first]) / (last - first))
    if slope is None:
        return
    start = simple(part.values[first] - slope * first)
    if start is not None:
        yield start, slope


def _cosine(part: SampledPart) -> Iterator[tuple[sp.Expr, ...]]:
    """From values at equal distances: y(c+h) + y(c-h) is k y(c) + d, with k = 2 cos(pi h/L).

    A distance beyond a period gives another period, so that one update is tried as well.
    """
    blocks = part.count // part.stride
    for distance in dict.fromkeys(((blocks - 1) // 5, 1)):
        curve = _from_distance(part, distance * part.stride) if blocks >= 5 and distance else None
        if curve is not None:
            yield curve


def _from_distance(part: SampledPart, distance: int) -> Numbers:
    at = [part.value(part.first + index * distance) for index in range(5)]
    ends = [at[index - 1] + at[index + 1] for index in (1, 3)]
    pi = sp.pi.evalf(DIGITS)
    if abs(at[1] - at[3]) < sp.Float("1e-40", DIGITS):
        return _alternating(part, at, distance)
    factor = (ends[0] - ends[1]) / (at[1] - at[3])
    if not -2 < factor < 2:
        return None
    angle = sp.acos(factor / 2).evalf(DIGITS)
    middle = simple((ends[0] - factor * at[1]) / (2 - factor))
    length = simple((pi * distance / angle).evalf(DIGITS))
    if middle is None or length is None:
        return None
    theta = (sp.pi * distance / length).evalf(DIGITS)
    real, imaginary = at[1] - middle, (at[0] - at[2]) / (2 * sp.sin(theta).evalf(DIGITS))
    size = simple(sp.sqrt(real**2 + imaginary**2).evalf(DIGITS))
    phase = sp.atan2(imaginary, real).evalf(DIGITS)
    begin = simple((part.first + distance - phase * length / pi).evalf(DIGITS))
    return None if size is None or begin is None else (middle, size, begin, length)


def _alternating(part: SampledPart, at: list[sp.Expr], distance: int) -> Numbers:
    """The cosine over one update: the values are two in turn."""
    if distance != part.stride or abs(at[0] - at[2]) > sp.Float("1e-40", DIGITS):
        return None
    middle, size = simple((at[0] + at[1]) / 2), simple((at[0] - at[1]) / 2)
    if middle is None or size is None or size == 0:
        return None
    return middle, size, sp.Integer(part.first), sp.Integer(distance)


def _inverse_root(part: SampledPart) -> Iterator[tuple[sp.Expr, ...]]:
    """The inverse of the square is a line; the scale is that of the peak at the first update."""
    if len(part.values) < 3 or any(value <= 0 for value in part.values.values()):
        return
    first, last = part.steps[0], part.steps[-1]
    first_square, last_square = (1 / part.values[step] ** 2 for step in (first, last))
    slope = (last_square - first_square) / (last - first)
    if slope <= 0:
        return
    begin = simple((first - first_square / slope).evalf(DIGITS))
    if begin is None:
        return
    # The simplest of the values and scales that have this product.
    for scale in (first - begin, first - begin - 1, sp.S.One):
        peak = simple(sp.sqrt(1 / (slope * scale)).evalf(DIGITS))
        if peak is not None and scale > 0:
            yield peak, begin, scale


def _moving(part: SampledPart) -> list[sp.Expr]:
    """The linear expressions of the step in the formula, with ``floor(t / n) n`` as the step."""
    bound = part.schedule.bound
    floors = {node: node.args[0] / node.args[1] for node in bound.atoms(FloorDiv)}
    bound = bound.xreplace(floors)
    varying_parts = {node for node in sp.preorder_traversal(bound) if node.has(t)}
    # ``min(1, t / n) ** k`` is a power of the line t / n in one of its branches.
    for choice in bound.atoms(sp.Min, sp.Max):
        for arg in choice.args:
            branch = bound.xreplace({choice: arg})
            varying_parts |= {node.base for node in branch.atoms(sp.Pow) if node.base.has(t)}
    lines = {
        sp.expand(node) for node in varying_parts if isinstance(node, sp.Expr) and _is_line(node)
    }
    return sorted(lines, key=sp.count_ops)[:MOST_BASES]


def _is_line(expr: sp.Expr) -> bool:
    slope = sp.diff(expr, t) if expr.is_polynomial(t) else None
    return slope is not None and slope.is_number and slope != 0


def _around(part: SampledPart, moving: Mapping[int, sp.Expr]) -> tuple[sp.Expr, sp.Expr] | None:
    """The numbers a and b with ``a + b moving`` the values of the first and the last update."""
    first, last = part.steps[0], part.steps[-1]
    difference = moving[last] - moving[first]
    if first == last or difference == 0 or not difference.is_real:
        return None
    factor = ((part.values[last] - part.values[first]) / difference).evalf(DIGITS)
    low = simple((part.values[first] - factor * moving[first]).evalf(DIGITS))
    return None if low is None else (low, factor)


def _power(part: SampledPart) -> Iterator[tuple[sp.Expr, ...]]:
    powers = {
        node.exp
        for node in part.schedule.bound.atoms(sp.Pow)
        if node.exp.is_Rational and node.base.has(t)
    }
    if len(part.values) < 3:
        return
    for line in _moving(part):
        slope = sp.diff(line, t)
        shift, way = line.subs(t, 0) / abs(slope), sp.sign(slope)
        for power in sorted(powers):
            at = {step: (shift + way * step) for step in part.steps}
            # A power with a fraction as exponent has no real value there.
            if any(node < 0 or (node == 0 and power < 0) for node in at.values()):
                continue
            curve = _around(part, {step: (node**power).evalf(DIGITS) for step, node in at.items()})
            if curve is not None:
                yield *curve, shift, way, power


def _exponential(part: SampledPart) -> Iterator[tuple[sp.Expr, ...]]:
    """The rate is the logarithm of the factor of one update: of three values at equal distances."""
    blocks = part.count // part.stride
    distance = max(1, (blocks - 1) // 2) * part.stride
    if blocks < 3:
        return
    at = [part.value(part.first + index * distance) for index in range(3)]
    if at[1] in (at[0], at[2]):
        return
    factor = (at[2] - at[1]) / (at[1] - at[0])
    if not factor > 0 or factor == 1:
        return
    rate = sp.log(factor).evalf(DIGITS) / distance
    moving = {step: sp.exp(rate * step).evalf(DIGITS) for step in part.steps}
    curve = _around(part, moving)
    if curve is not None:
        yield *curve, rate


def _logarithm(part: SampledPart) -> Iterator[tuple[sp.Expr, ...]]:
    if not part.schedule.bound.has(sp.log) or len(part.values) < 3:
        return
    for line in _moving(part):
        shift = line.subs(t, 0) / sp.diff(line, t)
        if part.first + shift <= 0:
            continue
        moving = {step: sp.log(step + shift).evalf(DIGITS) for step in part.steps}
        curve = _around(part, moving)
        if curve is not None:
            yield *curve, shift


# The simplest first: a constant is a line, too, and a line is a power.
_FITS = (
    (CurveName.CONSTANT, _constant),
    (CurveName.LINEAR, _line),
    (CurveName.COSINE, _cosine),
    (CurveName.INVERSE_ROOT, _inverse_root),
    (CurveName.POWER, _power),
    (CurveName.EXPONENTIAL, _exponential),
    (CurveName.LOGARITHM, _logarithm),
)
