"""Sums of a schedule over many steps, segment by segment.

On a segment the value is a combination of powers of t, of ``a**t`` and of ``cos(w*t + b)``. Each
has a function F with F(t + 1) - F(t) = f(t), so its sum from t = m to n - 1 is F(n) - F(m):

- powers: polynomials, which are fitted to their first values,
- ``a**t``: ``a**t / (a - 1)``,
- ``cos(w*t + b)``: ``sin(w*t + b - w/2) / (2*sin(w/2))``, as the difference of two sines is.

That F fits f follows from an equation, which is a goal for all steps of the segment: of a
polynomial that ``F(t + 1) - F(t) = f(t)``, of a power that ``a**(t + 1) = a * a**t``. Of cosines it
is the identity ``sin(x + w/2) - sin(x - w/2) = 2*cos(x)*sin(w/2)``. A cosine that does not depend
on t is a constant, and w is reduced modulo ``2*pi``, so that ``sin(w/2)`` is 0 for no w.

Every divisor is a goal, too: that it is not 0. So is the factor by which both sides of the sum are
multiplied (``_clear_denominator``), without which 0 = 0 would be a proof.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import sympy as sp
from sympy.simplify.fu import TR8

from closedform.language import Schedule, t
from closedform.verify.claims.core import Goal, all_defined
from closedform.verify.claims.reading import ScheduleReading, read_schedule
from closedform.verify.terms import build
from closedform.verify.terms.real_line import TIME, as_choices, real_cells
from closedform.verify.terms.sympy_io import CLOCK, term, to_sympy
from closedform.verify.terms.tree import Term, symbols

_MOST_SEGMENTS = 200
_DEGREE = 8


def sum_goals(reading: ScheduleReading, steps: int, total: Term) -> list[Goal] | str:
    """Returns the goals that the values add up to a number; a text of why where there are none.

    Args:
        reading: The schedule.
        steps: How many steps.
        total: The sum.
    """
    segments = _segments(reading, steps)
    if segments is None:
        return "its segments are not known: a hyperparameter is open, or there are too many"
    goals: list[Goal] = []
    ends: dict[sp.Expr, list[sp.Expr]] = {}  # by divisor
    for first, end, value in segments:
        parts = _parts(to_sympy(value))
        if parts is None:
            return f"no sum is known of the value from step {first} on"
        inside = (
            build.less_equal(build.rational(first), CLOCK),
            build.less(CLOCK, build.rational(end)),
        )
        whole = sp.Add(*(part.value for part in parts))
        text = f"from step {first} on the value is {whole}"
        goals.append(Goal(text, build.equal(value, term(whole)), inside, is_sufficient=True))
        for part in parts:
            if part.equation is not None:
                goals += _growth_goals(part, part.equation, inside)
            change = part.dividend.subs(t, end) - part.dividend.subs(t, first)
            ends.setdefault(part.divisor, []).append(change)
    return [*goals, *_total(ends, total)]


def _growth_goals(part: _Part, equation: _Equation, inside: tuple[Term, ...]) -> list[Goal]:
    """The goals that an antidifference has a value, and grows by the part from step to step."""
    left, right = equation
    statement = build.equal(term(left), term(right))
    goal = Goal(f"{left} is {right}", statement, inside, is_sufficient=True)
    return [*defined_goals(term(part.dividend / part.divisor), inside), goal]


def defined_goals(root: Term, inside: tuple[Term, ...] = ()) -> list[Goal]:
    """Returns the goals that a term of a proof, which the claim does not contain, has a value."""
    return [replace(goal, is_sufficient=True) for goal in all_defined(root, inside)]


def total_of(lr: Schedule, steps: int) -> sp.Expr | None:
    """Returns the sum of the first values of a schedule in closed form; None if none is known."""
    segments = _segments(read_schedule(lr), steps)
    if segments is None:
        return None
    total: sp.Expr = sp.S.Zero
    for first, end, value in segments:
        parts = _parts(to_sympy(value))
        if parts is None:
            return None
        for part in parts:
            antidifference = part.dividend / part.divisor
            total += antidifference.subs(t, end) - antidifference.subs(t, first)
    return total


def _total(ends: dict[sp.Expr, list[sp.Expr]], expected: Term) -> list[Goal]:
    """The goals that the parts of a sum add up; without a division where one divisor is irrational.

    Sums of cosines of rational numbers of turns are then compared without quotients of them.
    """
    sums = {divisor: term(sp.Add(*parts)) for divisor, parts in ends.items()}
    total = build.add(*(build.divide(part, term(by)) for by, part in sums.items()), build.ZERO)
    goal = Goal("the sum is this one", build.equal(total, expected), shown=(("it", total),))
    irrational = [divisor for divisor in sums if divisor != 1]
    if len(irrational) != 1:
        return [*defined_goals(total), goal]
    (divisor,) = irrational
    remainder = build.subtract(expected, sums.get(sp.Integer(1), build.ZERO))
    return _clear_denominator(goal, sums[divisor], remainder, term(divisor))


def _clear_denominator(goal: Goal, dividend: Term, quotient: Term, factor: Term) -> list[Goal]:
    """The goal that ``dividend / factor`` is ``quotient``, multiplied by the factor.

    The two are the same where the factor is not 0, which is a goal, too. A product that differs
    refutes the quotient whatever the factor is.
    """
    nonzero = build.negate(build.equal(factor, build.ZERO))
    product = build.equal(dividend, build.multiply(quotient, factor))
    return [
        Goal(f"{factor} is not 0", nonzero, is_sufficient=True),
        replace(goal, statement=product),
    ]


def _segments(reading: ScheduleReading, steps: int) -> list[tuple[int, int, Term]] | None:
    """The first step, the end and the value in ``t`` of each segment of the steps."""
    root = build.substitute(reading.value, {CLOCK: TIME})
    if reading.schedule.open or set(symbols(root)) - {"t"}:
        return None
    segments = []
    for cell in real_cells(as_choices(root)):
        end = steps if cell.last is None else min(cell.last + 1, steps)
        if cell.first < end:
            segments.append((cell.first, end, build.substitute(cell.value, {TIME: CLOCK})))
    return segments if len(segments) <= _MOST_SEGMENTS else None


_Equation = tuple[sp.Expr, sp.Expr]


@dataclass(frozen=True, slots=True)
class _Part:
    """A summand of a value and its antidifference, ``dividend / divisor``.

    Attributes:
        value: The summand.
        dividend: In t.
        divisor: A number.
        equation: Both sides of the equation, in t, from which it follows that the antidifference
            grows by the value; None where that is an identity.
    """

    value: sp.Expr
    dividend: sp.Expr
    divisor: sp.Expr = sp.S.One
    equation: _Equation | None = None


def _parts(value: sp.Expr) -> list[_Part] | None:
    """Parts of a value with their antidifferences; None where one has none here.

    Products of cosines of t are written as sums of cosines.
    """
    parts = []
    for summand in sp.Add.make_args(sp.expand(value)):
        factor, varying = summand.as_independent(t, as_Add=False)
        for product in sp.Add.make_args(sp.expand(TR8(varying))):
            part = _part(factor * product)
            if part is None:
                return None
            parts.append(part)
    return parts


def _part(value: sp.Expr) -> _Part | None:
    factor, varying = value.as_independent(t, as_Add=False)
    if not value.has(t):
        return _Part(value, value * t)
    if isinstance(varying, sp.cos):
        return _of_cosine(value, factor, varying.args[0])
    if varying.is_polynomial(t):
        return _of_polynomial(value, factor, varying)
    return _of_exponential(value, factor, varying)


def _of_polynomial(value: sp.Expr, factor: sp.Expr, varying: sp.Expr) -> _Part | None:
    """The polynomial of the sums 0, f(0), f(0) + f(1), …, which is one of a degree more."""
    poly = sp.Poly(varying, t)
    if poly.degree() > _DEGREE:
        return None
    sums = [sp.Integer(0)]
    for step in range(poly.degree() + 1):
        sums.append(sums[-1] + poly.eval(step))
    polynomial = sp.expand(sp.interpolate(list(enumerate(sums)), t))
    equation = polynomial.subs(t, t + 1) - polynomial, varying
    return _Part(value, factor * polynomial, equation=equation)


def _of_cosine(value: sp.Expr, factor: sp.Expr, angle: sp.Expr) -> _Part | None:
    """The part ``factor * cos(angle)``, whose angle is a line in t.

    At integers the slope counts modulo ``2*pi``: a multiple of it makes a constant.
    """
    if not angle.is_polynomial(t) or sp.degree(angle, t) != 1:
        return None
    slope, start = (sp.expand(angle).coeff(t, power) for power in (1, 0))
    turns = slope / (2 * sp.pi)
    if turns.is_rational:
        turns -= sp.floor(turns)
        # cos(2 pi n t) is 1 at integers: whole turns are taken off, and the divisor below is not 0.
        slope = 2 * sp.pi * turns
    elif turns.is_rational is None:
        return None
    if slope == 0:
        return _Part(value, factor * sp.cos(start) * t)
    half = slope / 2
    # sin(a (t + 1) + b - a/2) - sin(a t + b - a/2) = 2 sin(a/2) cos(a t + b), with sines as
    # cosines.
    dividend = factor * sp.cos(slope * t + start - half - sp.pi / 2)
    return _Part(value, dividend, 2 * sp.cos(half - sp.pi / 2))


def _of_exponential(value: sp.Expr, factor: sp.Expr, varying: sp.Expr) -> _Part | None:
    if not isinstance(varying, sp.Pow | sp.exp) or varying.as_base_exp()[0].has(t):
        return None
    # The sum of r^t is r^t / (r - 1), for a constant ratio r that is not 1.
    following = varying.subs(t, t + 1)
    ratio = sp.simplify(following / varying)
    if ratio.has(t) or ratio == 1:
        return None
    equation = following, ratio * varying
    return _Part(value, factor * varying / (ratio - 1), equation=equation)
