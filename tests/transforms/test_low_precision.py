"""Parameters of 16 bits without a copy: the same bits in every engine, and bounds of the error."""

import importlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import sympy as sp
import torch
from numpy.typing import NDArray

import closedform as cf
from closedform import optimizers, schedules, transforms
from closedform.compiler import compile_step
from closedform.errors import ArgumentError, DefinitionError, ExportError, VerificationError
from closedform.importers.onnx_graph import read_model
from closedform.ir.draws import seed_of_word, seed_word, uniform
from closedform.ir.evaluate import evaluate
from closedform.ir.ops import Op
from closedform.ir.types import DType
from closedform.language import GRAD, PARAM, State, UpdateRule, state
from closedform.options import ModelSpec
from closedform.runtime import OptimizerSession
from closedform.runtime.c_library import c_compiler
from closedform.verify.translation.translation import validate
from tests.torch.training import COMPILING

Arrays = dict[str, NDArray[Any]]
BF16 = DType.BF16.numpy
LINE = schedules.linear(0.01, 0.001, 20)
SHAPES: dict[str, tuple[int, ...]] = {"w": (5, 7), "v": (5, 7), "b": (3,), "s": ()}
RULES: dict[str, Callable[[], UpdateRule]] = {
    "adamw": lambda: optimizers.adamw(LINE, weight_decay=0.1),
    "sgd": lambda: optimizers.sgd(LINE, momentum=0.9, nesterov=True),
    "lion": lambda: optimizers.lion(LINE, weight_decay=0.1),
    "averaged": lambda: transforms.weight_average(optimizers.sgd(LINE), 0.9),
}
TRANSFORMS: dict[str, Callable[[UpdateRule], UpdateRule]] = {
    "kahan": transforms.kahan,
    "master_weights": transforms.master_weights,
    "stochastic_rounding": lambda rule: transforms.stochastic_rounding(rule, seed=3),
}
STEPS = 5
with_compiler = pytest.mark.skipif(c_compiler() is None, reason="there is no C compiler")


def drawn(seed: int, kind: Any = BF16) -> Arrays:
    rng = np.random.default_rng(seed)
    return {name: np.asarray(rng.normal(size=shape)).astype(kind) for name, shape in SHAPES.items()}


def bits(array: NDArray[Any]) -> bytes:
    return np.ascontiguousarray(array).tobytes()


def session_arrays(session: OptimizerSession) -> dict[str, Arrays]:
    return {"param": dict(session.params), **{k: dict(v) for k, v in session.states.items()}}


def run_session(rule: UpdateRule, steps: int = STEPS, **options: Any) -> dict[str, Arrays]:
    session = OptimizerSession(rule, drawn(0), **options)
    for seed in range(1, steps + 1):
        session.step(drawn(seed))
    return session_arrays(session)


def as_torch(array: NDArray[Any]) -> torch.Tensor:
    return torch.tensor(array.view(np.int16)).view(torch.bfloat16)


def as_numpy(tensor: torch.Tensor) -> NDArray[Any]:
    if tensor.dtype is torch.bfloat16:
        return tensor.detach().view(torch.int16).numpy().view(BF16)
    return tensor.detach().numpy()


def run_torch(
    rule: UpdateRule, steps: int = STEPS, *, backend: str = "eager", is_traced: bool = False
) -> dict[str, Arrays]:
    params = {name: torch.nn.Parameter(as_torch(array)) for name, array in drawn(0).items()}
    optimizer = cf.torch.Optimizer(params.values(), rule, backend=backend)
    step = torch.compile(optimizer.step) if is_traced else optimizer.step
    for seed in range(1, steps + 1):
        for name, gradient in drawn(seed).items():
            params[name].grad = as_torch(gradient)
        step()
    states = {
        label: {name: as_numpy(optimizer.state[param][label]) for name, param in params.items()}
        for label in rule.states
    }
    return {"param": {name: as_numpy(param) for name, param in params.items()}, **states}


def run_module(rule: UpdateRule) -> dict[str, Arrays]:
    """The functional module of torch, without the drop-in's machinery."""
    module = cf.to_torch(rule, params=SHAPES)
    params = {name: as_torch(array) for name, array in drawn(0).items()}
    states = module.initial_states(params)
    for seed in range(1, STEPS + 1):
        grads = {name: as_torch(array) for name, array in drawn(seed).items()}
        params, states = module(params, grads, states, torch.tensor(seed - 1))
    nested = {label: {k: as_numpy(v) for k, v in of.items()} for label, of in states.items()}
    return {"param": {name: as_numpy(value) for name, value in params.items()}, **nested}


