"""docs/scaling.md has the stored results, and they are within their bars."""

import json

from tests.scaling.models import FLATNESS
from tools.build_scaling import PAGE, RESULTS, best_powers, page, spreads


def test_the_page_has_the_stored_results() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert page(text, json.loads(RESULTS.read_text(encoding="utf-8"))) == text


def test_the_stored_results_are_within_the_bars() -> None:
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    for name, coordinates in results["coordinates"].items():
        is_flat = max(spreads(coordinates).values()) < FLATNESS
        assert is_flat == name.endswith("/mup"), name
    for name, losses in results["losses"].items():
        if name.endswith("/mup"):
            powers = best_powers(losses)
            assert all(abs(power - powers[0]) <= 1 for power in powers), (name, powers)
