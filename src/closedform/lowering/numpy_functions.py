"""The functions of expressions in NumPy, for values of many steps or hyperparameters at once."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import sympy as sp

from closedform.language.integers import FloorDiv, FloorMod

ArrayFunction = Callable[..., Any]


def _fold(function: ArrayFunction) -> ArrayFunction:
    """A function of two arrays as one of any number of them."""
    return lambda *args: functools.reduce(function, args)


NUMPY_FUNCTIONS: Mapping[type[sp.Basic], ArrayFunction] = {
    sp.Add: _fold(operator.add),
    sp.Mul: _fold(operator.mul),
    sp.Pow: np.power,
    sp.Min: _fold(np.minimum),
    sp.Max: _fold(np.maximum),
    sp.Abs: np.abs,
    sp.sign: np.sign,
    sp.cos: np.cos,
    sp.sin: np.sin,
    sp.atan: np.arctan,
    sp.atan2: np.arctan2,
    sp.exp: np.exp,
    sp.log: np.log,
    sp.tanh: np.tanh,
    sp.floor: np.floor,
    sp.ceiling: np.ceil,
    # Exact for integers below 2**53, and faster than np.floor_divide, which computes a remainder.
    FloorDiv: lambda a, b: np.floor(a / b),
    FloorMod: lambda a, b: a - b * np.floor(a / b),
    sp.And: _fold(np.logical_and),
    sp.Or: _fold(np.logical_or),
    sp.Not: np.logical_not,
    sp.Lt: np.less,
    sp.Le: np.less_equal,
    sp.Gt: np.greater,
    sp.Ge: np.greater_equal,
    sp.Eq: np.equal,
    sp.Ne: np.not_equal,
}
"""Class of SymPy -> its function in NumPy."""
