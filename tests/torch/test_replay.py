"""Replay of a captured step: what it takes over, and what makes it captured again."""

import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import closedform as cf
from closedform.errors import ArgumentError, DefinitionError
from closedform.torch import Optimizer
from closedform.torch.engine.replay import CapturedStep
from tests.torch.test_foreach import plain
from tests.torch.training import COMPILING, largest_difference, parameters, steps

pytestmark = pytest.mark.filterwarnings(COMPILING)

SHAPES = [(3,), (3,), (2, 2)]
RULE = cf.optimizers.adamw(lr=0.1, weight_decay=0.01)


def begin(params: Any, backend: str) -> Optimizer:
    """An optimizer before its first step, in a backend, one by one, or without vectors."""
    if backend == "one by one":
        return plain(params, RULE)
    made = Optimizer(params, RULE, "eager" if backend == "on lists" else backend)
    if backend == "on lists":
        made._flat_steps = dict  # type: ignore[method-assign]
    return made


def begun(backend: str) -> Optimizer:
    """An optimizer of two groups after two steps, the second of which was a replay."""
    params = parameters(SHAPES)
    groups = [{"params": params[:2], "lr": 0.2}, {"params": params[2:]}]
    optimizer = begin(groups, backend)
    steps(optimizer, params, 2)
    return optimizer


def params_of(optimizer: Optimizer) -> list[nn.Parameter]:
    """The parameters of all groups."""
    return [param for group in optimizer.param_groups for param in group["params"]]


def set_rate(optimizer: Optimizer) -> None:
    optimizer.param_groups[0]["lr"] = 0.05


def move_state(optimizer: Optimizer) -> None:
    states = optimizer.state[params_of(optimizer)[1]]
    states["exp_avg"] = states["exp_avg"] * 2


def move_counter(optimizer: Optimizer) -> None:
    optimizer.state[params_of(optimizer)[1]]["step"] = torch.tensor(7)


def fill_counter(optimizer: Optimizer) -> None:
    optimizer.state[params_of(optimizer)[1]]["step"].fill_(7)


def new_data(optimizer: Optimizer) -> None:
    param = params_of(optimizer)[0]
    param.data = param.data.flip(0)


def new_layout(optimizer: Optimizer) -> None:
    param = params_of(optimizer)[2]
    param.data = param.data.t()


def new_dtype(optimizer: Optimizer) -> None:
    param = params_of(optimizer)[0]
    param.grad = None
    param.data = param.data.double()


def replace_parameter(optimizer: Optimizer) -> None:
    """Another parameter, with the states of the previous one."""
    params = optimizer.param_groups[0]["params"]
    old, params[0] = params[0], nn.Parameter(torch.tensor([3.0, 2, 1]))
    optimizer.state[params[0]] = optimizer.state.pop(old)


def load(optimizer: Optimizer) -> None:
    optimizer.load_state_dict(optimizer.state_dict())
    move_counter(optimizer)


def add_group(optimizer: Optimizer) -> None:
    optimizer.add_param_group({"params": parameters([(4,)], seed=5), "lr": 0.3})


def copy_state(optimizer: Optimizer) -> None:
    for states in optimizer.state.values():
        states.update({name: value.clone() for name, value in states.items()})


CHANGES: dict[str, tuple[Callable[[Optimizer], None], bool]] = {
    "a number of a group": (set_rate, True),
    "a state is another tensor": (move_state, False),
    "a counter is another tensor": (move_counter, False),
    "a counter is written": (fill_counter, True),
    "a parameter has other memory": (new_data, True),
    "a parameter has other strides": (new_layout, True),
    "a parameter has another dtype": (new_dtype, True),
    "a parameter is replaced": (replace_parameter, False),
    "states are loaded": (load, False),
    "a group is added": (add_group, False),
    "all states are copied": (copy_state, False),
}
"""Changes between two steps, and whether the captured step is replayed afterwards."""


@pytest.mark.parametrize(
    "backend", ["eager", pytest.param("compile", marks=pytest.mark.sample(every=3))]
)
@pytest.mark.parametrize("name", CHANGES)
def test_changes_between_steps_are_detected(name: str, backend: str) -> None:
    change, is_replayed = CHANGES[name]
    optimizer, other = begun(backend), begun("one by one")
    before = optimizer._captured
    assert isinstance(before, CapturedStep)
    assert other._captured is None
    for one in (optimizer, other):
        change(one)
        steps(one, params_of(one), 2, seed=4)
    assert (optimizer._captured is before) == is_replayed
    ours, theirs = params_of(optimizer), params_of(other)
    assert [param.dtype for param in ours] == [param.dtype for param in theirs]
    # Four steps of 0.2 that round some four times.
    assert largest_difference(ours, theirs) <= 4 * 4 * 6e-8
    counts = [
        [int(one.state[param]["step"]) for param in params_of(one)] for one in (optimizer, other)
    ]
    assert counts[0] == counts[1]


