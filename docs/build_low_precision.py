"""Writes the tables of docs/low_precision.md from docs/low_precision.json.

`make precision` runs it, on the results that tests/low_precision/compare_low_precision.py stored.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from docs.sections import replace_section

DOCS = Path(__file__).parent
RESULTS = DOCS / "low_precision.json"
PAGE = DOCS / "low_precision.md"
BEGIN, END = "<!-- results -->\n", "<!-- end -->\n"
QUADRATIC, LANGUAGE = "quadratic", "language model"
TOLERATED = 1.05
"""The largest ratio to the loss of float32."""
LEAST = {QUADRATIC: 0.5}
"""The least loss, where it is known."""
ENGINES = {"onnxruntime": "onnxruntime", "torch": "torch", "jax": "JAX", "c": "C"}
TITLES = {
    "float32": "float32",
    "nearest": "bfloat16, rounded to nearest",
    "stochastic_rounding": "`stochastic_rounding`",
    "kahan": "`kahan`",
    "master_weights": "`master_weights`",
    "torch, AdamW": "`torch.optim.AdamW` on bfloat16",
    "torchao, stochastic rounding": "torchao's AdamW, `bf16_stochastic_round=True`",
}


def lines(results: Mapping[str, Any]) -> Iterator[str]:
    """Yields the lines of the table, and of the steps whose bits were compared."""
    problems = [name for name in (QUADRATIC, LANGUAGE) if name in results]
    heads = [f"{name}, {results[name]['steps']:,} steps" for name in problems]
    yield f"| parameters | bytes per parameter | {' | '.join(heads)} |"
    yield f"| --- | --- |{' --- |' * len(heads)}"
    for choice, title in TITLES.items():
        cells = []
        for name in problems:
            losses = results[name]["losses"]
            loss, reference = fmean(losses[choice]), fmean(losses["float32"])
            excess = f", excess {loss - LEAST[name]:.4f}" if name in LEAST else ""
            cells.append(f"{loss:.4f} ({loss / reference:.3f}{excess})")
        yield f"| {title} | {results['memory'][choice]:g} | {' | '.join(cells)} |"
    yield ""
    for name in problems:
        compared = results[f"{name}, bits"]
        differences = compared["differences"]
        engines = ", ".join(ENGINES[engine] for engine in compared["engines"])
        equal = [TITLES[choice] for choice in TITLES if differences.get(choice, 0) is None]
        yield (
            f"On the {name}, parameters after each of {compared['steps']:,} steps and states after "
            f"the last have the same bits in {engines}: {', '.join(equal) or 'none'}."
        )


def page(text: str, results: Mapping[str, Any]) -> str:
    """Returns the page with the table of the results."""
    tables = "\n".join(lines(results))
    return replace_section(text, BEGIN, END, f"\n{tables}\n\n")


if __name__ == "__main__":
    stored = json.loads(RESULTS.read_text(encoding="utf-8"))
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), stored), encoding="utf-8")
