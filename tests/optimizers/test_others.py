"""The rules beyond the reference frameworks, beside trajectories of public packages.

``tests/reference/optimizers_other.npz`` holds ten float64 steps of each, written by
``make_optimizers_other.py`` from the packages named in ``optimizers_other.json``.
"""

import functools
import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from closedform import optimizers, schedules
from closedform.compiler import compile_evaluation, compile_init, compile_step
from closedform.errors import DefinitionError
from closedform.ir.evaluate import evaluate
from closedform.ir.types import DType
from closedform.language import PARAM, UpdateRule
from closedform.options import GraphOptions, ModelSpec
from tests.reference.records import ROOT

Array = NDArray[np.float64]

FACTS = json.loads((ROOT / "optimizers_other.json").read_text(encoding="utf-8"))
with np.load(ROOT / "optimizers_other.npz") as file:
    TRAJECTORIES: Mapping[str, Array] = dict(file)
SHAPES = {f"p{index}": tuple(shape) for index, shape in enumerate(FACTS["shapes"])}

# Ten steps of about 20 roundings of 1.1e-16, on parameters near 1; where a denominator is the root
# of a difference, the packages differ among themselves by 1e-13.
TOLERANCE = 1e-12


def split(flat: Array) -> dict[str, Array]:
    sizes = [int(np.prod(shape)) for shape in SHAPES.values()]
    parts = np.split(flat, np.cumsum(sizes)[:-1])
    return {n: part.reshape(s) for (n, s), part in zip(SHAPES.items(), parts, strict=True)}


def joined(values: Mapping[str, Any], prefix: str) -> Array:
    return np.concatenate([np.ravel(values[f"{prefix}{name}"]) for name in SHAPES])


@functools.cache
def trajectory(name: str) -> list[dict[str, Any]]:
    """The result of each step of a rule, by the evaluator in float64."""
    rule = RULES[name]()
    graph = compile_step(ModelSpec(rule, SHAPES), GraphOptions(dtype=DType.F64))
    feed: dict[str, Any] = {f"param.{n}": part for n, part in split(TRAJECTORIES["start"]).items()}
    init = compile_init(ModelSpec(rule, SHAPES), GraphOptions(dtype=DType.F64))
    wanted = [node.attribute("name") for node in init.inputs]
    feed |= evaluate(init, {name: feed[name] for name in wanted})
    results = []
    given = TRAJECTORIES["drift" if name in ADAPTED else "gradients"]
    for gradient, hessian in zip(given, TRAJECTORIES["hessians"], strict=True):
        grads = {f"grad.{name}": part for name, part in split(gradient).items()}
        if rule.inputs:
            grads |= {f"input.{name}.hessian": part for name, part in split(hessian).items()}
        outputs = evaluate(graph, {**feed, **grads})
        feed = {name.removeprefix("next."): value for name, value in outputs.items()}
        results.append(outputs)
    return results


