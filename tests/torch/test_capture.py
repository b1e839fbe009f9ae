"""Steps in a CUDA graph: what a replay would freeze is named, and refused where it is captured.

The device is a CPU: a test says that a graph captures, and looks at what the step does then.
"""

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import closedform as cf
from closedform import optimizers, schedules
from closedform.errors import StateError
from closedform.language import Schedule, UpdateRule
from closedform.torch import Optimizer, ParamScheduler, optim
from closedform.torch.engine.specialize import HyperSource
from closedform.torch.group_sources import GroupSource
from closedform.verify.claims import capturable
from tests.test_library import OPTIMIZERS
from tests.torch.training import largest_difference, parameters, steps

SHAPE = (4, 3)


def library() -> Iterator[tuple[str, UpdateRule]]:
    """Yields the rules of the library that only take gradients, with numbers for schedules."""
    for name, make in OPTIMIZERS.items():
        rule = make()
        if not rule.inputs:
            values = rule.hyperparameters.items()
            numbers = {k: 1e-3 if isinstance(v, Schedule) else v for k, v in values}
            yield name, rule.bind(**numbers)


RULES = dict(library())
MEMBERS = [(name, key) for name, rule in RULES.items() for key in rule.hyperparameters]


def host_numbers(optimizer: Optimizer) -> set[str]:
    """Returns the entries that the claim about an optimizer names."""
    verdict = capturable(optimizer).verify()
    assert verdict.proved == (not optimizer.host_numbers())
    for name, way in optimizer.host_numbers().items():
        assert f"{name} is {way}" in verdict.reason
    return {name.split(" of ")[0] for name in optimizer.host_numbers()}


@pytest.fixture
def capture(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """A function from which on a CUDA graph captures."""

    def begin() -> None:
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)

    return begin


# --- numbers that the host gives -----------------------------------------------------------------


@pytest.mark.parametrize("name", RULES)
def test_numbers_that_nothing_changes_are_constants_of_the_graph(name: str) -> None:
    assert host_numbers(Optimizer(parameters([SHAPE]), RULES[name])) == set()


@pytest.mark.sample(every=3)
@pytest.mark.parametrize(("name", "key"), MEMBERS)
def test_a_number_that_a_scheduler_writes_is_found(name: str, key: str) -> None:
    optimizer = Optimizer(parameters([SHAPE]), RULES[name])
    ParamScheduler(optimizer, schedules.constant(optimizer.param_groups[0][key]), key=key)
    # The mark of a scheduler is a hyperparameter of these rules: only a change shows it.
    is_marked = f"initial_{key}" not in RULES[name].hyperparameters
    assert host_numbers(optimizer) == ({key} if is_marked else set())


@pytest.mark.sample(every=3)
@pytest.mark.parametrize(("name", "key"), MEMBERS)
def test_a_number_that_the_loop_has_changed_is_found(name: str, key: str) -> None:
    params = parameters([SHAPE])
    optimizer = Optimizer(params, RULES[name])
    steps(optimizer, params, 1)
    assert host_numbers(optimizer) == set()
    optimizer.param_groups[0][key] = 0.75 * optimizer.param_groups[0][key] + 1e-4
    assert host_numbers(optimizer) == {key}
    other = Optimizer(parameters([SHAPE]), RULES[name])
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    assert host_numbers(other) == set()  # it begins with the loaded numbers


@pytest.mark.parametrize("key", ["lr", "weight_decay"])
def test_a_schedule_and_a_tensor_are_read_by_each_replay(key: str) -> None:
    decay = schedules.linear(1e-2, 0, 100)
    scheduled = Optimizer(parameters([SHAPE]), optimizers.adamw(1e-3).bind(**{key: decay}))
    assert host_numbers(scheduled) == set()
    in_group = Optimizer([{"params": parameters([SHAPE]), key: decay}], optimizers.adamw(1e-3))
    assert host_numbers(in_group) == set()
    rule = optimizers.adamw(1e-3)
    filled = Optimizer([{"params": parameters([SHAPE]), key: torch.tensor(1e-2)}], rule)
    ParamScheduler(filled, decay, key=key)
    assert host_numbers(filled) == set()
    # Nothing is on another device here but the parameters, which have no values.
    params = [nn.Parameter(torch.empty(SHAPE, device="meta"))]
    group = {**filled.param_groups[0], "params": params}
    assert GroupSource(HyperSource(rule)).host_numbers(group) == {key: "a tensor on cpu"}


