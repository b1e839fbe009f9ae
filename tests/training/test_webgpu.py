"""The target "webgpu": its files train as the ordinary ones do, and have kernels for all of it."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from torch import nn
from torch.nn import functional

from closedform import optimizers, schedules, transforms
from closedform.errors import DefinitionError, ExportError
from closedform.training import export
from closedform.training.webgpu.kernels import KERNELS, REASONS, sizes_on_host, violations
from closedform.training.webgpu.replacements import REPLACEMENTS
from closedform.training.webgpu.step import SCALARS_FILE, WEBGPU_FILE, webgpu_models
from closedform.training.webgpu.translation import Translation, infer
from tests.support.sampling import marking_slow
from tests.training.webgpu_files import export_entry, losses_of, zoo_batches
from tests.training.zoo import ZOO

STEPS = 12
RATE = schedules.linear(0, 1e-2, 3).then(schedules.cosine(1e-2, 1e-4, 97))
RULE = transforms.clip_by_global_norm(optimizers.sgd(RATE, momentum=0.9), 1.0)

# Roundings of float32 in other orders of the same sums (log-softmax, the norm's square in float32),
# carried on by 12 steps.
TOLERANCE = 1e-6

REFUSED = {"max_norm": "has no kernel for Unique: the size of its result depends on data"}
EXPORTED = [name for name, entry in ZOO.items() if entry.refused is None and name not in REFUSED]


def assert_same_training(folder: Path, batches: Sequence[Any]) -> None:
    """Compares the losses and the last states of the WebGPU files and of the ordinary ones."""
    expected_losses, expected_state = losses_of(folder, batches, is_webgpu=False)
    losses, state = losses_of(folder, batches, is_webgpu=True)
    bound = TOLERANCE * np.abs(expected_losses).max()
    assert np.abs(np.subtract(losses, expected_losses)).max() <= bound
    assert state.keys() == expected_state.keys()
    for key, value in expected_state.items():
        bound = 10 * TOLERANCE * max(np.abs(value).max(initial=0), 0.1)
        assert np.abs(state[key] - value).max(initial=0) <= bound, key


@pytest.mark.sample(every=18)
# It takes 10 s.
@pytest.mark.parametrize("name", marking_slow(EXPORTED, ("gru, both directions",)))
def test_losses_are_those_of_the_ordinary_files(name: str, tmp_path: Path) -> None:
    entry = ZOO[name]
    model = export_entry(entry, RULE, tmp_path)
    batches = list(zoo_batches(entry, model, tmp_path, STEPS))
    assert_same_training(tmp_path, batches)
    _check_file(onnx.load(tmp_path / WEBGPU_FILE))
    assert "step" not in {value.name for value in onnx.load(tmp_path / WEBGPU_FILE).graph.input}


def _check_file(model: onnx.ModelProto) -> None:
    """Types and widths that each WebGPU device has, counted without the table of kernels."""
    graph = infer(model)
    sizes = sizes_on_host(graph) | {tensor.name for tensor in graph.initializer}
    kinds = {TensorProto.FLOAT, TensorProto.INT32, TensorProto.BOOL}
    ports = {
        value.name: value.type.tensor_type.elem_type for value in (*graph.input, *graph.output)
    }
    assert set(ports.values()) <= kinds, ports
    for value in graph.value_info:
        element = value.type.tensor_type.elem_type
        assert element in kinds or element == TensorProto.INT64, value.name
    for node in graph.node:
        assert node.op_type in KERNELS or set(node.output) <= sizes, node.op_type
        if node.op_type in ("Concat", "Split"):
            assert len(node.input) <= 7
            assert len(node.output) <= 7
    assert list(violations(graph)) == []


# These have a further input: noise, the loss, the Hessian.
RULES = sorted(set(optimizers.__all__) - {"kron", "momo", "sophia"})


@pytest.mark.sample(every=12)
@pytest.mark.parametrize("name", RULES)
def test_every_rule_trains_as_in_the_ordinary_files(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    layers = (nn.Linear(6, 8, bias=False), nn.Tanh(), nn.Linear(8, 3, bias=False))
    make = getattr(optimizers, name)
    try:
        rule = make(schedules.cosine(1e-2, 1e-4, 100))
    except DefinitionError:  # its rate must be a number
        rule = make()
    example = (torch.randn(4, 6), torch.randn(4, 3))
    export(nn.Sequential(*layers), "mse", example, rule, tmp_path, target="webgpu", validate=False)
    generator = np.random.default_rng(0)
    batches = [
        {
            "batch.input": generator.normal(size=(4, 6)).astype(np.float32),
            "batch.target": generator.normal(size=(4, 3)).astype(np.float32),
        }
        for _ in range(8)
    ]
    assert_same_training(tmp_path, batches)


@pytest.mark.parametrize("name", REFUSED)
def test_an_operator_without_a_kernel_is_refused_by_name(name: str, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=re.escape(REFUSED[name])):
        export_entry(ZOO[name], RULE, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_each_operator_of_onnx_is_in_the_table_or_replaced_or_refused() -> None:
    names = {schema.name for schema in onnx.defs.get_all_schemas() if schema.domain == ""}
    absent = names - KERNELS.keys() - REPLACEMENTS.keys()
    assert len(absent) > 50
    for name in sorted(absent):
        node = helper.make_node(name, ["x"], ["y"])
        value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
        graph = helper.make_graph([node], "g", [value], [])
        assert [why for _, why in violations(graph)] == [name]
    assert REASONS.keys() <= names


@pytest.mark.parametrize(
    ("kinds", "text"),
    [
        ((torch.float64, "f64"), "target 'webgpu' is for models in float32, got one in f64"),
        ((torch.float16, "f16"), "target 'webgpu' is for models in float32, got one in f16"),
    ],
)
def test_other_dtypes_are_refused(kinds: Any, text: str, tmp_path: Path) -> None:
    kind, name = kinds
    rule = optimizers.sgd(0.1)
    rule = transforms.master_weights(rule, name) if name == "f16" else rule
    model = nn.Linear(3, 2).to(kind)
    batch = (torch.zeros(2, 3, dtype=kind), torch.zeros(2, 2, dtype=kind))
    with pytest.raises(ExportError, match=re.escape(text)):
        export(model, "mse", batch, rule, tmp_path, target="webgpu")


def test_an_unknown_target_is_refused(tmp_path: Path) -> None:
    batch = (torch.zeros(2, 3), torch.zeros(2, 2))
    with pytest.raises(ExportError, match="target must be \"webgpu\" or None, got 'gpu'"):
        export(nn.Linear(3, 2), "mse", batch, optimizers.sgd(0.1), tmp_path, target="gpu")


def test_a_model_that_computes_in_float64_is_refused(tmp_path: Path) -> None:
    def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return (output.double() - target).square().mean()

    batch = (torch.randn(4, 3), torch.randn(4, 2))
    with pytest.raises(ExportError, match="no kernel for Cast of double"):
        export(nn.Linear(3, 2), loss, batch, optimizers.sgd(0.1), tmp_path, target="webgpu")


def test_schedule_and_bias_corrections_are_computed_in_float64_on_the_cpu(tmp_path: Path) -> None:
    """Their operators do not occur in the GPU's file, and the learning rate loses nothing."""
    rule = optimizers.adamw(RATE, weight_decay=0.1)
    batch = (torch.randn(4, 6), torch.randint(0, 3, (4,)))
    export(nn.Linear(6, 3), functional.cross_entropy, batch, rule, tmp_path, target="webgpu")
    step, scalars = (onnx.load(tmp_path / name) for name in (WEBGPU_FILE, SCALARS_FILE))
    assert all(value.name.startswith("scalar.") or "." in value.name for value in step.graph.input)
    assert {node.op_type for node in scalars.graph.node} >= {"Sin", "Exp"}
    assert {value.name for value in scalars.graph.input} == {"step"}
    ordinary = onnx.load(tmp_path / "train.onnx")
    keys = [{entry.key for entry in model.metadata_props} for model in (step, scalars, ordinary)]
    assert keys[0] == keys[1] < keys[2]  # which has the verdict on its update, too
    labels = next(value for value in step.graph.input if value.name == "batch.target")
    assert labels.type.tensor_type.elem_type == TensorProto.INT32
    session = ort.InferenceSession(str(tmp_path / SCALARS_FILE))
    rates = [
        session.run(["learning_rate", "next.step"], {"step": np.array(t, np.int64)})
        for t in range(100)
    ]
    assert [int(after) for _, after in rates] == list(range(1, 101))
    # As the ordinary file has it; that is tested against the formula elsewhere.
    graph = ort.InferenceSession(str(tmp_path / "train.onnx"))
    feeds = {
        port.name: np.zeros(
            [4 if isinstance(size, str) else size for size in port.shape],
            np.int64 if "int64" in port.type else np.float32,
        )
        for port in graph.get_inputs()
    }
    for t, (rate, _) in enumerate(rates[::9]):
        feeds["step"] = np.array(9 * t, np.int64)
        assert graph.run(["learning_rate"], feeds)[0] == rate


