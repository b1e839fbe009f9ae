"""A log: the values of a run by update, each with the interval that its digits stand for."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from os import PathLike
from pathlib import Path

from closedform.errors import ArgumentError, ConfigError
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
    printed_offset,
    printed_rows,
    read_text,
)
from closedform.recipes.logs.patterns import patterns_of
from closedform.recipes.logs.printed import Logged, integer, logged_values, parse_printed

OFFSETS = (0, 1)
"""The logged steps of update 0 that are tried."""

_NOT_FINITE = frozenset({"nan", "inf", "+inf", "-inf", "infinity", "-infinity"})
"""Texts of numbers that no schedule has."""

_TRAINER_TAG = "train/learning_rate"
"""The tag of transformers' Trainer in TensorBoard and W&B: its step counts the finished updates."""


@dataclass(frozen=True, slots=True)
class Log:
    """The values of a run by update.

    Attributes:
        steps: The updates done before each value, in the order of the log; -1 for a value that
            counts where the log is read with the other offset.
        values: Key of the param group -> a value for each of ``steps``, None where there is none.
        source: The file.
        lines: The line of each of ``steps`` in the file; empty for values that have none.
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

    steps: tuple[int, ...]
    values: Mapping[str, tuple[Logged | None, ...]]
    source: str
    lines: tuple[int, ...] = ()
    form: str = ""
    offset: int = 0
    is_offset_open: bool = False
    unit: str = "step"
    groups: Mapping[str, tuple[tuple[Logged | None, ...], ...]] = field(default_factory=dict)
    metrics: Mapping[str, tuple[Fraction | None, ...]] = field(default_factory=dict)
    is_multiplier: bool = False
    framework: str = ""
    left_out: tuple[int, ...] = ()

    def at_offset(self, offset: int) -> Log:
        """Returns the log read with another logged step of update 0."""
        steps = tuple(step + self.offset - offset for step in self.steps)
        return replace(self, steps=steps, offset=offset, is_offset_open=False)

    def in_updates(self, count: int, *, are_longer: bool) -> Log:
        """Returns the log with a count that is not one of updates converted to it.

        Args:
            count: The updates in one of the log's steps, or the other way round.
            are_longer: Whether a step of the log has so many updates, such as an epoch; otherwise
                an update has so many of them, such as micro-batches.
        """
        steps = (step * count if are_longer else step // count for step in self.steps)
        return replace(self, steps=tuple(steps), is_offset_open=False)

    def line_of(self, position: int) -> int | None:
        """Returns the line in the file of a value; None where it has none."""
        return self.lines[position] if self.lines else None


def read_log(
    path: str | PathLike[str],
    offset: int | None = None,
    *,
    pattern: str | None = None,
    column: str | None = None,
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
            of a program: "nanochat", "megatron", "torchtitan", "mmengine" or "fairseq".
        column: The column of the rate, where its name does not show it.

    Raises:
        ConfigError: The file cannot be read, or has no column of steps or of learning rates.
        ArgumentError: The pattern is not valid, no row has a value, or a step has two values.
    """
    file = Path(path)
    if not file.exists():
        raise ConfigError("there is no such file", where=str(file))
    if pattern is not None:
        return _with_pattern(file, offset, pattern)
    form = format_of(file)
    if form is None:
        names = ", ".join(candidate.name for candidate in FORMATS)
        raise ConfigError(
            f"this is not a log: it is not one of {names}",
            where=str(file),
            hint="give the pattern of a line, such as 'step {step} .* lr {lr}'",
        )
    text = read_text(file) if form.is_text else ""
    default = printed_offset(text) if form.rows is _PRINTED else form.offset
    try:
        rows = list(form.rows(file, text))
    except (ValueError, RecursionError, csv.Error) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"this is not a log: {error}", where=str(file)) from error
    return _read(rows, file, form, default, offset, column)


_PRINTED = FORMATS[-1].rows


def _with_pattern(file: Path, offset: int | None, pattern: str) -> Log:
    texts = [line_pattern.text for line_pattern in patterns_of(pattern)]
    rows = list(printed_rows(read_text(file), texts))
    if not rows:
        raise ConfigError(f"no line of the log matches {pattern!r}", where=str(file))
    from closedform.recipes.logs.patterns import OFFSETS as OF_PROGRAMS

    return _read(rows, file, FORMATS[-1], OF_PROGRAMS.get(pattern, 0), offset, None)


