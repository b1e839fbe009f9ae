"""Places in a user's file, for errors."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
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
            return Place(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_qualname)
        frame = frame.f_back
    return None


def current_place(codes: Container[int]) -> Place | None:
    """Returns the line of the user's code that is running."""
    return place_of(sys._getframe(1), codes)


def place_of_exception(error: BaseException, codes: Container[int]) -> Place | None:
    """Returns the line of the user's code at which an exception was raised."""
    place: Place | None = None
    traceback: TracebackType | None = error.__traceback__
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if id(code) in codes:
            place = Place(code.co_filename, traceback.tb_lineno, code.co_qualname)
        traceback = traceback.tb_next
    return place
