"""Double buffering: which buffer a step reads and writes, and what is unchanged."""

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

from closedform.errors import SessionError
from closedform.runtime.double_buffer import DoubleBuffer
from closedform.runtime.onnx_session import open_session


def model() -> ModelProto:
    """Next x is x + table[place] + the sum of given; the table is constant; extra is the next x."""
    nodes = [
        helper.make_node("Gather", ["table", "place"], ["found"]),
        helper.make_node("ReduceSum", ["given"], ["total"], keepdims=0),
        helper.make_node("Add", ["x", "found"], ["moved"]),
        helper.make_node("Add", ["moved", "total"], ["next.x"]),
        helper.make_node("Identity", ["next.x"], ["extra"]),
        helper.make_node("Add", ["step", "one"], ["next.step"]),
    ]
    integer, real = TensorProto.INT64, TensorProto.FLOAT
    inputs: dict[str, Any] = {"step": (integer, []), "table": (real, [2]), "place": (integer, [])}
    inputs |= {"x": (real, []), "given": (real, ["n"])}
    outputs: dict[str, Any] = {
        "next.step": (integer, []),
        "next.x": (real, []),
        "extra": (real, []),
    }
    graph = helper.make_graph(
        nodes,
        "model",
        [helper.make_tensor_value_info(name, *of) for name, of in inputs.items()],
        [helper.make_tensor_value_info(name, *of) for name, of in outputs.items()],
        initializer=[helper.make_tensor("one", integer, [], [1])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def values(*arrays: Any) -> list[float]:
    return [float(array) for array in arrays]


def make(extra: np.ndarray) -> DoubleBuffer:
    session = open_session(model(), threads=1, is_optimized=False)
    carried = [session.inputs[name] for name in ("step", "x", "table")]
    buffer = DoubleBuffer(session, carried, "model 'm'", {"extra": extra})
    buffer.write({"x": np.array(1, np.float32), "table": np.array([4, 8], np.float32)})
    return buffer


def given(place: int, *numbers: float) -> dict[str, np.ndarray]:
    return {"place": np.array(place), "given": np.array(numbers, np.float32)}


def test_a_step_reads_one_buffer_and_writes_the_other() -> None:
    extra = np.zeros((), np.float32)
    buffer = make(extra)
    before = buffer.views[buffer.current]
    buffer.run(given(0, 1, 2))
    assert values(buffer.arrays["x"], extra, before["x"], buffer.arrays["step"]) == [8, 8, 1, 1]
    buffer.run(given(1, 1, 2, 3))
    assert values(buffer.arrays["x"], extra, buffer.arrays["step"]) == [22, 22, 2]
    assert buffer.views[buffer.current]["x"] == 22
    with pytest.raises(ValueError, match="read-only"):
        buffer.views[buffer.current]["x"][...] = 0


def test_each_step_reads_its_own_feeds() -> None:
    buffer = make(np.zeros((), np.float32))
    one, longer, other = given(0, 1), given(0, 1, 1), given(1, 3)
    seen = []
    for arrays in (one, one, longer, longer, other, other):
        before = float(buffer.arrays["x"])
        buffer.run(arrays)
        seen.append(float(buffer.arrays["x"]) - before)
    assert seen == [5, 5, 6, 6, 11, 11]
    one["given"][...] = 2
    buffer.run(one)
    assert float(buffer.arrays["x"]) == 45 + 6


def test_constant_arrays_are_stored_once() -> None:
    buffer = make(np.zeros((), np.float32))
    first = buffer.arrays["table"]
    buffer.run(given(0, 0))
    assert buffer.arrays["table"] is first
    assert buffer.arrays["x"].ctypes.data % 64 == 0


def test_unchanged_arrays_are_copied_while_the_clock_advances() -> None:
    buffer = make(np.zeros((), np.float32))
    buffer.run(given(0, 1), constant_names=["x"])
    assert values(buffer.arrays["x"], buffer.arrays["step"]) == [1, 1]


def test_a_failed_step_changes_nothing_and_the_next_one_works() -> None:
    buffer = make(np.zeros((), np.float32))
    buffer.run(given(0, 1))
    message = r"^onnxruntime failed in step 1: (.|\n)*\(model 'm'\): the parameters and states"
    with pytest.raises(SessionError, match=message):
        buffer.run(given(7, 1))
    assert values(buffer.arrays["x"], buffer.arrays["step"]) == [6, 1]
    buffer.run(given(1, 1))
    assert values(buffer.arrays["x"], buffer.arrays["step"]) == [15, 2]


def test_overlap_with_the_memory_that_the_next_step_writes() -> None:
    buffer = make(np.zeros((), np.float32))
    read, written = buffer.views[buffer.current]["x"], buffer.views[1 - buffer.current]["x"]
    assert (buffer.overlaps(read), buffer.overlaps(written), buffer.overlaps(np.zeros(3))) == (
        False,
        True,
        False,
    )
