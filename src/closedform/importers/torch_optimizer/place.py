"""The place in the code of an optimizer that a trace is at."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

_TORCH = str(Path(torch.__file__).parent)
_HERE = str(Path(__file__).parent)
_OPTIMIZERS = str(Path(torch.__file__).parent / "optim")


def code_place() -> str:
    """Returns the file and line of the innermost frame of an optimizer."""
    frame = sys._getframe(1)
    place = "unknown code"
    while frame is not None:
        file = frame.f_code.co_filename
        is_own = file.startswith(_HERE)
        if not is_own and (not file.startswith(_TORCH) or file.startswith(_OPTIMIZERS)):
            return f"{file}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return place
