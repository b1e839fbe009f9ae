"""transformers: the schedulers of the Trainer, from TrainingArguments."""

from __future__ import annotations

from closedform.frameworks.transformers.arguments import (
    UPSTREAM,
    VERSIONS,
    Arguments,
    TrainerProgram,
    is_plain,
    reader_of,
)
from closedform.frameworks.transformers.schedules import CLOCK, DEFECTS, SCHEDULES
from closedform.frameworks.transformers.writer import WRITER
from closedform.recipes import kit

FRAMEWORK = kit.Framework(
    "transformers",
    SCHEDULES,
    versions=VERSIONS,
    repository="https://github.com/huggingface/transformers",
    upstream=UPSTREAM,
    clock=CLOCK,
    defects=DEFECTS,
    reader=reader_of(TrainerProgram("transformers", is_plain, Arguments), is_general=True),
    writer=WRITER,
)
