"""The contract of docs/determinism.md: which runs have the same bits."""

from collections.abc import Iterator, Mapping
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "determinism.md"

MEANINGS: Mapping[str, frozenset[str]] = {
    "equal": frozenset({"elementwise", "sums", "random"}),
    "equal (float32 and float64)": frozenset({"elementwise", "sums"}),
    "equal, without sums": frozenset({"elementwise", "random"}),
    "equal, elementwise": frozenset({"elementwise"}),
    "not measured": frozenset(),
}
"""The rules of ``tests.determinism.runs`` for which a cell of the table promises equal bits."""


def cells(text: str) -> Iterator[tuple[str, str, str]]:
    """Yields the engine, the column and the text of each cell of the table."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    for engine, *entries in rows:
        for column, entry in zip(head[1:], entries, strict=True):
            yield engine, column, entry


def promises(text: str) -> Iterator[tuple[str, str, str]]:
    """Yields the engine, the column and the rule of each promise."""
    for engine, column, entry in cells(text):
        for kind in sorted(MEANINGS[entry]):
            yield engine, column, kind
