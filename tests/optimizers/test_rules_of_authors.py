"""Rules beside 50 steps of optax.contrib, pytorch_optimizer and code of authors.

``tests/reference/optimizers_authors.npz`` has parameters after some of the steps, in float64,
written by ``make_optimizers_authors.py``.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from closedform import optimizers
from closedform.errors import DefinitionError
from closedform.language import UpdateRule
from closedform.runtime import OptimizerSession
from tests.reference.draws import drawn, drawn_noise
from tests.reference.records import ROOT
from tests.support.trajectories import trajectory

with np.load(ROOT / "optimizers_authors.npz") as file:
    ARRAYS: Mapping[str, NDArray[np.float64]] = dict(file)
RECORDED = (1, 2, 3, 10, 25, 50)

RULES: dict[str, Callable[[], UpdateRule]] = {
    "acprop": lambda: optimizers.acprop(0.01, weight_decay=0.1),
    "dog": lambda: optimizers.dog(weight_decay=0.1),
    "dog_distance": lambda: optimizers.dog(0.5, 0.1, eps=1e-6, first="distance"),
    "dog_rate": lambda: optimizers.dog(first_value=0.1, first="rate"),
    "dowg": lambda: optimizers.dowg(weight_decay=0.1),
    "dowg_estimate": lambda: optimizers.dowg(0.5, 0.01, eps=1e-3),
    "momo": lambda: optimizers.momo(0.1, weight_decay=0.1),
    "momo_adapted": lambda: optimizers.momo(1, 0.8, 0.5, 0.01, adapt_lower_bound=True),
    "adamuon": lambda: optimizers.adamuon(weight_decay=0.1),
    "adamuon_original": lambda: optimizers.adamuon(scale="original"),
    "soap": lambda: optimizers.soap(0.01),
    "soap_often": lambda: optimizers.soap(
        0.01,
        (0.9, 0.99),
        precondition_frequency=3,
        max_precondition_dim=5,
        shampoo_beta=0.8,
        correct_bias=False,
        normalize_gradient=True,
    ),
    "shampoo": lambda: optimizers.shampoo(0.01),
    "shampoo_momentum": lambda: optimizers.shampoo(0.01, 0.5, 0.1, 0.01, 3),
    "kron": lambda: optimizers.kron(0.01),
    "kron_diagonal": lambda: optimizers.kron(
        0.01,
        weight_decay=0.1,
        update_probability=0.4,
        max_size_triangular=3,
        momentum_into_precondition_update=False,
    ),
}


def first_bases(name: str) -> dict[str, Any]:
    """The bases with which the authors begin, eigenvectors, as states after the first step."""
    bases = {}
    for key, value in ARRAYS.items():
        rule, param, *state = key.split("/")
        if rule == name and state:
            bases[f"state.{param}.{state[0]}"] = value
    return bases


def test_every_record_has_its_rule() -> None:
    assert {key.split("/")[0] for key in ARRAYS} == set(RULES)


@pytest.mark.sample(every=2)
@pytest.mark.parametrize("name", RULES)
def test_trajectory_is_that_of_the_authors(name: str) -> None:
    start, gradients, losses = drawn()
    keys = [key for key in start if f"{name}/{key}" in ARRAYS]
    rule = RULES[name]()
    more: list[dict[str, Any]] = [{} for _ in losses]
    if "loss" in rule.hyperparameters:
        more = [{"loss": np.float64(loss)} for loss in losses]
    if rule.inputs:
        more = [{f"input.{key}.noise": noise[key] for key in keys} for noise in drawn_noise()]
    steps: list[dict[str, Any]] = []
    for carried in trajectory(
        rule,
        {key: start[key] for key in keys},
        [{key: gradient[key] for key in keys} for gradient in gradients],
        more=more,
    ):
        if not steps:
            carried |= first_bases(name)
        steps.append(dict(carried))
    for place, step in enumerate(RECORDED):
        for key in keys:
            # 50 steps of about 20 roundings of 1.1e-16 on parameters near 1, which a root of a
            # small sum of squares enlarges.
            np.testing.assert_allclose(
                steps[step - 1][f"param.{key}"],
                ARRAYS[f"{name}/{key}"][place],
                rtol=1e-10,
                atol=1e-12,
                err_msg=f"{key}, step {step}",
            )


BAD: dict[str, tuple[Callable[[], UpdateRule], str]] = {
    "acprop betas": (
        lambda: optimizers.acprop(betas=(0.9, 1.5)),
        "betas[1] must be in [0, 1), got 1.5 (acprop)",
    ),
    "adamuon scale": (
        lambda: optimizers.adamuon(scale="rms"),
        "scale must be one of match_rms_adamw, original, got 'rms' (adamuon): "
        "did you mean 'match_rms_adamw'?",
    ),
    "dog first": (
        lambda: optimizers.dog(first="guess"),
        "first must be one of heuristic, distance, rate, got 'guess' (dog): "
        "known are distance, heuristic, rate",
    ),
    "dowg estimate": (
        lambda: optimizers.dowg(estimate=-2),
        "estimate must be >= 0, got -2 (dowg)",
    ),
    "kron probability": (
        lambda: optimizers.kron(update_probability=1.5),
        "update_probability must be in [0, 1], got 1.5 (kron)",
    ),
    "kron open probability": (
        lambda: optimizers.kron(update_probability=None),
        "update_probability must be a number or a Schedule, got None (kron): it says in which "
        "steps noise is needed",
    ),
    "shampoo eps": (
        lambda: optimizers.shampoo(matrix_eps=0),
        "matrix_eps must be above 0, got 0 (shampoo)",
    ),
    "soap frequency": (
        lambda: optimizers.soap(precondition_frequency=0),
        "precondition_frequency must be an integer >= 1, got 0 (soap)",
    ),
    "momo bound": (
        lambda: optimizers.momo(lower_bound=-0.5),
        "lower_bound must be >= 0, got -0.5 (momo)",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_argument_is_refused(name: str) -> None:
    build, message = BAD[name]
    with pytest.raises(DefinitionError) as caught:
        build()
    assert str(caught.value) == message


IN_ONNXRUNTIME = ("soap", "soap_often", "shampoo", "shampoo_momentum", "kron", "kron_diagonal")
# The outer products of a vector have rank 1: with an eps of 1e-6, a condition number of 1e8, the
# small eigenvalues are lost in float32, in the singular values of the package, too.
ILL_CONDITIONED = {("shampoo", "v"), ("shampoo_momentum", "v")}


@pytest.mark.parametrize("name", IN_ONNXRUNTIME)
def test_float32_in_onnxruntime_is_within_1e_6_of_the_authors(name: str) -> None:
    start, gradients, _ = drawn()
    keys = [key for key in start if f"{name}/{key}" in ARRAYS]

    def narrow(arrays: Mapping[str, Any]) -> dict[str, Any]:
        return {key: arrays[key].astype(np.float32) for key in keys}

    rule = RULES[name]()
    session = OptimizerSession(rule, narrow(start), threads=1)
    for step, (gradient, noise) in enumerate(zip(gradients, drawn_noise(), strict=True), 1):
        session.step(narrow(gradient), {"noise": narrow(noise)} if rule.inputs else {})
        if step == 1 and first_bases(name):
            states = session.state_dict()
            for port, basis in first_bases(name).items():
                _, param, label = port.split(".")
                states["states"][label][param] = basis.astype(np.float32)
            session.load_state_dict(states)
        if step not in RECORDED:
            continue
        for key in keys:
            expected = ARRAYS[f"{name}/{key}"][RECORDED.index(step)]
            gap = np.abs(session.params[key] - expected).max() / np.abs(expected).max()
            assert gap <= (1e-5 if (name, key) in ILL_CONDITIONED else 1e-6)
