"""Rules run step by step in the evaluator."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from closedform.compiler import compile_init, compile_step
from closedform.ir.evaluate import evaluate
from closedform.ir.types import DType
from closedform.language import UpdateRule
from closedform.options import GraphOptions, ModelSpec

Arrays = Mapping[str, NDArray[Any]]


def start(rule: UpdateRule, params: Arrays, dtype: DType) -> dict[str, Any]:
    """Returns what the first step reads beside gradients."""
    shapes = {name: array.shape for name, array in params.items()}
    feed: dict[str, Any] = {
        f"param.{name}": array.astype(dtype.numpy) for name, array in params.items()
    }
    init = compile_init(ModelSpec(rule, shapes), GraphOptions(dtype=dtype))
    wanted = [node.attribute("name") for node in init.inputs]
    return feed | evaluate(init, {name: feed[name] for name in wanted})


def trajectory(
    rule: UpdateRule,
    params: Arrays,
    gradients: Sequence[Arrays],
    dtype: DType = DType.F64,
    more: Sequence[Mapping[str, Any]] | None = None,
) -> Iterator[dict[str, Any]]:
    """Yields what is carried from each step to the next, under the names of the inputs.

    Args:
        rule: The rule.
        params: The first parameters by name.
        gradients: The gradients of each step by name.
        dtype: What is computed in.
        more: Further inputs of each step.
    """
    shapes = {name: array.shape for name, array in params.items()}
    graph = compile_step(ModelSpec(rule, shapes), GraphOptions(dtype=dtype))
    feed = start(rule, params, dtype)
    for place, given in enumerate(gradients):
        grads = {f"grad.{name}": array.astype(dtype.numpy) for name, array in given.items()}
        extra = {} if more is None else more[place]
        with np.errstate(all="ignore"):
            outputs = evaluate(graph, {**feed, **grads, **extra})
        feed = {name.removeprefix("next."): value for name, value in outputs.items()}
        yield feed
