"""OLMo-core: its scheduler classes."""

from __future__ import annotations

from closedform.recipes.clock import Clock, Unit
from closedform.recipes.framework import Framework
from closedform.recipes.olmo_core.reader import READER
from closedform.recipes.olmo_core.schedules import SCHEDULES
from closedform.recipes.olmo_core.writer import WRITER

FRAMEWORK = Framework(
    "olmo_core",
    SCHEDULES,
    versions=("fa6c5014c9f6",),
    upstream="src/olmo_core/optim/scheduler.py",
    clock=Clock(Unit.UPDATE, offset=1),
    defects={},
    reader=READER,
    writer=WRITER,
)
