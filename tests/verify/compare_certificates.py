"""Certificates of every step: all configs in onnxruntime, and the ten schedules in double-float.

For `make compare`. No test of `make test`: pytest collects files of this name only when they are
named; a million steps of a schedule take seconds.
"""

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
import yaml

from closedform.compiler import compile_schedule
from closedform.exporters.onnx_model import serialize, to_model
from closedform.exporters.torch_module import to_module
from closedform.ir.graph import Array, Graph
from closedform.options import GraphOptions
from closedform.recipes import load_schedules
from closedform.verify.certificates.certificate import certify
from closedform.verify.terms.limits import LIMITS
from tests.frameworks.cerebras.test_configs import lengths
from tests.reference.records import CONFIGS
from tests.support.study import STUDY, compile_double_float

# The largest bounds that are accepted.
ULP_OF_SCALE, ROUNDED_SHARE, ULP = 2, 0.9999, 0.51


def last_step(config: Path) -> int:
    """A little past everything that the config names."""
    found = lengths(yaml.safe_load(config.read_text()))
    return int(1.05 * max([*found, *np.cumsum(found)])) + 10


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: str(config.stem))
def test_every_step_of_every_config(config: Path) -> None:
    schedules, _ = load_schedules(config)
    for key, schedule in schedules.items():
        double = compile_schedule(schedule, GraphOptions(step_shape=("n",)))
        single = compile_schedule(schedule, GraphOptions(step_shape=("n",), dtype="f32"))
        count = last_step(config) + 1
        parts = [
            range(start, min(start + LIMITS.exhaustive_steps, count))
            for start in range(0, count, LIMITS.exhaustive_steps)
        ]
        first = [certify(schedule, double, part, engine="onnxruntime") for part in parts]
        second = [certify(schedule, single, part, engine="onnxruntime") for part in parts]
        assert all(one.is_exhaustive for one in (*first, *second))
        # The scale is that of the whole schedule, not of a part.
        error = max(one.measured.ulp_of_scale.value * np.spacing(one.scale) for one in first)
        worst = error / np.spacing(max(one.scale for one in first))
        share = sum(one.measured.rounded for one in second) / count
        print(f"\n{key}, {count:,} steps: {worst:.3f} ulp of scale, {100 * share:.4f} % rounded")
        assert worst <= ULP_OF_SCALE, first
        assert share >= ROUNDED_SHARE, second


def in_torch(graph: Graph) -> Any:
    module = to_module(graph)

    def torch_eager(steps: Array) -> Array:
        with torch.no_grad():
            return np.asarray(module(torch.from_numpy(steps)).numpy())

    return torch_eager


def in_onnxruntime(graph: Graph, level: Any) -> Any:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level
    session = onnxruntime.InferenceSession(
        serialize(to_model(graph)), options, providers=["CPUExecutionProvider"]
    )

    def onnxruntime_at_a_level(steps: Array) -> Array:
        return np.asarray(session.run(None, {"step": steps})[0])

    return onnxruntime_at_a_level


@pytest.mark.parametrize("name", STUDY)
def test_a_million_steps_of_the_study_in_double_float(name: str) -> None:
    schedule = STUDY[name]
    graph = compile_double_float(schedule)
    levels = onnxruntime.GraphOptimizationLevel
    engines = (
        in_onnxruntime(graph, levels.ORT_DISABLE_ALL),
        in_onnxruntime(graph, levels.ORT_ENABLE_ALL),
        in_torch(graph),
    )
    found = [certify(schedule, graph, range(10**6 + 1), engine=engine) for engine in engines]
    assert all(one.is_exhaustive for one in found)
    assert all(one.measured == found[0].measured for one in found)
    print(f"\n{found[0]}")
    assert found[0].measured.ulp.value <= ULP
    assert found[0].measured.rounded_share >= ROUNDED_SHARE
