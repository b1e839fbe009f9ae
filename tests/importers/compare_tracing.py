"""The library checked by its sources: installed schedulers, traced, and proved equal to its forms.

Not collected with the tests, since transformers, timm and pytorch-accelerated are not development
dependencies; `make compare` runs it, and prints a table: proved, within rounding, or why not.
"""

import time
from collections.abc import Iterator
from typing import Any

import pytest

import closedform as cf
from closedform import frameworks
from closedform.language import Schedule
from tests.recipes.compare_packages import BASE, HUGGINGFACE, TIMM
from tests.recipes.installed import timm_scheduler

ROUNDED = {
    ("timm", "TanhLRScheduler"): "its constructor computes the warmup's slope in float64",
}
ROUNDING = 1e-15
"""Of values up to 0.25: the slope of five steps, rounded."""
PYTORCH_ACCELERATED: list[tuple[str, dict[str, Any]]] = [
    ("CosineLrScheduler", {"total_num_epochs": 10, "num_update_steps_per_epoch": 7}),
    (
        "CosineLrScheduler",
        {"total_num_epochs": 10, "num_update_steps_per_epoch": 7, "num_warmup_epochs": 2}
        | {"k_decay": 1.5, "num_cooldown_epochs": 1},
    ),
    ("WSDLrScheduler", {"total_steps": 1000, "num_warmup_steps": 100}),
    (
        "WSDLrScheduler",
        {"total_steps": 1000, "num_warmup_steps": 100, "num_checkpoints": 3}
        | {"use_inverse_sqrt_decay": False},
    ),
]


@pytest.fixture(scope="module", autouse=True)
def table() -> Iterator[list[str]]:
    rows: list[str] = []
    yield rows
    print("\n" + "\n".join(rows))


def check(
    system: str, name: str, kwargs: dict[str, Any], traced: tuple[Schedule, float], rows: list[str]
) -> None:
    """The schedule is that of the library, by proof."""
    schedule, seconds = traced
    library = frameworks.schedule(system, name, kwargs, base=BASE, as_implemented=True)
    verdict = cf.claims.equal(schedule, library).verify()
    found = verdict.status.value
    if not verdict.proved and (system, name) in ROUNDED:
        difference = Schedule(schedule.bound - library.bound)
        verdict = cf.claims.bounded(difference, -ROUNDING, ROUNDING).verify()
        found = f"{verdict.status.value} within {ROUNDING}: {ROUNDED[system, name]}"
    rows.append(f"{system}:{name:32} {1000 * seconds:6.0f} ms  {found}")
    assert verdict.proved, (kwargs, verdict)


def traced_in(make: Any) -> tuple[Schedule, float]:
    began = time.process_time()
    return make(), time.process_time() - began


@pytest.mark.parametrize(("name", "kwargs"), HUGGINGFACE)
def test_transformers(name: str, kwargs: dict[str, Any], table: list[str]) -> None:
    torch = pytest.importorskip("torch")
    optimization = pytest.importorskip("transformers.optimization")
    make = optimization.TYPE_TO_SCHEDULER_FUNCTION[optimization.SchedulerType(name)]
    scheduler = make(torch.optim.SGD([torch.zeros(1)], lr=BASE), **kwargs)
    traced = traced_in(lambda: cf.from_torch(scheduler))
    check("huggingface", name, kwargs, traced, table)


@pytest.mark.parametrize(("name", "kwargs"), TIMM)
def test_timm(name: str, kwargs: dict[str, Any], table: list[str]) -> None:
    torch = pytest.importorskip("torch")
    scheduler = getattr(timm_scheduler(), name)(
        torch.optim.SGD([torch.zeros(1)], lr=BASE), **kwargs
    )
    traced = traced_in(lambda: cf.from_torch(scheduler))
    check("timm", name, kwargs, traced, table)


@pytest.mark.parametrize(("name", "kwargs"), PYTORCH_ACCELERATED)
def test_pytorch_accelerated(name: str, kwargs: dict[str, Any], table: list[str]) -> None:
    torch = pytest.importorskip("torch")
    schedulers = pytest.importorskip("pytorch_accelerated.schedulers")
    scheduler = getattr(schedulers, name)(torch.optim.SGD([torch.zeros(1)], lr=BASE), **kwargs)
    traced = traced_in(lambda: cf.from_torch(scheduler))
    check("pytorch_accelerated", name, kwargs, traced, table)
