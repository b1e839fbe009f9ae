"""Output of the commands: tables, headings, errors and progress bars.

On a terminal, tables are folded to its width by rich, if it is installed. Elsewhere each row is one
line, for ``grep`` and ``awk``. Characters that the encoding of a stream does not have are written
in ASCII.
"""

from __future__ import annotations

import codecs
import errno
import io
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Any, TextIO, TypeVar, cast

from closedform.alignment import align_columns
from closedform.cli.parser import UsageError
from closedform.cli.wording import in_terminal
from closedform.errors import ClosedFormError

if TYPE_CHECKING:
    from closedform.analysis.result import Result

Item = TypeVar("Item")

_ASCII = str.maketrans(
    {"…": "...", "–": "-", "—": "-", "─": "-", "│": "|", "┤": "+", "└": "+", "π": "pi", "≤": "<="}
    | {"≥": ">=", "×": "x", "β": "beta", "√": "sqrt", "∞": "inf"}
)


def prepare() -> bool:
    """Makes the streams write a character that their encoding lacks as one of ASCII.

    Returns:
        Whether there is a standard output: a shell may close it, and Python has None for it.
    """
    if sys.stderr is None:
        # Nothing can be told; it is open as long as the process runs.
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    if sys.stdout is None:
        error_line(OSError(errno.EBADF, "it is closed"))
        return False
    codecs.register_error("closedform.ascii", _in_ascii)
    for stream in (sys.stdout, sys.stderr):
        # Tests and notebooks replace the streams by objects without reconfigure().
        if isinstance(stream, io.TextIOWrapper) and not is_unicode(stream.encoding):
            stream.reconfigure(errors="closedform.ascii")
    return True


def is_unicode(encoding: str | None) -> bool:
    """Returns whether an encoding has all characters.

    Example:
        >>> is_unicode("utf-8"), is_unicode("ascii"), is_unicode(None)
        (True, False, True)
    """
    try:
        "⣿┤─…".encode(encoding or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _in_ascii(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end].translate(_ASCII)
    return text.encode("ascii", "replace").decode("ascii"), error.end


def error_line(error: Exception) -> None:
    """Prints an error on stderr as one line, in color on a terminal."""
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, ClosedFormError):
        text = in_terminal(text)
    elif isinstance(error, OSError) and error.filename is None:
        # Errors of a file name it: what is left are the streams.
        text = f"cannot write to the standard output: {error.strerror or error}"
    _line("error", text, "1;31")


def note_line(text: str) -> None:
    """Prints a note on stderr, in color on a terminal."""
    _line("note", text, "1;36")


def _line(kind: str, text: str, color: str) -> None:
    start = f"\x1b[{color}m{kind}:\x1b[0m" if has_color(sys.stderr) else f"{kind}:"
    print(f"{start} {text}", file=sys.stderr)


def has_color(stream: TextIO) -> bool:
    """Returns whether a stream is a terminal that shows colors."""
    # no-color.org: any value that is not empty.
    return stream.isatty() and not os.environ.get("NO_COLOR")


def heading(text: str) -> None:
    """Prints a heading, in bold on a terminal."""
    print(f"\x1b[1m{text}\x1b[0m" if has_color(sys.stdout) else text)


def print_folded(text: str) -> None:
    """Prints a line, on a terminal folded between words to its width."""
    if sys.stdout.isatty():
        import shutil  # with textwrap and the compressors, 3 ms of `closedform --help`
        import textwrap

        width = max(20, shutil.get_terminal_size().columns)
        indent = len(text) - len(text.lstrip()) + 4
        text = textwrap.fill(
            text,
            width,
            subsequent_indent=" " * indent,
            break_long_words=False,
            break_on_hyphens=False,
            drop_whitespace=True,
        )
    print(text)


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: bool = False) -> None:
    """Prints a table: folded on a terminal, else one line per row.

    Args:
        columns: The column titles.
        rows: The rows, each with one cell per column.
        numbers: Whether to right-align all columns but the last.
    """
    if sys.stdout.isatty() and is_unicode(sys.stdout.encoding):
        _print_folded(columns, rows, numbers=numbers)
        return
    for line in align_columns([columns, *rows], numbers=numbers):
        print(line)


