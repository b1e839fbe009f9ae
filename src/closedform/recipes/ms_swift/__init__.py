"""ms-swift: TrainingArguments with other defaults, and Megatron's arguments with underscores."""

from __future__ import annotations

from closedform.recipes.framework import Framework
from closedform.recipes.ms_swift.reader import READER
from closedform.recipes.ms_swift.writer import WRITER
from closedform.recipes.transformers import FRAMEWORK as TRANSFORMERS

FRAMEWORK = Framework(
    "ms-swift",
    {},
    versions=TRANSFORMERS.versions,
    upstream=TRANSFORMERS.upstream,
    clock=TRANSFORMERS.clock,
    defects=TRANSFORMERS.defects,
    reader=READER,
    writer=WRITER,
)
