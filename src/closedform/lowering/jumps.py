"""Floors and comparisons of real numbers as choices by thresholds of the step, in integers.

In floats ``floor(log(8)/log(2))`` is 2, and ``cos(pi*t/300) >= 1/2`` fails at t = 100: a number
that meets a threshold is rounded to its other side. Where a floor, or a comparison, of a number
that only the clock moves changes at few steps, these are worked out exactly, and the graph compares
integers:

    floor(log(t + 1)/log(2))    Piecewise((0, t < 1), (1, t < 3), (2, t < 7), …)
    cos(pi*t/300) >= 1/2        t mod 600 <= 100 or t mod 600 >= 500

Intervals of steps on which an enclosure of the number holds no threshold have one value; others are
halved, down to single steps, whose values are exact (``language.exact``). A number that only rises,
or only falls, has one value between equal ones.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from fractions import Fraction

import sympy as sp
from sympy.core.relational import Relational

from closedform.errors import DomainError
from closedform.language.exact import holds_at, value_at
from closedform.language.integers import FloorDiv, FloorMod
from closedform.language.symbols import t
from closedform.lowering.analysis.annotate import interval
from closedform.lowering.analysis.domain import Domain, Interval

MOST_RUNS = 260
"""More runs stay a floor: a table of so many milestones costs more than its arithmetic."""

_MOST_CYCLIC_RUNS = 64
_MOST_CONDITIONS = 16
_MOST_INTERVALS = 3000
_LONGEST_PERIOD = 2**20

Runs = list[tuple[int, sp.Basic]]
"""The first step of each run, and the value on it: a number or a truth."""


def floor_by_steps(expr: sp.Expr, domain: Domain) -> sp.Expr | None:
    """Returns a floor, or a clamp of floors, as numbers by thresholds; None where it has too many.

    Args:
        expr: An expression whose values are integers.
        domain: Where it is taken.
    """
    position = _position(expr, domain)
    if position is None:
        return None
    core, inner, first, last = position

    def enclose(inside: Domain) -> sp.Basic | None:
        values = interval(inner, inside)
        return _integer(values.low) if values.low == values.high else None

    most = MOST_RUNS if core == t else _MOST_CYCLIC_RUNS
    is_monotone = direction(inner, _between(domain, first, last)) is not None
    runs = _runs(
        enclose,
        lambda step: value_at(inner, {t: step}),
        domain,
        first,
        last,
        most,
        is_monotone=is_monotone,
    )
    if runs is None:
        return None
    ends = [start for start, _ in runs[1:]]
    values = [value for _, value in runs]
    choices = [(value, core < end) for value, end in zip(values, ends, strict=False)]
    return sp.Piecewise(*choices, (values[-1], True))


def comparison_by_steps(condition: Relational, domain: Domain) -> sp.Basic | None:
    """Returns a comparison as comparisons of the step; None where it changes too often."""
    position = _position(condition, domain)
    if position is None:
        return None
    core, inner, first, last = position
    difference = inner.lhs - inner.rhs

    def enclose(inside: Domain) -> sp.Basic | None:
        return _truth(inner.func, interval(difference, inside))

    def at(step: sp.Integer) -> sp.Basic:
        return sp.true if holds_at(inner, {t: step}) else sp.false

    is_monotone = inner.func not in (sp.Eq, sp.Ne) and (
        direction(difference, _between(domain, first, last)) is not None
    )
    # A turning number without cosines, such as the length of RAdam's average, seldom meets its
    # threshold exactly: floats decide it, and its enclosures are wide.
    if not is_monotone and not inner.has(sp.cos, sp.sin, sp.Eq, sp.Ne):
        return None
    runs = _runs(enclose, at, domain, first, last, 2 * _MOST_CONDITIONS, is_monotone=is_monotone)
    if runs is None:
        return None
    ends = [*(start - 1 for start, _ in runs[1:]), last]
    parts = []
    for (start, truth), end in zip(runs, ends, strict=True):
        if truth == sp.true:
            lower = sp.true if start == first else core >= start
            upper = sp.true if end == last else core <= end
            parts.append(sp.And(lower, upper))
    return sp.Or(*parts)


def _between(domain: Domain, first: int, last: int) -> Domain:
    return domain.with_interval(t, Interval(Fraction(first), Fraction(last)))


def direction(expr: sp.Expr, domain: Domain) -> int | None:
    """Returns 1 where an expression never falls with the step, -1 where it never rises, 0 for both.

    By the structure: None is "not known".
    """
    if t not in expr.free_symbols:
        return 0
    if expr == t:
        return 1
    if isinstance(expr, sp.Mul):
        return _direction_of_product(expr.args, domain)
    if isinstance(expr, sp.Pow):
        return _direction_of_power(expr, domain)
    if isinstance(expr, FloorDiv):
        return direction(expr.args[0], domain) if expr.args[1].is_positive else None
    if isinstance(expr, _RISING):
        return _common({direction(arg, domain) for arg in expr.args})
    return None


_RISING = (sp.Add, sp.Min, sp.Max, sp.floor, sp.log, sp.exp)


def _common(directions: set[int | None]) -> int | None:
    directions.discard(0)
    return 0 if not directions else directions.pop() if len(directions) == 1 else None


def _direction_of_product(factors: tuple[sp.Expr, ...], domain: Domain) -> int | None:
    directions: set[int | None] = set()
    sign = 1
    for factor in factors:
        values = interval(factor, domain)
        if not values.is_nonnegative and values.high > 0:
            return None
        # A factor below 0 is -1 times its size, which moves the other way.
        size = 1 if values.is_nonnegative else -1
        sign *= size
        own = direction(factor, domain)
        directions.add(own if own is None else size * own)
    common = _common(directions)
    return None if common is None else sign * common


def _direction_of_power(expr: sp.Pow, domain: Domain) -> int | None:
    base, exponent = expr.args
    if exponent.is_number:
        own = direction(base, domain)
        if own is None or not interval(base, domain).is_nonnegative:
            return None
        return own if exponent.is_positive else -own
    own = direction(exponent, domain)
    if own is None or not base.is_number or not base.is_positive:
        return None
    return own if (base - 1).is_nonnegative else -own


def _position(expr: sp.Basic, domain: Domain) -> tuple[sp.Expr, sp.Basic, int, int] | None:
    """(core, expr in t, first, last): the integer that moves an expression, and its range."""
    if expr.free_symbols != {t}:
        return None
    steps = domain.interval(t)
    if not isinstance(steps.low, Fraction) or not isinstance(steps.high, Fraction):
        return None
    first, last = math.ceil(steps.low), math.floor(steps.high)
    clamp = _last_move(expr)
    last = last if clamp is None else max(first, min(last, clamp))
    period = _period(expr)
    if period is None or last - first < period:
        return t, expr, first, last
    if period > _LONGEST_PERIOD:
        return None
    return FloorMod(t, sp.Integer(period)), expr, 0, period - 1


def _last_move(expr: sp.Basic) -> int | None:
    """The step from which on an expression stays, if the step is met in only ``Min(step, n)``."""
    clamps = [clamp for clamp in expr.atoms(sp.Min) if t in clamp.args]
    ends = [arg for clamp in clamps for arg in clamp.args if arg.is_Rational]
    outside = expr.xreplace(dict.fromkeys(clamps, sp.S.Zero))
    if len(ends) < len(clamps) or t in outside.free_symbols:
        return None
    return max((math.ceil(Fraction(int(end.p), int(end.q))) for end in ends), default=None)


def _period(expr: sp.Basic) -> int | None:
    """The number of steps after which an expression repeats, by its structure; None if unknown."""
    if t not in expr.free_symbols:
        return 1
    if isinstance(expr, sp.cos | sp.sin):
        slope = _slope(expr.args[0] / sp.pi)
        # A turn is an angle of 2 pi.
        return None if slope is None else (slope / 2).denominator
    if isinstance(expr, FloorMod) and expr.args[1].is_Rational:
        slope = _slope(expr.args[0])
        return None if slope is None else (slope / Fraction(expr.args[1])).denominator
    if isinstance(expr, FloorDiv) or not expr.args:
        return None
    periods = [_period(arg) for arg in expr.args]
    known = [period for period in periods if period is not None]
    return math.lcm(*known) if len(known) == len(periods) else None


def _slope(expr: sp.Expr) -> Fraction | None:
    """The rational slope of an expression that is linear in the step."""
    slope = expr.expand().coeff(t)
    rest = sp.expand(expr - slope * t)
    if not slope.is_Rational or t in rest.free_symbols:
        return None
    return Fraction(int(slope.p), int(slope.q))


def _runs(
    enclose: Callable[[Domain], sp.Basic | None],
    at: Callable[[sp.Integer], sp.Basic],
    domain: Domain,
    first: int,
    last: int,
    most: int,
    *,
    is_monotone: bool,
) -> Runs | None:
    """The runs of one value; None where there are more than so many, or a value is not known."""
    evaluations = itertools.count(1)

    @functools.cache
    def on(start: int, end: int) -> sp.Basic | None:
        if next(evaluations) > _MOST_INTERVALS:
            raise _UnknownError
        value = enclose(_between(domain, start, end))
        return at(sp.Integer(start)) if value is None and start == end else value

    def at_step(step: int) -> sp.Basic | None:
        return on(step, step)

    try:
        if not is_monotone:
            return _bisected_runs(on, first, last, most)
        if _levels_between(at_step(first), at_step(last)) > most:
            return None
        return _monotone_runs(at_step, first, last, most)
    except (DomainError, _UnknownError):
        return None


class _UnknownError(Exception):
    """There are too many runs, or too many steps would have to be looked at."""


def _bisected_runs(
    on: Callable[[int, int], sp.Basic | None], first: int, last: int, most: int
) -> Runs:
    """The runs, by halving the intervals whose values are not known to be one."""
    runs: Runs = []
    pending = [(first, last)]
    while pending:
        start, end = pending.pop()
        value = on(start, end)
        if value is None:
            middle = (start + end) // 2
            # The later half first: runs are found in order.
            pending += [(middle + 1, end), (start, middle)]
        elif not runs or runs[-1][1] != value:
            runs.append((start, value))
            if len(runs) > most:
                raise _UnknownError
    return runs


def _monotone_runs(at: Callable[[int], sp.Basic | None], first: int, last: int, most: int) -> Runs:
    """The runs of a number that does not turn, each looked for where the ones before it point.

    Lengths of runs that are equal, or grow by a factor, are met at once; others by a bisection from
    there.
    """
    starts = [first]
    while at(starts[-1]) != at(last):
        if len(starts) > most:
            raise _UnknownError
        value, low, high = at(starts[-1]), starts[-1], last
        probe, width = low + _next_length(starts), 1
        while high - low > 1:
            probe = min(max(probe, low + 1), high - 1)
            if at(probe) == value:
                low, probe = probe, probe + width
            else:
                high, probe = probe, probe - width
            # Beyond the doubled width the middle is nearer.
            width = min(2 * width, max(1, (high - low) // 2))
        starts.append(high)
    return [(start, value) for start in starts if (value := at(start)) is not None]


def _next_length(starts: list[int]) -> int:
    """The length of the next run, as the last three starts predict it."""
    lengths = [end - start for start, end in itertools.pairwise(starts[-3:])]
    if len(lengths) < 2:
        return lengths[0] if lengths else 1
    return max(1, round(lengths[1] * lengths[1] / lengths[0]))


def _levels_between(first: sp.Basic | None, last: sp.Basic | None) -> int:
    if isinstance(first, sp.Integer) and isinstance(last, sp.Integer):
        return abs(int(last) - int(first))
    return 1


def _integer(bound: Fraction | float) -> sp.Integer | None:
    is_whole = isinstance(bound, Fraction) and bound.denominator == 1
    return sp.Integer(int(bound)) if is_whole else None


def _truth(kind: type[Relational], difference: Interval) -> sp.Basic | None:
    """Whether ``difference kind 0`` holds for all, or for none, of the numbers of an interval."""
    is_above, is_below = difference.is_positive, difference.is_negative
    if kind in (sp.Eq, sp.Ne):
        return (sp.true if kind is sp.Ne else sp.false) if is_above or is_below else None
    is_greater = kind in (sp.Gt, sp.Ge)
    if is_above:
        return sp.true if is_greater else sp.false
    if is_below:
        return sp.false if is_greater else sp.true
    return None
