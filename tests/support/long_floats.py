"""Values of expressions at many steps at once, and the steps at which a jump may be missed.

Numbers are computed in ``numpy.longdouble``, which has 64 bits, and each floor, comparison,
remainder and sign marks the steps at which its number is nearer to a threshold than a multiple of
the rounding errors. At all other steps the branch is that of the exact number.
"""

from collections.abc import Callable
from functools import reduce

import numpy as np
import sympy as sp
from numpy.typing import NDArray
from sympy.core.relational import Relational

from closedform.language import FloorDiv, FloorMod

Longs = NDArray[np.longdouble]
Truths = NDArray[np.bool_]

NEAR = 1e-12
"""The relative distance from a threshold that is no longer safe: 2**24 times the rounding unit."""


class LongFloats:
    """The values of an expression at an array of steps.

    Attributes:
        is_near: The steps at which a number is near a threshold.
    """

    def __init__(self, steps: NDArray[np.int64]) -> None:
        self._steps = steps.astype(np.longdouble)
        self.is_near: Truths = np.zeros(len(steps), np.bool_)

    def value(self, expr: sp.Basic) -> Longs:
        """Returns the values; a truth is 0 or 1."""
        if expr.is_Symbol:
            return self._steps
        if expr.is_number:
            number = sp.N(expr, 40)
            head = np.longdouble(float(number))
            rest = np.longdouble(float(number - sp.Float(float(number), 40)))
            return np.full_like(self._steps, head + rest)
        if isinstance(expr, sp.Piecewise):
            return self._piecewise(expr)
        args = [self.value(arg) for arg in expr.args]
        if isinstance(expr, Relational):
            return self._relation(type(expr), *args)
        return self._function(expr.func, args)

    def _function(self, kind: type[sp.Basic], args: list[Longs]) -> Longs:
        if kind in (sp.floor, sp.ceiling):
            return self._floor(args[0]) if kind is sp.floor else -self._floor(-args[0])
        if kind is FloorDiv:
            return self._floor(args[0] / args[1])
        if kind is FloorMod:
            return args[0] - args[1] * self._floor(args[0] / args[1])
        if kind is sp.sign:
            return self._relation(sp.Gt, args[0], 0 * args[0]) * 2 - 1
        result = args[0]
        for arg in args[1:]:
            result = _BINARY[kind](result, arg)
        return result if len(args) > 1 else _UNARY[kind](result)

    def _floor(self, number: Longs) -> Longs:
        self._mark(number - np.rint(number), number)
        return np.floor(number)

    def _relation(self, kind: type[Relational], left: Longs, right: Longs) -> Longs:
        self._mark(left - right, np.abs(left) + np.abs(right))
        return _RELATIONS[kind](left, right).astype(np.longdouble)

    def _mark(self, distance: Longs, size: Longs) -> None:
        self.is_near |= ~(np.abs(distance) > NEAR * (1 + np.abs(size)))

    def _piecewise(self, expr: sp.Piecewise) -> Longs:
        values = [self.value(value) for value, _ in expr.args]
        conditions = [
            np.ones(len(self._steps), np.bool_) if condition == sp.true else self._holds(condition)
            for _, condition in expr.args
        ]
        return np.select(conditions, values)

    def _holds(self, condition: sp.Basic) -> Truths:
        if isinstance(condition, sp.And | sp.Or):
            join = np.logical_and if isinstance(condition, sp.And) else np.logical_or
            return reduce(join, map(self._holds, condition.args))
        truths: Truths = np.equal(self.value(condition), 1)
        return truths


_RELATIONS: dict[type[Relational], Callable[[Longs, Longs], Truths]] = {
    sp.Lt: np.less,
    sp.Le: np.less_equal,
    sp.Gt: np.greater,
    sp.Ge: np.greater_equal,
}
_BINARY: dict[type[sp.Basic], Callable[[Longs, Longs], Longs]] = {
    sp.Add: np.add,
    sp.Mul: np.multiply,
    sp.Pow: np.power,
    sp.Min: np.minimum,
    sp.Max: np.maximum,
}
_UNARY: dict[type[sp.Basic], Callable[[Longs], Longs]] = {
    sp.exp: np.exp,
    sp.log: np.log,
    sp.sin: np.sin,
    sp.cos: np.cos,
    sp.Abs: np.abs,
}
