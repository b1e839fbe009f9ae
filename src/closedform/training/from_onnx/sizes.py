"""Numbers that are computed from free sizes, and their arithmetic.

A size is an integer symbol of torch. A float that is computed from sizes is a quotient, as long as
each of its roundings in float32 is known not to move a later ``Floor`` or ``Ceil``.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.fx.experimental.symbolic_shapes import statically_known_true

from closedform.errors import TrainingExportError

MOST_PARTS = 2**12
"""The largest denominator. A quotient of a size below 4096 is further from the next integer than
its rounding in float32."""


Number = Any
"""An integer, a float, a bool, a symbol, or a Quotient."""

Symbolic = NDArray[Any]
"""An object array of numbers."""


@dataclass(frozen=True, slots=True)
class Quotient:
    """A float: an integer symbol over a positive integer.

    Attributes:
        over: The numerator.
        under: The denominator.
        is_double: Whether it is a float64.
    """

    over: Any
    under: int
    is_double: bool = False

    @property
    def is_exact(self) -> bool:
        """Whether float32 holds it without rounding."""
        # A power of two, which has one bit.
        return self.under & (self.under - 1) == 0


def is_symbol(number: object) -> bool:
    """Returns whether a number depends on a free size."""
    return isinstance(number, torch.SymInt | Quotient)


def with_number_dtype(array: Symbolic) -> NDArray[Any]:
    """Returns an array without symbols in a dtype of numbers; an array with symbols unchanged."""
    if not array.size or any(map(is_symbol, array.ravel())):
        return array
    # tolist() makes numbers of Python, whose common dtype NumPy finds.
    numbers = np.array(array.tolist()).reshape(array.shape)
    return numbers.astype(np.float32) if numbers.dtype.kind == "f" else numbers


def objects_of(array: NDArray[Any], numbers: Sequence[Number] | None = None) -> Symbolic:
    """Returns an array of its shape with these numbers, or with its own as Python's numbers."""
    if array.dtype == object:
        return array
    result = np.empty(array.size, dtype=object)
    result[:] = array.ravel().tolist() if numbers is None else numbers
    return result.reshape(array.shape)


def floor_of(number: Quotient) -> Any:
    """Returns the largest integer that is not above a quotient."""
    return number.over if number.under == 1 else number.over // number.under


def ceiling_of(number: Quotient) -> Any:
    """Returns the smallest integer that is not below a quotient."""
    return number.over if number.under == 1 else (number.over + number.under - 1) // number.under


def truncate(number: Quotient) -> Any:
    """Returns a quotient without its fraction; None if its sign is not known."""
    if number.under == 1 or is_always(number.over >= 0):
        # Truncation is floor for numbers from 0 on, ceiling below.
        return floor_of(number)
    return ceiling_of(number) if is_always(number.over <= 0) else None


def is_always(condition: Any) -> bool:
    """Returns whether a condition is true for all sizes."""
    # statically_known_true adds no guard, so that the size stays free.
    return condition is True or bool(statically_known_true(condition))


# --- arithmetic: None is a number that is not known ----------------------------------------------


def _parts(number: Number) -> tuple[Any, int] | None:
    """The numerator and the denominator of a number that float32 holds."""
    if isinstance(number, Quotient):
        # nan and inf have no ratio of integers.
        return (number.over, number.under) if number.is_exact else None
    if isinstance(number, float):
        if not math.isfinite(number):
            return None
        over, under = number.as_integer_ratio()
        return (over, under) if under <= MOST_PARTS else None
    return number, 1


def _is_float(*numbers: Number) -> bool:
    return any(isinstance(number, float | Quotient) for number in numbers)


def _is_double(*numbers: Number) -> bool:
    return any(isinstance(number, Quotient) and number.is_double for number in numbers)


