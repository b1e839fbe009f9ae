"""What the commands print: tables, text, one line for an error, progress on stderr."""

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
    """Prints an error on stderr as one line, red where stderr is a terminal."""
    message = " ".join(str(error).split()) or type(error).__name__
    line = Text("error: ", style="bold red").append(message, style="not bold red")
    Console(stderr=True, soft_wrap=True).print(line)


def heading(text: str) -> None:
    """Prints a title, bold where stdout is a terminal."""
    Console(soft_wrap=True).print(Text(text, style="bold"))


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: bool = False) -> None:
    """Prints rows under column titles.

    Args:
        columns: The titles.
        rows: As many cells a row as there are titles.
        numbers: True to align all columns but the last to the right.
    """
    from rich import box
    from rich.table import Table

    drawing = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for index, column in enumerate(columns):
        to_the_right = numbers and index < len(columns) - 1
        drawing.add_column(column, justify="right" if to_the_right else "left", overflow="fold")
    for row in rows:
        drawing.add_row(*(Text(cell) for cell in row))
    Console().print(drawing)


@contextmanager
def progress(description: str, total: int) -> Iterator[_Bar]:
    """Gives a bar to advance, shown on stderr while the block runs, if that is a terminal."""
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
    """One bar of a ``Progress``."""

    def __init__(self, owner: Progress, description: str, total: int) -> None:
        self._owner = owner
        self._task = owner.add_task(description, total=total)

    def advance(self, amount: int = 1, description: str | None = None) -> None:
        """Counts finished work, and says what comes next."""
        self._owner.update(self._task, advance=amount, description=description)
