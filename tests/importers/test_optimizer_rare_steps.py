"""Ways through the step of an optimizer that few steps take: read, shown to be none, or refused."""

import math

import numpy as np
import pytest
import sympy as sp
import torch

import closedform as cf
from closedform.errors import TraceError
from closedform.importers.torch_optimizer.feasibility import Feasibility
from closedform.language.integers import floor_mod
from closedform.language.symbols import hyper, t
from closedform.verify.tracing import TracingProver
from tests.support.torch_optimizers import Body, Counting, States
from tests.support.trajectories import trajectory


def restarted(p: torch.Tensor, g: torch.Tensor, states: States) -> None:
    """A period that is longer than the first steps, and a single step."""
    if states["step"] % 500 == 0 or states["step"] == 777:
        p.zero_()
    p.sub_(g, alpha=0.125)


def of_two_periods(p: torch.Tensor, g: torch.Tensor, states: States) -> None:
    """Two periods that meet once in 7000 steps, and a period that begins late."""
    if states["step"] % 7 == 3 and states["step"] % 1000 == 10:
        p.zero_()
    if states["step"] > 700 and states["step"] % 397 == 0:
        p.neg_()
    p.sub_(g, alpha=0.125)


def remembering(p: torch.Tensor, g: torch.Tensor, states: States) -> None:
    """A number that only a rare step writes, as the projections of Conda."""
    states.setdefault("last", 1)
    if states["step"] % 400 == 0 and states["last"] != states["step"]:
        states["last"] = states["step"]
    p.sub_(g, alpha=states["last"] / 64)


@pytest.mark.parametrize("body", [restarted, of_two_periods, remembering])
def test_steps_that_are_rare_are_those_of_the_optimizer(body: Body) -> None:
    rng = np.random.default_rng(0)
    start, gradients = rng.normal(size=3), rng.normal(size=(1100, 3))
    rule = cf.from_torch(Counting([torch.nn.Parameter(torch.tensor(start))], body))
    assert isinstance(rule, cf.UpdateRule)
    param = torch.nn.Parameter(torch.tensor(start))
    optimizer = Counting([param], body)
    steps = trajectory(rule, {"w": start}, [{"w": gradient} for gradient in gradients])
    for count, (carried, gradient) in enumerate(zip(steps, gradients, strict=True)):
        param.grad = torch.tensor(gradient)
        optimizer.step()
        # A few roundings in each step of sums that are below 100.
        expected = param.detach().numpy()
        np.testing.assert_allclose(carried["param.w"], expected, atol=1e-11, err_msg=str(count))


def test_a_way_that_no_step_takes_is_left_out() -> None:
    def body(p: torch.Tensor, g: torch.Tensor, states: States) -> None:
        if states["step"] < 6 and states["step"] % 6 == 0:
            p.copy_(p.sort(dim=0).values)  # it has no expression
        p.sub_(g, alpha=0.125)

    rule = cf.from_torch(Counting([torch.nn.Parameter(torch.ones(3))], body))
    assert isinstance(rule, cf.UpdateRule)
    assert not rule.param.has(sp.Piecewise)


def test_a_way_that_some_step_may_take_is_refused() -> None:
    def body(p: torch.Tensor, g: torch.Tensor, states: States) -> None:
        if math.sin(states["step"]) > 1 - 1e-14:
            p.zero_()
        p.sub_(g, alpha=0.125)

    with pytest.raises(
        TraceError, match=r"no step is known at which sin\(t \+ 1\) > .*: decide on"
    ):
        cf.from_torch(Counting([torch.nn.Parameter(torch.ones(3))], body))


RHO = 1999 - 2 * (t + 1) * hyper("b") ** (t + 1) / (1 - hyper("b") ** (t + 1))
"""The length of the average of RAdam."""

RATE = sp.sqrt((1 - hyper("b") ** (t + 1)) * (RHO - 4) * (RHO - 2) / RHO)
"""Of a rectified step, but for a constant; it is above 0 where the length is above 4."""

CASES: dict[str, tuple[list[sp.Basic], int, int | None]] = {
    "sampled": ([t > 10], 1, 11),
    "period": ([sp.Eq(floor_mod(t + 1, 2000), 0)], 1, 1999),
    "later period": ([sp.Eq(floor_mod(t, 999), 5), t > 5000], 0, 5999),
    "remainders": ([sp.Eq(floor_mod(t, 7), 3), sp.Eq(floor_mod(t, 1000), 10)], 0, 10),
    "contradiction": ([sp.Eq(floor_mod(t, 2000), 0), sp.Eq(floor_mod(t, 500), 1)], 0, None),
    "window": ([t >= 700, t < 702, sp.Eq(floor_mod(t, 701), 0)], 0, 701),
    "first steps": ([RHO < 5, sp.Eq(floor_mod(t + 1, 6), 0)], 1, None),
    "rectified": ([RHO >= 5, RATE / (1 - sp.Rational(9, 10) ** (t + 1)) <= 0], 1, None),
    "equality": ([RHO >= 4, RHO <= 4], 1, None),
    "other symbols": ([t > 10, sp.Symbol("grad", real=True) > 0], 1, 11),
}


@pytest.mark.parametrize("name", CASES)
def test_a_step_at_which_conditions_hold(name: str) -> None:
    conditions, first, expected = CASES[name]
    numbers = {hyper("b"): 0.999}
    assert Feasibility(TracingProver(), numbers).step(conditions, first) == expected
