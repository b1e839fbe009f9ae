"""Models: checked, deterministic, named, control-free; defaults, opsets, files and errors."""

import os
import stat
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import ModelProto

from closedform.errors import ExportError
from closedform.exporters.onnx_model import serialize, to_model, write_model
from closedform.exporters.onnx_ops import ONNX_OPS, sizes
from closedform.ir.graph import Builder, Graph, Role, scalar
from closedform.ir.ops import OPS, Op
from closedform.ir.types import DType, TensorType
from tests.exporters.graphs import (
    cosine_graph,
    cycle_graph,
    milestones_graph,
    momentum_init,
    momentum_step,
)
from tests.exporters.op_cases import CASES
from tests.support.engines import run_evaluator, run_onnxruntime, steps_apart

STEPS = np.array([0, 9, 10, 29, 30, 59, 60, 99, 100, 10**9])
SHAPES = {"w": (2, 3), "layer.0.bias": (3,)}
GRAPHS = (
    cosine_graph(),
    cosine_graph(("n",)),
    milestones_graph(("n",)),
    cycle_graph(("n",)),
    momentum_step(SHAPES),
    momentum_init(SHAPES),
)


def graph_of_outputs() -> Graph:
    """Outputs that are an input, a constant, and one value under two names."""
    b = Builder("outputs")
    x = b.input("x", TensorType(DType.F32, (2,)), Role.PARAM)
    b.output("same", x)
    b.output("seven", b.const(7.0, DType.F32))
    doubled = b.emit(Op.ADD, x, x)
    b.output("doubled", doubled)
    b.output("again", doubled)
    return b.build()


def run(model: ModelProto, inputs: dict[str, object]) -> list[object]:
    session = ort.InferenceSession(serialize(model), providers=["CPUExecutionProvider"])
    return list(session.run(None, {name: np.asarray(value) for name, value in inputs.items()}))


@pytest.mark.parametrize("opset", range(13, 24))
def test_every_opset_gives_the_values_of_the_evaluator(opset: int) -> None:
    for graph in GRAPHS[1:4]:
        expected = run_evaluator(graph, {"step": STEPS})["value"]
        actual = run_onnxruntime(graph, {"step": STEPS}, opset=opset)["value"]
        np.testing.assert_allclose(actual, expected, rtol=1e-14, atol=1e-17)


@pytest.mark.parametrize("opset", [13, 17, 23])
def test_every_op_exports_at_opset(opset: int) -> None:
    for case in CASES:
        if (case.label != "empty" or opset >= 14) and opset >= ONNX_OPS[case.op].min_opset:
            assert to_model(case.graph, opset=opset).opset_import[0].version == opset


def lowest_case(op: Op) -> Graph:
    cases = [case.graph for case in CASES if case.op is op]
    return next(
        graph
        for graph in cases
        if not any(node.type.dtype in (DType.BF16, DType.F16) for node in graph.nodes)
    )


@pytest.mark.parametrize("op", [op for op in Op if op not in (Op.INPUT, Op.CONST)], ids=str)
def test_min_opset_is_legal_and_one_below_is_refused(op: Op) -> None:
    needed = ONNX_OPS[op].min_opset
    graph = lowest_case(op)
    assert to_model(graph, opset=max(needed, 7)).opset_import[0].version == max(needed, 7)
    if needed > 7:
        with pytest.raises(ExportError, match=f"needs opset {needed}, got {needed - 1}"):
            to_model(graph, opset=needed - 1)


@pytest.mark.parametrize("graph", GRAPHS, ids=lambda graph: f"{graph.name}")
def test_models_hold_standard_nodes_only_and_no_constants(graph: Graph) -> None:
    model = to_model(graph)
    kinds = {node.op_type for node in model.graph.node}
    assert not kinds & {"If", "Loop", "Scan", "Constant"}
    assert all(node.domain == "" for node in model.graph.node)
    assert not any(
        attribute.HasField("g") for node in model.graph.node for attribute in node.attribute
    )
    assert not model.functions
    assert model.ir_version == 10
    assert [value.name for value in model.graph.output] == [o.name for o in graph.outputs]


