"""Steps that are not those of the class: hooks, steps of an object, and steps that were taken."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sympy as sp
import torch
from torch.optim.lr_scheduler import LambdaLR, OneCycleLR
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

import closedform as cf
from closedform.errors import TraceError
from closedform.language.symbols import GRAD, PARAM, hyper, state
from closedform.language.update_rule import UpdateRule

SHAPE = (3, 4)


def parameter() -> torch.nn.Parameter:
    return torch.nn.Parameter(torch.randn(SHAPE, generator=torch.Generator().manual_seed(3)))


def clip(optimizer: Any, args: Any, kwargs: Any) -> None:
    for group in optimizer.param_groups:
        for param in group["params"]:
            param.grad.clamp_(-0.1, 0.1)


class Projection:
    def __call__(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        with torch.no_grad():
            for group in optimizer.param_groups:
                for param in group["params"]:
                    param.clamp_(-0.5, 0.5)


def half(optimizer: Any, closure: Any = None) -> None:
    clip(optimizer, (), {})
    type(optimizer).step(optimizer)


def with_step(step: Any) -> Callable[[Optimizer], None]:
    def change(optimizer: Optimizer) -> None:
        setattr(optimizer, "step", step)  # noqa: B010

    return change


def wrapped(optimizer: Optimizer) -> None:
    step = optimizer.step

    @functools.wraps(step)
    def clipped_step(closure: Any = None) -> Any:
        clip(optimizer, (), {})
        return step()

    setattr(optimizer, "step", clipped_step)  # noqa: B010


CHANGES: dict[str, tuple[Callable[[Optimizer], Any], str]] = {
    "hook before": (lambda o: o.register_step_pre_hook(clip), r"step pre-hook 'clip' \(.*\.py:\d+"),
    "hook after": (lambda o: o.register_step_post_hook(Projection()), "post-hook 'Projection'"),
    "partial": (lambda o: o.register_step_pre_hook(functools.partial(clip)), "pre-hook 'clip'"),
    "function": (with_step(lambda closure=None: None), "step of its own, '.*<lambda>'"),
    "wrapper": (wrapped, "a step of its own, '(SGD|Adam).step' "),
    "method": (
        lambda o: with_step(functools.partial(half, o))(o),
        "a step of its own, 'half'",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
def test_what_is_not_a_part_of_the_step_is_refused_by_name(kind: Any, name: str) -> None:
    change, message = CHANGES[name]
    optimizer = kind([parameter()], lr=0.1)
    change(optimizer)
    with pytest.raises(TraceError, match=message) as error:
        cf.from_torch(optimizer)
    assert "remove it" in str(error.value)


@pytest.mark.parametrize(
    "attach",
    [
        lambda o: LambdaLR(o, lambda step: 1.0),
        lambda o: OneCycleLR(o, 0.1, total_steps=9),
        lambda o: o.register_state_dict_post_hook(lambda _, state: state),
        lambda o: (LambdaLR(o, lambda step: 1.0), LambdaLR(o, lambda step: 0.5)),
    ],
)
def test_what_does_not_change_the_step_is_looked_through(attach: Any) -> None:
    optimizer = torch.optim.SGD([parameter()], lr=0.1, momentum=0.9)
    attach(optimizer)
    rule = cf.from_torch(optimizer)
    plain = cf.from_torch(torch.optim.SGD([parameter()], lr=0.1, momentum=0.9))
    assert isinstance(rule, UpdateRule)
    assert isinstance(plain, UpdateRule)
    assert (rule.param, rule.states) == (plain.param, plain.states)


MAKE: dict[str, Callable[[Any], Optimizer]] = {
    "SGD": lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9),
    "Adagrad": lambda params: torch.optim.Adagrad(params, lr=0.1),
    "Adam": lambda params: torch.optim.Adam(params, lr=0.1),
    "RMSprop": lambda params: torch.optim.RMSprop(params, lr=0.1),
    "NAdam": lambda params: torch.optim.NAdam(params, lr=0.1),
    "ASGD": lambda params: torch.optim.ASGD(params, lr=0.1),
    "Rprop": lambda params: torch.optim.Rprop(params, lr=0.1),
}


@pytest.mark.parametrize("gradient", ["ones", "normal"])
@pytest.mark.parametrize("name", MAKE)
def test_an_optimizer_that_has_taken_steps_is_refused(name: str, gradient: str) -> None:
    params = [parameter(), parameter()]
    optimizer = MAKE[name](params)
    params[1].grad = torch.ones(SHAPE) if gradient == "ones" else torch.randn(SHAPE)
    optimizer.step()  # the first parameter takes none
    with pytest.raises(TraceError, match=r"has taken steps: its state '.*before its first step"):
        cf.from_torch(optimizer)


class Making(Optimizer):
    """Makes a state in its constructor, and in its step where there is none."""

    def __init__(
        self, params: Any, make: Callable[[Any], Any], remake: Callable[[Any], Any]
    ) -> None:
        super().__init__(params, {"lr": 0.5})
        self.remake = remake
        for p in self.param_groups[0]["params"]:
            self.state[p]["scale"] = make(p)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for p in self.param_groups[0]["params"]:
            own = self.state[p]
            if "scale" not in own:
                own["scale"] = self.remake(p)
            p.sub_(p.grad * own["scale"], alpha=self.param_groups[0]["lr"])
            own["scale"] = own["scale"] * 2


MAKES: dict[str, Callable[[Any], Any]] = {
    "tensor": torch.ones_like,
    "number": lambda p: 1.0,
    "number in a tensor": lambda p: torch.tensor(1.0, dtype=p.dtype),
}


@pytest.mark.parametrize("name", MAKES)
def test_states_of_a_constructor_that_the_step_makes_too_are_first_values(name: str) -> None:
    rule = cf.from_torch(Making([parameter(), parameter()], MAKES[name], MAKES[name]))
    assert isinstance(rule, UpdateRule)
    assert rule.states["scale"].initial == 1
    assert rule.states["scale"].next == 2 * state("scale")


@pytest.mark.parametrize("name", MAKES)
def test_states_of_a_constructor_that_the_step_makes_otherwise_are_refused(name: str) -> None:
    make = MAKES[name]
    with pytest.raises(TraceError, match="has taken steps: its state 'scale'"):
        cf.from_torch(Making([parameter()], make, lambda p: make(p) * 2))
    optimizer = Making([parameter(), parameter()], make, make)
    for param in optimizer.param_groups[0]["params"][:1]:
        optimizer.state[param]["scale"] = make(param) * 2
    with pytest.raises(TraceError, match="has taken steps: its state 'scale'"):
        cf.from_torch(optimizer)


class Returning(Optimizer):
    """Steps towards the first parameters, which its constructor has copied."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {"lr": 0.5})
        for p in self.param_groups[0]["params"]:
            self.state[p]["first"] = p.detach().clone()

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for p in self.param_groups[0]["params"]:
            first = self.state[p]["first"]
            p.sub_(p - first + p.grad, alpha=self.param_groups[0]["lr"])


