"""How a run decides on traced numbers, and what it keeps of them.

A schedule is traced at all steps at once: its numbers are exact and finite, and a run records what
computes them. A step of an optimizer runs on stand-ins: its numbers may be NaN, and each has the
value that Python computes in this run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol

import sympy as sp

if TYPE_CHECKING:
    from closedform.importers.python.number import Number

Comparison = Callable[..., sp.Basic]
"""A comparison of SymPy, such as ``sp.Lt``."""


class Recorder(Protocol):
    """Keeps the operations of a run, or their values."""

    @property
    def is_paused(self) -> bool:
        """Whether operations are parts of one that is kept as a whole."""

    def begin(self, native: Callable[..., Any]) -> None:
        """Begins an operation, by the function that does it for plain numbers."""

    def end(self) -> None:
        """Ends the operation that was begun last."""

    def call(
        self, function: Callable[..., Any], args: tuple[Any, ...], names: Mapping[str, Any]
    ) -> Any:
        """Returns what is kept of the result of a call."""

    def raises(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        names: Mapping[str, Any],
        error: Exception,
    ) -> None:
        """Keeps a call that raises an exception."""

    def check(self, ref: Any, value: bool | int | float) -> None:
        """Keeps a truth or a number by which the run chose its path."""


class Decider(Protocol):
    """A run of traced code.

    Attributes:
        is_exact: Whether numbers are exact, and finite; otherwise each has a stand-in.
    """

    is_exact: bool

    @property
    def tape(self) -> Recorder:
        """The recorder of operations, or of stand-ins."""

    def refuse(self, reason: str, hint: str | None = None) -> BaseException:
        """Returns the signal of something that is not traced, which the run ends with."""

    def doubtful_error(self, reason: str) -> BaseException:
        """Returns an exception that may be raised, but not handled by the traced code."""

    def not_real(self, reason: str) -> BaseException:
        """Returns the signal of a number that is not real, where Python raises no exception."""

    def decide(self, condition: sp.Basic, value: bool | None = None) -> bool:
        """Returns the truth of a condition, which has this value on the stand-ins."""

    def compare(self, kind: Comparison, left: Number, right: Number) -> Any:
        """Returns the truth of a comparison."""

    def raises(self, kind: Comparison, number: Number) -> bool:
        """Returns whether Python raises an exception, as where a number compares so with 0."""

    def check_finite(self, number: Number) -> None:
        """Raises the exception of Python where an integer is made of NaN or an infinity."""

    def concrete(self, number: Number, purpose: str) -> Any:
        """Returns the number of Python that a number is in the whole run.

        Args:
            number: The number.
            purpose: Its use, for errors.
        """

    def scalar(self, value: Any) -> Any:
        """Returns the number of a tensor that a function takes as a number; others as they are."""

    def settle(self, number: Number) -> Any:
        """Returns the result of an operation; a plain number where it is constant."""

    def exact(self, value: float) -> sp.Expr:
        """Returns the expression of a constant."""

    def fits(self, expr: sp.Expr, info: Any) -> bool | sp.Basic:
        """Returns True if a fixed width holds an integer at all steps, or the condition."""

    def is_bounded(self, condition: sp.Basic) -> bool:
        """Returns whether a condition is decided at all steps of the run."""

    def is_shown(self, frame: FrameType) -> bool:
        """Returns whether the text that a frame makes is only raised or logged."""

    def note_single(self) -> None:
        """Notes that the traced code computes in float32."""
