"""trl: the configs of its trainers: Python literals, YAML, and command lines of its scripts."""

from __future__ import annotations

from collections.abc import Mapping

from closedform.frameworks.transformers.arguments import Arguments, TrainerProgram, framework_of
from closedform.recipes import kit

RATES: Mapping[str, float] = {
    "AsyncGRPOConfig": 1e-6,
    "BCOConfig": 5e-7,
    "CPOConfig": 1e-6,
    "DPOConfig": 1e-6,
    "DistillationConfig": 1e-6,
    "GKDConfig": 1e-7,
    "GOLDConfig": 1e-7,
    "GRPOConfig": 1e-6,
    "IWOPDConfig": 1e-6,
    "KTOConfig": 1e-6,
    "NashMDConfig": 5e-7,
    "ORPOConfig": 1e-6,
    "OnlineDPOConfig": 5e-7,
    "PPOConfig": 3e-6,
    "PRMConfig": 1e-5,
    "RLOOConfig": 1e-6,
    "RewardConfig": 1e-4,
    "SFTConfig": 2e-5,
    "TPOConfig": 5e-7,
    "XPOConfig": 5e-7,
}
"""Class -> the default of its learning rate."""

_OWN = ("trl", "beta1", "beta2", "use_peft", "loss_type", "num_generations", "model_name_or_path")


def _rate(section: kit.RawSection, class_name: str) -> float | None:
    del section
    return RATES.get(class_name.removeprefix("RF"))


def _matches(section: kit.RawSection) -> bool:
    document = section.document
    if document.syntax is kit.Syntax.PYTHON:
        return section.path.rpartition(".")[2].removeprefix("RF") in RATES
    return document.syntax is kit.Syntax.ARGUMENTS and any(key in section for key in _OWN)


class _Arguments(Arguments, irrelevant="beta1 beta2"):
    learning_rate: kit.Rate | None = None


FRAMEWORK = framework_of(
    TrainerProgram("trl", _matches, _Arguments, _rate),
    "https://github.com/huggingface/trl",
    "f2cd57710ae3",
)
