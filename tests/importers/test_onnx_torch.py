"""ONNX models as modules of torch, beside onnxruntime; files that are refused."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from closedform.errors import ExportError
from closedform.training.from_onnx import read_module
from closedform.training.from_onnx.known import MOVED
from closedform.training.from_onnx.operators import ROWS

NUMBERS = np.random.default_rng(0)


def normal(*shape: int) -> Any:
    return NUMBERS.normal(size=shape).astype(np.float32)


def model_of(
    nodes: list[NodeProto],
    inputs: dict[str, Any],
    weights: dict[str, Any],
    outputs: tuple[str, ...] = ("y",),
    opset: int = 21,
) -> ModelProto:
    """A model whose inputs have a free first size."""
    given = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(array.dtype), ["rows", *array.shape[1:]]
        )
        for name, array in inputs.items()
    ]
    made = [helper.make_empty_tensor_value_info(name) for name in outputs]
    tensors = [numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "test", given, made, tensors)
    imports = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def node(operator: str, *operands: str, results: int = 1, **attributes: Any) -> NodeProto:
    outputs = [f"y{i}" if i else "y" for i in range(results)]
    return helper.make_node(operator, operands, outputs, **attributes)


def same_as_onnxruntime(model: ModelProto, inputs: dict[str, Any]) -> None:
    model = onnx.shape_inference.infer_shapes(model)
    for output in model.graph.output:
        if not output.type.tensor_type.elem_type:
            output.type.tensor_type.elem_type = TensorProto.FLOAT
    session = onnxruntime.InferenceSession(model.SerializeToString())
    wanted = session.run(None, inputs)
    names = [tensor.name for tensor in model.graph.initializer if tensor.name.startswith("w")]
    floats = [name for name in names if name != "wide"]
    module = read_module(model, floats).eval()
    found = module(*map(torch.from_numpy, inputs.values()))
    found = found if isinstance(found, tuple) else (found,)
    for own, other in zip(found, wanted, strict=True):
        array = own.detach().numpy()
        assert (array.dtype, array.shape) == (other.dtype, other.shape)
        # Roundings of another order of sums.
        np.testing.assert_allclose(array, other, rtol=2e-5, atol=1e-6)


UNARY = """
Abs Ceil Cos Erf Exp Floor Gelu HardSigmoid HardSwish Identity Log LogSoftmax Mish Neg
Reciprocal Relu Round Selu Sigmoid Sign Sin Sinh Softmax Softplus Softsign Sqrt Tanh Atan Asinh
Cosh Elu Celu LeakyRelu ThresholdedRelu ReduceL1 ReduceL2 ReduceLogSumExp ReduceMax ReduceMean
ReduceMin ReduceProd ReduceSum ReduceSumSquare ReduceLogSum
"""
ELEMENT = {
    **{name: node(name, "p") for name in UNARY.split()},
    "Gelu, tanh": node("Gelu", "p", approximate="tanh"),
    "Elu, alpha": node("Elu", "p", alpha=0.3),
    "Softmax, axis": node("Softmax", "p", axis=1),
    "PRelu": node("PRelu", "p", "w"),
    "Pow": node("Pow", "p", "two"),
    "Clip": node("Clip", "p", "", "two"),
    "Max": node("Max", "p", "w", "two"),
    "Min": node("Min", "p", "w"),
    "Mean": node("Mean", "p", "w"),
    "Sum": node("Sum", "p", "w", "two"),
    "Mod": node("Mod", "p", "two", fmod=1),
    "ReduceMean, axes": node("ReduceMean", "p", "axes", keepdims=0),
    "CumSum": node("CumSum", "p", "axis", exclusive=1, reverse=1),
    "Transpose": node("Transpose", "p", perm=[0, 2, 1]),
    "Flatten": node("Flatten", "p", axis=2),
    "Gather": node("Gather", "p", "places", axis=1),
    "Gather, one": node("Gather", "p", "axis", axis=2),
    "Pad": node("Pad", "p", "pads"),
    "Pad, edge": node("Pad", "p", "pads", mode="edge"),
    "Pad, reflect": node("Pad", "p", "pads", mode="reflect"),
    "Slice": node("Slice", "p", "axis", "two.whole", "axis"),
    "Slice, backwards": node("Slice", "p", "end", "start", "axis", "back"),
    "Tile": node("Tile", "p", "repeats"),
    "Trilu": node("Trilu", "p", upper=0),
    "Unsqueeze": node("Unsqueeze", "p", "places"),
    "Split": node("Split", "p", "sizes", axis=1, results=2),
    "Split, equal": node("Split", "p", axis=1, num_outputs=2, results=2),
    "Expand": node("Expand", "p", "wide"),
    "MatMul": node("MatMul", "p", "square"),
    "LayerNormalization": node("LayerNormalization", "p", "w", "w2"),
    "LayerNormalization, axis": node("LayerNormalization", "p", "table", axis=1),
    "Einsum": node("Einsum", "p", "square", equation="bij,jk->bik"),
    "InstanceNormalization": node("InstanceNormalization", "p", "w4", "w4"),
    "RNN": node("RNN", "p", "w_in", "w_state", "w_bias", hidden_size=2, results=2),
}
OPERANDS: dict[str, Any] = {
    "w": normal(3),
    "w2": normal(3),
    "w4": normal(4),
    "table": normal(4, 3),
    "square": normal(3, 3),
    "two": np.float32(2),
    "axis": np.array([1]),
    "two.whole": np.array([2]),
    "end": np.array([9]),
    "start": np.array([-9]),
    "back": np.array([-2]),
    "axes": np.array([1, 2]),
    "places": np.array([0, -1]),
    "pads": np.array([0, 1, 0, 0, 0, 2]),
    "repeats": np.array([1, 2, 1]),
    "sizes": np.array([1, 3]),
    "wide": np.array([2, 1, 4, 3]),
    "w_in": normal(1, 2, 3),
    "w_state": normal(1, 2, 2),
    "w_bias": normal(1, 4),
}


@pytest.mark.parametrize("name", ELEMENT)
def test_rows_are_those_of_onnxruntime(name: str) -> None:
    made = ELEMENT[name]
    # Positive, so that each function is defined, and away from the borders of its parts.
    inputs = {"p": np.abs(normal(2, 4, 3)) + 0.1}
    weights = {n: OPERANDS[n] for n in made.input if n in OPERANDS}
    if name == "CumSum":
        weights["axis"] = np.array(1)
    same_as_onnxruntime(model_of([made], inputs, weights, tuple(made.output)), inputs)


WINDOWS: dict[str, tuple[NodeProto, dict[str, Any]]] = {
    "Conv": (
        node("Conv", "x", "w", "w_b", strides=[2, 1], pads=[1, 0, 0, 1], dilations=[1, 2], group=2),
        {"w": normal(6, 2, 3, 2), "w_b": normal(6)},
    ),
    "Conv, same": (
        node("Conv", "x", "w", auto_pad="SAME_UPPER", strides=[2, 2]),
        {"w": normal(3, 4, 3, 3)},
    ),
    "Conv, same lower": (node("Conv", "x", "w", auto_pad="SAME_LOWER"), {"w": normal(3, 4, 2, 2)}),
    "ConvTranspose": (
        node("ConvTranspose", "x", "w", strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[1, 0]),
        {"w": normal(4, 3, 3, 3)},
    ),
    "MaxPool": (node("MaxPool", "x", kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 0, 1]), {}),
    "MaxPool, ceil": (node("MaxPool", "x", kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1), {}),
    "AveragePool": (node("AveragePool", "x", kernel_shape=[3, 3], pads=[1, 1, 1, 1]), {}),
    "AveragePool, counted": (
        node("AveragePool", "x", kernel_shape=[2, 2], pads=[1, 0, 0, 1], count_include_pad=1),
        {},
    ),
    "GlobalAveragePool": (node("GlobalAveragePool", "x"), {}),
    "GlobalMaxPool": (node("GlobalMaxPool", "x"), {}),
    "BatchNormalization": (
        node("BatchNormalization", "x", "w", "w2", "mean", "variance"),
        {"w": normal(4), "w2": normal(4), "mean": normal(4), "variance": np.abs(normal(4))},
    ),
    "GroupNormalization": (
        node("GroupNormalization", "x", "w", "w2", num_groups=2),
        {"w": normal(4), "w2": normal(4)},
    ),
    "LRN": (node("LRN", "x", size=3), {}),
    "DepthToSpace": (node("DepthToSpace", "x", blocksize=2), {}),
    "DepthToSpace, columns": (node("DepthToSpace", "x", blocksize=2, mode="CRD"), {}),
    "SpaceToDepth": (node("SpaceToDepth", "x", blocksize=2), {}),
    "Resize": (
        node(
            "Resize",
            "x",
            "",
            "scales",
            mode="nearest",
            nearest_mode="floor",
            coordinate_transformation_mode="asymmetric",
        ),
        {"scales": np.array([1, 1, 2, 2], np.float32)},
    ),
    "Resize, linear": (
        node("Resize", "x", "", "", "sizes", mode="linear"),
        {"sizes": np.array([2, 4, 9, 12])},
    ),
    "Resize, corners": (
        node(
            "Resize",
            "x",
            "",
            "",
            "sizes",
            mode="linear",
            coordinate_transformation_mode="align_corners",
        ),
        {"sizes": np.array([2, 4, 9, 12])},
    ),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_windows_are_those_of_onnxruntime(name: str) -> None:
    made, weights = WINDOWS[name]
    inputs = {"x": normal(2, 4, 6, 6)}
    same_as_onnxruntime(model_of([made], inputs, weights), inputs)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize(("kind", "gates"), [("RNN", 1), ("GRU", 3), ("LSTM", 4)])
def test_recurrences_are_those_of_onnxruntime(kind: str, gates: int, direction: str) -> None:
    inputs = {"x": normal(5, 2, 3)}
    count = 1 + (direction == "bidirectional")
    weights = {
        "w": normal(count, gates * 4, 3),
        "w_r": normal(count, gates * 4, 4),
        "w_b": normal(count, 2 * gates * 4),
    }
    for more in [{}, {"linear_before_reset": 1}][: 1 + (kind == "GRU")]:
        results = 3 if kind == "LSTM" else 2
        made = node(
            kind, "x", *weights, hidden_size=4, direction=direction, results=results, **more
        )
        same_as_onnxruntime(model_of([made], inputs, weights, tuple(made.output)), inputs)


@pytest.mark.parametrize(
    ("kind", "gates", "activations"),
    [
        *[("RNN", 1, [name]) for name in ("Relu", "Sigmoid", "Tanh")],
        *[("GRU", 3, [f, g]) for f in ("Sigmoid", "Relu") for g in ("Tanh", "Sigmoid", "Relu")],
        *[
            ("LSTM", 4, ["Sigmoid", *rest])
            for rest in itertools.product(("Tanh", "Sigmoid", "Relu"), repeat=2)
        ],
    ],
)
def test_activations_of_recurrences_are_those_of_onnxruntime(
    kind: str, gates: int, activations: list[str]
) -> None:
    """Both directions, the second one with the activations in the reverse order."""
    inputs = {"x": normal(5, 2, 3)}
    weights = {
        "w": normal(2, gates * 4, 3),
        "w_r": normal(2, gates * 4, 4),
        "w_b": normal(2, 2 * gates * 4),
    }
    made = node(
        kind,
        "x",
        *weights,
        hidden_size=4,
        direction="bidirectional",
        activations=[*activations, *reversed(activations)],
        results=3 if kind == "LSTM" else 2,
    )
    same_as_onnxruntime(model_of([made], inputs, weights, tuple(made.output)), inputs)


def test_activations_with_parameters_are_refused_by_name() -> None:
    weights = {"w": normal(1, 4, 3), "w_r": normal(1, 4, 4)}
    made = node("RNN", "x", *weights, hidden_size=4, activations=["Elu"], results=2)
    model = model_of([made], {"x": normal(5, 2, 3)}, weights, tuple(made.output))
    with pytest.raises(ExportError, match="must hold 1 of relu, sigmoid, tanh, got elu"):
        read_module(model, [])(torch.zeros(5, 2, 3))


def test_sizes_are_computed_without_tensors() -> None:
    """A reshape by the input's own sizes, as exporters write it."""
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "zero"], ["rows"]),
        helper.make_node("Mul", ["rows", "two"], ["twice"]),
        helper.make_node("Unsqueeze", ["twice", "axis"], ["first"]),
        helper.make_node("Concat", ["first", "minus"], ["sizes"], axis=0),
        helper.make_node("Reshape", ["x", "sizes"], ["flat"]),
        helper.make_node("Identity", ["flat"], ["same"]),
        helper.make_node("Mul", ["same", "w"], ["y"]),
    ]
    weights = {
        "zero": np.array(0),
        "two": np.array(2),
        "axis": np.array([0]),
        "minus": np.array([-1]),
        "w": normal(3),
    }
    inputs = {"x": normal(2, 6)}
    model = model_of(nodes, inputs, weights)
    same_as_onnxruntime(model, inputs)
    module = read_module(model, ["w"])
    program = torch.export.export(
        module,
        (torch.zeros(4, 6),),
        dynamic_shapes={"positional": ({0: torch.export.Dim("n")},)},
    )
    assert program.module()(torch.zeros(7, 6)).shape == (14, 3)


