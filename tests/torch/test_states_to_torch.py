"""States to torch's optimizers and back: every class and form, with fresh and frozen parameters.

torch's own run is the judge: a run that changes from ours to torch's class, or back, is compared
with one of torch's class from the start to the end.
"""

import copy
import random
import sys
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from closedform.errors import StateError
from closedform.ir.types import MAX_STEP
from closedform.torch import optim
from tests.torch.training import parameters, values

CLASSES = tuple(optim.OPTIMIZERS)
SHAPES = ((3, 4), (6, 2), (2, 5))
STEPS = 4

FORMS: dict[str, dict[str, Any]] = {
    "default": {},
    "for-loop": {"foreach": False},
    "foreach": {"foreach": True},
    "fused": {"fused": True},
    "capturable": {"capturable": True},
    "capturable foreach": {"capturable": True, "foreach": True},
}
NOT_IN = {
    "fused": frozenset(CLASSES) - {"Adam", "AdamW", "SGD", "Adagrad"},
    "capturable": frozenset({"SGD", "Adagrad", "Muon", "Adafactor"}),
    "capturable foreach": frozenset({"SGD", "Adagrad", "Muon", "Adafactor"}),
    "for-loop": frozenset({"Muon"}),
    "foreach": frozenset({"Muon"}),
}
"""The classes of torch that do not have a form."""

CASES = [
    (name, form) for name in CLASSES for form in FORMS if name not in NOT_IN.get(form, frozenset())
]

CHOICES: dict[str, tuple[Any, ...]] = {
    "weight_decay": (0, 0.1),
    "momentum": (0, 0.9),
    "dampening": (0, 0.5),
    "amsgrad": (False, True),
    "centered": (False, True),
    "maximize": (False, True),
    "betas": ((0.9, 0.99), (0.5, 0.9)),
    "initial_accumulator_value": (0, 0.5),
    "lr_decay": (0, 0.1),
}
"""Arguments that change which states there are, or the first step."""


def settings(name: str, seed: int) -> dict[str, Any]:
    """Arguments of a class, drawn from ``CHOICES``."""
    draw = random.Random(f"{name} {seed}")
    keys = set(getattr(optim, name)([nn.Parameter(torch.zeros(2, 2))]).param_groups[0])
    drawn = {key: draw.choice(options) for key, options in CHOICES.items() if key in keys}
    if name == "Muon":
        drawn["momentum"] = 0.9  # torch refuses 0
    if drawn.get("momentum", 0.9) and "dampening" in drawn:
        drawn["dampening"] = draw.choice((0.5, 0.5, 0))
    return {"lr": 0.05, **drawn}


@pytest.fixture(autouse=True)
def _capturable_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's capturable forms, which it runs on accelerators alone, run on a CPU as well."""
    for name, module in list(sys.modules.items()):
        if name.startswith("torch.optim.") and hasattr(module, "_get_capturable_supported_devices"):
            monkeypatch.setattr(
                module, "_get_capturable_supported_devices", lambda *_, **__: ["cpu", "cuda"]
            )


def run(
    optimizer: torch.optim.Optimizer, params: list[nn.Parameter], first: int, count: int, used: int
) -> None:
    """Steps the first ``used`` parameters, with gradients that the number of the step decides."""
    for number in range(first, first + count):
        generator = torch.Generator().manual_seed(number)
        for row, param in enumerate(params):
            drawn = torch.randn(param.shape, generator=generator, dtype=torch.float64)
            param.grad = drawn.to(param.dtype) if row < used else None
        optimizer.step()


def run_in_two(
    first: Any, second: Any, trained: int, given: dict[str, Any], form: dict[str, Any]
) -> list[Tensor]:
    """The parameters after a run that goes on in an optimizer of another class.

    In its first part ``trained`` of the three parameters have gradients, then all of them.
    """
    params = parameters(SHAPES, dtype=torch.float64)
    one = first(params, **given, **form)
    if trained:
        run(one, params, 0, STEPS, trained)
    two = second(params, **given, **form)
    two.load_state_dict(copy.deepcopy(one.state_dict()))
    run(two, params, STEPS, STEPS, len(params))
    return values(params)


ALL_SHAPES = ((), (5,), (0, 3), (3, 4), (2, 3, 2))
SHAPES_OF = {
    "Muon": SHAPES,  # matrices alone
    "Adafactor": tuple(shape for shape in ALL_SHAPES if 0 not in shape),  # torch divides by 0
}


def run_there_and_back(
    classes: tuple[Any, Any],
    name: str,
    form: str,
    given: dict[str, Any],
    trained: int,
    dtype: torch.dtype,
) -> list[Tensor]:
    """The parameters after a run in the default form of a class, in a form of another, and back.

    The form is that of the groups of the state dict, as CUDA decides it for a default of None. In
    the first part ``trained`` parameters have gradients, in the second all but the last one, which
    is frozen, and in the third all of them.
    """
    first, second = (getattr(module, name) for module in classes)
    params = parameters(SHAPES_OF.get(name, ALL_SHAPES), dtype=dtype)
    params[-1].requires_grad_(False)
    one, two, three = first(params, **given), second(params, **given), first(params, **given)
    default = {key: one.param_groups[0][key] for key in FORMS[form]}
    run(one, params, 0, STEPS, trained)
    saved = copy.deepcopy(one.state_dict())
    saved["param_groups"][0] |= FORMS[form]
    two.load_state_dict(saved)
    run(two, params, STEPS, STEPS, len(params) - 1)
    saved = copy.deepcopy(two.state_dict())
    saved["param_groups"][0] |= default
    three.load_state_dict(saved)
    params[-1].requires_grad_(True)
    run(three, params, 2 * STEPS, STEPS, len(params))
    return values(params)