def test_schedulers_of_torch_leave_marks() -> None:
    sgd = optim.SGD(parameters([SHAPE]), lr=0.1, momentum=0.9)
    torch.optim.lr_scheduler.StepLR(sgd, 30)
    assert host_numbers(sgd) == {"lr"}
    one_cycle = optim.SGD(parameters([SHAPE]), lr=0.1, momentum=0.9)
    torch.optim.lr_scheduler.OneCycleLR(one_cycle, 0.1, total_steps=9)
    assert host_numbers(one_cycle) == {"lr", "momentum"}
    betas = optim.AdamW(parameters([SHAPE]))
    torch.optim.lr_scheduler.OneCycleLR(betas, 0.1, total_steps=9)
    assert host_numbers(betas) == {"lr", "betas"}


def test_each_group_has_its_own_numbers() -> None:
    second = {"params": parameters([(2,)]), "lr": 0.1}
    groups: list[dict[str, Any]] = [{"params": parameters([SHAPE])}, second]
    optimizer = Optimizer(groups, optimizers.adamw(schedules.linear(1e-3, 0, 100)))
    ParamScheduler(optimizer, [None, schedules.linear(0.1, 0, 9)])
    wanted = {"lr of param group 1": "a number that a scheduler writes"}
    assert optimizer.host_numbers() == wanted


# --- at the capture ------------------------------------------------------------------------------


def test_a_captured_step_without_numbers_of_the_host_is_the_eager_step(
    capture: Callable[[], None],
) -> None:
    rule = optimizers.adamw(schedules.linear(0, 1e-2, 5), weight_decay=schedules.linear(1, 0, 9))
    captured, eager = parameters([SHAPE]), parameters([SHAPE])
    optimizer, other = Optimizer(captured, rule), Optimizer(eager, rule)
    steps(optimizer, captured, 2)
    steps(other, eager, 2)
    steps(other, eager, 3, seed=2)
    capture()
    steps(optimizer, captured, 3, seed=2)
    assert largest_difference(captured, eager) == 0


@pytest.mark.parametrize("backend", ["eager", "compile"])
def test_a_capture_with_a_rate_of_the_host_is_refused(
    backend: str, capture: Callable[[], None]
) -> None:
    params = parameters([SHAPE])
    optimizer = optim.AdamW(params, lr=0.1, backend=backend)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda t: 0.9**t)
    if backend == "eager":
        steps(optimizer, params, 2, after=scheduler.step)
    before = [param.detach().clone() for param in params]
    capture()
    message = (
        r"would keep lr of param group 0, a number that a scheduler writes, as it is in all "
        r"replays \(AdamW\): give the optimizer a Schedule"
    )
    with pytest.raises(StateError, match=message):
        steps(optimizer, params, 1)
    assert largest_difference(params, before) == 0


def test_a_capture_without_a_gradient_is_refused_by_name(capture: Callable[[], None]) -> None:
    net = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2))
    rule = cf.optimizers.lion(schedules.linear(1e-3, 0, 100))
    optimizer = Optimizer(net.named_parameters(), rule)
    net(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    net[1].bias.grad = None
    optimizer.step()  # not captured: the parameter is left as it is
    capture()
    message = (
        r"leave out a parameter that has no gradient.*\(Optimizer, param group 0, parameter "
        r"'1\.bias' of shape \[2\]\): run backward\(\) before the capture"
    )
    with pytest.raises(StateError, match=message):
        optimizer.step()
    net[1].bias.requires_grad_(False)  # as the message says
    optimizer.step()
    net[1].bias.requires_grad_(True)
    net[1].bias.grad = torch.zeros(2)
    optimizer.step()


def test_a_capture_of_the_first_step_is_refused(capture: Callable[[], None]) -> None:
    params = parameters(((2,),))
    optimizer = optim.AdamW(params)
    capture()
    with pytest.raises(StateError, match=r"at its first step.*step once before"):
        steps(optimizer, params, 1)
