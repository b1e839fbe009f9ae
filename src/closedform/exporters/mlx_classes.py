"""Schedules and update rules as MLX takes them: functions of the step, and an optimizer.

Both are computed in float32 and int32, schedules and the scalars of rules in pairs of float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any, TypeAlias

import mlx.core as mx
import numpy as np
from mlx.optimizers import Optimizer
from mlx.utils import tree_map

from closedform.compiler import compile_schedule
from closedform.errors import ExportError, SessionError
from closedform.exporters.mlx_ops import run_graph
from closedform.exporters.tensor_step import RATE, TENSOR, check_rule, first_states, tensor_step
from closedform.ir import naming
from closedform.ir.graph import Graph
from closedform.ir.steps import checked_steps
from closedform.ir.types import LAST_STEP, DType, Shape
from closedform.language.exact import to_float
from closedform.language.schedule import Schedule
from closedform.language.update_rule import UpdateRule
from closedform.options import IN_PAIRS

MlxSchedule = Callable[[Any], Any]
Rate: TypeAlias = float | MlxSchedule
"""A learning rate of MLX: a number, or a function of the step."""
Tree: TypeAlias = Any
"""Nested dicts and lists of arrays, or a module."""

_FLOATS = (mx.float32, mx.float16, mx.bfloat16)
_ANY_LENGTH: Shape = ("n",)
_UNSIGNED = (mx.uint32, mx.uint64)
"""Types of steps none of which is below 0, and that hold larger ones than int32."""
_LAST = LAST_STEP[DType.I32]


def mlx_schedule(schedule: Schedule) -> MlxSchedule:
    """Returns the function of the step that MLX takes as a learning rate.

    It takes a Python integer, or an array of integers of any shape, and returns an array of float32
    of that shape. A step outside of 0 to ``2**31 - 1`` is an error; while MLX traces the function,
    where it has no value yet, the result is NaN there.
    """

    @cache
    def compile_shape(shape: Shape) -> Graph:
        return compile_schedule(schedule, replace(IN_PAIRS, step_shape=shape))

    where = f"schedule {schedule.name!r}"

    def value(step: Any) -> Any:
        steps, is_outside = _read_steps(step, where)
        graph = compile_shape(() if steps.ndim == 0 else _ANY_LENGTH)
        flat = steps if steps.ndim == 0 else steps.reshape(-1)
        with mx.stream(mx.cpu):
            values = run_graph(graph, {naming.STEP: flat})["value"]
            values = mx.broadcast_to(values, flat.shape).reshape(steps.shape)
            return values if is_outside is None else mx.where(is_outside, math.nan, values)

    compile_shape(())
    value.__name__ = value.__qualname__ = schedule.name
    value.__doc__ = f"Returns the value of schedule {schedule.name!r} at steps."
    return value


def _read_steps(step: Any, where: str) -> tuple[mx.array, mx.array | None]:
    """Returns steps of int32, and where they are outside of the domain.

    Steps that have values are checked, and None is returned in second place; ``mx.compile`` and
    ``mx.vmap`` trace arrays that have none.

    Raises:
        SessionError: A step is not an integer, or outside of the domain.
    """
    values = step
    if isinstance(step, mx.array):
        if not mx.issubdtype(step.dtype, mx.integer):
            raise SessionError(
                f"the step must be an integer, got {step.dtype}",
                where=where,
                hint="count the updates done",
            )
        try:
            values = np.array(step)
        except ValueError:  # MLX traces
            is_outside = (step > _LAST) if step.dtype in _UNSIGNED else (step < 0)
            if step.dtype == mx.int64:
                is_outside = is_outside | (step > _LAST)
            return step.astype(mx.int32), is_outside
    return mx.array(checked_steps(values, _LAST, where).astype(np.int32)), None


class MlxOptimizer(Optimizer):  # type: ignore[misc]
    """An update rule as an optimizer of MLX.

    Parameters of any float type of at most 32 bits are computed in float32, in which the states
    are.

    Args:
        rule: The rule.
        learning_rate: A number, or a function of the step.
    """

    def __init__(self, rule: UpdateRule, learning_rate: Rate) -> None:
        super().__init__()
        self.rule = rule
        self._graphs: dict[Shape, Graph] = {}
        # A matrix shows whether the steps of other shapes are steps of single tensors.
        self._graph((2, 2))
        self._maybe_schedule("learning_rate", learning_rate)

    def _of_shape(self, shape: tuple[int, ...]) -> UpdateRule:
        return self.rule if self.rule.is_elementwise else self.rule.for_shape(shape)

    def _graph(self, shape: tuple[int, ...]) -> Graph:
        """The step of a parameter; an elementwise rule has a single step for any length."""
        key: Shape = _ANY_LENGTH if self.rule.is_elementwise else shape
        if key not in self._graphs:
            self._graphs[key] = tensor_step(self._of_shape(shape), key, IN_PAIRS, "MLX")
        return self._graphs[key]

    def apply_gradients(self, gradients: Tree, parameters: Tree) -> Tree:
        """Returns the parameters after a step; a first state may be a parameter."""
        if not self._initialized:
            self.init(tree_map(lambda _, parameter: parameter, gradients, parameters))
        return super().apply_gradients(gradients, parameters)

    def init_single(self, parameter: mx.array, state: dict[str, mx.array]) -> None:
        """Makes the states of a parameter."""
        if parameter.dtype not in _FLOATS:
            raise SessionError(
                f"parameters must be float32, float16 or bfloat16, got {parameter.dtype}",
                where=f"rule {self.rule.name!r}",
            )
        shape = tuple(parameter.shape)
        rule = self._of_shape(shape)
        for label, first in first_states(rule).items():
            if isinstance(first, str):
                state[label] = parameter.astype(mx.float32)
            else:
                sizes = [int(size) for size in rule.state_shape(label, shape)]
                state[label] = mx.full(sizes, first, mx.float32)

    def apply_single(
        self, gradient: mx.array, parameter: mx.array, state: dict[str, mx.array]
    ) -> mx.array:
        """Returns the parameter after a step, and replaces its states."""
        shape = tuple(parameter.shape)
        states = {naming.state(TENSOR, label): array for label, array in state.items()}
        tensors = {naming.param(TENSOR): parameter, naming.grad(TENSOR): gradient, **states}
        feeds = {name: array.astype(mx.float32) for name, array in tensors.items()}
        if self.rule.is_elementwise:
            feeds = {name: array.reshape(-1) for name, array in feeds.items()}
        feeds[naming.STEP] = (self.step - 1).astype(mx.int32)
        # The clock of MLX has 64 bits: beyond the steps of the graph a parameter is NaN.
        rate = mx.array(self.learning_rate).astype(mx.float32)
        feeds[RATE] = mx.where(self.step - 1 > _LAST, math.nan, rate)
        after = run_graph(self._graph(shape), feeds)
        for label, array in state.items():
            result = after[naming.following(naming.state(TENSOR, label))]
            state[label] = result.reshape(array.shape)
        result = after[naming.following(naming.param(TENSOR))]
        return result.reshape(shape).astype(parameter.dtype)


def mlx_optimizer(rule: UpdateRule, learning_rate: Rate | Schedule | None = None) -> MlxOptimizer:
    """Returns a rule as an optimizer of MLX.

    Raises:
        ExportError: As :func:`closedform.exporters.tensor_step.tensor_step`, or the rule has no
            value of ``lr``.
    """
    check_rule(rule, "MLX")
    if learning_rate is None:
        rate = rule.hyperparameters[RATE]
        if rate is None:
            raise ExportError(
                "the rule has no value of lr",
                where=f"rule {rule.name!r}",
                hint="give learning_rate=…",
            )
        learning_rate = rate if isinstance(rate, Schedule) else to_float(rate)
    if isinstance(learning_rate, Schedule):
        learning_rate = mlx_schedule(learning_rate)
    return MlxOptimizer(rule, learning_rate)
