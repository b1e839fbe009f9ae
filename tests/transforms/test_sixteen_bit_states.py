"""States of 16 bits: the same bits in every engine for the whole library, and bounds of the error.

Parameters are float32 here. The rules of the library are those of tests/test_library.py.
"""

import importlib
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import sympy as sp
import torch
from numpy.typing import NDArray

import closedform as cf
from closedform import claims, optimizers, transforms
from closedform.compiler import compile_step
from closedform.errors import DefinitionError, ExportError
from closedform.ir.evaluate import evaluate
from closedform.ir.graph import Graph
from closedform.ir.types import DType
from closedform.language import GRAD, PARAM, State, UpdateRule, hyper, state
from closedform.options import ModelSpec
from closedform.runtime.c_library import c_compiler
from closedform.verify.translation.translation import validate
from tests.low_precision.engines import ENGINES, Arrays, Engine, Session, Torch
from tests.support.rules import accepts
from tests.test_library import OPTIMIZERS
from tests.torch.training import COMPILING

BF16 = DType.BF16.numpy
SHAPES: dict[str, tuple[int, ...]] = {"w": (5, 7), "b": (3,), "s": ()}
ROUNDINGS = ("nearest", "stochastic")
STEPS = 4
WITHOUT = {"fromage", "schedule_free_sgd", "dog", "dowg"}
"""Rules without a moment: none or only states that begin as the parameter."""
LIBRARY = {
    name: make
    for name, make in OPTIMIZERS.items()
    # The others take a loss, or a tensor besides the gradient, which the engines are not given.
    if name not in WITHOUT and not make().inputs and name != "momo"
}
DIFFERENT_IN_JAX = {"adam_mini", "ftrl", "novograd"}
"""XLA adds up in another order (means, sums of squares) and has its own power function."""


class Compiled(Torch):
    """The same, compiled by inductor."""

    backend = "compile"


def drawn(seed: int, rule: UpdateRule) -> Arrays:
    rng = np.random.default_rng(seed)
    return {
        name: np.asarray(rng.normal(size=shape)).astype(np.float32)
        for name, shape in SHAPES.items()
        if accepts(rule, shape)
    }


def compare(rule: UpdateRule, engine: type[Engine]) -> list[tuple[str, str]]:
    """The states and parameters whose bits differ from those of onnxruntime after some steps."""
    reference, compared = (kind(rule, drawn(0, rule)) for kind in (Session, engine))
    for seed in range(1, STEPS + 1):
        for session in (reference, compared):
            session.step(drawn(seed, rule))
    tables = {"param": reference.params(), **reference.states()}
    others = {"param": compared.params(), **compared.states()}
    different = []
    for label, arrays in tables.items():
        for name, array in arrays.items():
            assert np.isfinite(array.astype(np.float32)).all(), (label, name)
            assert others[label][name].dtype == array.dtype, (label, name)
            if others[label][name].tobytes() != array.tobytes():
                different.append((label, name))
    return different


# The prover's effort does not suffice for SPAM in JAX, nor does it without the transform.
@pytest.mark.filterwarnings("ignore::closedform.errors.UnprovedWarning")
@pytest.mark.sample(every=7)
@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("engine", ["torch", "jax", "c"])
@pytest.mark.parametrize("name", LIBRARY)
def test_engines_have_the_same_bits(name: str, engine: str, rounding: str) -> None:
    rule = transforms.sixteen_bit_states(LIBRARY[name](), rounding=rounding, seed=3)
    assert {spec.stored for spec in rule.states.values()} >= {"bf16"}
    if engine == "jax":
        importlib.import_module("jax")
    if engine == "c" and (c_compiler() is None or not (rule.is_drawn or rule.is_elementwise)):
        pytest.skip("C takes rules that step each element by itself")
    different = compare(rule, ENGINES[engine])
    if engine != "jax" or name not in DIFFERENT_IN_JAX:
        assert not different


@pytest.mark.exhaustive
@pytest.mark.filterwarnings(COMPILING)
@pytest.mark.parametrize("name", ["adamw", "lion", "adafactor", "rprop"])
def test_compiled_steps_have_the_same_bits(name: str) -> None:
    rule = transforms.sixteen_bit_states(LIBRARY[name](), rounding="stochastic")
    assert not compare(rule, Compiled)


@pytest.mark.sample(every=5)
@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("name", LIBRARY)
def test_steps_are_proved(name: str, rounding: str) -> None:
    rule = transforms.sixteen_bit_states(LIBRARY[name](), rounding=rounding)
    assert validate(rule, compile_step(ModelSpec(rule, {"w": (3, 4)}))).proved


