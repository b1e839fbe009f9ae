"""States of the first step: weights that come after the optimizer is made, by values or device."""

from typing import Any

import pytest
import torch
from torch import nn

import closedform as cf
from closedform.language import UpdateRule
from closedform.torch import Optimizer
from tests.torch.engines import LIBRARY, shapes_of
from tests.torch.training import largest_difference, parameters, steps

ADAMW = cf.optimizers.adamw(lr=0.01)
TRANSFORMED = {
    "lookahead": lambda: cf.transforms.lookahead(ADAMW, 1),
    "master_weights": lambda: cf.transforms.master_weights(ADAMW),
    "kahan": lambda: cf.transforms.kahan(ADAMW),
    "weight_average": lambda: cf.transforms.weight_average(ADAMW, 0.9),
    "eight_bit_states": lambda: cf.transforms.eight_bit_states(ADAMW),
    "scheduled": lambda: cf.optimizers.adamw(cf.schedules.linear(0.1, 0, 5)),
}
RULES: dict[str, Any] = {**LIBRARY, **TRANSFORMED}


AT_WEIGHTS = ("d_adapt_sgd", "dog", "dowg", "madgrad", "prodigy", "schedule_free_adamw")
"""Rules of the library with a first state that is the parameter."""


@pytest.mark.parametrize("name", [*AT_WEIGHTS, *TRANSFORMED])
def test_rules_that_start_at_the_weights_take_those_of_the_first_step(name: str) -> None:
    check_late_weights(RULES[name]())


@pytest.mark.sample(every=6)
@pytest.mark.parametrize("name", sorted(LIBRARY.keys() - set(AT_WEIGHTS)))
def test_states_are_made_from_the_parameter_of_the_first_step(name: str) -> None:
    check_late_weights(RULES[name]())


def test_a_state_dict_has_the_first_states_of_the_weights_that_there_are() -> None:
    (param,) = parameters([(3, 4)])
    lazy: Any = nn.LazyLinear(2)
    optimizer = Optimizer([param, *lazy.parameters()], TRANSFORMED["lookahead"]())
    param.data.fill_(7)
    (saved,) = optimizer.state_dict()["state"].values()
    assert torch.equal(saved["slow"], param)
    assert saved["step"] == 0
    assert not any(optimizer.state.values())
    lazy(torch.ones(2, 4)).sum().backward()
    param.grad = torch.ones_like(param)
    optimizer.step()
    assert len(optimizer.state_dict()["state"]) == 3


def check_late_weights(rule: UpdateRule) -> None:
    """Two steps after the weights came late are those after they came early, to the bit."""
    dtype = torch.bfloat16 if rule.stored else torch.float32
    # Two shapes of the rule, the largest ones.
    shapes = shapes_of(rule)[-2:]
    early = parameters(shapes, dtype=dtype)
    late = parameters(shapes, dtype=dtype, seed=1)
    moved = [nn.Parameter(torch.empty(shape, device="meta", dtype=dtype)) for shape in shapes]
    optimizers = [Optimizer(params, rule) for params in (early, late, moved)]
    for optimizer in optimizers:
        assert not any(optimizer.state.values())
    with torch.no_grad():
        for param, weights, other in zip(late, early, moved, strict=True):
            param.copy_(weights)
            torch.utils.swap_tensors(other, nn.Parameter(weights.clone()))
    for optimizer, params in zip(optimizers, (early, late, moved), strict=True):
        steps(optimizer, params, 2)
    for params, optimizer in ((late, optimizers[1]), (moved, optimizers[2])):
        assert largest_difference(params, early) == 0
        for param, weights in zip(params, early, strict=True):
            for state, value in optimizers[0].state[weights].items():
                assert torch.equal(optimizer.state[param][state], value), state


def test_a_session_is_made_once_the_parameter_has_memory() -> None:
    (weights,) = parameters([(3, 4)])
    param = nn.Parameter(torch.empty(3, 4, device="meta"))
    optimizer = Optimizer([param], ADAMW, backend="onnxruntime")
    torch.utils.swap_tensors(param, nn.Parameter(weights.detach().clone()))
    other = Optimizer([weights], ADAMW, backend="onnxruntime")
    for each, own in ((optimizer, param), (other, weights)):
        steps(each, [own], 2)
    assert torch.equal(param, weights)
