"""Every rule at the edges of float32, in three engines: zeros, 1e±20, infinities, late steps."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from closedform import optimizers, schedules
from closedform.compiler import compile_init, compile_step
from closedform.exporters.onnx_model import to_model
from closedform.exporters.torch_module import to_module
from closedform.ir.evaluate import evaluate
from closedform.ir.graph import Graph
from closedform.ir.types import DType
from closedform.language import UpdateRule
from closedform.options import ModelSpec
from closedform.runtime import OptimizerSession
from closedform.runtime.onnx_session import open_session
from tests.support.trajectories import trajectory
from tests.test_library import OPTIMIZERS

Array = NDArray[Any]

SHAPE = (3, 4)
START = np.asarray(np.random.default_rng(0).normal(size=SHAPE), np.float32)
EXTREME = np.array([1e20, -1e20, 1e-20, -1e-20, 0, 1, -1, 1e10, -1e10, 1e-10, 3, 5])
GRADIENTS: dict[str, Array] = {
    "zeros": np.zeros(SHAPE),
    "extreme": EXTREME.reshape(SHAPE),
    "not finite": np.array([np.inf, -np.inf, np.nan, *range(9)]).reshape(SHAPE),
}

# A state is the mean of squares of a row, 3e39 here: no float32. Its share is inf / inf, as in the
# frameworks that these rules are from; see the tests of the largest gradients.
# The sums of squares of ftrl and momo, and products of gradients, overflow as in their packages.
OVERFLOWING = {"adafactor", "adafactor_clamped", "came", "ftrl", "momo", "kron", "shampoo", "soap"}
# Rules that divide every element by a norm of the whole model: a NaN in one spoils them all.
SPREADING = {"adams", "d_adapt_sgd", "dog", "dowg", "momo"}


def engines(graph: Graph) -> list[Any]:
    """Functions from a feed to results: the evaluator, onnxruntime, torch."""
    session = open_session(to_model(graph), threads=1, is_optimized=False)
    module = to_module(graph)

    def in_onnxruntime(feed: Mapping[str, Array]) -> dict[str, Array]:
        return dict(zip(session.outputs, session.raw.run(None, dict(feed)), strict=True))

    def in_torch(feed: Mapping[str, Array]) -> dict[str, Array]:
        given = [torch.from_numpy(np.array(feed[name])) for name in module.input_names]
        results = module(*given)
        named = zip(module.output_names, results, strict=True)
        return {name: value.numpy() for name, value in named}

    def in_numpy(feed: Mapping[str, Array]) -> dict[str, Array]:
        with np.errstate(all="ignore"):
            return evaluate(graph, feed)

    return [in_numpy, in_onnxruntime, in_torch]


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_edges_in_every_engine(name: str) -> None:
    rule = OPTIMIZERS[name]()
    run, *others = engines(compile_step(ModelSpec(rule, {"w": SHAPE})))
    init = compile_init(ModelSpec(rule, {"w": SHAPE}))
    first = evaluate(init, {node.attribute("name"): START for node in init.inputs})
    for kind, gradient in GRADIENTS.items():
        feed: dict[str, Any] = {**first, "param.w": START}
        feed |= {key: np.array(1.0) for key, value in rule.hyperparameters.items() if value is None}
        for step, factor in enumerate((1, 1, -0.5)):
            feed["step"] = np.asarray(step)
            feed["grad.w"] = (factor * gradient).astype(np.float32)
            for label in rule.inputs:
                feed[f"input.w.{label}"] = np.ones(SHAPE, np.float32)
            results = run(feed)
            for other in others:
                for key, value in other(feed).items():
                    # Up to ten roundings and sums of twelve elements, on a scale of 1 or of values
                    # that overflow in one engine where they do in the others.
                    np.testing.assert_allclose(
                        value, results[key], rtol=1e-5, atol=1e-6, err_msg=f"{kind}: {key}"
                    )
            feed |= {key.removeprefix("next."): value for key, value in results.items()}
        is_finite = bool(np.isfinite(feed["param.w"]).all())
        if kind == "extreme":
            assert is_finite == (name not in OVERFLOWING)
        if kind == "zeros":
            assert is_finite
        if kind == "not finite" and rule.is_elementwise and name not in SPREADING:
            assert np.isfinite(feed["param.w"]).sum() >= SHAPE[0] * SHAPE[1] - 3


def after_steps(rule: UpdateRule, gradients: list[Array], dtype: DType) -> Array:
    given = [{"w": gradient} for gradient in gradients]
    *_, last = trajectory(rule, {"w": START}, given, dtype)
    return np.asarray(last["param.w"])


FACTORED: dict[str, Callable[[], UpdateRule]] = {
    "adafactor": lambda: optimizers.adafactor(relative_step=False),
    "adafactor_clamped": lambda: optimizers.adafactor(
        eps=(2**-23, 1e-3), floor="clamped", relative_step=False
    ),
    "came": lambda: optimizers.came(0.01),
}


@pytest.mark.parametrize("name", FACTORED)
@pytest.mark.parametrize("size", [1e-6, 1e9, 1e12, 1e15, 1e18])
def test_large_gradients_whose_means_fit_are_stepped_along(name: str, size: float) -> None:
    gradients = [size * np.cos(np.arange(12.0).reshape(SHAPE) + place) for place in range(3)]
    moved = after_steps(FACTORED[name](), gradients, DType.F32) - START
    wanted = after_steps(FACTORED[name](), gradients, DType.F64) - START
    # Three steps of about ten roundings of 6e-8 of parameters near 1, which each move by 0.01.
    np.testing.assert_allclose(moved, wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", FACTORED)
def test_gradients_whose_means_overflow_float32_agree_with_the_formula(name: str) -> None:
    gradient = GRADIENTS["extreme"]
    assert (gradient**2).mean(-1).max() > np.finfo(np.float32).max
    assert np.isnan(after_steps(FACTORED[name](), [gradient], DType.F32)).any()
    assert np.isfinite(after_steps(FACTORED[name](), [gradient], DType.F64)).all()
    with np.errstate(all="ignore"):
        rows = (gradient.astype(np.float32) ** 2).mean(-1)
        assert np.isnan(rows / rows.mean()).any()


def test_torch_has_no_number_there_either() -> None:
    gradient = torch.from_numpy(GRADIENTS["extreme"].astype(np.float32))
    parameter = torch.nn.Parameter(torch.from_numpy(START.copy()))
    parameter.grad = gradient
    torch.optim.Adafactor([parameter], foreach=False).step()
    assert parameter.isnan().any()


def test_d_adaptation_begins_with_the_first_gradient_that_is_not_zero() -> None:
    rule = optimizers.d_adapt_sgd(0.5, 0.9, d0=1e-3)
    gradients = [np.cos(np.arange(12.0).reshape(SHAPE) + place) for place in range(5)]
    zeros = [np.zeros(SHAPE)] * 2
    np.testing.assert_array_equal(after_steps(rule, zeros, DType.F64), START)
    np.testing.assert_array_equal(
        after_steps(rule, [*zeros, *gradients], DType.F64),
        after_steps(rule, gradients, DType.F64),
    )


@pytest.mark.parametrize("name", ["sgd", "adafactor", "muon"])
def test_a_late_step_still_counts(name: str) -> None:
    late = 2**24
    rate = schedules.piecewise_constant([0.5, 0.25], [late + 1])
    make = {
        "sgd": lambda: optimizers.sgd(rate),
        "adafactor": lambda: optimizers.adafactor(rate, relative_step=False, scale_parameter=False),
        "muon": lambda: optimizers.muon(rate, 0),
    }
    session = OptimizerSession(make[name](), {"w": np.ones((2, 2), np.float32)})
    state = session.state_dict()
    session.load_state_dict({**state, "step": late})
    moved = []
    for expected in (late + 1, late + 2):
        before = session.params["w"].copy()
        session.step({"w": np.eye(2, dtype=np.float32)})
        moved.append(float(np.abs(session.params["w"] - before).max()))
        assert session.t == expected
    # The rate halves at step 2**24 + 1, which no float32 tells from the step before.
    assert moved[1] / moved[0] == pytest.approx(0.5, rel=0.2)


def test_arrays_that_are_not_contiguous_are_named() -> None:
    session = OptimizerSession(optimizers.adafactor(), {"w": START})
    with pytest.raises(Exception, match="must be C-contiguous, got strides") as caught:
        session.step({"w": np.asfortranarray(START)})
    assert "numpy.ascontiguousarray" in str(caught.value)
    # As a parameter it is copied anyway.
    turned = OptimizerSession(optimizers.adafactor(), {"w": np.asfortranarray(START)})
    for each in (session, turned):
        each.step({"w": START})
    np.testing.assert_array_equal(turned.params["w"], session.params["w"])
