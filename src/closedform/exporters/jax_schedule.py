"""Schedules as functions of the count in JAX, as optax takes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from closedform.compiler import compile_schedule
from closedform.errors import ExportError, SessionError, nearest
from closedform.exporters.jax_ops import is_x64, run_graph
from closedform.ir.graph import Graph, Role
from closedform.ir.steps import checked_steps, last_step
from closedform.ir.types import DType
from closedform.language.exact import to_float
from closedform.language.schedule import Schedule
from closedform.options import IN_PAIRS, GraphOptions

JaxSchedule = Callable[..., Array]


def jax_schedule(
    schedule: Schedule,
    dtype: DType | None = None,
    inputs: tuple[str, ...] = (),
    check: Callable[[Graph, GraphOptions], None] | None = None,
) -> JaxSchedule:
    """Returns the function ``value(count, **hyper)`` of a schedule.

    Where JAX computes in 64 bits, the value is computed in float64; elsewhere in pairs of float32
    on integers of 32 bits, so that large counts lose nothing. It is compiled when it is first
    called. A count outside of 0 to the last step, ``2**31 - 1`` on integers of 32 bits, is an
    error; while JAX traces the function, where it has no value yet, the result is NaN there.

    Args:
        schedule: The schedule.
        dtype: The dtype of the value; f64 where JAX computes in 64 bits, else f32, if not given.
        inputs: Names of hyperparameters that become arguments; one with a value keeps it as its
            default.
        check: Is called with the graph of one count and its options, before it is run.

    Raises:
        LoweringError: A hyperparameter has no value and is not among the inputs.
    """
    graphs: dict[tuple[bool, int], Graph] = {}
    numbers = schedule.hyperparameters
    defaults = {name: to_float(numbers[name]) for name in inputs if name in numbers}
    where = f"schedule {schedule.name!r}"

    def compile_rank(rank: int) -> Graph:
        key = is_x64(), min(rank, 1)
        if key not in graphs:
            graphs[key] = compile_schedule(schedule, _options(key[0], key[1], dtype, inputs))
        return graphs[key]

    def value(count: Any, **hyper: Any) -> Array:
        graph = compile_rank(np.ndim(count))
        step = next(node for node in graph.inputs if node.attribute("role") == Role.STEP)
        counts, is_outside = read_counts(count, step.type.dtype, where)
        feeds = _hypers(graph, {**defaults, **hyper}, where)
        feeds[str(step.attribute("name"))] = counts if counts.ndim == 0 else counts.reshape(-1)
        result = run_graph(graph, feeds, keeps_roundings=not is_x64())["value"]
        if counts.ndim:
            result = jnp.broadcast_to(result, (counts.size,)).reshape(counts.shape)
        return result if is_outside is None else jnp.where(is_outside, jnp.nan, result)

    graph = compile_rank(0)
    if check is not None:
        check(graph, _options(is_x64(), 0, dtype, inputs))
    value.__name__ = value.__qualname__ = schedule.name
    value.__doc__ = f"Returns the value of schedule {schedule.name!r} at counts."
    return value


def read_counts(count: Any, dtype: DType, where: str) -> tuple[Array, Array | None]:
    """Returns counts in the dtype of the step, and where they are outside of its domain.

    Counts that have values are checked, and None is returned in second place; a tracer has none.

    Raises:
        SessionError: A count is not an integer, or outside of the domain.
    """
    last = last_step(dtype.numpy)
    if not isinstance(count, jax.core.Tracer):
        steps = checked_steps(count, last, where)
        return jnp.asarray(steps.astype(dtype.numpy)), None
    if not jnp.issubdtype(count.dtype, jnp.integer):
        raise SessionError(
            f"the step must be an integer, got {count.dtype}",
            where=where,
            hint="count the updates done in int32, as optax does",
        )
    is_outside = count < 0
    if jnp.iinfo(count.dtype).max > last:
        is_outside = is_outside | (count > last)
    return count.astype(dtype.numpy), is_outside


def _options(wide: bool, rank: int, dtype: DType | None, inputs: tuple[str, ...]) -> GraphOptions:
    shape = ("n",) if rank else ()
    if wide:
        return GraphOptions(dtype=dtype, step_shape=shape, inputs=inputs)
    if dtype is DType.F64:
        raise ExportError(
            "float64 is switched off in JAX, got dtype f64",
            hint='jax.config.update("jax_enable_x64", True), or leave dtype out',
        )
    return replace(IN_PAIRS, step_shape=shape, inputs=inputs)


def _hypers(graph: Graph, arguments: Mapping[str, Any], where: str) -> dict[str, Array]:
    hyper_dtypes = {
        str(node.attribute("name")): node.type.dtype.numpy
        for node in graph.inputs
        if node.attribute("role") == Role.HYPER
    }
    for name in arguments:
        if name not in hyper_dtypes:
            hint = nearest(name, hyper_dtypes) if hyper_dtypes else "it has none"
            raise SessionError(f"unknown hyper input {name!r}", where=where, hint=hint)
    for name in hyper_dtypes:
        if name not in arguments:
            raise SessionError(f"hyper input {name!r} is missing", where=where)
    return {name: jnp.asarray(arguments[name], dtype) for name, dtype in hyper_dtypes.items()}