def test_states_of_float16_are_in_every_engine_but_c() -> None:
    rule = transforms.sixteen_bit_states(optimizers.lion(0.01), "f16", rounding="stochastic")
    assert not compare(rule, Torch)
    with pytest.raises(ExportError, match="C11 has no type for f16"):
        cf.to_c(rule)


# --- errors --------------------------------------------------------------------------------------

UNITS = {"bf16": 2.0**-8, "f16": 2.0**-11}
LEAST = {"bf16": 2.0**-118, "f16": 2.0**-14}
"""The least numbers that the bounds are for: below, the distance of two numbers is 2**-126."""


@cache
def last_gradient(shape: tuple[int, ...], dtype: str, rounding: str) -> Graph:
    rule = UpdateRule("last", PARAM, {"s": State(GRAD)})
    rule = transforms.sixteen_bit_states(rule, dtype, rounding=rounding, seed=7)
    return compile_step(ModelSpec(rule, {"w": shape}))


def stored_gradient(exact: NDArray[np.float32], dtype: str, rounding: str, step: int) -> Any:
    """A state that is the last gradient, after a step."""
    zeros = np.zeros_like(exact)
    feeds = {
        "param.w": zeros,
        "grad.w": exact,
        "state.w.s": zeros.astype(DType(dtype).numpy),
        "step": np.array(step),
    }
    return evaluate(last_gradient(exact.shape, dtype, rounding), feeds)["next.state.w.s"]


def numbers(dtype: str) -> NDArray[np.float32]:
    """All normal numbers of 16 bits but the largest, each with some remainders of float32."""
    values = np.arange(2**16, dtype=np.uint16).view(DType(dtype).numpy).astype(np.float32)
    most = 3.3e38 if dtype == "bf16" else 6e4
    normal = values[
        np.isfinite(values) & (np.abs(values) >= LEAST[dtype]) & (np.abs(values) < most)
    ]
    remainders = np.random.default_rng(1).integers(0, 2**16, (8, normal.size), dtype=np.uint32)
    return (normal.view(np.uint32) & 0xFFFF0000 | remainders).view(np.float32)


@pytest.mark.parametrize("dtype", UNITS)
@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_a_step_is_off_by_the_bound(rounding: str, dtype: str) -> None:
    """|s' - S| <= u |S| rounded to nearest, and < 2 u |S| at random; both are nearly reached."""
    exact = numbers(dtype)
    rounded = stored_gradient(exact, dtype, rounding, 0)
    assert rounded.dtype == DType(dtype).numpy
    errors = np.abs(rounded.astype(np.float64) - exact) / np.abs(exact)
    bound = UNITS[dtype] * (1 if rounding == "nearest" else 2)
    assert errors.max() <= bound
    assert errors.max() > 0.95 * bound
    if rounding == "nearest":
        np.testing.assert_array_equal(rounded, exact.astype(DType(dtype).numpy))


def test_the_mean_over_steps_is_the_exact_value() -> None:
    """The mean of 400 roundings of 100 numbers is within five of its deviations, u |S| / 20."""
    exact = np.random.default_rng(2).normal(size=100).astype(np.float32)
    draws = [stored_gradient(exact, "bf16", "stochastic", step) for step in range(400)]
    mean = np.mean(np.array(draws).astype(np.float64), axis=0)
    assert (np.abs(mean - exact) <= 5 * UNITS["bf16"] * np.abs(exact) / 20).all()
    assert np.unique(np.array(draws)[:, 0]).size == 2


@pytest.mark.parametrize("dtype", UNITS)
def test_a_second_moment_stays_above_zero(dtype: str) -> None:
    """Rounding at random does not cross 0, where the neighbour of a tiny number may lie beyond."""
    tiny = (2.0 ** np.random.default_rng(3).uniform(-149, -100, 2**14)).astype(np.float32)
    for step in range(8):
        rounded = stored_gradient(tiny, dtype, "stochastic", step).astype(np.float32)
        assert (rounded >= 0).all()
        assert (stored_gradient(-tiny, dtype, "stochastic", step).astype(np.float32) <= 0).all()


