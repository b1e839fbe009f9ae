"""The form of a schedule: its segments, and the rise, plateau and decay that they make."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import sympy as sp

from closedform.analysis.profile import Profile
from closedform.analysis.writing.fits import DIGITS, fit_segment, periods, simple
from closedform.language import Schedule
from closedform.recipes.forms import CurveName, CurveSegment, Rise, WarmupDecayForm
from closedform.verify.claims.continuity import cells_of

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
    if len(decays) == 1:
        return _with_decay(rise, plateau, decays[0], after, total)
    return _with_cycles(rise, plateau, decays, after, total)


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
    is_point = len(rest) > 1 and rest[0].end == 1
    if is_point and rest[1].curve is CurveName.COSINE and 0 < rest[1].numbers[2] <= 1:
        # A rise over one update, or a part: its line meets the peak where the decay begins.
        middle, size, meeting, _ = rest[1].numbers
        start = rest[0].value(0)
        if start < middle + size:
            return Rise(start, (middle + size - start) / meeting, 0, 1), rest[1:]
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


def _with_decay(
    rise: Rise | None,
    plateau: CurveSegment | None,
    decay: CurveSegment,
    after: Sequence[CurveSegment],
    total: int,
) -> WarmupDecayForm | None:
    last = after[0].numbers[0] if after else None
    form: WarmupDecayForm | None = None
    match decay.curve:
        case CurveName.INVERSE_ROOT:
            peak, begin, scale = decay.numbers
            if plateau is not None and peak != plateau.numbers[0]:
                scale, peak = scale * (peak / plateau.numbers[0]) ** 2, plateau.numbers[0]
            zero = sp.S.Zero
            form = WarmupDecayForm(rise, peak, zero, begin, scale, decay.curve, decay.first, total)
        case CurveName.COSINE:
            form = _cosine(rise, decay, total)
        case CurveName.LINEAR:
            form = _line(rise, plateau, decay, last, total)
        case CurveName.POWER:
            form = _power(rise, plateau, decay, last, total)
        case CurveName.EXPONENTIAL:
            form = _exponential(rise, plateau, decay, last, total)
        case _:
            return None
    return None if form is None else replace(form, after=last, stride=decay.stride)


def _cosine(rise: Rise | None, decay: CurveSegment, total: int) -> WarmupDecayForm:
    middle, size, begin, length = decay.numbers
    low, peak = middle - size, middle + size
    return WarmupDecayForm(rise, peak, low, begin, begin + length, decay.curve, decay.first, total)


def _line(
    rise: Rise | None,
    plateau: CurveSegment | None,
    decay: CurveSegment,
    last: sp.Expr | None,
    total: int,
) -> WarmupDecayForm | None:
    start, slope = decay.numbers
    # A line without an end may end with the run.
    low = start + slope * total if last is None else last
    peak = start
    if plateau is not None:
        peak = plateau.numbers[0]
    elif rise is not None and rise.curve is not CurveName.LINEAR:
        peak = simple(decay.value(decay.first).evalf(DIGITS))
        if peak is None:
            return None
    elif rise is not None:
        if rise.slope == slope:
            return None
        # Where the two lines meet.
        peak = rise.start + rise.slope * (start - rise.start) / (rise.slope - slope)
    begin, end = (peak - start) / slope, (low - start) / slope
    return WarmupDecayForm(rise, peak, low, begin, end, decay.curve, decay.first, total)


def _power(
    rise: Rise | None,
    plateau: CurveSegment | None,
    decay: CurveSegment,
    last: sp.Expr | None,
    total: int,
) -> WarmupDecayForm | None:
    low, factor, shift, way, power = decay.numbers
    if way > 0 and power == -sp.S.Half and factor > 0:
        peak, scale = _value_at(decay, decay.first), decay.first + shift
        if peak is None or scale <= 0:
            return None
        return WarmupDecayForm(
            rise, peak, low, -shift, scale, CurveName.INVERSE_ROOT, decay.first, total
        )
    if way > 0:
        if power != sp.S.Half or factor > 0:
            return None
        low, peak = _value_at(decay, total) if last is None else last, low
        if low is None:
            return None
        length = simple((((peak - low) / -factor) ** 2).evalf(DIGITS))
        if length is None:
            return None
        end = length - shift
        return WarmupDecayForm(rise, peak, low, -shift, end, CurveName.ROOT, decay.first, total)
    if factor < 0 or power < 0:
        return None
    # Some curves begin with the run, whatever comes before them.
    for begin in (_beginning(rise, plateau, decay), sp.S.Zero):
        peak = _value_at(decay, begin)
        if peak is not None:
            first = decay.first
            return WarmupDecayForm(
                rise, peak, low, begin, shift, decay.curve, first, total, power=power
            )
    return None


def _exponential(
    rise: Rise | None,
    plateau: CurveSegment | None,
    decay: CurveSegment,
    last: sp.Expr | None,
    total: int,
) -> WarmupDecayForm | None:
    offset, factor, rate = decay.numbers
    if offset != 0 or factor < 0:
        return None
    begin = _beginning(rise, plateau, decay)
    peak = _value_at(decay, begin)
    if peak is None:
        return None
    # The end is where the values stop, or where they have fallen by a simple factor.
    candidates = [decay.end - 1, decay.end] if decay.end is not None else []
    for end in [*candidates, total]:
        low = _value_at(decay, end)
        if low is not None and (last is None or low == last):
            begin_at, end_at = sp.Integer(begin), sp.Integer(end)
            return WarmupDecayForm(
                rise, peak, low, begin_at, end_at, decay.curve, decay.first, total
            )
    gamma = simple(sp.exp(rate * decay.stride).evalf(DIGITS))
    if gamma is None:
        return None
    end_at = sp.Integer(begin + decay.stride)
    low = peak * gamma
    return WarmupDecayForm(
        rise, peak, low, sp.Integer(begin), end_at, decay.curve, decay.first, total
    )


def _value_at(segment: CurveSegment, step: sp.Expr | int) -> sp.Expr | None:
    number = segment.value(step).evalf(DIGITS)
    return simple(number) if number.is_Float or number.is_Rational else None


def _beginning(rise: Rise | None, plateau: CurveSegment | None, decay: CurveSegment) -> sp.Expr:
    """Where a decay begins: at its plateau's height, where the rise meets it, or as it does."""
    first = decay.first
    height = None if plateau is None else plateau.numbers[0]
    for step in (first, first - 1, first + 1):
        if step < 0:
            continue
        start_value = height
        if start_value is None and rise is not None and rise.curve is CurveName.LINEAR:
            start_value = _at(rise, step)
        if start_value is None:
            break
        if abs(decay.value(step).evalf(DIGITS) - start_value) < _NEAR * abs(start_value):
            return sp.Integer(step)
    return sp.Integer(first)


def _with_cycles(
    rise: Rise | None,
    plateau: CurveSegment | None,
    decays: Sequence[CurveSegment],
    after: Sequence[CurveSegment],
    total: int,
) -> WarmupDecayForm | None:
    """Cosines of one length, each from its peak, with values that shrink by one factor."""
    if plateau is not None or len({(segment.curve, segment.stride) for segment in decays}) > 1:
        return None
    if decays[0].curve is not CurveName.COSINE:
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
    form = _cosine(rise, decays[0], total)
    last = after[0].numbers[0] if after else None
    return replace(
        form, cycles=len(decays), shrink=ratios.pop(), after=last, stride=decays[0].stride
    )
