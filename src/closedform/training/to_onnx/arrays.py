"""Tensors as arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from closedform.ir.types import DType

NARROW = (torch.float16, torch.bfloat16)
"""The dtypes of 16 bits."""


def array_of(tensor: torch.Tensor) -> NDArray[Any]:
    """Returns a copy of a tensor as an array of its dtype."""
    return np.array(view_of(tensor))


def view_of(tensor: torch.Tensor) -> NDArray[Any]:
    """Returns a tensor as an array of its dtype, in the memory of the tensor if that is the CPU's.

    Writes to one are writes to the other.
    """
    tensor = tensor.detach().cpu()
    if tensor.dtype is torch.bfloat16:  # NumPy has no bfloat16
        bits: NDArray[Any] = tensor.contiguous().view(torch.int16).numpy()
        return bits.view(DType.BF16.numpy)
    return tensor.numpy()
