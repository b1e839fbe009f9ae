"""docs/low_precision.md has the stored results, and they are within their bars."""

import json
from statistics import fmean
from typing import Any

import pytest

from tests.low_precision.runs import PEERS, check_losses
from tools.build_low_precision import (
    EIGHT_BITS,
    FOUR_BITS,
    LANGUAGE,
    PAGE,
    QUADRATIC,
    RANDOM,
    RESULTS,
    STATES,
    TITLES,
    TITLES_OF_MOMENTS,
    page,
)

ROWS = {QUADRATIC: TITLES, LANGUAGE: TITLES, STATES: TITLES_OF_MOMENTS}


@pytest.fixture
def results() -> dict[str, Any]:
    stored: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8"))
    return stored


def test_the_page_has_the_stored_results(results: dict[str, Any]) -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert page(text, results) == text


@pytest.mark.parametrize("name", ROWS)
def test_the_stored_losses_are_within_the_bars(name: str, results: dict[str, Any]) -> None:
    losses = {choice: fmean(values) for choice, values in results[name]["losses"].items()}
    assert set(losses) == set(ROWS[name])
    check_losses(losses)


@pytest.mark.parametrize(
    ("name", "transform", "factor"),
    [(EIGHT_BITS, "eight_bit_states", 1.9), (FOUR_BITS, "four_bit_states", 2.3)],
)
def test_the_stored_coded_states_are_those_of_torchao(
    name: str, transform: str, factor: float, results: dict[str, Any]
) -> None:
    compared = results[name]
    losses, memory = compared["losses"], compared["memory"]
    assert compared["steps"] == 1000
    assert losses[transform] == pytest.approx(losses["torchao"], rel=1e-3)
    assert memory[transform] == memory["torchao"] < memory["float32"] / factor
    assert compared["equal codes"] > 0.999
    for tensor in results[f"{name}, {RANDOM}"].values():
        assert tensor["different codes"] <= 1e-5 * tensor["codes"]
        assert tensor["largest difference of values of equal codes"] <= 2**-22
    bits = results[f"{name}, bits"]
    assert bits == {"engines": ["onnxruntime", "torch", "jax"], "steps": 1000, "difference": None}


@pytest.mark.parametrize("name", ROWS)
def test_the_engines_had_the_same_bits(name: str, results: dict[str, Any]) -> None:
    compared = results[f"{name}, bits"]
    assert compared["engines"] == [
        key for key in ("onnxruntime", "torch", "jax", "c") if key != "jax" or name != STATES
    ]
    assert set(compared["differences"]) == set(ROWS[name]) - {"float32", *PEERS}
    assert set(compared["differences"].values()) == {None}
