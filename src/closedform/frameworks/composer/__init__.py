"""Composer: schedulers with time strings."""

from __future__ import annotations

from closedform.frameworks.composer.optimizers import OPTIMIZERS
from closedform.frameworks.composer.reader import READER, Arguments, class_rate
from closedform.frameworks.composer.schedules import CLASSES, CLOCK, DEFECTS, style
from closedform.frameworks.composer.writer import WRITER
from closedform.recipes import kit

ENTRIES = kit.section_entries(
    dict.fromkeys((*CLASSES, "list"), class_rate),
    {"": Arguments},
    lambda config: style(config.schedulers),
    DEFECTS,
)
"""The classes, which llm-foundry has as well."""

FRAMEWORK = kit.Framework(
    "composer",
    ENTRIES,
    OPTIMIZERS,
    versions=("6405188805a0", "8c8dd48f7216"),
    repository="https://github.com/mosaicml/composer",
    upstream="composer/optim/scheduler.py",
    clock=CLOCK,
    defects=DEFECTS,
    reader=READER,
    writer=WRITER,
)
