"""Logs of training runs: the rates that a run has printed or written, by update."""

from closedform.recipes.logs.columns import KEYS
from closedform.recipes.logs.formats import FORMATS, LOG_SUFFIXES, is_log
from closedform.recipes.logs.log import OFFSETS, Log, read_log
from closedform.recipes.logs.patterns import PRESETS
from closedform.recipes.logs.printed import TOLERANCE, Series, logged_values

__all__ = [
    "FORMATS",
    "KEYS",
    "LOG_SUFFIXES",
    "OFFSETS",
    "PRESETS",
    "TOLERANCE",
    "Log",
    "Series",
    "is_log",
    "logged_values",
    "read_log",
]
