"""Every rule at the edges of float32: gradients of 0, huge, tiny, infinite, and no number.

A first step is taken from the rule's own first states. Engines agree on all of it, and parameters
stay finite where the mathematics is.
"""

from typing import Any

import numpy as np
import pytest

from closedform.compiler import compile_init, compile_step
from closedform.ir.graph import Graph
from closedform.language import UpdateRule
from tests.support.engines import run_evaluator, run_onnxruntime, run_torch
from tests.test_library import OPTIMIZERS

EDGES: dict[str, list[float]] = {
    "zero": [0.0, 0.0, -0.0, 0.0],
    "huge": [1e20, -1e20, 1e10, -1e19],
    "tiny": [1e-20, -1e-20, 1e-40, 1e-10],
    "mixed": [1e20, 0.0, -1e-20, 1.0],
    "not finite": [np.inf, -np.inf, np.nan, 1.0],
}

# Not finite after a first step with such gradients, by the mathematics of float32.
OVERFLOW = "a mean of squares over the tensor is infinite, and an infinity is divided by another"
FIRST_NORM = "the norm of the first gradients, which is 0, is divided by"
NOT_FINITE = {
    ("adafactor", "huge"): OVERFLOW,
    ("adafactor", "mixed"): OVERFLOW,
    ("adafactor_clamped", "huge"): OVERFLOW,
    ("adafactor_clamped", "mixed"): OVERFLOW,
    ("came", "huge"): OVERFLOW,
    ("came", "mixed"): OVERFLOW,
    ("stable_adamw", "huge"): OVERFLOW,
    ("stable_adamw", "mixed"): OVERFLOW,
    ("d_adapt_sgd", "zero"): FIRST_NORM,
}


def shapes_of(rule: UpdateRule) -> dict[str, tuple[int, ...]]:
    """A matrix, and a scalar and an empty matrix where the rule is for them."""
    shapes: dict[str, tuple[int, ...]] = {"w": (2, 2)}
    for name, shape in {"b": (), "empty": (0, 3)}.items():
        try:
            rule.for_shape(shape)
        except ValueError:
            continue
        shapes[name] = shape
    return shapes


def first_steps(rule: UpdateRule) -> tuple[Graph, dict[str, dict[str, Any]]]:
    """The graph of a step, and what the first one is given at each edge."""
    shapes = shapes_of(rule)
    graph, init = compile_step(rule, shapes), compile_init(rule, shapes)
    params = {f"param.{name}": np.full(shape, 0.5, np.float32) for name, shape in shapes.items()}
    wanted = [node.attribute("name") for node in init.inputs]
    start = {**params, **run_evaluator(init, {name: params[name] for name in wanted})}
    for name, shape in shapes.items():
        start |= {f"input.{name}.{label}": np.ones(shape, np.float32) for label in rule.inputs}
    names = [node.attribute("name") for node in graph.inputs]
    feeds = {}
    for edge, given in EDGES.items():
        values = np.array(given, np.float32).reshape(2, 2)
        gradients = {
            f"grad.{name}": values if name == "w" else np.full(shape, values[0, 0], np.float32)
            for name, shape in shapes.items()
        }
        feeds[edge] = {name: {**start, **gradients}[name] for name in names}
    return graph, feeds


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_first_step_at_the_edges(name: str) -> None:
    graph, feeds = first_steps(OPTIMIZERS[name]())
    is_finite = {}
    for edge, feed in feeds.items():
        with np.errstate(all="ignore"):
            expected = run_evaluator(graph, feed)
            found = [run_onnxruntime(graph, feed), run_torch(graph, feed)]
        for results in found:
            for key, value in expected.items():
                # A few roundings of 6e-8 and what math libraries differ in; sums of four squares.
                np.testing.assert_allclose(
                    results[key], value, rtol=1e-5, atol=1e-37, err_msg=f"{edge} {key}"
                )
        params = [value for key, value in expected.items() if "param." in key]
        is_finite[edge] = all(np.isfinite(value).all() for value in params)
    del is_finite["not finite"]
    broken = {(name, edge) for edge, finite in is_finite.items() if not finite}
    assert broken == {key for key in NOT_FINITE if key[0] == name}
