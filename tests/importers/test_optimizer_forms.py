"""Steps that insist on float32, or on a learning rate in a tensor, judged by torch for 20 steps."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sympy as sp
import torch

import closedform as cf
from closedform.errors import TraceError
from closedform.language.update_rule import UpdateRule
from tests.support.torch_optimizers import Counting

SHAPE = (4, 3)


def largest_difference(
    make: Callable[[Any], torch.optim.Optimizer], dtype: Any = np.float32
) -> float:
    """Of a rule and its optimizer, relative to the largest element."""
    random = np.random.default_rng(5)
    first = random.standard_normal(SHAPE).astype(dtype)
    param = torch.nn.Parameter(torch.from_numpy(first.copy()))
    optimizer = make([param])
    rule = cf.from_torch(make([torch.nn.Parameter(torch.zeros(SHAPE))]))
    assert isinstance(rule, UpdateRule)
    session = cf.OptimizerSession(rule, {"w": first.copy()})
    largest = 0.0
    for _ in range(20):
        gradient = random.standard_normal(SHAPE).astype(dtype)
        param.grad = torch.from_numpy(gradient.copy())
        optimizer.step()
        session.step({"w": gradient})
        value = param.detach().numpy()
        gap = np.abs(value - session.params["w"]).max() / np.abs(value).max()
        largest = max(largest, float(gap))
    return largest


def raises(tensor: torch.Tensor) -> None:
    if tensor.dtype != torch.float32:
        raise TypeError(f"float32 only, got {tensor.dtype}")


def asserts(tensor: torch.Tensor) -> None:
    assert tensor.dtype is torch.float32


def compares(tensor: torch.Tensor) -> None:
    torch.finfo(tensor.dtype)
    if tensor.to(torch.float32).dtype != tensor.detach().dtype:
        raise RuntimeError("of another dtype")


STEPS: dict[str, Callable[[Any, Any, dict[str, Any]], Any]] = {
    "a sum": lambda p, g, states: g,
    "a cast": lambda p, g, states: g.float() * p.to(torch.float32) + g.type(torch.float32),
    "the epsilon": lambda p, g, states: g / (g.abs() + torch.finfo(g.dtype).eps),
    "a moment": lambda p, g, states: states.setdefault(
        "moment", torch.zeros(p.shape, dtype=torch.float32)
    ).lerp_(g, 0.125),
    "a product": lambda p, g, states: (g.float() @ g.mT) @ g,
    "through float64": lambda p, g, states: g.double().mul(0.5).float(),
}


def insisting(check: Callable[[Any], None], step: str) -> Callable[[Any], torch.optim.Optimizer]:
    def body(param: torch.Tensor, grad: torch.Tensor, states: dict[str, Any]) -> None:
        check(grad)
        update = STEPS[step](param, grad, states)
        check(update)
        param.sub_(update, alpha=0.125)

    return lambda params: Counting(params, body)


@pytest.mark.sample(every=2)
@pytest.mark.parametrize(
    ("check", "step"), [*itertools.product((raises, asserts, compares), STEPS)]
)
def test_a_step_that_insists_on_float32_is_read(check: Callable[[Any], None], step: str) -> None:
    # Products of 3 terms and 20 steps round in float32, in either order.
    assert largest_difference(insisting(check, step)) < 2e-6


def test_parameters_of_float64_are_what_the_step_refuses() -> None:
    make = insisting(raises, "a sum")
    with pytest.raises(TraceError, match=r"TypeError: float32 only, got torch.float64"):
        cf.from_torch(make([torch.zeros(SHAPE, dtype=torch.float64)]))


class Insists(torch.optim.Optimizer):
    """A step with a learning rate in a tensor, as one compiles it."""

    def __init__(self, params: Any, lr: torch.Tensor) -> None:
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            assert isinstance(group["lr"], torch.Tensor), "lr was changed to a number"
            for param in group["params"]:
                param.sub_(group["lr"] * param.grad)


RATES = [
    torch.tensor(1e-3, dtype=dtype).reshape(shape)
    for dtype in (torch.float32, torch.float64, torch.bfloat16)
    for shape in ((), (1,))
]
KINDS: dict[str, Callable[[Any, torch.Tensor], torch.optim.Optimizer]] = {
    "insists": Insists,
    "SGD": lambda params, lr: torch.optim.SGD(params, lr=lr, momentum=0.5),
    "AdamW": lambda params, lr: torch.optim.AdamW(params, lr=lr),
}


@pytest.mark.parametrize("rate", RATES, ids=lambda rate: f"{rate.dtype}{list(rate.shape)}")
@pytest.mark.parametrize("kind", KINDS)
def test_a_rate_in_a_tensor_is_the_decimal_that_was_written(kind: str, rate: Any) -> None:
    rule = cf.from_torch(KINDS[kind]([torch.zeros(SHAPE)], rate))
    assert isinstance(rule, UpdateRule)
    assert rule.hyperparameters["lr"] == sp.Rational(1, 1000)
    if rate.dtype != torch.bfloat16:  # a step of torch takes the rounded rate
        assert largest_difference(lambda params: KINDS[kind](params, rate.clone())) < 1e-6


def test_a_rate_in_a_tensor_that_the_step_changes_is_a_state() -> None:
    class Falling(Insists):
        @torch.no_grad()
        def step(self, closure: Any = None) -> None:  # type: ignore[override]
            super().step()
            self.param_groups[0]["lr"].mul_(0.5)

    rule = cf.from_torch(Falling([torch.zeros(SHAPE)], torch.tensor(0.5)))
    assert isinstance(rule, UpdateRule)
    assert rule.shared["lr"].initial == sp.Rational(1, 2)
    assert "lr" not in rule.hyperparameters


@pytest.mark.parametrize(
    ("make", "gap"),
    [
        (lambda params: torch.optim.ASGD(params, lr=1e-2), 1e-10),
        (lambda params: torch.optim.NAdam(params, lr=1e-2), 1e-11),
        (lambda params: torch.optim.RAdam(params, lr=1e-2), 0.0),
    ],
    ids=["ASGD", "NAdam", "RAdam"],
)
def test_a_number_in_the_default_dtype_is_rounded_by_torch_only(make: Any, gap: float) -> None:
    before = torch.get_default_dtype()
    assert before == torch.float32
    # Half a unit in the last place of a float32 is 6e-8 of it; parameters change by 1 % a step.
    assert gap <= largest_difference(make, np.float64) < 1e-7
    torch.set_default_dtype(torch.float64)
    try:
        # Sums of float64 in another order, 20 times.
        assert largest_difference(make, np.float64) < 1e-14
    finally:
        torch.set_default_dtype(before)
