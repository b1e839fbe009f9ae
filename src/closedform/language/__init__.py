"""What authors write: schedules and update rules as SymPy expressions.

Imports SymPy and nothing below it in the house; methods that compute values reach the compiler
by a local import.
"""

from closedform.language.compose import chained, repeat, sequential, splice
from closedform.language.functions import (
    FloorDiv,
    FloorMod,
    MatMul,
    ReduceSum,
    Transpose,
    floor_div,
    floor_mod,
    matmul,
    reduce_sum,
    transpose,
)
from closedform.language.numbers import exact_number
from closedform.language.schedule import Schedule
from closedform.language.symbols import GRAD, PARAM, hyper, state, t
from closedform.language.update_rule import State, UpdateRule

__all__ = [
    "GRAD",
    "PARAM",
    "FloorDiv",
    "FloorMod",
    "MatMul",
    "ReduceSum",
    "Schedule",
    "State",
    "Transpose",
    "UpdateRule",
    "chained",
    "exact_number",
    "floor_div",
    "floor_mod",
    "hyper",
    "matmul",
    "reduce_sum",
    "repeat",
    "sequential",
    "splice",
    "state",
    "t",
    "transpose",
]
