"""The formats of logs: how rows are read from a file or a folder.

``FORMATS`` has an entry for each: a new one is an entry there. The first one that recognizes the
file by its name and its first bytes reads it.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from closedform.errors import ConfigError
from closedform.files import check_regular
from closedform.recipes.logs.event_files import event_rows
from closedform.recipes.logs.patterns import PRESETS, TQDM, Pattern, parse_pattern, updates_of

LOG_SUFFIXES = (".csv", ".tsv", ".jsonl", ".ndjson", ".log", ".out")
"""Endings that only a log has."""

MAX_LOG_BYTES = 100_000_000

_HEAD = 1 << 20


class LogLine(NamedTuple):
    """A line of a log: its number, and its numbers as they are printed, by the names of columns."""

    line: int
    cells: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Format:
    """A format of logs.

    Attributes:
        name: Its name.
        is_of: Whether a path and the first bytes of the file are of this format; a folder has none.
        rows: Reads the rows, from the path and the text of the file.
        offset: The logged step of update 0, where the reader of the log does not state it.
        are_floats: Whether it writes each float in full.
        is_text: Whether ``rows`` gets the text; it reads the path itself otherwise.
        framework: The framework that writes it; empty for a format of several.
    """

    name: str
    is_of: Callable[[Path, str], bool]
    rows: Callable[[Path, str], Iterator[LogLine]]
    offset: int = 0
    are_floats: bool = False
    is_text: bool = True
    framework: str = ""


def _has_suffix(*suffixes: str) -> Callable[[Path, str], bool]:
    return lambda path, head: path.suffix.lower() in suffixes


def _is_trainer_state(path: Path, head: str) -> bool:
    return path.suffix.lower() == ".json" and '"log_history"' in head


def _is_json_array(path: Path, head: str) -> bool:
    return path.suffix.lower() == ".json" and head.lstrip().startswith("[")


def _is_json_lines(path: Path, head: str) -> bool:
    """Several objects, one in each line: also the ``.json`` that mmengine writes."""
    if path.suffix.lower() in (".jsonl", ".ndjson"):
        return True
    first, _, rest = head.lstrip().partition("\n")
    if path.suffix.lower() != ".json" or not rest.lstrip().startswith("{"):
        return False
    return first.startswith("{") and first.rstrip().endswith("}")


def _is_event_file(path: Path, head: str) -> bool:
    del head
    if path.is_dir():
        return any(path.glob("*tfevents*"))
    return "tfevents" in path.name


def _is_metric_file(path: Path, head: str) -> bool:
    """MLflow's ``mlruns/EXPERIMENT/RUN/metrics/NAME``: lines of a time, a value and a step."""
    del head
    if path.is_dir():
        return path.name == "metrics" or (path / "metrics").is_dir()
    return "metrics" in path.parts[:-1] and path.suffix.lower() not in (".csv", ".json", ".jsonl")


def _is_printed(path: Path, head: str) -> bool:
    """Text in which a line is one of those that a program prints."""
    del path
    return next(_matching(head.splitlines()), None) is not None


def _table_rows(path: Path, text: str) -> Iterator[LogLine]:
    header = text.partition("\n")[0]
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    # Spreadsheets of some locales separate columns by semicolons.
    if delimiter not in header and ";" in header:
        delimiter = ";"
    # A list of all lines, or a StringIO, would need several times the memory of the text.
    reader = csv.reader((line[0] for line in _LINES.finditer(text)), delimiter=delimiter)
    names = [name.strip() for name in next(filter(None, reader), [])]
    is_long = any(name.lower() in _VALUE_COLUMNS for name in names)
    for row in reader:
        # Rows may have fewer cells than the header, or more, which have no name.
        cells = dict(zip(names, row, strict=False))
        cells.pop("", None)
        if cells:
            yield LogLine(reader.line_num, _in_columns(cells) if is_long else cells)