def run_jax(rule: UpdateRule) -> dict[str, Arrays]:
    """With scalars of float64, as every other engine has them."""
    jax: Any = importlib.import_module("jax")
    with jax.enable_x64(True):
        return run_traced(rule, jax)


def run_traced(rule: UpdateRule, jax: Any) -> dict[str, Arrays]:
    optax: Any = importlib.import_module("optax")
    made = cf.to_jax(rule)
    params = {name: jax.numpy.asarray(array) for name, array in drawn(0).items()}
    carried, update = made.init(params), jax.jit(made.update)
    for seed in range(1, STEPS + 1):
        grads = {name: jax.numpy.asarray(array) for name, array in drawn(seed).items()}
        changes, carried = update(grads, carried, params)
        params = optax.apply_updates(params, changes)
    states = {
        label: {k: np.asarray(v) for k, v in of.items()} for label, of in carried.states.items()
    }
    return {"param": {name: np.asarray(value) for name, value in params.items()}, **states}


ENGINES: dict[str, Callable[[UpdateRule], dict[str, Arrays]]] = {
    "c": lambda rule: run_session(rule, backend="c"),
    "onnxruntime, two threads": lambda rule: run_session(rule, threads=2),
    "torch": run_torch,
    "torch module": run_module,
    "jax": run_jax,
}


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("name", RULES)
def test_every_engine_has_the_same_bits(name: str, transform: str, engine: str) -> None:
    if engine == "c" and c_compiler() is None:
        pytest.skip("there is no C compiler")
    rule = TRANSFORMS[transform](RULES[name]())
    reference, actual = run_session(rule, threads=1), ENGINES[engine](rule)
    assert set(actual) == set(reference) == {"param", *rule.states}
    for label, arrays in reference.items():
        for key, array in arrays.items():
            assert actual[label][key].dtype == array.dtype, (label, key)
            assert bits(actual[label][key]) == bits(array), (label, key)


INTEGERS_AS_STATES = UpdateRule(
    "integers",
    PARAM - state("k") / 100,
    {"k": State(state("k") / 2 + 90 * GRAD, -5, stored="i8")},
    stored="bf16",
)


@pytest.mark.parametrize("engine", ENGINES)
def test_states_of_8_bits_are_the_same_integers(engine: str) -> None:
    if engine == "c" and c_compiler() is None:
        pytest.skip("there is no C compiler")
    reference, actual = (
        run_session(INTEGERS_AS_STATES, threads=1),
        ENGINES[engine](INTEGERS_AS_STATES),
    )
    integers = np.concatenate([array.ravel() for array in reference["k"].values()])
    assert integers.dtype == np.int8
    assert {-128, 127} < set(integers.tolist())
    for label, arrays in reference.items():
        for key, array in arrays.items():
            assert actual[label][key].dtype == array.dtype, (label, key)
            assert bits(actual[label][key]) == bits(array), (label, key)


def test_a_state_of_8_bits_is_the_nearest_integer_towards_0() -> None:
    rule = UpdateRule("integers", PARAM + state("k"), {"k": State(GRAD, -5, stored="i8")})
    numbers = [-np.inf, -1e30, -128.5, -127.9, -1.5, -0.0, 2.9, 126.9, 127.5, 300, np.inf, np.nan]
    stored = [-128, -128, -128, -127, -1, 0, 2, 126, 127, 127, 127, 127]
    session = OptimizerSession(rule, {"w": np.zeros(len(numbers), np.float32)})
    session.step({"w": np.array(numbers, np.float32)})
    assert session.params["w"].tolist() == [-5] * len(numbers)
    assert session.states["k"]["w"].dtype == np.int8
    assert session.states["k"]["w"].tolist() == stored


def test_a_rule_with_a_state_of_8_bits_is_proved() -> None:
    assert validate(INTEGERS_AS_STATES, compile_step(ModelSpec(INTEGERS_AS_STATES, SHAPES))).proved
    next_state = INTEGERS_AS_STATES.states["k"].next + sp.Rational(1, 2)
    fault = replace(
        INTEGERS_AS_STATES, states={"k": replace(INTEGERS_AS_STATES.states["k"], next=next_state)}
    )
    assert validate(fault, compile_step(ModelSpec(INTEGERS_AS_STATES, SHAPES))).refuted


