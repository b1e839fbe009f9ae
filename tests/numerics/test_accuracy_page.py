"""The page of accuracy: written from stored results of every schedule of the library."""

from __future__ import annotations

import json

import pytest

from docs import build_accuracy as page
from tests.numerics.long_runs import EXHAUSTIVE, FACTOR, PEAK, long_runs

RESULTS = json.loads(page.RESULTS.read_text(encoding="utf-8"))


def test_page_is_written_from_the_results() -> None:
    assert page.PAGE.read_text(encoding="utf-8") == page.build(RESULTS), "run `make accuracy`"


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
