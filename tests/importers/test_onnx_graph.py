"""ONNX models read back as graphs: our own, foreign ones, and what is refused."""

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import sympy as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import closedform as cf
from closedform.compiler import compile_schedule, compile_step
from closedform.errors import ExportError, VerificationError
from closedform.exporters.onnx_model import to_model
from closedform.importers.onnx_graph import read_model
from closedform.importers.onnx_ops import ONNX_ROWS
from closedform.ir import Builder, DType, Graph, Op, Role, TensorType, evaluate, print_graph
from closedform.options import GraphOptions, ModelSpec
from closedform.verify.terms.from_graph import terms_of_graph
from tests.support.graphs import assert_same, graphs, inputs_of
from tests.support.sampling import examples
from tests.test_library import OPTIMIZERS, SCHEDULES

OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"step_shape": ("n",)},
    {"dtype": "f32", "scalar_dtype": "f32", "step_dtype": "i32"},
)


def assert_read_back(graph: Graph) -> None:
    model = to_model(graph)
    assert {node.op_type for node in model.graph.node} <= set(ONNX_ROWS)
    assert terms_of_graph(read_model(model)) == terms_of_graph(graph)


@pytest.mark.sample(every=2)
@pytest.mark.parametrize("name", SCHEDULES)
def test_schedule_is_read_back_as_it_was(name: str) -> None:
    for options in OPTIONS:
        assert_read_back(compile_schedule(SCHEDULES[name](), GraphOptions(**options)))


def arctangent_model() -> onnx.ModelProto:
    """An arctangent in float64: that of float32 and a step of Newton's."""
    builder = Builder("angle")
    x = builder.input("x", TensorType(DType.F64, ()), Role.HYPER)
    builder.output("y", builder.emit(Op.ATAN, x))
    return to_model(builder.build())


def test_a_step_from_an_arctangent_of_float32_is_one_of_float64() -> None:
    graph = read_model(arctangent_model())
    assert [node.op for node in graph.nodes if node.op is not Op.INPUT] == [Op.ATAN]


@pytest.mark.parametrize("place", [0, 1, 3, *range(5, 13)])  # not the casts
def test_another_step_is_read_as_it_is(place: int) -> None:
    """One node has another operator."""
    others = {"Max": "Min", "Min": "Max", "Atan": "Sin", "Sin": "Cos", "Cos": "Sin", "Mul": "Add"}
    others |= {"Sub": "Add", "Add": "Sub", "Div": "Mul"}
    model = arctangent_model()
    node = model.graph.node[place]
    node.op_type = others[node.op_type]
    ops = [node.op for node in read_model(model).nodes]
    assert Op.SIN in ops or Op.COS in ops


@pytest.mark.parametrize("sign", [-1, 1])
def test_the_bound_of_an_arctangent_is_part_of_it(sign: int) -> None:
    model = arctangent_model()
    for tensor in model.graph.initializer:
        bound = numpy_helper.to_array(tensor)
        tensor.CopyFrom(numpy_helper.from_array(bound / (1 + (bound * sign > 0)), tensor.name))
    assert Op.SIN in [node.op for node in read_model(model).nodes]


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_rule_is_read_back_as_it_was(name: str) -> None:
    rule = OPTIMIZERS[name]()
    vectors = {"b": (3,)} if rule.requires == sp.true else {}
    assert_read_back(compile_step(ModelSpec(rule, {"w": (3, 4), **vectors})))


def run(model: onnx.ModelProto, inputs: dict[str, Any]) -> list[Any]:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    results: list[Any] = session.run(None, inputs)
    return results


Kind = tuple[int, list[Any]]
"""The element type and the shape of an input."""