RULES: dict[str, Callable[[], UpdateRule]] = {
    "signum": lambda: optimizers.signum(0.01, 0.8),
    "signum_decay": lambda: optimizers.signum(0.01, 0.8, 0.1),
    "tiger": lambda: optimizers.tiger(0.01, 0.9, 0.1),
    "adabelief": lambda: optimizers.adabelief(0.01),
    "adabelief_timm": lambda: optimizers.adabelief(0.01, eps=1e-8, eps_root=1e-8),
    "adabelief_decay": lambda: optimizers.adabelief(
        0.01, eps=1e-8, eps_root=1e-8, weight_decay=0.1
    ),
    "yogi": lambda: optimizers.yogi(0.01),
    "yogi_pytorch": lambda: optimizers.yogi(0.01),
    "laprop": lambda: optimizers.laprop(0.01, (0.8, 0.95), weight_decay=0.1),
    "ademamix": lambda: optimizers.ademamix(
        0.01, (0.9, 0.99, 0.999), 4, weight_decay=0.1, alpha_steps=6, beta3_steps=6
    ),
    "ademamix_constant": lambda: optimizers.ademamix(0.01, (0.9, 0.99, 0.999), 4),
    "adopt": lambda: optimizers.adopt(0.01),
    "adopt_decoupled": lambda: optimizers.adopt(
        0.01, (0.8, 0.95), weight_decay=0.1, decoupled_weight_decay=True, clip_exponent=0.333
    ),
    "adopt_penalty": lambda: optimizers.adopt(0.01, weight_decay=0.1, clip_exponent=0.333),
    "adan": lambda: optimizers.adan(0.01, weight_decay=0.1),
    "adan_decoupled": lambda: optimizers.adan(0.01, weight_decay=0.1, decay="decoupled"),
    "mars": lambda: optimizers.mars(0.01, (0.9, 0.99), weight_decay=0.1),
    "schedule_free_sgd": lambda: optimizers.schedule_free_sgd(
        0.1, weight_decay=0.1, warmup_steps=3
    ),
    "schedule_free_sgd_r": lambda: optimizers.schedule_free_sgd(0.1, 0.8, weight_exponent=1),
    "schedule_free_adamw": lambda: optimizers.schedule_free_adamw(
        0.01, (0.9, 0.99), weight_decay=0.1, warmup_steps=3
    ),
    "schedule_free_radam": lambda: optimizers.schedule_free_radam(0.01, (0.9, 0.95)),
    "schedule_free_radam_loud": lambda: optimizers.schedule_free_radam(
        0.01, (0.9, 0.95), weight_decay=0.1, silent_sgd_phase=False
    ),
    "prodigy": lambda: optimizers.prodigy(weight_decay=0.1),
    "prodigy_options": lambda: optimizers.prodigy(
        0.5,
        (0.8, 0.95),
        weight_decay=0.1,
        decoupled_weight_decay=False,
        use_bias_correction=True,
        safeguard_warmup=True,
        d0=1e-3,
        d_coef=2,
        growth_rate=1.5,
    ),
    "dadapt_adam": lambda: optimizers.d_adapt_adam(weight_decay=0.1, decoupled_weight_decay=True),
    "dadapt_adam_options": lambda: optimizers.d_adapt_adam(
        0.5, weight_decay=0.1, use_bias_correction=True, growth_rate=1.5, d0=1e-3
    ),
    "dadapt_sgd": lambda: optimizers.d_adapt_sgd(momentum=0.8, d0=1e-3),
    "sophia": lambda: optimizers.sophia(0.01, (0.9, 0.99), gamma=1, clip=0.05, update_period=1),
    "mars_lion": lambda: optimizers.mars(0.01, (0.9, 0.99), weight_decay=0.1, form="lion"),
}


# Their gradients agree with each other, so that the estimates of the distance grow.
ADAPTED = {"prodigy", "prodigy_options", "dadapt_adam", "dadapt_adam_options", "dadapt_sgd"}


@pytest.mark.parametrize("name", sorted(ADAPTED))
def test_the_rate_that_is_found_grows(name: str) -> None:
    sizes = [float(outputs["next.shared.d"]) for outputs in trajectory(name)]
    assert sizes[-1] > 1.5 * sizes[0]


@pytest.mark.sample(every=2)
@pytest.mark.parametrize("name", RULES)
def test_trajectory_is_that_of_the_package(name: str) -> None:
    results = trajectory(name)
    for step, (outputs, wanted) in enumerate(zip(results, TRAJECTORIES[name], strict=True)):
        ours = joined(outputs, "next.param.")
        np.testing.assert_allclose(ours, wanted, rtol=TOLERANCE, err_msg=f"step {step}")


@pytest.mark.parametrize("name", [name for name in RULES if f"{name}/x" in TRAJECTORIES])
def test_point_of_evaluation_is_that_of_the_package(name: str) -> None:
    rule = RULES[name]()
    graph = compile_evaluation(ModelSpec(rule, SHAPES), GraphOptions(dtype=DType.F64))
    needed = [node.attribute("name") for node in graph.inputs]
    for outputs, wanted in zip(trajectory(name), TRAJECTORIES[f"{name}/x"], strict=True):
        point = evaluate(graph, {key: outputs[f"next.{key}"] for key in needed})
        np.testing.assert_allclose(joined(point, "evaluation."), wanted, rtol=TOLERANCE)


