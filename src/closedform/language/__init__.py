"""The language of authors: schedules and update rules as SymPy expressions.

It imports SymPy and no other layer; methods that compute values find the compiler through
:mod:`closedform.delegation`. Names of schedules are imported with the package, names of update
rules and tensors when they are first used.

Example:
    >>> Schedule(1 / (t + 1)).exact(2)
    1/3
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from closedform.errors import unknown_attribute
from closedform.language.compose import chained, maximum, product, repeat, sequential, splice
from closedform.language.integers import FloorDiv, FloorMod, floor_div, floor_mod
from closedform.language.schedule import Schedule
from closedform.language.symbols import GRAD, PARAM, exact_number, hyper, local, state, t

if TYPE_CHECKING:
    from closedform.language.functions import (
        AllBut,
        BroadcastTo,
        ExpandDims,
        LikeParam,
        MatMul,
        Permute,
        Positions,
        ReduceMax,
        ReduceMean,
        ReduceSum,
        Reshape,
        Rounded,
        Transpose,
        Uniform,
        all_but,
        broadcast_to,
        expand_dims,
        like_param,
        matmul,
        permute,
        positions,
        reduce_max,
        reduce_mean,
        reduce_sum,
        reshape,
        rounded,
        transpose,
        uniform,
    )
    from closedform.language.groups import Group, from_param_groups
    from closedform.language.model import (
        GlobalSum,
        NonFinite,
        Shared,
        counter,
        global_sum,
        non_finite,
        shared,
        tensor_input,
    )
    from closedform.language.shapes import EPSILON, RANK, SIZE, Sizes, Without, axis_size
    from closedform.language.update_rule import State, UpdateRule

_OF_RULES = ("functions", "groups", "model", "shapes", "update_rule")
"""The modules of update rules and tensors, which a schedule does not need."""

__all__ = [
    "EPSILON",
    "GRAD",
    "PARAM",
    "RANK",
    "SIZE",
    "AllBut",
    "BroadcastTo",
    "ExpandDims",
    "FloorDiv",
    "FloorMod",
    "GlobalSum",
    "Group",
    "LikeParam",
    "MatMul",
    "NonFinite",
    "Permute",
    "Positions",
    "ReduceMax",
    "ReduceMean",
    "ReduceSum",
    "Reshape",
    "Rounded",
    "Schedule",
    "Shared",
    "Sizes",
    "State",
    "Transpose",
    "Uniform",
    "UpdateRule",
    "Without",
    "all_but",
    "axis_size",
    "broadcast_to",
    "chained",
    "counter",
    "exact_number",
    "expand_dims",
    "floor_div",
    "floor_mod",
    "from_param_groups",
    "global_sum",
    "hyper",
    "like_param",
    "local",
    "matmul",
    "maximum",
    "non_finite",
    "permute",
    "positions",
    "product",
    "reduce_max",
    "reduce_mean",
    "reduce_sum",
    "repeat",
    "reshape",
    "rounded",
    "sequential",
    "shared",
    "splice",
    "state",
    "t",
    "tensor_input",
    "transpose",
    "uniform",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        for module in _OF_RULES:
            values = vars(importlib.import_module(f"{__name__}.{module}"))
            if name in values:
                return values[name]
    raise unknown_attribute(__name__, name, __all__)


def __dir__() -> list[str]:
    return sorted(__all__)
