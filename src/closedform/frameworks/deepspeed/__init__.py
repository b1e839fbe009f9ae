"""DeepSpeed: the sections ``optimizer`` and ``scheduler`` of its JSON config."""

from __future__ import annotations

from closedform.frameworks.deepspeed.reader import READER
from closedform.frameworks.deepspeed.schedules import (
    CLOCK,
    DEFECTS,
    PARAMETERS,
    VERSIONS,
    Optimizer,
    Scheduler,
    schedule,
)
from closedform.frameworks.deepspeed.writer import WRITER
from closedform.recipes import kit

_LAYOUT: dict[str, type[kit.Section]] = {"optimizer": Optimizer, "scheduler": Scheduler}
FRAMEWORK = kit.Framework(
    "deepspeed",
    {
        **kit.section_entries(
            dict.fromkeys(PARAMETERS, schedule),
            _LAYOUT,
            style=lambda optimizer, scheduler: str(scheduler.type),
            defects=DEFECTS,
        ),
        **kit.section_entries({"WarmupLR-groups": schedule}, _LAYOUT, defects=DEFECTS),
    },
    versions=VERSIONS,
    repository="https://github.com/deepspeedai/DeepSpeed",
    upstream="deepspeed/runtime/lr_schedules.py",
    clock=CLOCK,
    defects=DEFECTS,
    reader=READER,
    writer=WRITER,
)
