"""Arguments at the edge of what the reference frameworks compute: no steps, fractions, types."""

import math
from typing import Any

import pytest
import torch

from closedform import frameworks
from closedform.errors import DefinitionError, DomainError

LINE = {"initial_learning_rate": 0.0, "end_learning_rate": 0.5}


def cerebras(name: str, config: dict[str, Any], steps: int = 4) -> list[float]:
    made = frameworks.schedule("cerebras", name, config)
    return [float(made(step)) for step in range(steps)]


@pytest.mark.parametrize("name", ["LinearLR", "PolynomialLR"])
@pytest.mark.parametrize("cycle", [False, True])
def test_over_no_steps_the_end_is_there_from_the_start(name: str, cycle: bool) -> None:
    # PolynomialLR: the value is end_val for step >= total_iters.
    assert cerebras(name, {**LINE, "total_iters": 0, "cycle": cycle}) == [0.5] * 4


def member(name: str, **kwargs: Any) -> dict[str, Any]:
    return {"class": name, "kwargs": kwargs}


def test_a_member_without_a_step_is_not_built() -> None:
    rise = member("LinearLR", **LINE, total_iters=2)
    none = member("CosineDecayLR", **LINE, total_iters=0)  # 0/0, if it were asked for
    after = member("ConstantLR", learning_rate=2)
    given = {"schedulers": [rise, none, after], "milestones": [2, 2]}
    assert cerebras("SequentialLR", given) == [0.0, 0.25, 2.0, 2.0]


@pytest.mark.parametrize("name", ["SequentialLR", "PiecewiseConstantLR"])
def test_milestones_are_ints(name: str) -> None:
    constants = [member("ConstantLR", learning_rate=rate) for rate in (1, 2)]
    key, values = ("schedulers", constants)
    if name == "PiecewiseConstantLR":
        key, values = ("learning_rates", [1, 2])  # type: ignore[list-item]
    assert cerebras(name, {key: values, "milestones": [2]}) == [1, 1, 2, 2]
    with pytest.raises(DefinitionError, match=r"milestones\[0\] must be an int, got the float 2.0"):
        cerebras(name, {key: values, "milestones": [2.0]})


def cosine_lr(n: int, warmup: float, cooldown: float) -> float:
    """CosineLrScheduler.get_updated_values of pytorch-accelerated: 6 epochs of 10 updates."""
    start, low = 1e-6, 1e-6
    rise, rest = warmup * 10, 60 - warmup * 10 - cooldown * 10
    if n < rise:
        return start + n * (1 - start) / rise
    if n < rest:
        return low + (1 - low) / 2 * (1 + math.cos(math.pi * (n - rise) / rest))
    return low


@pytest.mark.parametrize(("warmup", "cooldown"), [(1.5, 0), (0.25, 0.5), (0, 0.25), (2.33, 1)])
def test_epochs_of_a_warmup_may_be_fractions(warmup: float, cooldown: float) -> None:
    config = {
        "total_num_epochs": 6,
        "num_update_steps_per_epoch": 10,
        "num_warmup_epochs": warmup,
        "num_cooldown_epochs": cooldown,
    }
    made = frameworks.schedule("pytorch_accelerated", "CosineLrScheduler", config, base=1.0)
    wanted = [cosine_lr(step, warmup, cooldown) for step in range(70)]
    # A few roundings of 1.1e-16.
    assert [float(made(step)) for step in range(70)] == pytest.approx(wanted, rel=0, abs=1e-15)


def rates_of_torch(kwargs: dict[str, Any]) -> list[float]:
    """The rates that torch computes for a cycle, until it divides by zero."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, **kwargs)
    rates = []
    while True:
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        try:
            scheduler.step()
        except ZeroDivisionError:
            return rates


@pytest.mark.parametrize("anneal", ["cos", "linear"])
@pytest.mark.parametrize(
    ("total", "pct_start", "three_phase"),
    [
        *((total, 1.0, False) for total in (2, 3, 7, 20, 64)),
        # 2 * pct_start * total - 2 is total - 1.
        *((total, (total + 1) / (2 * total), True) for total in (2, 4, 8, 16, 10)),
    ],
)
def test_a_cycle_ends_before_a_last_phase_that_has_no_steps(
    total: int, pct_start: float, three_phase: bool, anneal: str
) -> None:
    kwargs: dict[str, Any] = {"max_lr": 1.0, "total_steps": total, "pct_start": pct_start}
    kwargs |= {"three_phase": three_phase, "anneal_strategy": anneal}
    rates = rates_of_torch(kwargs)
    schedule = frameworks.schedule("torch", "OneCycleLR", kwargs, base=1.0)
    assert schedule.last_step == len(rates) - 1 == total - 1
    # A few roundings of 1.1e-16 of the largest rate, which is 1.
    assert [schedule(step) for step in range(total)] == pytest.approx(rates, rel=0, abs=1e-15)
    with pytest.raises(DomainError, match=r"its last step is \d+: ZeroDivisionError"):
        schedule(total)
