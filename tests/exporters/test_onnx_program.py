"""Programs as ONNX models: functions, constants, names, and what is refused."""

from dataclasses import replace

import numpy as np
import onnx
import pytest

from closedform import optimizers
from closedform.compiler import compile_program
from closedform.errors import ExportError
from closedform.exporters.onnx_model import serialize
from closedform.exporters.onnx_program import DOMAIN, to_program_model
from closedform.ir.program import Program
from closedform.options import ModelSpec
from closedform.runtime.onnx_session import open_session


def program(**shapes: tuple[int, ...]) -> Program:
    return compile_program(ModelSpec(optimizers.adamw(weight_decay=0.1), shapes))


def test_numbers_are_inputs_of_a_function_and_axes_are_inside() -> None:
    model = to_program_model(program(a=(2, 3), b=(4,), c=()))
    (function,) = model.functions
    assert {node.op_type for node in function.node}.isdisjoint({"Constant"})
    calls = [node for node in model.graph.node if node.domain == DOMAIN]
    assert [len(call.input) for call in calls] == [len(function.input)] * 3
    constants = {name for call in calls for name in call.input if name.startswith("constant.")}
    assert constants <= {tensor.name for tensor in model.graph.initializer}
    factored = to_program_model(
        compile_program(ModelSpec(optimizers.adafactor(), {"a": (2, 3), "b": (2, 3)}))
    )
    inside = [n for f in factored.functions for n in f.node if n.op_type == "Constant"]
    assert inside
    assert all(len(node.attribute[0].t.dims) == 1 for node in inside)


def test_functions_differ_where_their_nodes_do() -> None:
    shapes = {"a": (2, 3), "b": (2, 3), "c": (5,), "d": (6,), "e": (2, 3, 4)}
    model = to_program_model(compile_program(ModelSpec(optimizers.adafactor(), shapes)))
    names = [node.op_type for node in model.graph.node if node.domain == DOMAIN]
    assert names[0] == names[1]
    # The count that a mean divides by is a number, and so an input.
    assert names[2] == names[3]
    assert len(set(names)) == 3


def test_the_same_program_is_the_same_bytes_in_every_opset() -> None:
    made = program(a=(2, 3), b=(4,))
    for opset in (13, 17, 21):
        model = to_program_model(made, opset=opset, metadata={"b": "2", "a": "1"})
        onnx.checker.check_model(model, full_check=True)
        assert [entry.key for entry in model.metadata_props] == ["a", "b"]
        again = to_program_model(made, opset=opset, metadata={"a": "1", "b": "2"})
        assert serialize(again) == serialize(model)


def test_docs_stand_at_inputs_and_outputs() -> None:
    model = to_program_model(program(a=(2,)), docs={"step": "the clock", "next.param.a": "after"})
    docs = {value.name: value.doc_string for value in (*model.graph.input, *model.graph.output)}
    assert docs["step"] == "the clock"
    assert docs["next.param.a"] == "after"


def test_an_empty_tensor_runs() -> None:
    session = open_session(to_program_model(program(a=(0, 2), b=(1,))))
    feed = {
        name: np.zeros([size or 0 for size in port.shape], port.dtype)
        for name, port in session.inputs.items()
    }
    results = dict(zip(session.outputs, session.raw.run(None, feed), strict=True))
    assert results["next.param.a"].shape == (0, 2)
    assert results["next.step"] == 1


def test_bad_programs_are_refused() -> None:
    made = program(a=(2,), b=(2,))
    doubled = replace(made, calls=(made.calls[0], *made.calls))
    with pytest.raises(ExportError) as caught:
        to_program_model(doubled)
    assert str(caught.value) == (
        "the name 'next.param.a' is used by two inputs or outputs (graph 'adamw'): give the "
        "parameters and states distinct names"
    )
    with pytest.raises(ExportError, match=r"opset must be in 7\.\.23, got 99"):
        to_program_model(made, opset=99)
