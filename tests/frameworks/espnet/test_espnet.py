"""The schedulers of ESPnet: cycles whose lengths change, units, and configs that are refused."""

import math
from typing import Any

import pytest

from closedform.errors import ClosedFormError, DomainError
from closedform.recipes import Recipe, load_recipe


def read(scheduler: str, conf: dict[str, Any], **facts: Any) -> Recipe:
    config = {"optim": "adam", "optim_conf": {"lr": 0.5}}
    return load_recipe({**config, "scheduler": scheduler, "scheduler_conf": conf}, facts=facts)


def rates_of_cycles(first: int, warmup: int, factor: float, gamma: float, end: int) -> list[float]:
    """The rates of CosineAnnealingWarmupRestarts, by its own counters, from 1 to 2."""
    rates, place, length, cycle = [1.0], 0, first, 0
    for _ in range(1, end):
        place += 1
        if place >= length:
            cycle, place = cycle + 1, place - length
            length = int((length - warmup) * factor) + warmup
        peak = 2 * gamma**cycle
        if place < warmup:
            rates.append((peak - 1) * place / warmup + 1)
        else:
            angle = math.pi * (place - warmup) / (length - warmup)
            rates.append(1 + (peak - 1) * (1 + math.cos(angle)) / 2)
    return rates


@pytest.mark.parametrize(
    ("first", "warmup", "factor"), [(5, 2, 1.0), (4, 0, 1.0), (5, 2, 1.5), (4, 0, 2.0), (9, 3, 0.5)]
)
def test_cycles_are_those_of_the_counters(first: int, warmup: int, factor: float) -> None:
    gamma = 0.5
    conf = {"first_cycle_steps": first, "cycle_mult": factor, "max_lr": 2.0, "min_lr": 1.0}
    conf |= {"warmup_steps": warmup, "gamma": gamma}
    schedule = read("CosineAnnealingWarmupRestarts", conf).schedule()
    expected = rates_of_cycles(first, warmup, factor, gamma, 40)
    # A cosine and some roundings of float64.
    assert [float(schedule.exact(t)) for t in range(40)] == pytest.approx(expected, rel=1e-13)


def test_a_cycle_of_no_updates_has_no_value() -> None:
    conf = {"first_cycle_steps": 2, "cycle_mult": 0.5, "max_lr": 2.0, "min_lr": 1.0}
    schedule = read("cosineannealingwarmuprestarts", conf).schedule()
    assert schedule.last_step == 2
    with pytest.raises(DomainError, match="division by zero"):
        schedule.exact(3)


@pytest.mark.parametrize(
    ("name", "conf", "unit"),
    [
        ("StepLR", {"step_size": 1, "gamma": 0.5}, 4),
        ("exponentiallr", {"gamma": 0.5}, 4),
        ("cycliclr", {"base_lr": 0.5, "max_lr": 0.25, "step_size_up": 1}, 1),
    ],
)
def test_a_class_of_torch_is_stepped_after_an_epoch_or_an_update(
    name: str, conf: dict[str, Any], unit: int
) -> None:
    schedule = read(name, conf, updates_per_epoch=4).schedule()
    assert [schedule.exact(t) * 4 for t in (0, unit - 1, unit)] == [2, 2, 1]


@pytest.mark.parametrize(
    ("name", "conf", "message"),
    [
        ("linearlr", {}, "there is no scheduler 'linearlr'"),
        ("ReduceLROnPlateau", {}, "is a function of the loss"),
        ("warmuplr", {"warmup": 5}, "unknown key 'warmup'"),
        ("warmuplr", {"warmup_steps": 0}, "warmup_steps must be above 0"),
        ("tristagelr", {"hold_ratio": 0.5}, "must sum to 1"),
        ("piecewiselinearwarmuplr", {"warmup_steps_list": [0, 5, 3]}, "must have one length"),
        ("exponentialdecaywarmup", {"max_lr": 1, "min_lr": 0, "total_steps": 4}, "have one sign"),
    ],
)
def test_configs_that_are_refused(name: str, conf: dict[str, Any], message: str) -> None:
    with pytest.raises(ClosedFormError, match=message):
        read(name, conf)
