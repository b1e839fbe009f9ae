"""Line plots of characters: braille, or ASCII."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from closedform.errors import DefinitionError

# Bits of a braille character by row and column of its dots (Unicode 17.0, block 2800).
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
_BLANK = 0x2800


def terminal_plot(
    values: ArrayLike,
    *,
    width: int = 64,
    height: int = 10,
    last: int | None = None,
    is_ascii: bool = False,
) -> str:
    """Returns a line plot of the values in braille characters, with both axes labeled.

    Args:
        values: At least two finite numbers at equally spaced steps.
        width: The width of the plot in characters, each two dots wide.
        height: The height of the plot in lines, each four dots high.
        last: The step of the last value, for the label; the number of values minus one if None.
        is_ascii: Whether to draw with characters of ASCII: one dot per character, ``*``.

    Raises:
        DefinitionError: Fewer than two values, or one that is not finite.
    """
    data = np.asarray(values, dtype=np.float64).ravel()
    if data.size < 2 or not np.isfinite(data).all():
        raise DefinitionError(f"a plot needs at least two finite values, got {data.tolist()[:8]}")
    low, high = float(data.min()), float(data.max())
    across, down = (1, 1) if is_ascii else (2, 4)
    dots = _dots(data, low, high, columns=across * width, rows=down * height)
    tick, side, corner, floor = "+|+-" if is_ascii else "┤│└─"
    labels = [""] * height
    labels[0], labels[-1] = f"{high:.6g}", f"{low:.6g}"
    if low == high:
        labels = [f"{low:.6g}" if row == height // 2 else "" for row in range(height)]
    margin = max(len(label) for label in labels)
    lines = [
        f"{label:>{margin}} {tick if label else side}{line}"
        for label, line in zip(labels, _stars(dots) if is_ascii else _braille(dots), strict=True)
    ]
    end = str(data.size - 1 if last is None else last)
    axis = f"{'':>{margin}} {corner}{floor * width}"
    steps = f"{'':>{margin}}  0{end:>{width - 1}}"
    return "\n".join([*(line.rstrip("\u2800 ") for line in lines), axis, steps])


def _dots(
    data: NDArray[np.float64], low: float, high: float, *, columns: int, rows: int
) -> NDArray[np.bool_]:
    """The dots that are set: in each column, all that the line passes through."""
    relative_heights = np.full(data.shape, 0.5) if high == low else (high - data) / (high - low)
    heights = relative_heights * (rows - 1)
    edges = np.linspace(0, data.size - 1, columns + 1)
    at_edges = np.interp(edges, np.arange(data.size), heights)
    dots = np.zeros((rows, columns), dtype=np.bool_)
    for column in range(columns):
        within = heights[math.ceil(edges[column]) : math.floor(edges[column + 1]) + 1]
        crossed_heights = np.concatenate([at_edges[column : column + 2], within])
        dots[round(crossed_heights.min()) : round(crossed_heights.max()) + 1, column] = True
    return dots


def _stars(dots: NDArray[np.bool_]) -> list[str]:
    return ["".join("*" if dot else " " for dot in row) for row in dots]


def _braille(dots: NDArray[np.bool_]) -> list[str]:
    rows, columns = dots.shape
    lines = []
    for top in range(0, rows, 4):
        cells = []
        for left in range(0, columns, 2):
            block = dots[top : top + 4, left : left + 2]
            cells.append(chr(_BLANK + int((block * np.array(_DOTS)).sum())))
        lines.append("".join(cells))
    return lines
