"""Values of a graph that runs: tensors, and sizes and constants that are known beforehand.

A shape is computed by operators, too: it is kept as an array of integers and of symbols for free
sizes, so that the operators that take it see numbers, not tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from closedform.errors import TrainingExportError
from closedform.ir.types import ELEMENT_TYPES
from closedform.training.from_onnx.sizes import Quotient, is_symbol

Known = NDArray[Any]
"""Numbers that are known during a trace; numbers with free sizes are objects of ``sizes``."""


@dataclass(frozen=True, slots=True)
class Items:
    """A sequence of tensors."""

    values: tuple[torch.Tensor, ...]


class FixedSizeError(TrainingExportError):
    """An operator needs a free size as a number: it has been read, so that a trace knows which.

    Args:
        what: The size.
    """

    def __init__(self, what: str) -> None:
        super().__init__(what, hint="leave that size out of dynamic_axes")


ANOTHER_SOURCE = (
    "export the torch module that the file was written from, or a part of the file without this "
    "node (onnx.utils.extract_model)"
)
"""The way out where an operator of a file is not supported."""

INVALID_FILE = "write the file again with its exporter, and check it with onnx.checker.check_model"
"""The way out where a file is invalid."""


OnnxValue = torch.Tensor | Known | Items

TORCH_BY_NUMBER: Mapping[int, torch.dtype] = {
    row.number: getattr(torch, row.name) for row in ELEMENT_TYPES
}
"""Dtypes by their numbers in ONNX."""

NUMPY_BY_NUMBER: Mapping[int, np.dtype[Any]] = {
    row.number: row.numpy for row in ELEMENT_TYPES if row.name != "bfloat16"
}
"""Dtypes of NumPy itself by their numbers in ONNX."""


@dataclass(slots=True)
class NodeCall:
    """One node with its operands.

    Attributes:
        operands: The values; None for one that is left out.
        attributes: The attributes over their defaults.
        is_training: Whether random operators draw, and batch statistics are used.
        results: The number of results that the node names.
        version: The opset.
        of_sizes: Places of the tensors that sizes and constants determine.
    """

    operands: Sequence[OnnxValue | None]
    attributes: Mapping[str, Any]
    is_training: bool
    results: int
    version: int
    of_sizes: frozenset[int] = frozenset()

    def has(self, place: int) -> bool:
        """Returns whether an operand is given."""
        return place < len(self.operands) and self.operands[place] is not None

    def tensor(self, place: int = 0) -> torch.Tensor:
        """Returns an operand as a tensor."""
        return as_tensor(self._operand(place))

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
        value = self._operand(0)
        if isinstance(value, Items):
            return value.values
        raise TrainingExportError("its operand 0 must be a sequence", hint=ANOTHER_SOURCE)

    def known_operand(self, place: int) -> Known:
        """Returns an operand that has to be known while the graph is traced.

        Raises:
            ExportError: It depends on data.
        """
        value = self._operand(place)
        if isinstance(value, np.ndarray):
            return value
        if place in self.of_sizes:
            raise TrainingExportError(
                f"its operand {place} depends on a free size in a way that is not supported",
                hint="leave that size out of dynamic_axes",
            )
        raise TrainingExportError(
            f"its operand {place} depends on data",
            hint="make it a constant or a size of the batch in the model, or " + ANOTHER_SOURCE,
        )

    def numbers(self, place: int, attribute: str = "") -> list[Any] | None:
        """Returns the numbers of an operand, or of the attribute that older opsets have instead."""
        if self.has(place):
            return list(self.known_operand(place).ravel())
        value = self.attributes.get(attribute)
        return None if value is None else list(value)

    def number(self, place: int, default: float | None = None) -> Any:
        """Returns the number of an operand with one entry."""
        if not self.has(place):
            return default
        value = self.known_operand(place)
        if value.size != 1:
            raise TrainingExportError(
                f"its operand {place} must be one number, got {value.size}", hint=ANOTHER_SOURCE
            )
        return value.reshape(-1)[0]

    def refuse(self, **supported: Any) -> None:
        """Raises ExportError if an attribute is not at the only value that is supported."""
        for name, supported_value in supported.items():
            if (got := self.attributes[name]) != supported_value:
                raise TrainingExportError(
                    f"its attribute {name!r} is supported as {supported_value!r}, got {got!r}",
                    hint=ANOTHER_SOURCE,
                )

    def _operand(self, place: int) -> OnnxValue:
        value = self.operands[place] if place < len(self.operands) else None
        if value is None:
            raise TrainingExportError(f"its operand {place} is missing", hint=ANOTHER_SOURCE)
        return value


OperatorFunction = Callable[[NodeCall], Any]
"""The results of an operator."""


def as_tensor(value: OnnxValue) -> torch.Tensor:
    """Returns a value as a tensor.

    Raises:
        ExportError: It is a sequence.
    """
    if isinstance(value, torch.Tensor):
        return value
    if isinstance(value, Items):
        raise TrainingExportError("a sequence is not supported here", hint=ANOTHER_SOURCE)
    # Arrays of objects hold symbols for free sizes.
    if value.dtype != object:
        # A copy: arrays of a file's weights are read-only, which torch warns of.
        return torch.from_numpy(np.array(value))
    numbers = value.ravel().tolist()
    dtype = torch.int64
    if any(isinstance(number, float | Quotient) for number in numbers):
        is_double = any(isinstance(number, Quotient) and number.is_double for number in numbers)
        dtype = torch.float64 if is_double else torch.float32
    return torch.stack([_scalar(number, dtype) for number in numbers]).reshape(value.shape)


def _scalar(number: Any, dtype: torch.dtype) -> torch.Tensor:
    if not isinstance(number, Quotient):
        return torch.scalar_tensor(number, dtype=dtype)
    over = torch.scalar_tensor(number.over, dtype=dtype)
    return over if number.under == 1 else over / number.under


def as_known(numbers: Sequence[Any], shape: tuple[int, ...] | None = None) -> Known:
    """Returns integers and symbols as an array."""
    array = np.empty(len(numbers), dtype=object)
    # By assignment: np.array(list) would look into the symbols as sequences.
    array[:] = numbers
    array = array if any(map(is_symbol, numbers)) else array.astype(np.int64)
    return array if shape is None else array.reshape(shape)


def operands_of(call: NodeCall) -> list[Any]:
    """Returns the operands of an elementwise operator: numbers for constants with one entry.

    A number has no dtype, and its gradient is not computed.
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
