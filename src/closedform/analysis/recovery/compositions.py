"""Compositions that reproduce a curve: stretches in a row, floors, steps, repetitions."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from closedform import schedules
from closedform.analysis.recovery.fit import Effort
from closedform.analysis.recovery.marks import Points, flat_runs, linear_prefix
from closedform.analysis.recovery.search import (
    LibraryCall,
    Search,
    argument_text,
    call_text,
    check_call,
    check_library_call,
    cost_of,
)
from closedform.analysis.recovery.simplest import candidates, digits, round_integers
from closedform.analysis.recovery.starts import Features, features
from closedform.language import Schedule

MOST_STRETCHES = 8
"""Stretches of a curve that are searched."""

MOST_ARGUMENTS = 4
"""Arguments of a schedule that is a part of a composition."""

MOST_LEVELS = 40
"""Values of a curve that is constant between jumps."""


GOOD = 15.0
"""A description of this length is not compared with compositions."""

SIMPLE = 25.0
"""Two schedules of this length are not compared with others."""

MOST_MILESTONES = 5
"""Milestones at which two schedules are tried."""

MOST_EVALUATIONS = 9_000_000
"""The budget of one log, in values computed; a call costs ``COST_OF_A_CALL`` more."""

MOST_EVALUATIONS_PER_POINT = 200_000
"""The budget of one point: any structure reproduces few points, so a long search tells nothing."""


_VALUE = 5.0
"""Cost of a logged value: a description that is longer than the log explains nothing."""


def shortest(points: Points) -> LibraryCall | None:
    """Returns the shortest schedule or composition that was found to reproduce the points."""
    with np.errstate(all="ignore"):
        return _Composer(len(points.steps)).whole(
            points, _VALUE * len(points.steps), MOST_STRETCHES
        )


class _Composer:
    """The search for compositions of one log, with a limited number of evaluations."""

    def __init__(self, count: int) -> None:
        self.effort = Effort(min(MOST_EVALUATIONS, MOST_EVALUATIONS_PER_POINT * count))

    def single(
        self, points: Points, limit: float, most: int = MOST_ARGUMENTS
    ) -> LibraryCall | None:
        """Returns the shortest schedule of the library below a limit."""
        return Search(points, self.effort).best(limit, most)

    def whole(self, points: Points, limit: float, depth: int) -> LibraryCall | None:
        """Returns the shortest schedule of the library or composition below a limit."""
        curve = features(points)
        best = _levels(points, curve)
        if best is not None and len(curve.jumps) > 0 and not curve.periods:
            return best
        best = best if best is not None and best.cost < limit else None
        single = self.single(points, limit if best is None else best.cost)
        best = single or best
        if depth < 2 or (best is not None and (best.cost <= GOOD or curve.is_stepwise)):
            return best
        limit = limit if best is None else best.cost
        for periodic in (self._repetition, self._chain):
            candidate = periodic(points, curve, limit, depth)
            if candidate is not None and candidate.cost < limit:
                return candidate
        if depth == MOST_STRETCHES:
            best = Search(points, self.effort).likeliest(limit, MOST_ARGUMENTS + 1) or best
            if best is not None and best.cost < limit:
                return best
            best = self._two(points, curve, limit) or best
            limit = limit if best is None else best.cost
            best = Search(points, self.effort).best(limit, least=MOST_ARGUMENTS + 1) or best
            if best is not None:
                return best
        candidate = self._stretches(points, curve, limit, depth)
        return candidate if candidate is not None and candidate.cost < limit else best

    def _two(self, points: Points, curve: Features, limit: float) -> LibraryCall | None:
        """Two schedules, the second from a milestone on: what most runs have."""
        if points.steps[0] != 0:
            return None
        best: LibraryCall | None = None
        marks = _milestones(points, curve)[:MOST_MILESTONES]
        # A jump is certainly a milestone: both ways are tried there first.
        ways = [(mark, is_line) for is_line in (True, False) for mark in marks]
        ways.sort(key=lambda way: way[0] not in curve.clear_jumps)
        for mark, is_line in ways:
            before, after = points.steps < mark, points.steps >= mark
            if before.sum() < 3 or after.sum() < 3:
                continue
            head, tail = points.select(before), points.select(after)
            call = (self._after_line if is_line else self._after_curve)(
                points, head, tail, mark, limit
            )
            if call is not None and call.cost < limit:
                best, limit = call, call.cost
                if best.cost <= SIMPLE:
                    return best
        return best

    def _after_line(
        self, points: Points, head: Points, tail: Points, mark: int, limit: float
    ) -> LibraryCall | None:
        """A line, such as a warmup, and a schedule in its own time."""
        first = _line(head, mark, float(tail.values[0]))
        if first is None:
            return None
        local = Points(tail.steps - mark, tail.values, tail.errors)
        rest = self.single(local, limit - first.cost)
        return None if rest is None else _join(points, first, rest, mark)

    def _after_curve(
        self, points: Points, head: Points, tail: Points, mark: int, limit: float
    ) -> LibraryCall | None:
        """A schedule that is cut off at a value, or that another one follows or multiplies."""
        level = _level(tail, 0, len(tail.steps))
        if level is not None:
            first = self.single(head, limit - 2)
            return None if first is None else _cut_off(points, first, level)
        later = self.single(tail, limit - 3)
        if later is None:
            return None
        factor = _factor(points, later.schedule, mark)
        # The same curve over the whole run, times a warmup at first: a product rather than two
        # stretches.
        if factor is not None:
            schedule = schedules.product([factor.schedule, later.schedule])
            text = f"product([{factor.text}, {later.text}])"
            return check_call(text, schedule, factor.cost + later.cost + 1, points)
        first = self.single(head, limit - later.cost)
        return None if first is None else _splice(points, first, later, mark)

    def _repetition(
        self, points: Points, curve: Features, limit: float, depth: int
    ) -> LibraryCall | None:
        """A curve with a period, of which the log has at least two."""
        if not curve.is_dense or points.steps[0] != 0 or not curve.jumps:
            return None
        v, e = points.values, points.errors
        for step in dict.fromkeys((*curve.jumps[:4], *curve.periods[:3])):
            period = int(step)
            if not 2 <= period <= len(v) // 2:
                continue
            # The curve against itself one period later, within the precision of both values.
            if np.any(np.abs(v[period:] - v[:-period]) > 1.01 * (e[period:] + e[:-period])):
                continue
            inner = self.single(points.select(points.steps < period), limit - 3)
            if inner is None:
                continue
            schedule = inner.schedule.repeat(period)
            cost = inner.cost + 1 + digits(Fraction(period))
            call = check_call(f"{inner.text}.repeat({period})", schedule, cost, points)
            if call is not None:
                return call
        return None

    def _chain(
        self, points: Points, curve: Features, limit: float, depth: int
    ) -> LibraryCall | None:
        """A smooth curve times a factor at each multiple of a number of steps."""
        if (
            not curve.has_jumps
            or curve.is_stepwise
            or points.steps[0] != 0
            or depth < MOST_STRETCHES
        ):
            return None
        t, v = points.steps, points.values
        place = int(np.searchsorted(t, curve.jumps[0]))
        if place < 3 or place + 2 >= len(v):
            return None
        # The next value by the parabola through the last three: the jump is the quotient to it.
        before = 2 * v[place - 1] - v[place - 2]
        before += v[place - 1] - 2 * v[place - 2] + v[place - 3]
        if before == 0:
            return None
        ratio = float(v[place] / before)
        near = [
            n
            for n in candidates(ratio, is_integer=False)
            if abs(float(n) - ratio) < 0.01 * abs(ratio)
        ]
        for period in curve.periods[:2]:
            for gamma in near[:2]:
                factor = float(gamma) ** np.floor(t / period)
                if np.any(factor == 0):
                    continue
                smooth = Points(t, v / factor, points.errors / np.abs(factor))
                inner = self.single(smooth, limit - 6)
                if inner is None:
                    continue
                steps = schedules.step_decay(1, gamma, int(period))
                decay_arguments = {
                    "value": Fraction(1),
                    "gamma": gamma,
                    "steps": Fraction(int(period)),
                }
                text = f"chained([{inner.text}, {call_text('step_decay', decay_arguments)}])"
                cost = inner.cost + 6 + digits(gamma) + digits(Fraction(period))
                call = check_call(text, schedules.chained([inner.schedule, steps]), cost, points)
                if call is not None:
                    return call
        return None

    def _stretches(
        self, points: Points, curve: Features, limit: float, depth: int
    ) -> LibraryCall | None:
        """A first stretch, and the rest from a step on: in its own time, or in that of the run."""
        if points.steps[0] != 0:
            return None
        best: LibraryCall | None = None
        for mark in _milestones(points, curve):
            before, after = points.steps < mark, points.steps >= mark
            if before.sum() < 2 or after.sum() < 3:
                continue
            head, tail = points.select(before), points.select(after)
            local = Points(tail.steps - mark, tail.values, tail.errors)
            first = _line(head, mark, float(tail.values[0]))
            is_line = first is not None
            if first is None and depth >= MOST_STRETCHES - 2 and head.steps.size >= 6:
                first = self.single(head, limit - 4)
            if first is None:
                continue
            for call in self._continuations(
                points, first, local, tail, mark, limit, depth, is_line=is_line
            ):
                if call.cost < limit:
                    best, limit = call, call.cost
            if best is not None:
                return best
        return best

    def _continuations(
        self,
        points: Points,
        first: LibraryCall,
        local: Points,
        tail: Points,
        mark: int,
        limit: float,
        depth: int,
        *,
        is_line: bool,
    ) -> Iterator[LibraryCall]:
        level = _level(tail, 0, len(tail.steps))
        if level is not None:
            call = _cut_off(points, first, level)
            if call is not None:
                yield call
                return
        rest = self.whole(local, limit - first.cost, depth - 1)
        if rest is not None:
            call = _join(points, first, rest, mark)
            if call is not None:
                yield call
                return


def _cut_off(points: Points, first: LibraryCall, level: Fraction) -> LibraryCall | None:
    for name in ("low", "high"):
        schedule = first.schedule.clip(**{name: level})
        cost = first.cost + 1 + digits(level)
        call = check_call(
            f"{first.text}.clip({name}={argument_text(level)})", schedule, cost, points
        )
        if call is not None:
            return call
    return None


def _join(points: Points, first: LibraryCall, rest: LibraryCall, mark: int) -> LibraryCall | None:
    is_length = first.schedule.length == mark
    at = "" if is_length else f", at={mark}"
    schedule = first.schedule.then(rest.schedule, at=mark)
    cost = first.cost + rest.cost + (0 if is_length else 1 + digits(Fraction(mark)))
    return check_call(f"{first.text}.then({rest.text}{at})", schedule, cost, points)


def _splice(
    points: Points, first: LibraryCall, later: LibraryCall, mark: int
) -> LibraryCall | None:
    schedule = first.schedule.splice(mark, later.schedule)
    cost = first.cost + later.cost + 1 + digits(Fraction(mark))
    return check_call(f"{first.text}.splice({mark}, {later.text})", schedule, cost, points)


# --- levels --------------------------------------------------------------------------------------


def _levels(points: Points, curve: Features) -> LibraryCall | None:
    """A curve that is constant between jumps: multi_step or piecewise_constant."""
    if not curve.is_stepwise:
        return None
    starts = [0, *(int(np.searchsorted(points.steps, step)) for step in curve.jumps)]
    if len(starts) > MOST_LEVELS:
        return None
    values = [
        _level(points, a, b) for a, b in zip(starts, [*starts[1:], len(points.steps)], strict=True)
    ]
    marks = [_between(points.steps[place - 1], points.steps[place]) for place in starts[1:]]
    if any(value is None for value in values):
        return None
    levels = [value for value in values if value is not None]
    powers = _powers(points, levels, marks, curve)
    arguments = {"values": levels, "milestones": marks}
    if powers is not None and powers.cost <= cost_of(arguments, curve.end):
        return powers
    return check_library_call("piecewise_constant", arguments, points, curve.end)


def _powers(
    points: Points, levels: list[Fraction], marks: list[int], curve: Features
) -> LibraryCall | None:
    if len(levels) < 2 or levels[0] == 0:
        return None
    guess = (
        float(levels[-1] / levels[0]) ** (1 / (len(levels) - 1))
        if levels[-1] / levels[0] > 0
        else 0
    )
    for gamma in candidates(guess, is_integer=False)[:12]:
        arguments = {"value": levels[0], "gamma": gamma, "milestones": marks}
        call = check_library_call("multi_step", arguments, points, curve.end)
        if call is not None:
            return call
    return None


def _level(points: Points, first: int, stop: int) -> Fraction | None:
    """The simplest value of a flat stretch."""
    v, e = points.values[first:stop], points.errors[first:stop]
    low, high = float(np.max(v - e)), float(np.min(v + e))
    if low > high * (1 + 1e-12) + 1e-300:
        return None
    return next(
        (
            number
            for number in candidates((low + high) / 2, is_integer=False)
            if low <= float(number) <= high
        ),
        None,
    )


def _between(low: float, high: float) -> int:
    """The simplest integer above one number and at most another."""
    integers = round_integers(int(low) + 1, int(high))
    return min(integers, key=lambda n: (digits(Fraction(n)), -n))


_SHORTEST_LINE = 4
"""Points of a line that may be a stretch: three points of a smooth curve are nearly one."""


def _milestones(points: Points, curve: Features) -> list[int]:
    """The steps at which a first stretch may end, the likeliest first."""
    t = points.steps
    count = linear_prefix(points)
    milestones: list[int] = []
    if count < len(t):
        # Where the next stretch begins at the end of the line, its first point is on both.
        if not curve.is_dense:
            around = [count, count + 1]
        elif count < _SHORTEST_LINE:
            around = []
        elif float(t[count]) in curve.jumps:
            around = [count, count - 1, count + 1]
        else:
            around = [count - 1, count, count + 1]
        milestones += [
            int(t[place]) if curve.is_dense else _between(t[place - 1], t[place])
            for place in around
            if 2 <= place < len(t)
        ]
    for first, last in sorted(flat_runs(points), key=lambda run: run[0] - run[1])[:2]:
        milestones += [int(t[first])] + ([int(t[last + 1])] if last + 1 < len(t) else [])
    milestones += [int(mark) for mark in (*curve.jumps[:2], *curve.marks)]
    return [mark for mark in dict.fromkeys(milestones) if mark >= 1][:8]


def _line(points: Points, steps: int, end: float) -> LibraryCall | None:
    """The line of a first stretch, to a simple value at its end."""
    if linear_prefix(points) < len(points.steps):
        return None
    t, v, e = points.steps, points.values, points.errors
    slope, start = np.polyfit(t, v, 1, w=1 / e)
    level = _level(points, 0, len(t))
    if level is not None:
        arguments = {"value": level, "steps": Fraction(steps)}
        call = check_library_call("constant", arguments, points, float(steps))
        if call is not None:
            return call
    spread = float(np.max(e))
    ends = [
        *candidates(end, is_integer=False)[:12],
        *candidates(start + slope * steps, is_integer=False),
    ]
    starts = [
        n for n in candidates(float(start), is_integer=False) if abs(float(n) - start) < 6 * spread
    ]
    for first in starts[:8]:
        for last in ends:
            line = float(first) + (float(last) - float(first)) * t / steps
            if np.all(np.abs(line - v) <= e * (1 + 1e-9) + 1e-14 * np.abs(v)):
                arguments = {"start": first, "end": last, "steps": Fraction(steps)}
                return check_library_call("linear", arguments, points, float(steps))
    return None


def _factor(points: Points, later: Schedule, mark: int) -> LibraryCall | None:
    """The line to 1 by which a schedule is multiplied before a step."""
    head = points.select(points.steps < mark)
    from_later = np.asarray(later(head.steps.astype(np.int64)), dtype=np.float64)
    if np.any(from_later == 0):
        return None
    ratios = Points(head.steps, head.values / from_later, head.errors / np.abs(from_later))
    line = _line(ratios, mark, 1.0)
    return line if line is not None and line.schedule(mark) == 1 else None
