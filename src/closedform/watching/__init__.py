"""A run or its log beside the recipe: the first value that departs, and its likely cause."""

from closedform.watching.causes import Cause, Kind, Numbers
from closedform.watching.logs import LogReport, watch_log
from closedform.watching.watch import Departure, Watch

__all__ = ["Cause", "Departure", "Kind", "LogReport", "Numbers", "Watch", "watch_log"]
