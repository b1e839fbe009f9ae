"""Writes docs/accuracy.md: errors of schedules and updates in every back end and other packages.

`make accuracy` runs it, on the results that `tests/numerics/compare_accuracy.py` stored in
accuracy.json, and `compare_update_accuracy.py` in update_accuracy.json.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from tools import update_accuracy
from tools.sections import DOCS, RESULTS_FOLDER

PAGE = DOCS / "accuracy.md"
RESULTS = RESULTS_FOLDER / "accuracy.json"

ROUNDED = ("float32 of float64 scalars", "double-float")
"""The precisions whose values are meant to be the float32 nearest to the exact value."""

_HEAD = """\
# How accurate schedules and updates are

A learning rate is a real number that a formula defines, and a float that an engine computes. This
page states the distance between the two for every schedule of the library, in every back end and
precision, and for the same formulas in torch, transformers, optax, Keras and MLX as they ship.
[Below](#one-update-of-every-rule), the same for the parameters after one update of every rule.

Each of the {schedules} schedules is a run of about a million steps (the lengths of the
[gallery](gallery.md)'s examples times {factor:,}, their values times {peak}) or one of ten
formulas with peak 10⁻³. All steps from 0 to 2²⁰ are compared, and beyond them branch boundaries,
powers of two and 20,000 random steps up to 2⁵⁰. Exact values are enclosed by ball arithmetic of
128 bits (python-flint), so the figures up to 2²⁰ are proved for the engines that ran. An *ulp of
the value* is the distance of neighboring floats at the exact value, an *ulp of scale* that at the
schedule's largest value; a value is *correctly rounded* if no float is nearer to the exact one.

`closedform.certify` computes the same for your own schedule: [numerics](numerics.md).

## Back ends

The row of a back end covers all schedules: the largest errors, and the schedule and step where
they occur.

| back end | precision | ulp of the value | at | ulp of scale | at | correctly rounded |
| --- | --- | --- | --- | --- | --- | --- |
"""

_EXCEPTIONS = """
## Correct rounding

Two precisions are meant to round every value correctly: float32 values of float64 scalars, the
default of `to_onnx(dtype="f32")`, and double-float, for devices without float64. {verdict}
"""

_EXCEPTION_ROWS = """
| back end | precision | schedule | values | first steps |
| --- | --- | --- | --- | --- |
"""

_REASONS = """
Double-float has 48 bits, so that it loses the side of a value that is within 2⁻¹⁷ ulp of the middle
of two float32. XLA, the compiler of JAX, takes subnormal numbers as 0 on CPUs: values below 2⁻¹²⁶
are lost there, and it divides by a constant by multiplying with its inverse, so that the end of
`wsd` is 10⁻¹⁶ of the peak and not 0.
"""

_PACKAGES = """
## Other packages

The same formulas, with T = 10⁶, a peak of 10⁻³ and an end of 10⁻⁵, as each package ships them:
every step from 0 to 2²⁰, in the dtype that the package returns. torch and transformers compute in
Python floats, step by step where the class has a recurrence. The last two columns are the same
formula in onnxruntime, in the same dtype.

| package | formula | dtype | ulp of the value | at step | rounded | closedform | rounded |
| --- | --- | --- | --- | --- | --- | --- | --- |
"""

_SCHEDULES = """
## Schedules

In onnxruntime without graph optimizations, the largest error in ulp of the value, and the share of
correctly rounded values in parentheses.

| schedule | float64 | float32 of float64 scalars | double-float | float32 |
| --- | --- | --- | --- | --- |
"""

_TAIL = """
The largest errors in ulp of the value are those of values near 0, where a formula cancels: they
are small in ulp of scale, which is the error that an update sees. A schedule whose default graph
could exceed 2 ulp of scale is computed from both ends or with constants in two parts
([numerics](numerics.md#precisions)).
"""


def percent(misrounded: int, steps: int) -> str:
    """Returns the share of correctly rounded values; 100 % only if all are."""
    if not misrounded:
        return "100 %"
    share = 100 * (1 - misrounded / steps)
    return f"{min(share, 99.9999):.4f} %" if share > 99 else f"{share:.1f} %"


def error(value: float) -> str:
    """Returns an error with three significant digits, powers of ten for large ones."""
    return (
        f"{value:.3g}"
        if value < 1e4
        else f"{value:.1e}".replace("e+0", "·10^").replace("e+", "·10^")
    )


def escape(name: str) -> str:
    """Returns the name of a schedule in Markdown."""
    return name.removeprefix("study: ").replace("_", "\\_")


def backend_rows(schedules: Mapping[str, Mapping[str, Any]]) -> Iterable[str]:
    """Yields a row for each back end and precision, over all schedules."""
    for key in max(schedules.values(), key=len):
        rows = {name: engines[key] for name, engines in schedules.items() if key in engines}
        backend, _, precision = key.rpartition(", ")
        cells = []
        for unit in ("ulp", "ulp_of_scale"):
            worst = max(rows, key=lambda name: rows[name][unit][0])
            value, step = rows[worst][unit]
            cells += [error(value), f"{escape(worst)}, {step:,}"]
        misrounded = sum(row["misrounded"] for row in rows.values())
        share = percent(misrounded, sum(row["steps"] for row in rows.values()))
        yield f"| {backend} | {precision} | {' | '.join(cells)} | {share} |"


def exceptions(schedules: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Returns a row for each schedule that a precision of ``ROUNDED`` does not round correctly."""
    lines = []
    for name, engines in schedules.items():
        for key, row in engines.items():
            backend, _, precision = key.rpartition(", ")
            if precision in ROUNDED and row["misrounded"]:
                steps = ", ".join(f"{step:,}" for step in row["first_misrounded"])
                more = ", …" if row["misrounded"] > len(row["first_misrounded"]) else ""
                cells = (backend, precision, escape(name), f"{row['misrounded']:,}", steps + more)
                lines.append(f"| {' | '.join(cells)} |")
    return lines


def package_rows(results: Mapping[str, Any]) -> Iterable[str]:
    """Yields a row for each formula of each package."""
    for package, formulas in results["packages"].items():
        for name, row in formulas.items():
            precision = "float64" if row["dtype"] == "float64" else ROUNDED[0]
            peer = results["schedules"][f"study: {name}"][f"onnxruntime, {precision}"]
            value, step = row["ulp"]
            yield (
                f"| {package} | {escape(name)} | {row['dtype']} | {error(value)} | {step:,} "
                f"| {percent(row['misrounded'], row['steps'])} | {error(peer['ulp'][0])} "
                f"| {percent(peer['misrounded'], peer['steps'])} |"
            )


def schedule_rows(schedules: Mapping[str, Mapping[str, Any]]) -> Iterable[str]:
    """Yields a row for each schedule, in onnxruntime."""
    for name, engines in schedules.items():
        cells = []
        for precision in ("float64", *ROUNDED, "float32"):
            row = engines[f"onnxruntime, {precision}"]
            cells.append(f"{error(row['ulp'][0])} ({percent(row['misrounded'], row['steps'])})")
        yield f"| {escape(name)} | {' | '.join(cells)} |"


def build(results: Mapping[str, Any], updates: Mapping[str, Any]) -> str:
    """Returns the page."""
    schedules = results["schedules"]
    listed = exceptions(schedules)
    total = sum(
        row["steps"]
        for engines in schedules.values()
        for key, row in engines.items()
        if key.rpartition(", ")[2] in ROUNDED
    )
    wrong = sum(
        row["misrounded"]
        for engines in schedules.values()
        for key, row in engines.items()
        if key.rpartition(", ")[2] in ROUNDED
    )
    verdict = (
        f"Of {total:,} values, all are."
        if not listed
        else (f"Of {total:,} values, {wrong:,} are not:")
    )
    parts = [
        _HEAD.format(schedules=len(schedules), factor=results["factor"], peak=results["peak"]),
        "\n".join(backend_rows(schedules)) + "\n",
        _EXCEPTIONS.format(verdict=verdict),
        *((_EXCEPTION_ROWS, "\n".join(listed) + "\n", _REASONS) if listed else ()),
        _PACKAGES,
        "\n".join(package_rows(results)) + "\n",
        _SCHEDULES,
        "\n".join(schedule_rows(schedules)) + "\n",
        _TAIL,
        update_accuracy.section(updates),
    ]
    return "".join(parts)


def main() -> None:
    """Writes the page."""
    stored = (RESULTS, update_accuracy.RESULTS)
    results, updates = (json.loads(path.read_text(encoding="utf-8")) for path in stored)
    PAGE.write_text(build(results, updates), encoding="utf-8")


if __name__ == "__main__":
    main()
