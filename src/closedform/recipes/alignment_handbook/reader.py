"""The reader of alignment-handbook's recipes: YAML with TrainingArguments and data mixtures."""

from __future__ import annotations

from closedform.recipes.section import Section
from closedform.recipes.transformers.arguments import Variant, reader_of

_OWN = ("dataset_mixer", "dataset_mixture", "preprocessing_num_workers", "chat_template")


def _matches(section: Section) -> bool:
    return any(key in section for key in _OWN)


def _no_default(section: Section, class_name: str) -> None:
    """The default depends on the script: SFT, DPO or ORPO."""
    del section, class_name


READER = reader_of(Variant("alignment-handbook", _matches, rate=_no_default))
