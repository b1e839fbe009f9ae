"""One update of a rule in 60 digits: its expressions, evaluated with mpmath on object arrays.

It shares no code with the compiler: no simplification, no graph, no dtype. A schedule is evaluated
by ``tests.support.exact``.
"""

import functools
import math
import operator
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import sympy as sp
from numpy.typing import NDArray

from closedform.language import Schedule, UpdateRule
from closedform.language.functions import AllBut
from closedform.language.model import tensor_input
from closedform.language.partitions import Layout
from closedform.language.shapes import EPSILON
from closedform.language.symbols import GRAD, PARAM, local, state, t
from tests.support.exact import evaluate_exactly, mpf

Array = NDArray[Any]
NAN, INFINITY = mpmath.nan, mpmath.inf

exact_number = np.frompyfunc(lambda value: mpmath.mpf(float(value)), 1, 1)


def _power(base: Any, exponent: Any) -> Any:
    """A power of real numbers: infinite at a pole, NaN where it is not real."""
    if base == 0 and exponent < 0:
        return INFINITY
    if base < 0 and exponent != int(exponent):
        return NAN
    return mpmath.sqrt(base) if exponent == 0.5 else base**exponent


def _logarithm(value: Any) -> Any:
    return mpmath.log(value) if value > 0 else NAN


def _floor_mod(a: Any, b: Any) -> Any:
    return a - b * mpmath.floor(a / b)


_ELEMENTWISE: dict[str, Callable[..., Any]] = {
    "Abs": np.frompyfunc(abs, 1, 1),
    "Max": np.frompyfunc(max, 2, 1),
    "Min": np.frompyfunc(min, 2, 1),
    "Pow": np.frompyfunc(_power, 2, 1),
    "exp": np.frompyfunc(mpmath.exp, 1, 1),
    "log": np.frompyfunc(_logarithm, 1, 1),
    "cos": np.frompyfunc(mpmath.cos, 1, 1),
    "sin": np.frompyfunc(mpmath.sin, 1, 1),
    "atan": np.frompyfunc(mpmath.atan, 1, 1),
    "floor": np.frompyfunc(mpmath.floor, 1, 1),
    "sign": np.frompyfunc(mpmath.sign, 1, 1),
    "FloorMod": np.frompyfunc(_floor_mod, 2, 1),
    "FloorDiv": np.frompyfunc(lambda a, b: mpmath.floor(a / b), 2, 1),
}
_CONDITIONS: dict[str, Callable[..., Any]] = {
    "Equality": operator.eq,
    "Unequality": operator.ne,
    "StrictLessThan": operator.lt,
    "LessThan": operator.le,
    "StrictGreaterThan": operator.gt,
    "GreaterThan": operator.ge,
}
_LOGICAL: dict[str, Callable[..., Any]] = {"And": np.logical_and, "Or": np.logical_or}


