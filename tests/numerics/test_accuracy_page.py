"""The page of accuracy: written from stored results of every schedule and rule of the library."""

import json

import pytest

from tests.numerics.long_runs import EXHAUSTIVE, FACTOR, PEAK, long_runs
from tests.numerics.other_optimizers import OPTAX, TORCH
from tests.numerics.updates import KINDS, is_separate, rules
from tools import build_accuracy as page
from tools import update_accuracy as updates

RESULTS = json.loads(page.RESULTS.read_text(encoding="utf-8"))
UPDATES = json.loads(updates.RESULTS.read_text(encoding="utf-8"))


def test_page_is_written_from_the_results() -> None:
    assert page.PAGE.read_text(encoding="utf-8") == page.build(RESULTS, UPDATES), (
        "run `make accuracy`"
    )


def test_every_schedule_of_the_library_is_measured_at_all_steps() -> None:
    assert set(RESULTS["schedules"]) == set(long_runs())
    assert (RESULTS["factor"], RESULTS["peak"]) == (FACTOR, PEAK)
    for name, engines in RESULTS["schedules"].items():
        for row in engines.values():
            assert row["steps"] >= EXHAUSTIVE, name


@pytest.mark.parametrize("backend", ["onnxruntime", "onnxruntime, optimized", "torch", "C"])
def test_float32_of_float64_scalars_is_correctly_rounded(backend: str) -> None:
    for name, engines in RESULTS["schedules"].items():
        row = engines.get(f"{backend}, float32 of float64 scalars")
        assert row is None or row["misrounded"] <= ALLOWED.get(name, 0), name


ALLOWED: dict[str, int] = {}
"""Schedules with values so near the middle of two floats that float64 loses the side."""


@pytest.mark.parametrize(
    ("misrounded", "share"), [(0, "100 %"), (1, "99.9999 %"), (500_000, "50.0 %")]
)
def test_only_all_is_a_hundred_percent(misrounded: int, share: str) -> None:
    assert page.percent(misrounded, 10**6) == share
    assert page.percent(1, 10**9) == "99.9999 %"


def test_a_precision_that_rounds_wrongly_is_listed() -> None:
    row = {"misrounded": 12, "first_misrounded": [3, 5]}
    engines = {"onnxruntime, float32": row, "onnxruntime, double-float": row}
    assert page.exceptions({"rex": engines}) == [
        "| onnxruntime | double-float | rex | 12 | 3, 5, … |"
    ]


def test_every_rule_of_the_library_is_measured() -> None:
    assert set(UPDATES["rules"]) == set(rules())
    separate = {name for name, rule in rules().items() if is_separate(rule)}
    assert set(UPDATES["rules of 16 bits"]) == separate
    assert set(UPDATES["torch"]) == set(TORCH)
    assert set(UPDATES["optax"]) == set(OPTAX)
    for name, engines in UPDATES["rules"].items():
        for rows in engines.values():
            assert set(rows) == set(KINDS), name


@pytest.mark.parametrize("backend", ["onnxruntime", "torch", "C"])
def test_an_update_of_random_gradients_is_within_a_few_roundings(backend: str) -> None:
    """Of rules that treat elements separately: the longest formula has 40 operations."""
    for name, rule in rules().items():
        if is_separate(rule):
            rows = UPDATES["rules"][name][f"{backend}, float32"]
            assert updates.cell(rows, "random", "ulp_of_scale") < 16, name
            assert updates.overflows(rows) == 0, name


def test_an_update_is_as_accurate_as_that_of_torch() -> None:
    """The share of correctly rounded parameters over all classes and kinds of gradients."""
    shares = {}
    for side in ("package", "closedform"):
        rows = [row["single"][side] for row in UPDATES["torch"].values()]
        total = sum(updates.cell(row, kind, "elements") for row in rows for kind in row)
        rounded = sum(updates.cell(row, kind, "rounded") for row in rows for kind in row)
        shares[side] = rounded / total
    assert shares["closedform"] >= shares["package"]


def test_an_infinite_error_is_the_largest() -> None:
    rows: dict[str, updates.Rows] = {
        "a": {"huge": (4, 2.0, 1.0, 1, 0)},
        "b": {"huge": (4, None, None, 0, 4)},
    }
    assert updates.error(updates.worst(rows, is_random=False)[0]) == "∞"
    assert updates.overflows(rows["b"]) == 4
    assert updates.share(rows.values(), ["huge"]) == "12.5 %"
