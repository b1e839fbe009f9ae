"""Engines that every graph means the same in: evaluator, onnxruntime, torch, JAX, MLX."""

from collections.abc import Mapping

import numpy as np
import onnxruntime as ort

from closedform.exporters.onnx_model import serialize, to_model
from closedform.ir.evaluate import evaluate
from closedform.ir.graph import Array, Graph
from closedform.options import DEFAULT_OPSET

Arrays = Mapping[str, Array]


def run_evaluator(graph: Graph, inputs: Arrays) -> dict[str, Array]:
    """Returns the outputs as the reference evaluator computes them."""
    return {name: np.asarray(value) for name, value in evaluate(graph, inputs).items()}


def run_onnxruntime(
    graph: Graph, inputs: Arrays, *, opset: int = DEFAULT_OPSET, is_optimized: bool = False
) -> dict[str, Array]:
    """Returns the outputs of the exported model in onnxruntime, by default unoptimised."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    level = ort.GraphOptimizationLevel
    options.graph_optimization_level = (
        level.ORT_ENABLE_ALL if is_optimized else level.ORT_DISABLE_ALL
    )
    session = ort.InferenceSession(
        serialize(to_model(graph, opset=opset)), options, providers=["CPUExecutionProvider"]
    )
    names = [output.name for output in graph.outputs]
    results = session.run(names, {name: np.asarray(value) for name, value in inputs.items()})
    return dict(zip(names, (np.asarray(result) for result in results), strict=True))


def run_torch(graph: Graph, inputs: Arrays) -> dict[str, Array]:
    """Returns the outputs of the torch module, eager on CPU."""
    import torch

    from closedform.exporters.torch_module import to_module

    module = to_module(graph)
    tensors = [torch.from_numpy(np.array(inputs[name])) for name in module.input_names]
    with torch.no_grad():
        result = module(*tensors)
    values = result if isinstance(result, tuple) else (result,)
    named = zip(module.output_names, values, strict=True)
    return {name: np.asarray(value.numpy()) for name, value in named}


def run_jax(graph: Graph, inputs: Arrays) -> dict[str, Array]:
    """Returns the outputs of the function of JAX, compiled, with types of 64 bits."""
    import jax

    from closedform.exporters.jax_ops import run_graph

    with jax.enable_x64(True):
        given = {name: jax.numpy.asarray(value) for name, value in inputs.items()}
        results = jax.jit(lambda values: run_graph(graph, values))(given)
    return {name: np.asarray(value) for name, value in results.items()}


def run_mlx(graph: Graph, inputs: Arrays) -> dict[str, Array]:
    """Returns the outputs of the function of MLX, on CPU."""
    import mlx.core as mx

    from closedform.exporters.mlx_ops import run_graph

    mx.set_default_device(mx.cpu)
    given = {name: mx.array(np.asarray(value)) for name, value in inputs.items()}
    return {name: np.asarray(value) for name, value in run_graph(graph, given).items()}


def steps_apart(actual: Array, expected: Array, *, unit: float | None = None) -> float:
    """Returns the greatest distance in units in the last place of ``expected``.

    NaN equals NaN, infinities must agree, and the sign of zero is free: IEEE 754 leaves it open
    for minimum and maximum. ``unit`` replaces the unit by that of one given value.
    """
    assert actual.dtype == expected.dtype, (actual.dtype, expected.dtype)
    assert actual.shape == expected.shape, (actual.shape, expected.shape)
    if not np.issubdtype(expected.dtype, np.floating):
        return 0.0 if np.array_equal(actual, expected) else np.inf
    is_finite = np.isfinite(expected)
    if not np.array_equal(actual[~is_finite], expected[~is_finite], equal_nan=True):
        return np.inf
    wanted, got = expected[is_finite], actual[is_finite]
    if wanted.size == 0:
        return 0.0
    if not np.isfinite(got).all():
        return np.inf
    magnitude = np.abs(wanted if unit is None else np.full_like(wanted, unit))
    below_top = np.nextafter(np.finfo(wanted.dtype).max, wanted.dtype.type(0))
    scale = np.spacing(np.minimum(magnitude, below_top))
    distance = np.abs(got.astype(np.longdouble) - wanted.astype(np.longdouble))
    return float(np.max(distance / scale))
