"""The part of docs/accuracy.md about updates: errors of one update of every rule.

`tests/numerics/compare_update_accuracy.py` stored the results in update_accuracy.json, and
`tools/build_accuracy.py` writes the page.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import Any

from tools.sections import RESULTS_FOLDER

RESULTS = RESULTS_FOLDER / "update_accuracy.json"

COLUMNS = ("elements", "ulp", "ulp_of_scale", "rounded", "not_finite")
"""The columns of a stored row."""

RANDOM = "random"

Rows = Mapping[str, Sequence[Any]]
"""The rows of an engine by kind of gradient."""

_HEAD = """
## One update of every rule

An update is measured in the same way: the next parameter of each of the {rules} rules, beside that
of its formula in 60 digits (mpmath, from the rule's expressions and not from its graph). Parameter,
gradient and states are the float32 numbers that the engine begins with; the states are those after
three steps. Each is measured at the first step, the fourth and the step after 10⁶. Gradients are

| gradients | size |
| --- | --- |
| random | normal, times 10⁻⁴ to 1 |
| tiny | 10⁻⁴⁴ to 10⁻²⁰, whose squares are 0 in float32 |
| huge | 10⁶ to 10¹⁵ |
| zero | random ones before, 0 in the step that is measured |
| spike | random ones before, huge in the step |
| vanishing | random ones before, tiny in the step |

An *ulp of scale* is that of the larger of the parameter before and after the step. The error in ulp
of the parameter itself has no bound where a step takes a parameter nearly to 0. A rule that treats
elements separately has 400 elements of each kind; others have a matrix of 8 × 6 and a vector of 12.

| back end | precision | random: ulp of scale | at | rounded | other gradients | at |
| --- | --- | --- | --- | --- | --- | --- |
"""

_REASONS = """
The errors of most rules are a few roundings of the update, which is rounded once more where it is
subtracted. Larger ones have these reasons:

- The products of the Newton–Schulz iterations of Muon and its relatives, and the inverse roots of
  Shampoo, amplify the roundings before them.
- Squares and products of tiny gradients underflow in float32: Rprop then sees no sign, SM3 no
  accumulator and Fromage no norm, here as in the code of their authors.
- The lower bound of Momo approaches the loss, which is constant in this measurement: its step is a
  difference of nearly equal numbers.
- In float64, the bias correction 1 − β^t cancels at the first steps, since β is rounded to float64.
- From its extended level on, onnxruntime merges a constant factor of a matrix product into an
  attribute of float32 (`FusedMatMul`), so that float64 graphs of Muon's relatives have errors of
  float32 there. The sessions of closedform run at the basic level.
"""

_RULES = """
### Rules

In onnxruntime, float32 with float64 scalars. *Overflows* are parameters that are infinite or NaN
where the formula is finite.

| rule | random: ulp | ulp of scale | rounded | other gradients: ulp of scale | at | overflows |
| --- | --- | --- | --- | --- | --- | --- |
"""

_PACKAGES = """
### Optimizers of torch and optax

The same tensors, stepped by torch.optim in float32 on the CPU (its single-tensor, foreach and fused
implementations) and by optax, compiled by JAX. Errors are in ulp of scale; the last three columns
are the same formula in onnxruntime.
Of torch, Muon is left out, whose products are in bfloat16. optax computes the bias correction of
Adam in float32, and XLA takes subnormal numbers as 0 on CPUs, so that Lion sees no sign of tiny
gradients. The Adafactor of torch multiplies means of rows and columns before it divides, which
overflows for huge gradients.

| package | optimizer | path | random | rounded | other kinds | closedform | rounded | other kinds |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
"""


def error(value: float | None) -> str:
    """Returns an error with three significant digits, powers of ten for large ones."""
    if value is None or value == inf:
        return "∞"
    text = f"{value:.3g}" if value < 1e4 else f"{value:.1e}"
    return text.replace("e+0", "·10^").replace("e+", "·10^").replace("e-0", "·10^-")


def cell(rows: Rows, kind: str, column: str) -> Any:
    """Returns a figure of a kind of gradients; None for an infinite one."""
    return rows[kind][COLUMNS.index(column)]


def share(rows: Iterable[Rows], kinds: Iterable[str] = (RANDOM,)) -> str:
    """Returns the share of correctly rounded parameters; 100 % only if all are."""
    chosen = [(row, kind) for row in rows for kind in kinds if kind in row]
    elements = sum(cell(row, kind, "elements") for row, kind in chosen)
    rounded = sum(cell(row, kind, "rounded") for row, kind in chosen)
    if rounded == elements:
        return "100 %"
    return f"{min(100 * rounded / elements, 99.9):.1f} %"


def worst(rows: Mapping[str, Rows], is_random: bool, column: str = "ulp_of_scale") -> Any:
    """Returns the largest error over engines or rules, with the name and the kind of gradients."""
    figures = [
        (inf if cell(kinds, kind, column) is None else cell(kinds, kind, column), name, kind)
        for name, kinds in rows.items()
        for kind in kinds
        if (kind == RANDOM) == is_random
    ]
    return max(figures)


def overflows(rows: Rows) -> int:
    """Returns how many parameters are infinite or NaN where the formula is finite."""
    return sum(cell(rows, kind, "not_finite") for kind in rows)


def escape(name: str) -> str:
    """Returns a name in Markdown."""
    return name.replace("_", "\\_")


def backend_rows(results: Mapping[str, Any]) -> Iterable[str]:
    """Yields a row for each back end and precision, over all rules."""
    for section in ("rules", "rules of 16 bits"):
        engines = {key for rules in results[section].values() for key in rules}
        for key in sorted(engines):
            rows = {name: rules[key] for name, rules in results[section].items() if key in rules}
            backend, _, precision = key.rpartition(", ")
            value, name, _ = worst(rows, is_random=True)
            cells = [backend, precision, error(value), escape(name), share(rows.values())]
            if any(kind != RANDOM for kinds in rows.values() for kind in kinds):
                value, name, kind = worst(rows, is_random=False)
                cells += [error(value), f"{escape(name)}, {kind}"]
            else:
                cells += ["", ""]
            yield f"| {' | '.join(cells)} |"


def rule_rows(rules: Mapping[str, Mapping[str, Rows]]) -> Iterable[str]:
    """Yields a row for each rule, in onnxruntime."""
    for name, engines in rules.items():
        rows = engines["onnxruntime, float32"]
        value, _, kind = worst({name: rows}, is_random=False)
        cells = [
            escape(name),
            error(cell(rows, RANDOM, "ulp")),
            error(cell(rows, RANDOM, "ulp_of_scale")),
            share([rows]),
            error(value),
            kind,
            str(overflows(rows) or ""),
        ]
        yield f"| {' | '.join(cells)} |"


def package_rows(results: Mapping[str, Any]) -> Iterable[str]:
    """Yields a row for each implementation of each optimizer of the packages."""
    for package in ("torch", "optax"):
        for name, paths in results[package].items():
            for path, row in paths.items():
                cells = [package, name, path]
                for rows in (row["package"], row["closedform"]):
                    value, _, kind = worst({name: rows}, is_random=False)
                    random = error(cell(rows, RANDOM, "ulp_of_scale"))
                    cells += [random, share([rows]), f"{error(value)}, {kind}"]
                yield f"| {' | '.join(cells)} |"


def section(results: Mapping[str, Any]) -> str:
    """Returns the part of the page."""
    parts = [
        _HEAD.format(rules=len(results["rules"])),
        "\n".join(backend_rows(results)) + "\n",
        _REASONS,
        _RULES,
        "\n".join(rule_rows(results["rules"])) + "\n",
        _PACKAGES,
        "\n".join(package_rows(results)) + "\n",
    ]
    return "".join(parts)
