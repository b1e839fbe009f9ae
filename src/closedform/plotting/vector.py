"""Small plots as SVG in a page: labels at the ends of the curves, colors of light and dark pages.

They need no matplotlib. Text and axes have the color of the text around them.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from closedform.errors import ClosedFormError
from closedform.plotting.steps import last_step, schedule_points

if TYPE_CHECKING:
    from closedform.language import Schedule

Points = tuple[NDArray[np.int64], NDArray[np.float64]]
"""Steps and values of a curve."""

COLORS = ("#3b82f6", "#d9730d", "#1d9a6c", "#9b6bdf", "#d6498f", "#b58900", "#3f8fa8", "#8a94a0")
"""Colors with a contrast of at least 3 to white and to the dark grey of the site."""

_MOST_POINTS = 300
_WIDTH, _HEIGHT = 360, 150
_TOP, _BOTTOM, _LEFT, _RIGHT = 10, 20, 58, 12
_FONT = 11
# The mean width of a letter at 11 pixels; without a font there is no other measure.
_LETTER = 6.2
_LINE = 13
_NEAR = 0.15
"""The distance in pixels below which a point is on a line."""
_TICK_DISTANCE = 60
"""The width of a label of the axis, such as 1,000,000."""
_MOST_LABEL = 24


def picture(curves: Mapping[str, Schedule | Points], last: int | None = None) -> str:
    """Returns an ``<svg>`` element with the curves, which have labels if there are several.

    It is empty where nothing can be drawn: hyperparameters are open, or a value is not finite.

    Args:
        curves: Schedules, or steps with values, by label.
        last: The last step of the schedules; that of the longest one if None.

    Example:
        >>> from closedform import schedules
        >>> picture({"lr": schedules.linear(0, 1, 10)}).count("<polyline")
        1
    """
    schedules = [curve for curve in curves.values() if not isinstance(curve, tuple)]
    if any(schedule.open for schedule in schedules):
        return ""
    end = max(map(last_step, schedules), default=1) if last is None else last
    try:
        points = {
            label: curve if isinstance(curve, tuple) else schedule_points(curve, end, _MOST_POINTS)
            for label, curve in curves.items()
        }
    except ClosedFormError:  # no finite value at one of the steps
        return ""
    if not points or any(not len(steps) for steps, _ in points.values()):
        return ""
    return draw(points)


def draw(curves: Mapping[str, Points], height: int = _HEIGHT) -> str:
    """Returns an ``<svg>`` element with curves of points, which have labels if there are several.

    Args:
        curves: The steps and values by label.
        height: The height, where the width is 360.
    """
    labels = [_shorten(label) for label in curves] if len(curves) > 1 else []
    right = _RIGHT + max((int(_LETTER * len(label)) + 14 for label in labels), default=0)
    end = max(int(steps[-1]) for steps, _ in curves.values()) or 1
    low = min(float(values.min()) for _, values in curves.values())
    high = max(float(values.max()) for _, values in curves.values())
    # From 0 unless the curve is far above it: then its changes would not be seen.
    floor = min(low, 0.0) if low < 0.5 * high else low
    span = high - floor or 1.0
    across, down = _WIDTH - _LEFT - right, height - _TOP - _BOTTOM

    def place(steps: NDArray[np.int64], values: NDArray[np.float64]) -> NDArray[np.float64]:
        x = _LEFT + across * steps / end
        y = _TOP + down * (high - values) / span
        return np.column_stack([x, y if high > floor else np.full(len(steps), _TOP + down / 2)])

    lines, ends = [], []
    for index, (steps, values) in enumerate(curves.values()):
        line = place(steps, values)
        lines.append(
            f'<polyline points="{_corners(line)}" fill="none" stroke="{_color(index)}" '
            f'stroke-width="2" stroke-linejoin="round"/>'
        )
        ends.append(float(line[-1, 1]))
    marks = _ticks(end, across)
    axis = f"M{_LEFT} {_TOP}V{_TOP + down}H{_LEFT + across}"
    parts = [
        f'<path d="{axis}" fill="none" stroke="currentColor" stroke-opacity="0.4"/>',
        *lines,
        *_direct_labels(labels, ends, _LEFT + across + 6, height),
        *(
            _text(_LEFT + across * step / end, height - 5, f"{step:,}", _anchor(step, end))
            for step in marks
        ),
        _text(_LEFT - 5, _TOP + 4 if high > floor else _TOP + down / 2 + 4, f"{high:.4g}", "end"),
        *([_text(_LEFT - 5, _TOP + down + 4, f"{floor:.4g}", "end")] if high > floor else []),
    ]
    name = html.escape(f"{', '.join(curves)} by step, from 0 to {end:,}", quote=True)
    return (
        f'<svg role="img" aria-label="{name}" viewBox="0 0 {_WIDTH} {height}" '
        f'style="display:block;width:100%;max-width:{_WIDTH}px;height:auto" '
        f'font-family="inherit" font-size="{_FONT}" fill="currentColor">{"".join(parts)}</svg>'
    )


def _color(index: int) -> str:
    return COLORS[index % len(COLORS)]


def _shorten(label: str) -> str:
    return label if len(label) <= _MOST_LABEL else f"{label[: _MOST_LABEL - 1]}…"


def _corners(line: NDArray[np.float64]) -> str:
    """The points of a line that the others are near to, by the algorithm of Douglas and Peucker."""
    corners = {0, len(line) - 1}
    spans = [(0, len(line) - 1)]
    while spans:
        first, last = spans.pop()
        if last - first < 2:
            continue
        (x0, y0), (x1, y1) = line[first], line[last]
        between = line[first + 1 : last]
        # The distances times the length; at most a dot of the plot where both ends are one point.
        areas = np.abs((x1 - x0) * (between[:, 1] - y0) - (between[:, 0] - x0) * (y1 - y0))
        furthest = int(areas.argmax())
        if areas[furthest] > _NEAR * float(np.hypot(x1 - x0, y1 - y0)):
            middle = first + 1 + furthest
            corners.add(middle)
            spans += [(first, middle), (middle, last)]
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in line[sorted(corners)].tolist())


def _direct_labels(
    labels: Sequence[str], ends: Sequence[float], x: float, height: int
) -> list[str]:
    """The labels at the ends of their curves, moved apart where they would overlap."""
    order = sorted(range(len(labels)), key=lambda index: ends[index])
    heights = [ends[index] for index in order]
    for above, below in pairwise(range(len(heights))):
        # Down first, then up from the floor: labels keep their order.
        heights[below] = max(heights[below], heights[above] + _LINE)
    floor = height - _BOTTOM
    for index in reversed(range(len(heights))):
        heights[index] = min(heights[index], floor - _LINE * (len(heights) - 1 - index))
    return [
        f'<rect x="{x:g}" y="{y - 1.5:.1f}" width="8" height="3" fill="{_color(index)}"/>'
        + _text(x + 12, y + 4, labels[index], "start")
        for index, y in zip(order, heights, strict=True)
    ]


def _ticks(end: int, across: float) -> list[int]:
    """0, the end, and a round number in the middle where there is space."""
    # Two digits that are not 0.
    middle = round(end / 2, -max(len(str(end)) - 2, 0))
    return [0, *([int(middle)] if end > 1 and across > 3 * _TICK_DISTANCE else []), end]


def _anchor(step: int, end: int) -> str:
    return "start" if step == 0 else "end" if step == end else "middle"


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{html.escape(text)}</text>'
