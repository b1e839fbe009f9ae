"""Writes docs/training_operators.md: which operators of torch are trained, and which are refused.

`make operators` runs it, on the results that `make compare` stored in training_operators.json.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from tests.proofs.gradients.torch_rules.composed_rules import COMPOSED
from tests.proofs.gradients.torch_rules.linear_rules import LINEAR
from tests.proofs.gradients.torch_rules.rules import (
    BACKWARDS,
    ELEMENTWISE,
    PROVED,
    PROVED_OFF_KINKS,
    RULES,
    kind_of,
)
from tools.sections import DOCS, RESULTS_FOLDER

PAGE = DOCS / "training_operators.md"
RESULTS = RESULTS_FOLDER / "training_operators.json"

_HEAD = """\
# Operators that training exports

The operators of torch that an exported training step may contain. `make compare` takes every
differentiable entry of torch {torch}'s own table of operators in float32 (`op_db` of
`torch.testing`), puts it in front of a loss with the sample's tensors as parameters, exports the
step as
[`training.export`](train_in_onnxruntime.md) does, and compares loss and gradients in onnxruntime
with torch's: at most four times as far from float64 as torch in float32. The first sample of each
entry is taken.
Variants of it and 16 bits are compared, too, where the distance from float64 is judged by that of
torch in the same dtype (in bfloat16, with `compute_dtype="f32"`).

**{matched} of {all} entries ({share:.0%}) match.** The other {refused} are refused by name, before
a file is written, with the operator and the module in the message. None is wrong. Of the {aten}
functions that these entries are variants of, {aten_matched} ({aten_share:.0%}) match.

| entries | matched | refused | gradient proved | proved except at kinks |
| --- | --- | --- | --- | --- |
"""

_GRADIENTS = """
## Proved gradients

{count} operators are exported with their backward, as in a training step, and both are read from
the ONNX file: torch's formulas of gradients, its decompositions, those of closedform, and the ONNX
form of each operator are all within the proof. Proved is, over the real numbers:

- of {elementwise} elementwise operators, that the backward is the derivative times the gradient in
  the result, by the chain rule and the prover, on each side of the places where the formula
  changes. Where torch has a convention at a kink (0 for `relu` and `abs` at 0, one half each for a
  tie of `maximum`, 1 at the bounds of `clamp`), that slope is proved, too;
- of {linear} linear ones, that the backward is the adjoint, ⟨A x, g⟩ = ⟨x, B g⟩, as sums over
  indices, for all sizes from 1 on that the rule leaves free: batches, rows, columns and lengths.
  Channels and kernels of convolutions, parts of a split and orders of diagonals are numbers;
- of {composed} composed ones (softmax, normalisations, attention, norms, losses, maxima, sorting,
  pooling), that the backward is the adjoint of the derivative, ⟨F'(x) dx, g⟩ = ⟨dx, B g⟩. The
  forward is read as sums, products, powers, exponentials and logarithms of sums over indices, which
  are differentiated by the chain rule, for all sizes that the rule leaves free. The place of a
  maximum, or of a rank, is a function without a definition, and real numbers that are compared
  differ ("except at kinks"): ties, a norm of 0 and a loss at its margin are not part of it.

The rules are in `tests.proofs.gradients.torch_rules`, with their domains (x > 0 for `log`, `sqrt`
and `pow`; x < 20 for `mish`, above which torch's forward and backward are of two approximations).
Constants of elementwise operators are the exact numbers that they are rounded from, and indices are
in their ranges. Rounding, NaN and infinity are not part of it, nor are edges without a listed slope
(`softplus` at 20), divisors of 0, and roots and logarithms of numbers that are not positive.
{faults}
All other operators, such as solutions of linear systems and cumulative maxima, are compared with
torch only. These are the backwards that closedform writes instead of torch's:

| backward | proved by | compared with torch only |
| --- | --- | --- |
{rows}

Proved: {proved}.

Proved except at kinks: {kinked}.
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
    gradients: dict[str, str] = results.get("gradients", {})
    rows = [_row(family, kinds, gradients) for family in (*_FAMILIES, "")]
    counted = results.get("counts")  # of the last whole run of `make compare`
    variants = [_variant(kind, label, counted) for kind, label in _KINDS.items()] if counted else []
    tables = "\n".join(rows) + "\n"
    if variants:
        tables += _VARIANTS + "\n".join(variants) + _COUNTED
    proofs = _gradients(gradients, results.get("faults"))
    return head + tables + proofs + _REFUSED + "\n".join(_reasons(found)) + "\n"


def _family(name: str) -> str:
    return next((family for family in _FAMILIES if name.startswith(f"{family}.")), "")


def _row(family: str, kinds: dict[str, str], gradients: dict[str, str]) -> str:
    proved = Counter(kind for name, kind in gradients.items() if _family(name) == family)
    counts = Counter(kind for name, kind in kinds.items() if _family(name) == family)
    label = f"`{family}`" if family else "others"
    cells = counts["matched"], counts["refused"], proved[PROVED], proved[PROVED_OFF_KINKS]
    return f"| {label} | {' | '.join(map(str, cells))} |"


def _faults(counts: dict[str, int]) -> str:
    return (
        f"`make compare` plants {counts['faults']:,} faults in the backwards of {counts['rules']} "
        "rules (a sign, a factor,\na term, a sum, a mask, an axis, swapped operands): "
        f"{counts['proved']} are proved.\n"
    )


def _gradients(gradients: dict[str, str], faults: dict[str, int] | None) -> str:
    """The section on proofs of gradients."""
    rows = [
        f"| `{name}` | {_code(backward.rules)} | {backward.reason} |"
        for name, backward in BACKWARDS.items()
    ]
    names = {
        kind: _code([name for name, of in gradients.items() if of == kind])
        for kind in (PROVED, PROVED_OFF_KINKS)
    }
    return _GRADIENTS.format(
        count=len(gradients),
        composed=len(COMPOSED),
        faults=_faults(faults) if faults else "",
        elementwise=len(ELEMENTWISE),
        linear=len(LINEAR),
        rows="\n".join(rows),
        proved=names[PROVED],
        kinked=names[PROVED_OFF_KINKS],
    )


def _code(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


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


def store_faults(faults: int, rules: int, proved: int) -> None:
    """Writes the numbers of planted faults to the stored results and to the page."""
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    results["faults"] = {"faults": faults, "rules": rules, "proved": proved}
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(), encoding="utf-8")


def store_gradients() -> None:
    """Writes the rules whose gradients the tests prove to the stored results."""
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    results["gradients"] = {name: kind_of(rule) for name, rule in sorted(RULES.items())}
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    store_gradients()
    PAGE.write_text(page(), encoding="utf-8")