_LINES = re.compile(r"[^\n]*\n|[^\n]+")
_NAME_COLUMNS = ("key", "metric", "tag", "name")
_VALUE_COLUMNS = ("value", "metric_value")


def _in_columns(cells: Mapping[str, str]) -> Mapping[str, str]:
    """A row of a long table, with a name and a value, as one with a column of that name.

    MLflow's exports have the columns key, value and step; the CSV that TensorBoard downloads has
    one tag, of which only the value is in the file.
    """
    lower = {name.lower(): name for name in cells}
    value = next((lower[name] for name in _VALUE_COLUMNS if name in lower), None)
    if value is None:
        return cells
    name = next((lower[name] for name in _NAME_COLUMNS if name in lower), None)
    rest = {key: text for key, text in cells.items() if key not in (name, value)}
    if name is not None:
        return {**rest, cells[name]: cells[value]}
    # TensorBoard's download of one tag: Wall time, Step, Value.
    if "wall time" in lower:
        return {**rest, "lr": cells[value]}
    return cells


def _parse_json(text: str) -> Any:
    """JSON with its numbers as strings, since a logged number counts by its printed digits."""
    return json.loads(text, parse_float=str, parse_int=str, parse_constant=str)


def _object_row(line: int, content: Any) -> Iterator[LogLine]:
    if isinstance(content, Mapping):
        yield LogLine(line, dict(_cells("", content)))


