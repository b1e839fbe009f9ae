"""Writes the tables of docs/scaling.md from tools/results/scaling.json.

`make transfer` runs it, on the results that tests/scaling/compare_transfer.py stored.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from tools.sections import DOCS, RESULTS_FOLDER, replace_section

RESULTS = RESULTS_FOLDER / "scaling.json"
PAGE = DOCS / "scaling.md"
BEGIN, END = "<!-- results -->\n", "<!-- end -->\n"
SUBJECTS = {
    "mlp": "MLP, Adam",
    "mlp-sgd": "MLP, SGD",
    "transformer": "transformer, Adam",
}
MODES = {"mup": "µP", "standard": "standard"}


def best_powers(losses: Mapping[str, Mapping[str, float | None]]) -> list[int]:
    """Returns the power of 2 of the best learning rate of each width."""
    best = []
    for row in losses.values():
        numbers = {power: loss for power, loss in row.items() if loss is not None}
        best.append(int(min(numbers, key=numbers.__getitem__)))
    return best


def spreads(coordinates: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Returns the ratio of the largest to the smallest scale of each layer over the widths."""
    scales = list(coordinates.values())
    return {
        layer: max(scale[layer] for scale in scales) / min(scale[layer] for scale in scales)
        for layer in scales[0]
    }


def lines(results: Mapping[str, Any]) -> Iterator[str]:
    """Yields the lines of the tables."""
    yield "The largest over the smallest root mean square of a layer's output, over the widths:"
    yield ""
    yield "| model | parametrization | by layer | largest |"
    yield "| --- | --- | --- | --- |"
    for name, title in SUBJECTS.items():
        for mode, label in MODES.items():
            ratios = spreads(results["coordinates"][f"{name}/{mode}"])
            layers = ", ".join(f"{layer} {ratio:.2f}" for layer, ratio in ratios.items())
            yield f"| {title} | {label} | {layers} | {max(ratios.values()):.2f} |"
    yield ""
    yield "The best learning rate of each width, on a grid of powers of 2, and its loss:"
    yield ""
    widths = list(next(iter(results["losses"].values())))
    yield f"| model | parametrization | {' | '.join(widths)} |"
    yield f"| --- | --- |{' --- |' * len(widths)}"
    for name, title in SUBJECTS.items():
        for mode, label in MODES.items():
            losses = results["losses"][f"{name}/{mode}"]
            cells = [
                f"2^{power} ({row[str(power)]:.3f})"
                for power, row in zip(best_powers(losses), losses.values(), strict=True)
            ]
            yield f"| {title} | {label} | {' | '.join(cells)} |"


def page(text: str, results: Mapping[str, Any]) -> str:
    """Returns the page with the tables of the results."""
    tables = "\n".join(lines(results))
    return replace_section(text, BEGIN, END, f"\n{tables}\n\n")


if __name__ == "__main__":
    stored = json.loads(RESULTS.read_text(encoding="utf-8"))
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), stored), encoding="utf-8")
