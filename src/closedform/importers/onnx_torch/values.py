"""Values of a graph that runs: tensors, and sizes and constants that are known beforehand.

A shape is computed by operators, too: it is kept as an array of integers and of symbols for free
sizes, so that the operators that take it see numbers, not tensors.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from closedform.errors import ExportError
from closedform.importers.onnx_limits import MOST_ENTRIES

Known = NDArray[Any]
"""Numbers that are known while a graph is traced; free sizes are symbols in an object array."""


@dataclass(frozen=True, slots=True)
class Items:
    """A sequence of tensors."""

    values: tuple[torch.Tensor, ...]


Value = torch.Tensor | Known | Items

TORCH_TYPES: Mapping[int, torch.dtype] = {
    1: torch.float32,
    2: torch.uint8,
    3: torch.int8,
    5: torch.int16,
    6: torch.int32,
    7: torch.int64,
    9: torch.bool,
    10: torch.float16,
    11: torch.float64,
    16: torch.bfloat16,
}
"""Dtypes by their numbers in ONNX."""


@dataclass(slots=True)
class Call:
    """One node with its operands.

    Attributes:
        operands: The values; None for one that is left out.
        attributes: The attributes over their defaults.
        is_training: Whether random operators draw, and batch statistics are used.
        results: The number of results that the graph uses.
    """

    operands: Sequence[Value | None]
    attributes: Mapping[str, Any]
    is_training: bool
    results: int

    def has(self, place: int) -> bool:
        """Returns whether an operand is given."""
        return place < len(self.operands) and self.operands[place] is not None

    def tensor(self, place: int = 0) -> torch.Tensor:
        """Returns an operand as a tensor."""
        return as_tensor(self._given(place))

    def optional(self, place: int) -> torch.Tensor | None:
        """Returns an operand as a tensor; None if it is left out."""
        return self.tensor(place) if self.has(place) else None

    def tensors(self) -> list[torch.Tensor]:
        """Returns all operands as tensors."""
        return [as_tensor(value) for value in self.operands if value is not None]

    def items(self) -> tuple[torch.Tensor, ...]:
        """Returns the first operand, which has to be a sequence.

        Raises:
            ExportError: It is a tensor.
        """
        value = self._given(0)
        if isinstance(value, Items):
            return value.values
        raise ExportError("its operand 0 must be a sequence")

    def known(self, place: int) -> Known:
        """Returns an operand that has to be known while the graph is traced.

        Raises:
            ExportError: It depends on data.
        """
        value = self._given(place)
        if isinstance(value, np.ndarray):
            return value
        raise ExportError(f"its operand {place} depends on data")

    def numbers(self, place: int, attribute: str = "") -> list[Any] | None:
        """Returns the numbers of an operand, or of the attribute that older opsets have instead."""
        if self.has(place):
            return list(self.known(place).ravel())
        found = self.attributes.get(attribute)
        return None if found is None else list(found)

    def number(self, place: int, default: float | None = None) -> Any:
        """Returns the number of an operand with one entry."""
        if not self.has(place):
            return default
        value = self.known(place)
        if value.size != 1:
            raise ExportError(f"its operand {place} must be one number, got {value.size}")
        return value.reshape(-1)[0]

    def refuse(self, **supported: Any) -> None:
        """Raises ExportError if an attribute is not at the only value that is supported."""
        for name, wanted in supported.items():
            if (got := self.attributes[name]) != wanted:
                raise ExportError(f"its attribute {name!r} is supported as {wanted!r}, got {got!r}")

    def _given(self, place: int) -> Value:
        value = self.operands[place] if place < len(self.operands) else None
        if value is None:
            raise ExportError(f"its operand {place} is missing")
        return value


def as_tensor(value: Value) -> torch.Tensor:
    """Returns a value as a tensor.

    Raises:
        ExportError: It is a sequence.
    """
    if isinstance(value, torch.Tensor):
        return value
    if isinstance(value, Items):
        raise ExportError("a sequence is not supported here")
    if value.dtype != object:
        return torch.from_numpy(np.array(value))
    entries = [torch.scalar_tensor(entry, dtype=torch.int64) for entry in value.ravel()]
    return torch.stack(entries).reshape(value.shape)


def as_known(numbers: Sequence[Any], shape: tuple[int, ...] | None = None) -> Known:
    """Returns integers and symbols as an array."""
    if any(isinstance(number, torch.SymInt) for number in numbers):
        array = np.empty(len(numbers), dtype=object)
        array[:] = numbers
    else:
        array = np.asarray(numbers, dtype=np.int64)
    return array if shape is None else array.reshape(shape)


def operands_of(call: Call) -> list[Any]:
    """Returns the operands of an elementwise operator: numbers for constants with one entry.

    A number has no dtype of its own, and its gradient is not computed.
    """
    dims = [value.ndim for value in call.operands if isinstance(value, torch.Tensor)]
    return [
        value.reshape(-1)[0].item()
        if isinstance(value, np.ndarray)
        and value.size == 1
        and value.dtype != object
        and dims
        and value.ndim <= max(dims)
        else as_tensor(value)
        for value in call.operands
        if value is not None
    ]


# --- sizes and constants -------------------------------------------------------------------------

KnownRow = Callable[[Call, list[Known]], Known | list[Known] | None]
"""The result of known operands; None where it is too large, or has a symbol for a size."""


def _shape(sizes: Sequence[Any]) -> tuple[int, ...] | None:
    """Sizes as a shape of a small array."""
    if any(isinstance(size, torch.SymInt) for size in sizes):
        return None
    shape = tuple(int(size) for size in sizes)
    return shape if math.prod(shape) <= MOST_ENTRIES else None


def _quotient(left: Any, right: Any) -> Any:
    """The quotient of integers, truncated as in ONNX, or of floats."""
    if isinstance(left, torch.SymInt) or isinstance(right, torch.SymInt):
        return left // right
    if isinstance(left, int | np.integer) and isinstance(right, int | np.integer):
        magnitude = abs(int(left)) // abs(int(right))
        return magnitude if (left < 0) == (right < 0) else -magnitude
    return left / right


def _elementwise(function: Callable[[Any, Any], Any]) -> KnownRow:
    def row(_: Call, operands: list[Known]) -> Known:
        left, right = operands
        if left.dtype != object and right.dtype != object:
            return np.asarray(function(left, right))
        return _tidied(np.frompyfunc(function, 2, 1)(left, right))

    return row


def _compared(function: Callable[[Any, Any], Any]) -> KnownRow:
    def row(_: Call, operands: list[Known]) -> Known:
        left, right = operands
        if left.dtype != object and right.dtype != object:
            return np.asarray(function(left, right))
        found = np.frompyfunc(lambda a, b: bool(function(a, b)), 2, 1)(left, right)
        return np.asarray(found, dtype=bool)

    return row


def _tidied(value: Any) -> Known:
    """An array without symbols in a dtype of numbers."""
    array = np.asarray(value, dtype=object)
    if not array.size or any(isinstance(e, torch.SymInt | torch.SymFloat) for e in array.ravel()):
        return array
    return np.array(array.tolist()).reshape(array.shape)


def _ratio(_: Call, operands: list[Known]) -> Known:
    left, right = operands
    if left.dtype.kind == "f" and right.dtype.kind == "f":
        return np.asarray(left / right)
    if right.dtype != object and not np.all(right):
        raise ExportError("it divides by zero")
    return _tidied(np.frompyfunc(_quotient, 2, 1)(left, right))


def _gather(call: Call, operands: list[Known]) -> Known:
    data, indices = operands
    return np.asarray(data.take(indices.astype(np.int64), axis=call.attributes["axis"]))


def _slice(call: Call, operands: list[Known]) -> Known:
    data = operands[0]
    starts, ends = call.known(1), call.known(2)
    axes = call.numbers(3) or range(len(starts))
    steps = call.numbers(4) or [1] * len(starts)
    index = [slice(None)] * data.ndim
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        length = data.shape[int(axis)]
        low = -length - 1
        # The first place before the array has no negative number in Python.
        last = None if step < 0 and end < -length else max(int(end), low)
        index[int(axis)] = slice(max(int(start), low), last, int(step))
    return data[tuple(index)]


def _reshape(call: Call, operands: list[Known]) -> Known | None:
    data, wanted = operands
    sizes = [
        data.shape[axis] if size == 0 and not call.attributes["allowzero"] else size
        for axis, size in enumerate(wanted)
    ]
    return None if any(isinstance(s, torch.SymInt) for s in sizes) else data.reshape(sizes)


def _squeeze(call: Call, operands: list[Known]) -> Known:
    axes = call.numbers(1, "axes")
    return np.squeeze(operands[0], None if axes is None else tuple(int(axis) for axis in axes))


def _unsqueeze(call: Call, operands: list[Known]) -> Known:
    axes = call.numbers(1, "axes") or []
    return np.expand_dims(operands[0], tuple(int(axis) for axis in axes))


def _cast(call: Call, operands: list[Known]) -> Known | None:
    (value,) = operands
    dtype = call.attributes["to"]
    if value.dtype == object:
        return value if dtype in (6, 7) else None
    if dtype not in _NUMPY_TYPES:
        return None
    return value.astype(_NUMPY_TYPES[dtype])


def _cast_like(_: Call, operands: list[Known]) -> Known | None:
    value, like = operands
    if value.dtype == object:
        return value if like.dtype.kind in "iO" else None
    return value.astype(np.int64 if like.dtype == object else like.dtype)


_NUMPY_TYPES = {1: np.float32, 6: np.int32, 7: np.int64, 9: np.bool_, 11: np.float64}


def _range(_: Call, operands: list[Known]) -> Known | None:
    if any(value.dtype == object for value in operands):
        return None
    start, limit, delta = (value.reshape(-1)[0] for value in operands)
    if delta == 0 or _shape([max(0, math.ceil((limit - start) / delta))]) is None:
        return None
    return np.arange(start, limit, delta, dtype=operands[0].dtype)


def _constant_of_shape(call: Call, operands: list[Known]) -> Known | None:
    shape = _shape(list(operands[0]))
    value = call.attributes["value"]
    return None if shape is None else np.full(shape, value.reshape(-1)[0], value.dtype)


def _expand(_: Call, operands: list[Known]) -> Known | None:
    shape = _shape(list(operands[1]))
    if shape is None:
        return None
    target = np.broadcast_shapes(operands[0].shape, shape)
    return np.broadcast_to(operands[0], target) if _shape(target) is not None else None


def _where(_: Call, operands: list[Known]) -> Known:
    condition, first, second = operands
    chosen = np.where(condition.astype(bool), first, second)
    return _tidied(chosen) if chosen.dtype == object else chosen


def _product(call: Call, operands: list[Known]) -> Known:
    axes = call.numbers(1, "axes")
    along = None if axes is None else tuple(int(axis) for axis in axes)
    product = np.prod(operands[0], axis=along, keepdims=bool(call.attributes["keepdims"]))
    return _tidied(product) if operands[0].dtype == object else np.asarray(product)


def _split(call: Call, operands: list[Known]) -> list[Known] | None:
    sizes = call.numbers(1, "split")
    if sizes is None:
        return None
    places = np.cumsum([int(size) for size in sizes])[:-1]
    return np.split(operands[0], places, axis=call.attributes["axis"])


def _concat(call: Call, operands: list[Known]) -> Known:
    return np.concatenate(operands, axis=call.attributes["axis"])


def _function(function: Callable[..., Any]) -> KnownRow:
    def row(_: Call, operands: list[Known]) -> Known | None:
        if any(value.dtype == object for value in operands):
            return None
        return np.asarray(function(*operands))

    return row


KNOWN_ROWS: Mapping[str, KnownRow] = {
    "Add": _elementwise(operator.add),
    "Sub": _elementwise(operator.sub),
    "Mul": _elementwise(operator.mul),
    "Div": _ratio,
    "Equal": _compared(operator.eq),
    "Less": _compared(operator.lt),
    "LessOrEqual": _compared(operator.le),
    "Greater": _compared(operator.gt),
    "GreaterOrEqual": _compared(operator.ge),
    "Abs": _function(np.abs),
    "And": _function(np.logical_and),
    "Or": _function(np.logical_or),
    "Not": _function(np.logical_not),
    "Neg": lambda _, operands: np.negative(operands[0]),
    "Sqrt": _function(np.sqrt),
    "Reciprocal": _function(np.reciprocal),
    "Floor": _function(np.floor),
    "Ceil": _function(np.ceil),
    "Identity": lambda _, operands: operands[0],
    "Cast": _cast,
    "CastLike": _cast_like,
    "Exp": _function(np.exp),
    "Log": _function(np.log),
    "Max": _function(lambda *values: functools.reduce(np.maximum, values)),
    "Min": _function(lambda *values: functools.reduce(np.minimum, values)),
    "Pow": _function(lambda base, exponent: np.power(base, exponent).astype(base.dtype)),
    "Round": _function(np.round),
    "Concat": _concat,
    "ConstantOfShape": _constant_of_shape,
    "Expand": _expand,
    "Gather": _gather,
    "Range": _range,
    "ReduceProd": _product,
    "Reshape": _reshape,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Where": _where,
}
"""Operators on sizes and constants, which the graph that is trained does not contain."""

_LARGEST_PRODUCT = 2**24
"""Of the entries of known operands, which bounds those of their result."""


def known_result(operator: str, call: Call) -> Any:
    """Returns the result of known operands; None where one is a tensor, or it is too large."""
    given = [value for value in call.operands if value is not None]
    known = [value for value in given if isinstance(value, np.ndarray)]
    entries = math.prod(max(value.size, 1) for value in known)
    if operator not in KNOWN_ROWS or len(known) < len(given) or entries > _LARGEST_PRODUCT:
        return None
    return KNOWN_ROWS[operator](call, known)
