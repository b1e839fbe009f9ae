"""Arrays by name as a safetensors file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from closedform.errors import SessionError, StateError
from closedform.files import replace_file
from closedform.ir.graph import Array
from closedform.ir.types import DType

_DTYPES: dict[str, np.dtype[Any]] = {
    "F64": np.dtype(np.float64),
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "BF16": DType.BF16.numpy,
    "I64": np.dtype(np.int64),
    "I32": np.dtype(np.int32),
    "BOOL": np.dtype(np.bool_),
}
"""The dtypes of a training state, by their names in safetensors, whose reader lacks bfloat16."""


def write_state(path: str | os.PathLike[str], arrays: Mapping[str, Array]) -> None:
    """Writes arrays.

    The bytes go to a temporary file in the same folder, which is then renamed: an interrupted save
    leaves the previous file.

    Raises:
        SessionError: The file cannot be written.
    """
    from safetensors.numpy import save

    target = Path(path)
    try:
        replace_file(target, save(dict(arrays)))
    except (OSError, ValueError) as error:  # a null byte is a ValueError
        raise SessionError(
            f"cannot write the state: {error}", where=f"file {str(target)!r}"
        ) from error


def read_state(path: str | os.PathLike[str]) -> dict[str, Array]:
    """Returns the arrays that ``write_state`` wrote.

    Raises:
        StateError: The file cannot be read, or an array has another dtype.
    """
    from safetensors import SafetensorError, deserialize

    where = f"file {os.fspath(path)!r}"
    try:
        read: Any = deserialize  # untyped
        tensors = read(Path(path).read_bytes())
    except (OSError, SafetensorError) as error:
        raise StateError(f"cannot read the state: {error}", where=where) from error
    found = {}
    for name, tensor in tensors:
        dtype = tensor["dtype"]
        if dtype not in _DTYPES:
            raise StateError(
                f"{name!r} must be one of {', '.join(_DTYPES)}, got {dtype}", where=where
            )
        found[name] = np.frombuffer(tensor["data"], _DTYPES[dtype]).reshape(tensor["shape"])
    return found
