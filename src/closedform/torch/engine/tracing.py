"""Functions that a trace of torch.compile does not enter."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")


def outside_traces(function: Callable[P, R]) -> Callable[P, R]:
    """Returns a function that runs outside of any trace; only a trace imports ``torch._dynamo``."""

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        if not torch.compiler.is_compiling():
            return function(*args, **kwargs)
        outside: Callable[P, R] = torch.compiler.disable(function)
        return outside(*args, **kwargs)

    return run
