"""Masks that a constructor makes and random numbers that a step draws: inputs of the rule."""

from typing import Any

import numpy as np
import pytest
import torch

import closedform as cf
from closedform.errors import TraceError
from closedform.importers.torch_optimizer.inputs import random_mask
from tests.support.torch_draws import Recorder
from tests.support.torch_optimizers import Body, Counting, States
from tests.support.trajectories import trajectory


class Masked(Counting):
    """Chooses the elements that are small when it is made; its step is a function."""

    def __init__(self, params: Any, body: Body, *, has_mask: bool = True) -> None:
        super().__init__(params, body)
        for param in self.param_groups[0]["params"]:
            if has_mask:
                self.state[param]["mask"] = param.detach().abs() < 1


def parameter(shape: tuple[int, ...]) -> torch.nn.Parameter:
    return torch.nn.Parameter(torch.tensor(np.random.default_rng(5).normal(size=shape)))


def rule_of(body: Body, *shapes: tuple[int, ...], has_mask: bool = True) -> cf.UpdateRule:
    params = [parameter(shape) for shape in shapes or ((3, 4),)]
    rule = cf.from_torch(Masked(params, body, has_mask=has_mask))
    assert isinstance(rule, cf.UpdateRule)
    return rule


# --- masks ---------------------------------------------------------------------------------------


def packed(p: torch.Tensor, g: torch.Tensor, states: States) -> None:
    """Adam's mean of only the elements that the mask selects, as in SaRA."""
    mask = states["mask"]
    if "mean" not in states:
        states["mean"] = torch.zeros_like(p[mask])
    states["mean"].mul_(0.5).add_(g[mask])
    chosen = p[mask]
    chosen.sub_(states["mean"], alpha=0.125)
    p[mask] = chosen


def clipped(p: torch.Tensor, g: torch.Tensor, states: States) -> None:
    """A mask of the elements that a mask selects, as in SPAM."""
    states.setdefault("square", torch.zeros_like(g[states["mask"]]))
    part = g[states["mask"]]
    is_large = part.square() > 2 * states["square"]
    part[is_large] = part[is_large].sign() * states["square"][is_large].sqrt()
    states["square"].mul_(0.75).addcmul_(g[states["mask"]], g[states["mask"]], value=0.25)
    whole = torch.zeros_like(p)
    whole[states["mask"]] = part
    p.sub_(whole, alpha=0.125)


def chosen(p: torch.Tensor, g: torch.Tensor, states: States) -> None:
    """The mask as truths, as numbers and as a count."""
    p.sub_(torch.where(states["mask"], g, p), alpha=0.125)
    p.mul_(1 - 0.125 * states["mask"].to(p.dtype)).add_(~states["mask"]).div_(states["mask"].sum())


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("body", [packed, clipped, chosen])
@pytest.mark.parametrize("shape", [(3, 4), (7,)])
def test_a_rule_takes_the_mask_of_the_optimizer(body: Body, shape: tuple[int, ...]) -> None:
    rule = rule_of(body, shape)
    assert rule.inputs == ("mask",)
    param = parameter(shape)
    optimizer = Masked([param], body)
    mask = optimizer.state[param]["mask"].numpy().astype(float)
    assert 0 < mask.sum() < mask.size
    rng = np.random.default_rng(2)
    gradients = [{"w": rng.normal(size=shape)} for _ in range(50)]
    start = {"w": param.detach().numpy().copy()}
    more = [{"input.w.mask": mask}] * 50
    for gradient, carried in zip(
        gradients, trajectory(rule, start, gradients, more=more), strict=True
    ):
        param.grad = torch.tensor(gradient["w"])
        optimizer.step()
        # The tolerance of the trace: some roundings in each of 50 steps on numbers near 1.
        np.testing.assert_allclose(carried["param.w"], param.detach().numpy(), 1e-10, 1e-12)


def summed(p: torch.Tensor, g: torch.Tensor, states: States) -> None:
    p.sub_(g / g[states["mask"]].norm())


def cleared(p: torch.Tensor, g: torch.Tensor, states: States) -> None:
    p.sub_(torch.where(states["mask"], g, 0))
    if states["step"] == 1000:
        states["mask"].fill_(True)


