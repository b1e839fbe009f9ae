"""A log: the values of a run by update, each with the interval that its digits stand for."""

from __future__ import annotations

import csv
import math
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from closedform.errors import ArgumentError, ConfigError
from closedform.ir.types import FloatArray, StepArray
from closedform.magnitude import LAST_STEP
from closedform.recipes.logs.columns import (
    KEYS,
    STEPS,
    Column,
    epoch_column,
    key_columns,
    metric_columns,
    step_column,
)
from closedform.recipes.logs.formats import (
    FORMATS,
    Format,
    LogLine,
    format_of,
    printed_rows,
    program_of,
    read_text,
)
from closedform.recipes.logs.patterns import OFFSETS as OF_PROGRAMS
from closedform.recipes.logs.patterns import TQDM, patterns_of
from closedform.recipes.logs.printed import Series, logged_values, number_of

OFFSETS = (0, 1)
"""The logged steps of update 0 that are tried."""

_NOT_FINITE = frozenset({"nan", "inf", "+inf", "-inf", "infinity", "-infinity"})
"""Texts of numbers that no schedule has."""

_TRAINER_TAG = "train/learning_rate"
"""The tag of transformers' Trainer in TensorBoard and W&B: its step counts the finished updates."""


@dataclass(frozen=True, slots=True, eq=False)
class Log:
    """The values of a run by update.

    Attributes:
        steps: The updates done before each value, in the order of the log; -1 for a value that
            counts where the log is read with the other offset.
        values: Key of the param group -> a value for each of ``steps``, NaN where there is none.
        source: The file.
        lines: The line of each of ``steps`` in the file; None for values that have none.
        form: The format of the file.
        offset: The logged step of update 0 by which ``steps`` were read.
        is_offset_open: Whether the other offset may be the right one, since none was asked for.
        unit: The count in the log: "step", or "epoch" where it has no steps.
        groups: Key -> the values of the param groups after the first one, in their order.
        metrics: Name of a loss or a score -> its value for each of ``steps``.
        is_multiplier: Whether the rates are in units of the largest one.
        framework: The framework that wrote the rates, where the log shows it.
        left_out: The lines of the file with a rate that is infinite or not a number.
    """

    steps: StepArray
    values: Mapping[str, Series]
    source: str
    lines: StepArray | None = None
    form: str = ""
    offset: int = 0
    is_offset_open: bool = False
    unit: str = "step"
    groups: Mapping[str, tuple[Series, ...]] = field(default_factory=dict)
    metrics: Mapping[str, FloatArray] = field(default_factory=dict)
    is_multiplier: bool = False
    framework: str = ""
    left_out: tuple[int, ...] = ()

    def at_offset(self, offset: int) -> Log:
        """Returns the log read with another logged step of update 0."""
        steps = self.steps + (self.offset - offset)
        return replace(self, steps=steps, offset=offset, is_offset_open=False)

    def in_updates(self, count: int, *, are_longer: bool) -> Log:
        """Returns the log with a count that is not one of updates converted to it.

        Args:
            count: The updates in one of the log's steps, or the other way round.
            are_longer: Whether a step of the log has so many updates, such as an epoch; otherwise
                an update has so many of them, such as micro-batches.
        """
        steps = self.steps * count if are_longer else self.steps // count
        return replace(self, steps=steps, is_offset_open=False)

    def in_order(self, key: str, group: int = 0) -> tuple[StepArray, Series, StepArray | None]:
        """Returns the updates of the values of a key in order, the values, and their lines."""
        series = self.values[key] if group == 0 else self.groups[key][group - 1]
        places = np.flatnonzero(~np.isnan(series.numbers) & (self.steps >= 0))
        places = places[np.argsort(self.steps[places], kind="stable")]
        lines = None if self.lines is None else self.lines[places]
        return self.steps[places], series.select(places), lines


