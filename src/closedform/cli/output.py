"""Output of the commands: tables, headings, errors and progress bars."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TypeVar

from rich.console import Console
from rich.text import Text

Item = TypeVar("Item")


def error_line(error: Exception) -> None:
    """Prints an error on stderr as one line, in color on a terminal."""
    message = " ".join(str(error).split()) or type(error).__name__
    line = Text("error: ", style="bold red").append(message, style="not bold red")
    Console(stderr=True, soft_wrap=True).print(line)


def note_line(text: str) -> None:
    """Prints a note on stderr, in color on a terminal."""
    line = Text("note: ", style="bold cyan").append(text, style="not bold default")
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


def tracked(items: Sequence[Item], description: str) -> Iterable[Item]:
    """Returns the items, with a progress bar on stderr while they are used, on a terminal."""
    from rich.progress import track

    is_hidden = not sys.stderr.isatty()
    console = Console(stderr=True)
    return track(items, description, console=console, transient=True, disable=is_hidden)
