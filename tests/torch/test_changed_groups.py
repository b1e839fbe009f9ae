"""Groups of one class with different states, and states that are removed: beside torch's own."""

import copy
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import closedform as cf
from closedform.errors import ArgumentError
from closedform.torch import Optimizer, optim
from tests.torch.training import parameters, steps, values

Classes = Any
Run = Callable[[Classes], list[Tensor]]

SHAPES = ((3, 4), (5,))


def _trained(
    classes: Classes, name: str, groups: list[dict[str, Any]], change: Callable[[Any], None]
) -> list[Tensor]:
    """Three steps, a change of the optimizer, three steps."""
    params = parameters(SHAPES)
    made = [{"params": [param], **group} for param, group in zip(params, groups, strict=True)]
    optimizer = getattr(classes, name)(made, lr=0.1)
    steps(optimizer, params, 3)
    change(optimizer)
    steps(optimizer, params, 3, seed=2)
    return values(params)


def _same(name: str, groups: list[dict[str, Any]], change: Callable[[Any], None]) -> None:
    expected = _trained(torch.optim, name, groups, change)
    for got, wanted in zip(_trained(optim, name, groups, change), expected, strict=True):
        # Six steps of some ten roundings of 6e-8 each, on numbers of about 1.
        torch.testing.assert_close(got, wanted, rtol=5e-6, atol=5e-6)


def _unchanged(_: Any) -> None:
    pass


def _set(**entries: Any) -> Callable[[Any], None]:
    return lambda optimizer: optimizer.param_groups[0].update(entries)


def _clear(optimizer: Any) -> None:
    optimizer.state.clear()


def _pop(optimizer: Any) -> None:
    optimizer.state.pop(optimizer.param_groups[0]["params"][0])


def _empty(optimizer: Any) -> None:
    optimizer.state[optimizer.param_groups[1]["params"][0]] = {}


def _off_and_on(optimizer: Any) -> None:
    group = optimizer.param_groups[0]
    group["momentum"] = 0
    steps(optimizer, parameters_of(optimizer), 2, seed=3)
    group["momentum"] = 0.5


def parameters_of(optimizer: torch.optim.Optimizer) -> list[nn.Parameter]:
    """All parameters of an optimizer."""
    return [param for group in optimizer.param_groups for param in group["params"]]


@pytest.mark.parametrize(
    ("name", "groups"),
    [
        ("SGD", [{"momentum": 0.9}, {}]),
        ("SGD", [{}, {"momentum": 0.9, "dampening": 0.5}]),
        ("RMSprop", [{"momentum": 0.9}, {"centered": True}]),
        ("AdamW", [{"amsgrad": True}, {"weight_decay": 0}]),
    ],
)
def test_groups_have_the_states_of_their_own_values(
    name: str, groups: list[dict[str, Any]]
) -> None:
    _same(name, groups, _unchanged)


@pytest.mark.parametrize(
    ("groups", "change"),
    [
        ([{}, {}], _set(momentum=0.9)),
        ([{"dampening": 0.5}, {}], _set(momentum=0.9)),
        ([{"momentum": 0.9}, {}], _set(momentum=0)),
        ([{"momentum": 0.9}, {}], _off_and_on),
        ([{"momentum": 0.9, "dampening": 0.3}, {"momentum": 0.9}], _clear),
    ],
)
def test_momentum_is_switched_by_hand_as_in_torch(
    groups: list[dict[str, Any]], change: Callable[[Any], None]
) -> None:
    _same("SGD", groups, change)


@pytest.mark.parametrize("change", [_clear, _pop, _empty])
@pytest.mark.parametrize("name", ["AdamW", "Adagrad"])
def test_removed_states_are_made_anew(name: str, change: Callable[[Any], None]) -> None:
    if name == "Adagrad":  # torch's makes its states in the constructor, and raises KeyError
        params = parameters(SHAPES)
        optimizer = optim.Adagrad(params)
        steps(optimizer, params, 1)
        optimizer.state.clear()
        steps(optimizer, params, 2)
        assert optimizer.state[params[0]]["step"] == 2
    else:
        _same(name, [{}, {}], change)


@pytest.mark.parametrize("backend", ["eager", "onnxruntime"])
def test_a_state_that_is_not_used_is_saved_and_loaded(backend: str) -> None:
    params = parameters(SHAPES)
    optimizer = optim.SGD(params, lr=0.1, momentum=0.9, backend=backend)
    steps(optimizer, params, 2)
    optimizer.param_groups[0]["momentum"] = 0
    steps(optimizer, params, 2)
    buffer = optimizer.state[params[0]]["momentum_buffer"]
    other = optim.SGD(params, lr=0.1, backend=backend)
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    assert torch.equal(other.state[params[0]]["momentum_buffer"], buffer)
    steps(other, params, 1)