@pytest.mark.parametrize(
    ("opset", "lowest"), [(7, 4), (9, 4), (12, 7), (13, 7), (17, 8), (20, 9), (21, 10), (23, 11)]
)
def test_ir_version_is_that_of_the_release_with_the_opset(opset: int, lowest: int) -> None:
    builder = Builder("plus")
    step = builder.input("step", TensorType(DType.F32), Role.STEP)
    builder.output("value", builder.emit(Op.ADD, step, builder.const(1.0, DType.F32)))
    assert to_model(builder.build(), opset=opset).ir_version == lowest


def test_node_counts() -> None:
    counts = {graph.name: len(to_model(graph).graph.node) for graph in GRAPHS}
    assert counts == {
        "cosine": 13,
        "milestones": 5,
        "cycle": 8,
        "momentum": 18,
        "momentum_init": 5,
    }


@pytest.mark.parametrize("graph", GRAPHS, ids=lambda graph: f"{graph.name}")
def test_bytes_are_deterministic(graph: Graph) -> None:
    first = to_model(graph, metadata={"b": "2", "a": "1"}, docs={})
    second = to_model(graph, metadata={"a": "1", "b": "2"})
    assert serialize(first) == serialize(second)
    assert serialize(onnx.load_from_string(serialize(first))) == serialize(first)


def test_metadata_is_sorted_and_docs_are_written() -> None:
    model = to_model(
        cosine_graph(("n",)),
        metadata={"closedform.latex": "x", "closedform.clock": "t"},
        docs={"step": "Steps done.", "value": "The rate.", "cosine": "Warmup and cosine."},
    )
    assert [(p.key, p.value) for p in model.metadata_props] == [
        ("closedform.clock", "t"),
        ("closedform.latex", "x"),
        ("closedform.schema", "1"),
    ]
    assert model.doc_string == "Warmup and cosine."
    assert model.graph.input[0].doc_string == "Steps done."
    assert model.graph.output[0].doc_string == "The rate."
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "n"
    assert model.producer_name == "closedform"
    assert model.producer_version


def test_outputs_that_are_inputs_constants_or_twice_named_get_an_identity() -> None:
    model = to_model(graph_of_outputs())
    assert [node.op_type for node in model.graph.node] == [
        "Add",
        "Identity",
        "Identity",
        "Identity",
    ]
    same, seven, doubled, again = run(model, {"x": np.array([1, 2], np.float32)})
    assert np.array_equal(np.asarray(same), [1, 2])
    assert np.asarray(seven) == 7
    assert np.array_equal(np.asarray(doubled), [2, 4])
    assert np.array_equal(np.asarray(again), [2, 4])


def test_the_name_of_an_input_is_not_used_for_a_value() -> None:
    b = Builder("clash")
    x = b.input("add_1", scalar(DType.F32), Role.PARAM)
    y = b.emit(Op.ADD, x, x)
    b.output("y", b.emit(Op.MUL, y, y))
    (result,) = run(to_model(b.build()), {"add_1": np.float32(3)})
    assert result == 36


def test_equal_constants_are_one_initializer() -> None:
    b = Builder("shared")
    x = b.input("x", TensorType(DType.F32, (2, 2)), Role.PARAM)
    for name in ("first", "second"):
        negated = b.emit(Op.NEG, x) if name == "second" else x
        b.output(name, b.emit(Op.REDUCE_SUM, negated, axes=(0,), keepdims=False))
    assert len(to_model(b.build()).graph.initializer) == 1


@pytest.mark.parametrize("divisor", [2.5, -2.5, [2.5, -2.5, 2.5, -2.5, -2.5]])
def test_remainders_of_floats_have_the_sign_of_a_constant_divisor(
    divisor: float | list[float],
) -> None:
    b = Builder("remainders")
    x = b.input("x", TensorType(DType.F64, (5,)), Role.PARAM)
    b.output("y", b.emit(Op.FLOOR_MOD, x, b.const(np.array(divisor), DType.F64)))
    inputs = {"x": np.array([-6.0, -2.5, 0.0, 1.0, 6.0])}
    expected = np.mod(inputs["x"], divisor)
    assert np.array_equal(run_onnxruntime(b.build(), inputs)["y"], expected)
    assert np.array_equal(run_evaluator(b.build(), inputs)["y"], expected)


