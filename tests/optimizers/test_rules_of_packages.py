"""Rules beside 50 steps of pytorch_optimizer, Composer and llm-foundry, and what they refuse.

``tests/reference/optimizers_rules.npz`` has parameters after some of the steps, in float64, written
by ``make_optimizers_rules.py``.
"""

from collections.abc import Callable, Mapping

import numpy as np
import pytest
from numpy.typing import NDArray

from closedform import optimizers, schedules, transforms
from closedform.errors import DefinitionError
from closedform.language import UpdateRule
from tests.reference.records import ROOT
from tests.support.trajectories import trajectory

with np.load(ROOT / "optimizers_rules.npz") as file:
    ARRAYS: Mapping[str, NDArray[np.float64]] = dict(file)
NAMES = [key.removeprefix("start/") for key in ARRAYS if key.startswith("start/")]
STEPS = len(ARRAYS["gradients/w"])
RECORDED = (1, 2, 3, 10, 25, 50)

FALL = schedules.linear(0.02, 0, 60)
SCHEDULE = [
    (8.2, -22.9, 16.5),
    (4.07, -2.86, 0.52),
    (3.9, -2.8, 0.53),
    (3.3, -2.4, 0.48),
    (2.3, -1.65, 0.4),
]
RULES: dict[str, Callable[[], UpdateRule]] = {
    "muon_polar": lambda: optimizers.muon(0.02, 0.1, ns_coefficients=SCHEDULE),
    "normuon": lambda: optimizers.normuon(0.02, 0.1),
    "normuon_rms": lambda: optimizers.normuon(
        0.02, nesterov=False, ns_coefficients=SCHEDULE, scale="match_rms"
    ),
    "scion": lambda: optimizers.scion(0.02, scale=3, weight_decay=0.1),
    "scion_kernel": lambda: optimizers.scion(0.02, constrained=True),
    "scion_sign": lambda: optimizers.scion(0.02, norm="sign", scale=2),
    "scion_column": lambda: optimizers.scion(0.02, norm="column"),
    "scion_row": lambda: optimizers.scion(0.02, norm="row"),
    "scion_rms": lambda: optimizers.scion(0.02, 0.8, norm="rms"),
    "sam": lambda: transforms.sam(optimizers.sgd(0.05, 0.9), 0.3),
    "asam": lambda: transforms.sam(optimizers.sgd(0.05), 0.5, adaptive=True),
    "grokfast": lambda: transforms.grokfast(optimizers.adamw(0.01, weight_decay=0.1), 0.9, 1.5),
    "decoupled_adamw": lambda: optimizers.decoupled_adamw(
        FALL, weight_decay=1e-3, amsgrad=True, initial_lr=0.02
    ),
    "decoupled_lionw": lambda: optimizers.decoupled_lionw(FALL, weight_decay=1e-3, initial_lr=0.02),
    "decoupled_sgdw": lambda: optimizers.decoupled_sgdw(
        FALL, 0.9, weight_decay=1e-3, nesterov=True, initial_lr=0.02
    ),
    "adam_mini_heads": lambda: optimizers.adam_mini(0.01, block=3),
    "adam_mini": lambda: optimizers.adam_mini(0.01),
    "adam_mini_element": lambda: optimizers.adam_mini(0.01, block="element"),
    "adamc": lambda: optimizers.adamc(FALL, eps=1e-6, max_lr=0.02, eps_added="before_correction"),
    "qhadam": lambda: optimizers.qhadam(0.01, (0.95, 0.99), (0.7, 0.9)),
    "grams": lambda: optimizers.grams(0.01, weight_decay=0.1),
    "adabound": lambda: optimizers.adabound(FALL, gamma=0.01, weight_decay=0.1, initial_lr=0.02),
    "adabound_decoupled": lambda: optimizers.adabound(
        0.02, weight_decay=0.1, amsgrad=True, decoupled_weight_decay=True
    ),
    "adams": lambda: optimizers.adams(0.01, weight_decay=0.1),
    "aggmo": lambda: optimizers.aggmo(0.01, weight_decay=0.1),
    "pid": lambda: optimizers.pid(0.001, 0.8, 0.1, weight_decay=0.1),
    "ftrl": lambda: optimizers.ftrl(0.1, 0.5, 2, 0.1),
    "fromage": lambda: optimizers.fromage(0.05),
    "madgrad": lambda: optimizers.madgrad(0.01, weight_decay=0.1),
    "madgrad_plain": lambda: optimizers.madgrad(
        0.01, 0, weight_decay=0.1, decoupled_weight_decay=True
    ),
    "adamp": lambda: optimizers.adamp(
        0.01, weight_decay=0.1, delta=0.5, eps_added="before_correction"
    ),
    "adamp_nesterov": lambda: optimizers.adamp(
        0.01, weight_decay=0.1, nesterov=True, eps_added="before_correction"
    ),
    "sgdp": lambda: optimizers.sgdp(0.01, 0.8, weight_decay=0.1, delta=0.5, nesterov=True),
    "spam": lambda: optimizers.spam(
        0.01, weight_decay=0.1, threshold=3, reset=12, warmup=4, wait=3
    ),
}