def _cells(prefix: str, content: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The numbers of an object; numbers of an inner object have the prefix ``name/``."""
    for name, value in content.items():
        if isinstance(value, str):
            yield f"{prefix}{name}", value
        elif isinstance(value, Mapping) and not prefix:
            yield from _cells(f"{name}/", value)


def _array_rows(path: Path, text: str) -> Iterator[LogLine]:
    del path
    content = _parse_json(text)
    if isinstance(content, Mapping):
        content = content.get("log_history")
    for position, row in enumerate(content if isinstance(content, list) else [content], 1):
        yield from _object_row(position, row)


def _line_rows(path: Path, text: str) -> Iterator[LogLine]:
    del path
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            yield from _object_row(number, _parse_json(line))


def _metric_rows(path: Path, text: str) -> Iterator[LogLine]:
    del text
    folder = path / "metrics" if (path / "metrics").is_dir() else path
    files = (
        sorted(file for file in folder.rglob("*") if file.is_file()) if path.is_dir() else [path]
    )
    by_step: dict[str, dict[str, str]] = {}
    for file in files:
        root = next(parent for parent in file.parents if parent.name == "metrics")
        name = file.relative_to(root).as_posix()
        for line in read_text(file).splitlines():
            words = line.split()
            if len(words) != 3:
                raise ConfigError(
                    f"a line of a metric must have a time, a value and a step, got {line[:80]!r}",
                    where=str(file),
                )
            by_step.setdefault(words[2], {})[name] = words[1]
    for position, (step, cells) in enumerate(by_step.items(), 1):
        yield LogLine(position, {"step": step, **cells})


def _matching(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The programs of which a line is one, with the text of the pattern."""
    for program, texts in PRESETS.items():
        for text in texts:
            pattern = parse_pattern(text)
            if any(pattern.match(line) for line in lines):
                yield program, text


def printed_rows(
    text: str, patterns: Sequence[str], *, are_bars: bool = False
) -> Iterator[LogLine]:
    """Yields the lines of a text that match one of several patterns.

    Args:
        text: The text.
        patterns: The patterns.
        are_bars: Whether the lines are bars of progress, which are drawn several times with one
            count, the last time with its own rate; full ones have no next update.
    """
    rows = list(_with_bars(text, [parse_pattern(pattern) for pattern in patterns]))
    for row, following in zip_longest(rows, rows[1:]):
        is_drawn_again = following is not None and _place(row) == _place(following)
        is_full = row.cells.get("step") in (row.cells.get("total"), row.cells.get("batches"))
        if not are_bars or not (is_drawn_again or is_full):
            yield row


def _place(row: LogLine) -> tuple[str | None, str | None]:
    return row.cells.get("epoch"), row.cells.get("step")


_BAR = re.compile(r"\| {0,20}(\d{1,18})/(\d{1,18}) \[\d")
"""The count of a bar of tqdm, and its total."""


def _with_bars(text: str, patterns: Sequence[Pattern]) -> Iterator[LogLine]:
    """The lines that match; one without a count of updates has that of the bar drawn after it.

    tqdm clears its bar to write a line, and draws it again. The bar of the training is the one with
    the total that is next to most of the lines.
    """
    rows: list[LogLine] = []
    bars: dict[str, dict[int, str]] = {}
    # Bars of progress end their lines with a carriage return, at which splitlines splits, too.
    for number, line in enumerate(text.splitlines(), 1):
        numbers = next(filter(None, (pattern.match(line) for pattern in patterns)), None)
        if numbers is not None:
            rows.append(LogLine(number, updates_of(numbers)))
        elif rows and (bar := _BAR.search(line)) is not None:
            bars.setdefault(bar[2], {}).setdefault(len(rows) - 1, bar[1])
    counts = max(bars.values(), key=len, default={})
    for place, row in enumerate(rows):
        if "step" in row.cells or place not in counts:
            yield row
        else:
            yield LogLine(row.line, {**row.cells, "step": counts[place]})


def _printed_rows(path: Path, text: str) -> Iterator[LogLine]:
    del path
    program = program_of(text)
    yield from printed_rows(text, PRESETS[program], are_bars=program == TQDM)


def program_of(text: str) -> str:
    """Returns the program that prints the lines of a text."""
    return next(_matching(text[:_HEAD].splitlines()))[0]


def _event_rows(path: Path, text: str) -> Iterator[LogLine]:
    del text
    for position, (step, cells) in enumerate(event_rows(path), 1):
        yield LogLine(position, {"step": step, **cells})


FORMATS = (
    Format("TensorBoard's event files", _is_event_file, _event_rows, is_text=False),
    Format("MLflow's metrics", _is_metric_file, _metric_rows, are_floats=True, is_text=False),
    Format(
        "the state of transformers' Trainer",
        _is_trainer_state,
        _array_rows,
        offset=1,
        are_floats=True,
        framework="transformers",
    ),
    Format("a JSON array", _is_json_array, _array_rows, are_floats=True),
    Format("JSON lines", _is_json_lines, _line_rows, are_floats=True),
    Format("a table", _has_suffix(".csv", ".tsv"), _table_rows),
    Format("printed lines", _is_printed, _printed_rows),
)
"""The formats, in the order in which they are tried."""


def format_of(path: Path) -> Format | None:
    """Returns the format of a file or folder; None if it is not a log.

    Raises:
        ConfigError: It is a pipe or a device.
    """
    check_regular(path, ConfigError)
    head = "" if path.is_dir() else _head(path)
    return next((form for form in FORMATS if form.is_of(path, head)), None)


def is_log(path: Path) -> bool:
    """Returns whether a file or folder is a log, by its name and its first bytes."""
    if path.name.lower().endswith(LOG_SUFFIXES):
        return True
    if not path.exists() or path.suffix.lower() in (".onnx", ".py", ".yaml", ".yml", ".toml"):
        return False
    if path.suffix.lower() in (".sh", ".args", ".gin", ".ipynb"):
        return False
    return format_of(path) is not None


def read_text(file: Path) -> str:
    """Returns the text of a file.

    Raises:
        ConfigError: It does not exist, is too large, or is not UTF-8.
    """
    check_regular(file, ConfigError)
    if not file.is_file():
        raise ConfigError("there is no such file", where=str(file))
    try:
        if file.stat().st_size > MAX_LOG_BYTES:
            raise ConfigError(f"a log must have at most {MAX_LOG_BYTES} bytes", where=str(file))
        return file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the file: {error}", where=str(file)) from error


def _head(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_HEAD).decode("utf-8-sig", errors="replace")
    except OSError:
        return ""
