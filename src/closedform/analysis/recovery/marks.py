"""The steps at which a logged curve changes its form: kinks, jumps, ends of flat stretches."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from closedform.ir.types import FloatArray


@dataclass(frozen=True, slots=True)
class Points:
    """Logged values.

    Attributes:
        steps: The steps, increasing.
        values: The values.
        errors: How far the true values may be from them.
    """

    steps: FloatArray
    values: FloatArray
    errors: FloatArray

    def select(self, selection: NDArray[np.int64] | NDArray[np.bool_]) -> Points:
        """Returns some of the points."""
        return Points(self.steps[selection], self.values[selection], self.errors[selection])


def flat_runs(points: Points) -> list[tuple[int, int]]:
    """Returns the stretches of constant values: the positions of their first and last point."""
    v, e = points.values, points.errors
    is_flat = np.abs(np.diff(v)) <= e[1:] + e[:-1]
    # Much narrower than the precision: a slow decay, too, changes less than it from point to point.
    is_flat &= np.abs(np.diff(v)) <= 0.02 * (e[1:] + e[:-1])
    edges = np.flatnonzero(np.diff(np.concatenate([[False], is_flat, [False]]).astype(int)))
    return [(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True) if b > a]


def jumps(points: Points, ratio: float = 4.0) -> list[int]:
    """Returns the positions of the points after a jump.

    Args:
        points: The points.
        ratio: Least slope at a jump, in units of those around it.
    """
    t, v, e = points.steps, points.values, points.errors
    if len(t) < 4:
        return []
    slope = np.diff(v) / np.diff(t)
    noise = (e[1:] + e[:-1]) / np.diff(t)
    before = np.concatenate([[np.inf], np.abs(slope[:-1])])
    after = np.concatenate([np.abs(slope[1:]), [np.inf]])
    # The slope at either end has one neighbour, the others the steeper of two.
    around = np.where(
        np.isinf(before),
        after,
        np.where(np.isinf(after), before, np.maximum(before, after)),
    )
    places = np.flatnonzero(np.abs(slope) > ratio * around + 4 * noise)
    return [int(index) + 1 for index in places]


def linear_prefix(points: Points) -> int:
    """Returns the number of first points that one line can pass through."""
    t, v, e = points.steps, points.values, points.errors
    if len(t) < 3:
        return len(t)
    # Slopes of lines through each pair of intervals with the first point: a narrowing cone.
    gap = t[1:] - t[0]
    low = (v[1:] - e[1:] - v[0] - e[0]) / gap
    high = (v[1:] + e[1:] - v[0] + e[0]) / gap
    empty = np.maximum.accumulate(low) > np.minimum.accumulate(high)
    return int(np.argmax(empty)) + 1 if empty.any() else len(t)


_CLEAR = 30.0
"""Change of slope of a clear kink, in units of that around it."""


def kinks(points: Points, most: int = 6) -> list[int]:
    """Returns the positions of points at which the slope changes more than around them."""
    scores: dict[int, float] = {}
    count = len(points.steps)
    for stride in (1, 3, 10, 30):
        if count // stride < 6:
            break
        index = np.arange(0, count, stride)
        part = points.select(index)
        t, v, e = part.steps, part.values, part.errors
        slope = np.diff(v) / np.diff(t)
        noise = (e[1:] + e[:-1]) / np.diff(t)
        change = np.abs(np.diff(slope))
        floor = noise[1:] + noise[:-1]
        near = np.full(len(change), np.inf)
        # Two points away: the neighbours of a kink share its change of slope.
        near[2:] = np.minimum(near[2:], change[:-2])
        near[:-2] = np.minimum(near[:-2], change[2:])
        score = change / (floor + near)
        # Of kinks that are clear the first ones: kinks of a curve with a period are all alike.
        finer = list(scores)
        for place in np.argsort(-np.minimum(score, _CLEAR), kind="stable")[:most]:
            position = int(index[place + 1])
            # A kink between two points of a wide stride is one that a finer stride has found.
            if score[place] > 2 and all(
                abs(position - finer_position) > stride for finer_position in finer
            ):
                scores[position] = min(float(score[place]), _CLEAR)
    return sorted(scores, key=lambda place: (-scores[place], place))[: 2 * most]


def extremes(points: Points) -> list[int]:
    """Returns the positions of the first and last of the largest and smallest values."""
    v = points.values
    return [
        int(np.argmax(v)),
        len(v) - 1 - int(np.argmax(v[::-1])),
        int(np.argmin(v)),
        len(v) - 1 - int(np.argmin(v[::-1])),
    ]


def turns(points: Points, most: int = 6) -> list[int]:
    """Returns the positions of the first points at which the curve begins to fall, or to rise."""
    v, e = points.values, points.errors
    change = np.diff(v)
    way = np.where(np.abs(change) > e[1:] + e[:-1], np.sign(change), 0.0)
    moving = np.flatnonzero(way)
    turning_places = np.flatnonzero(np.diff(way[moving]))
    return [int(moving[place + 1]) for place in turning_places[:most]]


def marks(points: Points, most: int = 8) -> list[float]:
    """Returns the steps at which the curve may change its form, the likeliest first.

    Args:
        points: The points.
        most: The largest number of steps.
    """
    t = points.steps
    places: list[int] = []
    runs = sorted(flat_runs(points), key=lambda run: run[0] - run[1])[:3]
    for first, last in runs:
        places += [first] if last + 1 == len(t) else [first, last + 1]
    places.append(min(linear_prefix(points), len(t) - 1))
    places += jumps(points)[:3]
    places += extremes(points)
    places += kinks(points)
    positions: list[float] = []
    for place in places:
        step = float(t[place])
        if 0 < step < t[-1] + 1 and step not in positions:
            positions.append(step)
    return positions[:most]
