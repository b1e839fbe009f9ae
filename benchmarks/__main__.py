"""Runs the benchmarks that compare with a peer, and writes ``benchmarks/RESULTS.md``.

python -m benchmarks
"""

from __future__ import annotations

import logging
import time
import warnings
from pathlib import Path

from benchmarks import growth, optimizers, schedules
from benchmarks._side_by_side import Row, machine, show

RESULTS = Path(__file__).with_name("RESULTS.md")
NOTES = Path(__file__).with_name("NOTES.md")
SECTIONS = {"Optimizers": optimizers, "Schedules": schedules, "The compiler": growth}
PACKAGES = ("closedform", "torch", "sympy", "numpy", "onnx", "onnxruntime")


def table(rows: list[Row]) -> str:
    """Returns rows as a Markdown table."""
    lines = ["| task | figure | bar | | details |", "| --- | --- | --- | --- | --- |"]
    for row in rows:
        bar = "" if row.bar is None else f"≤ {row.bar:g}"
        status = "" if row.bar is None else ("met" if row.is_met else "**missed**")
        figure = f"{row.figure:.3g}{' ' + row.unit if row.unit else ''}"
        said = [row.detail] if row.is_met or not row.reason else [row.detail, row.reason]
        lines.append(f"| {row.task} | {figure} | {bar} | {status} | {'; '.join(said)} |")
    return "\n".join(lines)


def main() -> None:
    """Prints each row when it is measured, then writes all of them."""
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
        text += [f"## {title}", "", table(rows), ""]
    if NOTES.exists():
        text.append(NOTES.read_text(encoding="utf-8"))
    RESULTS.write_text("\n".join(text), encoding="utf-8")
    print(f"wrote {RESULTS} after {time.perf_counter() - begun:.0f} s")


if __name__ == "__main__":
    main()
