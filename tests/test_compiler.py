"""The way of the data: what it takes, and what it refuses before anything is written."""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import closedform as cf
from closedform import t
from closedform.errors import ClosedFormError, DefinitionError, ExportError

LINE = cf.schedules.linear(0, 1, 4)
RULE = cf.optimizers.sgd(lr=0.1)
WHAT = "the source must be a Schedule or an UpdateRule, got"
MAKE = "from_python reads a function of the step; Schedule(expression) is one of SymPy"


def shape_error(shape: object) -> str:
    return (
        f"the shape of parameter 'w' must be a tuple of integers >= 0, got {shape!r} (rule 'sgd'): "
        'give params={"w": (3, 4), …}, such as array.shape'
    )


def export_shape(shape: Any, path: Path) -> None:
    cf.to_onnx(RULE, path, params={"w": shape})


INVALID: tuple[tuple[Callable[[Any], object], str], ...] = (
    (lambda path: cf.to_onnx(2 * t, path), f"{WHAT} Mul 2*t: {MAKE}"),
    (
        lambda path: cf.to_onnx(LINE, path, dtype="f16"),
        "dtype must be f64 or f32, got 'f16'",
    ),
    (
        lambda path: cf.to_onnx(LINE, path, precision="double"),
        "precision must be single or double-float, got 'double'",
    ),
    (
        lambda path: cf.to_onnx(RULE, path, params={"w": (3,)}, step_shape=("n",)),  # type: ignore[call-overload]
        "step_shape is an option of schedules, got ('n',) for a rule (rule 'sgd'): leave it out",
    ),
    (
        lambda path: cf.to_onnx(RULE, path, params={}),
        "a rule is compiled for parameters, got none (rule 'sgd'): give params={\"w\": (3, 4), …}",
    ),
    (
        lambda path: cf.to_onnx(LINE, path, params={"w": (3,)}),  # type: ignore[call-overload]
        "a schedule has no parameters, got params or groups (schedule 'linear')",
    ),
    (
        lambda path: cf.to_onnx(LINE, path, inline=False),  # type: ignore[call-overload]
        "inline, split and training_info are options of rules, got a schedule "
        "(schedule 'linear'): leave them out",
    ),
    (
        lambda path: cf.to_onnx(LINE, path, opset="21"),  # type: ignore[call-overload]
        "opset must be in 7..23, got '21' (graph 'linear'): "
        "the default is 21; onnxruntime 1.17 reads up to 20, later ones 21",
    ),
    *((partial(export_shape, shape), shape_error(shape)) for shape in (3, (-3,), [3], (2, 3.0))),
    (
        lambda _: cf.to_torch(RULE),  # type: ignore[call-overload]
        "a rule is compiled for parameters, got none (rule 'sgd'): give params={\"w\": (3, 4), …}",
    ),
)


@pytest.mark.parametrize(("action", "message"), INVALID, ids=[m[:40] for _, m in INVALID])
def test_invalid(action: Callable[[Path], object], message: str, tmp_path: Path) -> None:
    with pytest.raises(ExportError) as caught:
        action(tmp_path / "new")
    assert str(caught.value) == message
    assert not list(tmp_path.iterdir())


def test_a_rule_is_not_written_onto_a_file(tmp_path: Path) -> None:
    path = tmp_path / "taken"
    path.write_bytes(b"previous")
    with pytest.raises(ExportError) as caught:
        cf.to_onnx(RULE, path, params={"w": (3,)})
    assert str(caught.value) == (
        f"cannot make the folder: File exists (folder {str(path)!r}): "
        "a rule is written as several files: give the path of a folder"
    )
    assert path.read_bytes() == b"previous"


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (np.array([1, 2.5], dtype=object), "steps must be integers, got object array([1, 2.5], dt"),
        (np.array([1, True], dtype=object), "steps must be integers, got object array([1, True],"),
        ([[1], [2, 3]], "steps must be an integer or an array of one shape, got [[1], [2, 3]] (sc"),
        (np.array([True]), "steps must be integers, got bool array([ True])"),
    ],
)
def test_no_step_is_rounded_to_an_integer(step: Any, message: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        LINE(step)
    assert str(caught.value).startswith(message)


def test_long_integers_of_python_are_steps() -> None:
    values = LINE(np.array([1, 2, sys.maxsize // 2**14], dtype=object))
    assert np.array_equal(values, [0.25, 0.5, 1.0])


def test_an_input_of_a_torch_module_keeps_its_value_as_default() -> None:
    module = cf.to_torch(LINE, inputs=("end",))
    assert module(torch.tensor(2)).item() == 0.5
    assert module(torch.tensor(2), end=3.0).item() == 1.5
    unbound = cf.Schedule(LINE.expr, name="open", start=0, steps=4)
    with pytest.raises(ClosedFormError) as caught:
        cf.to_torch(unbound, inputs=("end",))(torch.tensor(2))
    assert str(caught.value) == "hyper input 'end' is missing (schedule 'open')"


def test_inputs_in_one_string_are_refused() -> None:
    lr = cf.schedules.linear(0, 1, 10)
    with pytest.raises(ExportError) as caught:
        cf.compile(lr, inputs="start_2")
    assert str(caught.value) == (
        "inputs must be a list of names, got str 'start_2': give inputs=('start_2',)"
    )


def test_options_beside_a_compiled_graph_are_refused() -> None:
    graph = cf.compile(LINE, step_shape=("n",))
    with pytest.raises(ExportError) as caught:
        cf.certify(LINE, graph, dtype="f32")
    assert str(caught.value) == (
        "options of the compiler are for a graph that is compiled here, got a graph as well "
        "(schedule 'linear'): leave them out"
    )
