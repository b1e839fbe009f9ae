"""Inputs and outputs of graphs as JSON, for programs in other environments and languages."""

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np

from closedform.ir.graph import Array

Coded = dict[str, Any]


def encode(array: Array) -> Coded:
    """Returns dtype, shape and bytes of an array, which lose nothing."""
    whole = np.ascontiguousarray(array).reshape(np.shape(array))
    data = base64.b64encode(whole.tobytes()).decode("ascii")
    return {"dtype": str(whole.dtype), "shape": list(whole.shape), "data": data}


def decode(coded: Mapping[str, Any]) -> Array:
    """Returns the array of :func:`encode`."""
    flat = np.frombuffer(base64.b64decode(coded["data"]), np.dtype(coded["dtype"]))
    return flat.reshape(coded["shape"])
