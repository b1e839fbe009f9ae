"""Targets: the opset and IR version of each, local functions, and files without 64-bit values."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import closedform as cf
from closedform import optimizers, schedules
from closedform.errors import ExportError
from closedform.exporters.onnx_model import to_model
from closedform.exporters.onnx_targets import (
    TARGETS,
    check_dtypes,
    find_target,
    lowest_ir_version,
    onnx_format,
)
from closedform.ir.graph import Builder, Role
from closedform.ir.ops import Op
from closedform.ir.types import DType, TensorType
from closedform.runtime.onnx_session import open_session

COSINE = schedules.cosine(1, 0, 100)
SMALL = TARGETS["32-bit"][()].dtypes


@pytest.mark.parametrize(
    ("target", "opset", "ir"),
    [
        ("onnxruntime", 19, 9),
        ("onnxruntime>=1.17", 20, 9),
        ("onnxruntime>=1.17.3", 20, 9),
        ("onnxruntime>=1.31", 21, 10),
        ("tract", 21, 10),
        ("32-bit", 12, 7),
    ],
)
def test_target_chooses_the_versions(target: str, opset: int, ir: int) -> None:
    assert onnx_format(target=target).opset == opset
    assert lowest_ir_version(opset) == ir


def test_files_declare_the_versions_of_their_target(tmp_path: Path) -> None:
    model = cf.to_onnx(COSINE, tmp_path / "lr.onnx", target="onnxruntime>=1.17")
    assert (model.ir_version, model.opset_import[0].version) == (9, 20)
    assert onnx.load(tmp_path / "lr.onnx").ir_version == 9
    older = cf.to_onnx(COSINE, tmp_path / "lr.onnx", target="onnxruntime>=1.17", opset=13)
    assert (older.ir_version, older.opset_import[0].version) == (7, 13)
    models = cf.to_onnx(
        optimizers.sgd(0.1), tmp_path, params={"w": (2,)}, target="onnxruntime>=1.17", inline=False
    )
    assert isinstance(models, dict)
    assert models["step"].functions
    assert {model.ir_version for model in models.values()} == {9}


BAD = [
    (
        lambda: find_target("onnxruntime>1.17"),
        'target must be "NAME" or "NAME>=VERSION", got \'onnxruntime>1.17\'',
    ),
    (
        lambda: find_target("onnxrutime"),
        'target must be "NAME" or "NAME>=VERSION", got \'onnxrutime\': did you mean '
        "'onnxruntime'?",
    ),
    (
        lambda: find_target("onnxruntime>=1.2"),
        "target 'onnxruntime' is known from version 1.16 on, got 1.2: give target=\"onnxruntime\"",
    ),
    (lambda: find_target("32-bit>=1"), "target '32-bit' has no version, got 1"),
    (
        lambda: onnx_format(opset=21, target="onnxruntime>=1.17"),
        "files for target 'onnxruntime>=1.17' have opset 20 or lower, got 21: leave opset out",
    ),
    (
        lambda: onnx_format(opset=11, target="32-bit"),
        "files for target '32-bit' have opset 12, got 11: leave opset out",
    ),
    (
        lambda: onnx_format(inline=False, target="tract"),
        "target 'tract' does not read local functions, got inline=False: leave inline out",
    ),
]


@pytest.mark.parametrize(("call", "message"), BAD, ids=[message for _, message in BAD])
def test_what_a_target_does_not_read_is_refused(call: object, message: str) -> None:
    assert callable(call)
    with pytest.raises(ExportError) as caught:
        call()
    assert str(caught.value).startswith(message)


def test_a_file_with_float64_is_refused_and_not_written(tmp_path: Path) -> None:
    with pytest.raises(ExportError) as caught:
        cf.to_onnx(COSINE, tmp_path / "lr.onnx", target="32-bit")
    assert str(caught.value).startswith(
        "input 'step' is int64, and the target has bool, f32, i32 (graph 'cosine'): give "
    )
    with pytest.raises(ExportError, match="is double, and the target has"):
        cf.to_onnx(COSINE, tmp_path / "lr.onnx", target="32-bit", step_dtype="i32", dtype="f32")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("inline", [True, False])
def test_bfloat16_is_refused_for_a_runtime_that_does_not_round_to_it(
    tmp_path: Path, inline: bool
) -> None:
    old = "onnxruntime>=1.16"
    rule = optimizers.muon(0.1, precision="bf16", ns_steps=1)
    with pytest.raises(ExportError) as caught:
        cf.to_onnx(rule, tmp_path, params={"w": (2, 3)}, target=old, inline=inline)
    assert "is bfloat16, and the target has bool, f16, f32, f64, i32, i64, i8 " in str(caught.value)
    assert str(caught.value).endswith(": choose a later version")
    assert not list(tmp_path.iterdir())
    plain = optimizers.muon(0.1, ns_steps=1)
    cf.to_onnx(plain, tmp_path, params={"w": (2, 3)}, target=old, inline=inline, validate=False)


def test_every_place_of_a_dtype_is_seen() -> None:
    """An input, a constant, a value between nodes, the type of a cast, and an attribute."""

    def model(*nodes: onnx.NodeProto, constant: int = TensorProto.FLOAT) -> onnx.ModelProto:
        graph = helper.make_graph(
            [*nodes, helper.make_node("Relu", ["x"], ["y"])],
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ())],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, ())],
            initializer=[helper.make_tensor("c", constant, (), [1])],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 12)])

    check_dtypes(model(), SMALL)
    tensor = helper.make_tensor("", TensorProto.INT64, (), [1])
    for bad, part in (
        (model(constant=TensorProto.DOUBLE), "constant 'c' is double"),
        (model(helper.make_node("Cast", ["x"], ["z"], to=TensorProto.INT64)), "'z' is int64"),
        (model(helper.make_node("Constant", [], ["z"], name="n", value=tensor)), "is int64"),
        (model(helper.make_node("Shape", ["x"], ["z"])), "value 'z' is int64"),
    ):
        with pytest.raises(ExportError) as caught:
            check_dtypes(bad, SMALL)
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("given", "shape"),
    [((), (3, 2)), ((1, 4), (3, 4)), ((4,), (2, 3, 4)), ((), (1, 1)), ((2, 1), (2, 0))],
)
@pytest.mark.parametrize("dtypes", [SMALL, frozenset(DType)], ids=["32 bits", "all"])
def test_broadcasts_without_int64(
    given: tuple[int, ...], shape: tuple[int, ...], dtypes: frozenset[DType]
) -> None:
    builder = Builder("expand")
    x = builder.input("x", TensorType(DType.F32, given), Role.STATE)
    builder.output("y", builder.emit(Op.BROADCAST_TO, x, shape=shape))
    model = to_model(builder.build(), opset=12, dtypes=dtypes)
    value = np.random.default_rng(0).normal(size=given).astype(np.float32)
    (found,) = open_session(model).raw.run(None, {"x": value})
    assert np.array_equal(found, np.broadcast_to(value, shape))


@pytest.mark.parametrize(("given", "shape"), [((3, 1), (3,)), ((3,), (1, 3, 1)), ((1, 2), (2, 1))])
def test_unit_axes_without_int64(given: tuple[int, ...], shape: tuple[int, ...]) -> None:
    builder = Builder("reshape")
    x = builder.input("x", TensorType(DType.F32, given), Role.STATE)
    builder.output("y", builder.emit(Op.RESHAPE, x, shape=shape))
    model = to_model(builder.build(), opset=12, dtypes=SMALL)
    value = np.arange(3, dtype=np.float32)[: np.prod(given)].reshape(given)
    (found,) = open_session(model).raw.run(None, {"x": value})
    assert np.array_equal(found, value.reshape(shape))
