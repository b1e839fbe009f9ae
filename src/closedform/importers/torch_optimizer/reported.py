"""The dtype that a traced step sees: that of the parameters in the exported graph.

A step runs in float64, whatever the dtype is. What it asks about the dtype is answered for the
reported one, and the answer is noted: a step that asks is traced for each dtype.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from closedform.importers.python.place import UserValue
from closedform.importers.tensors.values import Operand
from closedform.importers.torch_optimizer.decisions import Run
from closedform.importers.torch_optimizer.scalars import symbolic
from closedform.language.shapes import EPSILON

_FINFO = torch.finfo


class Reported:
    """A dtype, and whether the step has asked for it.

    Args:
        dtype: The dtype of the parameters, float32 or float64.
        run: The run that asks.
        is_only: Whether the step is for this dtype only, so that its epsilon is a number.

    Attributes:
        is_read: Whether the step has asked for the dtype.
    """

    def __init__(self, dtype: torch.dtype, run: Run, *, is_only: bool = False) -> None:
        self.dtype = dtype
        self.run = run
        self.is_only = is_only
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
        if float_type != self.dtype or self.is_only:
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


class Shown(TorchFunctionMode):
    """Shows a plain step tensors of float64 as those of another dtype.

    Args:
        dtype: The dtype, float32 or float64.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs one function of torch."""
        options = kwargs or {}
        name = function_name(func)
        if self.dtype == torch.float64:
            return func(*args, **options)
        if name == "dtype.__get__":
            dtype = func(*args)
            return self.dtype if dtype == torch.float64 else dtype
        # A cast to the dtype that a tensor has already is the tensor itself.
        if target_of_cast(name, args, options) == self.dtype and args[0].dtype == torch.float64:
            return args[0].clone() if options.get("copy") else args[0]
        return func(*args, **options)


def function_name(func: UserValue) -> str:
    """Returns the name of a function of torch; that of an attribute with ``__get__``."""
    name = getattr(func, "__name__", str(func))
    if name in ("__get__", "__set__"):
        return f"{getattr(func.__self__, '__name__', '')}.{name}"
    return str(name)


def target_of_cast(name: str, args: Operand, options: Operand) -> torch.dtype | None:
    """Returns the dtype that a call casts a tensor to, float32 or float64; None for other calls."""
    if name in _CASTS:
        return _CASTS[name]
    dtypes = [arg for arg in (*args, *options.values()) if isinstance(arg, torch.dtype)]
    is_cast = name in ("to", "type") and dtypes and dtypes[0] in _CASTS.values()
    return dtypes[0] if is_cast else None


_CASTS = {"double": torch.float64, "float": torch.float32}
