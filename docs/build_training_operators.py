"""Writes docs/training_operators.md: which operators of torch are trained, and which are refused.

`make operators` runs it, on the results that `make compare` stored in training_operators.json.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
PAGE = DOCS / "training_operators.md"
RESULTS = DOCS / "training_operators.json"

_HEAD = """\
# Operators that training exports

Written by `make operators` from the results of `make compare`, which takes every differentiable
entry of torch {torch}'s own table of operators in float32 (`op_db` of `torch.testing`), puts it in
front of a loss with the sample's tensors as parameters, exports the step as
[`training.export`](training.md) does, and compares loss and gradients in onnxruntime with torch's:
at most four times as far from float64 as torch in float32. Up to two samples of each entry are
taken: the first, and the last with other options.

**{matched} of {all} entries ({share:.0%}) match in all their samples**, {partly} in one of two;
{refused} are refused by name, before a file is written, with the operator and the module in the
message. None is wrong. Of the {aten} functions that these entries are variants of, {aten_matched}
({aten_share:.0%}) match.

| entries | matched | one of two | refused |
| --- | --- | --- | --- |
"""

_REFUSED = """
## Refused

Decompositions of matrices (`svd`, `eigh`, `qr`, `cholesky`, `solve`, `inv`), complex numbers and
sizes that depend on data have no form in ONNX. A name in brackets is refused for some options only.

| reason | entries |
| --- | --- |
"""

_FAMILIES = ("nn.functional", "linalg", "fft", "special", "masked")


def page() -> str:
    """Returns the text of the page."""
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    found: dict[str, list[list[str]]] = results["entries"]
    kinds = {name: _kind(samples) for name, samples in found.items()}
    counts = Counter(kinds.values())
    by_function: dict[str, set[str]] = {}
    for name, kind in kinds.items():
        by_function.setdefault(results["functions"][name], set()).add(kind)
    matched = sum(kinds == {"matched"} for kinds in by_function.values())
    head = _HEAD.format(
        torch=results["torch"],
        all=len(found),
        matched=counts["matched"],
        share=counts["matched"] / len(found),
        partly=counts["partly"],
        refused=counts["refused"],
        aten=len(by_function),
        aten_matched=matched,
        aten_share=matched / len(by_function),
    )
    rows = [_row(family, kinds) for family in (*_FAMILIES, "")]
    return head + "\n".join(rows) + "\n" + _REFUSED + "\n".join(_reasons(found, kinds)) + "\n"


def _kind(samples: list[list[str]]) -> str:
    refused = sum(result == "refused" for result, _ in samples)
    return "matched" if not refused else "refused" if refused == len(samples) else "partly"


def _family(name: str) -> str:
    return next((family for family in _FAMILIES if name.startswith(f"{family}.")), "")


def _row(family: str, kinds: dict[str, str]) -> str:
    counts = Counter(kind for name, kind in kinds.items() if _family(name) == family)
    label = f"`{family}`" if family else "others"
    cells = [counts["matched"], counts["partly"], counts["refused"]]
    return f"| {label} | {' | '.join(map(str, cells))} |"


def _reasons(found: dict[str, list[list[str]]], kinds: dict[str, str]) -> list[str]:
    """A row for each reason, with the entries that are refused for it."""
    entries: dict[str, list[str]] = {}
    for name, samples in sorted(found.items()):
        for reason in sorted({text for result, text in samples if result == "refused"}):
            shown = f"(`{name}`)" if kinds[name] == "partly" else f"`{name}`"
            entries.setdefault(reason, []).append(shown)
    ordered: list[Any] = sorted(entries.items(), key=lambda one: (-len(one[1]), one[0]))
    return [f"| {reason} | {', '.join(names)} |" for reason, names in ordered]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
