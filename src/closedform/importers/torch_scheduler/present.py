"""Schedules that go on from the rate that a param group has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import sympy as sp

from closedform.errors import TraceError
from closedform.importers.python.join import ValueRange, join_cells
from closedform.importers.python.place import UserValue
from closedform.importers.python.prover import Prover
from closedform.importers.recurrence import closed_form
from closedform.importers.torch_scheduler.groups import TOLERANCE, field_of
from closedform.importers.torch_scheduler.methods import PREVIOUS
from closedform.importers.torch_scheduler.steps import NEXT_STEPS, first_difference, next_rates
from closedform.language import Schedule, exact_number, t

_MOST_DENOMINATOR = 1000
"""Of a rate over that of the schedule: what an edit usually multiplies it with."""


@dataclass(frozen=True, slots=True)
class Present:
    """The present state of one param group.

    Attributes:
        prover: What decides comparisons.
        index: The index of the group.
    """

    prover: Prover
    index: int

    def group(self, scheduler: UserValue) -> dict[str, Any]:
        """Returns the param group."""
        groups: list[dict[str, Any]] = scheduler.optimizer.param_groups
        return groups[self.index]

    def rate(self, scheduler: UserValue) -> float:
        """Returns the rate that the group has."""
        return float(self.group(scheduler)[field_of(scheduler)])

    def agrees(self, schedule: Schedule, step: int, rate: float) -> bool:
        """Returns whether a schedule has the rate of the group at a step, but for rounding."""
        value = self.prover.value(schedule.bound, step)
        return value is not None and abs(value - rate) <= TOLERANCE * max(abs(value), abs(rate))

    def exact_rate(self, schedule: Schedule, step: int, rate: float) -> sp.Expr:
        """Returns the rate that a float is: a simple multiple of the schedule's, or its decimal."""
        value = self.prover.value(schedule.bound, step)
        if value:
            factor = Fraction(rate / value).limit_denominator(_MOST_DENOMINATOR)
            if factor and abs(float(factor) * value - rate) <= TOLERANCE * abs(rate):
                ratio = sp.Rational(factor.numerator, factor.denominator)
                return ratio * _at(schedule, step)
        return exact_number(rate, "lr")

    def from_present(self, scheduler: UserValue, schedule: Schedule) -> Schedule:
        """Returns a function of the step, but for the present step where the rate was edited."""
        step = getattr(scheduler, "last_epoch", None)
        if not isinstance(step, int) or step < 0:
            return schedule
        rate = self.rate(scheduler)
        if self.agrees(schedule, step, rate):
            return schedule
        present = (exact_number(rate, "lr"), sp.Eq(t, step))
        return Schedule(sp.Piecewise(present, (schedule.bound, True)), name=schedule.name)

    def continuation(
        self, scheduler: UserValue, candidates: Sequence[Schedule], cells: Sequence[ValueRange]
    ) -> Schedule:
        """Returns the schedule of a recurrence that goes on from the rate that the group has.

        A recurrence ``a(t) * before + b(t)`` has the solutions ``p(t) + c * (q(t) - p(t))`` for two
        solutions p and q; one of them is often a constant. Each is proved by induction from the
        present step on.
        """
        step, rate = scheduler.last_epoch, self.rate(scheduler)
        later = join_cells(cells).xreplace({t: t + step})

        rates = dict(enumerate(next_rates(scheduler, NEXT_STEPS).of_group(self.index), step))

        def is_solution(candidate: Schedule, exact: sp.Expr) -> bool:
            # Most candidates are not, which a few values show and a proof takes seconds to.
            if first_difference(candidate, rates, self.prover) is not None:
                return False
            expr = candidate.bound.xreplace({t: t + step})
            return self.prover.follows(expr, exact, PREVIOUS, later) is True

        for base in candidates:
            exact = self.exact_rate(base, step, rate)
            for candidate in _solutions(scheduler, base, step, exact):
                if is_solution(candidate, exact):
                    return candidate
        exact = exact_number(rate, "lr")
        solution = _from_there(cells, step, exact, type(scheduler).__name__)
        if solution is not None and is_solution(solution, exact):
            return solution
        raise self.no_continuation(scheduler, next(iter(candidates), None), step, rate)

    def no_continuation(
        self, scheduler: UserValue, ideal: Schedule | None, step: int, rate: float
    ) -> TraceError:
        """Returns the error of a rate from which no closed form goes on."""
        value = None if ideal is None else self.prover.value(ideal.bound, step)
        ideal_text = "" if value is None else f", and that from the initial rate on is {value!r}"
        return TraceError(
            f"at step {step} the rate is {rate!r}{ideal_text}: the values that follow have no "
            "known closed form",
            where=f"{type(scheduler).__name__}, param group {self.index}",
            hint="import the scheduler before its first step, or set the rate of the group to the "
            "value of the schedule",
        )


