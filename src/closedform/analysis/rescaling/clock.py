"""The clock of a rescaled run: which update of the old run a new one stands for."""

from __future__ import annotations

from dataclasses import dataclass

import sympy as sp

from closedform.errors import DomainError
from closedform.language import Schedule, t
from closedform.language.exact import value_at

_DIGITS = 50
_NEAR = sp.Float("1e-40", _DIGITS)


def between_updates(schedule: Schedule) -> sp.Expr:
    """Returns the expression of a schedule for a clock that also stands between two updates.

    ``t < 9`` and ``t <= 8`` are one condition for updates, but not at 8.5. A branch ends where it
    and the next one have one value, if it has an update at which they do, so that the curve does
    not jump between updates.

    Example:
        >>> late = Schedule(sp.Piecewise((t / 8, t < 9), (2 - t / 8, True)))
        >>> between_updates(late)
        Piecewise((t/8, t < 8), (2 - t/8, True))
    """

    def mend(*branches: tuple[sp.Expr, sp.Basic]) -> sp.Expr:
        pairs = [(branch[0], branch[1]) for branch in branches]
        for index, (value, condition) in enumerate(pairs[:-1]):
            end = _continuous_end(value, pairs[index + 1][0], condition)
            if end is not None:
                pairs[index] = (value, sp.Lt(t, end))
        return sp.Piecewise(*pairs)

    return schedule.bound.replace(sp.Piecewise, mend)


def _continuous_end(value: sp.Expr, following: sp.Expr, condition: sp.Basic) -> sp.Expr | None:
    """The update before or after the end of a branch at which it has the value of the next one."""
    if not isinstance(condition, sp.Lt | sp.Le) or condition.lhs != t:
        return None
    end = condition.rhs
    if not end.is_Rational or _meet(value, following, end):
        return None
    last = sp.ceiling(end) - 1 if isinstance(condition, sp.Lt) else sp.floor(end)
    return next((step for step in (last + 1, last) if _meet(value, following, step)), None)


def _meet(value: sp.Expr, following: sp.Expr, time: sp.Expr) -> bool:
    try:
        numbers = [value_at(part, {t: time}).evalf(_DIGITS) for part in (value, following)]
    except DomainError:
        return False
    gap = abs(numbers[0] - numbers[1])
    return bool(sp.Le(gap, _NEAR * sp.Max(1, abs(numbers[0]))))


def substitute_clock(formula: sp.Expr, time: sp.Expr) -> sp.Expr:
    """Returns a formula at another time, an expression in ``t``.

    Example:
        >>> substitute_clock(sp.cos(sp.pi * sp.Min(30, t) / 30), 4 * t)
        cos(pi*Min(15, 2*t)/15)
    """
    # SymPy 1.14 takes n/30 for an integer where n is known to be even (Mul._eval_is_integer), and
    # cos(pi*n/30) becomes (-1)**(n/30). The common factor of a minimum is taken out of it before
    # its clock is one of integers.
    if not formula.has(sp.Min, sp.Max):
        return formula.xreplace({t: time})
    moved = formula.xreplace({t: time.xreplace({t: _REAL})})
    return moved.replace(lambda node: isinstance(node, sp.Min | sp.Max), _without_content).xreplace(
        {_REAL: t}
    )


_REAL = sp.Dummy("t", real=True)


def _without_content(extremum: sp.Expr) -> sp.Expr:
    contents = [arg.as_content_primitive()[0] for arg in extremum.args if arg != 0]
    content = sp.gcd_list(contents)
    if content in (0, 1):
        return extremum
    return content * extremum.func(*(sp.expand(arg / content) for arg in extremum.args))


def dilate(schedule: Schedule, fixed: sp.Expr, ratio: sp.Expr) -> sp.Expr:
    """Returns the expression of a schedule whose clock runs ``ratio`` times as fast around a step.

    Example:
        >>> from closedform import schedules
        >>> dilate(schedules.multiplicative(1, 0.5), sp.Integer(3), sp.Integer(2))
        (1/2)**(2*t - 3)
    """
    return substitute_clock(between_updates(schedule), sp.expand(fixed + (t - fixed) * ratio))


def dilated_length(length: sp.Expr, fixed: sp.Expr, ratio: sp.Expr) -> sp.Expr:
    """Returns the length of a schedule after ``dilate``, rounded up to a whole update."""
    return sp.ceiling(fixed + sp.Max(length - fixed, 0) / ratio)


@dataclass(frozen=True, slots=True)
class RescaledClock:
    """The update of the old run that an update of the new run stands for.

    Update t has seen ``t + offset`` updates in tokens. Until the end of the warmup, the tokens
    count, as in the old run; after it, the part of the remaining tokens.

    Attributes:
        batch: The factor of the batch size.
        rest: How many updates of the old run one update takes after the warmup.
        warmup: The end of the warmup in updates of the old run, plus the offset; 0 for none.
        offset: The offset of the clock of the framework.
    """

    batch: sp.Rational
    rest: sp.Rational
    warmup: sp.Rational
    offset: int

    @property
    def is_uniform(self) -> bool:
        """Whether one ratio holds for the whole run."""
        return bool(self.warmup == 0 or self.rest == self.batch)

    @property
    def change(self) -> sp.Expr:
        """The update of the new run at which the warmup ends."""
        return self.warmup / self.batch - self.offset

    @property
    def in_warmup(self) -> sp.Expr:
        """The update of the old run before the change, an expression in ``t``."""
        return sp.expand((t + self.offset) * self.batch - self.offset)

    @property
    def after_warmup(self) -> sp.Expr:
        """The update of the old run from the change on, an expression in ``t``."""
        if self.is_uniform:
            return sp.expand((t + self.offset) * self.rest - self.offset)
        return sp.expand(self.warmup - self.offset + (t - self.change) * self.rest)

    def new_length(self, length: sp.Expr) -> sp.Expr:
        """Returns a length of the old run in updates of the new one, rounded up."""
        position = length + self.offset
        if self.is_uniform:
            return sp.ceiling(position / self.rest - self.offset)
        if position <= self.warmup:
            return sp.ceiling(position / self.batch - self.offset)
        return sp.ceiling(self.change + (position - self.warmup) / self.rest)

    def last_step(self, last: int) -> int:
        """Returns the last update of the new run that stands for none after ``last``."""
        position = sp.Integer(last + self.offset)
        if self.is_uniform:
            return int(sp.floor(position / self.rest - self.offset))
        if position < self.warmup:
            return int(sp.floor(position / self.batch - self.offset))
        return int(sp.floor(self.change + (position - self.warmup) / self.rest))

    def apply(self, schedule: Schedule, factor: sp.Expr = sp.S.One) -> Schedule:
        """Returns a schedule in updates of the new run, times a factor."""
        bound = schedule.bound
        if t not in bound.free_symbols:
            return Schedule(factor * bound, name=schedule.name, length=schedule.length)
        formula = between_updates(schedule)
        expr = substitute_clock(formula, self.after_warmup)
        if not self.is_uniform:
            before = substitute_clock(formula, self.in_warmup)
            expr = sp.Piecewise((before, sp.Lt(t, self.change)), (expr, True))
        last = schedule.last_step
        return Schedule.of(
            factor * expr,
            {},
            name=schedule.name,
            length=None if schedule.length is None else self.new_length(schedule.length),
            domain=() if last is None else (t <= self.last_step(last),),
            ending=schedule.ending,
        )
