"""The search for a minimum in a box: Newton's method with exact gradients."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np

from closedform.ir.types import FloatArray

Objective = Callable[[FloatArray], float]
Gradient = Callable[[FloatArray], FloatArray]

_ITERATIONS = 100
_SPACING = 1e-4
"""Differences of gradients: their error is that of a float over it, 1e-11, or it times the third
derivative."""

_FLAT = 1e-15
"""The relative decrease that a step must promise."""

_GRID = (0.02, 0.15, 0.4, 0.7, 0.98)
"""Parts of the range of each number at which a search may begin."""

_MOST_GRID = 3
"""Numbers whose grid is searched: 125 points."""


_STARTS = 2
"""The best points at which a search begins."""


def grid(size: int) -> list[FloatArray]:
    """Returns points of a grid in the unit cube; its middle for many numbers."""
    if size > _MOST_GRID:
        return [np.full(size, 0.5)]
    return [np.array(point) for point in itertools.product(_GRID, repeat=size)]


def minimize_from(
    objective: Objective, gradient: Gradient, starts: Sequence[FloatArray]
) -> tuple[FloatArray, float]:
    """Returns the best of the minima that the best starts lead to, and its value."""
    results = [
        minimize(objective, gradient, start, range(len(start)))
        for start in sorted(starts, key=objective)[:_STARTS]
    ]
    return min(results, key=lambda result: result[1])


def minimize(
    objective: Objective, gradient: Gradient, start: FloatArray, free: Sequence[int]
) -> tuple[FloatArray, float]:
    """Returns a local minimum in the unit cube, and its value.

    Each step is Newton's in the numbers that are not at a bound that the gradient points to, with
    the absolute values of the curvatures, so that it goes down; it is halved until it does.

    Args:
        objective: The function; infinity where it has no value.
        gradient: Its derivatives.
        start: Where the search begins.
        free: The positions of the numbers that vary.
    """
    point, value = start, objective(start)
    for _ in range(_ITERATIONS):
        step, promise = newton_step(gradient, point, free)
        if promise <= _FLAT * abs(value):
            break
        length, is_lower = 1.0, False
        while length > 1e-9:
            candidate = np.clip(point + length * step, 0, 1)
            trial = objective(candidate)
            if trial < value:
                point, value, is_lower = candidate, trial, True
                break
            length /= 2
        if not is_lower:
            break
    return point, value


def newton_step(
    gradient: Gradient, point: FloatArray, free: Sequence[int]
) -> tuple[FloatArray, float]:
    """Returns a step of Newton's method, and by how much it promises to lower the value."""
    slopes = gradient(point)
    step = np.zeros_like(point)
    moving = [
        index
        for index in free
        if not (point[index] <= 0 and slopes[index] > 0)
        and not (point[index] >= 1 and slopes[index] < 0)
    ]
    if not moving:
        return step, 0.0
    columns = []
    for index in moving:
        shifted = point.copy()
        # Inward: the function may have no value out of the cube.
        spacing = _SPACING if point[index] < 0.5 else -_SPACING
        shifted[index] += spacing
        columns.append((gradient(shifted)[moving] - slopes[moving]) / spacing)
    matrix = np.array(columns)
    # eigh reads one triangle only; the differences are symmetric up to their errors.
    curvatures, axes = np.linalg.eigh((matrix + matrix.T) / 2)
    # A curvature near 0 would make the step infinite.
    sizes = np.maximum(np.abs(curvatures), 1e-9 * max(float(np.max(np.abs(curvatures))), 1e-300))
    step[moving] = -axes @ ((axes.T @ slopes[moving]) / sizes)
    # The decrease of the quadratic model along the step, gᵀH⁻¹g/2.
    return step, float(-slopes @ step) / 2
