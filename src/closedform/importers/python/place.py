"""Places in a user's file, for errors."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable, Container
from dataclasses import dataclass
from pathlib import Path
from traceback import walk_tb
from types import CodeType, FrameType
from typing import Any, TypeAlias

from closedform.errors import TraceError

UserValue: TypeAlias = Any
"""A value of the user's function, of any type."""


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a function.

    Attributes:
        file: The path of its file.
        line: The number of the line.
        function: The name of the function.
    """

    file: str
    line: int
    function: str

    @classmethod
    def of(cls, code: CodeType, line: int | None = None) -> Place:
        """Returns the place of a line of a code; of its first one if not given."""
        return cls(code.co_filename, line or code.co_firstlineno, code.co_qualname)

    @property
    def text(self) -> str:
        """The source text of the line; "" where the file cannot be read."""
        return linecache.getline(self.file, self.line).strip()

    def __str__(self) -> str:
        source = f": `{self.text}`" if self.text else ""
        return f"{Path(self.file).name}, line {self.line}, in {self.function}{source}"


class Untraceable(BaseException):
    """Stops a run: the function cannot be traced.

    It is not an Exception, so that a ``try`` of the user's function does not catch it.

    Args:
        message: The problem.
        where: Its place in the user's file.
        hint: How to fix it.
    """

    def __init__(self, message: str, where: Place | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.what = message
        self.where = where
        self.hint = hint

    def error(self, name: str) -> TraceError:
        """Returns the error that the user sees."""
        where = f"function {name!r}" if self.where is None else str(self.where)
        return TraceError(self.what, where=where, hint=self.hint)


class Unreachable(BaseException):
    """Stops a run whose decisions contradict each other."""


class NotReal(BaseException):
    """Stops a run at a number that is complex, where Python raises no exception."""


def place_of(frame: FrameType | None, codes: Container[int]) -> Place | None:
    """Returns the place of the innermost frame that runs one of some codes, by their ids."""
    while frame is not None:
        if id(frame.f_code) in codes:
            return Place.of(frame.f_code, frame.f_lineno)
        frame = frame.f_back
    return None


def current_place(codes: Container[int]) -> Place | None:
    """Returns the line of the user's code that is running."""
    return place_of(sys._getframe(1), codes)


def place_of_function(function: UserValue) -> Place | None:
    """Returns the first line of a function; None where it has no code."""
    inner = getattr(function, "func", function)
    method = inner if hasattr(inner, "__code__") else getattr(inner, "__func__", None)
    if method is None and callable(inner):
        method = type(inner).__call__
    code = getattr(method, "__code__", None)
    return None if code is None else Place.of(code)


def place_of_exception(error: BaseException, codes: Container[int]) -> Place | None:
    """Returns the line of the user's code at which an exception was raised."""
    places = [
        Place.of(frame.f_code, line)
        for frame, line in walk_tb(error.__traceback__)
        if id(frame.f_code) in codes
    ]
    return places[-1] if places else None


def origin(error: BaseException, where: str, *is_theirs: Callable[[str], bool]) -> str:
    """Returns a place and the file and line of the innermost frame of an exception in their code.

    Args:
        error: The exception.
        where: The place as it is known without the frame.
        *is_theirs: Whether a file is of their code; the first one that some frame satisfies counts.
    """
    frames = [(frame.f_code.co_filename, line) for frame, line in walk_tb(error.__traceback__)]
    for is_own in is_theirs:
        for file, line in reversed(frames):
            if is_own(file):
                return f"{where}, {file}:{line}"
    return where