class ExactUpdate:
    """The values of one rule for one tensor before a step.

    Args:
        rule: The rule, resolved for the shape of the tensor.
        tensors: Parameter ("param"), gradient ("grad"), states and further inputs by name.
        step: The number of steps done.
        shared: States of the whole model by name.
        epsilon: The distance from 1 to the next number of the dtype of the tensor.
    """

    def __init__(
        self,
        rule: UpdateRule,
        tensors: Mapping[str, Array],
        step: int,
        shared: Mapping[str, Any],
        epsilon: float,
    ) -> None:
        self.shape = np.shape(tensors["param"])
        values: dict[sp.Basic, Any] = {
            t: mpmath.mpf(step),
            EPSILON: mpmath.mpf(epsilon),
            PARAM: tensors["param"],
            GRAD: tensors["grad"],
        }
        values |= {state(name): tensors[name] for name in rule.states}
        values |= {tensor_input(name): tensors[name] for name in rule.inputs}
        values |= {symbol: shared[name] for name, symbol in rule.shared_symbols.items()}
        exact = {key: exact_number(np.asarray(value)) for key, value in values.items()}
        self.done = {key: np.asarray(value, object) for key, value in exact.items()}
        self.names = {name: _hyper(value, step) for name, value in rule.hyperparameters.items()}
        for name, expr in rule.definitions.items():
            self.done[local(name)] = self.value(expr)

    def value(self, expr: sp.Basic) -> Array:
        """Returns the value of an expression, an array of mpmath numbers or of truths."""
        if expr not in self.done:
            self.done[expr] = np.asarray(self._compute(expr))
        return self.done[expr]

    def _compute(self, expr: sp.Basic) -> Any:
        name = type(expr).__name__
        if isinstance(expr, sp.Symbol):
            return np.asarray(self.names[expr.name], object)
        if expr in (sp.true, sp.false):
            return expr == sp.true
        if expr.is_Rational:
            return np.asarray(mpmath.mpf(int(expr.p)) / int(expr.q), object)
        if isinstance(expr, sp.NumberSymbol):
            return np.asarray(mpf(evaluate_exactly(expr, {})), object)
        if isinstance(expr, sp.Piecewise):
            return self._branches(expr)
        if name in _WHOLE:
            return _WHOLE[name](self, expr)
        args = [self.value(arg) for arg in expr.args]
        if name == "Add":
            return functools.reduce(operator.add, args)
        if name == "Mul":
            return functools.reduce(operator.mul, args)
        if name in ("Max", "Min"):
            return functools.reduce(_ELEMENTWISE[name], args)
        if name in _LOGICAL:
            return functools.reduce(_LOGICAL[name], args)
        if name == "Not":
            return ~args[0].astype(bool)
        if name == "ITE":
            return np.where(args[0].astype(bool), args[1], args[2])
        if name in _CONDITIONS:
            return np.asarray(_CONDITIONS[name](args[0], args[1])).astype(bool)
        if name == "NonFinite":
            return np.frompyfunc(lambda x: mpmath.mpf(int(not mpmath.isfinite(x))), 1, 1)(args[0])
        return _ELEMENTWISE[name](*args)

    def _branches(self, expr: sp.Piecewise) -> Array:
        result: Any = np.asarray(NAN, object)
        for value, condition in reversed(expr.args):
            holds = self.value(condition).astype(bool)
            if holds.all() or holds.any():
                result = np.where(holds, self.value(value), result)
        return np.asarray(result, object)

    def axes(self, expr: sp.Basic, rank: int) -> tuple[tuple[int, ...], bool]:
        """Returns the axes of a reduction, and whether they stay."""
        if len(expr.args) == 1:
            return tuple(range(rank)), False
        keepdims = expr.args[2] == sp.true
        if isinstance(expr.args[1], AllBut):
            remaining = int(expr.args[1].args[0]) % rank
            return tuple(axis for axis in range(rank) if axis != remaining), keepdims
        return tuple(int(axis) % rank for axis in expr.args[1].args), keepdims


def _hyper(value: Any, step: int) -> Any:
    if isinstance(value, Schedule):
        return mpf(evaluate_exactly(value.bound, {t: Fraction(step)}))
    return mpf(evaluate_exactly(value, {}))


def _sum(update: ExactUpdate, expr: sp.Basic) -> Any:
    x = update.value(expr.args[0])
    axes, keepdims = update.axes(expr, x.ndim)
    return np.sum(x, axis=axes, keepdims=keepdims) if axes else x


def _mean(update: ExactUpdate, expr: sp.Basic) -> Any:
    x = update.value(expr.args[0])
    axes, _ = update.axes(expr, x.ndim)
    count = math.prod(x.shape[axis] for axis in axes)
    return _sum(update, expr) / mpmath.mpf(count)


