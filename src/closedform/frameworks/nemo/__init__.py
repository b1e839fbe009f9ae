"""NeMo: the learning rate policies of its ``sched`` section."""

from __future__ import annotations

from typing import Any

from closedform.frameworks.nemo.reader import READER
from closedform.frameworks.nemo.schedules import CLOCK, DEFECTS, POLICIES, rate
from closedform.frameworks.nemo.writer import WRITER
from closedform.recipes import kit

_KINDS = {name: keys for name, (_, keys) in POLICIES.items()}


class _Arguments(kit.Section):
    lr: kit.Rate
    sched: Any = kit.variants(_KINDS, "WarmupPolicy", by="name")


FRAMEWORK = kit.Framework(
    "nemo",
    kit.section_entries(
        dict.fromkeys(POLICIES, lambda context, config: rate(context, config.sched, config.lr)),
        {"": _Arguments},
        style=lambda config: str(config.sched.name),
    ),
    versions=("8cfedd720346",),
    repository="https://github.com/NVIDIA/NeMo",
    upstream="nemo/core/optim/lr_scheduler.py",
    clock=CLOCK,
    defects=DEFECTS,
    reader=READER,
    writer=WRITER,
)