def test_numbers_that_a_step_carries_on_by_themselves_stay_on_the_cpu(tmp_path: Path) -> None:
    model = export_entry(ZOO["batch norm"], RULE, tmp_path)
    assert isinstance(model, nn.Module)
    step, scalars = (onnx.load(tmp_path / name) for name in (WEBGPU_FILE, SCALARS_FILE))
    name = "buffer.1.num_batches_tracked"
    assert name in {value.name for value in scalars.graph.input}
    assert f"next.{name}" in {value.name for value in scalars.graph.output}
    assert name not in {value.name for value in step.graph.input}


def test_a_constant_without_a_value_in_float32_is_refused() -> None:
    node = helper.make_node("Mul", ["param.w", "tiny"], ["next.param.w"])
    value = helper.make_tensor_value_info("param.w", TensorProto.DOUBLE, [2])
    result = helper.make_tensor_value_info("next.param.w", TensorProto.DOUBLE, [2])
    tiny = numpy_helper.from_array(np.array(1e-60), "tiny")
    graph = helper.make_graph([node], "g", [value], [result], [tiny])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    with pytest.raises(ExportError, match="the constant 1e-60 has no value in float32"):
        webgpu_models(model, "model M")


def test_a_size_that_depends_on_data_is_refused() -> None:
    nodes = [
        helper.make_node("Cast", ["batch.n"], ["size"], to=TensorProto.INT64),
        helper.make_node("Expand", ["param.w", "size"], ["loss"]),
    ]
    ports = [
        helper.make_tensor_value_info("batch.n", TensorProto.FLOAT, [1]),
        helper.make_tensor_value_info("param.w", TensorProto.FLOAT, [1]),
    ]
    result = helper.make_tensor_value_info("loss", TensorProto.FLOAT, ["m"])
    graph = helper.make_graph(nodes, "g", ports, [result])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    with pytest.raises(ExportError, match="reads the sizes of Expand on the CPU, and they depend"):
        webgpu_models(model, "model M")


