"""The points of training and of evaluation: ``optimizer.eval()`` and ``optimizer.train()``."""

import copy
import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import closedform as cf
from closedform.errors import StateError
from closedform.language import UpdateRule
from closedform.torch import Optimizer
from tests.reference.records import ROOT
from tests.torch.training import largest_difference, parameters, steps, values

FACTS = json.loads((ROOT / "optimizers_other.json").read_text(encoding="utf-8"))
with np.load(ROOT / "optimizers_other.npz") as file:
    TRAJECTORIES: Mapping[str, Any] = {name: torch.from_numpy(file[name]) for name in file}

FREE: Mapping[str, Callable[[], UpdateRule]] = {
    "schedule_free_sgd": lambda: cf.optimizers.schedule_free_sgd(
        0.1, weight_decay=0.1, warmup_steps=3
    ),
    "schedule_free_sgd_r": lambda: cf.optimizers.schedule_free_sgd(0.1, 0.8, weight_exponent=1),
    "schedule_free_adamw": lambda: cf.optimizers.schedule_free_adamw(
        0.01, (0.9, 0.99), weight_decay=0.1, warmup_steps=3
    ),
}
SGD = cf.optimizers.sgd(lr=0.1, momentum=0.9)
POINTS = {
    "schedule-free": cf.optimizers.schedule_free_sgd(lr=0.1),
    "average": cf.transforms.weight_average(SGD, 0.9, start=1),
    "lookahead": cf.transforms.lookahead(SGD, 2),
}


def split(flat: torch.Tensor) -> list[torch.Tensor]:
    shapes = [tuple(shape) for shape in FACTS["shapes"]]
    parts = torch.split(flat, [int(np.prod(shape)) for shape in shapes])
    return [part.reshape(shape).clone() for part, shape in zip(parts, shapes, strict=True)]


@pytest.mark.sample(every=2)
@pytest.mark.parametrize("name", FREE)
def test_the_points_are_those_of_schedulefree(name: str) -> None:
    params = [nn.Parameter(part) for part in split(TRAJECTORIES["start"])]
    optimizer = Optimizer(params, FREE[name]())
    for gradient, point in zip(TRAJECTORIES["gradients"], TRAJECTORIES[f"{name}/x"], strict=True):
        optimizer.train()
        for param, part in zip(params, split(gradient), strict=True):
            param.grad = part
        optimizer.step()
        optimizer.eval()
        # Ten steps of about 20 float64 roundings; theirs goes from point to point by arithmetic.
        assert largest_difference(params, split(point)) <= 1e-12


@pytest.mark.sample(every=2)
@pytest.mark.parametrize("name", POINTS)
def test_the_point_of_training_comes_back_to_the_bit(name: str) -> None:
    params = parameters()
    named = {f"p{number}": param.detach().numpy() for number, param in enumerate(params)}
    session = cf.OptimizerSession(POINTS[name], params=named)
    optimizer = Optimizer(params, POINTS[name])
    steps(optimizer, params, 3, after=lambda: session.step(_gradients(params)))
    before = values(params)
    for _ in range(2):  # the second time it changes nothing
        optimizer.eval()
        point = [torch.from_numpy(array) for array in session.evaluated().values()]
        # Three steps of some ten roundings of 6e-8, in two engines.
        assert largest_difference(params, point) <= 3 * 10 * 6e-8
        assert largest_difference(params, before) > 1e-3
    for _ in range(2):
        optimizer.train()
        assert largest_difference(params, before) == 0
    assert sorted(optimizer.param_groups[0]) == sorted(
        Optimizer(parameters(), POINTS[name]).param_groups[0]
    )
    assert "training_point" not in optimizer.state[params[0]]


def _gradients(params: list[nn.Parameter]) -> dict[str, Any]:
    return {f"p{n}": p.grad.numpy() for n, p in enumerate(params) if p.grad is not None}


def test_a_step_at_the_point_of_evaluation_is_refused() -> None:
    params = parameters([(2,), (3,)])
    optimizer = Optimizer([params[0]], POINTS["average"])
    optimizer.add_param_group({"params": [params[1]], "momentum": 0.5})
    steps(optimizer, params, 2)
    optimizer.eval()
    optimizer.param_groups[0].pop("train_mode")
    before = values(params)
    called: list[int] = []
    with pytest.raises(StateError, match="the parameters are at the point of evaluation") as caught:
        optimizer.step(lambda: called.append(1))
    assert "Optimizer, param group 1" in str(caught.value)
    assert "call train() before step()" in str(caught.value)
    assert largest_difference(params, before) == 0
    assert not called


@pytest.mark.parametrize("name", POINTS)
def test_a_state_dict_holds_both_points(name: str) -> None:
    params = parameters()
    optimizer = Optimizer(params, POINTS[name])
    steps(optimizer, params, 3)
    trained = values(params)
    optimizer.eval()
    # As a checkpoint: the model's parameters, and the optimizer's state.
    others = [nn.Parameter(param.detach().clone()) for param in params]
    other = Optimizer(others, POINTS[name])
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    with pytest.raises(StateError, match="point of evaluation"):
        other.step()
    for one, own in ((optimizer, params), (other, others)):
        one.train()
        assert largest_difference(own, trained) == 0
        steps(one, own, 2, seed=3)
    assert largest_difference(params, others) == 0
    # A state of training takes the place of one of evaluation.
    saved = optimizer.state_dict()
    other.eval()
    other.load_state_dict(saved)
    assert "training_point" not in other.state[others[0]]
    assert "train_mode" not in other.param_groups[0]


def test_a_saved_point_of_another_shape_is_rejected() -> None:
    params = parameters([(4,)])
    optimizer = Optimizer(params, POINTS["average"])
    steps(optimizer, params, 1)
    optimizer.eval()
    state = copy.deepcopy(optimizer.state_dict())
    state["state"][0]["training_point"] = torch.zeros(3)
    with pytest.raises(StateError, match=r"'training_point' must have shape \[4\], got \[3\]"):
        optimizer.load_state_dict(state)
    del state["state"][0]["training_point"]
    with pytest.raises(StateError, match="'training_point' is missing"):
        optimizer.load_state_dict(state)


def test_a_rule_that_is_evaluated_at_its_parameters_stays_there() -> None:
    params = parameters()
    optimizer = Optimizer(params, SGD)
    steps(optimizer, params, 1)
    before = values(params)
    optimizer.eval()
    assert largest_difference(params, before) == 0
    steps(optimizer, params, 1)
    assert largest_difference(params, before) > 0


def test_the_numbers_of_a_group_decide_its_point() -> None:
    (param,) = parameters([(3,)])
    rule = cf.optimizers.schedule_free_sgd(lr=0.1, momentum=0.9)
    optimizer = Optimizer([{"params": [param], "momentum": 0.8}], rule)
    steps(optimizer, [param], 2)
    y, z = param.detach().double(), optimizer.state[param]["z"].double()
    for momentum in (0.8, 0.5):
        optimizer.param_groups[0]["momentum"] = momentum
        optimizer.eval()
        wanted = y + (1 - 1 / momentum) * (z - y)
        # Two roundings of 6e-8 of numbers of about 1.
        assert float((param.detach().double() - wanted).abs().max()) <= 3e-7
        assert float((y - wanted).abs().max()) > 1e-3
        optimizer.train()
