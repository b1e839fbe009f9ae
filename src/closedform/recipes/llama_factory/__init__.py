"""LLaMA-Factory: TrainingArguments with finetuning arguments."""

from __future__ import annotations

from closedform.recipes.entries import Framework
from closedform.recipes.llama_factory.reader import READER
from closedform.recipes.transformers import FRAMEWORK as TRANSFORMERS

FRAMEWORK = Framework("llama-factory", {}, {}, versions=TRANSFORMERS.versions, reader=READER)