def test_a_range_of_the_rows_and_a_part_of_a_sequence_are_those_of_onnxruntime() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "zero"], ["rows"]),
        helper.make_node("CastLike", ["half", "rows"], ["start"]),
        helper.make_node("Range", ["start", "rows", "one"], ["places"]),
        helper.make_node("Cast", ["places"], ["numbers"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["numbers", "one_axis"], ["column"]),
        helper.make_node("SplitToSequence", ["x", "four"], ["parts"], axis=1),
        helper.make_node("SequenceAt", ["parts", "one"], ["part"]),
        helper.make_node("Mul", ["part", "column"], ["scaled"]),
        helper.make_node("Add", ["scaled", "w"], ["y"]),
    ]
    weights = {
        "zero": np.array(0),
        "one": np.array(1),
        "half": np.float32(0.5),
        "one_axis": np.array([1]),
        "four": np.array(4),
        "w": normal(2),
    }
    inputs = {"x": normal(3, 6)}
    same_as_onnxruntime(model_of(nodes, inputs, weights), inputs)


def test_each_operator_on_sizes_has_a_row_on_tensors() -> None:
    assert MOVED.keys() <= ROWS.keys()


def linear(**changes: Any) -> ModelProto:
    made = node("Gemm", "x", "fc.weight", "fc.bias", transB=1)
    weights = {"fc.weight": normal(3, 6), "fc.bias": normal(3)}
    return model_of([made], {"x": normal(2, 6)}, weights, **changes)