_NUMBERS = "0 1 -1 2 -2 0.5 -0.5 1.5 2.5 -2.5 3 -3 1e-3 10 -10 77.7 1e6 -1e6 inf -inf nan"
SPECIAL = np.array(_NUMBERS.split(), np.float32)
FINITE = SPECIAL[SPECIAL != -np.inf]
ANGLES = np.concatenate([np.linspace(-50, 50, 501), [1e3, -2e3]]).astype(np.float32)
WORDS = np.array([[0, 1, -1, 70_000], [-70_000, 2**31 - 1, -(2**31), 65_536]], np.int32)
FLAGS = np.array([[True, False, True, False], [False, False, True, True]])
IMAGE = np.random.default_rng(0).integers(0, 9, (2, 3, 5, 7)).astype(np.float32)  # with ties
PLACES = np.array([[1, 0, 1, 1]])


def _case(operator: str, *operands: Any, **options: Any) -> Any:
    return pytest.param(operator, operands, options, id=f"{operator}-{operands[0].dtype}")


@pytest.mark.parametrize(
    ("operator", "operands", "options"),
    [
        _case("Log", SPECIAL),
        _case("Sign", SPECIAL[:-1]),
        _case("Sign", WORDS),
        _case("Round", SPECIAL),
        _case("IsNaN", SPECIAL),
        _case("IsInf", SPECIAL),
        # (−∞)^½ is ∞ in C and NaN here.
        _case("Pow", FINITE[:, None], np.array([0, 1, 2, 3, -1, 0.5, 2.5, -3], np.float32)),
        *(
            pytest.param("Pow", (FINITE, np.array(number, np.float32)), {}, id=f"Pow {number}")
            for number in (0, 1, 2, 3, 7, 0.5, -0.5, -1, -2, 1.5, 0.3)
        ),
        _case("Sin", ANGLES),
        _case("Cos", ANGLES),
        _case("Tan", ANGLES),
        _case("Acos", np.linspace(-1, 1, 101).astype(np.float32)),
        _case("LogSoftmax", np.array([[1, 2, 3], [-1e30, 0, 100]], np.float32), axis=1),
        _case("ReduceLogSumExp", np.array([[100, 90, 1e3], [-200] * 3], np.float32), np.array([1])),
        _case("Neg", WORDS[:, :-2]),
        _case("Abs", WORDS[:, :-2]),
        _case("Mod", np.arange(-9, 10, dtype=np.int32)[:, None], np.array([4, -4, 1], np.int32)),
        _case("Or", FLAGS, ~FLAGS[:1]),
        _case("Xor", FLAGS, ~FLAGS[:1]),
        _case("Equal", FLAGS, ~FLAGS[:1]),
        _case("Where", FLAGS, ~FLAGS, FLAGS[:1], wanted=np.where(FLAGS, ~FLAGS, FLAGS[:1])),
        _case("Identity", FLAGS),
        _case("Squeeze", FLAGS[None], np.array([0])),
        *(
            _case(operator, array, *rest, **options)
            for array in (WORDS, FLAGS)
            for operator, rest, options in (
                ("Slice", (np.array([2]), np.array([0]), np.array([1]), np.array([-1])), {}),
                ("GatherElements", (PLACES,), {"axis": 0}),
                ("Transpose", (), {"perm": [1, 0]}),
                ("Concat", (array, array), {"axis": 1}),
                ("Tile", (np.array([2, 1]),), {}),
                ("Split", (np.array([1, 3]),), {"axis": 1, "outputs": 2}),
            )
        ),
        _case("Concat", *[SPECIAL[at:] for at in range(19)], axis=0),
        _case("Split", SPECIAL, np.array([1] * 19 + [0, 2]), outputs=21),
        _case("ArgMax", np.array([[1, 3, 3], [-2, -5, -2]], np.float32), axis=1, keepdims=0),
        _case("ArgMin", np.array([[1, 3, 1], [-2, -5, -2]], np.float32), axis=1),
        _case("ArgMax", WORDS, axis=0),
        _case("EyeLike", np.zeros((2, 3), np.float32), k=1),
        *(
            _case("MaxPool", IMAGE, outputs=2, **options)
            for options in (
                {"kernel_shape": [2, 2], "strides": [2, 2]},
                {"kernel_shape": [3, 2], "strides": [2, 3], "pads": [1, 0, 1, 1]},
                {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1},
                {"kernel_shape": [2, 3], "strides": [3, 3], "pads": [1, 1, 1, 1], "ceil_mode": 1},
                {"kernel_shape": [2, 2], "dilations": [2, 1]},
            )
        ),
        _case("MaxPool", IMAGE[0], outputs=2, kernel_shape=[3], strides=[2], ceil_mode=1),
        _case("TopK", np.array([[1, 3, 2], [5, 4, 9]], np.float32), np.array([2]), outputs=2),
        _case("GatherND", FLAGS, np.array([[0, 1], [1, 3]])),
        _case("ScatterND", FLAGS, np.array([[1]]), ~FLAGS[1:]),
        _case("GatherND", SPECIAL[:4].reshape(2, 2), np.array([[0, 1], [1, 1]])),
        _case(
            "ScatterND", np.zeros((3, 2), np.float32), np.array([[0], [2]]), np.ones((2, 2), "f")
        ),
    ],
)
def test_a_replacement_gives_what_its_operator_gives(
    operator: str, operands: tuple[NDArray[Any], ...], options: dict[str, Any]
) -> None:
    """Stock onnxruntime runs both, on special values; results of int64 are int32."""
    assert operator in REPLACEMENTS
    options = dict(options)
    reference = options.pop("wanted", None)
    outputs = [f"y{place}" for place in range(options.pop("outputs", 1))]
    kernel = KERNELS.get(operator)
    host = {1} if operator in ("ReduceLogSumExp", "Squeeze", "Tile", "TopK") else set()
    host |= set(kernel.host) if kernel else set()
    is_constant = operator == "Pow" and operands[1].ndim == 0
    fixed = {f"x{k}" for k in range(len(operands)) if k in host or (is_constant and k == 1)}
    named = {f"x{place}": array for place, array in enumerate(operands)}
    node = helper.make_node(operator, list(named), outputs, **options)
    ports = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
        )
        for name, array in named.items()
        if name not in fixed
    ]
    graph = helper.make_graph(
        [node],
        "g",
        ports,
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(named[name], name) for name in sorted(fixed)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    # onnxruntime has no Where of booleans on CPUs.
    wanted = _run(model, named) if reference is None else [reference]
    typed = infer(model)
    for output, array in zip(typed.output, wanted, strict=True):
        element = helper.np_dtype_to_tensor_dtype(array.dtype)
        output.CopyFrom(helper.make_tensor_value_info(output.name, element, array.shape))
    translated = Translation(typed, "here").run(REPLACEMENTS)
    new = helper.make_model(translated, opset_imports=model.opset_import, ir_version=10)
    assert list(violations(infer(new))) == []
    results = _run(new, named)
    for result, array in zip(results, wanted, strict=True):
        if array.dtype.kind != "f":
            assert np.array_equal(result, array)
            continue
        # A few roundings of float32; a tangent magnifies those of its angle by 1 + tan².
        scale = np.maximum(np.abs(array), 1)
        bound = 2e-6 * (scale**2 if operator == "Tan" else scale)
        with np.errstate(invalid="ignore"):
            is_near = np.abs(result - array) <= bound
        is_same = (result == array) | (np.isnan(result) & np.isnan(array))
        assert (is_near | is_same).all(), (result, array)


def _run(model: onnx.ModelProto, named: dict[str, NDArray[Any]]) -> list[NDArray[Any]]:
    session = ort.InferenceSession(model.SerializeToString())
    kinds = {"tensor(int32)": np.int32}
    feeds = {
        port.name: named[port.name].astype(kinds.get(port.type, named[port.name].dtype))
        for port in session.get_inputs()
    }
    results: list[NDArray[Any]] = session.run(None, feeds)
    return results
