"""Runs of a rule with inputs at the ends of their ranges: one in which a state is not finite.

Where intervals leave a rule open it runs from its first states, in the evaluator of the graph
language, with gradients and parameters that are hard for one kind of rule or another: rows of
zeros, tiny numbers before the largest ones, signs that alternate, and gradients that cancel a
state. Each run is made twice, the second time with subnormal numbers flushed to zero. An output
that is not finite refutes the verdict; nothing is shown where none is found.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from closedform.effort import Effort
from closedform.ir import naming
from closedform.ir.analysis.step_check import node_values
from closedform.ir.evaluate import evaluate
from closedform.ir.graph import Array, Graph, Role
from closedform.ir.program import Program, flatten

# Steps of a run, and the step from which large gradients come, when moments have settled.
_STEPS = 48
_LATE = 40
_MOST_ELEMENTS = 2**14
# A gradient whose square is just above the subnormal numbers of float32.
_TINY = 2.0**-62

Inputs = dict[str, Array]
# The inputs of a step, from the step and those that the step before returned.
Adversary = Callable[[int, Inputs, Callable[[Inputs], Inputs]], Inputs]


@dataclass(frozen=True, slots=True)
class RunFailure:
    """A step at which an output is not finite.

    Attributes:
        step: The step.
        output: The name of the output.
        value: A value of it that is not finite.
        inputs: The gradients and parameters of the run, in words.
        flushes: Whether subnormal numbers are flushed to zero in this run.
    """

    step: int
    output: str
    value: float
    inputs: str
    flushes: bool


def find_failure(program: Program, init: Graph, size: float, effort: Effort) -> RunFailure | None:
    """Returns a run from the first states in which an output is not finite; None if none is found.

    Args:
        program: The step.
        init: The first states.
        size: The largest size of gradients and parameters.
        effort: The work that it may do.
    """
    graph = flatten(program)
    shapes = [node.type.shape for node in graph.inputs]
    if any(isinstance(dim, str) for shape in shapes for dim in shape):
        return None
    if sum(math.prod(map(int, shape)) for shape in shapes) > _MOST_ELEMENTS:
        return None
    first = _first_inputs(graph, init)
    if first is None:
        return None
    for name, adversary in _adversaries(graph, size):
        for flushes in (False, True):
            failure = _run(graph, first, name, adversary, flushes, effort)
            if failure is not None:
                return failure
            if not effort.left:
                return None
    return None


def _run(
    graph: Graph, inputs: Inputs, name: str, adversary: Adversary, flushes: bool, effort: Effort
) -> RunFailure | None:
    def step(inputs: Inputs) -> Inputs:
        values = node_values(graph, inputs, flushes=flushes)
        return {output.name: values[output.index] for output in graph.outputs}

    for count in range(_STEPS):
        inputs = adversary(count, inputs, step)
        outputs = step(inputs)
        for label, value in outputs.items():
            wrong = ~np.isfinite(value.astype(np.float64))
            if wrong.any():
                return RunFailure(count, label, float(value[wrong].ravel()[0]), name, flushes)
        following = {key.removeprefix(naming.NEXT): value for key, value in outputs.items()}
        inputs = {key: following.get(key, value) for key, value in inputs.items()}
        if not effort.left:
            return None
    return None


def _first_inputs(graph: Graph, init: Graph) -> Inputs | None:
    """Inputs of the first step: parameters and gradients of 0, the states of ``init``.

    None where ``init`` has only the states of some of the parameters.
    """
    inputs: Inputs = {}
    for node in graph.inputs:
        shape = tuple(int(dim) for dim in node.type.shape)
        kind = np.ones if node.attribute("role") is Role.HYPER else np.zeros
        inputs[str(node.attribute("name"))] = kind(shape, node.type.dtype.numpy)
    names = {str(node.attribute("name")) for node in init.inputs}
    states = evaluate(init, {name: inputs[name] for name in names if name in inputs})
    first = {name.removeprefix(naming.NEXT): value for name, value in states.items()}
    states_of_step = {name for name in inputs if name.startswith((naming.STATE, naming.SHARED))}
    if not states_of_step <= first.keys():
        return None
    return {name: first.get(name, value) for name, value in inputs.items()}


# --- adversaries ---------------------------------------------------------------------------------


def _adversaries(graph: Graph, size: float) -> Iterator[tuple[str, Adversary]]:
    """The inputs that are tried, with their descriptions."""
    large = f"gradients of {size:g}"
    yield large, lambda _, inputs, __: _with(inputs, naming.GRAD, lambda x: np.full_like(x, size))
    yield (
        f"{large}, but 0 in the first row",
        lambda _, inputs, __: _with(inputs, naming.GRAD, lambda x: _first_row_zero(x, size)),
    )
    yield (
        f"gradients of {_TINY:.3g} at step 0 and of {size:g} after it",
        lambda k, inputs, __: _with(
            inputs, naming.GRAD, lambda x: np.full_like(x, size if k else _TINY)
        ),
    )
    yield (
        f"gradients of {size:g} and parameters of {size:g}, with signs that alternate",
        lambda k, inputs, __: _alternating(k, inputs, size, size),
    )
    labels = {
        str(node.attribute("name")).split(".")[-1]
        for node in graph.inputs
        if str(node.attribute("name")).startswith(naming.STATE)
    }
    late = f"of {size:g} from step {_LATE} on"
    for label in sorted(labels):
        yield (
            f"gradients of 1, {late}, that cancel {label} at every second step, and parameters of "
            f"{size:g}, with signs that alternate",
            partial(_cancelling, label, size),
        )


def _with(inputs: Inputs, prefix: str, make: Callable[[Array], Array]) -> Inputs:
    return {
        name: make(value) if name.startswith(prefix) else value for name, value in inputs.items()
    }


def _first_row_zero(value: Array, size: float) -> Array:
    rows = np.full_like(value, size)
    if rows.ndim:
        rows[0] = 0
    return rows


def _alternating(count: int, inputs: Inputs, grad: float, param: float) -> Inputs:
    if count == 0:
        return inputs
    sign = 1 if count % 2 else -1
    inputs = _with(inputs, naming.GRAD, lambda x: np.full_like(x, sign * grad))
    return _with(inputs, naming.PARAM, lambda x: np.full_like(x, -sign * param))


def _cancelling(
    label: str, size: float, count: int, inputs: Inputs, step: Callable[[Inputs], Inputs]
) -> Inputs:
    """Gradients of 1 and then of the largest size; at every second step those that cancel."""
    inputs = _alternating(count, inputs, size if count >= _LATE else 1.0, size)
    if count == 0 or count % 2:
        return inputs
    at_zero = step(_with(inputs, naming.GRAD, np.zeros_like))
    at_one = step(_with(inputs, naming.GRAD, np.ones_like))
    return {
        name: _root(name, value, at_zero, at_one, label, size) for name, value in inputs.items()
    }


def _root(
    name: str,
    value: Array,
    at_zero: Mapping[str, Array],
    at_one: Mapping[str, Array],
    label: str,
    size: float,
) -> Array:
    state = naming.NEXT + naming.state(name.removeprefix(naming.GRAD), label)
    if not name.startswith(naming.GRAD) or state not in at_zero:
        return value
    low, high = (np.asarray(side[state], np.float64) for side in (at_zero, at_one))
    if low.shape != value.shape:
        return value
    with np.errstate(all="ignore"):
        # A state that is linear in the gradient: the line through its values at 0 and 1 gives the
        # gradient at which it is 0, where divisors made of it vanish.
        root = np.nan_to_num(-low / (high - low), nan=0.0)
    return np.clip(root, -size, size).astype(value.dtype)