def test_states_of_the_model_have_their_initial_values() -> None:
    rule = optimizers.prodigy(d0=0.25)
    starts = {name: (float(spec.initial), spec.is_counter) for name, spec in rule.shared.items()}
    assert starts == {"d": (0.25, False), "d_max": (0.25, False), "d_numerator": (0, False)}
    assert rule.states["p0"].initial == PARAM
    free = optimizers.schedule_free_sgd()
    assert {name: spec.initial for name, spec in free.shared.items()} == {
        "lr_max": 0,
        "weight_sum": 0,
    }


LINE = schedules.linear(1, 0, 4)
BAD: dict[str, tuple[Callable[[], UpdateRule], str]] = {
    "signum momentum": (
        lambda: optimizers.signum(momentum=1),
        "momentum must be in [0, 1), got 1 (signum)",
    ),
    "signum flag": (
        lambda: optimizers.signum(decoupled_weight_decay=0),  # type: ignore[arg-type]
        "decoupled_weight_decay must be True or False, got int 0 (signum)",
    ),
    "tiger beta": (lambda: optimizers.tiger(beta=-1), "beta must be in [0, 1), got -1 (tiger)"),
    "adabelief eps": (
        lambda: optimizers.adabelief(eps_root=-1e-9),
        "eps_root must be >= 0, got -1e-09 (adabelief)",
    ),
    "yogi start": (
        lambda: optimizers.yogi(initial_accumulator=None),
        "initial_accumulator must be a number, got None (yogi): a state starts from it, before "
        "there is a step",
    ),
    "laprop betas": (
        lambda: optimizers.laprop(betas=(0.9,)),
        "betas must be two numbers, got (0.9,) (laprop): try (0.9, 0.999)",
    ),
    "ademamix betas": (
        lambda: optimizers.ademamix(betas=(0.9, 0.999)),
        "betas must be three numbers, got (0.9, 0.999) (ademamix): try (0.9, 0.999, 0.9999)",
    ),
    "ademamix third beta": (
        lambda: optimizers.ademamix(betas=(0.9, 0.999, 1)),
        "betas[2] must be in [0, 1), got 1 (ademamix)",
    ),
    "ademamix steps": (
        lambda: optimizers.ademamix(alpha_steps=0),
        "alpha_steps must be an integer >= 1, got 0 (ademamix)",
    ),
    "adan decay": (
        lambda: optimizers.adan(decay="coupled"),
        "decay must be one of proximal, decoupled, got 'coupled' (adan): did you mean 'decoupled'?",
    ),
    "adopt exponent": (
        lambda: optimizers.adopt(clip_exponent=-2),
        "clip_exponent must be >= 0, got -2 (adopt)",
    ),
    "mars form": (
        lambda: optimizers.mars(form="sgd"),
        "form must be one of adamw, lion, got 'sgd' (mars): known are adamw, lion",
    ),
    "sophia period": (
        lambda: optimizers.sophia(update_period=2.5),  # type: ignore[arg-type]
        "update_period must be an integer >= 1, got 2.5 (sophia)",
    ),
    "schedule-free momentum": (
        lambda: optimizers.schedule_free_sgd(momentum=0),
        "momentum must be above 0, got 0 (schedule_free_sgd)",
    ),
    "schedule-free beta": (
        lambda: optimizers.schedule_free_adamw(betas=(0, 0.9)),
        "betas[0] must be above 0, got 0 (schedule_free_adamw)",
    ),
    "schedule-free warmup": (
        lambda: optimizers.schedule_free_sgd(warmup_steps=-3),
        "warmup_steps must be an integer >= 0, got -3 (schedule_free_sgd)",
    ),
    "prodigy d0": (
        lambda: optimizers.prodigy(d0=LINE),
        "d0 must be a number, got a Schedule (prodigy): a state starts from it, before there is a "
        "step",
    ),
    "prodigy growth": (
        lambda: optimizers.prodigy(growth_rate=0.5),
        "growth_rate must be >= 1, got 0.5 (prodigy)",
    ),
    "d_adapt growth": (
        lambda: optimizers.d_adapt_sgd(growth_rate=0),
        "growth_rate must be >= 1, got 0 (d_adapt_sgd)",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_argument_is_refused(name: str) -> None:
    build, message = BAD[name]
    with pytest.raises(DefinitionError) as caught:
        build()
    assert str(caught.value) == message
