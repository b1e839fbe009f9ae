"""The numbers of a constant, as onnxruntime and the ONNX standard alike read them.

A tensor is stored as bytes or in a field of wider numbers, such as a bool as an int32. Of a number
that does not fit, onnxruntime 1.31 takes the low byte, so that a bool of 256 is False, and
``onnx.numpy_helper`` asks whether it is 0. What has no single meaning is refused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from onnx import TensorProto, numpy_helper

from closedform.errors import VerificationError
from closedform.ir.graph import Array


@dataclass(frozen=True, slots=True)
class _Storage:
    """How the entries of an element type are stored.

    Attributes:
        field: The field of the entries that are not stored as bytes.
        size: The bytes of an entry.
        least: The least entry of the field.
        most: The greatest entry of the field.
    """

    field: str
    size: int
    least: float = -math.inf
    most: float = math.inf


_STORAGE: Mapping[int, _Storage] = {
    TensorProto.FLOAT: _Storage("float_data", 4),
    TensorProto.DOUBLE: _Storage("double_data", 8),
    TensorProto.INT64: _Storage("int64_data", 8),
    TensorProto.INT32: _Storage("int32_data", 4),
    TensorProto.INT8: _Storage("int32_data", 1, -(2**7), 2**7 - 1),
    TensorProto.BOOL: _Storage("int32_data", 1, 0, 1),
    # The bits of a float of 16 bits.
    TensorProto.FLOAT16: _Storage("int32_data", 2, 0, 2**16 - 1),
    TensorProto.BFLOAT16: _Storage("int32_data", 2, 0, 2**16 - 1),
    TensorProto.UINT32: _Storage("uint64_data", 4, 0, 2**32 - 1),
    TensorProto.UINT64: _Storage("uint64_data", 8),
}
"""By element type. The others are refused by ``array_of``."""

_KINDS = ("float", "double", "int32", "int64", "uint64", "string", "external")
_FIELDS = tuple(f"{kind}_data" for kind in _KINDS)


def array_of(tensor: TensorProto, name: str) -> Array:
    """Returns the entries of a constant.

    Args:
        tensor: The constant.
        name: Its name, for errors.

    Raises:
        VerificationError: Its type is not supported, its data is in another file, does not have its
            shape, is stored twice, or has an entry that its type does not hold.
    """

    def error(hint: str) -> VerificationError:
        return VerificationError(f"the constant {name!r} cannot be read", hint=hint)

    storage = _STORAGE.get(tensor.data_type)
    if storage is None or tensor.data_location == TensorProto.EXTERNAL:
        raise error("its type is not supported, or its data is in another file")
    fields = [field for field in _FIELDS if len(getattr(tensor, field))]
    fields += ["raw_data"] if tensor.HasField("raw_data") else []
    if fields not in ([], ["raw_data"], [storage.field]) or tensor.HasField("segment"):
        kind = TensorProto.DataType.Name(tensor.data_type)
        raise error(f"{kind} is stored in {storage.field} or raw_data, and it has {fields}")
    count = math.prod(tensor.dims)
    is_raw = fields == ["raw_data"]
    entries = () if is_raw else getattr(tensor, storage.field)
    has_shape = len(tensor.raw_data) == count * storage.size if is_raw else len(entries) == count
    if min(tensor.dims, default=0) < 0 or not has_shape:
        raise error("its data do not have its shape")
    if is_raw and tensor.data_type == TensorProto.BOOL:
        entries = tuple(tensor.raw_data)
    for entry in entries if math.isfinite(storage.most) else ():
        if not storage.least <= entry <= storage.most:
            raise error(
                f"its entry {entry} is not in {storage.least}..{storage.most}: engines differ in "
                "what they make of it"
            )
    return np.asarray(numpy_helper.to_array(tensor))
