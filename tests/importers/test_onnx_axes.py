"""Axes and sizes are those of onnxruntime: a file that it refuses is refused."""

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from closedform.errors import ClosedFormError, VerificationError
from closedform.importers.onnx_graph import read_model
from closedform.ir import evaluate

SHAPES = ((), (1,), (2, 3), (1, 3))
AXES: tuple[list[int] | None, ...] = ([0], [-1], [2], [-3], [0, -1], [1, 0], [], None)
REDUCTIONS = ("ReduceSum", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceL2")
# Before opset 18 the axes of these are an attribute.
OPSETS = (11, 18)
Case = tuple[NodeProto, Mapping[str, Any], int]


def model_of(case: Case, shape: tuple[int, ...]) -> ModelProto:
    call, constants, opset = case
    step = helper.make_tensor_value_info("step", TensorProto.INT64, shape)
    cast = helper.make_node("Cast", ["step"], ["d"], to=TensorProto.DOUBLE)
    value = helper.make_tensor_value_info("value", TensorProto.DOUBLE, None)
    tensors = [numpy_helper.from_array(np.asarray(v, np.int64), k) for k, v in constants.items()]
    graph = helper.make_graph([cast, call], "axes", [step], [value], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def in_onnxruntime(model: ModelProto, step: Any) -> Any:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        session = ort.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        return session.run(None, {"step": step})[0]
    except Exception:  # onnxruntime's own errors
        return None


def with_axes(operator: str) -> Iterator[Case]:
    for axes, opset in itertools.product(AXES, OPSETS):
        if axes is None:
            yield helper.make_node(operator, ["d"], ["value"]), {}, opset
        elif opset == OPSETS[1]:
            yield helper.make_node(operator, ["d", "axes"], ["value"]), {"axes": axes}, opset
        elif axes:
            yield helper.make_node(operator, ["d"], ["value"], axes=axes), {}, opset


def with_sizes(operator: str) -> Iterator[Case]:
    for sizes in ([-1], [0], [0, -1], [6], [3, 2], [1, -1], [-1, -1], [], [-2], [1, 1, -1]):
        yield helper.make_node(operator, ["d", "sizes"], ["value"]), {"sizes": sizes}, 14


def with_attribute(operator: str, name: str, values: Any) -> Iterator[Case]:
    for value in values:
        yield helper.make_node(operator, ["d"], ["value"], **{name: value}), {}, 13


CASES: dict[str, list[Case]] = {
    **{name: list(with_axes(name)) for name in (*REDUCTIONS, "Squeeze", "Unsqueeze")},
    **{name: list(with_sizes(name)) for name in ("Reshape", "Expand")},
    "Flatten": list(with_attribute("Flatten", "axis", range(-3, 4))),
    "Transpose": list(with_attribute("Transpose", "perm", ([0], [1, 0], [-1, 0], [0, 0], [0, 1]))),
}


@pytest.mark.parametrize("operator", CASES)
def test_axes_are_those_of_onnxruntime(operator: str) -> None:
    read = 0
    for case, shape in itertools.product(CASES[operator], SHAPES):
        model = model_of(case, shape)
        step = np.arange(int(np.prod(shape))).reshape(shape)
        try:
            graph = read_model(model)
        except ClosedFormError:
            continue
        (value,) = evaluate(graph, {"step": step}).values()
        computed = in_onnxruntime(model, step)
        assert computed is not None, model
        assert value.shape == computed.shape, model
        np.testing.assert_allclose(value, computed, rtol=1e-15)
        read += 1
    assert read > 3


REFUSED: dict[str, Case] = {
    "its axes [3] are not distinct ones of 2": (
        helper.make_node("ReduceMax", ["d"], ["value"], axes=[3]),
        {},
        11,
    ),
    "its list of axes is empty": (
        helper.make_node("Squeeze", ["d", "axes"], ["value"]),
        {"axes": []},
        18,
    ),
    "its sizes must be 0 or more, got [-1]": (
        helper.make_node("Expand", ["d", "sizes"], ["value"]),
        {"sizes": [-1]},
        14,
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_refused(message: str) -> None:
    case = REFUSED[message]
    # onnx.checker finds some of these faults in matrices only, and not in scalars.
    shape = () if case[0].op_type == "Expand" else (2, 3)
    with pytest.raises(VerificationError) as caught:
        read_model(model_of(case, shape))
    assert str(caught.value).startswith(f"{message} (node ")