def _reduce_fraction(over: Any, under: int, *, is_double: bool) -> Number | None:
    if under < 0:
        over, under = -over, -under
    if not isinstance(over, torch.SymInt):
        return over / under
    # The largest integer factor of the numerator: (4·n)/2 is 2·n.
    content = over.node.expr.as_content_primitive()[0]
    common = math.gcd(int(content), under) if content.is_Integer else 1
    over, under = (over // common, under // common) if common > 1 else (over, under)
    return Quotient(over, under, is_double) if under <= MOST_PARTS else None


def _arithmetic(
    of_integers: Callable[[Any, Any], Any],
    of_parts: Callable[[Any, int, Any, int], tuple[Any, int]],
) -> Callable[[Number, Number], Number | None]:
    def compute(left: Number, right: Number) -> Number | None:
        if not _is_float(left, right):
            return of_integers(left, right)
        first, second = _parts(left), _parts(right)
        if first is None or second is None:
            return None
        return _reduce_fraction(*of_parts(*first, *second), is_double=_is_double(left, right))

    return compute


def _quotient(left: Number, right: Number) -> Number | None:
    """The quotient of integers, truncated as in ONNX, or of floats."""
    if not _is_float(left, right):
        return _integer_quotient(left, right)
    first, second = _parts(left), _parts(right)
    if first is None or second is None:
        return None
    over, under = first[0] * second[1], first[1] * second[0]
    if isinstance(under, torch.SymInt):
        # A ratio of two sizes with the same symbol, such as (4·n)/(2·n), is a number.
        ratio = (over.node.expr if isinstance(over, torch.SymInt) else over) / under.node.expr
        is_number = getattr(ratio, "is_Rational", False)
        return float(np.float32(ratio.p / ratio.q)) if is_number else None
    if not under:
        return None
    return _reduce_fraction(over, under, is_double=_is_double(left, right))


def _integer_quotient(left: Any, right: Any) -> Any:
    if isinstance(right, int) and not right:
        return None
    if isinstance(left, torch.SymInt) or isinstance(right, torch.SymInt):
        # Sizes are not negative, so that floor and truncation agree.
        return left // right
    magnitude = abs(left) // abs(right)
    return magnitude if (left < 0) == (right < 0) else -magnitude


def _power(base: Number, exponent: Number) -> Number | None:
    # Small powers, so that the expression of a size stays small.
    if _is_float(base, exponent) or not isinstance(exponent, int) or not 0 <= exponent <= 8:
        return None
    return base**exponent


def _remainder(left: Number, right: Number) -> Number | None:
    is_zero = isinstance(right, int) and not right
    # Mod of ONNX has the sign of the divisor, as Python's.
    return None if _is_float(left, right) or is_zero else left % right


_OPPOSITES: Mapping[Callable[[Any, Any], Any], Callable[[Any, Any], Any]] = {
    operator.eq: operator.ne,
    operator.ge: operator.lt,
    operator.gt: operator.le,
    operator.le: operator.gt,
    operator.lt: operator.ge,
}


def _comparison(function: Callable[[Any, Any], Any]) -> Callable[[Number, Number], bool | None]:
    def compute(left: Number, right: Number) -> bool | None:
        first, second = _parts(left), _parts(right)
        if first is None or second is None:
            return None
        # a/b < c/d as a·d < c·b: denominators are positive.
        left, right = first[0] * second[1], second[0] * first[1]
        condition = function(left, right)
        if isinstance(condition, bool) or is_always(condition):
            return bool(condition)
        # A comparison that holds for some sizes only would fix the branch of the example.
        if is_always(_OPPOSITES[function](left, right)):
            return False
        raise TrainingExportError(
            "it compares a free size, with another result for other sizes",
            hint="leave that size out of dynamic_axes",
        )

    return compute


add = _arithmetic(operator.add, lambda a, b, c, d: (a * d + c * b, b * d))
multiply = _arithmetic(operator.mul, lambda a, b, c, d: (a * c, b * d))
maximum = _arithmetic(torch.sym_max, lambda a, b, c, d: (torch.sym_max(a * d, c * b), b * d))
minimum = _arithmetic(torch.sym_min, lambda a, b, c, d: (torch.sym_min(a * d, c * b), b * d))

BINARY: Mapping[str, Callable[[Number, Number], Number | None]] = {
    "Add": add,
    "Div": _quotient,
    "Equal": _comparison(operator.eq),
    "Greater": _comparison(operator.gt),
    "GreaterOrEqual": _comparison(operator.ge),
    "Less": _comparison(operator.lt),
    "LessOrEqual": _comparison(operator.le),
    "Max": maximum,
    "Min": minimum,
    "Mod": _remainder,
    "Mul": multiply,
    "Pow": _power,
    "Sub": _arithmetic(operator.sub, lambda a, b, c, d: (a * d - c * b, b * d)),
    "Sum": add,
}
"""Operators of two numbers; of more, they are taken from the left."""


def _negative(number: Number) -> Number | None:
    if isinstance(number, Quotient):
        return Quotient(-number.over, number.under, number.is_double)
    return -number


def _rounding(towards: Callable[[Quotient], Any]) -> Callable[[Number], Number | None]:
    def compute(number: Number) -> Number | None:
        if not isinstance(number, Quotient):
            return None
        return Quotient(towards(number), 1, number.is_double)

    return compute


UNARY: Mapping[str, Callable[[Number], Number | None]] = {
    "Ceil": _rounding(ceiling_of),
    "Floor": _rounding(floor_of),
    "Identity": lambda number: number,
    "Neg": _negative,
    # round() of a quotient that is not whole depends on halves: not known.
    "Round": lambda number: number if getattr(number, "under", 0) == 1 else None,
}

REDUCTIONS: Mapping[str, Callable[[Number, Number], Number | None]] = {
    "ReduceMax": maximum,
    "ReduceMin": minimum,
    "ReduceProd": multiply,
    "ReduceSum": add,
}


def apply(
    function: Callable[..., Number | None], operands: Sequence[NDArray[Any]]
) -> NDArray[Any] | None:
    """Returns a function of each entry; None where one is not known."""
    if len(operands) > 2:
        first = apply(function, operands[:2])
        return None if first is None else apply(function, [first, *operands[2:]])
    results = np.frompyfunc(function, len(operands), 1)(*map(objects_of, operands))
    return _all_known(results)


def _all_known(results: Any) -> NDArray[Any] | None:
    array = np.asarray(results, dtype=object)
    return None if any(entry is None for entry in array.ravel()) else with_number_dtype(array)


def reduce(
    function: Callable[[Number, Number], Number | None],
    array: Symbolic,
    axes: Sequence[int],
    *,
    keeps_axes: bool,
) -> NDArray[Any] | None:
    """Returns a reduction along axes; None where it is not known."""

    def pair(left: Number, right: Number) -> Number | None:
        return None if left is None or right is None else function(left, right)

    result: Any = array
    # From the last axis on, so that removed axes do not move the others.
    for axis in sorted(axes, reverse=True):
        result = np.frompyfunc(pair, 2, 1).reduce(result, axis=axis, keepdims=keeps_axes)
    return _all_known(result)


def cast(array: Symbolic, dtype: np.dtype[Any]) -> NDArray[Any] | None:
    """Returns numbers in another dtype; None where one is not known."""
    kind = dtype.kind

    def compute(number: Number) -> Number | None:
        if kind in "iu":
            return truncate(number) if isinstance(number, Quotient) else number
        if kind == "b":
            over = number.over if isinstance(number, Quotient) else number
            # Of what is left, float16 rounds sizes above 2048.
            return True if is_always(over != 0) else None
        if dtype not in (np.float32, np.float64):
            return None
        if isinstance(number, Quotient):
            return Quotient(number.over, number.under, dtype == np.float64)
        if isinstance(number, torch.SymInt):
            return Quotient(number, 1, dtype == np.float64)
        return float(number)

    return apply(compute, (array,))