def model_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: dict[str, Kind],
    constants: dict[str, Any] | None = None,
    output: int = TensorProto.DOUBLE,
    name: str = "foreign",
) -> onnx.ModelProto:
    body = helper.make_graph(
        list(nodes),
        name,
        [helper.make_tensor_value_info(key, *kind) for key, kind in inputs.items()],
        [helper.make_tensor_value_info("y", output, None)],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in (constants or {}).items()],
    )
    return helper.make_model(body, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


NUMBERS = (-7.5, -3.0, -0.75, 0.0, 0.5, 2.0, 3.25, 9.0)
F64: Kind = (TensorProto.DOUBLE, [])
I64: Kind = (TensorProto.INT64, [])
FOREIGN: dict[str, tuple[list[onnx.NodeProto], dict[str, Kind], int]] = {
    "integer Div truncates": (
        [helper.make_node("Div", ["a", "b"], ["y"])],
        {"a": I64, "b": I64},
        TensorProto.INT64,
    ),
    "Mod of C": (
        [helper.make_node("Mod", ["a", "b"], ["y"], fmod=1)],
        {"a": F64, "b": F64},
        TensorProto.DOUBLE,
    ),
    "Sign": ([helper.make_node("Sign", ["a"], ["y"])], {"a": F64}, TensorProto.DOUBLE),
    "Greater": (
        [
            helper.make_node("Greater", ["a", "b"], ["c"]),
            helper.make_node("GreaterOrEqual", ["b", "a"], ["d"]),
            helper.make_node("Or", ["c", "d"], ["e"]),
            helper.make_node("Where", ["e", "a", "b"], ["y"]),
        ],
        {"a": F64, "b": F64},
        TensorProto.DOUBLE,
    ),
    "Max of three": (
        [
            helper.make_node("Neg", ["a"], ["c"]),
            helper.make_node("Max", ["a", "b", "c"], ["y"]),
        ],
        {"a": F64, "b": F64},
        TensorProto.DOUBLE,
    ),
    "Constant": (
        [
            helper.make_node(
                "Constant", [], ["k"], value=numpy_helper.from_array(np.array(2.5), "k")
            ),
            helper.make_node("Mul", ["a", "k"], ["y"]),
        ],
        {"a": F64},
        TensorProto.DOUBLE,
    ),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_foreign_operator_means_what_onnxruntime_computes(name: str) -> None:
    nodes, inputs, output = FOREIGN[name]
    model = model_of(nodes, inputs, output=output)
    graph = read_model(model)
    is_integer = output == TensorProto.INT64
    for a in (-9, -4, -1, 0, 3, 8) if is_integer else NUMBERS:
        for b in (-4, -3, 1, 5) if is_integer else (-3.0, -0.5, 2.0):
            kind = np.int64 if is_integer else np.float64
            values = {"a": kind(a), "b": kind(b)}
            given_values = {key: np.asarray(values[key]) for key in inputs}
            assert evaluate(graph, given_values)["y"] == run(model, given_values)[0], (a, b)


def test_random_graph_is_read_back_with_its_meaning() -> None:
    """Bit for bit in the evaluator, on drawn inputs."""
    counts: Counter[str] = Counter()

    @settings(max_examples=examples(60), suppress_health_check=[HealthCheck.too_slow])
    @given(st.data())
    def check(data: st.DataObject) -> None:
        graph = data.draw(graphs())
        inputs = data.draw(inputs_of(graph))
        try:
            model = to_model(graph)
        except ExportError as error:
            assert "has a size of 0" in str(error)  # noqa: PT017 - most draws are exported
            counts["refused"] += 1
            return
        counts["read"] += 1
        again = read_model(model)
        assert_same(evaluate(graph, inputs), evaluate(again, inputs), print_graph(graph))

    check()
    # A reshape with a size of 0 next to a named one is rare among the draws.
    assert counts["read"] > 4 * counts["refused"], counts


# --- schedules out of files ------------------------------------------------------------------


def test_from_onnx_gives_the_schedule_back(tmp_path: Path) -> None:
    lr = cf.schedules.linear(0, 3e-4, 20).then(cf.schedules.cosine(3e-4, 3e-5, 80))
    path = tmp_path / "lr.onnx"
    cf.to_onnx(lr, path)
    found = cf.from_onnx(path)
    assert found.name == "sequential"
    assert found.expr.free_symbols == {cf.t}
    for step in (0, 7, 19, 20, 60, 99, 100, 10**6):
        assert abs(sp.N(found.exact(step) - lr.exact(step), 40)) < sp.Rational(1, 10**60)


def test_from_onnx_does_not_read_the_metadata(tmp_path: Path) -> None:
    path = tmp_path / "lr.onnx"
    model = cf.to_onnx(cf.schedules.linear(0, 1, 8), path)
    assert isinstance(model, onnx.ModelProto)
    helper.set_model_props(
        model, {"closedform.expression": "Integer(7)", "closedform.hyperparameters": "{oops"}
    )
    assert cf.from_onnx(model).exact(4) == sp.Rational(1, 2)


def test_from_onnx_keeps_defaults_as_values(tmp_path: Path) -> None:
    path = tmp_path / "lr.onnx"
    cf.to_onnx(cf.schedules.linear(0, 3e-4, 20), path, inputs=["end"])
    found = cf.from_onnx(path)
    assert found.hyperparameters == {"end": sp.Rational(3, 10**4)}
    assert found.bind(end=2).exact(5) == sp.Rational(1, 2)


def test_from_onnx_takes_stored_numbers_on_request(tmp_path: Path) -> None:
    path = tmp_path / "lr.onnx"
    cf.to_onnx(cf.schedules.constant(0.1), path)
    assert cf.from_onnx(path).exact(3) == sp.Rational(1, 10)
    assert cf.from_onnx(path, stored=True).exact(3) == sp.Rational(0.1)


# --- what is refused -------------------------------------------------------------------------

STEP: dict[str, Kind] = {"step": (TensorProto.INT64, [])}


def unknown_operator(_: Path) -> Any:
    return model_of([helper.make_node("Erf", ["step"], ["y"], name="n7")], STEP)


def foreign_domain(_: Path) -> Any:
    node = helper.make_node("Abs", ["step"], ["y"], name="size", domain="com.microsoft")
    return model_of([node], STEP, output=TensorProto.INT64)


def unknown_attribute(_: Path) -> Any:
    node = helper.make_node("Cos", ["x"], ["y"], name="wave", turns=3)
    return model_of([node], {"x": (TensorProto.DOUBLE, [])})


def unconnected(_: Path) -> Any:
    return model_of([helper.make_node("Add", ["step", "ghost"], ["y"], name="sum")], STEP)


def other_axis(_: Path) -> Any:
    node = helper.make_node("Gather", ["table", "step"], ["y"], name="pick", axis=1)
    return model_of([node], STEP, {"table": np.ones((2, 3))})


def foreign_type(_: Path) -> Any:
    node = helper.make_node("Identity", ["word"], ["y"])
    return model_of([node], {"word": (TensorProto.STRING, [])}, output=TensorProto.STRING)


def no_output(path: Path) -> Any:
    (path / "empty.onnx").write_bytes(b"")
    return path / "empty.onnx"


def no_model(path: Path) -> Any:
    (path / "text.onnx").write_bytes(b"not a model at all")
    return path / "text.onnx"


def no_file(path: Path) -> Any:
    return path / "absent.onnx"


def no_clock(_: Path) -> Any:
    node = helper.make_node("Exp", ["temperature"], ["y"])
    return model_of([node], {"temperature": (TensorProto.DOUBLE, [])}, name="heat")


def two_outputs(path: Path) -> Any:
    rule = cf.optimizers.sgd(0.1)
    models = cf.to_onnx(rule, path / "rule", params={"w": (2,)})
    assert isinstance(models, dict)
    return models["step"]


def tensor_hyperparameter(_: Path) -> Any:
    cast = helper.make_node("Cast", ["step"], ["s"], to=TensorProto.DOUBLE)
    node = helper.make_node("Mul", ["s", "peaks"], ["y"])
    return model_of([cast, node], {**STEP, "peaks": (TensorProto.DOUBLE, [3])}, name="many")


REFUSED: list[tuple[Callable[[Path], Any], str]] = [
    (unknown_operator, "the operator 'Erf' is not supported (node 'n7', operator Erf): "),
    (
        foreign_domain,
        "the operator 'Abs' of the domain 'com.microsoft' is not supported (node 'size', "
        "operator Abs): did you mean 'Abs'?",
    ),
    (
        unknown_attribute,
        "its attribute 'turns' is not supported (node 'wave', operator Cos)",
    ),
    (
        unconnected,
        "its operand 'ghost' is not computed by any node before it (node 'sum', operator Add)",
    ),
    (
        other_axis,
        "it gathers along an axis of f64[2,3], not of a vector (node 'pick', operator Gather)",
    ),
    (foreign_type, "the input 'word' has a type that is not supported: TensorProto.STRING"),
    (no_output, "it is not an ONNX model: it has no output (file "),
    (no_model, "it is not an ONNX model (file "),
    (no_file, "cannot read it: No such file or directory (file "),
    (
        no_clock,
        "no input is the clock; the inputs are temperature (graph 'heat'): a schedule maps "
        "an integer step, and scalar hyperparameters, to one value",
    ),
    (
        two_outputs,
        "expected one output, got next.step, next.param.w (graph 'sgd'): a schedule maps "
        "an integer step, and scalar hyperparameters, to one value",
    ),
    (
        tensor_hyperparameter,
        "the input 'peaks' of type f64[3] is not a hyperparameter (graph 'many'): a schedule maps "
        "an integer step, and scalar hyperparameters, to one value",
    ),
]


@pytest.mark.parametrize(("make", "message"), REFUSED, ids=lambda x: getattr(x, "__name__", ""))
def test_refused(make: Callable[[Path], Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(VerificationError) as caught:
        cf.from_onnx(make(tmp_path))
    assert str(caught.value).startswith(message)
