"""Runs the benchmarks that compare with a peer, and writes ``benchmarks/RESULTS.md``.

python -m benchmarks [--results FILE]
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path

from benchmarks import growth, matrix_steps, optimizers, schedules
from benchmarks._side_by_side import Row, machine, show

RESULTS = Path(__file__).with_name("RESULTS.md")
SECTIONS = {
    "Optimizers": optimizers,
    "Rules of matrices": matrix_steps,
    "Schedules": schedules,
    "The compiler": growth,
}
MISSED, REASON = "**missed**", "Reason:"
"""The status of a row beyond its bar, and the word before its reason in the details."""
IN_NOISE = "within noise"
"""The status of a row without a reason that is above its bar by less than its noise."""

PACKAGES = ("closedform", "torch", "sympy", "numpy", "onnx", "onnxruntime")


def table(rows: list[Row]) -> str:
    """Returns rows as a Markdown table."""
    lines = ["| task | figure | bar | | details |", "| --- | --- | --- | --- | --- |"]
    for row in rows:
        bar = "" if row.bar is None else f"≤ {row.bar:g}"
        figure = f"{row.figure:.3g}{' ' + row.unit if row.unit else ''}"
        status, said = _status(row), row.detail
        if status == MISSED and row.reason:
            said = f"{row.detail}. {REASON} {row.reason}".lstrip(". ")
        lines.append(f"| {row.task} | {figure} | {bar} | {status} | {said} |")
    return "\n".join(lines)


def _status(row: Row) -> str:
    """Returns the word of a row: a miss that has a reason is one, however small it is."""
    if row.bar is None or row.is_met:
        return "" if row.bar is None else "met"
    return IN_NOISE if row.is_noise and not row.reason else MISSED


def unexplained(text: str) -> list[str]:
    """Returns the tasks of a page of results that miss their bars without a reason."""
    missed = [line.split("|") for line in text.splitlines() if MISSED in line]
    return [cells[1].strip() for cells in missed if not cells[5].partition(REASON)[2].strip()]


def main(words: Sequence[str] | None = None) -> int:
    """Prints each row when it is measured, then writes all of them.

    Returns:
        1 if a row misses its bar by more than its noise and has no reason, else 0.
    """
    parser = argparse.ArgumentParser(description="Compare closedform with its peers.")
    parser.add_argument("--results", type=Path, default=RESULTS, help="the page that is written")
    results = parser.parse_args(words).results
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    begun = time.perf_counter()
    where = machine(PACKAGES)
    print(where)
    parts: dict[str, list[Row]] = {}
    for title, module in SECTIONS.items():
        parts[title] = []
        for part in module.PARTS:
            start = time.perf_counter()
            parts[title] += show(part())
            print(f"    {part.__name__} took {time.perf_counter() - start:.0f} s", flush=True)
    text = [
        "# Results",
        "",
        "Written by `make bench`: medians of alternating measurements in one process.",
        "",
    ]
    text += [where, ""]
    for title, rows in parts.items():
        text += [f"## {title}", "", table(rows), "", SECTIONS[title].SUMMARY, ""]
    page = "\n".join(text)
    results.write_text(page, encoding="utf-8")
    print(f"wrote {results} after {time.perf_counter() - begun:.0f} s")
    without = unexplained(page)
    for task in without:
        print(f"missed, and the row has no reason: {task}")
    return 1 if without else 0


if __name__ == "__main__":
    sys.exit(main())
