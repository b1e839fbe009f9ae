"""``design``: the schedule of a family with the least loss under a law."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import sympy as sp

from closedform.errors import ArgumentError, DomainError
from closedform.ir.types import FloatArray
from closedform.language import Schedule, exact_number
from closedform.language.aliases import Number
from closedform.language.exact import to_float
from closedform.laws.evaluation import Evaluator
from closedform.laws.families import Family, NonIncreasing, open_schedule
from closedform.laws.law import Law
from closedform.laws.predicting import check_warmup, predict
from closedform.laws.published import law_of
from closedform.laws.rates import Rates
from closedform.laws.searching import grid, minimize, minimize_from, newton_step
from closedform.verify.terms.verdict import Status

if TYPE_CHECKING:
    from closedform.laws.optimality import Local, Question

_MOST_MOVES = 200
_SPACING = 1e-6
# 17 digits tell all numbers of float64 apart.
_DIGITS = 17
_SETTLED = 1e-24
"""A part of the loss by which it may be above the minimum: the numbers then have 12 digits."""


@dataclass(frozen=True, slots=True)
class Design:
    """The best schedule of a family.

    Attributes:
        schedule: The schedule.
        values: The free numbers by name.
        loss: The loss that the law predicts for it.
        verdict: PROVED where the schedule is proved to be near a local minimum, UNKNOWN otherwise.
        missed_by: By how much its loss is at most above that minimum, proved; with the verdict
            UNKNOWN what the last step of the search promised, which is an estimate.
        reason: The proof, or the reason why there is none.
    """

    schedule: Schedule
    values: Mapping[str, float]
    loss: float
    verdict: Status
    missed_by: float
    reason: str


def design(
    law: str | Law,
    horizon: int,
    family: Schedule | NonIncreasing,
    parameters: str | Mapping[str, Number] | None = None,
    *,
    bounds: Mapping[str, tuple[Number, Number]] | None = None,
    warmup: int = 0,
) -> Design:
    """Returns the schedule of a family for which a law predicts the least loss.

    Newton's method with exact gradients searches from the best points of a grid. Then the result
    is judged in ball arithmetic: near it is exactly one local minimum, and the loss is above it
    by at most ``missed_by``. An integer is compared with both of its neighbours, each with its best
    other numbers. The minimum is local: a better one elsewhere is not excluded.

    Args:
        law: "multi_power", "momentum", "last_iterate", or a law.
        horizon: The number of updates of the run.
        family: A schedule with open hyperparameters, such as
            ``cosine(3e-4, 0, 1000).unbind("end")`` or ``closedform.laws.power_decay``; or a
            ``closedform.laws.NonIncreasing`` table.
        parameters: As in :func:`~closedform.predict`.
        bounds: The least and the largest value of each open hyperparameter.
        warmup: As in ``predict``.

    Raises:
        UnknownNameError: The law, the fit, or a name in ``bounds`` does not exist.
        ArgumentError: An argument is missing or out of range.
        DomainError: The law has no value in the family.

    Example:
        >>> from closedform.schedules import linear
        >>> best = design(
        ...     "last_iterate",
        ...     400,
        ...     linear(1, 0, 400).unbind("start"),
        ...     "unit",
        ...     bounds={"start": (1e-3, 1)},
        ... )
        >>> print(best.verdict, f"{best.values['start']:.6f} {best.loss:.6f}")
        PROVED 0.049563 0.100630

    Source: section 5 of Luo et al., arXiv 2503.12811, which optimises all rates by Adam.
    """
    from closedform.laws.optimality import Question

    declaration = law_of(law)
    check_warmup(declaration, warmup)
    if isinstance(family, NonIncreasing):
        if family.horizon != horizon:
            raise ArgumentError(
                f"horizon must be that of the family, {family.horizon}, got {horizon}",
                where="design",
            )
        free: Family = family
    elif isinstance(family, Schedule):
        if isinstance(horizon, bool) or not isinstance(horizon, int) or horizon < 1:
            raise ArgumentError(
                f"horizon must be a number of updates, got {horizon!r}", where="design"
            )
        free = open_schedule(family, horizon, bounds or {})
    else:
        raise ArgumentError(
            f"family must be a Schedule or NonIncreasing, got {type(family).__name__}",
            where="design",
        )
    values = declaration.values(parameters)
    search = _Search(Question(declaration, values, free, warmup))
    point, local = search.run()
    schedule = free.schedule(point)
    loss = predict(
        schedule, declaration, {s.name: v for s, v in values.items()}, horizon, warmup=warmup
    )
    verdict, missed_by, reason = search.judge(point, local)
    numbers = {name: to_float(number) for name, number in point.items()}
    return Design(schedule, numbers, loss, verdict, missed_by, reason)


class _Search:
    """The search for the best member of a family, and the proof that it is one."""

    def __init__(self, question: Question) -> None:
        self.question = question
        self.family = question.family
        self.evaluator = Evaluator(question.law, question.warmup)
        self.parameters = {s: to_float(number) for s, number in question.parameters.items()}
        limits = np.array(
            [[to_float(end) for end in self.family.bounds[name]] for name in self.family.names]
        )
        self.low, self.range = limits[:, 0], limits[:, 1] - limits[:, 0]
        self.names = self.family.names
        self.real_names = [name for name in self.names if name not in self.family.integers]
        self.real_positions = [self.names.index(name) for name in self.real_names]
        self.integer_positions = [
            index for index, name in enumerate(self.names) if name in self.family.integers
        ]

    # --- in float64: the numbers as parts of their ranges ---------------------------------------

    def loss(self, part: FloatArray) -> float:
        """Returns the loss; infinity where the law has no value."""
        rates = self.family.rates(self.low + part * self.range)
        if not np.all(np.isfinite(rates) & (rates >= 0)):
            return np.inf
        try:
            return self.evaluator.loss(
                Rates.of(rates, is_exact=False), self.parameters, self.family.horizon
            )
        except DomainError:
            return np.inf

    def gradient(self, part: FloatArray) -> FloatArray:
        """Returns the derivatives of the loss: exact by the rates, whose slopes are differences."""
        values = self.low + part * self.range
        rates = self.family.rates(values)
        by_rates = self.evaluator.rate_gradient(
            Rates.of(rates, is_exact=False), self.parameters, self.family.horizon
        )
        slopes = []
        for index in range(len(part)):
            spacing = np.zeros_like(part)
            # Inward: on the other side a number may be out of its bounds.
            spacing[index] = _SPACING if part[index] < 0.5 else -_SPACING
            shifted = self.family.rates(self.low + (part + spacing) * self.range)
            # The chain rule: the sum over the rates of ∂loss/∂rate · ∂rate/∂x.
            slopes.append(by_rates @ ((shifted - rates) / spacing[index]))
        return np.array(slopes)

    def run(self) -> tuple[dict[str, sp.Expr], Local | None]:
        """Returns the best point, and what is proved of it in its real numbers."""
        starts = self.family.starts or grid(len(self.names))
        part, loss = minimize_from(self.loss, self.gradient, starts)
        if not np.isfinite(loss):
            raise DomainError(
                "the law has no value at any point of the grid",
                where=f"law {self.question.law.name!r}",
                hint="give other bounds",
            )
        if self.integer_positions:
            part = self._move_to_integers(part)
        return self._polish(part)

    def _at_integers(self, part: FloatArray, integers: FloatArray) -> tuple[FloatArray, float]:
        """The best real numbers next to integers."""
        candidate = part.copy()
        positions = self.integer_positions
        candidate[positions] = (integers - self.low[positions]) / self.range[positions]
        if np.any(candidate < -1e-12) or np.any(candidate > 1 + 1e-12):
            return candidate, np.inf
        return minimize(self.loss, self.gradient, candidate, self.real_positions)

    def _move_to_integers(self, part: FloatArray) -> FloatArray:
        """The best integers: moves of one until none lowers the loss."""
        positions = self.integer_positions
        integers = np.round(self.low[positions] + part[positions] * self.range[positions])
        best, loss = self._at_integers(part, integers)
        for _ in range(_MOST_MOVES):
            moves = [integers + sign * unit for unit in np.eye(len(positions)) for sign in (1, -1)]
            trials = [(*self._at_integers(best, move), move) for move in moves]
            candidate, value, move = min(trials, key=lambda trial: trial[1])
            if not value < loss:
                break
            best, loss, integers = candidate, value, move
        return best

    # --- in ball arithmetic: the numbers themselves ---------------------------------------------

    def _exact(self, part: FloatArray) -> dict[str, sp.Expr]:
        """The point in decimal numbers, within the bounds."""
        point: dict[str, sp.Expr] = {}
        for index, name in enumerate(self.names):
            value = float(self.low[index] + part[index] * self.range[index])
            if name in self.family.integers:
                point[name] = sp.Integer(round(value))
            # np.clip gives 0 and 1 themselves: the bound is meant, not a decimal next to it.
            elif part[index] in (0, 1):
                point[name] = self.family.bounds[name][int(part[index])]
            else:
                point[name] = self._decimal(name, value)
        return point

    def _decimal(self, name: str, value: float) -> sp.Expr:
        low, high = self.family.bounds[name]
        return min(max(exact_number(float(f"{value:.{_DIGITS}g}")), low), high)

    def _polish(self, part: FloatArray) -> tuple[dict[str, sp.Expr], Local | None]:
        """The point after steps of Newton's method with derivatives in ball arithmetic."""
        from closedform.laws.optimality import prove_minimum

        point = self._exact(part)
        if not self.question.is_provable(point, self.real_names):
            return point, None
        local = prove_minimum(self.question, point, self.real_names)
        for _ in range(3):
            is_settled = (
                local.missed_by is not None and local.missed_by < abs(local.loss) * _SETTLED
            )
            if is_settled or not local.step:
                break
            candidate = {
                **point,
                **{
                    name: self._decimal(name, to_float(point[name]) + change)
                    for name, change in local.step.items()
                },
            }
            trial = prove_minimum(self.question, candidate, self.real_names)
            if not trial.loss.is_finite() or not trial.loss <= local.loss + abs(local.loss) * 1e-15:
                break
            point, local = candidate, trial
        return point, local

    def judge(self, point: Mapping[str, sp.Expr], local: Local | None) -> tuple[Status, float, str]:
        """Returns the verdict, by how much the minimum is missed at most, and the reason."""
        if local is None or local.missed_by is None:
            reason = "too many free numbers for a proof" if local is None else local.reason
            return Status.UNKNOWN, self._promise(point), f"not proved: {reason}"
        missed_by, reason = local.missed_by, local.reason
        for index in self.integer_positions:
            name = self.names[index]
            low, high = self.family.bounds[name]
            for neighbour in (point[name] - 1, point[name] + 1):
                if not low <= neighbour <= high:
                    continue
                part = self._part(point)
                integers = np.array(
                    [to_float(point[self.names[i]]) for i in self.integer_positions]
                )
                integers[self.integer_positions.index(index)] = to_float(neighbour)
                _, rival = self._polish(self._at_integers(part, integers)[0])
                if rival is None or rival.missed_by is None:
                    reason = f"not proved: {name} = {neighbour} has no proved minimum"
                    return Status.UNKNOWN, float(missed_by), reason
                # `not >`: of balls that overlap neither is the greater one.
                if not rival.loss - rival.missed_by > local.loss - missed_by:
                    reason = f"not proved: {name} = {neighbour} is as good within the bounds"
                    return Status.UNKNOWN, float(missed_by), reason
            reason += f"; the minima at the neighbours of {name} are above it"
        return Status.PROVED, float(missed_by), reason

    def _part(self, point: Mapping[str, sp.Expr]) -> FloatArray:
        values = np.array([to_float(point[name]) for name in self.names])
        part: FloatArray = np.clip((values - self.low) / self.range, 0, 1)
        return part

    def _promise(self, point: Mapping[str, sp.Expr]) -> float:
        """By how much another step of Newton's method promises to lower the loss."""
        return newton_step(self.gradient, self._part(point), self.real_positions)[1]