def print_json(data: object, indent: int = 1) -> None:
    """Prints data as JSON; characters that the stream does not have are escaped."""
    import json  # with its decoder, a millisecond of `closedform --help`

    text = json.dumps(data, indent=indent, ensure_ascii=not is_unicode(sys.stdout.encoding))
    print(text)


def print_result(result: Result, *, as_json: bool) -> None:
    """Prints the lines of a result, or its data as JSON."""
    if as_json:
        print_json(result.data(), indent=2)
    else:
        print(result)


_QUIET = 2
"""Seconds without a line of output after which a terminal shows that something takes time."""


class _ProgressLine:
    """A line on stderr, a terminal, with what is being done and for how long; output clears it."""

    def __init__(self, stream: TextIO, description: str) -> None:
        self.stream, self.description = stream, description
        self.lock, self.ended = Lock(), Event()
        self.quiet, self.is_shown = 0, False

    def tick(self) -> None:
        """Draws the line once in a second, after the first quiet ones."""
        seconds = 0
        while not self.ended.wait(1):
            seconds += 1
            with self.lock:
                self.quiet += 1
                if self.quiet >= _QUIET:
                    self.stream.write(f"\r\x1b[K{self.description} … {seconds} s")
                    self.stream.flush()
                    self.is_shown = True

    def clear(self) -> None:
        """Removes the line, before other output."""
        with self.lock:
            self.quiet = 0
            if self.is_shown:
                self.stream.write("\r\x1b[K")
                self.stream.flush()
                self.is_shown = False


class _Output:
    """A stream that clears a progress line before it writes."""

    def __init__(self, stream: TextIO, line: _ProgressLine) -> None:
        self._stream, self.line = stream, line

    def write(self, text: str) -> int:
        self.line.clear()
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def working(description: str) -> Iterator[None]:
    """Shows on a terminal's stderr what takes more than 2 s, and how long; silent elsewhere."""
    streams = sys.stdout, sys.stderr
    if not streams[1].isatty():
        yield
        return
    line = _ProgressLine(streams[1], description)
    thread = Thread(target=line.tick, daemon=True)
    sys.stdout, sys.stderr = (cast("TextIO", _Output(stream, line)) for stream in streams)
    thread.start()
    try:
        yield
    finally:
        line.ended.set()
        thread.join()
        line.clear()
        sys.stdout, sys.stderr = streams


def check_free(path: Path | None, *, force: bool) -> None:
    """Refuses to overwrite a file, if one is named; a device may be written to, as /dev/stdout.

    Raises:
        UsageError: The file exists, and ``force`` is not given.
    """
    if path is not None and path.is_file() and not force:
        raise UsageError(f"the file {str(path)!r} exists", hint="add --force to overwrite it")


@contextmanager
def output_folder(path: Path) -> Iterator[None]:
    """Makes a folder; if the block fails, new folders that are empty are removed.

    Raises:
        WriteError: It cannot be made.
    """
    from closedform.files import writing

    with writing(path, "the folder"):
        # From the innermost: an outer folder is empty only after it is removed.
        new = [folder for folder in (path, *path.parents) if not folder.exists()]
        path.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        for folder in new:
            if any(folder.iterdir()):
                break
            folder.rmdir()
        raise


def write_output(path: Path, text: str) -> None:
    """Writes a file whole or not at all, in a folder that is made where it is missing.

    Raises:
        WriteError: It cannot be written.
    """
    from closedform.files import write_file

    with output_folder(path.parent):
        write_file(path, text.encode())


def _print_folded(columns: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: bool) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for index, column in enumerate(columns):
        is_number = numbers and index < len(columns) - 1
        grid.add_column(column, justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        # Text: rich would read [brackets] of a shape as markup.
        grid.add_row(*(Text(cell) for cell in row))
    Console().print(grid)
