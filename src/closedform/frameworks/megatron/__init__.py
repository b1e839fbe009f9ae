"""Megatron-LM: its learning rate and weight decay schedules, which count samples."""

from __future__ import annotations

from closedform.frameworks.megatron.reader import READER
from closedform.frameworks.megatron.schedules import CLOCK, DEFECTS, SCHEDULES
from closedform.frameworks.megatron.writer import WRITER
from closedform.recipes import kit

FRAMEWORK = kit.Framework(
    "megatron",
    SCHEDULES,
    versions=("d98e8a64ddf3", "core_v0.19.0"),
    repository="https://github.com/NVIDIA/Megatron-LM",
    upstream="megatron/core/optimizer_param_scheduler.py, megatron/training/arguments.py",
    clock=CLOCK,
    defects=DEFECTS,
    reader=READER,
    writer=WRITER,
)