def _maximum(update: ExactUpdate, expr: sp.Basic) -> Any:
    x = update.value(expr.args[0])
    axes, keepdims = update.axes(expr, x.ndim)
    # An object ufunc reduces over one axis at a time.
    for axis in axes:
        x = np.asarray(np.maximum.reduce(x, axis=axis, keepdims=True))
    return x if keepdims else x.reshape([d for i, d in enumerate(x.shape) if i not in axes])


def _global_sum(update: ExactUpdate, expr: sp.Basic) -> Any:
    terms = np.broadcast_to(update.value(expr.args[0]), update.shape)
    return np.add.reduce(np.asarray(terms, object), axis=None)


def _matmul(update: ExactUpdate, expr: sp.Basic) -> Any:
    left, right = (update.value(arg) for arg in expr.args)
    return left @ right


def _positions(update: ExactUpdate, expr: sp.Basic) -> Any:
    shape = update.value(expr.args[0]).shape
    axis = int(expr.args[1]) % len(shape)
    places = exact_number(np.arange(shape[axis]))
    return places.reshape([-1 if place == axis else 1 for place in range(len(shape))])


def _sizes(expr: sp.Basic) -> tuple[int, ...]:
    return tuple(int(size) for size in expr.args[1].args)


def _block_shape(update: ExactUpdate, expr: sp.Basic) -> tuple[int | str, ...]:
    return Layout.of(expr.args[-1], update.shape).block(int(expr.args[1]))


def _places(update: ExactUpdate, expr: sp.Basic, place: int) -> tuple[Any, ...]:
    """The index of a block: its places in each group along the axis."""
    layout = Layout.of(expr.args[-1], update.shape)
    period = sum(layout.sizes) // layout.groups
    parts = [np.arange(*layout.ends(place)) + group * period for group in range(layout.groups)]
    return (*(slice(None),) * layout.axis, np.concatenate(parts))


def _block(update: ExactUpdate, expr: sp.Basic) -> Any:
    part = update.value(expr.args[0])[_places(update, expr, int(expr.args[1]))]
    return part.reshape(_block_shape(update, expr))


def _joined(update: ExactUpdate, expr: sp.Basic) -> Any:
    result = np.empty(update.shape, object)
    for place, part in enumerate(expr.args[:-1]):
        places = _places(update, expr, place)
        result[places] = np.reshape(update.value(part), result[places].shape)
    return result


_WHOLE: dict[str, Callable[[ExactUpdate, Any], Any]] = {
    "ReduceSum": _sum,
    "ReduceMean": _mean,
    "ReduceMax": _maximum,
    "GlobalSum": _global_sum,
    "MatMul": _matmul,
    "Positions": _positions,
    "Transpose": lambda update, expr: np.swapaxes(update.value(expr.args[0]), -1, -2),
    "Permute": lambda update, expr: update.value(expr.args[0]).transpose(_sizes(expr)),
    "BroadcastTo": lambda update, expr: np.broadcast_to(update.value(expr.args[0]), _sizes(expr)),
    "ExpandDims": lambda update, expr: np.expand_dims(
        update.value(expr.args[0]), int(expr.args[1])
    ),
    "Reshape": lambda update, expr: update.value(expr.args[0]).reshape(_sizes(expr)),
    "LikeParam": lambda update, expr: update.value(expr.args[0]).reshape(update.shape),
    "Block": _block,
    "LikeBlock": lambda update, expr: update.value(expr.args[0]).reshape(
        _block_shape(update, expr)
    ),
    "Joined": _joined,
}


def exact_param(
    rule: UpdateRule,
    tensors: Mapping[str, Array],
    step: int,
    shared: Mapping[str, Any],
    epsilon: float,
) -> Array:
    """Returns the parameter after a step, an array of mpmath numbers; see ``ExactUpdate``."""
    resolved = rule.for_shape(np.shape(tensors["param"]))
    update = ExactUpdate(resolved, tensors, step, shared, epsilon)
    value = update.value(resolved.param)
    return np.asarray(np.broadcast_to(value, np.shape(tensors["param"])), object)