def test_float_floor_mod_by_a_positive_constant_needs_four_nodes() -> None:
    b = Builder("phase")
    x = b.input("x", scalar(DType.F64), Role.PARAM)
    b.output("y", b.emit(Op.FLOOR_MOD, x, b.const(0.75, DType.F64)))
    graph = b.build()
    assert len(to_model(graph).graph.node) == 4
    for value in (-0.1, 0.8, -3.0, 0.0, np.nan):
        inputs = {"x": np.array(value)}
        apart = steps_apart(run_onnxruntime(graph, inputs)["y"], run_evaluator(graph, inputs)["y"])
        assert apart == 0


@pytest.mark.parametrize("shape", [(4, 3, 1, 1), (5, 1)])
def test_a_number_beside_a_tensor_with_a_last_axis_of_one_has_its_axes(
    shape: tuple[int, ...],
) -> None:
    # onnxruntime takes 70 times as long for a number without axes.
    graph = momentum_step({"w": shape})
    body = onnx.shape_inference.infer_shapes(to_model(graph), strict_mode=True).graph
    ranks = {tensor.name: len(tensor.dims) for tensor in body.initializer}
    for value in (*body.input, *body.value_info, *body.output):
        ranks[value.name] = len(value.type.tensor_type.shape.dim)
    scaled = [node for node in body.node if node.op_type in ("Mul", "Sub", "Add")]
    scaled = [node for node in scaled if ranks[node.output[0]] == len(shape)]
    assert len(scaled) == 5
    for node in scaled:
        assert {ranks[name] for name in node.input} == {len(shape)}, node.op_type
    rng = np.random.default_rng(0)
    feeds = {
        value.attribute("name"): np.asarray(
            rng.standard_normal(sizes(value.type.shape)), value.type.dtype.numpy
        )
        for value in graph.inputs
    }
    found, expected = run_onnxruntime(graph, feeds), run_evaluator(graph, feeds)
    for name in ("next.param.w", "next.state.w.velocity"):
        np.testing.assert_array_equal(found[name], expected[name])


def test_a_default_makes_a_hyper_input_optional() -> None:
    graph = cosine_graph(has_peak_input=True)
    model = to_model(graph, defaults={"peak": 0.1})
    (by_default,) = run(model, {"step": 5})
    (by_hand,) = run(model, {"step": 5, "peak": 0.2})
    assert by_default == 0.05
    assert by_hand == 0.1


def test_reshape_keeps_a_named_size() -> None:
    b = Builder("reshape")
    x = b.input("x", TensorType(DType.F32, ("n", 4)), Role.PARAM)
    b.output("y", b.emit(Op.RESHAPE, x, shape=(2, "n", 2)))
    graph = b.build()
    inputs = {"x": np.arange(12, dtype=np.float32).reshape(3, 4)}
    expected = run_evaluator(graph, inputs)["y"]
    assert np.array_equal(run_onnxruntime(graph, inputs)["y"], expected)
    assert run_onnxruntime(graph, {"x": np.zeros((0, 4), np.float32)})["y"].shape == (2, 0, 2)


def zero_and_named() -> Graph:
    b = Builder("hollow")
    x = b.input("x", TensorType(DType.F32, (0, "n")), Role.PARAM)
    b.output("y", b.emit(Op.RESHAPE, x, shape=("n", 0)))
    return b.build()


def doubled_name() -> Graph:
    b = Builder("doubled")
    b.output("x", b.emit(Op.NEG, b.input("x", scalar(DType.F32), Role.PARAM)))
    return b.build()


def stored_bf16() -> Graph:
    b = Builder("stored")
    x = b.input("x", TensorType(DType.F32, (2,)), Role.PARAM)
    b.output("y", b.emit(Op.CAST, x, to=DType.BF16))
    return b.build()


HYPER = cosine_graph(has_peak_input=True)

