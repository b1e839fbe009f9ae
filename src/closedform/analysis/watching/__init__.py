"""Compares a run or its log with the recipe: the first value that departs, and its likely cause."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from closedform.analysis.watching.causes import Cause, CauseKind, RunNumbers
from closedform.analysis.watching.watch import Departure, Watch

if TYPE_CHECKING:
    from closedform.analysis.watching.logs import LogReport, watch_log

__all__ = ["Cause", "CauseKind", "Departure", "LogReport", "RunNumbers", "Watch", "watch_log"]

_OF_LOGS = ("LogReport", "watch_log")
"""Names whose module imports the prover's, which a run that is watched does not need."""


def __getattr__(name: str) -> Any:
    if name not in _OF_LOGS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from closedform.analysis.watching import logs

    return getattr(logs, name)