def scale_to(schedule: Schedule, step: int, rate: sp.Expr, level: sp.Expr) -> Schedule | None:
    """Returns the schedule that has a rate at a step: its distance from a level is multiplied."""
    distance = _at(schedule, step) - level
    if distance.evalf() == 0:
        return None
    expr = level + (rate - level) / distance * (schedule.bound - level)
    return Schedule(expr, name=schedule.name)


def _solutions(
    scheduler: UserValue, base: Schedule, step: int, rate: sp.Expr
) -> Iterator[Schedule]:
    """Schedules that have a rate at a step, and may follow the recurrence of a base."""
    yield base
    least = getattr(scheduler, "eta_min", 0)
    levels = dict.fromkeys((sp.Integer(0), exact_number(least, "eta_min")))
    for level in levels:
        candidate = scale_to(base, step, rate, level)
        if candidate is not None:
            yield candidate
            if hasattr(scheduler, "T_max"):
                yield _until_bottom(candidate, base, step, int(scheduler.T_max))
    yield Schedule(base.bound + rate - _at(base, step), name=base.name)


def _until_bottom(before: Schedule, base: Schedule, step: int, half: int) -> Schedule:
    """A schedule up to the next bottom of a cosine, from which torch adds ``base_lr``."""
    bottom = half * (2 * ((step + half) // (2 * half)) + 1)
    bottom = bottom if bottom >= step else bottom + 2 * half
    return Schedule(sp.Piecewise((before.bound, t <= bottom), (base.bound, True)), name=base.name)


def _from_there(
    cells: Sequence[ValueRange], step: int, rate: sp.Expr, name: str
) -> Schedule | None:
    """The closed form of a recurrence that begins with a rate at a step; constant before it."""
    later = [
        ValueRange(
            max(cell.first - step, 1),
            None if cell.end is None else cell.end - step,
            None if cell.value is None else cell.value.xreplace({t: t + step}),
        )
        for cell in cells
        if cell.end is None or cell.end > step + 1
    ]
    formula = closed_form(later, rate, PREVIOUS)
    if formula is None:
        return None
    expr = formula.xreplace({t: t - step})
    return Schedule(sp.Piecewise((rate, t < step), (expr, True)), name=name)


def _at(schedule: Schedule, step: int) -> sp.Expr:
    """The value at a step, cosines as they are: SymPy writes some with nested roots."""
    cosines = {
        node: node.func(node.args[0].xreplace({t: sp.Integer(step)}), evaluate=False)
        for node in schedule.bound.atoms(sp.cos, sp.sin)
    }
    value: sp.Expr = schedule.bound.xreplace(cosines).xreplace({t: sp.Integer(step)})
    return value


def from_position(scheduler: UserValue, schedule: Schedule) -> Schedule:
    """Returns warm restarts that go on from the place in the cycle that the scheduler counts.

    Built again with ``last_epoch``, torch counts ``T_cur`` in cycles of ``T_0``.
    """
    step, place, length = scheduler.last_epoch, scheduler.T_cur, scheduler.T_i
    first, growth = scheduler.T_0, scheduler.T_mult
    if not all(isinstance(number, int) for number in (step, place, length, first, growth)):
        return schedule
    start, cycle = 0, first
    while growth > 1 and cycle < length:
        start, cycle = start + cycle, cycle * growth
    if cycle != length or not 0 <= place < length or start + place == step:
        return schedule
    later_expr = schedule.bound.xreplace({t: t + (start + place - step)})
    expr = sp.Piecewise((schedule.bound, t < step), (later_expr, True))
    return Schedule(expr, name=schedule.name)
