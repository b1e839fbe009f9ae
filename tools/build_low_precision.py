"""Writes the tables of docs/low_precision.md from tools/results/low_precision.json.

`make precision` runs it, on the results that tests/low_precision/compare_low_precision.py stored.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from tools.sections import DOCS, RESULTS_FOLDER, replace_section

RESULTS = RESULTS_FOLDER / "low_precision.json"
PAGE = DOCS / "low_precision.md"
BEGIN, END = "<!-- results -->\n", "<!-- end -->\n"
BEGIN_STATES, END_STATES = "<!-- states -->\n", "<!-- end of states -->\n"
BEGIN_CODES, END_CODES = "<!-- few bits -->\n", "<!-- end of few bits -->\n"
QUADRATIC, LANGUAGE = "quadratic", "language model"
STATES = "language model, states"
EIGHT_BITS, FOUR_BITS, RANDOM = "8-bit states", "4-bit states", "random tensors"
TOLERATED = 1.05
"""The largest ratio to the loss of float32."""
TOLERATED_STATES = 1.01
"""The same of states of 16 bits that are rounded at random."""
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
TITLES_OF_MOMENTS = {
    "float32": "float32",
    "states, nearest": "`sixteen_bit_states`, to nearest",
    "states, stochastic": '`sixteen_bit_states`, `rounding="stochastic"`',
    "all, stochastic": "all in bfloat16, both rounded at random",
}
TITLES_OF_STATES = {
    EIGHT_BITS: {"eight_bit_states": "`eight_bit_states`", "torchao": "torchao's `AdamW8bit`"},
    FOUR_BITS: {
        "four_bit_states": "`four_bit_states`",
        "torchao": "torchao's `AdamW4bit`",
        "exp_avg in 8 bits": "`four_bit_states`, the first moment in 8 bits",
    },
}
TRANSFORMS_OF_STATES = ("eight_bit_states", "four_bit_states")
"""The rows that a class of torchao computes, too."""


def lines(
    results: Mapping[str, Any], subject: str, titles: Mapping[str, str], problems: Sequence[str]
) -> Iterator[str]:
    """Yields the lines of the table, and of the steps whose bits were compared.

    Args:
        results: The stored results.
        subject: What a row stores, for the head of the table.
        titles: The rows.
        problems: The columns.
    """
    heads = [f"{name.split(',')[0]}, {results[name]['steps']:,} steps" for name in problems]
    yield f"| {subject} | bytes per parameter | {' | '.join(heads)} |"
    yield f"| --- | --- |{' --- |' * len(heads)}"
    for choice, title in titles.items():
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
        equal = [titles[choice] for choice in titles if differences.get(choice, 0) is None]
        yield (
            f"On the {name.split(',')[0]}, parameters after each of {compared['steps']:,} steps "
            f"and states after the last have the same bits in {engines}: "
            f"{', '.join(equal) or 'none'}."
        )


def lines_of_codes(everything: Mapping[str, Any]) -> Iterator[str]:
    """Yields the lines of the table of states in a few bits."""
    yield "| states of AdamW | bytes per parameter | loss | ratio to float32 | ratio to torchao |"
    yield "| --- | --- | --- | --- | --- |"
    titles = [(EIGHT_BITS, "float32", "float32")] + [
        (name, label, title)
        for name, by_label in TITLES_OF_STATES.items()
        for label, title in by_label.items()
    ]
    for name, label, title in titles:
        losses, memory = everything[name]["losses"], everything[name]["memory"]
        loss, reference, peer = losses[label], losses["float32"], losses["torchao"]
        to_peer = f"{loss / peer:.4f}" if label in ("torchao", *TRANSFORMS_OF_STATES) else ""
        cells = [f"{memory[label]:.2f}", f"{loss:.4g}", f"{loss / reference:.3f}", to_peer]
        yield f"| {title} | {' | '.join(cells)} |"
    yield ""
    eight, four = everything[EIGHT_BITS], everything[FOUR_BITS]
    yield (
        f"The problem is a quadratic of 16,384 weights in float32, {eight['steps']:,} steps; the "
        "bytes are the sum of the weights and both moments. "
        f"{eight['equal codes']:.2%} of the codes of 8 bits after {eight['early']} steps are equal "
        f"to torchao's, and {four['equal codes']:.2%} of those of 4 bits: elsewhere the last bits "
        "of a float32 decide between two neighbours."
    )
    yield ""
    for name, bits in ((EIGHT_BITS, 8), (FOUR_BITS, 4)):
        tensors = everything[f"{name}, {RANDOM}"].values()
        different, count = (sum(r[key] for r in tensors) for key in ("different codes", "codes"))
        largest = max(r["largest difference of values of equal codes"] for r in tensors)
        compared = everything[f"{name}, bits"]
        engines = ", ".join(ENGINES[engine] for engine in compared["engines"])
        bits_are = "the same bits" if compared["difference"] is None else "different bits"
        yield (
            f"Random tensors in {bits} bits: {different} of {count:,} codes differ from torchao's, "
            f"and the values of the others by at most {largest:.1e} of the scale of their block. "
            f"With `stochastic_rounding`, parameters, codes and scales have {bits_are} in "
            f"{engines} over {compared['steps']:,} steps."
        )


def page(text: str, results: Mapping[str, Any]) -> str:
    """Returns the page with the table of the results."""
    tables = "\n".join(lines(results, "parameters", TITLES, (QUADRATIC, LANGUAGE)))
    text = replace_section(text, BEGIN, END, f"\n{tables}\n\n")
    tables = "\n".join(lines(results, "AdamW", TITLES_OF_MOMENTS, (STATES,)))
    text = replace_section(text, BEGIN_STATES, END_STATES, f"\n{tables}\n\n")
    table = "\n".join(lines_of_codes(results))
    return replace_section(text, BEGIN_CODES, END_CODES, f"\n{table}\n\n")


if __name__ == "__main__":
    stored = json.loads(RESULTS.read_text(encoding="utf-8"))
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), stored), encoding="utf-8")
