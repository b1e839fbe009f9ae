"""alignment-handbook: recipes for the trainers of trl, with TrainingArguments and data mixtures."""

from __future__ import annotations

from closedform.frameworks.transformers.arguments import Arguments, TrainerProgram, framework_of
from closedform.recipes import kit

_OWN = ("dataset_mixer", "dataset_mixture", "preprocessing_num_workers", "chat_template")


def _matches(section: kit.RawSection) -> bool:
    return any(key in section for key in _OWN)


class _Arguments(Arguments):
    # The default of the rate depends on the script: SFT, DPO or ORPO.
    learning_rate: kit.Rate | None = None


FRAMEWORK = framework_of(
    TrainerProgram("alignment-handbook", _matches, _Arguments),
    "https://github.com/huggingface/alignment-handbook",
    "925acdfe4b2b",
)