def replaced(p: torch.Tensor, g: torch.Tensor, states: States) -> None:
    states["mask"] = states["mask"] & (g > 0)
    p.sub_(torch.where(states["mask"], g, 0))


@pytest.mark.parametrize(
    ("body", "shape", "message"),
    [
        (summed, (3, 4), "sum of elements that a mask selects has no expression"),
        (summed, (7,), "sum of elements that a mask selects has no expression"),
        (cleared, (3, 4), "the step changes the mask 'mask', which the constructor has made"),
        (replaced, (3, 4), "the step changes the mask 'mask', which the constructor has made"),
        (chosen, (1,), "the state 'mask' is a mask of a parameter of one element"),
    ],
)
def test_masks_that_are_refused(body: Body, shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(TraceError, match=message):
        rule_of(body, shape)


def test_the_number_of_chosen_elements_is_not_a_size() -> None:
    generator = torch.Generator().manual_seed(0)
    for shape in ((5, 7), (11,), (2, 3), (2,), (2, 2, 3), (13,)):
        mask = random_mask(shape, generator)
        assert mask.shape == shape
        assert int(mask.sum()) not in {0, 1, *shape} or mask.all()


# --- random numbers ------------------------------------------------------------------------------


def langevin(p: torch.Tensor, g: torch.Tensor, states: States) -> None:
    p.sub_(g, alpha=0.125).add_(torch.randn_like(p), alpha=0.5)


def started(p: torch.Tensor, g: torch.Tensor, states: States) -> None:
    """A state that begins with random numbers, as in Gravity."""
    if "v" not in states:
        states["v"] = torch.empty_like(p).normal_(mean=0.5, std=0.25)
    states["v"].mul_(0.5).add_(g)
    p.sub_(states["v"], alpha=0.125)


def mixed(p: torch.Tensor, g: torch.Tensor, states: States) -> None:
    p.sub_(g * torch.rand_like(p)).add_(torch.empty_like(p).uniform_(-1, 2))
    p.mul_(torch.randn(p.shape, dtype=p.dtype))


@pytest.mark.parametrize(
    ("body", "inputs"),
    [
        (langevin, ("normal",)),
        (started, ("normal",)),
        (mixed, ("normal", "uniform", "uniform_2")),
    ],
)
def test_a_rule_takes_the_random_numbers_of_the_step(body: Body, inputs: tuple[str, ...]) -> None:
    state_before = torch.random.get_rng_state()
    rule = rule_of(body, has_mask=False)
    assert torch.equal(torch.random.get_rng_state(), state_before)
    assert rule.inputs == inputs
    param, rng = parameter((3, 4)), np.random.default_rng(2)
    optimizer = Masked([param], body, has_mask=False)
    start = {"w": param.detach().numpy().copy()}
    gradients, more, expected = [], [], []
    for _ in range(50):
        gradients.append({"w": rng.normal(size=(3, 4))})
        param.grad = torch.tensor(gradients[-1]["w"])
        with Recorder() as recorder:
            optimizer.step()
        numbers = recorder.inputs(inputs, (3, 4))
        more.append({f"input.w.{name}": array for name, array in numbers.items()})
        expected.append(param.detach().numpy().copy())
    for carried, param_after in zip(
        trajectory(rule, start, gradients, more=more), expected, strict=True
    ):
        np.testing.assert_allclose(carried["param.w"], param_after, 1e-10, 1e-12)


def test_random_numbers_of_vectors() -> None:
    assert rule_of(langevin, (5,), has_mask=False).inputs == ("normal",)


def scalar(p: torch.Tensor, g: torch.Tensor, states: States) -> None:
    p.sub_(g * torch.randn(()))


@pytest.mark.parametrize(("body", "shape"), [(scalar, (3, 4)), (langevin, (1,)), (langevin, ())])
def test_random_numbers_of_another_shape_are_refused(body: Body, shape: tuple[int, ...]) -> None:
    with pytest.raises(TraceError, match=r"random numbers of the shape \[1?\] have no expression"):
        rule_of(body, shape, has_mask=False)
