"""LLaMA-Factory: TrainingArguments with finetuning arguments."""

from __future__ import annotations

from closedform.recipes.framework import Framework
from closedform.recipes.llama_factory.reader import READER
from closedform.recipes.transformers import FRAMEWORK as TRANSFORMERS
from closedform.recipes.transformers.writer import WRITER

FRAMEWORK = Framework(
    "llama-factory", {}, {}, versions=TRANSFORMERS.versions, reader=READER, writer=WRITER
)
