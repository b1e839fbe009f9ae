"""States of 8 and of 4 bits next to the functions of torchao, and what is refused.

``tests/reference/optimizers_rules.npz`` has the maps of torchao and ten steps of Adam with coded
states, written by ``make_optimizers_rules.py``.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime
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
from closedform.transforms.code_books import CodeBook
from closedform.transforms.quantized_states import QUANTIZATIONS
from tests.reference.records import ROOT
from tests.support.engines import run_onnxruntime, run_torch
from tests.support.trajectories import trajectory

Array = NDArray[np.float64]

TRANSFORMS: dict[str, Callable[..., UpdateRule]] = {
    "eight_bit_states": transforms.eight_bit_states,
    "four_bit_states": transforms.four_bit_states,
}
with np.load(ROOT / "optimizers_rules.npz") as file:
    CODED = {
        name: {
            key.removeprefix(f"coded {QUANTIZATIONS[name].bits}/"): file[key]
            for key in file.files
            if key.startswith(f"coded {QUANTIZATIONS[name].bits}/")
        }
        for name in TRANSFORMS
    }
EIGHT = CODED["eight_bit_states"]
# Steps of 8 bits take seconds to compile, and come from the same machine.
WITH_FEW_SECONDS = [
    pytest.param("eight_bit_states", marks=pytest.mark.exhaustive),
    "four_bit_states",
]
BOOKS: dict[str, tuple[CodeBook, Array]] = {
    f"{name}, {sort}": (getattr(QUANTIZATIONS[name], sort), CODED[name][sort].astype(float))
    for name in TRANSFORMS
    for sort in ("signed", "unsigned")
}
"""The code books, with the values of torchao."""


def mapped(function: Callable[[sp.Expr], sp.Expr], values: Array) -> Array:
    """A function of one number, over an array, by the evaluator in float64."""
    spec = ModelSpec(UpdateRule("mapped", function(PARAM)), {"w": values.shape})
    graph = compile_step(spec, GraphOptions(dtype=DType.F64))
    arrays = {"param.w": values, "grad.w": values, "step": np.array(0)}
    feed = {node.attribute("name"): arrays[node.attribute("name")] for node in graph.inputs}
    return np.asarray(evaluate(graph, feed)["next.param.w"])


def codes_of(packed: NDArray[Any], bits: int) -> NDArray[np.int64]:
    """The codes in stored bytes, the highest bits of a byte first."""
    stored = packed.astype(np.int64).reshape(-1, 1) + 128
    shifts = np.arange(8 - bits, -1, -bits)
    return np.asarray(stored >> shifts & 2**bits - 1).ravel()


@pytest.mark.parametrize("name", BOOKS)
def test_values_of_codes_are_those_of_torchao(name: str) -> None:
    book, expected = BOOKS[name]
    values = mapped(book.dequantize, np.arange(float(len(expected))))
    # torchao computes its map in float32.
    np.testing.assert_allclose(values, expected, rtol=2e-7, atol=0)
    # The last bits of a line a + b c, which the exact number has not.
    np.testing.assert_allclose(values, np.array(book.values, float), rtol=1e-13, atol=0)
    assert values[-1] == 1
    assert (0 in values) == (name != "four_bit_states, unsigned")
    assert values[book.lowest] == np.abs(values).min()


@pytest.mark.parametrize("name", BOOKS)
def test_the_nearest_code_is_computed(name: str) -> None:
    book, expected = BOOKS[name]
    codes = np.arange(float(len(expected)))
    values = mapped(book.dequantize, codes)
    np.testing.assert_array_equal(mapped(book.quantize, values), codes)
    rng = np.random.default_rng(0)
    sizes = 10.0 ** rng.uniform(-8, 0, size=4000)
    parts = sizes * rng.choice([-1, 1], size=4000) if book.is_signed else sizes
    distances = np.abs(parts[:, None] - values)
    np.testing.assert_array_equal(mapped(book.quantize, parts), distances.argmin(axis=1))
    between = (values[1:] + values[:-1]) / 2
    for factor, shift in ((1 - 1e-9, 0), (1 + 1e-9, 1)):
        away = np.where(between < 0, 2 - factor, factor)
        np.testing.assert_array_equal(mapped(book.quantize, between * away), codes[:-1] + shift)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_coded_adam_is_that_of_torchao(name: str) -> None:
    coded = CODED[name]
    rule = TRANSFORMS[name](optimizers.adam(0.1, (0.9, 0.99)), block=16, least_size=0)
    gradients = [{"w": gradient} for gradient in coded["gradients"]]
    steps: list[Any] = list(trajectory(rule, {"w": coded["start"]}, gradients))
    for step, (first, second) in zip(steps, coded["codes"].reshape(10, 2, -1), strict=True):
        for label, packed in (("exp_avg", first), ("exp_avg_sq", second)):
            stored = step[f"state.w.{label}_code"]
            assert stored.dtype == np.int8
            np.testing.assert_array_equal(stored.astype(int).ravel() + 128, packed)
    # The map of torchao is rounded to float32: 6e-8 of each of ten steps of 0.1, and twice that of
    # the root.
    np.testing.assert_allclose(steps[-1]["param.w"], coded["param"], rtol=0, atol=10 * 0.1 * 2e-7)


@pytest.mark.parametrize("kind", [*TRANSFORMS, "sam"])
def test_graphs_run_in_onnxruntime_and_torch(kind: str) -> None:
    inner = optimizers.adamw(0.01)
    rule = transforms.sam(inner)
    if kind in TRANSFORMS:
        rule = TRANSFORMS[kind](inner, block=16, least_size=32)
    params = {"w": EIGHT["start"], "v": EIGHT["start"][0]}
    gradients = [{"w": g, "v": g[0]} for g in EIGHT["gradients"][:3]]
    *_, last = trajectory(rule, params, gradients, DType.F32)
    graph = compile_step(ModelSpec(rule, {"w": (4, 8), "v": (8,)}))
    feed = {**last, "grad.w": gradients[0]["w"], "grad.v": gradients[0]["v"]}
    feed = {
        key: np.asarray(value, np.asarray(last[key]).dtype if key in last else np.float32)
        for key, value in feed.items()
    }
    inputs = {node.attribute("name"): feed[node.attribute("name")] for node in graph.inputs}
    expected = evaluate(graph, inputs)
    for results in (run_onnxruntime(graph, inputs), run_torch(graph, inputs)):
        for key, value in expected.items():
            if value.dtype == np.int8:
                np.testing.assert_array_equal(results[key], value, err_msg=key)
            else:
                # Ten roundings of float32 on values near 1.
                np.testing.assert_allclose(results[key], value, rtol=1e-6, atol=1e-6, err_msg=key)


BOUNDS = {
    "eight_bit_states, signed": 0.9 / 128,
    "eight_bit_states, unsigned": 0.9 / 256,
    "four_bit_states, signed": 0.1125,
    "four_bit_states, unsigned": 1 / 16,
}
"""The largest error of a code, for a scale of 1: half of a gap of the book, or its least value."""


@pytest.mark.parametrize("name", BOUNDS)
def test_a_state_is_off_by_at_most_the_bound(name: str) -> None:
    """|s - a q(c)| <= bound a, and some elements are nearly as far off."""
    transform, _, sort = name.partition(", ")
    book, values = BOOKS[name]
    rng = np.random.default_rng(1)
    gradient = (10.0 ** rng.uniform(-6, 6, size=(64, 64))).astype(np.float32)
    if book.is_signed:
        gradient *= rng.choice([-1, 1], size=gradient.shape)
    lists = {"signed": [], "unsigned": [], sort: ["s"]}
    rule = UpdateRule("momentum", state("s"), {"s": State(GRAD)})
    session = cf.OptimizerSession(TRANSFORMS[transform](rule, **lists), {"w": gradient})
    session.step({"w": gradient})
    session.step({"w": gradient})
    block = QUANTIZATIONS[transform].block
    scales = np.abs(gradient.reshape(-1, block)).max(axis=1)
    np.testing.assert_array_equal(session.states["s_scale"]["w"].ravel(), scales)
    errors = np.abs(session.params["w"].astype(float) - gradient).reshape(-1, block).max(axis=1)
    bound = BOUNDS[name]
    assert max(np.diff(values).max() / 2, values[book.lowest]) == pytest.approx(bound, rel=1e-6)
    # A product and a quotient in float32 are each off by 2**-24 of the scale at most.
    assert np.all(errors <= scales * (bound + 2**-22))
    assert np.any(errors > 0.9 * scales * bound)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_states_have_the_bytes_of_their_codes(name: str) -> None:
    rule, quantization = TRANSFORMS[name](optimizers.adamw(1e-3)), QUANTIZATIONS[name]
    session = cf.OptimizerSession(rule, {"w": np.ones((64, 64), np.float32)})
    session.step({"w": np.ones((64, 64), np.float32)})
    size = sum(array.nbytes for arrays in session.states.values() for array in arrays.values())
    assert size == 64 * 64 * 2 * (quantization.bits / 8 + 4 / quantization.block)
    optimizer = cf.torch.Optimizer([parameter := torch.nn.Parameter(torch.ones(64, 64))], rule)
    parameter.grad = torch.ones(64, 64)
    optimizer.step()
    states = optimizer.state[parameter]
    assert states["exp_avg_code"].dtype == torch.int8
    np.testing.assert_array_equal(states["exp_avg_code"], session.states["exp_avg_code"]["w"])
    optimizer.load_state_dict(optimizer.state_dict())
    assert optimizer.state[parameter]["exp_avg_code"].dtype == torch.int8


@pytest.mark.parametrize("name", WITH_FEW_SECONDS)
def test_files_take_and_return_packed_codes(name: str) -> None:
    """The step file has int8 codes, ops of standard ONNX, and the codes of the evaluator."""
    rule, params = TRANSFORMS[name](optimizers.adamw(0.01)), {"w": np.ones((64, 64), np.float32)}
    # The prover's effort does not suffice for a step of two coded moments.
    models = cf.to_onnx(rule, params={"w": (64, 64)}, validate=False)
    assert {node.domain for model in models.values() for node in model.graph.node} == {""}
    runs = {
        label: onnxruntime.InferenceSession(model.SerializeToString())
        for label, model in models.items()
    }
    quantization = QUANTIZATIONS[name]
    byte_shape = [4096 // quantization.block, quantization.block * quantization.bits // 8]
    ports = {port.name: port for port in runs["step"].get_inputs()}
    for label in ("exp_avg", "exp_avg_sq"):
        port = ports[f"state.w.{label}_code"]
        assert (port.type, port.shape) == ("tensor(int8)", byte_shape)
    rng = np.random.default_rng(4)
    gradients = [{"w": rng.normal(size=(64, 64)).astype(np.float32)} for _ in range(3)]
    *_, last = trajectory(rule, params, gradients, DType.F32)
    init_inputs = {port.name for port in runs["init"].get_inputs()}
    feed = {"param.w": params["w"]}
    arrays = runs["init"].run(None, {key: feed[key] for key in init_inputs})
    names = [port.name for port in runs["init"].get_outputs()]
    feed |= dict(zip(names, arrays, strict=True)) | {"step": np.array(0)}
    for gradient in gradients:
        inputs = {key: gradient["w"] if key == "grad.w" else feed[key] for key in ports}
        results = runs["step"].run(None, inputs)
        names = [port.name.removeprefix("next.") for port in runs["step"].get_outputs()]
        feed = dict(zip(names, results, strict=True))
    # A step of 0.01 is off by a few roundings of float32 near 1.
    np.testing.assert_allclose(feed["param.w"], last["param.w"], rtol=0, atol=1e-6)
    for label in ("exp_avg_code", "exp_avg_scale", "exp_avg_sq_code", "exp_avg_sq_scale"):
        np.testing.assert_array_equal(feed[f"state.w.{label}"], last[f"state.w.{label}"])


def test_codes_of_four_bits_are_packed_in_order() -> None:
    """A ramp has the codes in ascending order; zeros have the lowest value of the book."""
    rule = UpdateRule("read", state("s"), {"s": State(GRAD)})
    coded = transforms.four_bit_states(rule, [], ["s"], block=16, least_size=0)
    ramp = np.arange(1, 17, dtype=np.float32) / 16
    gradient = np.stack([ramp, 0 * ramp, ramp[::-1] * 8])
    session = cf.OptimizerSession(coded, {"w": gradient})
    session.step({"w": gradient})
    stored = session.states["s_code"]["w"]
    assert (stored.astype(int) + 128)[0].tolist() == [16 * c + c + 1 for c in range(0, 16, 2)]
    codes = codes_of(stored, 4).reshape(3, 16)
    np.testing.assert_array_equal(codes, [range(16), [0] * 16, range(15, -1, -1)])
    scales = session.states["s_scale"]["w"].ravel()
    np.testing.assert_array_equal(scales, np.array([1, 1e-12, 8], np.float32))
    session.step({"w": gradient})
    # Sixteenths and their products with 8 are exact; a block of zeros is read as 1e-12 / 16.
    np.testing.assert_array_equal(session.params["w"], np.maximum(gradient, scales[1] / 16))


@pytest.mark.parametrize("name", WITH_FEW_SECONDS)
def test_a_signed_state_that_is_zero_stays_zero(name: str) -> None:
    rule = UpdateRule("read", state("s"), {"s": State(GRAD)})
    coded = TRANSFORMS[name](rule, ["s"], [], block=16, least_size=0)
    start = np.ones((2, 16), np.float32)
    gradient = np.stack([np.zeros(16), np.where(np.arange(16) % 3, 0, -2)]).astype(np.float32)
    session = cf.OptimizerSession(coded, {"w": start})
    session.step({"w": gradient})
    np.testing.assert_array_equal(session.params["w"], 0 * start)
    session.step({"w": gradient})
    zeros = gradient == 0
    np.testing.assert_array_equal(session.params["w"][zeros], 0)
    # -1 has no code: its neighbour is the negative of the second largest value.
    second = BOOKS[f"{name}, signed"][1][-2]
    np.testing.assert_allclose(session.params["w"][~zeros], -2 * second, rtol=1e-6)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_gradient_that_is_nan_reaches_the_state(name: str) -> None:
    gradient = np.ones((64, 64), np.float32)
    gradient[0, 0] = np.nan
    session = cf.OptimizerSession(
        TRANSFORMS[name](optimizers.adamw(1e-3)), {"w": np.ones((64, 64), np.float32)}
    )
    session.step({"w": gradient})
    session.step({"w": np.ones_like(gradient)})
    is_nan = np.isnan(session.params["w"]).ravel()
    block = QUANTIZATIONS[name].block
    assert np.all(is_nan[:block])
    assert not np.any(is_nan[block:])


@pytest.mark.parametrize("name", WITH_FEW_SECONDS)
def test_small_and_uneven_parameters_have_plain_states(name: str) -> None:
    inner = optimizers.adam()
    rule = TRANSFORMS[name](inner, block=16, least_size=64)
    small = {"few": (4, 8), "uneven": (5, 13), "below a block": (3,), "scalar": (), "empty": (0,)}
    for shape in small.values():
        assert list(rule.for_shape(shape).states) == ["exp_avg", "exp_avg_sq"]
    assert next(iter(rule.for_shape((4, 16)).states)) == "exp_avg_code"
    rng = np.random.default_rng(2)
    params = {label: rng.normal(size=shape).astype(np.float32) for label, shape in small.items()}
    grads = {label: rng.normal(size=shape).astype(np.float32) for label, shape in small.items()}
    sessions = [cf.OptimizerSession(traced, params) for traced in (rule, inner)]
    for session in sessions:
        session.step(grads)
        session.step(grads)
    for label, expected in sessions[1].params.items():
        np.testing.assert_array_equal(sessions[0].params[label], expected, err_msg=label)


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
    "half of a byte": (
        lambda: transforms.four_bit_states(optimizers.adam(), block=15),
        "block must be a multiple of 2, the codes of a byte, got 15 (four_bit_states)",
    ),
    "coded twice": (
        lambda: transforms.four_bit_states(transforms.eight_bit_states(optimizers.adam())),
        "a coded state has the parameter's shape and begins at 0, which 'exp_avg' does not "
        "(four_bit_states)",
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
