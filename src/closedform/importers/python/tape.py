"""The operations of a run, in the function's own numbers.

A run records each operation on a number that depends on the step, as the function does it: the
function of Python, NumPy or torch, and its arguments; and each truth and integer that it makes the
run choose by. Run again at a step, the records give what the function computes in floats there, or
tell that it takes another path. What they give is compared with the exact value: the steps at which
rounding shows are a computable set, and need not be among those that were looked at.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction
from typing import Any

import numpy as np
import sympy as sp

from closedform.importers.python.place import UserValue
from closedform.language.exact import to_float

STEP = "t"
"""The name of the step among the variables."""


@dataclass(frozen=True, slots=True)
class Ref:
    """The result of a record, as an argument of later ones."""

    index: int


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """A call of a function that the user's function makes.

    Attributes:
        function: The function, such as ``operator.add``.
        args: Its arguments; :class:`Ref` stands for what depends on the step.
        names: Its arguments by name.
        raises: Whether it raises an exception on this path.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...]
    names: Mapping[str, Any]
    raises: bool = False


@dataclass(frozen=True, slots=True)
class Variable:
    """The step, or a hyperparameter, as an argument of records."""

    name: str


@dataclass(frozen=True, slots=True)
class Check:
    """A truth or an integer by which the run chose its path."""

    ref: Ref | Variable
    value: bool | int | float


class End(Enum):
    """How a path ends that returns nothing."""

    ANOTHER = "the floats take another path"
    RAISES = "an exception is raised"


@dataclass(slots=True)
class Tape:
    """The records of one run.

    Attributes:
        records: The records, in the order of the function.
        result: What the run returns; an exception for ``End.RAISES``.
        pause_depth: Above 0 inside an operation that is one record.
    """

    records: list[RecordedCall | Check] = field(default_factory=list)
    result: Any = End.RAISES
    pause_depth: int = 0

    @property
    def is_paused(self) -> bool:
        """Whether operations are parts of one that is a record."""
        return self.pause_depth > 0

    def begin(self, _: Callable[..., Any], __: tuple[Any, ...]) -> None:
        """Begins an operation that is one record."""
        self.pause_depth += 1

    def end(self) -> None:
        """Ends it."""
        self.pause_depth -= 1

    def call(
        self, function: Callable[..., Any], args: tuple[Any, ...], names: Mapping[str, Any]
    ) -> Ref:
        """Records a call."""
        self.records.append(RecordedCall(function, args, names))
        return Ref(len(self.records) - 1)

    def raises(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        names: Mapping[str, Any],
        _: Exception,
    ) -> None:
        """Records a call that raises an exception."""
        self.records.append(RecordedCall(function, args, names, raises=True))

    def check(self, ref: Ref | Variable, value: bool | int | float) -> None:
        """Records what the run chose by."""
        if not self.pause_depth:
            self.records.append(Check(ref, value))

    def run(self, variables: Mapping[str, Any], watch: Watch | None = None) -> float | End:
        """Returns what the function computes in its own numbers, if it takes this path.

        Args:
            variables: The values of the step and the hyperparameters.
            watch: A function that looks at each operation.
        """
        results: list[Any] = []
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            for record in self.records:
                match record:
                    case Check(ref, value):
                        results.append(None)
                        if _resolve(ref, results, variables) != value:
                            return End.ANOTHER
                    case RecordedCall(function, args, names, raises):
                        arguments = [_resolve(arg, results, variables) for arg in args]
                        keywords = {
                            key: _resolve(arg, results, variables) for key, arg in names.items()
                        }
                        try:
                            result = function(*arguments, **keywords)
                        except Exception:
                            result = End.RAISES
                        if watch is not None:
                            watch(function, arguments, result)
                        if (result is End.RAISES) != raises:
                            return End.ANOTHER
                        results.append(result)
            if self.result is End.RAISES:
                return End.RAISES
            return _as_float(_resolve(self.result, results, variables))


Watch = Callable[[Callable[..., Any], list[Any], Any], None]


def _resolve(arg: Any, results: list[Any], variables: Mapping[str, Any]) -> Any:
    if isinstance(arg, Ref):
        return results[arg.index]
    if isinstance(arg, Variable):
        return variables[arg.name]
    if type(arg) in (list, tuple) and any(
        isinstance(item, Ref | Variable | list | tuple) for item in arg
    ):
        return type(arg)(_resolve(item, results, variables) for item in arg)
    return arg


