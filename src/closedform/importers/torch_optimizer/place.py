"""The place in the code of an optimizer that a trace is at."""

from __future__ import annotations

import sys

import torch

from closedform.code_files import files_of
from closedform.importers.python.place import origin

TORCH_FILES = files_of("torch")
_OPTIMIZERS_OF_TORCH = files_of(torch.optim.__name__)
_TRACER_AND_TORCH = files_of("closedform", "torch")


def code_place() -> str:
    """Returns the file and line of the innermost frame of an optimizer."""
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if file not in _TRACER_AND_TORCH or file in _OPTIMIZERS_OF_TORCH:
            return f"{file}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return "unknown code"


def exception_place(error: Exception, where: str) -> str:
    """Returns the file and line of the innermost frame of an optimizer that is not of torch."""
    return origin(
        error,
        where,
        lambda file: file not in _TRACER_AND_TORCH,
        lambda file: file in _OPTIMIZERS_OF_TORCH,
    )
