"""Line plots of characters: braille, or ASCII; several curves in colors, or with marks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from closedform.errors import DefinitionError

Points = tuple[NDArray[np.int64], NDArray[np.float64]]
"""Steps, in order, and the values at them."""

# Bits of a braille character by row and column of its dots (Unicode 17.0, block 2800).
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
_BLANK = 0x2800
_COLORS = (34, 33, 32, 35, 36, 31)
"""ANSI: blue, yellow, green, magenta, cyan, red."""
_MARKS = "*+ox#@"


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
    steps = np.arange(data.size)
    plot = overlay(
        {"": (steps, data)}, width=width, height=height, is_ascii=is_ascii, are_colored=False
    )
    if last is None:
        return plot
    *lines, _ = plot.split("\n")
    margin = lines[-1].index("+" if is_ascii else "└")
    return "\n".join([*lines, f"{'':>{margin}} 0{last:>{width - 1}}"])


def overlay(
    curves: Mapping[str, Points],
    *,
    width: int = 64,
    height: int = 10,
    is_ascii: bool = False,
    are_colored: bool = False,
    points: Sequence[str] = (),
) -> str:
    """Returns a plot of several curves in one frame, and which is which below it.

    In colors they are lines of braille characters; without, each has a mark of its own.

    Args:
        curves: Steps and values by label, at least two of each.
        width: The width of the plot in characters.
        height: The height of the plot in lines.
        is_ascii: Whether only characters of ASCII are used.
        are_colored: Whether the terminal shows colors.
        points: The labels of curves that are drawn as points and not as lines.

    Raises:
        DefinitionError: A curve has fewer than two values, or one that is not finite.

    Example:
        >>> import numpy as np
        >>> steps = np.arange(9)
        >>> curves = {"up": (steps, steps / 8), "down": (steps, 1 - steps / 8)}
        >>> print(overlay(curves, width=18, height=4, is_ascii=True))
        1 +++++           ***
          |   ++++++*******
          |  ******++++++++
        0 +***            +++
          +------------------
           0                8
          * up  + down
    """
    for _, data in curves.values():
        if data.size < 2 or not np.isfinite(data).all():
            raise DefinitionError(
                f"a plot needs at least two finite values, got {data.tolist()[:8]}"
            )
    low = min(float(data.min()) for _, data in curves.values())
    high = max(float(data.max()) for _, data in curves.values())
    end = max(int(steps[-1]) for steps, _ in curves.values())
    is_single = len(curves) == 1
    is_braille = not is_ascii and (is_single or are_colored)
    across, down = (2, 4) if is_braille else (1, 1)
    grids = [
        _dots(
            curve,
            low,
            high,
            end,
            columns=across * width,
            rows=down * height,
            is_line=label not in points,
        )
        for label, curve in curves.items()
    ]
    if is_braille:
        lines = _braille(grids, are_colored=are_colored and not is_single)
    else:
        lines = _marked(grids)
    frame = _frame(lines, low, high, end, width=width, is_ascii=is_ascii)
    if is_single:
        return frame
    margin = frame.split("\n")[-2].index("+" if is_ascii else "└")
    names = [
        f"\x1b[{_COLORS[index % len(_COLORS)]}m━━\x1b[0m {label}"
        if is_braille
        else f"{_MARKS[index % len(_MARKS)]} {label}"
        for index, label in enumerate(curves)
    ]
    return "\n".join([frame, *_legend(names, margin, margin + width + 1)])


def _frame(
    lines: Sequence[str], low: float, high: float, end: int, *, width: int, is_ascii: bool
) -> str:
    """The lines of a plot between labeled axes."""
    height = len(lines)
    tick, side, corner, floor = "+|+-" if is_ascii else "┤│└─"
    labels = [""] * height
    labels[0], labels[-1] = f"{high:.6g}", f"{low:.6g}"
    if low == high:
        labels = [f"{low:.6g}" if row == height // 2 else "" for row in range(height)]
    margin = max(len(label) for label in labels)
    rows = [
        f"{label:>{margin}} {tick if label else side}{line}".rstrip("\u2800 ")
        for label, line in zip(labels, lines, strict=True)
    ]
    axis = f"{'':>{margin}} {corner}{floor * width}"
    return "\n".join([*rows, axis, f"{'':>{margin}}  0{end:>{width - 1}}"])


def _legend(names: Sequence[str], margin: int, width: int) -> list[str]:
    """The names in lines of at most this width where each is shorter."""
    lines: list[str] = []
    taken_width = width
    for name in names:
        # Escape sequences, of 5 and 4 characters, take no space.
        length = len(name) - (9 if name.startswith("\x1b") else 0)
        if lines and taken_width + 2 + length <= width:
            lines[-1] += f"  {name}"
            taken_width += 2 + length
        else:
            lines.append(f"{'':>{margin}}{name}")
            taken_width = margin + length
    return lines


def _dots(
    curve: Points, low: float, high: float, end: int, *, columns: int, rows: int, is_line: bool
) -> NDArray[np.bool_]:
    """The dots that are set: in each column, all that the line passes through."""
    steps, data = curve
    # Row 0 is the top.
    relative_heights = np.full(data.shape, 0.5) if high == low else (high - data) / (high - low)
    heights = relative_heights * (rows - 1)
    dots = np.zeros((rows, columns), dtype=np.bool_)
    if not is_line:
        at = np.minimum((steps / end * columns).astype(int), columns - 1)
        dots[np.round(heights).astype(int), at] = True
        return dots
    edges = np.linspace(0, end, columns + 1)
    # With the values at both edges neighbouring columns meet, so that the line has no gaps.
    at_edges = np.interp(edges, steps, heights)
    first = np.searchsorted(steps, edges[:-1], "left")
    after = np.searchsorted(steps, edges[1:], "right")
    for column in range(columns):
        # np.interp goes on with the last value; a shorter curve ends instead.
        if edges[column] > steps[-1]:
            break
        within = heights[first[column] : after[column]]
        crossed_heights = np.concatenate([at_edges[column : column + 2], within])
        # From the least to the greatest: a peak within a column is not lost between two samples.
        dots[round(crossed_heights.min()) : round(crossed_heights.max()) + 1, column] = True
    return dots


def _marked(grids: Sequence[NDArray[np.bool_]]) -> list[str]:
    """Characters of which each is the mark of the last curve there."""
    cells = np.full(grids[0].shape, " ")
    for index, dots in enumerate(grids):
        cells[dots] = _MARKS[index % len(_MARKS)]
    return ["".join(row) for row in cells]


def _braille(grids: Sequence[NDArray[np.bool_]], *, are_colored: bool) -> list[str]:
    """Braille characters; in colors, each has that of the last curve there."""
    rows, columns = grids[0].shape
    lines = []
    for top in range(0, rows, 4):
        cells = []
        for left in range(0, columns, 2):
            blocks = [dots[top : top + 4, left : left + 2] for dots in grids]
            bits = int((np.logical_or.reduce(blocks) * np.array(_DOTS)).sum())
            character = chr(_BLANK + bits)
            if bits and are_colored:
                # A character has one color: that of the curve that is drawn last, as in a figure.
                index = max(index for index, block in enumerate(blocks) if block.any())
                character = f"\x1b[{_COLORS[index % len(_COLORS)]}m{character}\x1b[0m"
            cells.append(character)
        lines.append("".join(cells))
    return lines