def read_log(
    path: str | PathLike[str],
    offset: int | None = None,
    *,
    pattern: str | None = None,
    column: str | None = None,
    updates_per_epoch: int | None = None,
) -> Log:
    """Returns the values that a log has for each update.

    It reads the formats of ``closedform.recipes.logs.FORMATS``: tables with a header, JSON lines,
    the ``trainer_state.json`` of transformers, TensorBoard's event files, MLflow's metrics, and
    text with lines of several programs or of a pattern.

    Args:
        path: The file; a folder for TensorBoard and MLflow.
        offset: The logged step of update 0: 1 if the log counts the update that used the value. If
            not given, that of the format, and a comparison may read the log with the other one.
        pattern: For text, the pattern of a line, such as ``"step {step} .* lr {lr}"``, or the name
            of a program of ``PRESETS``, such as "nanochat" or "megatron".
        column: The column of the rate, where its name does not show it.
        updates_per_epoch: The updates of an epoch, for a log that counts them anew in each.

    Raises:
        ConfigError: The file cannot be read, or has no column of steps or of learning rates.
        ArgumentError: The pattern is not valid, no row has a value, a step has two values, or a
            count begins again in each epoch of unknown length.
    """
    file = Path(path)
    if not file.exists():
        raise ConfigError("there is no such file", where=str(file))
    if pattern is not None:
        texts = [line_pattern.text for line_pattern in patterns_of(pattern)]
        table = _Table.of(printed_rows(read_text(file), texts, are_bars=pattern == TQDM))
        if not len(table.lines):
            raise ConfigError(f"no line of the log matches {pattern!r}", where=str(file))
        printed = replace(FORMATS[-1], offset=OF_PROGRAMS.get(pattern, 0), framework=pattern)
        return _read(table, file, printed, offset, None, updates_per_epoch)
    form = format_of(file)
    if form is None:
        names = ", ".join(candidate.name for candidate in FORMATS)
        raise ConfigError(
            f"this is not a log: it is not one of {names}",
            where=str(file),
            hint="give the pattern of a line, such as 'step {step} .* lr {lr}'",
        )
    text = read_text(file) if form.is_text else ""
    if form.rows is _PRINTED:
        program = program_of(text)
        form = replace(form, offset=OF_PROGRAMS.get(program, 0), framework=program)
    try:
        table = _Table.of(form.rows(file, text))
        del text
    except (ValueError, RecursionError, csv.Error) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"this is not a log: {error}", where=str(file)) from error
    return _read(table, file, form, offset, column, updates_per_epoch)


_PRINTED = FORMATS[-1].rows


def _read(
    table: _Table,
    file: Path,
    form: Format,
    offset: int | None,
    column: str | None,
    updates_per_epoch: int | None,
) -> Log:
    where, names = str(file), [*table.counts, *table.cells]
    lines = np.array(table.lines)
    if not len(lines):
        raise ConfigError("the log has no rows", where=where)
    columns, count, unit = _select_columns(names, column, where)
    is_of_trainer = any(part.name.endswith(_TRAINER_TAG) for part in columns)
    is_of_trainer = is_of_trainer or form.framework == "transformers"
    first = (1 if is_of_trainer else form.offset) if offset is None else offset
    steps = np.array(table.counts[count])
    epochs = epoch_column(names)
    if unit == "step" and epochs is not None:
        lengths = table.cells.get("batches", []) if form.rows is _PRINTED else []
        length = number_of(lengths[0]) if lengths else updates_per_epoch
        epoch_of = np.array(table.counts[epochs])
        # Rows of an evaluation count their own batches, and have no rate.
        counted = np.where([bool(rate) for rate in table.cells[columns[0].name]], steps, np.nan)
        if lengths or _begins_again(counted, epoch_of, lines, length, where):
            # Epochs are counted from 0 or from 1.
            base = np.min(epoch_of, initial=1, where=~np.isnan(epoch_of))
            steps += (np.floor(epoch_of) - base) * (length or 0)
    # A line before the first update, such as an evaluation, has no rate of an update.
    is_step = (steps == np.floor(steps)) & (steps >= (offset or 0)) & (steps <= LAST_STEP)
    updates = int(np.max(steps, initial=first, where=is_step)) - first
    are_floats = form.are_floats or any(part.is_of_floats for part in columns)
    metrics = metric_columns(names)
    series: dict[str, Series] = {}
    is_value: dict[str, NDArray[np.bool_]] = {}
    left_out: set[int] = set()
    first_text: str | None = None
    for name in dict.fromkeys([part.name for part in columns] + metrics):
        texts = table.cells.pop(name)
        series[name] = logged_values(texts, updates=updates, are_floats=are_floats)
        is_value[name] = is_step & ~np.isnan(series[name].numbers)
        first_text = next(filter(None, texts), first_text)
        if name not in metrics:
            places = np.flatnonzero(np.isnan(series[name].numbers)).tolist()
            words = ((place, (texts[place] or "").strip().lower()) for place in places)
            left_out.update(place for place, word in words if word in _NOT_FINITE)
    if not any(is_value[part.name].any() for part in columns):
        raise ArgumentError(
            f"no row of the log has a whole number in {count} and a number in {columns[0].name}, "
            f"got {table.first_row.get(count)!r:.40} and {first_text or ''!r:.40}",
            where=where,
            hint="a number has a point, as in 0.001"
            if unit == "step"
            else "give a log with a count of updates: the state of the trainer, or the text with "
            "its bar of progress",
        )
    for part in columns:
        _check_steps(steps, series[part.name].numbers, is_value[part.name], lines, part, where)
    rows = np.flatnonzero(np.any(list(is_value.values()), axis=0))
    selections = {name: part.select(rows) for name, part in series.items()}
    groups: dict[str, tuple[Series, ...]] = {}
    for part in columns:
        if part.group > 0:
            groups[part.key] = (*groups.get(part.key, ()), selections[part.name])
    return Log(
        steps[rows].astype(np.int64) - first,
        {part.key: selections[part.name] for part in _first_groups(columns)},
        where,
        lines=lines[rows],
        form=form.name,
        offset=first,
        is_offset_open=offset is None,
        unit=unit,
        groups=groups,
        metrics={name: selections[name].numbers for name in metrics},
        is_multiplier=any(part.is_multiplier for part in columns),
        framework="transformers" if is_of_trainer else form.framework,
        left_out=tuple(int(lines[place]) for place in sorted(left_out)),
    )


