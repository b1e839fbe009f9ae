"""Scalars and ufuncs of NumPy for the symbolic numbers of a traced step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from closedform.importers.torch_optimizer.scalars import SYMBOLIC, Float, Int


class _ScalarType(type):
    """A type of NumPy in traced code: it makes the numbers of Python that it holds."""

    kind: type
    convert: Callable[[Any], Any]

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.kind)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, cls.kind)

    def __call__(cls, value: Any = 0) -> Any:
        if isinstance(value, SYMBOLIC):
            return cls.convert(value)
        return cls.kind(value).item()


def _narrow(value: Any) -> Any:
    raise value.run.refuse("a number is rounded or wrapped to a narrow type of NumPy")


_NARROW = (
    np.float16,
    np.float32,
    np.int8,
    np.int16,
    np.int32,
    np.uint8,
    np.uint16,
    np.uint32,
    np.uint64,
)

_KINDS: Mapping[type, Callable[[Any], Any]] = {
    np.float64: Float,
    np.int64: Int,
    **dict.fromkeys(_NARROW, _narrow),
}

NUMPY_TYPES: Mapping[type, Any] = {
    kind: _ScalarType(kind.__name__, (), {"kind": kind, "convert": staticmethod(convert)})
    for kind, convert in _KINDS.items()
}
"""Scalar types of NumPy and their versions for symbolic numbers."""
