"""Figures of schedules and logs: one or several curves, with their differences on request."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from closedform.errors import ArgumentError, DefinitionError, describe, nearest
from closedform.ir.types import FloatArray
from closedform.language import Schedule
from closedform.language.boundaries import boundaries
from closedform.language.schedule import check_schedule
from closedform.plotting.canvas import check_format, new_figure, write_figure
from closedform.plotting.steps import even_steps, last_step, schedule_points
from closedform.recipes.clock import Clock, Facts, Unit
from closedform.recipes.logs import Log

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Source = Schedule | Log

_MOST_POINTS = 2000
_LABELS_SIDE_BY_SIDE = 11
_MOST_MARKS = 40

_INK = "#1c2733"
_QUIET = "#8a94a0"
_ALARM = "#c62f3b"
_COLORS = ("#1f6feb", "#d1602b", "#1d8a5b", "#8b5fbf", "#b58900", "#c2407f", "#3f8fa8", "#6b7280")

_UNITS = {
    "updates": Unit.UPDATE,
    "micro-batches": Unit.MICRO_BATCH,
    "samples": Unit.SAMPLE,
    "tokens": Unit.TOKEN,
    "epochs": Unit.EPOCH,
}
_LOG_AXES = ("", "x", "y", "xy")


@dataclass(frozen=True, slots=True)
class _Curve:
    """A curve to draw: its steps and values, and the boundaries of a schedule."""

    label: str
    color: str
    steps: NDArray[np.int64]
    values: FloatArray
    marks: tuple[int, ...]
    schedule: Schedule | None


def plot(
    source: Source | Sequence[Source] | Mapping[str, Source],
    path: str | os.PathLike[str] | None = None,
    *,
    steps: int | None = None,
    ax: Axes | None = None,
    key: str = "lr",
    clock: str = "updates",
    facts: Mapping[str, Any] | Facts | None = None,
    log: str = "",
    area: bool = False,
    milestones: bool = True,
    compare: bool = False,
    title: str | None = None,
) -> Figure:
    """Returns a figure of schedules and logs and, given a path, writes it to that file.

    Schedules are lines, logged values points.

    Args:
        source: A schedule, a log (:func:`closedform.recipes.logs.read_log`), a list of them, or a
            mapping from label to them.
        path: A .png, .svg or .pdf file, written atomically and without a display. If it is None
            and no axes are given, the figure belongs to pyplot.
        steps: The last update of the plot; the last one of all curves if not given.
        ax: The axes of matplotlib to draw in; a separate figure if not given.
        key: The column of a log, "lr", "weight_decay" or "momentum".
        clock: The unit of the horizontal axis: "updates", "micro-batches", "samples", "tokens" or
            "epochs".
        facts: The numbers of the run that the unit needs, such as ``{"tokens_per_update": 4e6}``.
        log: The axes with a logarithmic scale: "x", "y" or "xy".
        area: Whether to fill the area below each curve and write the sum of its values.
        milestones: Whether to mark the updates at which a branch of a schedule changes.
        compare: Whether to draw the differences from the first curve below.
        title: The title; the name of a single schedule if not given.

    Raises:
        ExportError: matplotlib is not installed, or the file has an unsupported suffix.
        ArgumentError: A source is neither a schedule nor a log, an option has no such value, or
            the unit needs facts that are not given.
        DefinitionError: ``steps`` is not an integer above 0, or a hyperparameter has no value.
    """
    sources = _label_sources(source)
    if path is not None:
        check_format(path)
    if log not in _LOG_AXES:
        raise ArgumentError(f"log must be 'x', 'y' or 'xy', got {log!r}", where="plot")
    # The differences need separate axes below.
    if compare and (ax is not None or len(sources) < 2):
        target = "axes" if ax is not None else "one curve"
        raise ArgumentError(
            f"a comparison draws several curves in a separate figure, got {target}",
            where="plot",
            hint="omit ax, and give two schedules or logs",
        )
    scale = _scale(clock, facts)
    end = _end(sources.values(), steps, key)
    curves = [
        _curve(label, item, end, key, _COLORS[index % len(_COLORS)])
        for index, (label, item) in enumerate(sources.items())
    ]
    below = None
    if ax is not None:
        figure = ax.get_figure(root=True)
    else:
        figure = new_figure(drawn_to_file=path is not None, height=5.2 if compare else 4.0)
        if compare:
            ax, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
        else:
            ax = figure.subplots()
    if figure is None:
        raise ArgumentError("the axes belong to no figure", where="plot", hint="omit ax")
    for curve in curves:
        _draw(ax, curve, scale, is_alone=len(curves) == 1, area=area, milestones=milestones)
    single = sources[curves[0].label] if len(curves) == 1 else None
    name = single.name if isinstance(single, Schedule) else ""
    marks = curves[0].marks if milestones and len(curves) == 1 else ()
    _style(ax, title or name, curves, end, scale, marks, log=log, clock=clock)
    if below is not None:
        _draw_differences(below, curves, scale)
        ax.set_xlabel("")
        below.set_xlabel(clock.removesuffix("s"), color=_INK)
    if path is not None:
        write_figure(figure, Path(path))
    return figure


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
    if path is not None:
        check_format(path)
    end = _end([schedule], steps, "lr")
    figure = new_figure(drawn_to_file=path is not None)
    axes = figure.subplots()
    plot(schedule, steps=end, ax=axes, title=title)
    _draw_remarks(axes, schedule, {at: text for at, text in (remarks or {}).items() if at <= end})
    if path is not None:
        write_figure(figure, Path(path))
    return figure


def plot_difference(
    first: FloatArray,
    second: FloatArray,
    steps: NDArray[np.int64],
    path: str | os.PathLike[str],
    *,
    labels: tuple[str, str] = ("a", "b"),
    title: str = "",
) -> Figure:
    """Writes a figure of two curves, with their difference below, and returns it.

    Args:
        first: The values of the first curve.
        second: Those of the second one.
        steps: The updates of both, in order.
        path: A .png, .svg or .pdf file.
        labels: The names of the curves.
        title: The title.

    Raises:
        ExportError: matplotlib is not installed, or the file has an unsupported suffix.
    """
    check_format(path)
    figure = new_figure(drawn_to_file=True, height=5.2)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    curves = [
        _Curve(label, color, steps, values, (), None)
        for label, color, values in zip(labels, _COLORS, (first, second), strict=False)
    ]
    for curve in curves:
        above.plot(steps, curve.values, color=curve.color, label=curve.label, linewidth=2.0)
    _style(above, title, curves, int(steps[-1]), 1.0, (), log="", clock="updates")
    _draw_differences(below, curves, 1.0)
    above.set_xlabel("")
    below.set_xlabel("update", color=_INK)
    write_figure(figure, Path(path))
    return figure


def _label_sources(source: object) -> dict[str, Source]:
    """The curves by label."""
    if isinstance(source, Mapping):
        sources = {str(label): member for label, member in source.items()}
    else:
        several = isinstance(source, Sequence) and not isinstance(source, str)
        members: Sequence[Any] = source if several else (source,)  # type: ignore[assignment]
        sources = {}
        for member in members:
            label = (
                Path(member.source).name if isinstance(member, Log) else getattr(member, "name", "")
            )
            # Two logs may have the same file name in other folders.
            count = sum(1 for used_label in sources if used_label.partition(" #")[0] == label)
            sources[f"{label} #{count + 1}" if count else str(label)] = member
    if not sources:
        raise ArgumentError("plot needs at least one schedule or log, got none")
    for member in sources.values():
        if not isinstance(member, Log):
            check_schedule(member, "plot takes Schedules and logs")
    return sources


def _scale(clock: str, facts: Mapping[str, Any] | Facts | None) -> float:
    """How many units of the clock an update has."""
    if clock not in _UNITS:
        raise ArgumentError(
            f"clock must be one of {', '.join(_UNITS)}, got {clock!r}",
            where="plot",
            hint=nearest(str(clock), _UNITS),
        )
    run_facts = facts if isinstance(facts, Facts) else Facts.of(facts or {})
    return float(Clock(_UNITS[clock]).per_update(run_facts))


def _end(sources: Any, steps: int | None, key: str) -> int:
    """The last update of the plot."""
    if steps is None:
        ends = [_last(item, key) for item in sources]
        return max(1, *ends)
    if isinstance(steps, bool) or not isinstance(steps, int) or steps <= 0:
        raise DefinitionError(
            f"steps must be an integer above 0, got {describe(steps)}", where="plot"
        )
    return steps


def _last(source: Source, key: str) -> int:
    if isinstance(source, Schedule):
        return last_step(source)
    steps, _ = _points(source, key)
    return int(steps[-1])


def _points(log: Log, key: str) -> tuple[NDArray[np.int64], FloatArray]:
    """The logged values of a key by update, in order."""
    if key not in log.values:
        raise ArgumentError(
            f"the log has no {key!r}", where=log.source, hint=nearest(key, log.values)
        )
    steps, series, _ = log.in_order(key)
    if not len(steps):
        raise ArgumentError(f"the log has no value of {key!r}", where=log.source)
    return steps, series.numbers


def points_of(source: Source, end: int, key: str) -> tuple[NDArray[np.int64], FloatArray]:
    """Returns the steps and values of a curve up to a step; both sides of a schedule's boundaries.

    Raises:
        ArgumentError: A log has no value of this key.
    """
    if isinstance(source, Log):
        steps, values = _points(source, key)
        within = steps <= end
        return steps[within], values[within]
    return schedule_points(source, end, _MOST_POINTS)


def _marks(schedule: Schedule, last: int) -> tuple[int, ...]:
    return tuple(mark for mark in boundaries(schedule.bound) if mark <= last)


def _curve(label: str, source: Source, end: int, key: str, color: str) -> _Curve:
    points, values = points_of(source, end, key)
    if isinstance(source, Log):
        return _Curve(label, color, points, values, (), None)
    return _Curve(label, color, points, values, _marks(source, int(points[-1])), source)


def _draw(
    axes: Axes, curve: _Curve, scale: float, *, is_alone: bool, area: bool, milestones: bool
) -> None:
    # A schedule by a table has a boundary at each entry.
    marks = curve.marks if milestones and len(curve.marks) <= _MOST_MARKS else ()
    for mark in marks:
        color = _QUIET if is_alone else curve.color
        axes.axvline(mark * scale, color=color, linewidth=0.8, linestyle=(0, (2, 3)), zorder=1)
    x = curve.steps * scale
    label = curve.label if not area else f"{curve.label}: area {_area(curve):.6g}"
    if area or (is_alone and curve.schedule is not None):
        alpha = 0.15 if area else 0.08
        axes.fill_between(x, curve.values, color=curve.color, alpha=alpha, linewidth=0, zorder=1)
    if curve.schedule is None:
        axes.plot(x, curve.values, "o", color=curve.color, markersize=3.5, label=label, zorder=4)
        return
    # Few updates are seen as points: between them there are no values.
    marker = "o" if curve.steps.size <= 64 else None
    axes.plot(
        x,
        curve.values,
        color=curve.color,
        linewidth=2.0,
        marker=marker,
        markersize=3.5,
        solid_joinstyle="round",
        label=label,
        zorder=3,
    )


def _area(curve: _Curve) -> float:
    """The sum of the values over the updates of the plot, the last one left out."""
    if curve.schedule is None:
        return float(np.sum(curve.values))
    end = int(curve.steps[-1])
    steps = even_steps(end)
    values = np.asarray(curve.schedule(steps), dtype=np.float64)
    # Each update was computed: the area is the sum, without the end of the plot.
    if len(steps) == end + 1:
        return float(np.sum(values[:-1]))
    # A long schedule is sampled, and the sum is about the integral.
    return float(np.trapezoid(values, steps))


def _style(
    axes: Axes,
    title: str,
    curves: Sequence[_Curve],
    end: int,
    scale: float,
    marks: Sequence[int],
    *,
    log: str,
    clock: str,
) -> None:
    """Title, axes, ticks and legend."""
    if title:
        axes.set_title(title, loc="left", color=_INK, fontsize=13, fontweight="bold", pad=12)
    axes.set_xlabel("step" if clock == "updates" else clock, color=_INK)
    axes.set_ylabel("value", color=_INK)
    axes.margins(y=0.06)
    if "x" in log:
        axes.set_xscale("log")
        # From update 1: 0 has no logarithm.
        axes.set_xlim(scale, end * scale)
    else:
        axes.set_xlim(0, end * scale)
        _mark_steps(axes, end, scale, marks)
    if "y" in log:
        axes.set_yscale("log")
    else:
        # Rates are compared by their ratio, which a cut axis distorts.
        if min(float(curve.values.min()) for curve in curves) >= 0:
            axes.set_ylim(bottom=0)
        axes.ticklabel_format(axis="y", style="sci", scilimits=(-3, 4), useMathText=True)
    if len(curves) > 1 or "area" in str(axes.get_legend_handles_labels()[1]):
        axes.legend(frameon=False, labelcolor=_INK, fontsize=9)
    axes.grid(axis="y", color=_QUIET, alpha=0.2, linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(_QUIET)
    axes.tick_params(colors=_INK, length=3)


def _mark_steps(axes: Axes, end: int, scale: float, marks: Sequence[int]) -> None:
    """Ticks at the boundaries, and their labels."""
    if scale != 1:
        axes.xaxis.set_major_formatter(lambda x, _: _short(x))
        return
    ticks = _ticks(end, marks)
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


def _short(number: float) -> str:
    """A number with K, M, B or T for thousands, millions, billions or trillions."""
    for factor, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "K")):
        if abs(number) >= factor:
            return f"{number / factor:g} {letter}"
    return f"{number:g}"


def _draw_differences(axes: Axes, curves: Sequence[_Curve], scale: float) -> None:
    """Each other curve minus the first one, at the updates of the points of both."""
    first, *further_curves = curves
    for curve in further_curves:
        steps, first_values, values = _together(first, curve)
        style = "o" if curve.schedule is None and first.schedule is not None else "-"
        axes.plot(steps * scale, values - first_values, style, color=curve.color, markersize=3)
    axes.axhline(0, color=_QUIET, linewidth=0.8)
    axes.set_ylabel(f"minus {first.label}"[:24], color=_INK, fontsize=9)
    axes.ticklabel_format(axis="y", style="sci", scilimits=(-3, 4), useMathText=True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(_QUIET)
    axes.tick_params(colors=_INK, length=3)


def _together(left: _Curve, right: _Curve) -> tuple[NDArray[np.int64], FloatArray, FloatArray]:
    """Updates that both curves have, and the values of both."""
    if left.schedule is not None and right.schedule is not None:
        last = min(int(left.steps[-1]), int(right.steps[-1]))
        steps = np.union1d(left.steps, right.steps)
        steps = steps[steps <= last]
        schedule_values = np.asarray(left.schedule(steps), dtype=np.float64)
        return steps, schedule_values, np.asarray(right.schedule(steps), dtype=np.float64)
    if left.schedule is not None:
        logged_steps, values, schedule_values = _together(right, left)
        return logged_steps, schedule_values, values
    if right.schedule is not None:
        last = int(right.steps[-1])
        is_covered = left.steps <= last
        return (
            left.steps[is_covered],
            left.values[is_covered],
            np.asarray(right.schedule(left.steps[is_covered]), dtype=np.float64),
        )
    steps, at, also_at = np.intersect1d(left.steps, right.steps, return_indices=True)
    return steps, left.values[at], right.values[also_at]


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
