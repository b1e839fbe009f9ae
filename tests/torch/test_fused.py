"""Fused kernels of torch: proved equal to a rule, and then equal to torch's fused step."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

import closedform as cf
from closedform.errors import ArgumentError
from closedform.language import GRAD, PARAM, UpdateRule, hyper, state
from closedform.torch import Optimizer, optim
from closedform.torch.engine.fused import FusedStep, fused_kernel
from tests.torch.training import largest_difference, parameters, steps

CASES: list[tuple[str, dict[str, Any]]] = [
    ("AdamW", {}),
    ("AdamW", {"amsgrad": True, "maximize": True, "weight_decay": 0}),
    ("Adam", {"weight_decay": 0.1}),
    ("Adam", {"amsgrad": True}),
    ("SGD", {}),
    ("SGD", {"momentum": 0.9}),
    ("SGD", {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    ("SGD", {"momentum": 0.9, "dampening": 0.2, "maximize": True}),
    ("Adagrad", {"lr_decay": 0.1, "weight_decay": 0.1}),
    ("Adagrad", {"initial_accumulator_value": 0.5, "maximize": True}),
]


def partial_steps(optimizer: torch.optim.Optimizer, params: Sequence[nn.Parameter]) -> None:
    """Steps in which a third of the gradients are missing, others in each step."""
    for number in range(6):
        for index, param in enumerate(params):
            param.grad = None
            if (index + number) % 3:
                param.grad = torch.full_like(param, 0.3 + number)
        optimizer.step()


@pytest.mark.parametrize(("name", "arguments"), CASES)
def test_a_proved_rule_steps_as_torchs_kernel_bit_for_bit(
    name: str, arguments: dict[str, Any]
) -> None:
    found = []
    made: Any
    for made in (optim.OPTIMIZERS[name], getattr(torch.optim, name)):
        params = parameters()
        optimizer = made(params, lr=0.01, fused=True, **arguments)
        steps(optimizer, params, 1)  # torch has one first step for all buffers of momentum
        partial_steps(optimizer, params)
        optimizer.param_groups[0]["lr"] = 0.02
        steps(optimizer, params, 3)
        found.append(params)
    assert largest_difference(*found) == 0
    params = parameters()
    eager: Any = optim.OPTIMIZERS[name](params, lr=0.01, **arguments)
    steps(eager, params, 1)
    partial_steps(eager, params)
    eager.param_groups[0]["lr"] = 0.02
    steps(eager, params, 3)
    assert largest_difference(found[0], params) <= 10 * 10 * 6e-8 * 2  # roundings, of numbers to 2


@pytest.mark.parametrize(("name", "arguments"), CASES)
def test_the_kernel_runs_and_is_replayed(name: str, arguments: dict[str, Any]) -> None:
    params = parameters([(3,), (2, 2)])
    made: Any = optim.OPTIMIZERS[name]
    optimizer: Optimizer = made(params, lr=0.01, fused=True, **arguments)
    steps(optimizer, params, 2)
    captured = optimizer._captured
    assert captured is not None
    assert [type(one) for one in captured._steps] == [FusedStep]
    partial_steps(optimizer, params)
    assert optimizer._captured is captured


def with_param(rule: UpdateRule, change: Any) -> UpdateRule:
    return replace(rule, param=change(rule.param))


ADAMW = cf.optimizers.adamw(lr=0.1, weight_decay=0.1)
SGD = cf.optimizers.sgd(lr=0.1, momentum=0.9)

OTHERS = {
    "before correction": cf.optimizers.adamw(lr=0.1, eps_added="before_correction"),
    "without correction": cf.optimizers.adam(lr=0.1, correct_bias=False),
    "a factor": with_param(ADAMW, lambda param: PARAM + (param - PARAM) / 2),
    "another sign": with_param(ADAMW, lambda param: param.subs(PARAM, -PARAM)),
    "the old moment": with_param(SGD, lambda _: PARAM - hyper("lr") * state("momentum_buffer")),
    "one more term": with_param(SGD, lambda param: param + 0 * GRAD + GRAD / 2**30),
    "a schedule": cf.optimizers.adamw(lr=cf.schedules.linear(0, 1, 10)),
    "other states": cf.optimizers.lion(lr=0.1),
    "a sum over the model": cf.transforms.clip_by_global_norm(SGD, 1.0),
}
"""Rules that no kernel computes."""


@pytest.mark.parametrize("name", OTHERS)
def test_other_rules_are_refused(name: str) -> None:
    assert fused_kernel(OTHERS[name]) is None
    groups = [{"params": parameters([(3,)]), "fused": True}]
    with pytest.raises(ArgumentError, match="no fused kernel of torch is proved equal") as caught:
        Optimizer(groups, OTHERS[name])
    assert "param group 0" in str(caught.value)
    assert OTHERS[name].name in str(caught.value)


def test_a_rule_of_another_library_may_be_proved_too() -> None:
    kernels = {name: fused_kernel(rule) for name, rule in (("adamw", ADAMW), ("sgd", SGD))}
    assert {name: one.name for name, one in kernels.items() if one} == {
        "adamw": "_fused_adamw_",
        "sgd": "_fused_sgd_",
    }
    first, second = parameters([(3,)]), parameters([(3,)])
    for params, optimizer in (
        (first, Optimizer([{"params": first, "fused": True}], ADAMW)),
        (second, torch.optim.AdamW(second, lr=0.1, weight_decay=0.1, fused=True)),
    ):
        steps(optimizer, params, 4)
    assert largest_difference(first, second) == 0


def test_parameters_that_a_kernel_does_not_take() -> None:
    with pytest.raises(ArgumentError, match="contiguous float32 and float64 parameters of a CPU"):
        optim.AdamW(parameters([(3,)], dtype=torch.bfloat16), fused=True)


def test_a_first_step_with_dampening_is_that_of_each_parameter() -> None:
    params, others = parameters([(3,), (2,)]), parameters([(3,), (2,)])
    arguments: Any = {"lr": 0.1, "momentum": 0.9, "dampening": 0.5}
    mine = optim.SGD(params, fused=True, **arguments)
    theirs = torch.optim.SGD(others, foreach=False, **arguments)
    for chosen in ((0,), (0, 1), (1,), (0, 1)):
        for optimizer, listed in ((mine, params), (theirs, others)):
            for index, param in enumerate(listed):
                param.grad = torch.ones_like(param) if index in chosen else None
            optimizer.step()
    assert largest_difference(params, others) <= 4 * 4 * 6e-8  # roundings
