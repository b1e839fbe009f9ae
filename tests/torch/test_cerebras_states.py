"""State dicts of cerebras, which keep powers of the betas in the place of the step."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import closedform as cf
from closedform.errors import StateError
from closedform.torch import Optimizer, cerebras
from tests.torch.training import largest_difference, parameters, steps

CLASSES: dict[str, Callable[[list[nn.Parameter]], Optimizer]] = {
    "Adam": lambda params: cerebras.Adam(params, 0.01, weight_decay=0.1),
    "AdamW": lambda params: cerebras.AdamW(params, 0.01, (0.8, 0.97), weight_decay=0.1),
    "Adamax": lambda params: cerebras.Adamax(params, 0.01),
}


def theirs(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """The state dict as cerebras.pytorch 2.10 keeps it: float32 products, one factor a step.

    After k steps a power is β^(k+1), the value for the next one.
    """
    made = copy.deepcopy(optimizer.state_dict())
    betas = made["param_groups"][0]["betas"]
    for states in made["state"].values():
        done = int(states.pop("step"))
        names = ("beta1_power", "beta2_power") if "exp_avg_sq" in states else ("beta1_power",)
        for name, beta in zip(names, betas, strict=False):
            power = np.float32(beta)
            for _ in range(done):
                power = np.float32(power * np.float32(beta))
            states[name] = torch.tensor(power)
    return made


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("count", [0, 1, 9])
@pytest.mark.parametrize("name", CLASSES)
def test_powers_of_the_betas_become_the_step(name: str, count: int) -> None:
    params = parameters()
    optimizer = CLASSES[name](params)
    steps(optimizer, params, count)
    others = [nn.Parameter(param.detach().clone()) for param in params]
    other = CLASSES[name](others)
    given = theirs(optimizer)
    copied = copy.deepcopy(given)
    other.load_state_dict(given)
    assert [int(states["step"]) for states in other.state.values()] == [count] * len(params)
    for one, own in ((optimizer, params), (other, others)):
        steps(one, own, 3, seed=2)
    assert largest_difference(params, others) == 0
    assert repr(given) == repr(copied)  # theirs changes the dict that it is given


def test_many_steps_are_counted_while_a_power_is_representable() -> None:
    # 60,000 steps: β₂ = 0.999 tells them, β₁ = 0.9 is 0 in float32 by then.
    params = parameters([(2,)])
    optimizer = cerebras.AdamW(params, 0.01)
    optimizer.state[params[0]]["step"].fill_(60_000)
    given = theirs(optimizer)
    assert float(given["state"][0]["beta1_power"]) < 1e-40
    other = cerebras.AdamW(parameters([(2,)]), 0.01)
    other.load_state_dict(given)
    assert int(next(iter(other.state.values()))["step"]) == 60_000


def loaded(powers: dict[str, Tensor], **options: Any) -> Optimizer:
    params = parameters([(2,)])
    optimizer: Optimizer = cerebras.AdamW([("weight", params[0])], 0.01, **options)
    given = theirs(optimizer)
    given["state"][0] |= powers
    optimizer.load_state_dict(given)
    return optimizer


def test_what_does_not_tell_the_step_is_refused() -> None:
    where = r"AdamW, param group 0, parameter 'weight' of shape \[2\]"
    hint = "replace them by the state 'step'"
    small = {"beta1_power": torch.tensor(0.0), "beta2_power": torch.tensor(1e-38)}
    with pytest.raises(StateError, match=f"beta2_power .* of beta 0.999 .*{where}.*{hint}"):
        loaded(small)
    # The result of their conversion of a torch dict with 0 steps.
    ones = {"beta1_power": torch.tensor(1.0), "beta2_power": torch.tensor(1.0)}
    with pytest.raises(StateError, match=r"beta2_power 1.0 .* does not determine the step"):
        loaded(ones)
    two = {"beta1_power": torch.tensor(0.9**4), "beta2_power": torch.tensor(0.999**7)}
    with pytest.raises(StateError, match=r"disagree: step 3 .* and step 6 "):
        loaded(two)
    both = {"step": torch.tensor(3)}
    with pytest.raises(StateError, match=f"unknown state 'beta1_power' .*{where}"):
        loaded(both)


def test_powers_of_a_schedule_do_not_tell_the_step() -> None:
    params = parameters([(2,)])
    rule = cf.optimizers.adamw(lr=0.01, betas=(cf.schedules.linear(0.5, 0.9, 4), 0.99))
    optimizer = Optimizer(params, rule)
    steps(optimizer, params, 1)
    given = optimizer.state_dict()
    del given["state"][0]["step"]
    given["state"][0]["beta2_power"] = torch.tensor(0.9)
    with pytest.raises(StateError, match="beta1 is a schedule, so its powers do not determine"):
        optimizer.load_state_dict(given)


def test_their_key_for_the_weight_decay_of_adam_is_not_lost() -> None:
    params = parameters([(2,)])
    optimizer = cerebras.Adam(params, 0.01, weight_decay=0.1)
    given = theirs(optimizer)
    given["param_groups"][0] |= {"weight_decay": 0.0, "l2_regularization_rate": 0.125}
    with pytest.raises(
        StateError, match=r"l2_regularization_rate = 0\.125, which this optimizer"
    ) as caught:
        optimizer.load_state_dict(given)
    assert "Adam, param group 0" in str(caught.value)
    assert "rename it to weight_decay" in str(caught.value)
    given["param_groups"][0]["l2_regularization_rate"] = 0.0
    optimizer.load_state_dict(given)