@pytest.mark.parametrize("backend", ["eager", "compile"])
def test_a_rate_that_is_a_tensor_is_read_at_each_step(backend: str) -> None:
    found = []
    for kind in (backend, "one by one"):
        params = parameters(SHAPES)
        rate = torch.tensor(0.1)
        made = begin(params, kind)
        made.param_groups[0]["lr"] = rate
        steps(made, params, 2)
        captured = made._captured
        rate.fill_(0.01)
        steps(made, params, 2)
        assert made._captured is captured
        found.append(params)
    assert largest_difference(*found) <= 4 * 4 * 6e-8  # roundings, as above


def test_gradients_come_and_go() -> None:
    found = []
    for backend in ("eager", "one by one"):
        params = parameters(SHAPES)
        optimizer = begin(params, backend)
        for chosen in (0b111, 0b111, 0b101, 0b101, 0b110, 0b000, 0b111):
            for number, param in enumerate(params):
                wanted = chosen >> number & 1
                param.grad = torch.full_like(param, 0.5 + number) if wanted else None
            optimizer.step()
        found.append(params)
        assert [int(optimizer.state[param]["step"]) for param in params] == [5, 4, 6]
    assert largest_difference(*found) <= 7 * 4 * 6e-8  # roundings, as above


def test_one_tensor_may_be_the_gradient_of_two() -> None:
    params, apart = parameters([(3,), (3,)]), parameters([(3,), (3,)])
    mine, other = (begin(listed, "on lists") for listed in (params, apart))
    for shared in (True, True, False):
        drawn = [torch.tensor([1.0, -1, 2]), torch.tensor([-3.0, 1, 1])]
        params[0].grad, params[1].grad = drawn[0], drawn[0 if shared else 1]
        for param, given in zip(apart, (drawn[0], drawn[0 if shared else 1]), strict=True):
            param.grad = given.clone()
        mine.step()
        other.step()
        assert (mine._captured is None) == shared
    assert largest_difference(params, apart) == 0


@pytest.mark.parametrize("backend", ["eager", "compile"])
def test_no_gradient_is_replayed(backend: str) -> None:
    params = parameters([(3,), (2, 2)])
    optimizer = Optimizer(params, RULE, backend=backend)
    for _ in range(3):
        steps(optimizer, params, 1)
        grads = [weakref.ref(param.grad) for param in params]
        optimizer.zero_grad()
        assert [one() for one in grads] == [None, None]


def sparse(param: nn.Parameter, _: Optimizer) -> None:
    param.grad = torch.eye(3)[0].to_sparse()


def out_of_range(_: nn.Parameter, optimizer: Optimizer) -> None:
    optimizer.param_groups[0]["beta2"] = 2.0


def missing(_: nn.Parameter, optimizer: Optimizer) -> None:
    del optimizer.param_groups[0]["lr"]


@pytest.mark.parametrize(
    ("spoil", "error"),
    [(sparse, ArgumentError), (out_of_range, DefinitionError), (missing, cf.ClosedFormError)],
)
def test_errors_are_raised_at_later_steps(
    spoil: Callable[[nn.Parameter, Optimizer], Any], error: type[Exception]
) -> None:
    optimizer = begun("eager")
    params = params_of(optimizer)
    spoil(params[0], optimizer)
    before = [param.detach().clone() for param in params]
    with pytest.raises(error):
        optimizer.step()
    assert largest_difference(params, before) == 0


@pytest.mark.parametrize("backend", ["eager", "compile"])
def test_a_gradient_with_a_graph_is_stepped_without_it(backend: str) -> None:
    param = nn.Parameter(torch.tensor([1.0, 2.0]))
    optimizer = Optimizer([param], cf.optimizers.sgd(lr=0.25), backend=backend)
    with torch._dynamo.config.patch(error_on_recompile=True):
        for has_graph in (False, False, True, True, False):
            value = (param**2).sum()
            (param.grad,) = torch.autograd.grad(value, [param], create_graph=has_graph)
            optimizer.step()
    assert param.detach().tolist() == [2.0**-5, 2.0**-4]


@pytest.mark.parametrize("backend", ["eager", "compile"])
def test_a_group_may_be_empty(backend: str) -> None:
    params, others = parameters([(3,)]), parameters([(3,)])
    groups: list[dict[str, Any]] = [{"params": []}, {"params": params}]
    optimizer = Optimizer(groups, RULE, backend=backend)
    steps(optimizer, params, 2)
    steps(Optimizer(others, RULE), others, 2)
    assert largest_difference(params, others) <= 2 * 4 * 6e-8  # roundings
