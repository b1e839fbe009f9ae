"""Models with large weights: written from the arrays that hold them, and read into such arrays.

A model of this file has its weights as inputs, so that it can be checked and joined without them;
in the file they are initializers. Their bytes go from the arrays to the file as they are, and do
not pass through protobuf, which would hold several copies of them and ends at 2 GB. Above ``LIMIT``
they are external data, in a file next to that of the model.
"""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, TensorProto, helper

from closedform.exporters.onnx_model import checked_target, serialize
from closedform.files import replace_file, writing
from closedform.ir.graph import Array

LIMIT = 1_500_000_000
"""Bytes of weights up to which they are in the file of the model; a file of ONNX ends at 2 GiB."""

_ALIGNMENT = 4096
"""The offsets of tensors in a file of external data are multiples of it, so that they can be mapped
(the ONNX documentation, External Data)."""

_SMALL = 1024
"""Bytes of a tensor that is not worth a separate place."""

_GRAPH, _INITIALIZER, _RAW_DATA = 7, 5, 9
"""The numbers of fields in onnx.proto."""


def write_weights(
    model: ModelProto, weights: Mapping[str, Array], path: str | os.PathLike[str]
) -> None:
    """Writes a model whose inputs of these names are weights, which become its initializers.

    The initializers of the model itself have the weights afterwards, or above ``LIMIT`` refer to
    their file. The file has the bytes of the model with initializers. Above ``LIMIT`` the weights
    are in ``NAME.data``; such a model is removed before it is replaced: an interrupted write leaves
    nothing to load, rather than a model with the weights of another.

    Raises:
        WriteError: The files cannot be written.
    """
    target = checked_target(path)
    data = target.with_name(f"{target.name}.data")
    graph = model.graph
    inputs = [value for value in graph.input if value.name not in weights]
    del graph.input[:]
    graph.input.extend(inputs)
    with writing(target, "the model"):
        if _size(weights) <= LIMIT:
            replace_file(target, _embed_weights(model, weights))
            data.unlink(missing_ok=True)
            for name, array in weights.items():
                graph.initializer.append(_header(name, array))
                graph.initializer[-1].raw_data = _bytes(array).tobytes()
            return
        for (name, array), offset in zip(weights.items(), _offsets(weights), strict=True):
            tensor = _header(name, array)
            _refer(tensor, data.name, offset, array.nbytes)
            graph.initializer.append(tensor)
        target.unlink(missing_ok=True)
        replace_file(data, _align_weights(weights))
        replace_file(target, serialize(model))


def _size(weights: Mapping[str, Array]) -> int:
    return sum(array.nbytes for array in weights.values())


def _bytes(array: Array) -> Array:
    """The bytes of an array, which are copied only if it is not contiguous."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _header(name: str, array: Array) -> TensorProto:
    """A tensor without its data."""
    element = helper.np_dtype_to_tensor_dtype(array.dtype)
    return TensorProto(name=name, data_type=element, dims=array.shape)


def _refer(tensor: TensorProto, file: str, offset: int, length: int) -> None:
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", file), ("offset", offset), ("length", length)):
        tensor.external_data.add(key=key, value=str(value))


def _offsets(weights: Mapping[str, Array]) -> list[int]:
    offsets, total = [], 0
    for array in weights.values():
        offsets.append(total)
        total += -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT
    return offsets


def _align_weights(weights: Mapping[str, Array]) -> Iterator[bytes | memoryview]:
    for array in weights.values():
        yield _bytes(array).data
        yield bytes(-array.nbytes % _ALIGNMENT)


def _embed_weights(model: ModelProto, weights: Mapping[str, Array]) -> Iterator[bytes | memoryview]:
    """The bytes of a model with initializers: the order of fields is that of protobuf."""
    start, end = (
        _fields(model.graph, lambda n: n <= _INITIALIZER),
        _fields(model.graph, lambda n: n > _INITIALIZER),
    )
    headers = []
    for name, array in weights.items():
        header = _header(name, array).SerializeToString(deterministic=True)
        header += _start(_RAW_DATA, array.nbytes)
        headers.append(_start(_INITIALIZER, len(header) + array.nbytes) + header)
    total = len(start) + sum(map(len, headers)) + _size(weights) + len(end)
    yield _fields(model, lambda n: n < _GRAPH) + _start(_GRAPH, total) + start
    for header, array in zip(headers, weights.values(), strict=True):
        yield header
        yield _bytes(array).data
    yield end + _fields(model, lambda n: n > _GRAPH)


def _fields(message: ModelProto | GraphProto, is_wanted: Callable[[int], bool]) -> bytes:
    part = type(message)()
    part.CopyFrom(message)
    for field, _ in message.ListFields():
        if not is_wanted(field.number):
            part.ClearField(field.name)
    data: bytes = part.SerializeToString(deterministic=True)
    return data


def _start(field: int, length: int) -> bytes:
    """The tag and the length of a field of bytes."""
    return _varint(field << 3 | 2) + _varint(length)


def _varint(number: int) -> bytes:
    groups = bytearray()
    while number > 127:
        groups.append(number & 127 | 128)
        number >>= 7
    groups.append(number)
    return bytes(groups)


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A weight in a file.

    Attributes:
        path: The file.
        offset: Where its bytes begin.
        dtype: Its dtype.
        shape: Its shape.
    """

    path: Path
    offset: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    def read_into(self, array: Array) -> None:
        """Fills a contiguous array of this dtype and shape.

        Raises:
            OSError: The file cannot be read, or ends before.
        """
        if not array.nbytes:
            return
        with self.path.open("rb") as file:
            file.seek(self.offset)
            if file.readinto(array.reshape(-1).view(np.uint8).data) != array.nbytes:
                raise OSError(f"{str(self.path)!r} ends within a tensor")


