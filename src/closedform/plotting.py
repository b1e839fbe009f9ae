"""Plots of schedules: a matplotlib figure, or braille characters for a terminal."""

from __future__ import annotations

import io
import itertools
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import sympy as sp
from numpy.typing import ArrayLike, NDArray
from sympy.core.relational import Relational

from closedform.errors import DefinitionError, ExportError
from closedform.language import Schedule, t

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_FORMATS = (".pdf", ".png", ".svg")
_MOST_POINTS = 2000
_LABELS_SIDE_BY_SIDE = 11
_STEPS_WITHOUT_END = 1000

_INK = "#1c2733"
_CURVE = "#1f6feb"
_QUIET = "#8a94a0"
_ALARM = "#c62f3b"

# Bits of a braille character by row and column of its dots (Unicode 17.0, block 2800).
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
_BLANK = 0x2800


def boundaries(schedule: Schedule) -> tuple[int, ...]:
    """Returns the steps > 0 at which a branch, a Min or a Max of the schedule changes, in order.

    Only conditions that are linear in the step are considered, not periodic ones.

    Example:
        >>> import sympy as sp
        >>> from closedform import Schedule, t
        >>> boundaries(Schedule(sp.Piecewise((t / 10, t < 10), (1, t <= 20), (0, True))))
        (10, 21)
    """
    steps = set(_changes(schedule.bound))
    return tuple(sorted(step for step in steps if step is not None and step > 0))


def last_step(schedule: Schedule) -> int:
    """Returns the last step of a table or plot of the schedule.

    This is the last step that its domain declares, else the length of the schedule if it has one,
    else 1.5 times its last boundary, else 1000.
    """
    if schedule.last_step is not None:
        return schedule.last_step
    if schedule.length is not None and schedule.length > 0:
        return int(schedule.length)
    marks = boundaries(schedule)
    return math.ceil(1.5 * marks[-1]) if marks else _STEPS_WITHOUT_END


def even_steps(end: int, most: int = 1_000_000) -> NDArray[np.int64]:
    """Returns the steps 0..end, or ``most`` evenly spaced ones if there are more."""
    return np.arange(end + 1) if end < most else np.linspace(0, end, most).astype(np.int64)


def plot_schedule(
    schedule: Schedule,
    path: str | os.PathLike[str] | None = None,
    *,
    steps: int | None = None,
    title: str | None = None,
    remarks: Mapping[int, str] | None = None,
) -> Figure:
    """Returns a figure of the schedule and, given a path, writes it to that file.

    Args:
        schedule: The schedule to plot; every hyperparameter must have a value.
        path: A .png, .svg or .pdf file, written atomically and without a display. If None, the
            figure belongs to pyplot.
        steps: The last step of the plot; ``last_step(schedule)`` if None.
        title: The title; the name of the schedule if None.
        remarks: Annotations of single steps, such as counterexamples of a claim; those after the
            last step are omitted.

    Raises:
        ExportError: matplotlib is not installed, or the file has an unsupported suffix.
        DefinitionError: ``steps`` is not positive, or a hyperparameter has no value.
    """
    end = last_step(schedule) if steps is None else steps
    if end <= 0:
        raise DefinitionError(f"steps must be positive, got {end}", where=f"plot {schedule.name!r}")
    if path is not None:
        _check_format(path)
    marks = tuple(mark for mark in boundaries(schedule) if mark <= end)
    points = _sample(end, marks)
    values = np.asarray(schedule(points), dtype=np.float64)
    figure = _new_figure(drawn_to_file=path is not None)
    axes = figure.subplots()
    _draw(axes, title or schedule.name, points, values, marks)
    _draw_remarks(axes, schedule, {at: text for at, text in (remarks or {}).items() if at <= end})
    if path is not None:
        _write(figure, Path(path))
    return figure


