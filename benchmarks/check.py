"""Regressions: the benchmarks again, compared with the ratios in ``benchmarks/RESULTS.md``.

python -m benchmarks.check [--stored FILE]

Ratios to a peer are measured in turn in one process, so that they hold on another machine of the
same kind; times and sizes are not compared. A ratio fails if it is above the stored one by more
than the noise of its row in each of ``ATTEMPTS`` runs. The peers are not equally fast on every
processor: on another one, store the ratios of an earlier commit first, with
``python -m benchmarks --results FILE``.
"""

from __future__ import annotations

import argparse
import logging
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from benchmarks.__main__ import PACKAGES, RESULTS, SECTIONS
from benchmarks._side_by_side import Row, machine, show

ATTEMPTS = 3

PARTS: tuple[Callable[[], Iterable[Row]], ...] = tuple(
    part for module in SECTIONS.values() for part in module.PARTS
)


def stored_ratios(text: str) -> dict[str, float]:
    """Returns the ratios of a page of results by task; rows with a unit are left out."""
    ratios = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and len(cells) == 5:
            try:
                ratios[cells[0]] = float(cells[1])
            except ValueError:
                continue
    return ratios


def regressions(rows: Iterable[Row], stored: Mapping[str, float]) -> list[str]:
    """Returns a line for each ratio that is beyond the noise above the stored one."""
    return [
        f"{row.task}: {row.figure:.3g}, stored {stored[row.task]:.3g}"
        for row in rows
        if not row.unit and row.task in stored and row.figure > stored[row.task] * (1 + row.noise)
    ]


def best(rows: Iterable[Row], others: Iterable[Row]) -> list[Row]:
    """Returns the smaller figure of each task."""
    known = {row.task: row for row in others}
    return [min(row, known.get(row.task, row), key=lambda each: each.figure) for row in rows]


def main(words: Sequence[str] | None = None) -> int:
    """Measures, prints the regressions, and returns 1 if there are any."""
    parser = argparse.ArgumentParser(description="Compare the benchmarks with stored ratios.")
    parser.add_argument("--stored", type=Path, default=RESULTS, help="a page of results")
    page = parser.parse_args(words).stored.read_text(encoding="utf-8")
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    stored = stored_ratios(page)
    processor = machine(PACKAGES).partition(";")[0]
    print(processor)
    if processor not in page:
        print("the stored ratios are of another processor: peers may be faster or slower here")
    found: list[str] = []
    for part in PARTS:
        rows = show(part())
        for _ in range(ATTEMPTS - 1):
            if not regressions(rows, stored):
                break
            rows = best(show(part()), rows)
        found += regressions(rows, stored)
        for row in rows:
            if not row.unit and row.task not in stored:
                print(f"not stored, so not compared: {row.task}")
    print("\n".join(found) if found else "no regression")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
