"""OLMo-core: its scheduler classes."""

from __future__ import annotations

from closedform.frameworks.olmo_core.reader import READER
from closedform.frameworks.olmo_core.schedules import CLOCKS, DEFECTS, SCHEDULES
from closedform.frameworks.olmo_core.writer import WRITER
from closedform.recipes import kit

FRAMEWORK = kit.Framework(
    "olmo_core",
    SCHEDULES,
    versions=("fa6c5014c9f6",),
    repository="https://github.com/allenai/OLMo-core",
    upstream="src/olmo_core/optim/scheduler.py",
    clock=CLOCKS["steps"],
    defects=DEFECTS,
    reader=READER,
    writer=WRITER,
)
