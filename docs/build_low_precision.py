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
BEGIN_CODES, END_CODES = "<!-- eight bits -->\n", "<!-- end of eight bits -->\n"
QUADRATIC, LANGUAGE, EIGHT_BITS = "quadratic", "language model", "8-bit states"
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
TITLES_OF_STATES = {
    "float32": "float32",
    "eight_bit_states": "`eight_bit_states`",
    "torchao": "torchao's `AdamW8bit`",
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


def lines_of_codes(results: Mapping[str, Any]) -> Iterator[str]:
    """Yields the lines of the table of states in 8 bits."""
    losses, memory = results["losses"], results["memory"]
    yield "| states of AdamW | bytes per parameter | loss | ratio to float32 |"
    yield "| --- | --- | --- | --- |"
    for name, title in TITLES_OF_STATES.items():
        ratio = losses[name] / losses["float32"]
        yield f"| {title} | {memory[name]:.2f} | {losses[name]:.4g} | {ratio:.3f} |"
    yield ""
    yield (
        f"The problem is a quadratic of 16,384 weights in float32, {results['steps']:,} steps; the "
        "bytes are the sum of the weights and both moments. "
        f"{results['equal codes']:.2%} of the codes after {results['early']} steps are equal to "
        "torchao's: elsewhere the last bits of a float32 decide between two neighbours."
    )


def page(text: str, results: Mapping[str, Any]) -> str:
    """Returns the page with the table of the results."""
    tables = "\n".join(lines(results))
    text = replace_section(text, BEGIN, END, f"\n{tables}\n\n")
    table = "\n".join(lines_of_codes(results[EIGHT_BITS]))
    return replace_section(text, BEGIN_CODES, END_CODES, f"\n{table}\n\n")


if __name__ == "__main__":
    stored = json.loads(RESULTS.read_text(encoding="utf-8"))
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), stored), encoding="utf-8")
