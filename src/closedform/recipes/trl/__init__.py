"""trl: the configs of its trainers, which extend TrainingArguments."""

from __future__ import annotations

from closedform.recipes.framework import Framework
from closedform.recipes.transformers import FRAMEWORK as TRANSFORMERS
from closedform.recipes.transformers.writer import WRITER
from closedform.recipes.trl.reader import READER

FRAMEWORK = Framework("trl", {}, {}, versions=TRANSFORMERS.versions, reader=READER, writer=WRITER)
