"""Arrays by name as a safetensors file."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from closedform.errors import SessionError, StateError
from closedform.exporters.onnx_weights import StoredTensor
from closedform.files import check_regular, replace_file
from closedform.ir.graph import Array
from closedform.ir.types import DType

_DTYPES = {
    dtype.row.label: dtype.numpy
    for dtype in map(DType, ("f64", "f32", "f16", "bf16", "i64", "i32", "i8", "bool"))
} | {"U8": np.dtype(np.uint8)}
"""The dtypes of a training state and of a batch, by their names in safetensors, whose reader lacks
bfloat16."""


def write_state(path: str | os.PathLike[str], arrays: Mapping[str, Array]) -> None:
    """Writes arrays, whose bytes go to the file as they are.

    They go to a temporary file in the same folder, which is then renamed: an interrupted save
    leaves the previous file.

    Raises:
        SessionError: The file cannot be written.
    """
    target = Path(path)
    try:
        replace_file(target, _parts(arrays))
    except (OSError, ValueError) as error:  # a null byte is a ValueError
        raise SessionError(
            f"cannot write the state: {error}", where=f"file {str(target)!r}"
        ) from error


def _parts(arrays: Mapping[str, Array]) -> Iterator[bytes | memoryview]:
    """The bytes of a safetensors file: wide dtypes first, so that all are aligned."""
    labels = {dtype: label for label, dtype in _DTYPES.items()}
    names = sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name))
    entries = {}
    end = 0
    for name in names:
        array, start = arrays[name], end
        end += array.nbytes
        entries[name] = {
            "dtype": labels[array.dtype],
            "shape": list(array.shape),
            "data_offsets": [start, end],
        }
    header = json.dumps(entries, separators=(",", ":")).encode()
    # safetensors: the header's length (8 bytes), the header padded to 8 bytes, then the data.
    header += b" " * (-len(header) % 8)
    yield len(header).to_bytes(8, "little") + header
    for name in names:
        yield np.ascontiguousarray(arrays[name]).reshape(-1).view(np.uint8).data


def read_state(path: str | os.PathLike[str]) -> dict[str, StoredTensor]:
    """Returns the places of the arrays that ``write_state`` wrote.

    Raises:
        StateError: The file cannot be read, or an array has another dtype.
    """
    from safetensors import SafetensorError, safe_open

    where = f"file {os.fspath(path)!r}"
    check_regular(path, StateError)
    try:
        with safe_open(path, "np"):  # checks the header and the length of the file
            pass
        with Path(path).open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            entries: dict[str, Any] = json.loads(file.read(size))
    except (OSError, SafetensorError) as error:
        raise StateError(f"cannot read the state: {error}", where=where) from error
    # The one key of the header that is not a tensor.
    entries.pop("__metadata__", None)
    for name, entry in entries.items():
        if entry["dtype"] not in _DTYPES:
            raise StateError(
                f"{name!r} must be one of {', '.join(_DTYPES)}, got {entry['dtype']}", where=where
            )
    return {
        name: StoredTensor(
            Path(path),
            8 + size + entry["data_offsets"][0],
            _DTYPES[entry["dtype"]],
            tuple(entry["shape"]),
        )
        for name, entry in entries.items()
    }
