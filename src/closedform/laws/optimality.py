"""Proofs that a point is a local minimum of a law over a family of schedules.

In a box around the point the curvatures of the loss are enclosed in ball arithmetic. Where they are
positive definite and a step of interval Newton stays inside of the box, the box has exactly one
minimum, and the loss at the point is above it by at most the product of the slopes and that step.
A number at a bound is at its minimum where the slope points to the bound in the whole box.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy as sp
from flint import arb, arb_mat, arb_series, fmpq

from closedform.laws.families import Family
from closedform.laws.law import Law
from closedform.laws.series import FUNCTIONS, ball, coefficient, loss_series, precision

_BITS = 128
_MOST_WORK = 2_000_000
"""Updates times lines along which a proof evaluates the loss: about a minute."""

Point = Mapping[str, sp.Expr]
"""Values of the free numbers."""


@dataclass(frozen=True, slots=True)
class Local:
    """A proof about the loss near a point, or the reason why there is none.

    Attributes:
        loss: A ball around the loss at the point.
        missed_by: By how much the loss at the point is at most above the minimum of the box; None
            where nothing is proved.
        reason: The proof, or the reason why there is none.
        step: The step of Newton's method at the point, by name: a better point is there.
    """

    loss: arb
    missed_by: arb | None
    reason: str
    step: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Question:
    """The loss of a law as a function of the free numbers of a family."""

    law: Law
    parameters: Mapping[sp.Symbol, sp.Expr]
    family: Family
    warmup: int

    def at_bound(self, point: Point, names: Sequence[str]) -> dict[str, int]:
        """Returns the numbers at a bound: -1 for the lower one, 1 for the upper one."""
        bounds = self.family.bounds
        return {
            name: -1 if point[name] == bounds[name][0] else 1
            for name in names
            if point[name] in bounds[name]
        }

    def is_provable(self, point: Point, names: Sequence[str]) -> bool:
        """Returns whether a proof takes no more than the work that it may."""
        inner = len(names) - len(self.at_bound(point, names))
        return 2 * self.family.horizon * (len(names) + inner * (inner - 1) // 2) <= _MOST_WORK

    def expand(
        self, point: Point, radii: Mapping[str, arb], names: Sequence[str], inner: Sequence[int]
    ) -> tuple[list[arb], arb_mat]:
        """Returns balls of the slopes in a box, and of the curvatures in some of the numbers."""
        lines = [self.line(point, radii, (name,)) for name in names]
        matrix = arb_mat(len(inner), len(inner))
        for row, index in enumerate(inner):
            matrix[row, row] = 2 * coefficient(lines[index], 2)
            for column in range(row):
                line = self.line(point, radii, (names[index], names[inner[column]]))
                diagonal = matrix[row, row] + matrix[column, column]
                matrix[row, column] = (2 * coefficient(line, 2) - diagonal) / 2
                matrix[column, row] = matrix[row, column]
        return [coefficient(line, 1) for line in lines], matrix

    def line(self, point: Point, radii: Mapping[str, arb], direction: Sequence[str]) -> Any:
        """The loss along a direction, from the box."""
        with precision(_BITS, 3 if direction else 1):
            values = []
            for name in self.family.names:
                center = ball(point[name])
                if name in radii:
                    center += arb(0, 1) * radii[name]
                values.append(arb_series([center, 1], 3) if name in direction else center)
            rates = self.family.series(values, FUNCTIONS, ball)
            parameters = {symbol: ball(number) for symbol, number in self.parameters.items()}
            return loss_series(self.law, parameters, rates, self.warmup)


def prove_minimum(question: Question, point: Point, real_names: Sequence[str]) -> Local:
    """Returns what is proved of the loss near a point, in the numbers that are real.

    Args:
        question: The loss.
        point: The point.
        real_names: The free numbers that vary; the others are as in the point.
    """
    with precision(_BITS, 3):
        return _prove(question, point, real_names)


def _prove(question: Question, point: Point, real_names: Sequence[str]) -> Local:
    loss = coefficient(question.line(point, {}, ()), 0)
    bounds, at_bound = question.family.bounds, question.at_bound(point, real_names)
    inner = [index for index, name in enumerate(real_names) if name not in at_bound]
    slopes, matrix = question.expand(point, {}, real_names, inner)
    if not loss.is_finite() or not all(slope.is_finite() for slope in slopes):
        return Local(loss, None, "the loss has no derivatives there", {})
    try:
        step = _solve(matrix, [slopes[index] for index in inner])
    except ZeroDivisionError:
        return Local(loss, None, "the curvatures are singular", {})
    better = {real_names[i]: float(change.mid()) for i, change in zip(inner, step, strict=True)}
    # The box has a width even where the step is 0.
    radii = {name: ball(bounds[name][1] - bounds[name][0]) * fmpq(1, 10**12) for name in real_names}
    for index, change in zip(inner, step, strict=True):
        # The step in the box differs little from that at the point: twice as wide is wide enough.
        radii[real_names[index]] += 2 * abs(change).upper()
    slopes_in_box, curvatures = question.expand(point, radii, real_names, inner)
    for index, name in enumerate(real_names):
        # The loss rises inward: a slope above 0 at the lower bound, below 0 at the upper one.
        if name in at_bound and not slopes_in_box[index] * at_bound[name] < 0:
            reason = f"the slope by {name} at its bound has no proved sign"
            return Local(loss, None, reason, better)
    if not _is_positive_definite(curvatures):
        return Local(loss, None, "the curvatures are not proved positive", better)
    # Interval Newton: if x - H(box)⁻¹g(x) is in the box, the gradient has exactly one zero there.
    newton = _solve(curvatures, [slopes[index] for index in inner])
    for index, change in zip(inner, newton, strict=True):
        if not abs(change) < radii[real_names[index]]:
            return Local(loss, None, "a step of Newton's method leaves the box", better)
    # The loss is convex in the box, so f(x) - f(x*) is at most |g(x)·(x - x*)|.
    missed_by = sum(
        (abs(slopes[index]) * abs(change) for index, change in zip(inner, newton, strict=True)),
        arb(0),
    )
    text = "a local minimum: positive curvatures, and interval Newton stays in the box"
    if at_bound:
        count = ", ".join(at_bound) if len(at_bound) <= 3 else f"{len(at_bound)} numbers"
        text += f"; the slopes by {count} point to their bounds"
    return Local(loss, arb(missed_by.upper()), text, better)


def _solve(matrix: arb_mat, slopes: Sequence[arb]) -> list[arb]:
    """The step of Newton's method, -H^-1 g."""
    size = len(slopes)
    if not size:
        return []
    solution = matrix.solve(arb_mat(size, 1, [-slope for slope in slopes]))
    return [solution[row, 0] for row in range(size)]


def _is_positive_definite(matrix: arb_mat) -> bool:
    """Whether all leading minors are positive: Sylvester's criterion."""
    for size in range(1, matrix.nrows() + 1):
        entries = [matrix[row, column] for row in range(size) for column in range(size)]
        if not arb_mat(size, size, entries).det() > 0:
            return False
    return True