def _select_columns(
    names: Sequence[str], column: str | None, where: str
) -> tuple[list[Column], str, str]:
    """The columns of keys, that of the count and its unit.

    Raises:
        ArgumentError: There is no such column.
        ConfigError: There is no count or no rate.
    """
    if column is not None and column not in names:
        raise ArgumentError(
            f"there is no column {column!r}, got {', '.join(names)[:200]}", where=where
        )
    columns = [Column(column, "lr")] if column else key_columns(names, where)
    count, unit = step_column(names), "step"
    if count is None:
        count, unit = epoch_column(names), "epoch"
    if count is None or not any(part.key == "lr" for part in columns):
        raise ConfigError(
            f"a log must have a step and a learning rate, got the columns {', '.join(names)[:200]}",
            where=where,
            hint=f"name them {STEPS[0]} and {KEYS['lr'][0]}, or give column=, --column in a "
            "terminal",
        )
    return columns, count, unit


@dataclass(slots=True)
class _Table:
    """The cells of a log by column, each as long as ``lines``: NaN or None in rows without one.

    Attributes:
        counts: The columns of steps and epochs, as numbers: a million texts take 64 MB.
        cells: The other columns, as texts.
        lines: The line of each row.
        first_row: The cells of the first row.
    """

    counts: dict[str, array[float]]
    cells: dict[str, list[str | None]]
    lines: array[int]
    first_row: Mapping[str, str]

    @classmethod
    def of(cls, rows: Iterable[LogLine]) -> _Table:
        """Returns the table of some rows."""
        counts: dict[str, array[float]] = {}
        cells: dict[str, list[str | None]] = {}
        lines = array("q")
        first_row: Mapping[str, str] = {}
        for count, row in enumerate(rows):
            first_row = first_row or row.cells
            for name, text in row.cells.items():
                if (texts := cells.get(name)) is not None:
                    if len(texts) < count:
                        texts.extend([None] * (count - len(texts)))
                    texts.append(text)
                elif (numbers := counts.get(name)) is not None:
                    if len(numbers) < count:
                        numbers.extend([math.nan] * (count - len(numbers)))
                    numbers.append(number_of(text))
                elif step_column([name]) is None and epoch_column([name]) is None:
                    cells[name] = [*[None] * count, text]
                else:
                    counts[name] = array("d", [*[math.nan] * count, number_of(text)])
            lines.append(row.line)
        for numbers in counts.values():
            numbers.extend([math.nan] * (len(lines) - len(numbers)))
        for texts in cells.values():
            texts.extend([None] * (len(lines) - len(texts)))
        return cls(counts, cells, lines, first_row)


def _begins_again(
    steps: FloatArray, epochs: FloatArray, lines: StepArray, length: float | None, where: str
) -> bool:
    """Whether the steps are counted anew in each epoch.

    Raises:
        ArgumentError: They are, and the updates of an epoch are not known.
    """
    rows = np.flatnonzero(~np.isnan(steps) & ~np.isnan(epochs))
    falls = np.flatnonzero((np.diff(steps[rows]) < 0) & (np.diff(epochs[rows]) > 0))
    if len(falls) and length is None:
        before, after = rows[falls[0]], rows[falls[0] + 1]
        raise ArgumentError(
            f"the count begins again in each epoch: line {lines[before]} has {steps[before]:.0f} "
            f"in epoch {epochs[before]:g} and line {lines[after]} {steps[after]:.0f} in epoch "
            f"{epochs[after]:g}",
            where=where,
            hint="give the updates of an epoch: updates_per_epoch=, --log-epoch in a terminal",
        )
    return bool(len(falls))


def _check_steps(
    steps: FloatArray,
    numbers: FloatArray,
    is_value: NDArray[np.bool_],
    lines: StepArray,
    column: Column,
    where: str,
) -> None:
    """Refuses a log that has two values of a column for one step.

    Raises:
        ArgumentError: There is such a step.
    """
    rows = np.flatnonzero(is_value)
    rows = rows[np.argsort(steps[rows], kind="stable")]
    pairs = np.flatnonzero((np.diff(steps[rows]) == 0) & (np.diff(numbers[rows]) != 0))
    if not len(pairs):
        return
    # The first line of the log that contradicts an earlier one.
    pair = pairs[np.argmin(rows[pairs + 1])]
    row, later = rows[pair], rows[pair + 1]
    raise ArgumentError(
        f"step {steps[later]:.0f} has two values of {column.name}, {numbers[row]:g} in line "
        f"{lines[row]} and {numbers[later]:g} in line {lines[later]}",
        where=where,
        hint="leave out the rows of the other run, or the rows before it was resumed",
    )


def _first_groups(columns: Sequence[Column]) -> list[Column]:
    """The column of the first param group of each key."""
    first: dict[str, Column] = {}
    for column in columns:
        first.setdefault(column.key, column)
    return [column for column in first.values() if column.group == min(c.group for c in columns)]
