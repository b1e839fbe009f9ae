"""The 35 configs of real training runs: loaded, exported, run in onnxruntime, and exact.

Bars: float64 values within 2 ulp of the scale of the schedule (its largest value), float32 values
correctly rounded at 99.99 % of the steps or more.
"""

from fractions import Fraction
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import onnx
import onnxruntime as ort
import pytest
import yaml

import closedform as cf
from closedform.language import Schedule, t
from closedform.recipes import load_schedules
from tests.reference.records import CONFIGS
from tests.support.exact import evaluate_exactly, mpf

SAMPLES = 10_000
FORBIDDEN = {"If", "Loop", "Scan"}


def test_all_configs_are_here() -> None:
    assert len(CONFIGS) == 35


@pytest.fixture(params=CONFIGS, ids=[path.stem for path in CONFIGS])
def config(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path


def lengths(node: Any) -> list[int]:
    """Every total_iters, warmup_steps and max_steps of a config, in order."""
    if isinstance(node, list):
        return [number for item in node for number in lengths(item)]
    if not isinstance(node, dict):
        return []
    own = [node[key] for key in ("total_iters", "warmup_steps", "max_steps") if key in node]
    return own + [number for value in node.values() for number in lengths(value)]


def steps_of(config: Path) -> Any:
    """All boundary steps and two on either side, and 10,000 steps from 0 to past the end."""
    found = lengths(yaml.safe_load(config.read_text()))
    sums = np.cumsum(found)
    marks = {0, *found, *(int(total) for total in sums)}
    end = max(int(1.05 * max(marks)) + 10, SAMPLES)
    near = {mark + offset for mark in marks for offset in range(-2, 3)}
    even = np.linspace(0, end, SAMPLES).astype(np.int64)
    return np.unique([*even, *(step for step in near if step >= 0)])


def exact_values(schedule: Schedule, steps: Any) -> list[Any]:
    return [mpf(evaluate_exactly(schedule.bound, {t: Fraction(int(step))})) for step in steps]


def rounded_to_float32(value: Any) -> np.float32:
    """The float32 nearest to an exact number, with one rounding."""
    with mpmath.workprec(24):
        return np.float32(float(+value))


def run(model: onnx.ModelProto, steps: Any) -> Any:
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"step": steps})[0]


@pytest.mark.sample(every=4)
def test_schedule_is_exact_in_onnxruntime(config: Path, tmp_path: Path) -> None:
    schedules, _ = load_schedules(config)
    steps = steps_of(config)
    for key, schedule in schedules.items():
        truth = exact_values(schedule, steps)
        scale = float(max(abs(value) for value in truth))
        path = tmp_path / f"{key}.onnx"
        model = cf.to_onnx(schedule, path, step_shape=("n",))
        assert isinstance(model, onnx.ModelProto)
        onnx.checker.check_model(onnx.load(path), full_check=True)
        assert not FORBIDDEN & {node.op_type for node in model.graph.node}
        values = run(model, steps)
        errors = [abs(mpmath.mpf(float(v)) - e) for v, e in zip(values, truth, strict=True)]
        assert float(max(errors)) <= 2 * np.spacing(scale)

        single = cf.to_onnx(schedule, path, step_shape=("n",), dtype="f32")
        assert isinstance(single, onnx.ModelProto)
        wanted = np.array([rounded_to_float32(value) for value in truth])
        wrong = int((run(single, steps) != wanted).sum())
        assert wrong <= len(steps) * 1e-4


@pytest.mark.sample(every=4)
def test_optimizer_steps_in_onnxruntime(config: Path, tmp_path: Path) -> None:
    recipe = cf.load_recipe(config)
    shapes = {"layer.weight": (3, 4), "layer.bias": (4,)}
    models = cf.to_onnx(recipe.optimizer(), tmp_path, params=shapes)
    assert isinstance(models, dict)
    for name, model in models.items():
        onnx.checker.check_model(onnx.load(tmp_path / f"{name}.onnx"), full_check=True)
        assert not FORBIDDEN & {node.op_type for node in model.graph.node}
    rng = np.random.default_rng(0)
    params = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    session = cf.OptimizerSession(recipe.optimizer(), params=params)
    for _ in range(3):
        session.step({k: rng.normal(size=s).astype(np.float32) for k, s in shapes.items()})
    assert session.t == 3
    # The first learning rates of a warmup may be too small to move a float32 weight.
    for name in params:
        assert np.isfinite(session.params[name]).all()
    for by_name in session.states.values():
        for moment in by_name.values():
            assert np.abs(moment).min() > 0
