"""Steps that torch.onnx.export writes: eps stays only with ``optimize=False``."""

import importlib
import warnings
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch

import closedform as cf
from closedform.referee.judgement import judge_step

importlib.import_module("onnxscript")


class Adam(torch.nn.Module):
    """A step of Adam, as its paper has it."""

    def forward(self, p: Any, g: Any, m: Any, v: Any, step: Any) -> tuple[Any, ...]:
        t = step + 1
        m, v = 0.9 * m + (1 - 0.9) * g, 0.999 * v + (1 - 0.999) * g * g
        clock = t.to(torch.float32)
        c1, c2 = 1 - 0.9**clock, 1 - 0.999**clock
        return p - 1e-3 / c1 * m / (v.sqrt() / c2.sqrt() + 1e-8), m, v, t


class HostCounted(torch.nn.Module):
    """The step of a rule of closedform whose host counts."""

    def __init__(self, rule: cf.UpdateRule) -> None:
        super().__init__()
        self.step = cf.to_torch(rule, params={"w": (4, 3)})

    def forward(self, p: Any, g: Any, m: Any, v: Any, step: Any) -> tuple[Any, ...]:
        states = {"exp_avg": {"w": m}, "exp_avg_sq": {"w": v}}
        params, states = self.step({"w": p}, {"w": g}, states, step)
        return params["w"], states["exp_avg"]["w"], states["exp_avg_sq"]["w"]


def exported(module: Any, *, optimize: bool) -> Any:
    example = (*(torch.rand(4, 3) for _ in range(4)), torch.tensor(0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter, about itself
        program = torch.onnx.export(
            module.eval(),
            example,
            input_names=[*"pgmv", "step"],
            dynamo=True,
            verbose=False,
            optimize=optimize,
        )
    assert program is not None
    return program.model_proto


@pytest.mark.parametrize("optimize", [True, False])
def test_eps_is_exported_only_without_optimize(optimize: bool) -> None:
    model = exported(Adam(), optimize=optimize)
    judgement = judge_step(model, cf.optimizers.adam(1e-3))
    assert judgement.verdict.proved is not optimize, judgement.verdict
    session = onnxruntime.InferenceSession(model.SerializeToString())
    zeros = {name: np.zeros((4, 3), np.float32) for name in "pgmv"}
    values = session.run(None, {**zeros, "step": np.array(0)})[0]
    assert bool(np.isnan(values).all()) is optimize
    if optimize:
        assert judgement.verdict.refuted
        assert judgement.difference is not None
        assert judgement.difference.engine == "onnxruntime"


@pytest.mark.parametrize("change", [1.0, 0.5])
def test_a_rule_by_way_of_torch_export(change: float) -> None:
    """closedform's own step, written by another exporter: the host counts, as its module says."""
    rule = cf.optimizers.adamw(0.01, weight_decay=0.1)
    model = exported(HostCounted(rule.bind(weight_decay=0.1 * change)), optimize=False)
    outputs = [value.name for value in model.graph.output]
    roles = ["param.w", "state.w.exp_avg", "state.w.exp_avg_sq"]
    ports = {
        "inputs": {"p": roles[0], "g": "grad.w", "m": roles[1], "v": roles[2], "step": "step"},
        "outputs": dict(zip(outputs, roles, strict=True)),
    }
    verdict = judge_step(model, rule, ports=ports).verdict
    assert not (verdict.refuted if change == 1.0 else verdict.proved), verdict
    assert verdict.refuted is (change != 1.0)
