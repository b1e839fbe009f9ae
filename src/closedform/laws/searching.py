"""The search for a minimum in a box: Newton's method with exact gradients."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np

from closedform.laws.rates import Values

Objective = Callable[[Values], float]
Gradient = Callable[[Values], Values]

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


def grid_starts(objective: Objective, size: int, count: int = 2) -> list[Values]:
    """Returns the best points of a grid in the unit cube; its middle for many numbers."""
    if size > _MOST_GRID:
        return [np.full(size, 0.5)]
    points = [np.array(point) for point in itertools.product(_GRID, repeat=size)]
    return sorted(points, key=objective)[:count]


def minimize(
    objective: Objective, gradient: Gradient, start: Values, free: Sequence[int]
) -> tuple[Values, float]:
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
        slopes = gradient(point)
        moving = [
            index
            for index in free
            if not (point[index] <= 0 and slopes[index] > 0)
            and not (point[index] >= 1 and slopes[index] < 0)
        ]
        if not moving:
            break
        step = np.zeros_like(point)
        step[moving] = _newton_step(gradient, point, slopes, moving)
        if -slopes @ step <= _FLAT * abs(value):
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


def _newton_step(
    gradient: Gradient, point: Values, slopes: Values, moving: Sequence[int]
) -> Values:
    columns = []
    for index in moving:
        shifted = point.copy()
        spacing = _SPACING if point[index] < 0.5 else -_SPACING
        shifted[index] += spacing
        columns.append((gradient(shifted)[moving] - slopes[moving]) / spacing)
    matrix = np.array(columns)
    curvatures, axes = np.linalg.eigh((matrix + matrix.T) / 2)
    sizes = np.maximum(np.abs(curvatures), 1e-9 * max(float(np.max(np.abs(curvatures))), 1e-300))
    step: Values = -axes @ ((axes.T @ slopes[moving]) / sizes)
    return step
