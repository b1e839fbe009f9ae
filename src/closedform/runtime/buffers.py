"""Memory of a session: one block for all that a step hands to the next, and checks of arrays."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from closedform.errors import ClosedFormError, SessionError, nearest
from closedform.runtime.onnx_session import Port

Array = NDArray[Any]

ALIGNMENT = 64
"""Bytes; a cache line and the widest vector register of a CPU."""


@dataclass(frozen=True, slots=True)
class Buffers:
    """Arrays in one aligned block of memory.

    Attributes:
        block: The memory.
        arrays: The writable arrays by the name of their input.
    """

    block: NDArray[np.uint8]
    arrays: dict[str, Array]


def allocate(ports: Sequence[Port]) -> Buffers:
    """Returns new arrays for ports without free sizes, filled with zeros."""
    starts: dict[str, int] = {}
    total = 0
    for port in ports:
        starts[port.name] = total
        total += -(-byte_count(port) // ALIGNMENT) * ALIGNMENT
    memory = np.zeros(total + ALIGNMENT, np.uint8)
    block = memory[-memory.ctypes.data % ALIGNMENT :][:total]
    arrays = {
        port.name: block[starts[port.name] :][: byte_count(port)]
        .view(port.dtype)
        .reshape(fixed_shape(port))
        for port in ports
    }
    return Buffers(block, arrays)


def fixed_shape(port: Port) -> tuple[int, ...]:
    """Returns the shape of a port without free sizes."""
    return tuple(int(size) for size in port.shape if size is not None)


def byte_count(port: Port) -> int:
    """Returns the size of a port without free sizes in bytes."""
    return math.prod(fixed_shape(port)) * port.dtype.itemsize


def read_only(array: Array) -> Array:
    """Returns a view that cannot be written to."""
    view = array.view()
    view.flags.writeable = False
    return view


def check_names(
    given: object,
    expected: Mapping[str, object],
    what: str,
    where: str,
    error: type[ClosedFormError] = SessionError,
) -> None:
    """Raises ``error`` where names are unknown or missing; ``what`` is their kind."""
    if not isinstance(given, Mapping):
        raise error(
            f"expected a mapping with each {what} by name, got {type(given).__name__}",
            where=where,
            hint=f"give {{name: …}} for {', '.join(map(repr, list(expected)[:6])) or 'none'}",
        )
    for name in given:
        if name not in expected:
            hint = nearest(name, expected) if expected else "there are none"
            raise error(f"unknown {what} {name!r}", where=where, hint=hint)
    missing = [name for name in expected if name not in given]
    if missing:
        listed = ", ".join(repr(name) for name in missing[:6])
        more = f" and {len(missing) - 6} more" if len(missing) > 6 else ""
        raise error(f"{what} {listed}{more} missing", where=where, hint="give one for each name")


def check_array(
    array: object,
    port: Port,
    what: str,
    where: str,
    error: type[ClosedFormError] = SessionError,
) -> Array:
    """Returns ``array`` if it is an array of the port's dtype and shape, else raises ``error``."""
    if not isinstance(array, np.ndarray):
        raise error(
            f"{what} must be a NumPy array {port}, got {type(array).__name__}",
            where=where,
            hint="pass numpy.asarray(…), or tensor.detach().cpu().numpy()",
        )
    if array.dtype != port.dtype:
        raise error(
            f"{what} must be {port}, got dtype {array.dtype}",
            where=where,
            hint=f"convert it with .astype({str(port.dtype)!r})",
        )
    if array.shape != fixed_shape(port):
        raise error(f"{what} must be {port}, got shape {list(array.shape)}", where=where)
    return array
