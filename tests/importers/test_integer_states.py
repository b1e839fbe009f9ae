"""States and counts of optimizers in integers of a fixed width, judged by torch for 60 steps.

The tracers compare 20 steps: a state that wraps later would be a wrong rule.
"""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import closedform as cf
from closedform.errors import TraceError
from closedform.importers.tensors.integers import Width
from closedform.language.update_rule import UpdateRule
from tests.support.torch_optimizers import Counting

STEPS = 60
SHAPE = (4, 3)
Update = Callable[[Any, torch.Tensor], Any]


def optimizer_of(
    update: Update, dtype: torch.dtype, *, of_elements: bool
) -> Callable[[Any], torch.optim.Optimizer]:
    """An optimizer with a state in a dtype, which scales its gradient."""

    def step(param: torch.Tensor, grad: torch.Tensor, states: dict[str, Any]) -> None:
        if "memory" not in states:
            shape = tuple(param.shape) if of_elements else ()
            states["memory"] = torch.zeros(shape, dtype=dtype)
        states["memory"] = update(states["memory"], grad)
        param.add_(grad * (0.5 + states["memory"].to(param.dtype) / 1024), alpha=-0.125)

    return lambda params: Counting(params, step)


def largest_difference(make: Callable[[Any], torch.optim.Optimizer]) -> float:
    """Of a rule and its optimizer, relative to the largest element, in float64."""
    random = np.random.default_rng(5)
    first = random.standard_normal(SHAPE)
    param = torch.nn.Parameter(torch.from_numpy(first.copy()))
    optimizer = make([param])
    rule = cf.from_torch(make([torch.nn.Parameter(torch.zeros(SHAPE))]))
    assert isinstance(rule, UpdateRule)
    session = cf.OptimizerSession(rule, {"w": first.copy()})
    largest = 0.0
    for _ in range(STEPS):
        gradient = random.standard_normal(SHAPE)
        param.grad = torch.from_numpy(gradient.copy())
        optimizer.step()
        session.step({"w": gradient})
        value = param.detach().numpy()
        gap = np.abs(value - session.params["w"]).max() / np.abs(value).max()
        largest = max(largest, float(gap))
    return largest


SHORT = (torch.int8, torch.uint8, torch.int16)
UPDATES: dict[str, Update] = {
    "a sum": lambda memory, grad: memory + (7 if memory.dtype != torch.int16 else 5000),
    "in place": lambda memory, grad: memory.add_(11 if memory.dtype != torch.int16 else 5000),
    "a difference": lambda memory, grad: memory - (9 if memory.dtype != torch.int16 else 3000),
    "a product": lambda memory, grad: memory * 3 + 1,
    "of a mask": lambda memory, grad: memory + (grad > -9).to(memory.dtype) * 100,
    "negated": lambda memory, grad: 50 - memory * 2,
    "cast": lambda memory, grad: (memory.to(torch.int32) + 70).to(memory.dtype),
}


@pytest.mark.sample(every=7)
@pytest.mark.parametrize(
    ("dtype", "name", "of_elements"), [*itertools.product(SHORT, UPDATES, (True, False))]
)
def test_short_integers_wrap(dtype: torch.dtype, name: str, of_elements: bool) -> None:
    make = optimizer_of(UPDATES[name], dtype, of_elements=of_elements)
    # The rule computes in float64, as torch does; a wrap differs by 0.1 or more.
    assert largest_difference(make) < 1e-12


def counting_by(start: Any) -> Callable[[Any], torch.optim.Optimizer]:
    def step(param: torch.Tensor, grad: torch.Tensor, states: dict[str, Any]) -> None:
        states["count"] = states.get("count", start) + 3
        param.add_(grad * (0.5 + float(states["count"]) / 100), alpha=-0.125)

    return lambda params: Counting(params, step)


def test_a_count_in_eight_bits_wraps() -> None:
    def step(param: torch.Tensor, grad: torch.Tensor, states: dict[str, Any]) -> None:
        count = states.setdefault("count", torch.tensor(80, dtype=torch.int8))
        count += 1
        param.add_(grad * (0.5 + count.item() / 100), alpha=-0.125)

    assert largest_difference(lambda params: Counting(params, step)) < 1e-12


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int16])
def test_a_short_integer_of_numpy_is_refused(kind: Any) -> None:
    make = counting_by(kind(0))
    with pytest.raises(TraceError, match=r"'count' is an integer of NumPy from .*, where it wraps"):
        cf.from_torch(make([torch.zeros(SHAPE)]))


LONG: dict[str, tuple[torch.dtype, Update, bool]] = {
    "twenty million": (torch.int32, lambda memory, _: memory + 20_000_000, False),
    "two a step": (torch.int32, lambda memory, _: memory + 2, False),
    "doubled": (torch.int64, lambda memory, _: memory * 2 + 1, False),
    "one a step": (torch.int32, lambda memory, _: memory + 1, True),
    "of a mask": (torch.int32, lambda memory, grad: memory + (grad > 0).to(torch.int32), True),
    "back to 0": (
        torch.int32,
        lambda memory, grad: (memory + 1) * (grad > 0).to(torch.int32),
        True,
    ),
    "bounded": (torch.int32, lambda memory, _: torch.clamp(memory + 1, max=5), True),
    "a million of 64 bits": (torch.int64, lambda memory, _: memory + 1_000_000, True),
    "without a past": (torch.int64, lambda memory, grad: (grad > 0).to(torch.int64) * 7, True),
}


@pytest.mark.parametrize("name", LONG)
def test_long_integers_stay_within_theirs(name: str) -> None:
    dtype, update, is_read = LONG[name]
    make = optimizer_of(update, dtype, of_elements=True)
    if is_read:
        assert largest_difference(make) < 1e-12
        return
    with pytest.raises(
        TraceError, match=r"'memory' may leave the integers from -\d+ to \d+, where"
    ):
        cf.from_torch(make([torch.zeros(SHAPE)]))


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64])
def test_the_width_is_that_of_the_dtype(dtype: torch.dtype) -> None:
    limits = torch.iinfo(dtype)
    assert Width.of(str(dtype)) == Width(limits.min, limits.max)


class LateCount(torch.optim.Optimizer):
    """A count that begins 2,000 steps before it wraps; it decides on the sign of the update."""

    def __init__(self, params: Any, step: int) -> None:
        super().__init__(params, {"lr": 0.125, "increment": step})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for param in group["params"]:
                state = self.state[param]
                if not state:
                    state["count"] = torch.tensor(2**31 - 2000, dtype=torch.int32)
                state["count"] += group["increment"]
                sign = torch.where(state["count"] > 0, 1.0, -1.0)
                param.add_(param.grad * sign, alpha=-group["lr"])


@pytest.mark.parametrize("step", [1, 0])
def test_a_count_that_begins_near_its_end_is_refused(step: int) -> None:
    optimizer = LateCount([torch.nn.Parameter(torch.ones(3))], step)
    if not step:  # a number that stays does not wrap
        assert isinstance(cf.from_torch(optimizer), UpdateRule)
        return
    with pytest.raises(TraceError, match=r"'count' may leave the integers.*near 0"):
        cf.from_torch(optimizer)
