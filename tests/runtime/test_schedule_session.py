"""Schedules in onnxruntime: sources, steps of any shape, hyperparameters, errors."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import sympy as sp

from closedform import schedules
from closedform.errors import SessionError
from closedform.exporters.onnx_model import serialize, to_model, write_model
from closedform.ir.graph import Graph
from closedform.language import Schedule, t
from closedform.runtime import ScheduleSession
from tests.exporters.graphs import cosine_graph, cycle_graph, milestones_graph, momentum_step
from tests.support.engines import run_evaluator

N = ("n",)
STEPS = np.arange(120)


@pytest.mark.parametrize("shape", [(), N], ids=["scalar", "vector"])
@pytest.mark.parametrize("build", [cosine_graph, milestones_graph, cycle_graph])
@pytest.mark.parametrize("is_optimized", [True, False])
def test_values_are_those_of_the_evaluator(
    build: Callable[..., Graph], shape: tuple[str, ...], is_optimized: bool
) -> None:
    session = ScheduleSession(build(shape), threads=1, is_optimized=is_optimized)
    expected = run_evaluator(build(N), {"step": STEPS})["value"]
    np.testing.assert_allclose(session(STEPS), expected, rtol=1e-14, atol=1e-17)
    grid = session(STEPS.reshape(2, 3, 20).astype(np.int16))
    np.testing.assert_allclose(grid, expected.reshape(2, 3, 20), rtol=1e-14, atol=1e-17)
    one = session(37)
    assert isinstance(one, float)
    assert one == pytest.approx(expected[37], rel=1e-14)
    assert session(np.int32(37)) == one
    assert session([37, 37])[1] == one  # type: ignore[index]
    empty = session(np.zeros((3, 0), np.int64))
    assert isinstance(empty, np.ndarray)
    assert empty.shape == (3, 0)
    assert empty.dtype == np.float64


def test_every_source_gives_the_same_session(tmp_path: Path) -> None:
    graph = cosine_graph()
    model = to_model(graph)
    path = write_model(model, tmp_path / "lr.onnx")
    for source in (graph, model, serialize(model), path, str(path)):
        session = ScheduleSession(source)
        assert session(5) == 0.05
        assert session.name == "cosine"


def test_a_schedule_is_compiled_for_vectors() -> None:
    schedule = Schedule(sp.Piecewise((t / 10, t < 5), (sp.Rational(1, 2), True)), name="ramp")
    session = ScheduleSession(schedule, threads=1)
    assert session(3) == 0.3
    np.testing.assert_array_equal(session(np.arange(7)), schedule(np.arange(7)))


def test_hyperparameters_are_keyword_arguments() -> None:
    graph = cosine_graph(N, has_peak_input=True)
    required = ScheduleSession(graph)
    optional = ScheduleSession(to_model(graph, defaults={"peak": 0.1}))
    assert required.hyper_names == optional.hyper_names == ("peak",)
    assert required(5, peak=0.2) == 0.1
    assert optional(5, peak=0.2) == 0.1
    assert optional(5) == 0.05
    assert optional(5, peak=1) == 0.5


PLAIN = ScheduleSession(cosine_graph(N), threads=1)
OPEN = ScheduleSession(cosine_graph(N, has_peak_input=True), threads=1)
COUNT = "pass the number of optimizer steps performed so far, starting at 0"

INVALID = (
    (lambda: PLAIN(-3), f"the step must be in 0..{2**50}, got -3 (schedule 'cosine'): {COUNT}"),
    (
        lambda: PLAIN(np.array([4, 2**63], np.uint64)),
        f"the step must be in 0..{2**50}, got {2**63} (schedule 'cosine'): {COUNT}",
    ),
    (
        lambda: PLAIN(2.0),
        f"the step must be an integer, got float64 (schedule 'cosine'): {COUNT}",
    ),
    (lambda: PLAIN(True), f"the step must be an integer, got bool (schedule 'cosine'): {COUNT}"),
    (
        lambda: PLAIN(10**30),
        f"the step must be in 0..{2**50}, got {10**30} (schedule 'cosine'): {COUNT}",
    ),
    (
        lambda: PLAIN(4, peak=1.0),
        "unknown hyperparameter 'peak' (schedule 'cosine'): there are none",
    ),
    (
        lambda: OPEN(4, peek=1.0),
        "unknown hyperparameter 'peek' (schedule 'cosine'): did you mean 'peak'?",
    ),
    (
        lambda: OPEN(4),
        "hyperparameter 'peak' missing (schedule 'cosine'): give one for each name",
    ),
    (
        lambda: OPEN(4, peak="high"),  # type: ignore[arg-type]
        "hyperparameter 'peak' must be a number (float64[]), got 'high' (schedule 'cosine')",
    ),
    (
        lambda: ScheduleSession(momentum_step({"w": (2,)})),
        "input 'param.w' must have rank 0, got float32[2] (model 'momentum'): "
        "run an optimizer step with OptimizerSession",
    ),
)


@pytest.mark.parametrize(
    ("action", "message"), INVALID, ids=[message[:40] for _, message in INVALID]
)
def test_invalid(action: Callable[[], object], message: str) -> None:
    with pytest.raises(SessionError) as caught:
        action()
    assert str(caught.value) == message


@pytest.mark.parametrize("count", [7, 8, 9, 24, 30])
def test_a_long_vector_is_run_in_tiles(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = np.arange(count)[::-1]
    for schedule in (schedules.cosine(1, 0, 20), schedules.constant(0.1)):
        session = ScheduleSession(schedule)
        whole = np.asarray(session(steps))
        assert whole == pytest.approx([schedule(int(step)) for step in steps], abs=1e-15)
        with monkeypatch.context() as patch:
            patch.setattr("closedform.runtime.schedule.TILE", 8)
            np.testing.assert_array_equal(session(steps), whole)
            if count == 30:
                np.testing.assert_array_equal(session(steps.reshape(5, 6)), whole.reshape(5, 6))


def test_single_steps_have_the_values_of_a_vector() -> None:
    lr = schedules.warm_restarts(0.1, 0.01, 7, multiplier=2)
    session = ScheduleSession(lr)
    steps = [0, 1, 255, 256, 257, 5, 1000, 999, 1254, 1255, 2**50 - 1, 2**50, 3]
    at_once = session(np.array(steps))
    assert [session(step) for step in steps] == list(np.asarray(at_once))
    with pytest.raises(SessionError, match=rf"must be in 0\.\.{2**50}, got {2**50 + 1}"):
        session(2**50 + 1)
    with pytest.raises(SessionError, match="got -1"):
        session(-1)
