"""How a run decides on traced numbers, and what it keeps of them.

A schedule is traced at all steps at once: its numbers are exact and finite, and a run records what
computes them. A step of an optimizer runs on stand-ins: its numbers may be NaN, and each has the
value that Python computes in this run.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

import sympy as sp

if TYPE_CHECKING:
    from closedform.importers.python.number import Number

Comparison = Callable[..., sp.Basic]
"""A comparison of SymPy, such as ``sp.Lt``."""


class Decider(ABC):
    """A run of traced code.

    Attributes:
        is_exact: Whether numbers are exact, and finite; otherwise each has a stand-in.
        tape: Keeps the operations, as ``Tape`` does, or the stand-ins that they make.
    """

    is_exact = True
    tape: Any

    @abstractmethod
    def refuse(self, reason: str, hint: str | None = None) -> BaseException:
        """Returns the signal of something that is not traced, which the run ends with."""

    def doubtful_error(self, reason: str) -> BaseException:
        """Returns an exception that may be raised, but not handled by the traced code."""
        return self.refuse(reason)

    def not_real(self, reason: str) -> BaseException:
        """Returns the signal of a number that is not real, where Python raises no exception."""
        return self.refuse(reason)

    @abstractmethod
    def decide(self, condition: sp.Basic, value: bool | None = None) -> bool:
        """Returns the truth of a condition, which has this value on the stand-ins."""

    @abstractmethod
    def compare(self, kind: Comparison, left: Number, right: Number) -> Any:
        """Returns the truth of a comparison."""

    @abstractmethod
    def raises(self, kind: Comparison, number: Number) -> bool:
        """Returns whether Python raises an exception, as where a number compares so with 0."""

    def check_finite(self, number: Number) -> None:
        """Raises the exception of Python where an integer is made of NaN or an infinity."""
        return  # an exact number is finite

    @abstractmethod
    def concrete(self, number: Number, purpose: str) -> Any:
        """Returns the number of Python that a number is in the whole run.

        Args:
            number: The number.
            purpose: Its use, for errors.
        """

    def scalar(self, value: Any) -> Any:
        """Returns the number of a tensor that a function takes as a number; others as they are."""
        return value

    def settle(self, number: Number) -> Any:
        """Returns the result of an operation; a plain number where it is constant."""
        return number

    @abstractmethod
    def exact(self, value: float) -> sp.Expr:
        """Returns the expression of a constant."""

    @abstractmethod
    def fits(self, expr: sp.Expr, info: Any) -> bool | sp.Basic:
        """Returns True if a fixed width holds an integer at all steps, or the condition."""

    def is_bounded(self, condition: sp.Basic) -> bool:
        """Returns whether a condition is decided at all steps of the run."""
        return False

    @abstractmethod
    def is_shown(self, frame: FrameType) -> bool:
        """Returns whether the text that a frame makes is only raised or logged."""

    @abstractmethod
    def note_single(self) -> None:
        """Notes that the traced code computes in float32."""