def read_weights(path: Path) -> tuple[ModelProto, dict[str, StoredTensor]]:
    """Returns a model without its larger weights, and the places of these by name.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is not a model.
    """
    weights: dict[str, StoredTensor] = {}
    bare = bytearray()
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            for number, start, body, end in _messages(data, 0, len(data)):
                if number == _GRAPH:
                    bare += _without_weights(data, body, end, path, weights)
                else:
                    bare += data[start:end]
        return ModelProto.FromString(bytes(bare)), weights
    except OSError:
        raise
    except Exception as error:  # protobuf's own have no types
        raise ValueError(str(error)) from error


def external_locations(path: Path) -> list[str]:
    """Returns the locations of the external data of a model's weights, which are not read."""
    initializers = onnx.load(path, load_external_data=False).graph.initializer
    entries = [entry for tensor in initializers for entry in tensor.external_data]
    return sorted({entry.value for entry in entries if entry.key == "location"})


def _without_weights(
    data: mmap.mmap, at: int, end: int, path: Path, weights: dict[str, StoredTensor]
) -> bytes:
    """The field of a graph without its larger weights, which are added to ``weights``."""
    # The length of the graph changes, so its field is written again with a new length.
    rest = bytearray()
    for field, first, content, last in _messages(data, at, end):
        tensor_entry = (
            _read_stored_tensor(data, content, last, path) if field == _INITIALIZER else None
        )
        if tensor_entry is None:
            rest += data[first:last]
        else:
            weights |= tensor_entry
    return _start(_GRAPH, len(rest)) + rest


def _messages(data: mmap.mmap, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """The number, start, start of the content, and end of each field of a message."""
    while at < end:
        tag, body = _number(data, at)
        match tag & 7:
            # Wire types of protobuf: 0 a varint, 1 eight bytes, 2 a length and content, 5 four
            # bytes.
            case 0:
                _, last = _number(data, body)
            case 1:
                last = body + 8
            case 2:
                length, body = _number(data, body)
                last = body + length
            case 5:
                last = body + 4
            case _:
                raise ValueError("not a protobuf message")
        if last > end:
            raise ValueError("a field ends beyond its message")
        yield tag >> 3, at, body, last
        at = last


def _number(data: mmap.mmap, at: int) -> tuple[int, int]:
    """A varint, and the place after it."""
    value = shift = 0
    while True:
        # A varint has at most ten bytes, for 64 bits.
        if at >= len(data) or shift > 63:
            raise ValueError("not a protobuf message")
        # Seven bits a byte, the lowest first; the eighth bit says that another byte follows.
        value |= (data[at] & 127) << shift
        shift += 7
        at += 1
        if data[at - 1] < 128:
            return value, at


def _read_stored_tensor(
    data: mmap.mmap, at: int, end: int, path: Path
) -> dict[str, StoredTensor] | None:
    """The place of a tensor, unless it is small or has its numbers in another form."""
    header = bytearray()
    raw: tuple[int, int] | None = None
    for number, start, body, last in _messages(data, at, end):
        if number == _RAW_DATA:
            raw = body, last
        elif last - start < _SMALL * 8:
            header += data[start:last]
        else:
            return None
    tensor = TensorProto.FromString(bytes(header))
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.data_type))
    shape = tuple(tensor.dims)
    size = math.prod(shape) * dtype.itemsize
    if tensor.data_location == TensorProto.EXTERNAL:
        entries = {entry.key: entry.value for entry in tensor.external_data}
        place = path.with_name(Path(entries["location"]).name), int(entries.get("offset", 0))
    elif raw is not None and raw[1] - raw[0] == size >= _SMALL:
        place = path, raw[0]
    else:
        return None
    return {tensor.name: StoredTensor(*place, dtype, shape)}
