"""Angles of floats, as ``atan2`` of torch has them: quadrants, zeros of both signs, infinities."""

from itertools import product
from pathlib import Path

import numpy as np
import pytest
import sympy as sp
import torch

import closedform as cf
from closedform.compiler import compile_step
from closedform.importers.tensors.comparisons import atan2
from closedform.ir.graph import Array
from closedform.language import GRAD, PARAM, UpdateRule
from closedform.options import GraphOptions, ModelSpec
from tests.support.engines import run_evaluator, run_onnxruntime, run_torch

RUNS = {"evaluator": run_evaluator, "onnxruntime": run_onnxruntime, "torch": run_torch}
KINDS: dict[str, type[np.float32 | np.float64]] = {"f32": np.float32, "f64": np.float64}


def coordinates(kind: str) -> tuple[Array, Array]:
    """Every special number with every other, and pairs of numbers of very different sizes."""
    limits = np.finfo(KINDS[kind])
    sizes = [0.0, float(limits.tiny), 1e-30, 0.3, 1.0, 1e30, float(limits.max), np.inf]
    special = [np.nan, *sizes, *(-size for size in sizes)]
    y, x = (np.array(side) for side in zip(*product(special, special), strict=True))
    rng = np.random.default_rng(4)
    drawn = rng.normal(size=(2, 400)) * 2.0 ** rng.uniform(-40, 40, (2, 400))
    y, x = np.concatenate([y, drawn[0]]), np.concatenate([x, drawn[1]])
    return y.astype(KINDS[kind]), x.astype(KINDS[kind])


@pytest.mark.parametrize("engine", RUNS)
@pytest.mark.parametrize("kind", KINDS)
def test_angles_are_those_of_torch(kind: str, engine: str) -> None:
    y, x = coordinates(kind)
    rule = UpdateRule("angle", atan2(GRAD, PARAM), {}, {})
    graph = compile_step(ModelSpec(rule, {"w": x.shape}), GraphOptions(dtype=kind))
    inputs = {"param.w": x, "grad.w": y, "step": np.array(0)}
    with np.errstate(all="ignore"):
        result = RUNS[engine](graph, inputs)["next.param.w"]
    expected = torch.atan2(torch.from_numpy(y), torch.from_numpy(x)).numpy()
    is_number = ~np.isnan(expected)
    assert np.array_equal(is_number, ~np.isnan(result))
    result, expected = result[is_number], expected[is_number]
    # 8 ulp of the arctangent, and roundings of the quotient and of the sum with pi.
    np.testing.assert_array_max_ulp(result, expected, 12)
    # The Where of onnxruntime 1.31 chooses 0.0 for -0.0.
    has_sign = (expected != 0) | (engine != "onnxruntime")
    assert np.array_equal(np.signbit(result)[has_sign], np.signbit(expected)[has_sign])


class Turned(torch.optim.Optimizer):
    """Steps by the angle of the gradient and a root, as Adam-atan2."""

    def __init__(self, params: list[torch.nn.Parameter]) -> None:
        super().__init__(params, {"lr": 0.1})

    @torch.no_grad()
    def step(self, closure: object = None) -> None:  # type: ignore[override]
        for p in self.param_groups[0]["params"]:
            state = self.state[p]
            state["square"] = state.get("square", torch.zeros_like(p)) * 0.5 + p.grad * p.grad
            p.sub_(p.grad.atan2(state["square"].sqrt()), alpha=self.param_groups[0]["lr"])


def test_a_file_of_angles_is_proved(tmp_path: Path) -> None:
    """A root is not below 0, and so the branch that the file does not have is never taken."""
    params = [torch.nn.Parameter(torch.ones(shape)) for shape in ((3,), (2, 2))]
    rule = cf.from_torch(Turned(params))
    assert isinstance(rule, UpdateRule)
    assert any(local.has(sp.atan) for local in rule.definitions.values())
    cf.to_onnx(rule, tmp_path, params={"w": (3,)})  # a warning is an error
