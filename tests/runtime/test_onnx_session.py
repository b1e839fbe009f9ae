"""Loading models: ports, sources, and errors."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

from closedform.errors import SessionError
from closedform.exporters.onnx_model import to_model
from closedform.ir.graph import Builder, Graph, Role, scalar
from closedform.ir.ops import Op
from closedform.ir.types import DType, TensorType
from closedform.runtime.onnx_session import SessionBinding, open_session
from closedform.runtime.schedule import ScheduleSession
from tests.exporters.graphs import cosine_graph


def identity_graph(name: str, dtype: DType, rank: int) -> Graph:
    """One input and one output of the same type."""
    b = Builder("identity")
    b.output("value", b.input(name, TensorType(dtype, ("n",) * rank), Role.PARAM))
    return b.build()


def identity_of_text(name: str) -> ModelProto:
    """One input and one output of type string."""
    ports = [
        helper.make_tensor_value_info(label, TensorProto.STRING, []) for label in (name, "value")
    ]
    node = helper.make_node("Identity", [name], ["value"])
    graph = helper.make_graph([node], "identity", ports[:1], ports[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def two_outputs() -> Graph:
    b = Builder("pair")
    step = b.input("step", scalar(DType.I64), Role.STEP)
    b.output("first", b.emit(Op.NEG, step))
    b.output("second", step)
    return b.build()


def test_ports_name_dtypes_and_shapes() -> None:
    graph = cosine_graph(("n",), has_peak_input=True)
    session = open_session(to_model(graph, defaults={"peak": 0.5}), threads=1, is_optimized=False)
    assert session.name == "cosine"
    assert {name: str(port) for name, port in session.inputs.items()} == {"step": "int64[n]"}
    assert {name: str(port) for name, port in session.optional.items()} == {"peak": "float64[]"}
    assert {name: str(port) for name, port in session.outputs.items()} == {"value": "float64[n]"}


INVALID = (
    (
        lambda: open_session(cosine_graph(), threads=0),
        "threads must be at least 1, got 0 (graph 'cosine')",
    ),
    (
        lambda: open_session(7),  # type: ignore[arg-type]
        "expected a path, bytes, a ModelProto or a Graph, got int",
    ),
    (
        lambda: open_session(identity_of_text("x")),
        "'x' has type tensor(string), which has no NumPy dtype (model 'identity'): "
        "cast it to f32 inside the graph",
    ),
    (
        lambda: ScheduleSession(identity_graph("time", DType.I64, 0)),
        "a schedule model needs an input 'step', got time (model 'identity')",
    ),
    (
        lambda: ScheduleSession(identity_graph("step", DType.F32, 0)),
        "input 'step' must be an integer of rank 0 or a vector of dynamic size, got float32[] "
        "(model 'identity')",
    ),
    (
        lambda: ScheduleSession(two_outputs()),
        "a schedule model needs one output, got first, second (model 'pair')",
    ),
)


@pytest.mark.parametrize(
    ("action", "message"), INVALID, ids=[message[:40] for _, message in INVALID]
)
def test_invalid(action: Callable[[], object], message: str) -> None:
    with pytest.raises(SessionError) as caught:
        action()
    assert str(caught.value) == message


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "lr.onnx"
    with pytest.raises(SessionError) as caught:
        open_session(path)
    assert str(caught.value) == (
        f"cannot read the model: No such file or directory (file {str(path)!r})"
    )


def test_a_file_that_is_not_a_model_is_named(tmp_path: Path) -> None:
    path = tmp_path / "lr.onnx"
    path.write_text("peak: 0.1")
    with pytest.raises(SessionError, match=r"^it is not an ONNX model \(file '.*lr\.onnx'\): "):
        open_session(path)


def test_a_missing_provider_is_named() -> None:
    with pytest.raises(SessionError) as caught:
        open_session(cosine_graph(), providers=["AbacusExecutionProvider"])
    assert str(caught.value).startswith(
        "execution provider 'AbacusExecutionProvider' is not available (graph 'cosine'): "
        "available are "
    )


def test_allocated_outputs_outlive_the_next_run() -> None:
    array = np.zeros(3, np.float32)
    session = open_session(to_model(identity_graph("x", DType.F32, 1)))
    binding = SessionBinding(session, {"x": array}, {}, ["value"])
    values = []
    for number in range(3):
        array[:] = number
        binding.run({})
        values.append(binding.take_allocated()["value"])
    assert [value.numpy().tolist() for value in values] == [[n] * 3 for n in range(3)]