def test_a_parameter_of_a_joint_rule_takes_over_the_clock_of_the_others() -> None:
    params = parameters(SHAPES)
    rule = cf.transforms.skip_nonfinite(cf.optimizers.adamw(lr=0.1))
    optimizer = Optimizer(params, rule)
    steps(optimizer, params, 2)
    shared = {k: v for k, v in optimizer.state[params[1]].items() if k.startswith("shared.")}
    optimizer.state.pop(params[0])
    steps(optimizer, params, 1)
    assert {int(optimizer.state[param]["step"]) for param in params} == {3}
    assert shared.keys() == {k for k in optimizer.state[params[0]] if k.startswith("shared.")}


@pytest.mark.parametrize("name", ["SGD", "AdamW", "Adagrad"])
def test_differentiable_is_refused(name: str) -> None:
    weight = torch.ones(2, requires_grad=True).clone()
    with pytest.raises(
        ArgumentError, match=rf"differentiable=True is not supported.*{name}, param group 0"
    ):
        getattr(optim, name)([weight], differentiable=True)


SWITCHES = ("maximize", "foreach", "differentiable", "fused", "capturable", "amsgrad", "nesterov")


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop", "NAdam", "Adagrad"])
def test_groups_saved_by_older_versions_load_without_switches(name: str) -> None:
    """As ``__setstate__`` of torch's classes, which fills them in; in both directions."""
    params = parameters(SHAPES)
    source = getattr(torch.optim, name)(params, lr=0.1)
    steps(source, params, 2)
    older = copy.deepcopy(source.state_dict())
    for group in older["param_groups"]:
        for switch in (*SWITCHES, "decoupled_weight_decay"):
            group.pop(switch, None)
    start = values(params)

    def continued(optimizer: torch.optim.Optimizer, state: Mapping[str, Any]) -> list[Tensor]:
        with torch.no_grad():
            for param, value in zip(params, start, strict=True):
                param.copy_(value)
        optimizer.load_state_dict(copy.deepcopy(dict(state)))  # torch steps in its tensors
        steps(optimizer, params, 2, seed=2)
        return values(params)

    wanted = continued(getattr(torch.optim, name)(params, lr=0.3), older)
    ours = getattr(optim, name)(params, lr=0.3)
    for got, value in zip(continued(ours, older), wanted, strict=True):
        torch.testing.assert_close(got, value, rtol=5e-6, atol=5e-6)  # four steps, as above
    assert ours.param_groups[0].keys() == source.param_groups[0].keys()
    back = getattr(torch.optim, name)(params, lr=0.3)
    back.load_state_dict(ours.state_dict())
    steps(back, params, 1)


def test_a_switch_that_is_missing_does_not_hide_a_foreign_state() -> None:
    params = parameters(SHAPES)
    optimizer = optim.AdamW(params)
    with pytest.raises(cf.errors.StateError, match="the saved group has no 'betas'"):
        optimizer.load_state_dict(torch.optim.SGD(params).state_dict())


def test_a_full_state_dict_loads_by_names() -> None:
    from torch.distributed.checkpoint.state_dict import (
        StateDictOptions,
        get_optimizer_state_dict,
        set_optimizer_state_dict,
    )

    options = StateDictOptions(full_state_dict=True)
    model = nn.Linear(3, 2)
    for make, other in ((torch.optim.AdamW, optim.AdamW), (optim.AdamW, torch.optim.AdamW)):
        source = make(model.parameters(), lr=0.1)
        steps(source, model.parameters(), 2)
        model.zero_grad()
        saved = get_optimizer_state_dict(model, source, options=options)
        target = other(model.parameters(), lr=0.3)
        set_optimizer_state_dict(model, target, saved, options=options)
        for param in model.parameters():
            assert torch.equal(target.state[param]["exp_avg"], source.state[param]["exp_avg"])
            assert float(target.state[param]["step"]) == 2
        assert target.param_groups[0]["lr"] == 0.1


@pytest.mark.parametrize("name", ["AdamW", "SGD"])
def test_states_have_the_memory_format_of_their_parameter(name: str) -> None:
    (param,) = parameters([(2, 3, 4, 4)])
    param.data = param.data.to(memory_format=torch.channels_last)
    given = {"momentum": 0.9} if name == "SGD" else {}
    optimizer = getattr(optim, name)([param], lr=0.1, **given)
    steps(optimizer, [param], 1)
    contiguous = copy.deepcopy(optimizer.state_dict())
    for states in contiguous["state"].values():
        for key, value in states.items():
            states[key] = value.contiguous()
    for _ in range(2):
        formats = [value.stride() for value in optimizer.state[param].values() if value.dim()]
        assert formats == [param.stride()] * len(formats) != []
        optimizer.load_state_dict(contiguous)