def bound(name: str, form: str) -> float:
    """How far two runs of eight steps may be from each other, in float64."""
    if name == "Muon":
        return 2e-2  # its products are in bfloat16, in which one sum is rounded in another order
    if name in ("NAdam", "ASGD") or form.startswith("capturable"):
        # Scalar states and, in the capturable forms, bias corrections are float32 in torch. The
        # first corrections of RAdam and Adam divide by 1 - 0.99, which has 5 of its digits left.
        return 5e-6
    return 1e-12


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.sample(every=4))])
@pytest.mark.parametrize(("name", "form"), CASES)
def test_a_run_changes_to_torch_and_back(name: str, form: str, seed: int) -> None:
    ours, theirs = getattr(optim, name), getattr(torch.optim, name)
    given, tolerance = settings(name, seed), bound(name, form)
    for trained in (0, 2, 3):  # fresh, one parameter frozen so far, all trained
        if name == "SGD" and form == "fused" and trained == 2 and given["momentum"]:
            continue  # torch's is a TypeError: it takes buffers of all parameters or of none
        expected = run_in_two(theirs, theirs, trained, given, FORMS[form])
        for first, second in ((ours, theirs), (theirs, ours), (ours, ours)):
            got = run_in_two(first, second, trained, given, FORMS[form])
            for value, wanted in zip(got, expected, strict=True):
                torch.testing.assert_close(value, wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.sample(every=7)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(("name", "form"), CASES)
def test_a_run_goes_to_a_form_of_torch_and_back(
    name: str, form: str, dtype: torch.dtype, seed: int
) -> None:
    given = settings(name, seed)
    tolerance = max(bound(name, form), 2e-5 if dtype == torch.float32 else 0)
    for trained in (0, 1, 2):
        if name == "SGD" and form == "fused" and trained and given["momentum"]:
            continue  # as above
        arguments = (name, form, given, trained, dtype)
        expected = run_there_and_back((torch.optim, torch.optim), *arguments)
        got = run_there_and_back((optim, torch.optim), *arguments)
        for value, wanted in zip(got, expected, strict=True):
            torch.testing.assert_close(value, wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("name", "form"), CASES)
def test_a_state_dict_has_the_entries_of_torchs(name: str, form: str) -> None:
    """The same parameters, and for each a step of the same dtype and device; SGD has none."""
    saved = []
    for classes in (optim, torch.optim):
        params = parameters(SHAPES)
        optimizer = getattr(classes, name)(params, **settings(name, 0), **FORMS[form])
        assert classes is torch.optim or not optimizer.state_dict()["state"]
        run(optimizer, params, 0, 2, used=2)
        saved.append(optimizer.state_dict()["state"])
    ours, theirs = saved
    assert list(ours) == [0, 1]
    for key, states in ours.items():
        judge = {label: value for label, value in theirs[key].items() if value is not None}
        assert judge.keys() <= states.keys() <= judge.keys() | {"step"}
        if "step" in judge:
            assert states["step"].dtype == judge["step"].dtype
            assert states["step"].device == judge["step"].device
            assert torch.equal(states["step"], judge["step"])


def test_dampening_does_not_reach_the_first_gradient_in_torch() -> None:
    """A buffer of zeros, beside a parameter without a step, would be damped as an earlier one."""
    for given in ({"dampening": 0.5}, {"dampening": 0.9}):
        given |= {"lr": 0.1, "momentum": 0.9}
        results = [
            run_in_two(first, torch.optim.SGD, 2, given, {})
            for first in (optim.SGD, torch.optim.SGD)
        ]
        for value, wanted in zip(*results, strict=True):
            torch.testing.assert_close(value, wanted, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (2.5, f"an integer in 0..{MAX_STEP}, got 2.5"),
        (-1, f"0..{MAX_STEP}, got -1"),
        (float("nan"), "got nan"),
        (float("inf"), "got inf"),
        (1e30, r"got 1\.0"),  # no integer of 64 bits
        (2**51, f"0..{MAX_STEP}, got 2251799813685248"),
    ],
)
def test_a_step_that_does_not_count_is_refused(step: float, said: str) -> None:
    params = parameters(SHAPES)
    optimizer = optim.AdamW(params)
    run(optimizer, params, 0, 1, used=3)
    saved = copy.deepcopy(optimizer.state_dict())
    saved["state"][1]["step"] = torch.tensor(step)
    with pytest.raises(StateError, match=said) as caught:
        optimizer.load_state_dict(saved)
    assert "AdamW, param group 0, parameter 1 of shape [6, 2]" in str(caught.value)
