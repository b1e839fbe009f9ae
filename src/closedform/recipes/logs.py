"""Logs of training runs: CSV, JSON lines, or the JSON of a trainer's state."""

from __future__ import annotations

import csv
import io
import json
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from os import PathLike
from pathlib import Path
from typing import Any

from closedform.errors import ConfigError

LOG_SUFFIXES = (".csv", ".tsv", ".jsonl", ".ndjson")
MAX_LOG_BYTES = 100_000_000
STEPS = ("step", "global_step", "_step", "iteration", "iter", "update", "num_updates", "steps")
"""Names of the column of updates, of which the first counts; ``train/`` before it is left out."""

KEYS: Mapping[str, tuple[str, ...]] = {
    "lr": ("lr", "learning_rate", "lr-adamw", "lr-adam", "lr-sgd", "learning-rate", "lr/0"),
    "weight_decay": ("weight_decay", "wd", "weight-decay"),
    "momentum": ("momentum",),
}
"""Key of the param group -> the names of its column."""

_MOST_DIGITS = 400
_FEW_DIGITS = 14
"""A number with fewer digits was rounded when it was printed."""


@dataclass(frozen=True, slots=True)
class Logged:
    """A logged value.

    Attributes:
        value: The number as it is printed.
        precision: How far the true value may be from it: half a unit of the last printed digit, or
            a rounding to float32 or float64.
    """

    value: Fraction
    precision: Fraction


@dataclass(frozen=True, slots=True)
class Log:
    """The values of a run by update.

    Attributes:
        steps: The updates done before each value, in the order of the log.
        values: Key of the param group -> a value for each of ``steps``, None where there is none.
        source: The file.
    """

    steps: tuple[int, ...]
    values: Mapping[str, tuple[Logged | None, ...]]
    source: str


def read_log(path: str | PathLike[str], offset: int = 0) -> Log:
    """Returns the values that a log has for each update.

    Args:
        path: A CSV or TSV file with a header, JSON lines, or a JSON file with a ``log_history``.
        offset: The logged step of update 0: 1 if the log counts the update that used the value.

    Raises:
        ConfigError: The file cannot be read, or has no column of steps or of learning rates.
    """
    file = Path(path)
    rows = list(_rows(file))
    if not rows:
        raise ConfigError("the log has no rows", where=str(file))
    names = list(dict.fromkeys(name for row in rows for name in row))
    step_name = _column(names, STEPS)
    matching = {key: _column(names, known) for key, known in KEYS.items()}
    found = {key: name for key, name in matching.items() if name is not None}
    if step_name is None or "lr" not in found:
        raise ConfigError(
            f"a log must have a step and a learning rate, got the columns {', '.join(names)[:200]}",
            where=str(file),
            hint=f"name them {STEPS[0]} and {KEYS['lr'][0]}",
        )
    steps = [_integer(row.get(step_name)) for row in rows]
    columns = {key: logged([row.get(name) for row in rows]) for key, name in found.items()}
    chosen = [
        index
        for index, step in enumerate(steps)
        if step is not None
        and step >= offset
        and any(column[index] is not None for column in columns.values())
    ]
    return Log(
        tuple((steps[index] or 0) - offset for index in chosen),
        {key: tuple(column[index] for index in chosen) for key, column in columns.items()},
        str(file),
    )


def _rows(file: Path) -> Iterable[Mapping[str, str]]:
    if not file.is_file():
        raise ConfigError("there is no such file", where=str(file))
    try:
        if file.stat().st_size > MAX_LOG_BYTES:
            raise ConfigError(f"a log must have at most {MAX_LOG_BYTES} bytes", where=str(file))
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the file: {error}", where=str(file)) from error
    suffix = file.suffix.lower()
    try:
        if suffix in (".csv", ".tsv"):
            delimiter = "\t" if suffix == ".tsv" else ","
            return [
                {name: value for name, value in row.items() if name and isinstance(value, str)}
                for row in csv.DictReader(io.StringIO(text), delimiter=delimiter)
            ]
        if suffix == ".json":
            return _json_rows(_parsed(text))
        return [
            row for line in text.splitlines() if line.strip() for row in _json_rows(_parsed(line))
        ]
    except (ValueError, RecursionError, csv.Error) as error:
        raise ConfigError(f"this is not a log: {error}", where=str(file)) from error


def _parsed(text: str) -> Any:
    return json.loads(text, parse_float=str, parse_int=str, parse_constant=str)


def _json_rows(content: Any) -> list[Mapping[str, str]]:
    if isinstance(content, Mapping) and isinstance(content.get("log_history"), list):
        content = content["log_history"]
    rows = content if isinstance(content, list) else [content]
    return [
        {str(name): value for name, value in row.items() if isinstance(value, str)}
        for row in rows
        if isinstance(row, Mapping)
    ]


def _column(names: list[str], known: Iterable[str]) -> str | None:
    plain = {name.strip().lower().removeprefix("train/"): name for name in reversed(names)}
    return next((plain[name] for name in known if name in plain), None)


def _integer(text: str | None) -> int | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return int(number) if number == int(number) else None


@dataclass(frozen=True, slots=True)
class _Printed:
    """A number as it is printed: its value, its significant digits and the unit of the last."""

    value: Fraction
    digits: int
    exponent: int


def logged(cells: list[str | None]) -> tuple[Logged | None, ...]:
    """The numbers of a column, with the precision of its format.

    The format has the most digits that occur, after the point or in all: shorter numbers have
    zeros that were left out. With 14 digits and more, the numbers are those of float64, or of
    float32 where all of them are.
    """
    numbers = [_printed(cell) for cell in cells]
    given = [number for number in numbers if number is not None and number.value != 0]
    most = max((number.digits for number in given), default=_FEW_DIGITS)
    if most >= _FEW_DIGITS:
        is_single = all(_is_single(float(number.value)) for number in given)
        bits = 24 if is_single else 52
        return tuple(
            None if one is None else Logged(one.value, abs(one.value) / 2**bits) for one in numbers
        )
    least = min(number.exponent for number in given)
    return tuple(
        None if one is None else Logged(one.value, _half_unit(one, most, least)) for one in numbers
    )


def _half_unit(one: _Printed, most: int, least: int) -> Fraction:
    """Half a unit of the last digit in a format with ``most`` digits and the unit ``least``."""
    in_all = one.exponent + one.digits - most if one.value else least
    return Fraction(10) ** min(one.exponent, max(least, in_all)) / 2


def _is_single(number: float) -> bool:
    try:
        return float(struct.unpack("f", struct.pack("f", number))[0]) == number
    except OverflowError:
        return False


def _printed(text: str | None) -> _Printed | None:
    word = (text or "").strip().lower()
    mantissa, _, power = word.partition("e")
    digits = mantissa.lstrip("+-").replace(".", "", 1)
    exponent = power.lstrip("+-") or "0"
    if not digits.isdecimal() or not exponent.isdecimal():
        return None
    if len(digits) > _MOST_DIGITS or int(exponent) > _MOST_DIGITS:
        return None
    places = len(mantissa.partition(".")[2])
    return _Printed(Fraction(word), len(digits.lstrip("0")), int(power or 0) - places)
