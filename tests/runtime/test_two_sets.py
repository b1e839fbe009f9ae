"""Two sets of arrays: what a step reads, writes, keeps and leaves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

from closedform.errors import SessionError
from closedform.runtime.onnx_session import open_session
from closedform.runtime.two_sets import TwoSets


def model() -> ModelProto:
    """Next x is x + table[place] + the sum of given; the table stays; told is the next x."""
    nodes = [
        helper.make_node("Gather", ["table", "place"], ["found"]),
        helper.make_node("ReduceSum", ["given"], ["total"], keepdims=0),
        helper.make_node("Add", ["x", "found"], ["moved"]),
        helper.make_node("Add", ["moved", "total"], ["next.x"]),
        helper.make_node("Identity", ["next.x"], ["told"]),
        helper.make_node("Add", ["step", "one"], ["next.step"]),
    ]
    integer, real = TensorProto.INT64, TensorProto.FLOAT
    inputs: dict[str, Any] = {"step": (integer, []), "table": (real, [2]), "place": (integer, [])}
    inputs |= {"x": (real, []), "given": (real, ["n"])}
    outputs: dict[str, Any] = {"next.step": (integer, []), "next.x": (real, []), "told": (real, [])}
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


def sets(told: np.ndarray) -> TwoSets:
    session = open_session(model(), threads=1, is_optimized=False)
    carried = [session.inputs[name] for name in ("step", "x", "table")]
    made = TwoSets(session, carried, "model 'm'", {"told": told})
    made.write({"x": np.array(1, np.float32), "table": np.array([4, 8], np.float32)})
    return made


def given(place: int, *numbers: float) -> dict[str, np.ndarray]:
    return {"place": np.array(place), "given": np.array(numbers, np.float32)}


def test_a_step_reads_one_set_and_writes_the_other() -> None:
    told = np.zeros((), np.float32)
    both = sets(told)
    before = both.views[both.current]
    both.run(given(0, 1, 2))
    assert values(both.arrays["x"], told, before["x"], both.arrays["step"]) == [8, 8, 1, 1]
    both.run(given(1, 1, 2, 3))
    assert values(both.arrays["x"], told, both.arrays["step"]) == [22, 22, 2]
    assert both.views[both.current]["x"] == 22
    with pytest.raises(ValueError, match="read-only"):
        both.views[both.current]["x"][...] = 0


def test_each_step_reads_what_it_is_given() -> None:
    both = sets(np.zeros((), np.float32))
    one, longer, other = given(0, 1), given(0, 1, 1), given(1, 3)
    seen = []
    for arrays in (one, one, longer, longer, other, other):
        before = float(both.arrays["x"])
        both.run(arrays)
        seen.append(float(both.arrays["x"]) - before)
    assert seen == [5, 5, 6, 6, 11, 11]
    one["given"][...] = 2
    both.run(one)
    assert float(both.arrays["x"]) == 45 + 6


def test_what_no_step_changes_is_held_once() -> None:
    both = sets(np.zeros((), np.float32))
    first = both.arrays["table"]
    both.run(given(0, 0))
    assert both.arrays["table"] is first
    assert both.arrays["x"].ctypes.data % 64 == 0


def test_what_is_kept_stays_while_the_clock_goes_on() -> None:
    both = sets(np.zeros((), np.float32))
    both.run(given(0, 1), kept=["x"])
    assert values(both.arrays["x"], both.arrays["step"]) == [1, 1]


def test_a_failed_step_changes_nothing_and_the_next_one_works() -> None:
    both = sets(np.zeros((), np.float32))
    both.run(given(0, 1))
    message = r"^onnxruntime failed in step 1: (.|\n)*\(model 'm'\): the parameters and states"
    with pytest.raises(SessionError, match=message):
        both.run(given(7, 1))
    assert values(both.arrays["x"], both.arrays["step"]) == [6, 1]
    both.run(given(1, 1))
    assert values(both.arrays["x"], both.arrays["step"]) == [15, 2]


def test_it_says_what_memory_the_next_step_writes() -> None:
    both = sets(np.zeros((), np.float32))
    read, written = both.views[both.current]["x"], both.views[1 - both.current]["x"]
    assert (both.holds(read), both.holds(written), both.holds(np.zeros(3))) == (False, True, False)
