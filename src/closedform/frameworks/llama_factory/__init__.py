"""LLaMA-Factory: TrainingArguments with finetuning arguments."""

from __future__ import annotations

from closedform.frameworks.transformers.arguments import TrainerProgram, framework_of, keys_with
from closedform.recipes import kit

_OWN = ("stage", "finetuning_type", "cutoff_len", "template", "max_samples", "overwrite_cache")
_FURTHER = (
    "apollo_layerwise",
    "galore_layerwise",
    "loraplus_lr_embedding",
    "loraplus_lr_ratio",
    "pref_beta",
    "profiler_warmup_steps",
    "use_distributed_optimizer",
)
_SWITCHES = ("use_adam_mini", "use_apollo", "use_badam", "use_galore", "use_muon")


def _matches(section: kit.RawSection) -> bool:
    # ms-swift has the same switches, such as --use_galore, but reads command lines.
    is_file = section.document.syntax is not kit.Syntax.ARGUMENTS
    return any(key in section for key in (*_OWN, *(_SWITCHES if is_file else ())))


_KEYS = keys_with(
    **dict.fromkeys(_FURTHER, kit.irrelevant()), **dict.fromkeys(_SWITCHES, kit.flag(False))
)
FRAMEWORK = framework_of(
    TrainerProgram("llama-factory", _matches, _KEYS, switches=_SWITCHES),
    "https://github.com/hiyouga/LLaMA-Factory",
    "ff6d4d12eeb0",
)
