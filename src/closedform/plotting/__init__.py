"""Plots of schedules and logs: figures of matplotlib, or characters for a terminal.

The names are imported when they are used: the steps of a table need neither NumPy nor matplotlib.

Example:
    >>> from closedform.plotting import last_step
    >>> from closedform.schedules import linear
    >>> last_step(linear(0, 1, 4))
    4
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from closedform.language.boundaries import boundaries
    from closedform.plotting.figure import plot, plot_difference, plot_schedule
    from closedform.plotting.steps import even_steps, last_step
    from closedform.plotting.terminal import overlay, terminal_plot
    from closedform.plotting.vector import picture

__all__ = [
    "boundaries",
    "even_steps",
    "last_step",
    "overlay",
    "picture",
    "plot",
    "plot_difference",
    "plot_schedule",
    "terminal_plot",
]

_MODULES = {
    "picture": "vector",
    "overlay": "terminal",
    "terminal_plot": "terminal",
} | dict.fromkeys(("boundaries", "even_steps", "last_step"), "steps")


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"closedform.plotting.{_MODULES.get(name, 'figure')}")
    return getattr(module, name)


def __dir__() -> list[str]:
    return sorted(__all__)
