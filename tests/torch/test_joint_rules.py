"""Rules in which all parameters step together: global norms, sums over the model, shared states."""

from typing import Any

import pytest
import torch
from torch import nn

import closedform as cf
from closedform.errors import ArgumentError
from closedform.torch import Optimizer
from tests.torch.training import COMPILING, largest_difference, parameters, steps

CLIPPED = cf.transforms.clip_by_global_norm(cf.optimizers.adamw(lr=1e-2), 0.5)


def test_clipping_by_the_global_norm_is_torchs() -> None:
    ours, theirs = parameters(), parameters()
    mine = Optimizer(ours, CLIPPED)
    other = torch.optim.AdamW(theirs, lr=1e-2, foreach=False)
    generator = torch.Generator().manual_seed(1)
    for _ in range(10):
        for param, beside in zip(ours, theirs, strict=True):
            param.grad = torch.randn(param.shape, generator=generator)
            beside.grad = param.grad.clone()
        mine.step()
        torch.nn.utils.clip_grad_norm_(theirs, 0.5)
        other.step()
    # 10 steps of some roundings of 6e-8; torch adds 1e-6 to a norm of about 6: 2e-7 of a step.
    assert largest_difference(ours, theirs) <= 10 * 4 * 6e-8


def test_states_of_the_model_are_saved_and_loaded() -> None:
    rule = cf.optimizers.prodigy()
    params = parameters()
    optimizer = Optimizer(params, rule)
    steps(optimizer, params, 4)
    others = [nn.Parameter(param.detach().clone()) for param in params]
    other = Optimizer(others, rule)
    other.load_state_dict(optimizer.state_dict())
    for states in other.state.values():
        assert torch.equal(states["shared.d"], optimizer.state[params[0]]["shared.d"])
        assert states["shared.d"].dtype == torch.float64
    steps(optimizer, params, 3, seed=5)
    steps(other, others, 3, seed=5)
    assert largest_difference(params, others) == 0


def test_a_step_with_a_gradient_that_is_not_finite_leaves_all() -> None:
    params = parameters()
    optimizer = Optimizer(params, cf.transforms.skip_nonfinite(cf.optimizers.adamw(lr=1e-2)))
    steps(optimizer, params, 2)
    before = [param.detach().clone() for param in params]
    for param in params:
        param.grad = torch.ones_like(param)
    params[3].grad = torch.full((3, 4), torch.nan)
    optimizer.step()
    assert largest_difference(params, before) == 0
    states = optimizer.state[params[0]]
    assert (int(states["step"]), int(states["shared.skipped_steps"])) == (2, 1)


def test_what_cannot_step_together_is_named() -> None:
    first, second = parameters([(2,), (3,)])
    optimizer = Optimizer([first, second], CLIPPED)
    first.grad = torch.ones(2)
    before = first.detach().clone()
    with pytest.raises(ArgumentError, match="one has no gradient") as caught:
        optimizer.step()
    assert "param group 0, parameter 1 of shape [3]" in str(caught.value)
    assert torch.equal(first, before)
    for groups, said in (
        ([{"params": [first]}, {"params": [second]}], "got 2 groups, 1 dtypes"),
        ([first, nn.Parameter(second.detach().double())], "got 1 groups, 2 dtypes"),
    ):
        made: Any = groups
        with pytest.raises(ArgumentError, match=said):
            Optimizer(made, CLIPPED)
    with pytest.raises(ArgumentError, match=r"inputs other than the gradient: \['hessian'\]"):
        Optimizer([first], cf.optimizers.sophia())


@pytest.mark.filterwarnings(COMPILING)
@pytest.mark.filterwarnings("ignore:.*record_function.*")
def test_a_trace_around_the_step_loses_no_number_of_the_model() -> None:
    ours, theirs = parameters([(3,)]), parameters([(3,)])
    rule = cf.optimizers.schedule_free_sgd(lr=0.1)
    mine, other = Optimizer(ours, rule), Optimizer(theirs, rule)
    torch._dynamo.reset()
    compiled = torch.compile(mine.step, backend="aot_eager")
    for _ in range(3):
        for params in (ours, theirs):
            params[0].grad = torch.ones(3)
        compiled()
        other.step()
    assert largest_difference(ours, theirs) == 0
    for name, value in other.state[theirs[0]].items():
        assert torch.equal(mine.state[ours[0]][name], value)
