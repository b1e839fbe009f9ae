"""detectron2 with fvcore: the schedulers of its SOLVER section, and its LazyConfigs."""

from __future__ import annotations

from closedform.frameworks.detectron2.reader import matches, read
from closedform.frameworks.detectron2.schedules import CLOCK, DEFECTS, SCHEDULES
from closedform.frameworks.detectron2.writer import WRITER
from closedform.recipes import kit

FRAMEWORK = kit.Framework(
    "detectron2",
    SCHEDULES,
    versions=("02b5c4e295e9",),
    repository="https://github.com/facebookresearch/detectron2",
    upstream="detectron2/solver/build.py, detectron2/solver/lr_scheduler.py",
    clock=CLOCK,
    defects=DEFECTS,
    reader=kit.Reader(read, matches),
    writer=WRITER,
)
