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

The operators of torch that an exported training step may contain. `make compare` takes every
differentiable entry of torch {torch}'s own table of operators in float32 (`op_db` of
`torch.testing`), puts it in front of a loss with the sample's tensors as parameters, exports the
step as
[`training.export`](training.md) does, and compares loss and gradients in onnxruntime with torch's:
at most four times as far from float64 as torch in float32. The first sample of each entry is taken.
Variants of it and 16 bits are compared, too, where the distance from float64 is judged by that of
torch in the same dtype (in bfloat16, with `compute_dtype="f32"`).

**{matched} of {all} entries ({share:.0%}) match.** The other {refused} are refused by name, before
a file is written, with the operator and the module in the message. None is wrong. Of the {aten}
functions that these entries are variants of, {aten_matched} ({aten_share:.0%}) match.

| entries | matched | refused |
| --- | --- | --- |
"""

_VARIANTS = """
| sample | f32 | f16 | bf16 |
| --- | --- | --- | --- |
"""

_KINDS = {
    "first": "the first of each entry",
    "permuted": "its matrices stored with permuted strides",
    "broadcast": "tensors of different shapes",
    "scalar first": "a Python number as the first operand",
    "empty": "an axis of size 0",
}

_COUNTED = "\n\nNumbers of samples that match, and of those that are refused.\n"

_REFUSED = """
## Refused

Inverses, determinants, solutions, LU, QR, Cholesky and exponentials of matrices are computed for up
to 64 rows. Singular values, eigenvalues, most complex numbers and sizes that depend on data have no
form in ONNX.

| reason | entries |
| --- | --- |
"""

_FAMILIES = ("nn.functional", "linalg", "fft", "special", "masked")


def page() -> str:
    """Returns the text of the page."""
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    found: dict[str, list[str]] = results["entries"]
    kinds = {name: kind for name, (kind, _) in found.items()}
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
        refused=counts["refused"],
        aten=len(by_function),
        aten_matched=matched,
        aten_share=matched / len(by_function),
    )
    rows = [_row(family, kinds) for family in (*_FAMILIES, "")]
    counted = results.get("counts")  # of the last whole run of `make compare`
    variants = [_variant(kind, label, counted) for kind, label in _KINDS.items()] if counted else []
    tables = "\n".join(rows) + "\n"
    if variants:
        tables += _VARIANTS + "\n".join(variants) + _COUNTED
    return head + tables + _REFUSED + "\n".join(_reasons(found)) + "\n"


def _family(name: str) -> str:
    return next((family for family in _FAMILIES if name.startswith(f"{family}.")), "")


def _row(family: str, kinds: dict[str, str]) -> str:
    counts = Counter(kind for name, kind in kinds.items() if _family(name) == family)
    label = f"`{family}`" if family else "others"
    return f"| {label} | {counts['matched']} | {counts['refused']} |"


def _variant(kind: str, label: str, counts: dict[str, dict[str, dict[str, int]]]) -> str:
    cells = []
    for word in ("f32", "f16", "bf16"):
        results = counts[word].get(kind, {})
        cells.append(f"{results.get('matched', 0)}, {results.get('refused', 0)}")
    return f"| {label} | {' | '.join(cells)} |"


def _reasons(found: dict[str, list[str]]) -> list[str]:
    """A row for each reason, with the entries that are refused for it."""
    entries: dict[str, list[str]] = {}
    for name, (kind, reason) in sorted(found.items()):
        if kind == "refused":
            entries.setdefault(reason, []).append(f"`{name}`")
    ordered: list[Any] = sorted(entries.items(), key=lambda one: (-len(one[1]), one[0]))
    return [f"| {reason} | {', '.join(names)} |" for reason, names in ordered]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