def error_of_a_mean(share: int) -> claims.Claim:
    """|e| (1 - beta) <= e0 for e' = beta e + e0 d, of any beta and |d| <= ``share``."""
    beta, bound, draw, error = hyper("beta"), hyper("bound"), hyper("draw"), state("error")
    rule = UpdateRule(
        "mean",
        PARAM,
        {"error": State(beta * error + bound * draw)},
        {"beta": None, "bound": None, "draw": None},
    )
    assumptions = [beta >= 0, beta < 1, bound >= 0, sp.Abs(draw) <= share]
    return claims.invariant(rule, sp.Abs(error) * (1 - beta) <= bound, assume=assumptions)


def test_the_error_of_a_running_mean_is_proved() -> None:
    """That of the docstring: u max |S| / (1 - beta), and with beta² the variance, at random."""
    assert error_of_a_mean(1).verify().proved
    assert error_of_a_mean(2).verify().refuted


def test_a_second_moment_rounded_to_nearest_stops() -> None:
    """Changes below u / 2 of a state are lost, and not in the mean of roundings at random."""
    last = {}
    for rounding in ROUNDINGS:
        rule = transforms.sixteen_bit_states(optimizers.adam(0), rounding=rounding)
        session = cf.OptimizerSession(rule, {"w": np.zeros(1000, np.float32)})
        for gradient in [1.0] + [0.0] * 400:
            session.step({"w": np.full(1000, gradient, np.float32)})
        last[rounding] = session.states["exp_avg_sq"]["w"].astype(np.float64).mean()
    # A mean of 1,000 elements, each off by at most u sqrt(400) = 0.08 of it.
    assert last["stochastic"] == pytest.approx(0.001 * 0.999**400, rel=4 * 0.08 / 1000**0.5)
    assert last["nearest"] == pytest.approx(0.001, rel=UNITS["bf16"])


# --- which states --------------------------------------------------------------------------------


def test_states_of_one_tensor_have_different_numbers() -> None:
    """Two states, and the parameter, that round the same number are moved independently."""
    rule = UpdateRule("last", GRAD, {"a": State(GRAD), "b": State(GRAD)})
    rule = transforms.sixteen_bit_states(rule, rounding="stochastic", seed=0)
    rule = transforms.stochastic_rounding(rule, seed=0)
    gradient = np.full(4096, 1.0, BF16)
    rule = transforms.loss_scaling(rule, 3)  # a third has no bfloat16
    session = cf.OptimizerSession(rule, {"w": gradient})
    session.step({"w": gradient})
    tables = [session.params["w"], session.states["a"]["w"], session.states["b"]["w"]]
    columns = np.array(tables).astype(np.float64)
    correlations = np.asarray(np.corrcoef(columns))[np.triu_indices(3, 1)]
    assert (np.abs(correlations) < 4 / np.sqrt(4096)).all()


def test_a_seed_is_that_of_the_parameter_less_one() -> None:
    exact = np.random.default_rng(4).normal(size=100).astype(np.float32)
    rule = transforms.stochastic_rounding(UpdateRule("last", PARAM + GRAD), seed=8)
    session = cf.OptimizerSession(rule, {"w": np.zeros(100, BF16)})
    wide = transforms.loss_scaling(rule, 1)
    assert wide.stored == "bf16"
    session.step({"w": exact.astype(BF16)})
    expected = stored_gradient(exact.astype(BF16).astype(np.float32), "bf16", "stochastic", 0)
    np.testing.assert_array_equal(session.params["w"], expected)


def stored_by_name(rule: UpdateRule) -> dict[str, str | None]:
    return {name: spec.stored for name, spec in rule.states.items()}


def test_moments_are_stored_and_masters_are_not() -> None:
    adamw = optimizers.adamw(0.1)
    with_masters = transforms.sixteen_bit_states(transforms.master_weights(adamw))
    moments = {"exp_avg": "bf16", "exp_avg_sq": "bf16"}
    assert stored_by_name(with_masters) == {**moments, "master": None}
    with_rest = transforms.sixteen_bit_states(transforms.kahan(adamw, "f16"))
    assert stored_by_name(with_rest) == {**moments, "compensation": "f16"}
    averaged = transforms.sixteen_bit_states(transforms.weight_average(adamw), states=["average"])
    assert stored_by_name(averaged) == {"exp_avg": None, "exp_avg_sq": None, "average": "bf16"}
    assert stored_by_name(transforms.sixteen_bit_states(optimizers.nadam())) == {
        "mu_product": None,
        **moments,
    }


