"""docs/low_precision.md has the stored results, and they are within their bars."""

from __future__ import annotations

import json
from statistics import fmean
from typing import Any

import pytest

from docs.build_low_precision import (
    EIGHT_BITS,
    LANGUAGE,
    PAGE,
    QUADRATIC,
    RESULTS,
    TITLES,
    TOLERATED,
    page,
)


@pytest.fixture
def results() -> dict[str, Any]:
    stored: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8"))
    return stored


def test_the_page_has_the_stored_results(results: dict[str, Any]) -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert page(text, results) == text


@pytest.mark.parametrize("name", [QUADRATIC, LANGUAGE])
def test_the_stored_losses_are_within_the_bars(name: str, results: dict[str, Any]) -> None:
    losses = {choice: fmean(values) for choice, values in results[name]["losses"].items()}
    assert set(losses) == set(TITLES)
    for choice in ("stochastic_rounding", "kahan", "master_weights"):
        assert losses[choice] <= TOLERATED * losses["float32"], choice
    for choice in ("stochastic_rounding", "kahan"):
        assert losses[choice] <= losses["torchao, stochastic rounding"], choice
    assert losses["nearest"] > losses["stochastic_rounding"]


def test_the_stored_8_bit_states_are_those_of_torchao(results: dict[str, Any]) -> None:
    compared = results[EIGHT_BITS]
    losses, memory = compared["losses"], compared["memory"]
    assert compared["steps"] == 1000
    assert losses["eight_bit_states"] == pytest.approx(losses["torchao"], rel=1e-3)
    assert memory["eight_bit_states"] == memory["torchao"] < memory["float32"] / 1.9
    assert compared["equal codes"] > 0.999


@pytest.mark.parametrize("name", [QUADRATIC, LANGUAGE])
def test_the_engines_had_the_same_bits(name: str, results: dict[str, Any]) -> None:
    compared = results[f"{name}, bits"]
    assert len(compared["engines"]) == 4
    assert set(compared["differences"]) >= {"stochastic_rounding", "kahan", "master_weights"}
    assert set(compared["differences"].values()) == {None}
