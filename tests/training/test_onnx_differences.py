"""Gradients of operators of ONNX files by differences of stock onnxruntime's forward."""

from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from onnx import ModelProto, NodeProto, helper, numpy_helper

from closedform.runtime.onnx_session import open_session, run_on
from closedform.training.from_onnx import read_module
from closedform.training.to_onnx.trace import trace

ROWS = np.array([[0, 1, 1], [2, -1, 2]])
POINTS = np.array([[[0, 1], [2, -1]], [[1, 0], [0, 1]]])
BATCHED = np.array([[[0], [2]], [[-1], [0]], [[1], [1]]])


def _scatter(operator: str, reduction: str, **attributes: Any) -> NodeProto:
    operands = ["value", "index", "updates"]
    return helper.make_node(operator, operands, ["y"], reduction=reduction, **attributes)


def _average(**attributes: Any) -> NodeProto:
    return helper.make_node("AveragePool", ["value"], ["y"], **attributes)


SCATTERED = {
    f"{operator}, {reduction}, axis {axis}": (
        _scatter(operator, reduction, **({} if axis is None else {"axis": axis})),
        index,
        (3, 4),
        updates,
    )
    for reduction in ("add", "mul", "max", "min")
    for operator, axis, index, updates in (
        ("ScatterElements", 0, ROWS, (2, 3)),
        ("ScatterElements", -1, ROWS, (2, 3)),
        ("ScatterND", None, POINTS, (2, 2)),
        ("ScatterND", None, POINTS[..., :1], (2, 2, 4)),
    )
}
"""Some entries meet: the order of those is not defined without a reduction."""