def plot_difference(
    ours: NDArray[np.float64],
    theirs: NDArray[np.float64],
    steps: NDArray[np.int64],
    path: str | os.PathLike[str],
    *,
    labels: tuple[str, str] = ("a", "b"),
    title: str = "",
) -> Figure:
    """Writes a figure of two curves, with their difference below, and returns it.

    Args:
        ours: The values of the first curve.
        theirs: Those of the second one.
        steps: The updates of both, in order.
        path: A .png, .svg or .pdf file.
        labels: The names of the curves.
        title: The title.

    Raises:
        ExportError: matplotlib is not installed, or the file has an unsupported suffix.
    """
    _check_format(path)
    figure = _new_figure(drawn_to_file=True)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    above.plot(steps, ours, label=labels[0])
    above.plot(steps, theirs, label=labels[1], linestyle="--")
    above.legend()
    above.set_title(title)
    below.plot(steps, theirs - ours, color="tab:red")
    below.axhline(0, color="0.7", linewidth=0.8)
    below.set_ylabel(f"{labels[1]} - {labels[0]}")
    below.set_xlabel("update")
    _write(figure, Path(path))
    return figure


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


def _changes(expr: sp.Expr) -> Iterator[int | None]:
    for relation in expr.atoms(Relational):
        yield _first_change(relation)
    for bound in expr.atoms(sp.Max, sp.Min):
        for first, second in itertools.combinations(bound.args, 2):
            yield _crossing(first - second)


def _first_change(relation: Relational) -> int | None:
    """The first step at which the truth value of a relation linear in t changes."""
    step = _crossing(relation.lhs - relation.rhs)
    if step is None:
        return None
    return step if _holds(relation, step) != _holds(relation, step - 1) else step + 1


def _crossing(difference: sp.Expr) -> int | None:
    """The first step at or after the zero of an expression linear in t; None for others."""
    expanded = sp.expand(difference)
    slope = expanded.coeff(t)
    rest = expanded - slope * t
    if slope == 0 or rest.free_symbols or slope.free_symbols:
        return None
    return int(sp.ceiling(-rest / slope))


def _holds(relation: Relational, step: int) -> bool:
    at = {t: sp.Integer(step)}
    return bool(relation.func(relation.lhs.xreplace(at), relation.rhs.xreplace(at)))


def _sample(end: int, marks: Sequence[int]) -> NDArray[np.int64]:
    """The steps of a figure: a limited number, with both sides of each boundary."""
    even = even_steps(end, _MOST_POINTS)
    sides = np.array([step for mark in marks for step in (mark - 1, mark)], dtype=np.int64)
    return np.union1d(even, sides)


def _check_format(path: str | os.PathLike[str]) -> None:
    if Path(path).suffix.lower() not in _FORMATS:
        raise ExportError(
            f"the suffix of a plot must be {', '.join(_FORMATS)}, got "
            f"{Path(path).suffix or 'no suffix'!r}",
            where=str(path),
        )


def _new_figure(*, drawn_to_file: bool) -> Figure:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ExportError(
            "matplotlib is not installed",
            hint="pip install 'closedform[plot]', or plot in the terminal: closedform plot NAME",
        ) from error
    size = {"figsize": (8.0, 4.0), "layout": "constrained"}
    if not drawn_to_file:
        from matplotlib import pyplot

        return pyplot.figure(**size)  # type: ignore[arg-type]
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure = Figure(**size)  # type: ignore[arg-type]
    FigureCanvasAgg(figure)
    return figure