@pytest.mark.filterwarnings(COMPILING)
@pytest.mark.parametrize(
    ("transform", "is_traced"),
    [
        ("kahan", False),
        pytest.param("kahan", True, marks=pytest.mark.exhaustive),
        pytest.param("stochastic_rounding", False, marks=pytest.mark.exhaustive),
    ],
)
def test_compiled_steps_round_to_16_bits(transform: str, is_traced: bool) -> None:
    """Inductor leaves out a conversion to 16 bits and back: kahan would compensate nothing."""
    rule = TRANSFORMS[transform](RULES["adamw"]())
    backend = "eager" if is_traced else "compile"
    actual = run_torch(rule, backend=backend, is_traced=is_traced)
    for label, arrays in run_session(rule, threads=1).items():
        for key, array in arrays.items():
            assert bits(actual[label][key]) == bits(array), (label, key)


@pytest.mark.filterwarnings(COMPILING)
@pytest.mark.parametrize("backend", ["eager", "compile"])
def test_roots_are_rounded_to_nearest(backend: str) -> None:
    """MKL, which torch calls, is off by one place in 20 % of them."""
    rng = np.random.default_rng(2)
    numbers = np.float32(rng.uniform(0.01, 4, 1000))
    rule = UpdateRule(
        "root", PARAM, {"m": State(sp.sqrt(state("m")), 1), "half": State(GRAD, stored="bf16")}
    )
    param = torch.nn.Parameter(torch.zeros(1000))
    optimizer = cf.torch.Optimizer([param], rule, backend=backend)
    param.grad = torch.zeros(1000)
    optimizer.step()  # makes the states
    optimizer.state[param]["m"].copy_(torch.tensor(numbers))
    optimizer.step()
    np.testing.assert_array_equal(optimizer.state[param]["m"].numpy(), np.sqrt(numbers))


# --- kahan ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("stored", ["bf16", "f16"])
def test_parameter_and_compensation_hold_16_bits(stored: str) -> None:
    """|p' + c' - w'| <= 2**-16 |w'| in bf16 and 2**-22 |w'| in f16, on random float32 numbers."""
    kind = DType(stored).numpy
    rng = np.random.default_rng(0)
    exact = np.float32(rng.normal(size=2**16) * 2.0 ** rng.integers(-4, 8, 2**16))
    # The next parameter is a state here, so that it may be any number of float32.
    holder = UpdateRule("holder", state("exact"), {"exact": State(state("exact"))})
    rule = transforms.kahan(holder, stored)
    session = OptimizerSession(rule, {"w": np.zeros(2**16, kind)})
    saved = session.state_dict()
    saved["states"]["exact"] = {"w": exact}
    session.load_state_dict(saved)
    session.step({"w": np.zeros(2**16, kind)})
    parameter = session.params["w"].astype(np.float64)
    rest = session.states["compensation"]["w"]
    assert rest.dtype == kind
    error = np.abs(parameter + rest.astype(np.float64) - exact)
    bound = 2.0**-16 if stored == "bf16" else 2.0**-22
    # In f16 the rest may be subnormal: it is off by half of the least number then.
    least = 0 if stored == "bf16" else 2.0**-25
    assert (error <= np.abs(exact) * bound + least).all()
    np.testing.assert_array_equal(session.params["w"], exact.astype(kind))


def test_small_steps_are_not_lost() -> None:
    """A thousand steps of 1e-5 from 1: each is a hundredth of half a unit of bf16."""
    gradient = {"w": np.ones(1, BF16)}
    moved = {}
    for name, transform in {"none": None, **TRANSFORMS}.items():
        rule = optimizers.sgd(1e-5)
        rule = (
            UpdateRule("sgd", rule.param, hyperparameters=rule.hyperparameters, stored="bf16")
            if (transform is None)
            else transform(rule)
        )
        session = OptimizerSession(rule, {"w": np.ones(1, BF16)})
        for _ in range(1000):
            session.step(gradient)
        rest = session.states.get("compensation", {"w": np.zeros(1)})["w"]
        moved[name] = 1 - (float(session.params["w"][0]) + float(rest[0]))
    assert moved["none"] == 0
    # A standard deviation is 2**-8 * sqrt(1000 * 1e-5 / 2**-8): a random walk of units near 1.
    assert moved["stochastic_rounding"] == pytest.approx(0.01, abs=4 * 2.0**-8 * 1.6)
    # Half a unit of the compensation near 2**-8 is 2**-17: it is at most 0.76 of a step of 1e-5.
    assert moved["kahan"] == pytest.approx(0.01, rel=0.25)
    assert moved["master_weights"] == pytest.approx(0.01, abs=2.0**-9)


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_a_saved_run_goes_on(transform: str) -> None:
    rule = TRANSFORMS[transform](RULES["adamw"]())
    first, second = OptimizerSession(rule, drawn(0)), OptimizerSession(rule, drawn(7))
    for seed in (1, 2):
        first.step(drawn(seed))
    second.load_state_dict(first.state_dict())
    for session in (first, second):
        session.step(drawn(3))
    for label, arrays in session_arrays(first).items():
        for key, array in arrays.items():
            assert bits(session_arrays(second)[label][key]) == bits(array), (label, key)


