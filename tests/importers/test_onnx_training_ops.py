"""The operators of ai.onnx.preview.training next to the evaluator of onnx, for drawn attributes."""

import random
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import defs, helper
from onnx.reference import ReferenceEvaluator

from closedform.errors import ClosedFormError
from closedform.importers.onnx_graph import read_model
from closedform.importers.onnx_training_ops import TRAINING, TRAINING_ROWS
from closedform.ir import evaluate

STATES = {"Adagrad": 1, "Momentum": 1, "Adam": 2}
SHAPES = ((2, 3), (4,))


def file_of(
    operator: str, attributes: dict[str, Any], params: int, dtype: int, rate: int
) -> onnx.ModelProto:
    """A file of one node that steps so many parameters."""
    kinds = ("x", "g", *"vh"[: STATES[operator]])
    names = [f"{kind}{place}" for kind in kinds for place in range(params)]
    outputs = [name for name in names if name[0] != "g"]
    node = helper.make_node(
        operator,
        ["rate", "count", *names],
        [f"next_{name}" for name in outputs],
        domain=TRAINING,
        **attributes,
    )

    def tensor(name: str, place: int) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, dtype, SHAPES[place])

    graph = helper.make_graph(
        [node],
        "step",
        [
            helper.make_tensor_value_info("rate", rate, ()),
            helper.make_tensor_value_info("count", onnx.TensorProto.INT64, ()),
            *(tensor(name, int(name[1])) for name in names),
        ],
        [tensor(f"next_{name}", int(name[1])) for name in outputs],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(TRAINING, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def drawn_attributes(operator: str, draw: random.Random) -> dict[str, Any]:
    """Attributes of an operator: each that has a default may be left out."""
    ranges = {
        "alpha": (0.5, 0.95),
        "beta": (0.5, 0.999),
        "decay_factor": (0.0, 0.5),
        "epsilon": (1e-8, 1e-2),
        "norm_coefficient": (0.0, 0.1),
        "norm_coefficient_post": (0.0, 0.1),
    }
    schema = defs.get_schema(operator, 1, TRAINING)
    attributes: dict[str, Any] = {}
    for name, entry in schema.attributes.items():
        if not entry.required and draw.random() < 0.3:
            continue
        is_mode = name == "mode"
        value = draw.choice(["standard", "nesterov"]) if is_mode else draw.uniform(*ranges[name])
        attributes[name] = value
    return attributes


def test_every_operator_is_read() -> None:
    schemas = {entry.name for entry in defs.get_all_schemas() if entry.domain == TRAINING}
    assert {"Gradient", *TRAINING_ROWS} == schemas


@pytest.mark.parametrize("operator", sorted(STATES))
@pytest.mark.parametrize("seed", range(12))
def test_operators_step_as_in_onnx(operator: str, seed: int) -> None:
    draw = random.Random(f"{operator} {seed}")
    attributes = drawn_attributes(operator, draw)
    params, count = draw.choice([1, 2]), draw.choice([0, 1, 2, 1000])
    # The evaluator returns the Adam of several parameters in float32.
    is_double = draw.random() < 0.3 and not (operator == "Adam" and params > 1)
    dtype = onnx.TensorProto.DOUBLE if is_double else onnx.TensorProto.FLOAT
    model = file_of(operator, attributes, params, dtype, dtype)
    generator = np.random.default_rng(seed)
    kind = np.float64 if is_double else np.float32
    feed: dict[str, Any] = {
        value.name: generator.uniform(
            0.5, 1.5, [size.dim_value for size in value.type.tensor_type.shape.dim]
        ).astype(kind)
        for value in model.graph.input
    }
    feed["count"] = np.array(count, np.int64)
    actual = evaluate(read_model(model), feed)
    expected = ReferenceEvaluator(model).run(None, feed)
    # A step has a dozen operations of numbers near 1, each rounded to the dtype, and
    # 1 - beta**count loses up to 10 bits.
    tolerance = 1e-12 if is_double else 1e-5
    for value, array in zip(model.graph.output, expected, strict=True):
        message = f"{operator} {attributes} at count {count}: {value.name}"
        np.testing.assert_allclose(
            actual[value.name], array, rtol=tolerance, atol=tolerance, err_msg=message
        )


def test_an_unknown_mode_is_refused() -> None:
    attributes = {"alpha": 0.9, "beta": 1.0, "mode": "heavy", "norm_coefficient": 0.0}
    model = file_of("Momentum", attributes, 1, 1, 1)
    with pytest.raises(ClosedFormError, match="must be 'standard' or 'nesterov', got 'heavy'"):
        read_model(model)


def test_a_rate_of_another_dtype() -> None:
    float_, double = onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE
    model = file_of("Adagrad", {}, 1, double, float_)
    feed: dict[str, Any] = {name: np.full((2, 3), 0.75) for name in ("x0", "g0", "v0")}
    feed |= {"rate": np.float32(0.1), "count": np.array(3)}
    actual = evaluate(read_model(model), feed)
    expected: Any = ReferenceEvaluator(model).run(None, feed)
    np.testing.assert_allclose(actual["next_x0"], expected[0], rtol=1e-7)