def test_one_state_has_8_bits_and_another_16() -> None:
    adamw = optimizers.adamw(0.01)
    first = transforms.sixteen_bit_states(adamw, states=["exp_avg"], rounding="stochastic")
    rule = transforms.eight_bit_states(first, [], ["exp_avg_sq"])
    session = cf.OptimizerSession(rule, {"w": np.ones((64, 64), np.float32)})
    session.step({"w": np.ones((64, 64), np.float32)})
    dtypes = {name: array["w"].dtype for name, array in session.states.items() if array}
    assert dtypes["exp_avg"] == BF16
    assert dtypes["exp_avg_sq_code"] == np.int8


def test_a_state_dict_of_torch_keeps_the_dtype() -> None:
    rule = transforms.sixteen_bit_states(optimizers.adamw(0.01), rounding="stochastic")
    params = [torch.nn.Parameter(torch.ones(3, 4)) for _ in range(2)]
    first, second = (cf.torch.Optimizer([param], rule) for param in params)
    params[0].grad = torch.full((3, 4), 0.3)
    first.step()
    params[1].data.copy_(params[0])
    second.load_state_dict(first.state_dict())
    params[1].grad = params[0].grad
    for optimizer in (first, second):
        optimizer.step()
    assert torch.equal(*params)
    states = [
        optimizer.state[param] for optimizer, param in zip((first, second), params, strict=True)
    ]
    for name in ("exp_avg", "exp_avg_sq"):
        assert states[0][name].dtype == states[1][name].dtype == torch.bfloat16
        assert torch.equal(states[0][name], states[1][name])


BAD: dict[str, tuple[Callable[[], UpdateRule], str]] = {
    "unknown": (
        lambda: transforms.sixteen_bit_states(optimizers.adam(), states=["exp_av"]),
        "rule 'adam' has no state 'exp_av' (sixteen_bit_states): did you mean 'exp_avg'?",
    ),
    "of the model": (
        lambda: transforms.sixteen_bit_states(
            transforms.skip_nonfinite(optimizers.adam()), states=["skipped_steps"]
        ),
        "rule 'adam' has no state 'skipped_steps' (sixteen_bit_states): known are exp_avg, "
        "exp_avg_sq",
    ),
    "one number": (
        lambda: transforms.sixteen_bit_states(optimizers.nadam(), states=["mu_product"]),
        "state 'mu_product' of rule 'nadam' is one number (sixteen_bit_states)",
    ),
    "integers": (
        lambda: transforms.sixteen_bit_states(
            transforms.eight_bit_states(optimizers.adam()), states=["exp_avg_code"]
        ),
        "state 'exp_avg_code' of rule 'adam' is stored in i8 already (sixteen_bit_states)",
    ),
    "twice": (
        lambda: transforms.sixteen_bit_states(
            transforms.sixteen_bit_states(optimizers.lion(), states=["exp_avg"]), states=["exp_avg"]
        ),
        "state 'exp_avg' of rule 'lion' is stored in bf16 already (sixteen_bit_states)",
    ),
    "none left": (
        lambda: transforms.sixteen_bit_states(transforms.sixteen_bit_states(optimizers.lion())),
        "rule 'lion' has no state to store in 16 bits (sixteen_bit_states)",
    ),
    "none": (
        lambda: transforms.sixteen_bit_states(optimizers.sgd(0.1)),
        "rule 'sgd' has no state to store in 16 bits (sixteen_bit_states)",
    ),
    "codes of 16 bits": (
        lambda: transforms.eight_bit_states(transforms.sixteen_bit_states(optimizers.adam())),
        "state 'exp_avg' of rule 'adam' is stored in bf16 already (eight_bit_states)",
    ),
    "dtype": (
        lambda: transforms.sixteen_bit_states(optimizers.adam(), "fp16"),
        "dtype must be one of bf16, f16, got 'fp16' (sixteen_bit_states): did you mean 'f16'?",
    ),
    "rounding": (
        lambda: transforms.sixteen_bit_states(optimizers.adam(), rounding="random"),
        "rounding must be one of nearest, stochastic, got 'random' (sixteen_bit_states): known are "
        "nearest, stochastic",
    ),
    "seed": (
        lambda: transforms.sixteen_bit_states(optimizers.adam(), seed=-1),
        "the seed must be an integer in [0, 2**32), got -1",
    ),
    "no rule": (
        lambda: transforms.sixteen_bit_states(3),  # type: ignore[arg-type]
        "a transform takes an UpdateRule, got int 3 (sixteen_bit_states)",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_refused(name: str) -> None:
    build, message = BAD[name]
    with pytest.raises(DefinitionError) as caught:
        build()
    assert str(caught.value) == message
