"""Each rule against its formula, written a second time as a float64 loop in NumPy."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from closedform import optimizers, schedules
from closedform.compiler import compile_init, compile_step
from closedform.errors import DefinitionError
from closedform.ir.evaluate import evaluate
from closedform.ir.types import DType
from closedform.language import UpdateRule
from closedform.options import GraphOptions, ModelSpec

Array = NDArray[np.float64]

START = np.array([[4.0, -1.0, 0.5], [0.0, 2.0, -3.0]])
STEPS = 8


def gradients() -> list[Array]:
    """Eight gradients with changes of sign, and one step of zeros."""
    rng = np.random.default_rng(5)
    drawn = [rng.normal(size=START.shape) + 0.3 for _ in range(STEPS)]
    drawn[4] = np.zeros(START.shape)
    return drawn


def trajectory(rule: UpdateRule, dtype: DType = DType.F64) -> Any:
    """The parameter after the gradients, by the evaluator."""
    shapes = {"p": START.shape}
    graph = compile_step(ModelSpec(rule, shapes), GraphOptions(dtype=dtype))
    first = evaluate(compile_init(ModelSpec(rule, shapes), GraphOptions(dtype=dtype)), {})
    feed: dict[str, Any] = {**first, "param.p": START.astype(dtype.numpy)}
    for gradient in gradients():
        results = evaluate(graph, {**feed, "grad.p": gradient.astype(dtype.numpy)})
        feed = {name.removeprefix("next."): value for name, value in results.items()}
    assert feed["step"] == STEPS
    return feed["param.p"]


def steps() -> Iterator[tuple[int, Array]]:
    """The gradients with the step number, from 1."""
    return enumerate(gradients(), 1)


def rmsprop() -> Array:
    p, q, b, a = START, np.zeros(1), np.zeros(1), np.zeros(1)
    for _, g in steps():
        g = -g + 0.1 * p
        q = 0.9 * q + 0.1 * g * g
        a = 0.9 * a + 0.1 * g
        b = 0.5 * b + g / (np.sqrt(q - a * a) + 1e-3)
        p = p - 0.01 * b
    return p


def adagrad() -> Array:
    p, s = START, np.full(1, 0.25)
    for k, g in steps():
        g = g + 0.1 * p
        s = s + g * g
        p = p - 0.1 / (1 + 0.2 * (k - 1)) * g / (np.sqrt(s) + 1e-3)
    return p


def lion() -> Array:
    p, m = START, np.zeros(1)
    for _, g in steps():
        p = p - 0.1 * (np.sign(0.8 * m + 0.2 * g) + 0.3 * p)
        m = 0.95 * m + 0.05 * g
    return p


def adamax() -> Array:
    p, m, n = START, np.zeros(1), np.zeros(1)
    for k, g in steps():
        g = g + 0.1 * p
        m = 0.8 * m + 0.2 * g
        n = np.maximum(0.95 * n, np.abs(g) + 1e-3)
        p = p - 0.1 / (1 - 0.8**k) * m / n
    return p


def nadam() -> Array:
    p, m, v, product = START, np.zeros(1), np.zeros(1), 1.0
    for k, g in steps():
        now, ahead = (0.8 * (1 - 0.5 * 0.96 ** (0.1 * j)) for j in (k, k + 1))
        product = product * now
        m = 0.8 * m + 0.2 * g
        v = 0.95 * v + 0.05 * g * g
        u = ahead * m / (1 - product * ahead) + (1 - now) * g / (1 - product)
        p = p - 0.1 * u / (np.sqrt(v / (1 - 0.95**k)) + 1e-3) - 0.1 * 0.2 * p
    return p


def radam() -> Array:
    p, m, v = START, np.zeros(1), np.zeros(1)
    limit = 2 / (1 - 0.95) - 1
    for k, g in steps():
        g = g + 0.2 * p
        m = 0.8 * m + 0.2 * g
        v = 0.95 * v + 0.05 * g * g
        c = 1 - 0.95**k
        rho = limit - 2 * k * 0.95**k / c
        scale = 1.0
        if rho > 5:
            rect = (rho - 4) * (rho - 2) * limit / ((limit - 4) * (limit - 2) * rho)
            scale = np.sqrt(rect * c) / (np.sqrt(v) + 1e-3)
        p = p - 0.1 * m / (1 - 0.8**k) * scale
    return p


def adadelta() -> Array:
    p, q, a = START, np.zeros(1), np.zeros(1)
    for _, g in steps():
        g = g + 0.1 * p
        q = 0.9 * q + 0.1 * g * g
        d = np.sqrt(a + 1e-3) / np.sqrt(q + 1e-3) * g
        a = 0.9 * a + 0.1 * d * d
        p = p - 0.5 * d
    return p


def lamb() -> Array:
    p, m, v = START, np.zeros(1), np.zeros(1)
    for k, g in steps():
        m = 0.8 * m + 0.2 * g
        v = 0.95 * v + 0.05 * g * g
        u = m / (1 - 0.8**k) / (np.sqrt(v / (1 - 0.95**k)) + 1e-3) + 0.1 * p
        p = p - 0.1 * min(float(np.linalg.norm(p)), 5) / np.linalg.norm(u) * u
    return p


def rprop() -> Array:
    p, r, z = START, np.zeros(START.shape), np.full(START.shape, 0.1)
    for _, g in steps():
        k = np.where(g * r > 0, 1.5, np.where(g * r < 0, 0.25, 1))
        z = np.clip(z * k, 0.05, 0.2)
        r = np.where(g * r < 0, 0, g)
        p = p - np.sign(r) * z
    return p


def asgd() -> Array:
    p = START
    for k, g in steps():
        p = p - 0.1 * (1 + 0.2 * 0.1 * (k - 1)) ** -0.5 * (g + 0.1 * p + 0.2 * p)
    return p


CASES: dict[str, tuple[UpdateRule, Callable[[], Array]]] = {
    "rmsprop": (
        optimizers.rmsprop(0.01, 0.9, 1e-3, 0.1, 0.5, centered=True, maximize=True),
        rmsprop,
    ),
    "adagrad": (optimizers.adagrad(0.1, 0.2, 0.1, 0.25, 1e-3), adagrad),
    "lion": (optimizers.lion(0.1, (0.8, 0.95), 0.3), lion),
    "adamax": (optimizers.adamax(0.1, (0.8, 0.95), 1e-3, 0.1), adamax),
    "nadam": (
        optimizers.nadam(0.1, (0.8, 0.95), 1e-3, 0.2, 0.1, decoupled_weight_decay=True),
        nadam,
    ),
    "radam": (optimizers.radam(0.1, (0.8, 0.95), 1e-3, 0.2), radam),
    "adadelta": (optimizers.adadelta(0.5, 0.9, 1e-3, 0.1), adadelta),
    "lamb": (optimizers.lamb(0.1, (0.8, 0.95), 1e-3, 0.1, largest_norm=5), lamb),
    "rprop": (optimizers.rprop(0.1, (0.25, 1.5), (0.05, 0.2)), rprop),
    "asgd": (optimizers.asgd(0.1, 0.2, 0.5, 3, 0.1), asgd),
}


@pytest.mark.parametrize("name", CASES)
def test_rule_is_its_formula(name: str) -> None:
    rule, formula = CASES[name]
    # Eight float64 steps of about 20 roundings of 1.1e-16, on parameters from 0.1 to 10.
    np.testing.assert_allclose(trajectory(rule), formula(), rtol=1e-13, atol=1e-14)


STATES: dict[str, tuple[UpdateRule, list[tuple[str, float, str]]]] = {
    "rmsprop": (optimizers.rmsprop(), [("square_avg", 0, "param")]),
    "rmsprop with all": (
        optimizers.rmsprop(momentum=0.9, centered=True),
        [("square_avg", 0, "param"), ("grad_avg", 0, "param"), ("momentum_buffer", 0, "param")],
    ),
    "adagrad": (
        optimizers.adagrad(initial_accumulator_value=0.5),
        [("sum", 0.5, "param")],
    ),
    "lion": (optimizers.lion(), [("exp_avg", 0, "param")]),
    "adamax": (optimizers.adamax(), [("exp_avg", 0, "param"), ("exp_inf", 0, "param")]),
}


@pytest.mark.parametrize("name", STATES)
def test_states_are_those_of_the_docstring(name: str) -> None:
    rule, states = STATES[name]
    found = [(key, float(spec.initial), spec.shape) for key, spec in rule.states.items()]
    assert found == states


def test_not_a_number_stays_one_through_a_sign() -> None:
    rule = optimizers.lion(0.5)
    graph = compile_step(ModelSpec(rule, {"p": (4,)}), GraphOptions(dtype=DType.F64))
    feed: dict[str, Any] = {
        "step": np.array(0),
        "param.p": np.zeros(4),
        "grad.p": np.array([3.0, -2.0, 0.0, np.nan]),
        "state.p.exp_avg": np.zeros(4),
    }
    np.testing.assert_array_equal(evaluate(graph, feed)["next.param.p"], [-0.5, 0.5, 0, np.nan])


BAD: dict[str, tuple[Callable[[], UpdateRule], str]] = {
    "rmsprop alpha": (
        lambda: optimizers.rmsprop(alpha=1.5),
        "alpha must be in [0, 1], got 1.5 (rmsprop)",
    ),
    "rmsprop centered": (
        lambda: optimizers.rmsprop(centered=None),  # type: ignore[arg-type]
        "centered must be True or False, got NoneType None (rmsprop)",
    ),
    "adagrad initial value open": (
        lambda: optimizers.adagrad(initial_accumulator_value=None),
        "initial_accumulator_value must be a number, got None (adagrad): a state starts from it, "
        "before there is a step",
    ),
    "adagrad initial value scheduled": (
        lambda: optimizers.adagrad(initial_accumulator_value=schedules.constant(1)),
        "initial_accumulator_value must be a number, got a Schedule (adagrad): a state starts from "
        "it, before there is a step",
    ),
    "adagrad initial value negative": (
        lambda: optimizers.adagrad(initial_accumulator_value=-3),
        "initial_accumulator_value must be >= 0, got -3 (adagrad)",
    ),
    "adagrad decay": (
        lambda: optimizers.adagrad(lr_decay=-0.25),
        "lr_decay must be >= 0, got -0.25 (adagrad)",
    ),
    "lion betas": (
        lambda: optimizers.lion(betas=(0.9, 0.99, 0.999)),
        "betas must be two numbers, got (0.9, 0.99, 0.999) (lion): try (0.9, 0.999)",
    ),
    "rprop scheduled rate": (
        lambda: optimizers.rprop(lr=schedules.constant(2)),
        "lr must be a number, got a Schedule (rprop): a state starts from it, before there is a "
        "step",
    ),
    "rprop etas": (
        lambda: optimizers.rprop(etas=(1.25, 2)),
        "etas[0] must be in [0, 1), got 1.25 (rprop)",
    ),
    "lamb norm": (
        lambda: optimizers.lamb(largest_norm=-7),
        "largest_norm must be >= 0, got -7 (lamb)",
    ),
    "adadelta rho": (
        lambda: optimizers.adadelta(rho=1.125),
        "rho must be in [0, 1], got 1.125 (adadelta)",
    ),
    "adamax eps": (lambda: optimizers.adamax(eps=-2), "eps must be >= 0, got -2 (adamax)"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_argument_is_refused(name: str) -> None:
    build, message = BAD[name]
    with pytest.raises(DefinitionError) as caught:
        build()
    assert str(caught.value) == message