def _as_float(value: UserValue) -> float | End:
    if isinstance(value, complex) and not isinstance(value, float):
        return End.RAISES
    try:
        return to_float(value) if isinstance(value, sp.Rational) else float(value)
    except (OverflowError, TypeError, ValueError):
        return End.RAISES


class Conditioning:
    """Tells whether an operation can turn the rounding of its operands into a visible difference.

    It is the reason that a difference between floats and exact numbers needs to be taken for
    rounding: two numbers that are compared are close, a number whose floor is taken is close to an
    integer, or terms cancel.

    Args:
        tolerance: The relative error of an operand.
    """

    def __init__(self, tolerance: float) -> None:
        self.tolerance = tolerance
        self.is_sensitive = False

    def __call__(self, function: Callable[..., Any], args: list[Any], result: Any) -> None:
        """Looks at one operation."""
        if self.is_sensitive:
            return
        if result is End.RAISES:
            self.is_sensitive = True
            return
        name = getattr(function, "__name__", "")
        items = list(_items(args)) if name != "getitem" else args[1:]
        if all(isinstance(item, _EXACT) for item in items) and name != "truediv":
            return
        try:
            numbers = [float(item) for item in items if not isinstance(item, str)]
            value = float(result)
        except (TypeError, ValueError, OverflowError):
            # A search in a list, a truth of several numbers: any operand may decide.
            self.is_sensitive = name in _SEARCHES or not isinstance(result, str)
            return
        self.is_sensitive = not math.isfinite(value) or self._is_close(name, numbers, value)

    def _is_close(self, name: str, numbers: list[float], value: float) -> bool:
        if not numbers or name in _SEARCHES:
            return True
        size = max(1.0, *map(abs, numbers))
        if name in _COMPARISONS:
            return abs(numbers[0] - numbers[-1]) <= self.tolerance * size
        if name in _FLOORS:
            scale = 10.0 ** numbers[1] if name == "round" and len(numbers) > 1 else 1.0
            twice = 2 * numbers[0] * scale  # of ``round`` halves count, too
            return abs(twice - round(twice)) <= 2 * self.tolerance * max(1.0, abs(twice))
        if name in _QUOTIENTS and numbers[-1]:
            quotient = numbers[0] / numbers[-1]
            near = abs(quotient - round(quotient)) <= self.tolerance * max(1.0, abs(quotient))
            return near or abs(value) <= _CANCELLED * abs(numbers[0])
        if name in _TERMS:
            return abs(value) <= _CANCELLED * max(map(abs, numbers))
        if name in _PERIODIC:
            return abs(value) <= _CANCELLED * size or size >= 1 / _CANCELLED
        if name in _LOGARITHMS:
            return abs(value) <= _CANCELLED
        if name in _POWERS:
            return abs(numbers[-1]) >= 1 / _CANCELLED
        return False


_EXACT = (int, np.integer, np.bool_, Fraction)
"""Types whose operations do not round."""
_CANCELLED = 1e-5
_COMPARISONS = {"lt", "le", "gt", "ge", "eq", "ne", "isclose", "sign", "copysign", "bool", "truth"}
_FLOORS = {"floor", "ceil", "trunc", "int", "round", "rint", "is_integer"}
_QUOTIENTS = {"floordiv", "mod", "fmod", "remainder", "floor_divide", "divmod"}
_TERMS = {"add", "sub", "subtract", "sum", "expm1", "fsum"}
_PERIODIC = {"sin", "cos", "tan"}
_LOGARITHMS = {"log", "log2", "log10", "log1p"}
_POWERS = {"pow", "power", "float_power"}
_SEARCHES = {
    "where", "searchsorted", "digitize", "select", "bisect", "bisect_left", "bisect_right",
    "interp",
}  # fmt: skip


def _items(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, list | tuple):
            yield from _items(value)
        else:
            yield value


def plain_value(value: UserValue) -> Any:
    """Returns a constant as the code itself has it, without the exact number that a trace keeps."""
    # A bool is an int, and a float64 of NumPy is a float.
    for number_type in (bool, np.float64, float, int):
        if isinstance(value, number_type):
            return number_type(value)
    return value


def unit_of(value: UserValue) -> Any:
    """Returns 1 as a number of the same type; None for a number of Python."""
    if isinstance(value, np.generic):
        return value.dtype.type(1)
    if isinstance(value, Fraction) or type(value).__name__ == "Decimal":
        return type(value)(1)
    if isinstance(value, np.ndarray):
        return np.ones_like(np.asarray(value))
    if hasattr(value, "new_ones") and hasattr(value, "dtype"):  # a tensor
        return value.new_ones(tuple(value.shape))
    return None
