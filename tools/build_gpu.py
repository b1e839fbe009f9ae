"""Writes the tables of docs/cuda_graphs.md: optimizer steps on a CUDA GPU, next to torch.

`make gpu` measures and runs it. The figures are in tools/results/gpu.json: a row with the figure
1.28 and the bar 1.15 becomes "| … compile / torch, fused | 1.28 | ≤ 1.15 | **missed** | … |".
"""

from __future__ import annotations

import json
from typing import Any

from benchmarks.__main__ import table
from benchmarks._side_by_side import Row
from tools.sections import DOCS, RESULTS_FOLDER, GeneratedSection

RESULTS = RESULTS_FOLDER / "gpu.json"


def tables() -> str:
    """Returns the stored rows, a table for each section."""
    results: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8"))
    return "\n".join(_section(name, results[name]) for name in results)


def _section(name: str, section: dict[str, Any]) -> str:
    rows = table([Row(**row) for row in section["rows"]])
    error = f"\nNot complete: {section['error']}.\n" if section["error"] else ""
    return f"### {name.capitalize()}\n\n{section['machine']}\n{error}\n{rows}\n"


SECTION = GeneratedSection(
    DOCS / "cuda_graphs.md", "<!-- figures: make gpu -->\n", "<!-- end of the figures -->\n", tables
)


if __name__ == "__main__":
    SECTION.write()