def _changed(change: Callable[[ModelProto], object]) -> ModelProto:
    model = linear()
    change(model)
    return model


REFUSED: dict[str, tuple[ModelProto, list[str], str]] = {
    "unknown weight": (
        linear(),
        ["fc.wait"],
        r"no weight has the name 'fc.wait'.*fc.weight \[3, 6\], fc.bias \[3\]",
    ),
    "operator": (
        _changed(lambda m: setattr(m.graph.node[0], "op_type", "Scan")),
        ["*"],
        "the operator 'Scan' is not supported.*operator Scan",
    ),
    "domain": (
        _changed(lambda m: setattr(m.graph.node[0], "domain", "com.microsoft")),
        ["*"],
        "the operator 'Gemm' of the domain 'com.microsoft' is not supported",
    ),
    "attribute": (
        _changed(lambda m: m.graph.node[0].attribute.append(helper.make_attribute("gamma", 2.0))),
        ["*"],
        "its attribute 'gamma' is not supported",
    ),
    "opset": (linear(opset=25), ["*"], r"its opset must be in 7..24, got 25"),
    "order": (
        _changed(lambda m: m.graph.node[0].input.__setitem__(0, "z")),
        ["*"],
        "its operand 'z' is not computed by any node before it",
    ),
    "output": (
        _changed(lambda m: setattr(m.graph.output[0], "name", "z")),
        ["*"],
        "the output 'z' is not computed by any node",
    ),
    "bytes": (
        _changed(lambda m: m.graph.initializer[0].dims.extend([2**20, 2**20])),
        ["*"],
        "its weights have .* bytes; at most",
    ),
    "size": (
        _changed(lambda m: m.graph.initializer[0].dims.__setitem__(0, 5)),
        ["*"],
        # The checker of onnx compares sizes since 1.23; before, the reader does.
        r"fc\.weight(\) raw_data size \(72 bytes\) is too small|' cannot be read)",
    ),
    "name": (
        model_of([node("Add", "x", "forward")], {"x": normal(2, 6)}, {"forward": normal(6)}),
        ["*"],
        "the weight 'forward' cannot have its name in torch",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_is_refused_by_name(name: str) -> None:
    model, trainable, message = REFUSED[name]
    with pytest.raises(ExportError, match=message):
        read_module(model, trainable)


def test_a_tensor_beyond_the_limit_is_not_computed() -> None:
    nodes = [node("Tile", "x", "repeats")]
    model = model_of(
        nodes, {"x": normal(2, 6)}, {"repeats": np.array([2**20, 2**20]), "w": normal(3)}
    )
    module = read_module(model, ["w"])
    with pytest.raises(ExportError, match=r"its result has .* entries; at most .* are computed"):
        module.check_memory(torch.zeros(2, 6))


def test_a_missing_or_other_file_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="cannot read it: No such file"):
        read_module(tmp_path / "none.onnx", ["*"])
    (tmp_path / "text.onnx").write_text("text" * 20)
    with pytest.raises(ExportError, match="it is not an ONNX model"):
        read_module(tmp_path / "text.onnx", ["*"])


def test_weights_beside_the_file_are_read_and_none_elsewhere(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(linear(), path, save_as_external_data=True, size_threshold=0, location="data")
    assert read_module(path, ["*"]).get_parameter("fc.weight").shape == (3, 6)
    model = onnx.load(path, load_external_data=False)
    for tensor in model.graph.initializer:
        tensor.external_data[0].value = "../data"
    path.write_bytes(model.SerializeToString())
    (tmp_path.parent / "data").write_bytes((tmp_path / "data").read_bytes())
    with pytest.raises(ExportError, match="it is not an ONNX model"):
        read_module(path, ["*"])


def test_a_batch_norm_trains_with_its_scale() -> None:
    made, weights = WINDOWS["BatchNormalization"]
    model = model_of([made], {"x": normal(2, 4, 6, 6)}, weights)
    value = torch.from_numpy(normal(8, 4, 6, 6)) + 3
    module = read_module(model, ["w*"])
    assert abs(module(value).mean()) < 2  # of the batch: the mean is that of the bias
    assert not np.array_equal(module.get_buffer("mean").numpy(), weights["mean"])
    before = module.get_buffer("mean").clone()
    module.eval()(value)
    assert torch.equal(module.get_buffer("mean"), before)
