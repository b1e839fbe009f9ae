"""Types of values in a graph: a dtype and a shape of ints and named sizes; conversions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from closedform import magnitude
from closedform.errors import GraphError

Dim = int | str
Shape = tuple[Dim, ...]

FloatArray = NDArray[np.float64]
"""Values, such as a schedule at some steps."""
StepArray = NDArray[np.int64]
"""Steps at which a schedule is evaluated."""


@dataclass(frozen=True, slots=True)
class ElementType:
    """One row of the table of element types: the name of a type in each format and library.

    Attributes:
        label: In safetensors; in lower case the name in the text form of a graph.
        name: In NumPy, torch, JAX and MLX.
        number: In ONNX (``TensorProto.DataType``).
        runtime: In onnxruntime, between the parentheses of ``tensor(…)``.
        precision: The bits of the significand of a float, of which it holds every integer up to 2
            to this power.
        exponent: The exponent of 2 that is the smallest normal float.
    """

    label: str
    name: str
    number: int
    runtime: str
    precision: int = 0
    exponent: int = 0

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype; bfloat16 is that of ``ml_dtypes``."""
        if self.name == "bfloat16":
            import ml_dtypes

            return cast("np.dtype[Any]", np.dtype(ml_dtypes.bfloat16))
        return np.dtype(self.name)


ELEMENT_TYPES = (
    ElementType("BOOL", "bool", 9, "bool"),
    ElementType("U8", "uint8", 2, "uint8"),
    ElementType("I8", "int8", 3, "int8"),
    ElementType("I16", "int16", 5, "int16"),
    ElementType("I32", "int32", 6, "int32"),
    ElementType("I64", "int64", 7, "int64"),
    ElementType("F16", "float16", 10, "float16", 11, -14),
    ElementType("BF16", "bfloat16", 16, "bfloat16", 8, -126),
    ElementType("F32", "float32", 1, "float", 24, -126),
    ElementType("F64", "float64", 11, "double", 53, -1022),
)
"""The element types of files and tensors of users; ``DType`` has the ones of graphs."""

_ROWS = {row.label.lower(): row for row in ELEMENT_TYPES}


class DType(StrEnum):
    """Element type of a value; the string is its name in the text form."""

    BOOL = "bool"
    I8 = "i8"
    I32 = "i32"
    I64 = "i64"
    F16 = "f16"
    BF16 = "bf16"
    F32 = "f32"
    F64 = "f64"

    @property
    def is_float(self) -> bool:
        """True for the floating-point types, stored-only ones included."""
        return self in FLOATS

    @property
    def is_integer(self) -> bool:
        """True for the integer types, i8 included, which is only stored."""
        return self in INTEGERS

    @property
    def row(self) -> ElementType:
        """The names of the type in formats and libraries."""
        return _ROWS[self]

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype; bf16 is that of ``ml_dtypes``."""
        return self.row.numpy

    @property
    def limits(self) -> Any:
        """The limits of a float dtype, with the attributes of ``numpy.finfo``."""
        if self is DType.BF16:
            # NumPy knows no limits of dtypes that other packages define.
            import ml_dtypes

            return ml_dtypes.finfo(self.numpy)  # type: ignore[no-untyped-call]
        return np.finfo(self.numpy)


INTEGERS = frozenset({DType.I8, DType.I32, DType.I64})
COMPUTED_INTEGERS = frozenset({DType.I32, DType.I64})
FLOATS = frozenset({DType.F16, DType.BF16, DType.F32, DType.F64})
COMPUTED_FLOATS = frozenset({DType.F32, DType.F64})

HOLDS: Mapping[DType, frozenset[DType]] = {
    DType.BOOL: frozenset(DType),
    DType.I8: frozenset(DType) - {DType.BOOL},
    # float32 holds integers up to 2**24 and float64 up to 2**53; float16 has more bits of
    # significand than bfloat16 and fewer of exponent, so neither holds the other.
    DType.I32: frozenset({DType.I32, DType.I64, DType.F64}),
    DType.I64: frozenset({DType.I64}),
    DType.F16: frozenset({DType.F16, DType.F32, DType.F64}),
    DType.BF16: frozenset({DType.BF16, DType.F32, DType.F64}),
    DType.F32: frozenset({DType.F32, DType.F64}),
    DType.F64: frozenset({DType.F64}),
}
"""The dtypes that hold every value of a dtype."""


MAX_STEP = magnitude.LAST_STEP
"""The largest step that graphs are made for: small multiples of it are still exact in float64."""

LAST_STEP = {DType.I64: MAX_STEP, DType.I32: 2**31 - 1}
"""The largest step by dtype of the step."""


@dataclass(frozen=True, slots=True)
class TensorType:
    """A dtype and a shape; ``str`` gives the text form, such as ``f32[768,n]``."""

    dtype: DType
    shape: Shape = ()

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(str(dim) for dim in self.shape)}]"

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)


def sizes_for(shape: Shape, count: int) -> tuple[int, ...]:
    """Returns the sizes of a shape for so many elements; one may be named, the others leave it.

    A named size next to a size of 0 is 0: it has no other meaning there.

    Example:
        >>> sizes_for((2, "n"), 6)
        (2, 3)
    """
    fixed_size = math.prod(dim for dim in shape if isinstance(dim, int))
    rest = count // fixed_size if fixed_size else 0
    return tuple(dim if isinstance(dim, int) else rest for dim in shape)


def broadcast(first: Shape, second: Shape) -> Shape:
    """Returns the shape that two operands share; NumPy's rule, a named size equals only itself.

    Raises:
        GraphError: Two sizes differ and neither is 1.
    """
    rank = max(len(first), len(second))
    left = (1,) * (rank - len(first)) + first
    right = (1,) * (rank - len(second)) + second
    result: list[Dim] = []
    for a, b in zip(left, right, strict=True):
        if a != b and 1 not in (a, b):
            raise GraphError(
                f"shapes {list(first)} and {list(second)} do not broadcast: "
                f"sizes {a} and {b} differ"
            )
        result.append(b if a == 1 else a)
    return tuple(result)


def convert(array: NDArray[Any], target: DType) -> NDArray[Any]:
    """Returns the array cast to another dtype, as the op ``cast`` does."""
    is_float = array.dtype.kind not in "biu"
    with np.errstate(all="ignore"):
        if target is DType.BF16 and array.dtype.kind != "b":
            # By way of float32, as engines convert; directly from float64 it would be rounded once.
            return np.asarray(array.astype(np.float32).astype(target.numpy))
        if not is_float or not target.is_integer:
            return np.asarray(array.astype(target.numpy))
        wide = np.trunc(array.astype(np.float64))
        least = np.iinfo(target.numpy).min
        # C leaves a float outside of the integer's range undefined; x86 returns the least integer,
        # as here. 2**63 is a float64, 2**63 - 1 is not.
        fits = (wide >= least) & (wide < -float(least))
        return np.where(fits, wide, float(least)).astype(target.numpy)
