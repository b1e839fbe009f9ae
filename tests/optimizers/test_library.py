"""The library of optimizers: the choices in which frameworks differ, and invalid arguments."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from closedform import optimizers, schedules
from closedform.compiler import compile_step
from closedform.errors import DefinitionError
from closedform.ir.evaluate import evaluate
from closedform.ir.types import DType
from closedform.language import UpdateRule
from closedform.options import GraphOptions, ModelSpec

GRADIENTS = (np.array([1.0, -2.0]), np.array([0.5, 0.25]), np.array([-1.0, 3.0]))
START = np.array([4.0, -1.0])


def trajectory(rule: UpdateRule, **hypers: float) -> Any:
    """The parameter after three float64 steps."""
    graph = compile_step(ModelSpec(rule, {"p": (2,)}), GraphOptions(dtype=DType.F64))
    param = START
    states = {f"state.p.{name}": np.zeros(2) for name in rule.states}
    for step, gradient in enumerate(GRADIENTS):
        results = evaluate(
            graph,
            {
                "step": np.int64(step),
                "param.p": param,
                "grad.p": gradient,
                **{name: np.float64(value) for name, value in hypers.items()},
                **states,
            },
        )
        param = results["next.param.p"]
        states = {name: results[f"next.{name}"] for name in states}
    return param


def paper_adam(*, eps: float, weight_decay: float = 0, decoupled: float = 0) -> Any:
    """Algorithm 1 of Kingma and Ba, as written there, for beta1 0.9 and beta2 0.99."""
    p, m, v = START, np.zeros(2), np.zeros(2)
    for step, gradient in enumerate(GRADIENTS, 1):
        g = gradient + weight_decay * p
        m = 0.9 * m + 0.1 * g
        v = 0.99 * v + 0.01 * g * g
        corrected = m / (1 - 0.9**step) / (np.sqrt(v / (1 - 0.99**step)) + eps)
        p = p - 0.1 * (corrected + decoupled * p)
    return p


def close(ours: Any, wanted: Any) -> None:
    # Three float64 steps of about ten roundings of 1.1e-16.
    np.testing.assert_allclose(ours, wanted, rtol=1e-14)


def test_adam_is_the_algorithm_of_the_paper() -> None:
    close(trajectory(optimizers.adam(0.1, (0.9, 0.99), 1e-3)), paper_adam(eps=1e-3))


def test_adam_decays_the_gradient_and_adamw_the_parameter() -> None:
    adam = optimizers.adam(0.1, (0.9, 0.99), 1e-3, weight_decay=0.2)
    close(trajectory(adam), paper_adam(eps=1e-3, weight_decay=0.2))
    adamw = optimizers.adamw(0.1, (0.9, 0.99), 1e-3, weight_decay=0.2)
    close(trajectory(adamw), paper_adam(eps=1e-3, decoupled=0.2))


def test_eps_before_the_correction_is_larger_by_its_root() -> None:
    graph_eps = 1e-3
    before = optimizers.adam(0.1, (0.0, 0.99), graph_eps, eps_added="before_correction")
    graph = compile_step(ModelSpec(before, {"p": (2,)}), GraphOptions(dtype=DType.F64))
    zero = {f"state.p.{name}": np.zeros(2) for name in before.states}
    step = evaluate(graph, {"step": np.int64(0), "param.p": START, "grad.p": GRADIENTS[0], **zero})[
        "next.param.p"
    ]
    g = GRADIENTS[0]
    close(step, START - 0.1 * g / (np.abs(g) + graph_eps / np.sqrt(0.01)))


def test_amsgrad_keeps_the_largest_second_moment() -> None:
    rule = optimizers.adam(0.1, (0.0, 0.0), 0, amsgrad=True)
    p, largest = START, np.zeros(2)
    for gradient in GRADIENTS:
        largest = np.maximum(largest, gradient**2)
        p = p - 0.1 * gradient / np.sqrt(largest)
    close(trajectory(rule), p)


def test_first_momentum_of_the_two_systems() -> None:
    gradient = optimizers.sgd(0.1, momentum=0.5, dampening=0.75)
    dampened = optimizers.sgd(0.1, momentum=0.5, dampening=0.75, first_momentum="dampened")
    p, q, b, c = START, START, np.zeros(2), np.zeros(2)
    for step, g in enumerate(GRADIENTS):
        b = g if step == 0 else 0.5 * b + 0.25 * g
        c = 0.5 * c + 0.25 * g
        p, q = p - 0.1 * b, q - 0.1 * c
    close(trajectory(gradient), p)
    close(trajectory(dampened), q)


def test_nesterov_looks_ahead() -> None:
    p, b = START, np.zeros(2)
    for g in GRADIENTS:
        b = 0.5 * b + g
        p = p - 0.1 * (g + 0.5 * b)
    close(trajectory(optimizers.sgd(0.1, momentum=0.5, nesterov=True)), p)


MAXIMIZED: dict[str, Callable[..., UpdateRule]] = {
    "sgd": lambda **more: optimizers.sgd(0.1, momentum=0.5, **more),
    "adam": lambda **more: optimizers.adam(0.1, **more),
}


@pytest.mark.parametrize("name", MAXIMIZED)
def test_maximize_mirrors_the_step(name: str) -> None:
    down = trajectory(MAXIMIZED[name]()) - START
    up = trajectory(MAXIMIZED[name](maximize=True)) - START
    close(up, -down)


def test_open_hyperparameter_is_an_input() -> None:
    fixed = trajectory(optimizers.adamw(0.01, weight_decay=0.5))
    close(trajectory(optimizers.adamw(None, weight_decay=None), lr=0.01, weight_decay=0.5), fixed)


def test_schedule_is_inside() -> None:
    rule = optimizers.sgd(lr=schedules.linear(0, 0.3, 3))
    close(trajectory(rule), START - 0.1 * GRADIENTS[1] - 0.2 * GRADIENTS[2])


STATES = {
    "sgd": (optimizers.sgd(), [], ["lr"]),
    "sgd with momentum": (
        optimizers.sgd(momentum=0.9),
        ["momentum_buffer"],
        ["lr", "momentum"],
    ),
    "sgd with all": (
        optimizers.sgd(momentum=0.9, dampening=0.1, weight_decay=0.1),
        ["momentum_buffer"],
        ["lr", "momentum", "dampening", "weight_decay"],
    ),
    "adam": (optimizers.adam(), ["exp_avg", "exp_avg_sq"], ["lr", "beta1", "beta2", "eps"]),
    "amsgrad": (
        optimizers.adam(amsgrad=True, weight_decay=1),
        ["exp_avg", "exp_avg_sq", "max_exp_avg_sq"],
        ["lr", "beta1", "beta2", "eps", "weight_decay"],
    ),
    "adamw without decay": (
        optimizers.adamw(weight_decay=0),
        ["exp_avg", "exp_avg_sq"],
        ["lr", "beta1", "beta2", "eps"],
    ),
}


@pytest.mark.parametrize("name", STATES)
def test_states_and_hyperparameters_are_those_in_use(name: str) -> None:
    rule, states, hyperparameters = STATES[name]
    assert list(rule.states) == states
    assert list(rule.hyperparameters) == hyperparameters
    assert all(spec.initial == 0 and spec.shape == "param" for spec in rule.states.values())


BAD: dict[str, tuple[Callable[[], UpdateRule], str]] = {
    "negative rate": (lambda: optimizers.sgd(lr=-0.1), "lr must be >= 0, got -0.1 (sgd)"),
    "negative momentum": (
        lambda: optimizers.sgd(momentum=-1),
        "momentum must be >= 0, got -1 (sgd)",
    ),
    "negative decay": (
        lambda: optimizers.adamw(weight_decay=-2),
        "weight_decay must be >= 0, got -2 (adamw)",
    ),
    "beta 1": (
        lambda: optimizers.adam(betas=(1.0, 0.9)),
        "betas[0] must be in [0, 1), got 1.0 (adam)",
    ),
    "negative beta": (
        lambda: optimizers.adamw(betas=(0.9, -0.5)),
        "betas[1] must be in [0, 1), got -0.5 (adamw)",
    ),
    "one beta": (
        lambda: optimizers.adam(betas=(0.9,)),
        "betas must be two numbers, got (0.9,) (adam): try (0.9, 0.999)",
    ),
    "negative eps": (lambda: optimizers.adam(eps=-1e-9), "eps must be >= 0, got -1e-09 (adam)"),
    "rate in text": (
        lambda: optimizers.adam(lr="1e-3"),
        "lr of adam must be a number, got str '1e-3': give an int, a float, a Fraction or a SymPy "
        "number",
    ),
    "flag 1": (
        lambda: optimizers.adam(amsgrad=1),  # type: ignore[arg-type]
        "amsgrad must be True or False, got int 1 (adam)",
    ),
    "nesterov without momentum": (
        lambda: optimizers.sgd(nesterov=True),
        "nesterov needs a momentum above 0, got momentum 0 (sgd): try 0.9",
    ),
    "nesterov with dampening": (
        lambda: optimizers.sgd(momentum=0.9, dampening=0.5, nesterov=True),
        "nesterov needs dampening 0, got dampening 1/2 (sgd): leave dampening out",
    ),
    "nesterov with dampening as an input": (
        lambda: optimizers.sgd(momentum=0.9, dampening=None, nesterov=True),
        "nesterov needs dampening 0, got dampening None (sgd): leave dampening out",
    ),
    "unknown place of eps": (
        lambda: optimizers.adamw(eps_added="inside"),
        "eps_added must be one of after_correction, before_correction, got 'inside' (adamw): "
        "known are after_correction, before_correction",
    ),
    "unknown first momentum": (
        lambda: optimizers.sgd(first_momentum="zero"),
        "first_momentum must be one of gradient, dampened, got 'zero' (sgd): "
        "known are dampened, gradient",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_argument_is_refused(name: str) -> None:
    build, message = BAD[name]
    with pytest.raises(DefinitionError) as caught:
        build()
    assert str(caught.value) == message
