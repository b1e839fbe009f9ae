"""Causes planted in the values of eight schedulers: the kind is named, with one value or many.

The values are those of recipes with other numbers, or of other times; a cause is named at the first
wrong update, and after 200 more.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import closedform as cf
from closedform.analysis.watching import CauseKind, RunNumbers
from closedform.analysis.watching.causes import Seen, likely_causes
from closedform.errors import DepartureError
from closedform.recipes import Recipe
from closedform.torch.watching import Watcher

Values = NDArray[np.float64]

KINDS: Mapping[str, Mapping[str, float]] = {
    "linear": {},
    "cosine": {},
    "warmup_stable_decay": {"num_decay_steps": 60},
    "cosine_with_restarts": {"num_cycles": 2},
    "constant_with_warmup": {},
    "polynomial": {"power": 2.0},
    "inverse_sqrt": {},
    "cosine_with_min_lr": {"min_lr": 3e-5},
}
PEAK, WARMUP, TOTAL = 3e-4, 30, 300
WITHOUT_END = ("constant_with_warmup", "inverse_sqrt")


@cache
def recipe(kind: str, warmup: int = WARMUP, total: int = TOTAL) -> Recipe:
    config = {
        "learning_rate": PEAK,
        "lr_scheduler_type": kind,
        "warmup_steps": warmup,
        "max_steps": total,
        "lr_scheduler_kwargs": dict(KINDS[kind]),
    }
    return cf.load_recipe(config, framework="transformers")


def values_at(kind: str, times: Values, warmup: int = WARMUP, total: int = TOTAL) -> Values:
    lr = recipe(kind, warmup, total).schedule()
    return np.asarray(lr(np.asarray(times, dtype=np.int64)), dtype=np.float64)


@dataclass(frozen=True)
class Planted:
    """The values of a run with a cause, from its first update on."""

    kind: str
    cause: CauseKind
    values: Values
    numbers: RunNumbers


def planted(kind: str) -> Iterator[Planted]:
    u = np.arange(TOTAL, dtype=np.float64)
    four = RunNumbers(accumulation=4, processes=1, horizon=TOTAL)
    one = RunNumbers(accumulation=1, processes=1, horizon=TOTAL)
    resumed = RunNumbers(horizon=TOTAL, start=150, updates_per_epoch=10)
    times = [
        (CauseKind.OFFSET, u + 1, one),
        (CauseKind.OFFSET, np.maximum(u - 1, 0), one),
        (CauseKind.MICRO_BATCH, 4 * u + 3, four),
        (CauseKind.MICRO_BATCH, 4 * u, four),
        (CauseKind.PROCESSES, 8 * u, RunNumbers(accumulation=1, processes=8, horizon=TOTAL)),
        (CauseKind.RESUMED, u[:150], resumed),
        (CauseKind.RESUMED, u[:150] + 15, resumed),
    ]
    for cause, at, numbers in times:
        yield Planted(kind, cause, values_at(kind, at), numbers)
    for warmup, numbers in ((120, four), (10, one), (43, one)):
        yield Planted(kind, CauseKind.WARMUP, values_at(kind, u, warmup), numbers)
    for total, numbers in ((1200, four), (200, one), (411, one)):
        if kind not in WITHOUT_END:
            yield Planted(kind, CauseKind.HORIZON, values_at(kind, u, total=total), numbers)
    yield Planted(kind, CauseKind.NOT_SCHEDULED, np.full(TOTAL, PEAK), one)


CASES = [
    pytest.param(run, evidence, id=f"{run.kind}-{run.cause}-{place}-{evidence}")
    for kind in KINDS
    for place, run in enumerate(planted(kind))
    for evidence in (0, 200)
]


@pytest.mark.sample(every=7)
@pytest.mark.parametrize(("run", "evidence"), CASES)
def test_the_cause_is_named(run: Planted, evidence: int) -> None:
    watcher = Watcher(recipe(run.kind), numbers=run.numbers, groups=[0], evidence=evidence)

    def train() -> None:
        for place, value in enumerate(run.values.tolist()):
            watcher.check([{"lr": value, "weight_decay": 0.0}], run.numbers.start + place)
        watcher.remove()

    with pytest.raises(DepartureError):
        train()
    updates = run.numbers.start + np.arange(len(run.values), dtype=np.float64)
    expected = values_at(run.kind, updates)
    # The largest rounding of transformers' own arithmetic is 4 units in the last place.
    first = int(np.flatnonzero(np.abs(run.values - expected) > 1e-11 * PEAK)[0])
    departure: Any = watcher.departure
    assert departure.update == run.numbers.start + first
    assert departure.cause is not None
    assert departure.cause.kind is run.cause, departure


def causes(kind: str, values: Values, numbers: RunNumbers | None = None) -> list[str]:
    """The likely causes of the values of a log, in words."""
    updates = np.arange(len(values), dtype=np.float64)
    errors = np.full(len(values), 1e-12 * PEAK)
    found = likely_causes(
        recipe(kind).schedule(),
        Seen(updates, values, errors),
        numbers or RunNumbers(horizon=TOTAL),
    )
    return [str(cause) for cause in found]


def test_a_scheduler_that_was_built_after_the_optimizer_was_loaded() -> None:
    values = values_at("cosine", np.arange(200.0))
    values[[120, 160]] = values[0]
    (cause,) = causes("cosine", values)
    assert cause == (
        "resumed with the first rate: update 120 has the value of update 0, and the next one is "
        "right, as where the scheduler was built after the optimizer's state was loaded"
    )
    # Two updates in a row are a state that was lost, a last one may be.
    values[121] = values[0]
    assert not any("the next one is right" in cause for cause in causes("cosine", values))
    assert not any("next one is right" in cause for cause in causes("cosine", values[:121]))


def test_a_decay_that_is_held_at_its_end() -> None:
    """transformers' cosine rises again after the run; that of the log does not."""
    times = np.arange(TOTAL, dtype=np.float64)
    values = values_at("cosine", np.minimum(times, 120), total=120)
    assert causes("cosine", values) == [
        f"horizon of another run: the decay ends after 120 updates instead of {TOTAL}"
    ]


def test_other_ends_of_the_same_curve() -> None:
    curve = values_at("cosine", np.arange(TOTAL, dtype=np.float64))
    assert causes("cosine", curve / 2 + 1e-5) == [
        "other rates: the same curve between 0.00016 and 1e-05 instead of 0.0003 and 0"
    ]
    # A part of the warmup is a line, and any line has the ends of another one.
    assert not any("other rates" in cause for cause in causes("cosine", (curve / 2 + 1e-5)[:20]))