INVALID = (
    (
        lambda: to_model(cosine_graph(), opset=24),
        "opset must be in 7..23, got 24 (graph 'cosine'): "
        "the default is 21; onnxruntime 1.17 reads up to 20, later ones 21",
    ),
    (
        lambda: to_model(milestones_graph(), opset=11),
        "le of bool[3] needs opset 12, got 11 (graph 'milestones'): export with opset=12 or later",
    ),
    (
        lambda: to_model(momentum_step(SHAPES), opset=10),
        "reduce_sum of f32[] needs opset 11, got 10 (graph 'momentum'): "
        "export with opset=11 or later",
    ),
    (
        lambda: to_model(stored_bf16(), opset=12),
        "cast of bf16[2] needs opset 13, got 12 (graph 'stored'): export with opset=13 or later",
    ),
    (
        lambda: to_model(HYPER, defaults={"peek": 1.0}),
        "default for unknown name 'peek' (graph 'cosine'): did you mean 'peak'?",
    ),
    (
        lambda: to_model(cosine_graph(), defaults={"step": 3}),
        "default for unknown name 'step' (graph 'cosine'): the graph has none",
    ),
    (
        lambda: to_model(HYPER, defaults={"peak": "high"}),  # type: ignore[dict-item]
        "the default of input 'peak' must be f64[], got 'high' (graph 'cosine')",
    ),
    (
        lambda: to_model(HYPER, docs={"valu": "The rate."}),
        "doc string for unknown name 'valu' (graph 'cosine'): did you mean 'value'?",
    ),
    (
        lambda: to_model(zero_and_named()),
        "reshape to ['n', 0] has a size of 0, which ONNX has from opset 14 on and not together "
        "with a named size; got opset 21 (graph 'hollow'): leave empty tensors out of the graph",
    ),
    (
        lambda: to_model(doubled_name()),
        "the name 'x' is used by two inputs or outputs (graph 'doubled'): "
        "ONNX needs distinct names: call the output 'next.…'",
    ),
)


@pytest.mark.parametrize(("action", "message"), INVALID, ids=[m[:40] for _, m in INVALID])
def test_invalid(action: object, message: str) -> None:
    assert callable(action)
    with pytest.raises(ExportError) as caught:
        action()
    assert str(caught.value) == message


def test_a_broken_graph_is_refused_by_onnx() -> None:
    graph = cosine_graph()
    last = graph.nodes[-1]
    lying = type(last)(last.op, last.operands, last.attributes, TensorType(DType.F32))
    broken = Graph(graph.name, (*graph.nodes[:-1], lying), graph.outputs)
    with pytest.raises(ExportError, match=r"ONNX refuses the model: .*\(graph 'cosine'\)"):
        to_model(broken)


def test_write_model_writes_the_bytes_and_nothing_else(tmp_path: Path) -> None:
    model = to_model(cosine_graph())
    path = write_model(model, tmp_path / "lr.onnx")
    assert path.read_bytes() == serialize(model)
    assert os.listdir(tmp_path) == ["lr.onnx"]
    (tmp_path / "plain").touch()
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE((tmp_path / "plain").stat().st_mode)


def test_a_failed_write_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "lr.onnx"
    path.write_bytes(b"old")

    def refuse(self: Path, target: Path) -> None:
        raise PermissionError(f"no rename to {target.name}")

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(ExportError) as caught:
        write_model(to_model(cosine_graph()), path)
    assert str(caught.value) == (
        f"cannot write the model: no rename to lr.onnx (file {str(path)!r}): "
        "look at the rights and the free space of the folder"
    )
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["lr.onnx"]


def test_write_model_needs_a_folder_and_a_file_name(tmp_path: Path) -> None:
    model = to_model(cosine_graph())
    missing = tmp_path / "runs" / "lr.onnx"
    with pytest.raises(ExportError) as caught:
        write_model(model, missing)
    assert str(caught.value) == (
        f"folder {str(missing.parent)!r} does not exist (file {str(missing)!r}): create it first"
    )
    with pytest.raises(ExportError) as caught:
        write_model(model, tmp_path)
    assert str(caught.value) == (
        f"the path is a folder (file {str(tmp_path)!r}): give the path of a file"
    )


def test_rows_state_an_opset_for_every_op() -> None:
    assert set(ONNX_OPS) == set(OPS)
    # The random words need BitShift and BitwiseXor of opset 18.
    later = {op for op, row in ONNX_OPS.items() if not 1 <= row.min_opset <= 13}
    assert later == {Op.UNIFORM}
