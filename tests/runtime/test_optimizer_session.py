"""Optimizer steps in onnxruntime: values, buffers, failures, state dicts, files, errors."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from closedform.errors import SessionError
from closedform.ir.graph import Array
from closedform.ir.types import DType, Shape
from closedform.runtime import OptimizerSession
from tests.exporters.graphs import momentum_init, momentum_step
from tests.runtime.sessions import AVERAGED, ONES, SHAPES, draw, momentum, phased, snapshot
from tests.support.engines import run_evaluator, steps_apart


@pytest.mark.parametrize("dtype", [DType.F32, DType.F64])
def test_steps_agree_with_the_evaluator(dtype: DType) -> None:
    session = momentum(dtype=dtype)
    graph = momentum_step(SHAPES, dtype)
    carried = run_evaluator(momentum_init(SHAPES, dtype), {})
    carried |= {f"param.{name}": array for name, array in draw(40, dtype).items()}
    for number in range(5):
        grads = draw(50 + number, dtype)
        assert session.t == number
        session.step(grads)
        inputs = {**carried, **{f"grad.{name}": array for name, array in grads.items()}}
        after = run_evaluator(graph, inputs)
        carried = {name.removeprefix("next."): array for name, array in after.items()}
        for name in SHAPES:
            # The state of every step goes into the next: rounding differences add up.
            assert steps_apart(session.params[name], carried[f"param.{name}"], unit=1.0) <= 8
            norm = carried[f"state.{name}.norm"]
            assert steps_apart(session.states["norm"][name], norm) <= 16
    assert session.rule_name == "momentum"
    assert session.states["norm"]["w"].shape == ()


def test_params_are_copied_at_the_start() -> None:
    given = draw(41)
    models = momentum_init(SHAPES), momentum_step(SHAPES)
    session = OptimizerSession.from_models(*models, given, threads=1)
    session.step(draw(42))
    assert all(np.array_equal(given[name], array) for name, array in draw(41).items())


def test_a_step_writes_the_other_buffers_and_copies_nothing() -> None:
    session = momentum()
    places = []
    for number in range(6):
        places.append(session.params["w"].ctypes.data)
        session.step(draw(number))
    assert len(set(places)) == 2
    assert places == places[:2] * 3
    assert all(place % 64 == 0 for place in places)


def test_views_are_read_only_and_hold_until_the_next_step() -> None:
    session = momentum()
    before = session.params["w"]
    value = before.copy()
    session.step(draw(43))
    assert np.array_equal(before, value)
    assert not np.array_equal(session.params["w"], value)
    for view in (session.params["w"], session.states["velocity"]["w"]):
        with pytest.raises(ValueError, match="read-only"):
            view[...] = 0
    with pytest.raises(TypeError):
        session.params["w"] = value  # type: ignore[index]


def test_gradients_may_move_between_steps_or_stay_and_change() -> None:
    one, other = momentum(), momentum()
    buffers = {name: array.copy() for name, array in draw(0).items()}
    for number in range(6):
        moved = draw(number)
        for name, array in moved.items():
            buffers[name][...] = array
        one.step(buffers)
        other.step(moved)
    assert snapshot(one) == snapshot(other)


def test_a_gradient_may_be_a_view_of_current_parameters_but_not_of_old_ones() -> None:
    session = momentum()
    session.step(session.params)
    stale = session.params
    session.step(draw(44))
    before = snapshot(session)
    with pytest.raises(SessionError) as caught:
        session.step(stale)
    assert str(caught.value) == (
        "the gradient of 'w' overlaps memory that this step writes (rule 'momentum'): "
        "a view of the parameters from before the last step is stale; copy it"
    )
    assert snapshot(session) == before


def test_hyperparameters_are_keyword_arguments() -> None:
    session = phased()
    session.step(ONES, lr=0.5, period=2)
    session.step(ONES, lr=0.25, period=2)
    session.step(ONES, lr=1, period=3)
    assert session.params["w"].tolist() == [-1.75, -1.75]
    assert session.states["phase"]["w"] == 2


def test_a_default_holds_again_when_an_argument_is_left_out() -> None:
    session = phased(has_default=True)
    for arguments in ({}, {"lr": 2.0}, {"lr": 4.0}, {}, {}):
        session.step(ONES, period=2, **arguments)
    assert session.params["w"].tolist() == [-7.5, -7.5]


def test_a_failed_step_leaves_everything_as_it_was() -> None:
    session = phased()
    session.step(ONES, lr=0.5, period=2)
    before = snapshot(session)
    with pytest.raises(SessionError) as caught:
        session.step(ONES, lr=0.5, period=0)
    assert str(caught.value).startswith("onnxruntime failed in step 1: ")
    assert str(caught.value).endswith("(rule 'phased'): the parameters and states are unchanged")
    assert snapshot(session) == before
    session.step(ONES, lr=0.5, period=2)
    assert session.t == 2
    assert session.params["w"].tolist() == [-1.0, -1.0]


def test_a_state_dict_resumes_bit_for_bit() -> None:
    straight, first = momentum(), momentum()
    for number in range(3):
        straight.step(draw(number))
        first.step(draw(number))
    saved = first.state_dict()
    resumed = momentum(seed=99)
    resumed.step(draw(7))
    resumed.load_state_dict(saved)
    assert resumed.t == 3
    for number in range(3, 6):
        straight.step(draw(number))
        resumed.step(draw(number))
    assert snapshot(straight) == snapshot(resumed)
    assert saved["step"] == 3
    assert saved["rule"] == "momentum"
    assert list(saved["states"]) == ["velocity", "norm"]


def test_a_state_dict_is_a_copy() -> None:
    session = momentum()
    saved = session.state_dict()
    before = snapshot(session)
    saved["params"]["w"][...] = 7
    saved["states"]["norm"]["w"][...] = 7
    assert snapshot(session) == before


def reference(params: Mapping[str, Array], steps: list[dict[str, Array]]) -> dict[str, Array]:
    """The rule AVERAGED in NumPy."""
    values = {name: array.copy() for name, array in params.items()}
    means = {name: np.zeros_like(array) for name, array in params.items()}
    for number, grads in enumerate(steps):
        for name, value in values.items():
            rate = value.dtype.type(0.1 / np.sqrt(number + 1))
            value -= rate * means[name]
            means[name] = means[name] * value.dtype.type(0.5) + grads[name]
    return values


@pytest.mark.parametrize("dtype", [DType.F32, DType.F64])
def test_a_rule_runs_from_its_expressions_and_from_its_files(dtype: DType, tmp_path: Path) -> None:
    from closedform.api.onnx import to_onnx

    shapes: Mapping[str, Shape] = {"w": (2, 3), "layer.0.bias": (3,)}
    params = draw(60, dtype, shapes)
    grads = [draw(61 + number, dtype, shapes) for number in range(4)]
    sessions = [OptimizerSession(AVERAGED, params, threads=1)]
    to_onnx(AVERAGED, tmp_path / "rule", params=shapes, dtype=dtype)
    sessions.append(OptimizerSession.from_files(tmp_path / "rule", params, threads=1))
    for session in sessions:
        for one in grads:
            session.step(one)
        expected = reference(params, grads)
        for name in shapes:
            # Four steps of two roundings each, in values near 1.
            assert steps_apart(session.params[name], expected[name], unit=1.0) <= 8
            assert np.array_equal(session.states["start"][name], params[name])
    assert snapshot(sessions[0]) == snapshot(sessions[1])
    sessions[0].load_state_dict(sessions[1].state_dict())