@pytest.mark.parametrize("is_first_uniform", [False, True])
def test_a_copy_of_the_parameter_is_its_first_value(is_first_uniform: bool) -> None:
    params = [parameter(), parameter()]
    if is_first_uniform:
        params[0] = torch.nn.Parameter(torch.zeros(SHAPE))
    rule = cf.from_torch(Returning(params))
    assert isinstance(rule, UpdateRule)
    assert rule.states["first"].initial == PARAM
    assert sp.expand(rule.param - PARAM + hyper("lr") * (PARAM - state("first") + GRAD)) == 0


def test_a_copy_of_another_value_of_the_parameter_is_refused() -> None:
    optimizer = Returning([parameter()])
    optimizer.param_groups[0]["params"][0].data.mul_(2.0)
    with pytest.raises(TraceError, match="has taken steps: its state 'first'"):
        cf.from_torch(optimizer)


def test_a_hook_of_all_optimizers_is_refused_by_name_and_line() -> None:
    registrations: dict[str, Callable[[Any], Any]] = {
        "pre": register_optimizer_step_pre_hook,
        "post": register_optimizer_step_post_hook,
    }
    for moment, register in registrations.items():
        handle = register(clip)
        try:
            with pytest.raises(TraceError) as caught:
                cf.from_torch(torch.optim.SGD([parameter()], lr=0.1))
        finally:
            handle.remove()
        assert f"all optimizers have the step {moment}-hook 'clip' (" in str(caught.value)
        assert f":{clip.__code__.co_firstlineno})" in str(caught.value)
        assert "remove it" in str(caught.value)


def test_states_of_a_constructor_are_first_values() -> None:
    optimizer = torch.optim.Adagrad([parameter()], lr=0.1, initial_accumulator_value=0.25)
    rule = cf.from_torch(optimizer)
    assert isinstance(rule, UpdateRule)
    assert rule.states["sum"].initial == sp.Rational(1, 4)


def test_the_gradients_and_parameters_stay() -> None:
    param = parameter()
    optimizer = torch.optim.SGD([param], lr=0.1, momentum=0.9)
    before = param.detach().numpy().copy()
    cf.from_torch(optimizer)
    assert np.array_equal(before, param.detach().numpy())
    assert param.grad is None
    assert not optimizer.state


def test_a_step_that_is_set_again_is_that_of_the_class() -> None:
    optimizer = torch.optim.SGD([parameter()], lr=0.125)
    optimizer.step = optimizer.step  # type: ignore[method-assign]
    rule = cf.from_torch(optimizer)
    assert isinstance(rule, UpdateRule)
    assert rule.param == PARAM - hyper("lr") * GRAD


class Clipping(Optimizer):
    """A step that clips by a number of its param group."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {"lr": 0.125, "max_norm": 2.0})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            torch.nn.utils.clip_grad_norm_(group["params"], group["max_norm"])
            for param in group["params"]:
                param.add_(param.grad, alpha=-group["lr"])


def test_the_norm_of_a_group_is_a_hyperparameter() -> None:
    rule = cf.from_torch(Clipping([parameter()]))
    assert isinstance(rule, UpdateRule)
    assert rule.hyperparameters["max_norm"] == 2