def test_a_saved_run_of_torch_goes_on() -> None:
    rule = transforms.kahan(RULES["adamw"]())
    params = [torch.nn.Parameter(as_torch(array)) for array in drawn(0).values()]
    first = cf.torch.Optimizer(params, rule)
    for param, gradient in zip(params, drawn(1).values(), strict=True):
        param.grad = as_torch(gradient)
    first.step()
    copies = [torch.nn.Parameter(param.detach().clone()) for param in params]
    second = cf.torch.Optimizer(copies, rule)
    second.load_state_dict(first.state_dict())
    for param, copy in zip(params, copies, strict=True):
        copy.grad = param.grad
        assert second.state[copy]["compensation"].dtype is torch.bfloat16
    first.step()
    second.step()
    for param, copy in zip(params, copies, strict=True):
        assert bits(as_numpy(param)) == bits(as_numpy(copy))


def test_parameters_of_another_dtype_are_refused() -> None:
    with pytest.raises(ArgumentError) as caught:
        cf.torch.Optimizer([torch.nn.Parameter(torch.ones(2))], transforms.kahan(optimizers.sgd(1)))
    assert str(caught.value) == (
        "the rule 'sgd' is for parameters of torch.bfloat16, got torch.float32 "
        "(Optimizer, param group 0): convert the model with .to(torch.bfloat16), or leave the "
        "transform out"
    )


def test_unknown_dtypes_of_states_are_refused() -> None:
    with pytest.raises(DefinitionError) as caught:
        UpdateRule("rule", PARAM - GRAD, {"s": State(GRAD, stored="i4")})
    assert str(caught.value) == (
        "stored must be one of ('bf16', 'f16', 'i8') or None, got 'i4' (rule 'rule', state 's')"
    )


def test_states_of_float16_have_no_type_in_c() -> None:
    rule = UpdateRule("rule", PARAM - state("s"), {"s": State(GRAD, stored="f16")})
    with pytest.raises(ExportError, match="C11 has no type for f16, in which the rule stores"):
        cf.to_c(rule)


@with_compiler
def test_states_of_16_bits_of_a_float32_parameter() -> None:
    """The parameter is not rounded, and the state is, in each engine."""
    rule = UpdateRule(
        "momentum",
        PARAM - state("m") / 10,
        {
            "m": State(state("m") / 2 + GRAD, stored="bf16"),
            "first": State(state("first"), PARAM, stored="bf16"),
        },
    )
    results = []
    for backend in ("onnxruntime", "c"):
        session = OptimizerSession(rule, drawn(0, np.float32), backend=backend)
        for seed in (1, 2, 3):
            session.step(drawn(seed, np.float32))
        results.append(session_arrays(session))
    for label, arrays in results[0].items():
        for key, array in arrays.items():
            assert array.dtype == (np.float32 if label == "param" else BF16)
            assert bits(array) == bits(results[1][label][key])
    params = {name: torch.nn.Parameter(torch.tensor(a)) for name, a in drawn(0, np.float32).items()}
    optimizer = cf.torch.Optimizer(params.values(), rule)
    for seed in (1, 2, 3):
        for name, gradient in drawn(seed, np.float32).items():
            params[name].grad = torch.tensor(gradient)
        optimizer.step()
    for name, param in params.items():
        assert bits(as_numpy(param)) == bits(results[0]["param"][name])
        for label in rule.states:
            assert bits(as_numpy(optimizer.state[param][label])) == bits(results[0][label][name])


# --- stochastic rounding -------------------------------------------------------------------------


