"""Names for authors of schedules and update rules: symbols, and operators beyond SymPy's.

Everything else of an expression is SymPy: numbers, ``+``, ``sympy.cos``, ``sympy.Piecewise``.
Symbols are ``t`` (the number of updates done), :func:`hyper`, and in update rules ``PARAM``,
``GRAD``, :func:`state`, :func:`shared`, :func:`counter` and :func:`tensor_input`; ``RANK``,
``SIZE`` and :func:`axis_size` are numbers of the shape of a parameter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from closedform.errors import unknown_attribute
from closedform.language import (
    EPSILON,
    GRAD,
    PARAM,
    RANK,
    SIZE,
    Shared,
    State,
    all_but,
    axis_size,
    broadcast_to,
    counter,
    exact_number,
    expand_dims,
    floor_div,
    floor_mod,
    global_sum,
    hyper,
    like_param,
    local,
    matmul,
    non_finite,
    permute,
    positions,
    reduce_max,
    reduce_mean,
    reduce_sum,
    reshape,
    rounded,
    shared,
    state,
    t,
    tensor_input,
    transpose,
    uniform,
)

__all__ = [
    "EPSILON",
    "GRAD",
    "PARAM",
    "RANK",
    "SIZE",
    "Shared",
    "State",
    "all_but",
    "axis_size",
    "broadcast_to",
    "counter",
    "exact_number",
    "expand_dims",
    "floor_div",
    "floor_mod",
    "global_sum",
    "hyper",
    "like_param",
    "local",
    "matmul",
    "non_finite",
    "permute",
    "positions",
    "reduce_max",
    "reduce_mean",
    "reduce_sum",
    "reshape",
    "rounded",
    "shared",
    "state",
    "t",
    "tensor_input",
    "transpose",
    "uniform",
]


if not TYPE_CHECKING:  # type checkers report unknown names themselves

    def __getattr__(name: str) -> NoReturn:
        raise unknown_attribute(__name__, name, __all__)


def __dir__() -> list[str]:
    return sorted(__all__)
