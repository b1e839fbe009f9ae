"""A small picture of a schedule for notebooks."""

from __future__ import annotations

import base64
import html
import io
from typing import TYPE_CHECKING

from closedform.errors import ClosedFormError
from closedform.plotting.steps import even_steps, last_step

if TYPE_CHECKING:
    from closedform.language import Schedule

_POINTS = 400
_COLOR = "#3b82f6"
_QUIET = "#8a94a0"
"""Colors that are legible on white and on black."""


def picture(schedule: Schedule) -> str:
    """Returns an ``<img>`` element with the curve, which contains its SVG.

    It is empty for a schedule whose hyperparameters are open, or without matplotlib.
    """
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError:
        return ""
    if schedule.open:
        return ""
    steps = even_steps(last_step(schedule), _POINTS)
    try:
        values = schedule(steps)
    except ClosedFormError:  # no finite value at one of the steps
        return ""
    content = io.BytesIO()
    with rc_context({"svg.hashsalt": "closedform"}):
        figure = Figure(figsize=(4.0, 1.8), layout="constrained")
        axes = figure.add_subplot()
        axes.plot(steps, values, color=_COLOR)
        axes.tick_params(colors=_QUIET, labelsize=8)
        axes.yaxis.get_offset_text().set_color(_QUIET)
        for edge in axes.spines.values():
            edge.set_color(_QUIET)
        figure.savefig(content, format="svg", transparent=True, metadata={"Date": None})
    data = base64.b64encode(content.getvalue()).decode("ascii")
    return (
        f'<img alt="{html.escape(schedule.name)} by step" src="data:image/svg+xml;base64,{data}">'
    )
