"""States of eight bits beside the functions of torchao, and what is refused.

``tests/reference/optimizers_rules.npz`` has the maps of ``create_dynamic_map`` and ten steps of
Adam with coded states, written by ``make_optimizers_rules.py``.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sympy as sp
import torch
from numpy.typing import NDArray

import closedform as cf
from closedform import optimizers, transforms
from closedform.compiler import compile_step
from closedform.errors import DefinitionError
from closedform.ir.evaluate import evaluate
from closedform.ir.types import DType
from closedform.language import GRAD, PARAM, State, UpdateRule, state
from closedform.options import GraphOptions, ModelSpec
from closedform.transforms.eight_bit import dequantize, quantize
from tests.reference.records import ROOT
from tests.support.engines import run_onnxruntime, run_torch
from tests.support.trajectories import trajectory

Array = NDArray[np.float64]

with np.load(ROOT / "optimizers_rules.npz") as file:
    CODED = {key.removeprefix("coded/"): file[key] for key in file.files if "coded/" in key}
MAPS = {"signed": CODED["signed"].astype(float), "unsigned": CODED["unsigned"].astype(float)}


def mapped(function: Callable[[sp.Expr, bool], sp.Expr], sort: str, values: Array) -> Array:
    """A function of one number, over an array, by the evaluator in float64."""
    rule = UpdateRule("mapped", function(PARAM, sort == "signed"))
    spec = ModelSpec(rule, {"w": values.shape})
    graph = compile_step(spec, GraphOptions(dtype=DType.F64))
    known = {"param.w": values, "grad.w": values, "step": np.array(0)}
    feed = {node.attribute("name"): known[node.attribute("name")] for node in graph.inputs}
    return np.asarray(evaluate(graph, feed)["next.param.w"])


@pytest.mark.parametrize("sort", MAPS)
def test_values_of_codes_are_those_of_the_map(sort: str) -> None:
    values = mapped(dequantize, sort, np.arange(256.0))
    # torchao computes its map in float32.
    np.testing.assert_allclose(values, MAPS[sort], rtol=2e-7, atol=0)
    assert values[127 if sort == "signed" else 0] == 0
    assert values[255] == 1


@pytest.mark.parametrize("sort", MAPS)
def test_the_nearest_code_is_found(sort: str) -> None:
    codes = np.arange(256.0)
    values = mapped(dequantize, sort, codes)
    np.testing.assert_array_equal(mapped(quantize, sort, values), codes)
    rng = np.random.default_rng(0)
    size = 10.0 ** rng.uniform(-8, 0, size=4000)
    given = size * rng.choice([-1, 1], size=4000) if sort == "signed" else size
    distances = np.abs(given[:, None] - values)
    found = mapped(quantize, sort, given).astype(int)
    np.testing.assert_array_equal(found, distances.argmin(axis=1))
    between = (values[1:] + values[:-1]) / 2
    for factor, shift in ((1 - 1e-9, 0), (1 + 1e-9, 1)):
        away = np.where(between < 0, 2 - factor, factor)
        np.testing.assert_array_equal(mapped(quantize, sort, between * away), codes[:-1] + shift)


def test_coded_adam_is_that_of_torchao() -> None:
    rule = transforms.eight_bit_states(optimizers.adam(0.1, (0.9, 0.99)), block=16, least_size=0)
    gradients = [{"w": gradient} for gradient in CODED["gradients"]]
    steps: list[Any] = list(trajectory(rule, {"w": CODED["start"]}, gradients))
    for step, (first, second) in zip(steps, CODED["codes"].reshape(10, 2, 2, 16), strict=True):
        for name, codes in (("exp_avg", first), ("exp_avg_sq", second)):
            stored = step[f"state.w.{name}_code"]
            assert stored.dtype == np.int8
            np.testing.assert_array_equal(stored.astype(int) + 128, codes)
    # The map of torchao is rounded to float32: 6e-8 of each of ten steps of 0.1, and twice that of
    # the root.
    np.testing.assert_allclose(steps[-1]["param.w"], CODED["param"], rtol=0, atol=10 * 0.1 * 2e-7)


@pytest.mark.parametrize("kind", ["coded", "sam"])
def test_graphs_run_in_onnxruntime_and_torch(kind: str) -> None:
    inner = optimizers.adamw(0.01)
    coded = transforms.eight_bit_states(inner, block=16, least_size=32)
    rule = coded if kind == "coded" else transforms.sam(inner)
    params = {"w": CODED["start"], "v": CODED["start"][0]}
    gradients = [{"w": g, "v": g[0]} for g in CODED["gradients"][:3]]
    *_, last = trajectory(rule, params, gradients, DType.F32)
    graph = compile_step(ModelSpec(rule, {"w": (4, 8), "v": (8,)}))
    feed = {**last, "grad.w": gradients[0]["w"], "grad.v": gradients[0]["v"]}
    feed = {
        key: np.asarray(value, np.asarray(last[key]).dtype if key in last else np.float32)
        for key, value in feed.items()
    }
    given = {node.attribute("name"): feed[node.attribute("name")] for node in graph.inputs}
    expected = evaluate(graph, given)
    for results in (run_onnxruntime(graph, given), run_torch(graph, given)):
        for key, value in expected.items():
            # Ten roundings of float32 on values near 1; codes are whole numbers.
            np.testing.assert_allclose(results[key], value, rtol=1e-6, atol=1e-6, err_msg=key)


@pytest.mark.parametrize("sort", MAPS)
def test_a_state_is_off_by_at_most_half_of_the_largest_gap(sort: str) -> None:
    """|s - a q(c)| <= 0.9 a / 128, and half of that for codes without sign."""
    rng = np.random.default_rng(1)
    gradient = (10.0 ** rng.uniform(-6, 6, size=(64, 64))).astype(np.float32)
    if sort == "signed":
        gradient *= rng.choice([-1, 1], size=gradient.shape)
    names = (["s"], []) if sort == "signed" else ([], ["s"])
    rule = UpdateRule("momentum", state("s"), {"s": State(GRAD)})
    session = cf.OptimizerSession(transforms.eight_bit_states(rule, *names), {"w": gradient})
    session.step({"w": gradient})
    session.step({"w": gradient})
    scales = np.abs(gradient.reshape(-1, 256)).max(axis=1)
    np.testing.assert_array_equal(session.states["s_scale"]["w"].ravel(), scales)
    errors = np.abs(session.params["w"].astype(float) - gradient).reshape(-1, 256).max(axis=1)
    bound = 0.9 / (128 if sort == "signed" else 256)
    assert np.diff(MAPS[sort]).max() / 2 == pytest.approx(bound, rel=1e-6)
    # A product and a quotient in float32 are each off by 2**-24 of the scale at most.
    assert np.all(errors <= scales * (bound + 2**-22))
    assert np.any(errors > 0.9 * scales * bound)


def test_states_have_two_bytes_for_each_parameter() -> None:
    rule = transforms.eight_bit_states(optimizers.adamw(1e-3))
    session = cf.OptimizerSession(rule, {"w": np.ones((64, 64), np.float32)})
    session.step({"w": np.ones((64, 64), np.float32)})
    size = sum(array.nbytes for arrays in session.states.values() for array in arrays.values())
    assert size == 64 * 64 * (2 + 2 * 4 / 256)
    optimizer = cf.torch.Optimizer([parameter := torch.nn.Parameter(torch.ones(64, 64))], rule)
    parameter.grad = torch.ones(64, 64)
    optimizer.step()
    states = optimizer.state[parameter]
    assert states["exp_avg_code"].dtype == torch.int8
    np.testing.assert_array_equal(states["exp_avg_code"], session.states["exp_avg_code"]["w"])
    optimizer.load_state_dict(optimizer.state_dict())
    assert optimizer.state[parameter]["exp_avg_code"].dtype == torch.int8


def test_a_gradient_that_is_nan_reaches_the_state() -> None:
    gradient = np.ones((64, 64), np.float32)
    gradient[0, 0] = np.nan
    session = cf.OptimizerSession(
        transforms.eight_bit_states(optimizers.adamw(1e-3)), {"w": np.ones((64, 64), np.float32)}
    )
    session.step({"w": gradient})
    session.step({"w": np.ones_like(gradient)})
    is_nan = np.isnan(session.params["w"]).ravel()
    assert np.all(is_nan[:256])
    assert not np.any(is_nan[256:])


def test_small_and_uneven_parameters_have_plain_states() -> None:
    rule = transforms.eight_bit_states(optimizers.adam(), block=16, least_size=64)
    for shape in ((4, 8), (5, 13)):
        assert list(rule.for_shape(shape).states) == ["exp_avg", "exp_avg_sq"]
    assert next(iter(rule.for_shape((4, 16)).states)) == "exp_avg_code"


BAD: dict[str, tuple[Callable[[], UpdateRule], str]] = {
    "no state": (
        lambda: transforms.eight_bit_states(optimizers.sgd(0.1, 0.9)),
        "no state is coded: rule 'sgd' has the states momentum_buffer (eight_bit_states)",
    ),
    "both": (
        lambda: transforms.eight_bit_states(optimizers.adam(), ["exp_avg"], ["exp_avg"]),
        "'exp_avg' is in both lists: rule 'adam' has the states exp_avg, exp_avg_sq "
        "(eight_bit_states)",
    ),
    "first value": (
        lambda: transforms.eight_bit_states(
            UpdateRule("ones", PARAM, {"mean": State(state("mean"), 1)}), ["mean"]
        ),
        "a coded state has the parameter's shape and begins at 0, which 'mean' does not "
        "(eight_bit_states)",
    ),
    "block": (
        lambda: transforms.eight_bit_states(optimizers.adam(), block=0),
        "block must be an integer >= 1, got 0 (eight_bit_states)",
    ),
    "distance": (
        lambda: transforms.sam(optimizers.sgd(), -1),
        "rho must be >= 0, got -1 (sam)",
    ),
    "twice": (
        lambda: transforms.sam(transforms.sam(optimizers.sgd())),
        "rule 'sgd' has a state 'origin' already (sam): a transform is applied once",
    ),
    "filter": (
        lambda: transforms.grokfast(optimizers.sgd(), 2),
        "alpha must be in [0, 1], got 2 (grokfast)",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_refused(name: str) -> None:
    build, message = BAD[name]
    with pytest.raises(DefinitionError) as caught:
        build()
    assert str(caught.value).partition(": try")[0].startswith(message)
