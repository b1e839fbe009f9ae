"""The form of a schedule: its segments, and the rise, plateau and decay that they make."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import sympy as sp

from closedform.analysis.profile import Profile
from closedform.analysis.writing.fits import DIGITS, fit_segment, periods, simple
from closedform.language import Schedule
from closedform.recipes.forms import CurveName, CurveSegment, Rise, WarmupDecayForm
from closedform.verify.terms.real_line import cells_of

LOOK_AHEAD = 200
"""Updates after the beginning of a last segment that are looked at, at least."""

MOST_SEGMENTS = 64
"""The most segments of a run whose cycles are distinguished."""

_NEAR = sp.Float("1e-25", DIGITS)


def recognize_form(schedule: Schedule, total: int) -> WarmupDecayForm | None:
    """Returns the form of a schedule over a run, None if a part of it has no curve that is known.

    Example:
        >>> from closedform import schedules
        >>> made = schedules.linear(0, 1, 4).then(schedules.cosine(1, 0, 20))
        >>> form = recognize_form(made, 24)
        >>> form.curve.value, form.peak, form.begin, form.end, form.warmup()
        ('cosine', 1, 4, 24, 4)
    """
    if schedule.open:
        return None
    sequence = None
    for later, has_cycles in ((3, False), (1, False), (3, True), (1, True)):
        if has_cycles and not periods(schedule):
            break
        segments = segments_of(schedule, total, later, has_cycles=has_cycles)
        if not segments:
            continue
        form = _of_segments(segments, total)
        if form is not None:
            return replace(form, segments=tuple(segments))
        sequence = sequence or segments
    if sequence is None:
        return None
    peak = schedule.exact(Profile.of(schedule, total).peak.highest)
    zero, end = sp.S.Zero, sp.Integer(total)
    return WarmupDecayForm(
        None, peak, zero, zero, end, CurveName.SEQUENCE, 0, total, segments=tuple(sequence)
    )


# --- segments ------------------------------------------------------------------------------------


def segments_of(
    schedule: Schedule, total: int, later: int, *, has_cycles: bool
) -> list[CurveSegment] | None:
    """Returns the segments of the run and some after it; None if one of the run has no curve.

    Args:
        schedule: The schedule.
        total: The updates of the run.
        later: How many segments that begin after the run are wanted.
        has_cycles: Whether each cycle of the formula is a segment.
    """
    firsts = {max(0, cell.first) for cell in cells_of(schedule)}
    if has_cycles:
        firsts |= _turns(schedule, total)
    marks = sorted(firsts)
    segments: list[CurveSegment] = []
    for index, first in enumerate(marks):
        end = marks[index + 1] if index + 1 < len(marks) else None
        last = max(total, first + LOOK_AHEAD)
        if end is None and schedule.last_step is not None:
            end = max(schedule.last_step, first) + 1
        segment = fit_segment(schedule, first, end, last, segments[-1] if segments else None)
        if segment is None:
            if first >= total:
                break
            return None
        if segments and _is_one_curve(segments[-1], segment):
            segment = replace(segments.pop(), end=segment.end)
        segments.append(segment)
        later -= int(first >= total)
        if not later:
            break
    return segments


def _turns(schedule: Schedule, total: int) -> set[int]:
    """The first update of each cycle of the formula."""
    turns: set[int] = set()
    for shift, length in periods(schedule):
        count = int(sp.ceiling((total - shift) / length)) + 1
        if length > 1 and 0 < count <= MOST_SEGMENTS:
            marks = (int(sp.ceiling(shift + index * length)) for index in range(count))
            turns |= {mark for mark in marks if mark > 0}
    return turns


def _is_one_curve(left: CurveSegment, right: CurveSegment) -> bool:
    return (left.curve, left.numbers, left.stride) == (right.curve, right.numbers, right.stride)


# --- rise, plateau, decay ------------------------------------------------------------------------


def _of_segments(segments: Sequence[CurveSegment], total: int) -> WarmupDecayForm | None:
    rise, rest = _split(segments)
    if not rest:
        return None if rise is None else _only_rising(rise, total)
    if all(segment.curve is CurveName.CONSTANT for segment in rest):
        return _of_constants(rise, rest, total)
    plateau = rest[0] if rest[0].curve is CurveName.CONSTANT else None
    decays = list(rest[1:] if plateau is not None else rest)
    after: list[CurveSegment] = []
    while decays and decays[-1].curve is CurveName.CONSTANT:
        after.insert(0, decays.pop())
    if len({segment.numbers for segment in after if segment.first < total}) > 1:
        return None
    height = None if plateau is None else plateau.numbers[0]
    last = after[0].numbers[0] if after else None
    if len(decays) == 1:
        return _Decay(rise, height, decays[0], last, total).recognize()
    return None if height is not None else _with_cycles(rise, decays, last, total)


def _of_constants(
    rise: Rise | None, rest: Sequence[CurveSegment], total: int
) -> WarmupDecayForm | None:
    """The rate stays at its peak, or falls in steps."""
    peak = rest[0].numbers[0]
    zero, end = sp.S.Zero, sp.Integer(total)
    if len(rest) == 1 or rest[1].first >= total:
        is_lower = rise is not None and peak < _at(rise, rise.end - 1)
        if rise is not None and is_lower and rise.curve is CurveName.LINEAR and rise.slope > 0:
            return _dropping(rise, peak, total)
        if len(rest) == 1:
            return WarmupDecayForm(
                rise, peak, peak, zero, end, CurveName.CONSTANT, rest[0].first, total
            )
    marks = tuple((segment.first, segment.numbers[0]) for segment in rest)
    low = marks[-1][1]
    first = sp.Integer(marks[1][0])
    return WarmupDecayForm(
        rise, peak, low, first, end, CurveName.STEPS, int(first), total, marks=marks
    )


def _at(rise: Rise, step: int) -> sp.Expr:
    return rise.start + rise.slope * step


def _only_rising(rise: Rise, total: int) -> WarmupDecayForm:
    """A run that ends within its warmup."""
    peak = _at(rise, min(rise.end, total))
    zero, end = sp.S.Zero, sp.Integer(total)
    return WarmupDecayForm(rise, peak, peak, zero, end, CurveName.CONSTANT, rise.end, total)


def _dropping(rise: Rise, low: sp.Expr, total: int) -> WarmupDecayForm:
    """A rise after which the rate falls at once: a decay over one update."""
    last = rise.end - 1
    return WarmupDecayForm(
        rise,
        _at(rise, last),
        low,
        sp.Integer(last),
        sp.Integer(rise.end),
        CurveName.LINEAR,
        rise.end,
        total,
    )


def _split(segments: Sequence[CurveSegment]) -> tuple[Rise | None, list[CurveSegment]]:
    """The rise, and the other segments."""
    rest = list(segments)
    if len(rest) > 1 and rest[0].end == 1 and rest[1].curve in _PEAKS:
        # A rise over one update, or a part: its line meets the peak where the decay begins.
        start, (meeting, peak) = rest[0].value(0), _PEAKS[rest[1].curve](*rest[1].numbers)
        if 0 < meeting <= 1 and start < peak:
            return Rise(start, (peak - start) / meeting, 0, 1), rest[1:]
    if len(rest) > 2 and rest[0].curve is rest[1].curve is CurveName.CONSTANT:
        # A factor of the peak, which comes at once.
        start, end = rest[0].numbers[0], rest[0].end
        if start < rest[1].numbers[0] and end is not None:
            return Rise(start, sp.S.Zero, 0, end, CurveName.CONSTANT), rest[1:]
    begin = 0
    is_flat = len(rest) > 1 and rest[0].curve is CurveName.CONSTANT and rest[0].stride == 1
    if is_flat and _is_rising(rest[1]) and rest[1].end is not None:
        # The first values are equal: that of update 1, or a minimum that the line starts below.
        rest = rest[1:]
        begin = rest[0].first
        if begin > 1 and rest[0].value(1) == segments[0].value(0):
            begin = 1
    first = rest[0]
    if not _is_rising(first):
        return None, rest
    if first.end is None:
        return (None, rest) if begin or first.curve is not CurveName.LINEAR else (None, [])
    rise = _rise(first, begin)
    return (rise, rest[1:]) if rise is not None else (None, list(segments))


_PEAKS: Mapping[CurveName, Callable[..., tuple[sp.Expr, sp.Expr]]] = {
    CurveName.COSINE: lambda middle, size, begin, _: (begin, middle + size),
    CurveName.INVERSE_ROOT: lambda peak, begin, scale: (begin + scale, peak),
}
"""Where a decay is at its peak, and the peak, by its curve from its numbers."""


def _is_rising(segment: CurveSegment) -> bool:
    if segment.stride > 1:
        return False
    match segment.curve:
        case CurveName.LINEAR:
            return bool(segment.numbers[1] > 0)
        case CurveName.POWER:
            _, factor, shift, way, power = segment.numbers
            return bool(factor > 0 and way > 0 and power > 0 and shift == 0)
        case CurveName.LOGARITHM:
            return bool(segment.numbers[1] > 0)
        case _:
            return False


def _rise(segment: CurveSegment, begin: int) -> Rise | None:
    end = segment.end or 0
    if segment.curve is CurveName.LINEAR:
        return Rise(segment.numbers[0], segment.numbers[1], begin, end)
    start = segment.numbers[0]
    # Curves that meet the peak at a whole update, or one before it.
    for length in (end, end - 1):
        if length < 1:
            continue
        top = simple(segment.value(length).evalf(DIGITS))
        if top is not None:
            power = segment.numbers[4] if segment.curve is CurveName.POWER else sp.S.One
            return Rise(start, (top - start) / length, begin, end, segment.curve, power)
    return None


@dataclass(frozen=True, slots=True)
class _Decay:
    """One decay, with what comes before and after it.

    Attributes:
        rise: The rise before it, None for none.
        height: The value of the plateau before it, None for none.
        segment: Its segment.
        last: The value after it, None where it goes on.
        total: The updates of the run.
    """

    rise: Rise | None
    height: sp.Expr | None
    segment: CurveSegment
    last: sp.Expr | None
    total: int

    def recognize(self) -> WarmupDecayForm | None:
        """Returns its form, None if its numbers are not simple."""
        match self.segment.curve:
            case CurveName.INVERSE_ROOT:
                peak, begin, scale = self.segment.numbers
                if self.height:  # a plateau at 0 is not the peak
                    scale, peak = scale * (peak / self.height) ** 2, self.height
                return self._form(peak, sp.S.Zero, begin, scale)
            case CurveName.COSINE:
                return self.cosine()
            case CurveName.LINEAR:
                return self._line()
            case CurveName.POWER:
                return self._power()
            case CurveName.EXPONENTIAL:
                return self._exponential()
            case _:
                return None

    def _form(
        self,
        peak: sp.Expr,
        low: sp.Expr,
        begin: sp.Expr,
        end: sp.Expr,
        curve: CurveName | None = None,
        power: sp.Expr = sp.S.One,
    ) -> WarmupDecayForm:
        levels_and_ends = (peak, low, begin, end, curve or self.segment.curve)
        form = WarmupDecayForm(self.rise, *levels_and_ends, self.segment.first, self.total, power)
        return replace(form, after=self.last, stride=self.segment.stride)

    def cosine(self) -> WarmupDecayForm:
        """Returns the form of a cosine."""
        middle, size, begin, length = self.segment.numbers
        return self._form(middle + size, middle - size, begin, begin + length)

    def _line(self) -> WarmupDecayForm | None:
        start, slope = self.segment.numbers
        rise = self.rise
        # A line without an end may end with the run.
        low = start + slope * self.total if self.last is None else self.last
        peak = start if self.height is None else self.height
        if self.height is None and rise is not None:
            if rise.curve is not CurveName.LINEAR:
                peak = simple(self.segment.value(self.segment.first).evalf(DIGITS))
                if peak is None:
                    return None
            elif rise.slope == slope:
                return None
            else:
                # Where the two lines meet.
                peak = rise.start + rise.slope * (start - rise.start) / (rise.slope - slope)
        return self._form(peak, low, (peak - start) / slope, (low - start) / slope)

    def _power(self) -> WarmupDecayForm | None:
        low, factor, shift, way, power = self.segment.numbers
        first = self.segment.first
        if way > 0 and power == -sp.S.Half and factor > 0:
            peak, scale = self._value_at(first), first + shift
            if peak is None or scale <= 0:
                return None
            return self._form(peak, low, -shift, scale, CurveName.INVERSE_ROOT)
        if way > 0:
            if power != sp.S.Half or factor > 0:
                return None
            low, peak = self._value_at(self.total) if self.last is None else self.last, low
            if low is None:
                return None
            length = simple((((peak - low) / -factor) ** 2).evalf(DIGITS))
            if length is None:
                return None
            return self._form(peak, low, -shift, length - shift, CurveName.ROOT)
        if factor < 0 or power < 0:
            return None
        # Some curves begin with the run, whatever comes before them.
        for begin in (self._beginning(), sp.S.Zero):
            peak = self._value_at(begin)
            if peak is not None:
                return self._form(peak, low, begin, shift, power=power)
        return None

    def _exponential(self) -> WarmupDecayForm | None:
        offset, factor, rate = self.segment.numbers
        if offset != 0 or factor < 0:
            return None
        begin = self._beginning()
        peak = self._value_at(begin)
        if peak is None:
            return None
        # The end is where the values stop, or where they have fallen by a simple factor.
        stop = self.segment.end
        for end in [*([] if stop is None else [stop - 1, stop]), self.total]:
            low = self._value_at(end)
            if low is not None and (self.last is None or low == self.last):
                return self._form(peak, low, begin, sp.Integer(end))
        gamma = simple(sp.exp(rate * self.segment.stride).evalf(DIGITS))
        if gamma is None:
            return None
        return self._form(peak, peak * gamma, begin, begin + self.segment.stride)

    def _value_at(self, step: sp.Expr | int) -> sp.Expr | None:
        number = self.segment.value(step).evalf(DIGITS)
        return simple(number) if number.is_Float or number.is_Rational else None

    def _beginning(self) -> sp.Expr:
        """Where it begins: at its plateau's height, where the rise meets it, or as it does."""
        first = self.segment.first
        for step in (first, first - 1, first + 1):
            if step < 0:
                continue
            start_value = self.height
            if start_value is None and self.rise is not None:
                is_line = self.rise.curve is CurveName.LINEAR
                start_value = _at(self.rise, step) if is_line else None
            if start_value is None:
                break
            gap = abs(self.segment.value(step).evalf(DIGITS) - start_value)
            if gap < _NEAR * abs(start_value):
                return sp.Integer(step)
        return sp.Integer(first)


def _with_cycles(
    rise: Rise | None, decays: Sequence[CurveSegment], last: sp.Expr | None, total: int
) -> WarmupDecayForm | None:
    """Cosines of one length, each from its peak, with values that shrink by one factor."""
    if {segment.curve for segment in decays} != {CurveName.COSINE}:
        return None
    if len({segment.stride for segment in decays}) > 1:
        return None
    first = decays[0].numbers
    for index, segment in enumerate(decays):
        middle, size, begin, length = segment.numbers
        if length != first[3] or begin != first[2] + index * first[3]:
            return None
        # Equal ratios of middle and size: the minimum is the same part of each peak.
        if middle * first[1] != size * first[0]:
            return None
    ratios = {later.numbers[1] / before.numbers[1] for before, later in itertools.pairwise(decays)}
    if len(ratios) > 1:
        return None
    form = _Decay(rise, None, decays[0], last, total).cosine()
    return replace(form, cycles=len(decays), shrink=ratios.pop())
