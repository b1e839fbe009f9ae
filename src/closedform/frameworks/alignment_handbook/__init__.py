"""alignment-handbook: recipes for the trainers of trl, with TrainingArguments and data mixtures."""

from __future__ import annotations

from closedform.frameworks.transformers.arguments import TrainerProgram, framework_of, keys_with
from closedform.recipes import kit

_OWN = ("dataset_mixer", "dataset_mixture", "preprocessing_num_workers", "chat_template")


def _matches(section: kit.RawSection) -> bool:
    return any(key in section for key in _OWN)


# The default of the rate depends on the script: SFT, DPO or ORPO.
_KEYS = keys_with(learning_rate=kit.number(None))
FRAMEWORK = framework_of(
    TrainerProgram("alignment-handbook", _matches, _KEYS),
    "https://github.com/huggingface/alignment-handbook",
    "925acdfe4b2b",
)
