"""fairseq: its learning rate schedulers."""

from __future__ import annotations

from closedform.frameworks.fairseq.reader import READER
from closedform.frameworks.fairseq.schedules import CLOCK, DEFECTS, SCHEDULES
from closedform.frameworks.fairseq.writer import WRITER
from closedform.recipes import kit

FRAMEWORK = kit.Framework(
    "fairseq",
    SCHEDULES,
    versions=("3d262bb25690",),
    repository="https://github.com/facebookresearch/fairseq",
    tier=kit.Tier.FROZEN,
    upstream="fairseq/optim/lr_scheduler",
    clock=CLOCK,
    defects=DEFECTS,
    reader=READER,
    writer=WRITER,
)