# Adam-mini computes in float32, SAM the norm of all gradients.
IN_FLOAT32 = {"adam_mini", "adam_mini_element", "adam_mini_heads", "sam", "asam"}


@pytest.mark.sample(every=2)
@pytest.mark.parametrize("name", RULES)
def test_trajectory_is_that_of_the_package(name: str) -> None:
    names = [key for key in NAMES if f"{name}/{key}" in ARRAYS]
    start = {key: ARRAYS[f"start/{key}"] for key in names}
    gradients = [{key: ARRAYS[f"gradients/{key}"][step] for key in names} for step in range(STEPS)]
    states = list(trajectory(RULES[name](), start, gradients))
    # 50 steps of about 20 roundings of 1.1e-16 on parameters near 1, which a root of a small sum of
    # squares enlarges; or 50 steps of 0.01, or one of 0.5, that are rounded to float32.
    rtol, atol = (1.2e-7, 50 * 0.01 * 1.2e-7) if name in IN_FLOAT32 else (1e-12, 1e-13)
    for place, step in enumerate(RECORDED):
        for key in names:
            wanted = ARRAYS[f"{name}/{key}"][place]
            ours = states[step - 1][f"param.{key}"]
            np.testing.assert_allclose(
                ours, wanted, rtol=rtol, atol=atol, err_msg=f"{key}, step {step}"
            )


BAD: dict[str, tuple[Callable[[], UpdateRule], str]] = {
    "muon iterations": (
        lambda: optimizers.muon(ns_coefficients=[(1, 2, 3), (1, 2)]),
        "ns_coefficients must be three numbers, got (1, 2) (muon): try (3.4445, -4.775, 2.0315)",
    ),
    "muon coefficient": (
        lambda: optimizers.muon(ns_coefficients=[(1, 2, 3), (1, "a", 2)]),
        "ns_coefficients[1][1] of muon must be a number, got str 'a': give an int, a float, a "
        "Fraction or a SymPy number",
    ),
    "normuon decay": (
        lambda: optimizers.normuon(decay="careful"),
        "decay must be one of plain, cautious, got 'careful' (normuon): known are cautious, plain",
    ),
    "scion norm": (
        lambda: optimizers.scion(norm="frobenius"),
        "norm must be one of spectral, sign, row, column, rms, got 'frobenius' (scion): "
        "known are column, rms, row, sign, spectral",
    ),
    "decoupled_adamw schedule": (
        lambda: optimizers.decoupled_adamw(FALL),
        "initial_lr must be given where lr is not a number (decoupled_adamw): it is the rate "
        "before the schedule",
    ),
    "decoupled_lionw rate": (
        lambda: optimizers.decoupled_lionw(0.1, initial_lr=-1),
        "initial_lr must be >= 0, got -1 (decoupled_lionw)",
    ),
    "decoupled_sgdw nesterov": (
        lambda: optimizers.decoupled_sgdw(nesterov=True),
        "nesterov needs a momentum above 0, got momentum 0 (decoupled_sgdw): try 0.9",
    ),
    "adamc rate": (
        lambda: optimizers.adamc(None),
        "max_lr must be given where lr is not a number (adamc): it is the rate before the schedule",
    ),
    "qhadam nu": (
        lambda: optimizers.qhadam(nus=(2, 1)),
        "nus[0] must be in [0, 1], got 2 (qhadam)",
    ),
    "aggmo betas": (
        lambda: optimizers.aggmo(betas=()),
        "betas must be at least one number, got () (aggmo): try (0, 0.9, 0.99)",
    ),
    "aggmo beta": (
        lambda: optimizers.aggmo(betas=(0.5, 1)),
        "betas[1] must be in [0, 1), got 1 (aggmo)",
    ),
    "pid momentum": (lambda: optimizers.pid(momentum=1), "momentum must be in [0, 1), got 1 (pid)"),
    "ftrl rate": (lambda: optimizers.ftrl(0), "lr must be above 0, got 0 (ftrl)"),
    "madgrad flag": (
        lambda: optimizers.madgrad(decoupled_weight_decay=1),  # type: ignore[arg-type]
        "decoupled_weight_decay must be True or False, got int 1 (madgrad)",
    ),
    "adamp ratio": (
        lambda: optimizers.adamp(wd_ratio=3),
        "wd_ratio must be in [0, 1], got 3 (adamp)",
    ),
    "adam_mini block": (
        lambda: optimizers.adam_mini(block="head"),
        "block must be one of 'tensor', 'row', 'element' or a number of blocks, got 'head' "
        "(adam_mini)",
    ),
    "adam_mini blocks": (
        lambda: optimizers.adam_mini(block=0),
        "block must be an integer >= 1, got 0 (adam_mini)",
    ),
    "spam wait": (
        lambda: optimizers.spam(reset=5, wait=7),
        "wait must be below reset, got 7 and 5: no step would clip (spam)",
    ),
    "spam reset": (
        lambda: optimizers.spam(reset=0),
        "reset must be an integer >= 1, got 0 (spam)",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_argument_is_refused(name: str) -> None:
    build, message = BAD[name]
    with pytest.raises(DefinitionError) as caught:
        build()
    assert str(caught.value) == message
