"""Habits of exporters beside onnxruntime: old opsets, sizes in operators, branches, free sizes."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from closedform.errors import ExportError
from closedform.training.from_onnx import read_module

NUMBERS = np.random.default_rng(0)
Arrays = Mapping[str, Any]


def normal(*shape: int) -> Any:
    return NUMBERS.normal(size=shape).astype(np.float32)


def constant(name: str, value: Any) -> NodeProto:
    array = np.asarray(value)
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(array, name))


def model_of(
    nodes: Sequence[NodeProto],
    weights: Arrays,
    shape: Sequence[str | int | None],
    *,
    opset: int = 17,
    outputs: Sequence[str] = ("y",),
) -> ModelProto:
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    tensors = [numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "habits", [given], results, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=7)


def in_onnxruntime(model: ModelProto, x: Any) -> Any:
    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})[0]


def check(model: ModelProto, x: Any) -> None:
    """A file is computed as by onnxruntime."""
    found = read_module(model, []).eval()(torch.from_numpy(x))
    # Roundings of another order of sums.
    np.testing.assert_allclose(found.numpy(), in_onnxruntime(model, x), rtol=2e-5, atol=1e-6)


def node(operator: str, *operands: str, **attributes: Any) -> NodeProto:
    return helper.make_node(operator, operands, ["y"], **attributes)


OLD: dict[str, tuple[int, NodeProto, Arrays]] = {
    "Softmax, a matrix": (11, node("Softmax", "x"), {}),
    "Softmax, an axis": (12, node("Softmax", "x", axis=2), {}),
    "LogSoftmax": (7, node("LogSoftmax", "x", axis=-1), {}),
    "Clip": (10, node("Clip", "x", min=-0.5, max=0.25), {}),
    "Clip, one side": (7, node("Clip", "x", min=-0.5), {}),
    "Slice": (9, node("Slice", "x", starts=[1, 0], ends=[4, -1], axes=[1, 3]), {}),
    "Slice, all axes": (7, node("Slice", "x", starts=[0, 1], ends=[9, 3]), {}),
    "Pad": (10, node("Pad", "x", pads=[0, 0, 1, 2, 0, 0, 0, 1], value=0.5), {}),
    "Pad, reflected": (7, node("Pad", "x", pads=[0, 0, 1, 2, 0, 0, 0, 1], mode="reflect"), {}),
    "TopK": (9, helper.make_node("TopK", ["x"], ["y", "places"], k=2, axis=1), {}),
    "Dropout": (8, helper.make_node("Dropout", ["x"], ["y", "mask"], ratio=0.3), {}),
    "Upsample, factors": (7, node("Upsample", "x", scales=[1.0, 1.0, 2.0, 3.0]), {}),
    "Upsample": (9, node("Upsample", "x", "f"), {"f": np.array([1, 1, 2, 2], np.float32)}),
    "Upsample, linear": (
        9,
        node("Upsample", "x", "f", mode="linear"),
        {"f": np.array([1, 1, 2, 2], np.float32)},
    ),
    "Resize": (10, node("Resize", "x", "f"), {"f": np.array([1, 1, 2, 1.5], np.float32)}),
    "Squeeze and more": (11, node("ReduceSum", "x", axes=[2], keepdims=0), {}),
    "BatchNormalization": (
        8,
        node("BatchNormalization", "x", "s", "b", "m", "v", spatial=1),
        {"s": normal(5), "b": normal(5), "m": normal(5), "v": np.abs(normal(5))},
    ),
    "Scatter": (
        10,
        node("Scatter", "x", "i", "u", axis=3),
        {"i": np.zeros((2, 5, 4, 1), np.int64), "u": normal(2, 5, 4, 1)},
    ),
}


@pytest.mark.parametrize("name", OLD)
def test_operators_of_old_opsets_are_those_of_onnxruntime(name: str) -> None:
    opset, made, weights = OLD[name]
    check(model_of([made], weights, (2, 5, 4, 6), opset=opset), normal(2, 5, 4, 6))


PLACES = ("asymmetric", "half_pixel", "pytorch_half_pixel", "align_corners")
NEAREST = ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")
FACTORS = ((2.0, 3.0), (1.5, 0.5), (0.75, 1.0))
RESIZED = [
    *itertools.product(["nearest"], PLACES, NEAREST, FACTORS),
    *itertools.product(["linear"], PLACES, ["floor"], FACTORS),
]


@pytest.mark.parametrize(("mode", "places", "nearest", "factors"), RESIZED)
def test_values_between_pixels_are_those_of_onnxruntime(
    mode: str, places: str, nearest: str, factors: tuple[float, float]
) -> None:
    how = {"coordinate_transformation_mode": places, "nearest_mode": nearest, "mode": mode}
    weights = {"f": np.array([1, 1, *factors], np.float32)}
    check(
        model_of([node("Resize", "x", "", "f", **how)], weights, (1, 2, 4, 6)), normal(1, 2, 4, 6)
    )


@pytest.mark.parametrize("nearest", NEAREST)
@pytest.mark.parametrize("factors", [(2.0, 3.0), (4.0, 1.0), (0.5, 0.25)])
def test_values_between_pixels_of_tensorflow(nearest: str, factors: tuple[float, float]) -> None:
    """(i + 0.5)/k is rounded to another pixel than floor(i/k), whole factors or not."""
    how = {"coordinate_transformation_mode": "tf_half_pixel_for_nn", "nearest_mode": nearest}
    weights = {"r": np.zeros(0, np.float32), "f": np.array([1, 1, *factors], np.float32)}
    resize = node("Resize", "x", "r", "f", **how)
    check(model_of([resize], weights, (1, 2, 4, 6), opset=11), normal(1, 2, 4, 6))


@pytest.mark.parametrize("places", PLACES)
@pytest.mark.parametrize("mode", ["linear", "nearest"])
@pytest.mark.parametrize("sizes", [(1, 1), (1, 3), (8, 1)])
def test_one_pixel_is_that_of_onnxruntime(mode: str, places: str, sizes: tuple[int, int]) -> None:
    """pytorch_half_pixel takes the first pixel there, which torch itself does not."""
    how = {"coordinate_transformation_mode": places, "mode": mode}
    by_sizes = {"f": np.array([1, 2, *sizes])}
    resize = node("Resize", "x", "", "", "f", **how)
    check(model_of([resize], by_sizes, (1, 2, 4, 6)), normal(1, 2, 4, 6))
    by_factors = {"f": np.array([1, 1, sizes[0] / 4, sizes[1] / 6 + 1e-6], np.float32)}
    resize = node("Resize", "x", "", "f", **how)
    check(model_of([resize], by_factors, (1, 2, 4, 6)), normal(1, 2, 4, 6))


def test_a_cubic_pixel_of_one_is_refused() -> None:
    how = {"coordinate_transformation_mode": "pytorch_half_pixel", "mode": "cubic"}
    resize = node("Resize", "x", "", "", "f", **how)
    model = model_of([resize], {"f": np.array([1, 2, 1, 1])}, (1, 2, 4, 6))
    with pytest.raises(ExportError, match="cubic pytorch_half_pixel is not supported"):
        read_module(model, []).eval()(torch.from_numpy(normal(1, 2, 4, 6)))


TRANSPOSED: dict[str, dict[str, Any]] = {
    "unequal pads": {"pads": [1, 0, 0, 2], "strides": [2, 2]},
    "a longer end": {"pads": [1, 1, 0, 0], "strides": [2, 3], "output_padding": [1, 2]},
    "same": {"auto_pad": "SAME_UPPER", "strides": [1, 3]},
    "a shape": {"output_shape": [9, 11], "strides": [2, 2]},
}


@pytest.mark.parametrize("name", TRANSPOSED)
def test_a_transposed_convolution_is_cut_as_by_onnxruntime(name: str) -> None:
    made = node("ConvTranspose", "x", "w", **TRANSPOSED[name])
    check(model_of([made], {"w": normal(3, 2, 3, 3)}, (2, 3, 5, 6)), normal(2, 3, 5, 6))


def op(operator: str, operands: str, result: str, **attributes: Any) -> NodeProto:
    return helper.make_node(operator, operands.split(), [result], **attributes)


_HALVES = [op("Cast", "s", "f", to=1), op("Mul", "f half", "h")]
_TENSORS: Arrays = {
    "half": np.float32(0.5),
    "third": np.float32(3),
    "one": np.array([1]),
    "two": np.array([2]),
    "zero": np.array([0]),
    "swap": np.array([1, 0]),
    "minus": np.array([-1]),
    "far": np.array([-9]),
    "pair": np.array([1, 2]),
    "column": np.array([2, 1]),
    "which": np.array([True, False]),
    "large": np.array([3, 100]),
    "axis": np.array(0),
}

SIZES: dict[str, list[NodeProto]] = {
    "Gather": [op("Gather", "s swap", "t")],
    "Slice": [op("Slice", "s zero one", "u"), op("Concat", "u two", "t", axis=0)],
    "Slice, backwards": [op("Slice", "s minus far zero minus", "t")],
    "Transpose": [
        op("Reshape", "s column", "c"),
        op("Transpose", "c", "r"),
        op("Reshape", "r minus", "t"),
    ],
    "Tile": [op("Tile", "s two", "u"), op("Slice", "u one three", "t")],
    "Split": [helper.make_node("Split", ["s"], ["a", "b"]), op("Concat", "b a", "t", axis=0)],
    "Squeeze": [
        op("Gather", "s zero", "a"),
        op("Squeeze", "a", "b"),
        op("Unsqueeze", "b zero", "c"),
        op("Concat", "c one", "t", axis=0),
    ],
    "Expand": [op("Gather", "s zero", "a"), op("Expand", "a two", "t")],
    "Where": [op("Where", "which s pair", "t")],
    "Pad": [op("Slice", "s one two", "a"), op("Pad", "a swap one", "t")],
    "ScatterElements": [op("ScatterElements", "s zero two", "t", axis=0)],
    "Add": [op("Add", "s pair", "t")],
    "Sub and Neg": [op("Sub", "pair s", "a"), op("Neg", "a", "b"), op("Add", "b two", "t")],
    "Mul and Div": [op("Mul", "s large", "a"), op("Div", "a two", "t")],
    "Mod": [op("Mod", "s two", "a"), op("Add", "a large", "t")],
    "Max and Min": [op("Max", "s two", "a"), op("Min", "a large", "t")],
    "ReduceProd": [op("ReduceProd", "s", "a"), op("Concat", "a one", "t", axis=0)],
    "ReduceSum": [op("ReduceSum", "s zero", "a", keepdims=1), op("Concat", "a one", "t", axis=0)],
    "ReduceMax": [op("ReduceMax", "s", "a"), op("Concat", "a one", "t", axis=0)],
    "Floor": [*_HALVES, op("Floor", "h", "a"), op("Cast", "a", "t", to=7)],
    "Ceil": [*_HALVES, op("Ceil", "h", "a"), op("Cast", "a", "t", to=7)],
    "Cast": [*_HALVES, op("Add", "h half", "a"), op("Cast", "a", "t", to=7)],
    "a third": [
        op("Cast", "s", "f", to=1),
        op("Div", "f third", "h"),
        op("Ceil", "h", "a"),
        op("Cast", "a", "t", to=7),
    ],
    "a ratio": [
        op("Cast", "s", "f", to=1),
        op("Mul", "f third", "h"),
        op("Div", "h f", "a"),
        op("Cast", "a", "t", to=7),
    ],
    "Equal": [op("Equal", "s one", "e"), op("Where", "e two s", "t")],
    "Less": [op("Less", "one s", "e"), op("Where", "e s two", "t")],
    "a branch": [
        op("Size", "s", "n"),
        op("Equal", "n axis", "e"),
        helper.make_node(
            "If",
            ["e"],
            ["t"],
            then_branch=helper.make_graph(
                [op("Identity", "pair", "inner")],
                "then",
                [],
                [helper.make_tensor_value_info("inner", 7, [2])],
            ),
            else_branch=helper.make_graph(
                [constant("four", np.array([4])), op("Add", "s four", "other")],
                "else",
                [],
                [helper.make_tensor_value_info("other", 7, [2])],
            ),
        ),
    ],
}


@pytest.mark.parametrize("name", SIZES)
def test_sizes_are_computed_without_tensors(name: str) -> None:
    """Traced for 4 × 6, a file makes the sizes of 7 × 9."""
    nodes = [
        op("Shape", "x", "s"),
        *SIZES[name],
        op("Expand", "half t", "full"),
        op("ReduceMean", "x", "m", keepdims=0),
        op("Add", "full m", "y"),
    ]
    read = {name for made in nodes for name in made.input}
    weights = {n: a for n, a in {**_TENSORS, "three": np.array([3])}.items() if n in read}
    if name == "a branch":
        weights["pair"] = _TENSORS["pair"]
    model = model_of(nodes, weights, ("rows", "columns"))
    sizes = {0: torch.export.Dim("rows", min=4), 1: torch.export.Dim("columns", min=4)}
    program = torch.export.export(
        read_module(model, []), (torch.zeros(4, 6),), dynamic_shapes={"positional": (sizes,)}
    )
    x = normal(7, 9)
    found = program.module()(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(found, in_onnxruntime(model, x), rtol=1e-6)


def test_constants_are_computed_by_any_operator() -> None:
    """The pads of ``torch.nn.functional.pad``, of constants that eight operators move."""
    nodes = [
        op("ConstantOfShape", "two", "zeros", value=numpy_helper.from_array(np.array([0]))),
        op("Concat", "pads zeros", "c", axis=0),
        op("Reshape", "c columns", "r"),
        op("Slice", "r minus far zero minus", "b"),
        op("Transpose", "b", "t", perm=[1, 0]),
        op("Reshape", "t minus", "q"),
        op("Cast", "q", "all", to=7),
        op("Pad", "x all", "y", mode="reflect"),
    ]
    weights = {
        "two": np.array([2]),
        "pads": np.array([1, 2]),
        "columns": np.array([-1, 2]),
        "minus": np.array([-1]),
        "far": np.array([-(2**63)]),
        "zero": np.array([0]),
    }
    check(model_of(nodes, weights, (3, 4)), normal(3, 4))


@pytest.mark.parametrize("is_less", [True, False])
def test_a_branch_on_a_constant_is_taken(is_less: bool) -> None:
    """Branches within branches, with weights of their own."""
    inner = helper.make_graph(
        [op("Mul", "x w", "b")], "inner", [], [helper.make_tensor_value_info("b", 1, None)]
    )
    rest = helper.make_graph(
        [op("Neg", "x", "c")], "rest", [], [helper.make_tensor_value_info("c", 1, None)]
    )
    nested = helper.make_node("If", ["yes"], ["d"], then_branch=inner, else_branch=rest)
    outer = helper.make_graph(
        [constant("yes", np.array(True)), nested],
        "outer",
        [],
        [helper.make_tensor_value_info("d", 1, None)],
        [numpy_helper.from_array(normal(4), "w")],
    )
    plain = helper.make_graph(
        [op("Relu", "x", "e")], "plain", [], [helper.make_tensor_value_info("e", 1, None)]
    )
    nodes = [
        op("Less", "two four", "is") if is_less else op("Less", "four two", "is"),
        helper.make_node("If", ["is"], ["y"], then_branch=outer, else_branch=plain),
    ]
    model = model_of(nodes, {"two": np.array(2), "four": np.array(4)}, (3, 4))
    check(model, normal(3, 4))
    assert [n for n, _ in read_module(model).named_parameters()] == (["w"])


def test_sizes_without_a_name_are_different_sizes() -> None:
    graph = helper.make_graph(
        [op("Add", "image.1 13", "y")],
        "sizes",
        [
            helper.make_tensor_value_info("image.1", 1, ["?", "a.b", -1, 4]),
            helper.make_tensor_value_info("13", 1, [None, "a_b", "?", 4]),
        ],
        [helper.make_tensor_value_info("y", 1, ["?", "a.b", -1, 4])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    module = read_module(model, [])
    assert module.input_names == ("image_1", "input_13")
    assert module.input_shapes.free_sizes == {
        "image_1": {0: "image_1_0", 1: "a_b", 2: "image_1_2"},
        "input_13": {0: "input_13_0", 1: "a_b_", 2: "input_13_2"},
    }


@pytest.mark.parametrize("opset", [7, 9, 13])
def test_results_put_a_batch_normalisation_in_training_form(opset: int) -> None:
    """Up to opset 13: the mean and the variance of the batch are results that nothing reads."""
    made = helper.make_node("BatchNormalization", ["x", *"sbmv"], ["y", *"acde"])
    weights = {name: np.abs(normal(5)) for name in "sbmv"}
    model, x = model_of([made], weights, (2, 5, 4, 6), opset=opset), normal(2, 5, 4, 6)
    found = read_module(model, []).train()(torch.from_numpy(x))
    # Roundings of another order of sums.
    np.testing.assert_allclose(found.numpy(), in_onnxruntime(model, x), rtol=2e-5, atol=1e-6)


def test_an_output_that_is_declared_as_a_scalar_has_its_own_shape() -> None:
    model = model_of([op("Softmax", "x", "y")], {}, (-1, 4))
    model.graph.output[0].type.tensor_type.shape.SetInParent()
    check(model, normal(3, 4))


def _quantized(operator: str, domain: str = "") -> ModelProto:
    return model_of(
        [helper.make_node(operator, ["x", "w"], ["y"], domain=domain)], {"w": 1.0}, (2,)
    )


KINDS: dict[str, tuple[ModelProto, str]] = {
    "integers": (_quantized("MatMulInteger"), "it is a quantized model"),
    "steps": (_quantized("DequantizeLinear"), "it is a quantized model"),
    "fused integers": (_quantized("DynamicQuantizeLSTM", "com.microsoft"), "a quantized model"),
    "trees": (_quantized("TreeEnsembleRegressor", "ai.onnx.ml"), r"trees, or other classical"),
    "loops": (_quantized("Scan"), "a graph that is trained has no control flow"),
    "a mask": (
        model_of([helper.make_node("MaxPool", ["x"], ["a", "b"], kernel_shape=[2]),
                  op("Cast", "b", "c", to=1), op("Add", "a c", "y")], {}, (1, 2, 4)),
        "its result 1 is not supported .*operator MaxPool",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", KINDS)
def test_what_cannot_be_trained_is_refused_by_its_kind(name: str) -> None:
    model, message = KINDS[name]
    with pytest.raises(ExportError, match=message):
        read_module(model)(torch.zeros(1, 2, 4) if name == "a mask" else torch.zeros(2))