VARIANTS: dict[str, tuple[NodeProto, Any, tuple[int, ...], tuple[int, ...]]] = {
    **SCATTERED,
    "GatherND": (helper.make_node("GatherND", ["value", "index"], ["y"]), POINTS, (3, 4), (1,)),
    "GatherND, batched": (
        helper.make_node("GatherND", ["value", "index"], ["y"], batch_dims=1),
        BATCHED,
        (3, 4),
        (1,),
    ),
    "GatherND, batched rows": (
        helper.make_node("GatherND", ["value", "index"], ["y"], batch_dims=1),
        BATCHED,
        (3, 4, 2),
        (1,),
    ),
    **{
        f"Pad, {mode}, {pads}": (
            helper.make_node("Pad", ["value", "index"], ["y"], mode=mode),
            np.array(pads),
            (1, 2, *(3, 4, 3)[: len(pads) // 2 - 2]),
            (1,),
        )
        for mode in ("reflect", "edge")
        for pads in (
            [0, 0, 2, 0, 0, 1],
            [0, 0, 0, 2, 0, 0, 0, 1],
            [0, 0, 1, 2, 0, 0, 2, 0],
            [0, 0, 0, 0, 2, 0, 0, 0, 0, 1],
            [0, 0, 0, 2, 1, 0, 0, 0, 1, 0],
        )
    },
    **{
        f"ReverseSequence, time {time}": (
            helper.make_node(
                "ReverseSequence", ["value", "index"], ["y"], time_axis=time, batch_axis=1 - time
            ),
            np.array([1, 3, 2, 4]),
            (4, 4, 2),
            (1,),
        )
        for time in (0, 1)
    },
    **{
        f"AveragePool, {pads}, {strides}, {counted}, {ceiling}": (
            _average(
                kernel_shape=[3, 2],
                strides=strides,
                count_include_pad=counted,
                ceil_mode=ceiling,
                **({"auto_pad": pads} if isinstance(pads, str) else {"pads": pads}),
            ),
            ROWS,
            (1, 2, 5, 6),
            (1,),
        )
        for pads in ("SAME_UPPER", "SAME_LOWER", [0, 1, 1, 0], [1, 0, 1, 0])
        for strides in ([1, 1], [2, 2])
        for counted in (0, 1)
        for ceiling in (0, 1)
        if not (ceiling and strides == [2, 2])  # torch has no window that starts in the padding
    },
}


def model_of(name: str) -> ModelProto:
    """The operator on products of a weight with the input, so that both operands are trained."""
    node, index, shape, updates = VARIANTS[name]
    numbers = np.random.default_rng(0)
    tensors = {
        "w": numbers.permutation(np.prod(shape)).reshape(shape) / np.prod(shape) + 0.5,
        "u": numbers.permutation(np.prod(updates)).reshape(updates) / np.prod(updates) + 0.6,
    }
    nodes = [
        helper.make_node("Mul", ["x", "w"], ["value"]),
        helper.make_node("Mul", ["x", "u"], ["updates"]),
        node,
    ]
    graph = helper.make_graph(
        nodes,
        "variant",
        [helper.make_tensor_value_info("x", 1, [1])],
        [helper.make_tensor_value_info("y", 1, None)],
        [
            *(numpy_helper.from_array(array.astype(np.float32), n) for n, array in tensors.items()),
            numpy_helper.from_array(index.astype(np.int64), "index"),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def _weighted(model: ModelProto) -> float:
    """The squared outputs of stock onnxruntime with weights that tell them apart, in all."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    (y,) = session.run(None, {"x": np.ones(1, np.float32)})
    wide = y.astype(np.float64).ravel()
    return float((np.linspace(1, 2, wide.size) * wide**2).sum())


def _loss(y: torch.Tensor) -> torch.Tensor:
    return (torch.linspace(1, 2, y.numel()).reshape(y.shape) * y**2).sum()


@pytest.mark.sample(every=5)
@pytest.mark.parametrize("name", VARIANTS)
def test_gradients_are_differences_of_onnxruntime(name: str) -> None:
    model = model_of(name)
    traced = trace(read_module(model, ["*"]), _loss, (torch.ones(1),), dynamic_axes={})
    session = open_session(traced.step)
    feeds = {f"param.{n}": v for n, v in traced.params.items()}
    feeds["batch.x"] = np.ones(1, np.float32)
    results = run_on(session, {n: np.ascontiguousarray(feeds[n]) for n in session.inputs})
    gradients = dict(zip(session.outputs, results, strict=True))
    assert gradients["loss"] == pytest.approx(_weighted(model), rel=1e-5)

    step = 2e-3  # less than half of the distance of any two entries that compete
    for tensor in model.graph.initializer[:2]:
        if f"grad.{tensor.name}" not in gradients:
            continue
        values = numpy_helper.to_array(tensor)
        found = np.zeros(values.shape)
        for place in np.ndindex(values.shape):
            ends = []
            for sign in (1, -1):
                moved = values.copy()
                moved[place] += sign * step
                given = ModelProto()
                given.CopyFrom(model)
                at = [t.name for t in model.graph.initializer].index(tensor.name)
                given.graph.initializer[at].CopyFrom(numpy_helper.from_array(moved, tensor.name))
                ends.append(_weighted(given))
            found[place] = (ends[0] - ends[1]) / (2 * step)
        # Roundings of a loss of some 20 in float32, divided by the step.
        np.testing.assert_allclose(gradients[f"grad.{tensor.name}"], found, atol=1e-2, rtol=1e-3)


@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("axis", [0, -1])
def test_exclusive_sums_are_not_differences(axis: int, reverse: int) -> None:
    """A sum less its last term is NaN behind an infinity, and 0 behind 1e8 in float32."""
    node = helper.make_node("CumSum", ["x", "axis"], ["y"], exclusive=1, reverse=reverse)
    graph = helper.make_graph(
        [node],
        "sums",
        [helper.make_tensor_value_info("x", 1, [3, 3])],
        [helper.make_tensor_value_info("y", 1, [3, 3])],
        [numpy_helper.from_array(np.array(axis, np.int64), "axis")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    value = np.array([[1, 1e8, 1], [np.inf, 2, 1e8], [3, 4, 5]], np.float32)
    expected = run_on(open_session(model), {"x": value})[0]
    assert np.isfinite(expected).any(), expected
    np.testing.assert_array_equal(read_module(model)(torch.from_numpy(value)).numpy(), expected)
