"""The dtype that a traced step sees: that of the parameters in the exported graph.

A step runs in float64, whatever the dtype is. What it asks about the dtype is answered for the
reported one, and the answer is noted: a step that asks is traced for each dtype.
"""

from __future__ import annotations

from typing import Any

import torch

from closedform.importers.torch_optimizer.decisions import Run
from closedform.importers.torch_optimizer.scalars import symbolic
from closedform.language.shapes import EPSILON

_FINFO = torch.finfo


class Reported:
    """A dtype, and whether the step has asked for it.

    Args:
        dtype: The dtype of the parameters, float32 or float64.
        run: The run that asks.

    Attributes:
        is_read: Whether the step has asked for the dtype.
    """

    def __init__(self, dtype: torch.dtype, run: Run) -> None:
        self.dtype = dtype
        self.run = run
        self.is_read = False

    def read(self) -> torch.dtype:
        """Returns the dtype, and notes that the step has asked for it."""
        self.is_read = True
        return self.dtype

    def of(self, dtype: torch.dtype) -> torch.dtype:
        """Returns the dtype of a tensor that has this one in the trace."""
        return self.read() if dtype == torch.float64 else dtype

    def finfo(self, dtype: torch.dtype | None = None) -> Any:
        """Returns ``torch.finfo``; the epsilon of the parameters' dtype is a symbol."""
        float_type = self.read() if dtype is None else dtype
        if float_type != self.dtype:
            return _FINFO(float_type)
        self.is_read = True
        return _Limits(self)


class _Limits:
    """The limits of the reported dtype."""

    def __init__(self, precision: Reported) -> None:
        self._reported = precision

    @property
    def eps(self) -> Any:
        """The distance of 1 to the next number."""
        precision = self._reported
        return symbolic(_FINFO(precision.dtype).eps, EPSILON, precision.run)

    def __getattr__(self, name: str) -> Any:
        return getattr(_FINFO(self._reported.dtype), name)