def _draw(
    axes: Axes, title: str, points: NDArray[Any], values: NDArray[Any], marks: Sequence[int]
) -> None:
    few = points.size <= 64
    for mark in marks if len(marks) <= 40 else ():
        axes.axvline(mark, color=_QUIET, linewidth=0.8, linestyle=(0, (2, 3)), zorder=1)
    axes.fill_between(points, values, color=_CURVE, alpha=0.08, linewidth=0, zorder=1)
    axes.plot(
        points,
        values,
        color=_CURVE,
        linewidth=2.0,
        marker="o" if few else None,
        markersize=3.5,
        solid_joinstyle="round",
        zorder=3,
    )
    axes.set_title(title, loc="left", color=_INK, fontsize=13, fontweight="bold", pad=12)
    axes.set_xlabel("step", color=_INK)
    axes.set_ylabel("value", color=_INK)
    axes.set_xlim(0, int(points[-1]))
    axes.margins(y=0.06)
    if values.min() >= 0:
        axes.set_ylim(bottom=0)
    ticks = _ticks(int(points[-1]), marks)
    axes.set_xticks(ticks)
    # A boundary too close to 0 for a tick label, such as the end of a warmup, is labeled on top.
    for mark in (mark for mark in marks[:1] if mark not in ticks):
        axes.annotate(
            f"{mark:,}",
            (mark, 1),
            xycoords=("data", "axes fraction"),
            xytext=(4, -2),
            textcoords="offset points",
            va="top",
            color=_QUIET,
            fontsize=9,
        )
    axes.xaxis.set_major_formatter(lambda step, _: f"{int(step):,}")
    axes.ticklabel_format(axis="y", style="sci", scilimits=(-3, 4), useMathText=True)
    axes.grid(axis="y", color=_QUIET, alpha=0.2, linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(_QUIET)
    axes.tick_params(colors=_INK, length=3)


def _draw_remarks(axes: Axes, schedule: Schedule, remarks: Mapping[int, str]) -> None:
    for step, text in sorted(remarks.items()):
        place = (step, float(np.asarray(schedule(step))))
        axes.plot(*place, "o", color=_ALARM, markersize=6, zorder=4)
        axes.annotate(
            f"step {step:,}: {text}",
            place,
            xytext=(6, 6),
            textcoords="offset points",
            color=_ALARM,
            fontsize=8,
        )


def _ticks(end: int, marks: Sequence[int]) -> list[int]:
    """Ticks at 0, at the end and at the boundaries whose labels do not overlap."""
    gap = end / _LABELS_SIDE_BY_SIDE
    ticks = [0, end]
    for mark in marks:
        if all(abs(mark - tick) >= gap for tick in ticks):
            ticks.append(mark)
    magnitude = 10 ** max(len(str(end)) - 2, 0)
    spacing = next(n * magnitude for n in (1, 2, 5, 10, 20, 50) if n * magnitude * 5 >= end)
    for step in range(spacing, end, spacing):
        if all(abs(step - tick) >= 1.2 * gap for tick in ticks):
            ticks.append(step)
    return sorted(ticks)


def _write(figure: Figure, path: Path) -> None:
    """Writes the figure atomically."""
    import matplotlib

    from closedform.exporters.onnx_model import replace_file

    kind = path.suffix.lower().lstrip(".")
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind, {})
    content = io.BytesIO()
    # A fixed salt and no date, for reproducible bytes.
    with matplotlib.rc_context({"svg.hashsalt": "closedform"}):
        figure.savefig(content, format=kind, dpi=144, metadata=metadata)
    try:
        replace_file(path, content.getvalue())
    except OSError as error:
        raise ExportError(
            f"cannot write the plot: {error.strerror}",
            where=str(path),
            hint="check the folder, its permissions and its free space",
        ) from error


def _dots(
    data: NDArray[np.float64], low: float, high: float, *, columns: int, rows: int
) -> NDArray[np.bool_]:
    """The dots that are set: in each column, all that the line passes through."""
    scaled = np.full(data.shape, 0.5) if high == low else (high - data) / (high - low)
    heights = scaled * (rows - 1)
    edges = np.linspace(0, data.size - 1, columns + 1)
    at_edges = np.interp(edges, np.arange(data.size), heights)
    dots = np.zeros((rows, columns), dtype=np.bool_)
    for column in range(columns):
        within = heights[math.ceil(edges[column]) : math.floor(edges[column + 1]) + 1]
        passed = np.concatenate([at_edges[column : column + 2], within])
        dots[round(passed.min()) : round(passed.max()) + 1, column] = True
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
