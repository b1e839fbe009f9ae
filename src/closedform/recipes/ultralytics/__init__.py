"""Ultralytics: rate, momentum, weight decay and accumulation of its trainer."""

from __future__ import annotations

from closedform.recipes.framework import Framework
from closedform.recipes.ultralytics.reader import READER
from closedform.recipes.ultralytics.schedules import SCHEDULES

FRAMEWORK = Framework("ultralytics", SCHEDULES, {}, versions=("8.4.190",), reader=READER)
