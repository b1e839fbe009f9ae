"""The values that traced numbers have in a run of a step, and their expressions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import sympy as sp

from closedform.errors import TraceError
from closedform.importers.python.number import Number, is_silent, native_of
from closedform.importers.python.place import UserValue
from closedform.importers.tensors.algebra import constant
from closedform.importers.torch_optimizer.positions import check_positions


class StandIns:
    """Keeps the value of each number of a run.

    Attributes:
        exception: The last exception that an operation raised on such numbers.
        is_other_way: Whether the run takes a way that its values do not take.
    """

    is_paused = False

    def __init__(self) -> None:
        self.exception: Exception | None = None
        self.is_other_way = False
        self._operations: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []

    @property
    def is_silent(self) -> bool:
        """Whether the operation gives NaN or an infinity where Python raises an exception."""
        return any(is_silent(native, args) for native, args in self._operations)

    def begin(self, native: Callable[..., Any], args: tuple[Any, ...]) -> None:
        """Begins an operation, by the function that does it for plain numbers."""
        self._operations.append((native, args))

    def end(self) -> None:
        """Ends the operation that was begun last."""
        self._operations.pop()

    def call(
        self, function: Callable[..., Any], args: tuple[Any, ...], names: Mapping[str, Any]
    ) -> Any:
        """Returns the value of a call."""
        try:
            with np.errstate(all="ignore"):
                return function(*args, **names)
        except (ArithmeticError, ValueError):
            if not self.is_other_way:
                raise
            # Its result is only a stand-in.
            return next(float(arg) for arg in args if isinstance(arg, int | float))

    def raises(self, _: Any, __: Any, ___: Any, error: Exception) -> None:
        """Keeps the exception that an operation raises."""
        if isinstance(error, ArithmeticError | ValueError):
            self.exception = error

    def check(self, ref: Any, value: Any) -> None:
        """Does nothing: a run takes its way by its decisions."""


def plain(value: UserValue) -> Any:
    """Returns the value of a number, or numbers in a list, without their expressions."""
    if isinstance(value, Number):
        return plain(value.ref)
    if isinstance(value, np.generic | np.ndarray) and not value.ndim:
        return value.item()
    if type(value) in (list, tuple):
        return type(value)(map(plain, value))
    return native_of(value)


def expression(value: UserValue) -> sp.Expr:
    """Returns the expression of a number; that of a plain one is exact.

    Raises:
        TraceError: It is not a number.
    """
    if isinstance(value, Number):
        check_positions(value.run, value.expr, "the rule")
        return value.expr
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, int | float):
        return constant(value + 0)  # of a truth the integer
    raise TraceError(f"a number was expected, got {type(value).__name__} {value!r}")
