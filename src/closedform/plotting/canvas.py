"""Figures of matplotlib: made without a display, and written atomically."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import TYPE_CHECKING

from closedform.errors import ExportError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FORMATS = (".pdf", ".png", ".svg")


def check_format(path: str | os.PathLike[str]) -> None:
    """Raises ExportError if a path does not end like a file of a plot."""
    if Path(path).suffix.lower() not in _FORMATS:
        raise ExportError(
            f"the suffix of a plot must be {', '.join(_FORMATS)}, got "
            f"{Path(path).suffix or 'no suffix'!r}",
            where=str(path),
        )


def new_figure(*, drawn_to_file: bool, height: float = 4.0) -> Figure:
    """Returns an empty figure; one that is not drawn to a file belongs to pyplot.

    Raises:
        ExportError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ExportError(
            "matplotlib is not installed",
            hint="pip install 'closedform[plot]', or plot in the terminal: closedform plot NAME",
        ) from error
    size = {"figsize": (8.0, height), "layout": "constrained"}
    if not drawn_to_file:
        from matplotlib import pyplot

        return pyplot.figure(**size)  # type: ignore[arg-type]
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure = Figure(**size)  # type: ignore[arg-type]
    FigureCanvasAgg(figure)
    return figure


def write_figure(figure: Figure, path: Path) -> None:
    """Writes the figure atomically."""
    import matplotlib

    from closedform.files import write_file

    kind = path.suffix.lower().lstrip(".")
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind, {})
    content = io.BytesIO()
    # A fixed salt and no date, for reproducible bytes.
    with matplotlib.rc_context({"svg.hashsalt": "closedform"}):
        figure.savefig(content, format=kind, dpi=144, metadata=metadata)
    write_file(path, content.getvalue(), "the plot")