def rounded_at_random(exact: NDArray[np.float32], seed: int, stored: str, step: int = 0) -> Any:
    """The next parameters where the exact ones are these."""
    holder = UpdateRule("holder", state("exact"), {"exact": State(state("exact"))})
    rule = transforms.stochastic_rounding(holder, stored=stored, seed=seed)
    graph = compile_step(ModelSpec(rule, {"w": exact.shape}))
    zeros = np.zeros(exact.shape, DType(stored).numpy)
    feeds = {"param.w": zeros, "grad.w": zeros, "state.w.exact": exact, "step": np.array(step)}
    return evaluate(graph, feeds)["next.param.w"]


@pytest.mark.parametrize("stored", ["bf16", "f16"])
def test_the_expectation_is_the_exact_value(stored: str) -> None:
    """Over all 2**16 numbers u, the count of the neighbour is |d| / |n' - n| * 2**16 exactly."""
    kind = DType(stored).numpy
    rng = np.random.default_rng(1)
    every = np.arange(2**16, dtype=np.uint16).view(kind)
    wide = every.astype(np.float32)
    normal = wide[np.isfinite(wide)]
    # All floats of 16 bits but the largest and the least, each with some remainders.
    least, most = (2.0**-118, 3.3e38) if stored == "bf16" else (2.0**-14, 6e4)
    normal = normal[(np.abs(normal) >= least) & (np.abs(normal) < most)]
    width = 16 if stored == "bf16" else 13
    remainders = rng.integers(0, 2**width, (20, normal.size), dtype=np.uint32)
    remainders[:3] = np.array([0, 1, 2**width - 1], np.uint32)[:, None]
    exact = (normal.view(np.uint32) + remainders).view(np.float32)
    nearest = exact.astype(kind).astype(np.float32)
    rest = (exact - nearest).astype(np.float64)
    assert (exact == nearest + rest).all()
    # The neighbour by bits: towards the exact number, one number of 16 bits further.
    outward = (rest > 0) == (exact > 0)
    code = nearest.astype(kind).view(np.uint16).astype(np.int32) + np.where(outward, 1, -1)
    neighbour = code.astype(np.uint16).view(kind).astype(np.float64)
    gap = np.abs(neighbour - nearest)
    share = np.abs(rest) / gap * 2**16
    assert (share == np.floor(share)).all()
    assert (share <= 2**16).all()
    # u < share / 2**16 for as many u as the share, and then the neighbour is taken.
    draws = uniform(exact.shape, 5, 7, np.dtype(np.float32))
    expected = np.where((np.abs(rest) > draws * gap) & (rest != 0), neighbour, nearest)
    actual = rounded_at_random(exact, 7, stored, 5)
    np.testing.assert_array_equal(actual.astype(np.float64), expected)


def test_all_draws_of_a_binade() -> None:
    """The mean over all u of 1 + k 2**-23 is itself, for each of its 2**16 remainders k."""
    share = np.arange(2**16)
    exact = np.float32(1 + share * 2.0**-23)
    nearest = exact.astype(BF16).astype(np.float64)
    rest = exact - nearest
    neighbour = nearest + np.where(rest > 0, 2.0**-7, -(2.0**-7))
    count = np.ceil(np.abs(rest) / 2.0**-7 * 2**16)  # numbers u = 0, 2**-16, … below the share
    np.testing.assert_array_equal(nearest + (neighbour - nearest) * count / 2**16, exact)


def test_numbers_that_are_not_finite() -> None:
    largest = float(np.finfo(np.float32).max)
    exact = np.array([np.inf, -np.inf, np.nan, largest, -largest, 0.0, 1e-40], np.float32)
    for step in range(3):
        actual = rounded_at_random(exact, 0, "bf16", step)
        expected = exact[:6].astype(BF16).astype(np.float32)
        np.testing.assert_array_equal(actual[:6].astype(np.float32), expected)
        assert 0 <= float(actual[6]) <= 2.0**-126


def chi_square(*columns: NDArray[Any]) -> float:
    """Chi-square of the joint counts, in standard deviations from its expectation."""
    bins = 256 if len(columns) == 1 else 16
    places = sum(np.floor(c.ravel() * bins) * bins**i for i, c in enumerate(columns))
    counts = np.bincount(np.asarray(places, np.int64), minlength=bins ** len(columns))
    expected = columns[0].size / counts.size
    freedom = counts.size - 1
    return float((((counts - expected) ** 2 / expected).sum() - freedom) / np.sqrt(2 * freedom))