def _read(
    rows: Sequence[LogLine],
    file: Path,
    form: Format,
    default: int,
    offset: int | None,
    column: str | None,
) -> Log:
    if not rows:
        raise ConfigError("the log has no rows", where=str(file))
    names = list(dict.fromkeys(name for row in rows for name in row.cells))
    if column is not None and column not in names:
        raise ArgumentError(
            f"there is no column {column!r}, got {', '.join(names)[:200]}", where=str(file)
        )
    columns = [Column(column, "lr")] if column else key_columns(names, str(file))
    count, unit = step_column(names), "step"
    if count is None:
        count, unit = epoch_column(names), "epoch"
    if count is None or not any(key_column.key == "lr" for key_column in columns):
        raise ConfigError(
            f"a log must have a step and a learning rate, got the columns {', '.join(names)[:200]}",
            where=str(file),
            hint=f"name them {STEPS[0]} and {KEYS['lr'][0]}, or give column=, --column in a "
            "terminal",
        )
    is_of_trainer = any(key_column.name.endswith(_TRAINER_TAG) for key_column in columns)
    is_of_trainer = is_of_trainer or form.framework == "transformers"
    default = 1 if is_of_trainer else default
    first = default if offset is None else offset
    metrics = metric_columns(names)
    value_names = [key_column.name for key_column in columns] + metrics
    entries = []
    for row in rows:
        step = integer(row.cells.get(count))
        has_value = any(parse_printed(row.cells.get(name)) is not None for name in value_names)
        # A line before the first update, such as an evaluation, has no rate of an update.
        if step is not None and step >= (offset or 0) and has_value:
            entries.append((step, row))
    cells = (row.cells.get(part.name) for _, row in entries for part in columns)
    if all(parse_printed(cell) is None for cell in cells):
        name = columns[0].name
        texts = (
            f"{row.cells.get(count)!r:.40} and {row.cells[name]!r:.40}"
            for row in rows
            if name in row.cells
        )
        raise ArgumentError(
            f"no row of the log has a whole number in {count} and a number in {name}, got "
            f"{next(texts, 'no value')}",
            where=str(file),
            hint="a number has a point, as in 0.001",
        )
    _check_steps(entries, columns, names, str(file))
    steps = tuple(step - first for step, _ in entries)
    updates = max(steps, default=0)
    are_floats = form.are_floats or any(key_column.is_of_floats for key_column in columns)

    def values(key_column: Column) -> tuple[Logged | None, ...]:
        cells = [row.cells.get(key_column.name) for _, row in entries]
        return logged_values(cells, updates=updates, are_floats=are_floats)

    groups: dict[str, list[tuple[Logged | None, ...]]] = {}
    for key_column in columns:
        if key_column.group > 0:
            groups.setdefault(key_column.key, []).append(values(key_column))
    return Log(
        steps,
        {key_column.key: values(key_column) for key_column in _first_groups(columns)},
        str(file),
        lines=tuple(row.line for _, row in entries),
        form=form.name,
        offset=first,
        is_offset_open=offset is None,
        unit=unit,
        groups={key: tuple(several) for key, several in groups.items()},
        metrics={
            name: tuple(_number(row.cells.get(name)) for _, row in entries) for name in metrics
        },
        is_multiplier=any(key_column.is_multiplier for key_column in columns),
        framework="transformers" if is_of_trainer else form.framework,
        left_out=tuple(
            row.line
            for row in rows
            if not _NOT_FINITE.isdisjoint(
                (row.cells.get(part.name) or "").strip().lower() for part in columns
            )
        ),
    )


def _check_steps(
    entries: Sequence[tuple[int, LogLine]], columns: Sequence[Column], names: list[str], where: str
) -> None:
    """Refuses a log that has two values for one step.

    Raises:
        ArgumentError: There is such a step.
    """
    epochs = epoch_column(names)
    for column in columns:
        first: dict[int, tuple[Fraction, LogLine]] = {}
        for step, row in entries:
            value = _number(row.cells.get(column.name))
            if value is None:
                continue
            earlier, line = first.setdefault(step, (value, row))
            if earlier == value:
                continue
            hint = "leave out the rows of the other run, or the rows before it was resumed"
            if epochs is not None and line.cells.get(epochs) != row.cells.get(epochs):
                hint = f"the count begins again in each {epochs}: write one that counts all updates"
            raise ArgumentError(
                f"step {step} has two values of {column.name}, {float(earlier):g} in line "
                f"{line.line} and {float(value):g} in line {row.line}",
                where=where,
                hint=hint,
            )


def _first_groups(columns: Sequence[Column]) -> list[Column]:
    """The column of the first param group of each key."""
    first: dict[str, Column] = {}
    for column in columns:
        first.setdefault(column.key, column)
    return [column for column in first.values() if column.group == min(c.group for c in columns)]


def _number(cell: str | None) -> Fraction | None:
    number = parse_printed(cell)
    return None if number is None else number.value
