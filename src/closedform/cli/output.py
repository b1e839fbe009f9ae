"""Output of the commands: tables, headings, errors and progress bars."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

if TYPE_CHECKING:
    from rich.progress import Progress


def error_line(error: Exception) -> None:
    """Prints an error on stderr as one line, in color on a terminal."""
    message = " ".join(str(error).split()) or type(error).__name__
    line = Text("error: ", style="bold red").append(message, style="not bold red")
    Console(stderr=True, soft_wrap=True).print(line)


def heading(text: str) -> None:
    """Prints a heading, in bold on a terminal."""
    Console(soft_wrap=True).print(Text(text, style="bold"))


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: bool = False) -> None:
    """Prints a table.

    Args:
        columns: The column titles.
        rows: The rows, each with one cell per column.
        numbers: Whether to right-align all columns but the last.
    """
    from rich import box
    from rich.table import Table

    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for index, column in enumerate(columns):
        is_number = numbers and index < len(columns) - 1
        grid.add_column(column, justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        grid.add_row(*(Text(cell) for cell in row))
    Console().print(grid)


@contextmanager
def progress(description: str, total: int) -> Iterator[_Bar]:
    """Yields a progress bar, shown on stderr while the block runs if that is a terminal."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )
    with bar:
        yield _Bar(bar, description, total)


class _Bar:
    """One task of a ``Progress``."""

    def __init__(self, owner: Progress, description: str, total: int) -> None:
        self._owner = owner
        self._task = owner.add_task(description, total=total)

    def advance(self, amount: int = 1, description: str | None = None) -> None:
        """Advances the bar and replaces its description."""
        self._owner.update(self._task, advance=amount, description=description)
