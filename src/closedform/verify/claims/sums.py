"""Sums of a schedule over many steps, segment by segment.

On a segment the value is a combination of powers of t, of ``a**t`` and of ``cos(w*t + b)``. Each
has a function F with F(t + 1) - F(t) = f(t), so its sum from t = m to n - 1 is F(n) - F(m):

- powers: polynomials, which are fitted to their first values,
- ``a**t``: ``a**t / (a - 1)``,
- ``cos(w*t + b)``: ``sin(w*t + b - w/2) / (2*sin(w/2))``, as the difference of two sines is.

That F fits f is a goal of its own, for all steps of the segment, but for cosines, where it is the
identity ``sin(x + w/2) - sin(x - w/2) = 2*cos(x)*sin(w/2)``.
"""

from __future__ import annotations

import sympy as sp
from sympy.simplify.fu import TR8

from closedform.language import Schedule, t
from closedform.verify.claims.core import Goal
from closedform.verify.claims.reading import CLOCK, Reading, read_schedule
from closedform.verify.tactics.real_line import TIME, as_choices, real_cells
from closedform.verify.terms import build
from closedform.verify.terms.sympy_io import term, to_sympy
from closedform.verify.terms.tree import Term, symbols

_MOST_SEGMENTS = 200
_DEGREE = 8


def sum_goals(reading: Reading, steps: int, wanted: Term) -> list[Goal] | str:
    """Returns the goals that the values add up to a number; a text of why where there are none.

    Args:
        reading: The schedule.
        steps: How many steps.
        wanted: The sum.
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
        whole = sp.Add(*(part for part, _ in parts))
        text = f"from step {first} on the value is {whole}"
        goals.append(Goal(text, build.equal(value, term(whole)), inside, is_sufficient=True))
        for part, antidifference in parts:
            is_cosine = part.has(sp.cos)
            if not is_cosine:
                grown = term(antidifference.subs(t, t + 1) - antidifference)
                text = f"{antidifference} grows by {part} a step"
                goals.append(Goal(text, build.equal(grown, term(part)), inside, is_sufficient=True))
            dividend, divisor = antidifference, sp.Integer(1)
            if is_cosine:
                divisor = _divisor(part)
                dividend = antidifference * divisor
            change = dividend.subs(t, end) - dividend.subs(t, first)
            ends.setdefault(divisor, []).append(change)
    goals.append(_total(ends, wanted))
    return goals


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
        total += sp.Add(*(f.subs(t, end) - f.subs(t, first) for _, f in parts))
    return total


def _total(ends: dict[sp.Expr, list[sp.Expr]], wanted: Term) -> Goal:
    """The goal that the parts of a sum add up; without a division where one divisor is irrational.

    Sums of cosines of rational numbers of turns are then compared without quotients of them.
    """
    sums = {divisor: term(sp.Add(*parts)) for divisor, parts in ends.items()}
    found = build.add(*(build.divide(part, term(by)) for by, part in sums.items()), build.ZERO)
    shown = (("it", found),)
    irrational = [divisor for divisor in sums if divisor != 1]
    statement = build.equal(found, wanted)
    if len(irrational) == 1:
        (divisor,) = irrational
        rest = build.subtract(wanted, sums.get(sp.Integer(1), build.ZERO))
        statement = build.equal(sums[divisor], build.multiply(rest, term(divisor)))
    return Goal("the sum is this one", statement, shown=shown)


def _segments(reading: Reading, steps: int) -> list[tuple[int, int, Term]] | None:
    """The first step, the end and the value in ``t`` of each segment of the steps."""
    root = build.substitute(reading.value, {CLOCK: TIME})
    if reading.schedule.open or set(symbols(root)) - {"t"}:
        return None
    found = []
    for cell in real_cells(as_choices(root)):
        end = steps if cell.last is None else min(cell.last + 1, steps)
        if cell.first < end:
            found.append((cell.first, end, build.substitute(cell.value, {TIME: CLOCK})))
    return found if len(found) <= _MOST_SEGMENTS else None


def _parts(value: sp.Expr) -> list[tuple[sp.Expr, sp.Expr]] | None:
    """Parts of a value with their antidifferences; None where one has none here.

    Products of cosines are written as sums of cosines.
    """
    found = []
    for part in sp.Add.make_args(sp.expand(TR8(sp.expand(value)))):
        antidifference = _antidifference(part)
        if antidifference is None:
            return None
        found.append((part, antidifference))
    return found


def _antidifference(part: sp.Expr) -> sp.Expr | None:
    if not part.has(t):
        return part * t
    factor, rest = part.as_independent(t, as_Add=False)
    if rest.is_polynomial(t):
        found = _of_polynomial(sp.Poly(rest, t))
    elif isinstance(rest, sp.cos):
        found = _of_cosine(rest.args[0])
    else:
        found = _of_exponential(rest)
    return None if found is None else factor * found


def _of_polynomial(poly: sp.Poly) -> sp.Expr | None:
    """The polynomial of the sums 0, f(0), f(0) + f(1), …, which is one of a degree more."""
    if poly.degree() > _DEGREE:
        return None
    sums = [sp.Integer(0)]
    for step in range(poly.degree() + 1):
        sums.append(sums[-1] + poly.eval(step))
    return sp.expand(sp.interpolate(list(enumerate(sums)), t))


def _divisor(part: sp.Expr) -> sp.Expr:
    """The divisor ``2*sin(w/2)`` of the antidifference of a cosine, which is above 0."""
    (cosine,) = part.atoms(sp.cos)
    half = abs(sp.expand(cosine.args[0]).coeff(t, 1)) / 2
    return 2 * sp.cos(half - sp.pi / 2)


def _of_cosine(angle: sp.Expr) -> sp.Expr | None:
    if not angle.is_polynomial(t) or sp.degree(angle, t) != 1:
        return None
    slope = sp.expand(angle).coeff(t, 1)
    if (slope / (2 * sp.pi)).is_integer is not False:
        return None
    if slope < 0:
        return _of_cosine(-angle)
    half = slope / 2
    return sp.cos(angle - half - sp.pi / 2) / (2 * sp.cos(half - sp.pi / 2))


def _of_exponential(rest: sp.Expr) -> sp.Expr | None:
    if not isinstance(rest, sp.Pow | sp.exp) or rest.as_base_exp()[0].has(t):
        return None
    ratio = sp.simplify(rest.subs(t, t + 1) / rest)
    if ratio.has(t) or ratio == 1:
        return None
    return rest / (ratio - 1)