def test_random_numbers_are_uniform_and_independent() -> None:
    """Elements, neighbours at five distances, steps and seeds; 5 of 250 values exceed 3 by chance.

    The largest of 420 normal numbers is below 4.5 with a probability of 0.997; chi-square has a
    longer tail. The numbers are fixed, so that the test cannot fail by chance.
    """
    kind = np.dtype(np.float32)
    values = []
    previous = uniform((2**16,), 0, 0, kind)
    for step in range(1, 61):
        numbers = uniform((2**16,), step, 0, kind)
        values.append(chi_square(numbers))
        values += [chi_square(numbers[d:], numbers[:-d]) for d in (1, 2, 64, 1000)]
        values.append(chi_square(previous, numbers))
        values.append(chi_square(uniform((2**16,), step, 1, kind), numbers))
        previous = numbers
    over_steps = np.array([uniform((64,), step, 0, kind) for step in range(2**13)])
    values += [chi_square(over_steps[:, place]) for place in range(64)]
    values += [chi_square(over_steps[1:, place], over_steps[:-1, place]) for place in range(64)]
    assert np.abs(np.mean(values)) < 4 / np.sqrt(len(values))
    assert np.std(values) == pytest.approx(1, abs=0.1)
    assert np.max(np.abs(values)) < 5
    assert over_steps.min() == 0
    assert over_steps.max() == 1 - 2.0**-16


def test_steps_beyond_32_bits_and_shapes() -> None:
    kind = np.dtype(np.float32)
    late = [uniform((2, 3), 2**32 * high + 5, 0, kind) for high in range(3)]
    assert not np.array_equal(late[0], late[1])
    assert not np.array_equal(late[1], late[2])
    np.testing.assert_array_equal(late[0].ravel(), uniform((6,), 5, 0, kind))
    assert [seed_of_word(seed_word(seed)) for seed in (0, 1, 2**32 - 1)] == [0, 1, 2**32 - 1]


def test_seeds_and_steps_differ_and_runs_agree() -> None:
    first, again, other = (
        run_session(transforms.stochastic_rounding(RULES["sgd"](), seed=seed), threads=1)
        for seed in (1, 1, 2)
    )
    assert bits(first["param"]["w"]) == bits(again["param"]["w"])
    assert bits(first["param"]["w"]) != bits(other["param"]["w"])


@pytest.mark.parametrize("seed", [-1, 2**32, 1.0, True])
def test_seeds_are_integers_of_32_bits(seed: Any) -> None:
    with pytest.raises(DefinitionError) as caught:
        transforms.stochastic_rounding(optimizers.sgd(0.1), seed=seed)
    assert str(caught.value) == f"the seed must be an integer in [0, 2**32), got {seed!r}"


FAULTS: dict[str, Callable[[Any], None]] = {
    "factor": lambda model: replace_word(model, 0x846CA68B, 0x846CA68D),
    "shift": lambda model: replace_word(model, 15, 14),
    "seed": lambda model: replace_word(model, seed_word(4), seed_word(5)),
    "operator": lambda model: replace_operator(model, "BitwiseXor", "Add"),
    "first place": lambda model: replace_operand(model, "Range", 0, 2),
}


def replace_word(model: Any, before: int, after: int) -> None:
    for tensor in model.graph.initializer:
        if (
            tensor.data_type == onnx.TensorProto.UINT32
            and onnx.numpy_helper.to_array(tensor) == before
        ):
            tensor.CopyFrom(onnx.helper.make_tensor(tensor.name, tensor.data_type, (), [after]))
            return
    raise AssertionError(before)


def replace_operator(model: Any, before: str, after: str) -> None:
    next(node for node in model.graph.node if node.op_type == before).op_type = after


def replace_operand(model: Any, operator: str, place: int, source: int) -> None:
    node = next(node for node in model.graph.node if node.op_type == operator)
    node.input[place] = node.input[source]


@pytest.mark.parametrize("fault", ["none", *FAULTS])
def test_files_are_read_and_faults_are_seen(fault: str, tmp_path: Path) -> None:
    rule = transforms.stochastic_rounding(optimizers.sgd(0.1), seed=4)
    cf.to_onnx(rule, tmp_path, params={"w": (3, 4)})
    model = onnx.load(str(tmp_path / "step.onnx"))
    FAULTS.get(fault, lambda _: None)(model)
    if fault in ("none", "seed"):
        (node,) = (node for node in read_model(model).nodes if node.op is Op.UNIFORM)
        assert node.attribute("seed") == (4 if fault == "none" else 5)
        return
    with pytest.raises(VerificationError, match="unsigned integers that are not random numbers"):
        read_model(model)
