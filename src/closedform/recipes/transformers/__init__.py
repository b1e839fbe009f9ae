"""transformers: the schedulers of the Trainer, from TrainingArguments."""

from __future__ import annotations

from closedform.recipes.framework import Framework
from closedform.recipes.transformers.arguments import Variant, is_plain, reader_of
from closedform.recipes.transformers.schedules import SCHEDULES
from closedform.recipes.transformers.writer import WRITER

FRAMEWORK = Framework(
    "transformers",
    SCHEDULES,
    {},
    versions=(
        "5.23.0",
        "4.57.1",
    ),
    reader=reader_of(Variant("transformers", is_plain), is_general=True),
    writer=WRITER,
)
