"""Tables as lines of text, whose columns are aligned by spaces."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def align_columns(rows: Iterable[Sequence[str]], *, numbers: bool = False) -> list[str]:
    """Returns the rows of a table as lines of text.

    Args:
        rows: The rows, the titles first, each with one cell per column.
        numbers: Whether to right-align all columns but the last.

    Example:
        >>> align_columns([("step", "value"), ("0", "1.0"), ("10", "0.5")], numbers=True)
        ['step  value', '   0  1.0', '  10  0.5']
    """
    cells = [[cell.replace("\n", "; ") for cell in row] for row in rows]
    widths = [max(len(cell) for cell in column) for column in zip(*cells, strict=True)]
    last = len(widths) - 1
    return [
        "  ".join(
            f"{cell:>{width}}" if numbers and index < last else f"{cell:<{width}}"
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]
