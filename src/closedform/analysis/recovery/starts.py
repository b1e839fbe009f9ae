"""The values at which the search of parameters begins, read from the form of the curve."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from closedform.analysis.recovery.marks import Points, flat_runs, jumps, marks, turns
from closedform.analysis.recovery.structures import Parameter, Role, Structure
from closedform.ir.types import FloatArray

MOST_STARTS = 600

_CLEAR_JUMP = 12.0
"""Slope at a clear jump, in units of those around it."""


@dataclass(frozen=True, slots=True)
class Features:
    """Features of a curve.

    Attributes:
        points: The points.
        marks: The steps at which it may change its form.
        jumps: The steps of the points after jumps.
        clear_jumps: Those of the ones that are not the begin of a steep fall.
        turns: The first steps at which it begins to fall, or to rise.
        periods: Numbers of steps of which the jumps are multiples.
        is_stepwise: Whether it is constant between jumps.
    """

    points: Points
    marks: tuple[float, ...]
    jumps: tuple[float, ...]
    clear_jumps: tuple[float, ...]
    turns: tuple[float, ...]
    periods: tuple[float, ...]
    is_stepwise: bool

    @property
    def is_dense(self) -> bool:
        """Whether every step is logged."""
        return bool(np.all(np.diff(self.points.steps) == 1))

    @property
    def has_jumps(self) -> bool:
        """Whether it certainly has a jump after its first steps."""
        return self.is_dense and any(step >= self.points.steps[0] + 3 for step in self.clear_jumps)

    @property
    def end(self) -> float:
        """The step after the last point."""
        return float(self.points.steps[-1]) + 1


def features(points: Points) -> Features:
    """Returns the features of a curve."""
    after = jumps(points)
    runs = flat_runs(points)
    flat_count = sum(last - first + 1 for first, last in runs)
    return Features(
        points,
        tuple(marks(points)),
        tuple(float(points.steps[place]) for place in after),
        tuple(float(points.steps[place]) for place in jumps(points, _CLEAR_JUMP)),
        tuple(float(points.steps[place]) for place in turns(points)),
        tuple(_periods(points, after)),
        bool(after) and flat_count + len(after) >= 0.9 * len(points.steps),
    )


def _periods(points: Points, after: list[int]) -> list[float]:
    """Integers N for which the k-th jump is between two points around k N."""
    if not after:
        return []
    low, high = 0.0, np.inf
    for count, place in enumerate(after, 1):
        new_low = max(low, points.steps[place - 1] / count)
        new_high = min(high, points.steps[place] / count)
        if new_low >= new_high:
            break
        low, high = new_low, new_high
    first, last = int(np.floor(low)) + 1, int(np.floor(high))
    inside = [float(n) for n in range(first, min(last, first + 2000) + 1)]
    # Round numbers first: 1000 before 997.
    return sorted(inside, key=lambda n: len(f"{n:.0f}".rstrip("0")))[:6] or [high]


def starts(structure: Structure, curve: Features) -> FloatArray:
    """Returns values of the parameters that are not linear, of shape (starts, parameters)."""
    parameters = [parameter for parameter in structure.parameters if not parameter.is_linear]
    order = sorted(parameters, key=lambda parameter: PRIORITY.get(parameter.name, 5))
    rows = list(itertools.islice(_assignments(structure, order, curve, {}), MOST_STARTS))
    return np.array(
        [[row[parameter.name] for parameter in parameters] for row in rows], dtype=np.float64
    ).reshape(len(rows), len(parameters))


PRIORITY: Mapping[str, int] = {"steps": 0, "warmup": 1, "up": 1, "decay": 2, "tail": 2}
"""Parameters that others begin relative to come first."""


def _assignments(
    structure: Structure,
    order: list[Parameter],
    curve: Features,
    assigned_values: dict[str, float],
) -> Iterator[dict[str, float]]:
    if not order:
        yield assigned_values
        return
    first, *rest = order
    tried_values: set[float] = set()
    for value in _pool(structure, first, curve, assigned_values):
        if np.isfinite(value) and value not in tried_values:
            tried_values.add(value)
            yield from _assignments(
                structure, rest, curve, {**assigned_values, first.name: float(value)}
            )


def _pool(
    structure: Structure,
    parameter: Parameter,
    curve: Features,
    assigned_values: Mapping[str, float],
) -> list[float]:
    if parameter.role is Role.STEPS:
        return _steps(structure, parameter, curve, assigned_values)
    if parameter.role is Role.VALUE:
        return _levels(parameter, curve)
    end, steps = curve.end, assigned_values.get("steps", curve.end)
    v = curve.points.values
    if parameter.role is Role.FRACTION:
        shift = 0.5 if parameter.name == "cut" else 1.0
        cut_fractions = [(m + shift) / steps for m in curve.marks if m + shift < steps]
        return (
            # 0.3 is ``pct_start`` of torch's OneCycleLR, 0.1 the cut of ULMFiT, 0.5 a triangle.
            [*cut_fractions[:5], 0.3, 0.1, 0.5] if parameter.name == "rise" else cut_fractions[:5]
        )
    if parameter.role is Role.EXPONENT:
        if parameter.name == "exponent":
            return [*_exponent(curve, assigned_values), -0.5, -1.0, -0.2, 0.5]
        return [2.0, 0.5, 3.0, 1.3]
    if parameter.role is Role.ARGUMENT:
        return [-6.0, -3.0] if parameter.name == "low" else [3.0, 1.5]
    if parameter.role is Role.FACTOR:
        return _factors(structure, curve, assigned_values)
    if parameter.name == "cycles":
        turns = [steps / m for m in (*curve.jumps[:2], *curve.marks)]
        return [*turns, *(turn / 2 for turn in turns), 2, 3, 4, 1.5]
    if parameter.name == "ratio":
        low = float(np.min(np.abs(v))) or 1e-3
        # 32 is the ratio of Howard and Ruder (2018).
        return [float(np.max(v)) / low, 32.0]
    if parameter.name == "width":
        peak = float(np.max(v))
        # The peak is 1 / sqrt(width warmup); 512 is the width of Vaswani et al. (2017).
        width = np.divide(1, np.square(peak) * assigned_values.get("warmup", end))
        return [float(width) if peak > 0 else 512.0]
    return [1.0]


def _steps(
    structure: Structure,
    parameter: Parameter,
    curve: Features,
    assigned_values: Mapping[str, float],
) -> list[float]:
    end, marks = curve.end, list(curve.marks)
    steps = assigned_values.get("steps")
    if parameter.name == "steps":
        if structure.is_stepwise or structure.name == "warm_restarts":
            return [*curve.periods, *curve.jumps[:1], *marks[:4], 1.0]
        if structure.name in ("exponential", "inverse_time", "range_test"):
            return [max(end / 10, 1.0)]
        if structure.name.startswith("one_cycle"):
            return [*(m + 1 for m in marks), end, 1.3 * end, 2 * end]
        return [*marks, end, 1.3 * end, 2 * end, 4 * end, end / 3]
    within = [m for m in marks if steps is None or m < steps]
    if parameter.name in ("warmup", "flat", "up"):
        far = [end / 4] if parameter.name == "flat" else []
        if parameter.name == "up":
            return [*curve.turns[:1], *within[:6]]
        return [
            *(within[:6]),
            *far,
            *([1.0] if parameter.name == "warmup" and steps is None else []),
        ]
    if parameter.name == "down":
        up = assigned_values["up"]
        return [*(m - up for m in (*curve.turns[1:2], *marks) if m > up), up, up / 2][:8]
    if parameter.name in ("decay", "tail", "cooldown", "hold"):
        last = steps if steps is not None else end
        begin = assigned_values.get("warmup", 0.0)
        return [last - m for m in within if m >= begin][:6] or [last / 5]
    if parameter.name == "bound":
        last = steps or end
        return [last * factor for factor in (1.01, 1.2, 2.0)]
    if parameter.name == "shift":
        return [end / 20, end / 3]
    return [end * factor for factor in (0.003, 0.03, 0.2, 1.0)]


def _levels(parameter: Parameter, curve: Features) -> list[float]:
    v = curve.points.values
    if parameter.name in ("peak", "high"):
        levels = [float(np.max(v))]
    elif parameter.name in ("start", "warmup_start"):
        levels = [float(v[0])]
    else:
        levels = [float(v[-1]), float(np.min(v))]
    is_positive = bool(parameter.symbol.is_positive)
    return [max(value, 1e-12) if is_positive else value for value in levels]


def _factors(
    structure: Structure, curve: Features, assigned_values: Mapping[str, float]
) -> list[float]:
    t, v = curve.points.steps, curve.points.values
    first, last = abs(float(v[0])) or 1e-9, abs(float(v[-1])) or 1e-9
    whole = max(float(t[-1] - t[0]), 1.0)
    steps = assigned_values.get("steps", 1.0)
    if structure.name == "range_test":
        return [(last / first - 1) * steps / whole]
    if structure.name == "inverse_time":
        slope = (first / last - 1) / whole * steps
        return [slope, slope / 10, slope * 10, slope / 1000]
    if structure.name == "cyclic":
        return [*_envelope(curve), 1 - 0.3 / whole, 1 - 3 / whole, 1 - 30 / whole]
    # Of NumPy: a power of Python's floats that overflows is an error, and no start is infinite.
    rates = [float(np.power(last / first, steps / whole))]
    if structure.is_stepwise and curve.jumps:
        place = int(np.searchsorted(t, curve.jumps[0]))
        before = float(v[place - 1])
        rates.insert(0, float(v[place]) / before if before else 0.5)
    middle = len(v) // 2
    if v[middle] and t[middle] > t[0]:
        exponent = steps / float(t[middle] - t[0])
        rates.append(float(np.power(abs(float(v[middle]) / first), exponent)))
    return rates


def _exponent(curve: Features, assigned_values: Mapping[str, float]) -> list[float]:
    """The exponent of the power that passes through two points between the warmup and the tail."""
    t, v = curve.points.steps, curve.points.values
    begin = assigned_values.get("warmup", 0.0)
    end = (
        assigned_values["steps"] - assigned_values["tail"]
        if {"steps", "tail"} <= assigned_values.keys()
        else float(t[-1])
    )
    inside = np.flatnonzero((t >= max(begin, 1.0)) & (t <= end))
    if len(inside) < 2:
        return []
    first, last = int(inside[0]), int(inside[-1])
    if v[first] * v[last] <= 0:
        return []
    return [float(np.log(v[last] / v[first]) / np.log(t[last] / t[first]))]


def _envelope(curve: Features) -> list[float]:
    """The factor per step of the distances of the first two peaks from the first value."""
    if len(curve.turns) < 3:
        return []
    t, v = curve.points.steps, curve.points.values
    begin, end = (int(np.searchsorted(t, step)) for step in (curve.turns[0], curve.turns[2]))
    first, second = float(v[begin] - v[0]), float(v[end] - v[0])
    if first * second <= 0:
        return []
    return [(second / first) ** (1 / float(t[end] - t[begin]))]
