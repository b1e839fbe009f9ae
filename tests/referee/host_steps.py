"""Steps whose host counts or computes something for each step, and runs of them in onnxruntime."""

import json
import math
import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import ModelProto, TensorProto, helper, numpy_helper

from closedform.language import UpdateRule
from closedform.referee.refutation import StepDifference
from tests.referee.rewrites import Shapes, exported

CLOCKS: Mapping[str, tuple[int, tuple[int, ...], int]] = {
    "i64": (TensorProto.INT64, (), 0),
    "i32": (TensorProto.INT32, (), 0),
    "f32": (TensorProto.FLOAT, (), 0),
    "array": (TensorProto.INT64, (1,), 0),
    "from 1": (TensorProto.INT64, (), 1),
    "f32 from 1": (TensorProto.FLOAT, (1,), 1),
}
"""By name: the dtype and the shape of the clock that the host gives, and its first value."""


def step_of(
    rule: UpdateRule, params: Shapes, clock: str, late: int = 0
) -> tuple[ModelProto, dict[str, Any]]:
    """Returns the step of a rule whose host counts the steps, and its ports.

    Args:
        rule: The rule.
        params: The shapes of the parameters.
        clock: The clock, one of ``CLOCKS``.
        late: Steps that the file adds to the clock; others than 0 are a fault.
    """
    model, ports = exported(rule, params)
    element, shape, begin = CLOCKS[clock]
    (name,) = (name for name, text in ports["inputs"].items() if text == "shared.count")
    outputs = {key: text for key, text in ports["outputs"].items() if text != "shared.count"}
    values = [value for value in model.graph.output if value.name in outputs]
    del model.graph.output[:]
    model.graph.output.extend(values)
    (value,) = (value for value in model.graph.input if value.name == name)
    value.CopyFrom(helper.make_tensor_value_info(name, element, shape))
    for node in model.graph.node:
        node.input[:] = ["clock" if operand == name else operand for operand in node.input]
    constants = {"clock_shape": np.array([], np.int64), "clock_change": np.array(late - begin)}
    model.graph.initializer.extend(
        numpy_helper.from_array(array, key) for key, array in constants.items()
    )
    nodes = [
        helper.make_node("Reshape", [name, "clock_shape"], ["clock_number"]),
        helper.make_node("Cast", ["clock_number"], ["clock_count"], to=TensorProto.INT64),
        helper.make_node("Add", ["clock_count", "clock_change"], ["clock"]),
    ]
    for place, node in enumerate(nodes):
        model.graph.node.insert(place, node)
    inputs = {
        key: "step" if text == "shared.count" else text for key, text in ports["inputs"].items()
    }
    initial = {
        text: states for text, states in ports["initial_states"].items() if text != "shared.count"
    }
    onnx.checker.check_model(model)
    return model, {
        "inputs": inputs,
        "outputs": outputs,
        "initial_states": {**initial, "step": begin},
    }


def with_next_floats(model: ModelProto, factor: float = 1.0) -> ModelProto:
    """Returns a file whose constants of float64 are others, so little that float32 is the same."""
    changed = ModelProto()
    changed.CopyFrom(model)
    for tensor in changed.graph.initializer:
        number = numpy_helper.to_array(tensor)
        # Numbers such as 1 and 2 are exact.
        if number.dtype == np.float64 and number.size == 1 and float(number) % 0.25:
            tensor.CopyFrom(
                numpy_helper.from_array(np.nextafter(number * factor, 9.0), tensor.name)
            )
    return changed


# --- runs ----------------------------------------------------------------------------------------


def tensor_of_text(text: str) -> Any:
    """Returns the tensor of a counterexample, whose elements are fractions or decimals."""
    return np.array(json.loads(re.sub(r"[^\[\], ]+", lambda m: repr(float(Fraction(m[0]))), text)))


def values_after(
    model: ModelProto, ports: Mapping[str, Any], difference: StepDifference
) -> dict[str, Any]:
    """Returns the parameters after the run of a difference in onnxruntime, by port."""
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    types = {value.name: value.type.tensor_type for value in model.graph.input}
    current: dict[str, Any] = {}
    for count in range(difference.steps):
        for name, text in ports["inputs"].items():
            port = {"step": "shared.step"}.get(text, text)
            given = difference.tensors.get(f"{port} at t = {count}")
            if given is None and text.startswith("grad"):
                given = difference.tensors[f"{port} before t = {late_start(difference)}"]
            elif given is None and text == "step":
                given = str(count + ports["initial_states"]["step"])
            elif given is None and count == 0:
                given = difference.tensors[port]
            if given is not None:
                shape = [dim.dim_value for dim in types[name].shape.dim]
                dtype = helper.tensor_dtype_to_np_dtype(types[name].elem_type)
                current[name] = np.broadcast_to(tensor_of_text(given), shape).astype(dtype)
        outputs = [value.name for value in model.graph.output]
        results = dict(zip(outputs, session.run(outputs, current), strict=True))
        places = {text: name for name, text in ports["inputs"].items()}
        current |= {places[ports["outputs"][name]]: array for name, array in results.items()}
    return {
        text: current[name] for name, text in ports["inputs"].items() if text.startswith("param")
    }


def late_start(difference: StepDifference) -> int:
    """Returns the first step of a run with gradients other than 0."""
    texts = (name.partition(" before t = ")[2] for name in difference.tensors)
    return max(int(text or 0) for text in texts)


def element_of(values: Mapping[str, Any], place: str) -> float:
    """Returns the element of a parameter that a difference names, such as ``param.w[0, 1]``."""
    name, _, index = place.rstrip("]").partition("[")
    return float(values[name][tuple(map(int, index.split(", ")))])


def assert_run_shows(
    difference: StepDifference,
    file: tuple[ModelProto, Mapping[str, Any]],
    honest: tuple[ModelProto, Mapping[str, Any]],
) -> None:
    """Asserts that a file and one of its rule differ in onnxruntime as a difference says."""
    value = element_of(values_after(*file, difference), difference.place)
    required = element_of(values_after(*honest, difference), difference.place)
    if difference.sides.difference == "":
        assert not math.isfinite(value)
        assert math.isfinite(required)
        return
    gap = float(difference.sides.difference)
    # The engine is nearer to the file than a fourth of the difference; so is the honest file, up to
    # the roundings of some float32.
    slack = 1e-6 * max(abs(value), abs(required))
    assert abs(value - float(Fraction(difference.sides.left))) <= gap / 4 + slack
    assert abs(required - float(Fraction(difference.sides.right))) <= gap / 4 + slack
    assert abs(value - required) >= gap / 2
