"""Writes the table of docs/verification.md: which verdicts Rocq accepts, the rest by reason.

`make rocq` measures and runs it. The figures stand in tools/results/rocq.json.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tools.sections import DOCS, RESULTS_FOLDER, GeneratedSection

FIGURES = RESULTS_FOLDER / "rocq.json"

SUBJECTS = {
    "theorems": "rows of [theorems](theorems.md) that are PROVED",
    "schedules": "PROVED verdicts of `verify()` on the schedules of the library",
    "files": "ONNX files of these schedules: the term read back is that of the source",
    "floats": "bounds of the error of these schedules in float32 and in float64, by Gappa",
}
REASONS = (
    ("it is about floats", "it is about floats"),
    ("it has no goals", "it is decided without goals"),
    ("it holds at a point", "it holds at a point"),
    ("no proof object", "no proof object"),
    ("not printed", "a step is not printed"),
    ("rejected", "rejected"),
    ("Gappa has no ", "it has exp, log or a power that is not whole"),
    ("the error has no bound", "the error has no bound"),
    ("with exact numbers", "not equal with exact numbers for the float constants"),
)
"""The beginnings of reasons, and how the table says them."""


def table() -> str:
    """Returns the figures as a table."""
    figures = json.loads(FIGURES.read_text(encoding="utf-8"))
    rows = [
        _row(subject, figures[source]) for source, subject in SUBJECTS.items() if source in figures
    ]
    return (
        "| what | verdicts | accepted | not accepted, by reason | seconds of one core |\n"
        "| --- | --- | --- | --- | --- |\n" + "".join(rows)
    )


def _row(subject: str, entry: Mapping[str, Any]) -> str:
    counts: dict[str, int] = {}
    for reason, count in entry["reasons"].items():
        text = next(text for beginning, text in REASONS if reason.startswith(beginning))
        counts[text] = counts.get(text, 0) + count
    reasons = "; ".join(f"{text}: {count}" for text, count in counts.items()) or "none"
    share = 100 * entry["accepted"] // entry["verdicts"]
    return (
        f"| {subject} | {entry['verdicts']} | {entry['accepted']} ({share} %) | {reasons} | "
        f"{entry['processor seconds']} |\n"
    )


SECTION = GeneratedSection(
    DOCS / "verification.md",
    "<!-- figures: make rocq -->\n",
    "<!-- end of the figures of Rocq -->\n",
    table,
)


if __name__ == "__main__":
    SECTION.write()
