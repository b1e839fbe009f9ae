"""LLaMA-Factory: TrainingArguments with finetuning arguments."""

from __future__ import annotations

from closedform.frameworks.transformers.arguments import Arguments, TrainerProgram, framework_of
from closedform.recipes import kit

_OWN = ("stage", "finetuning_type", "cutoff_len", "template", "max_samples", "overwrite_cache")

_SWITCHES = ("use_adam_mini", "use_apollo", "use_badam", "use_galore", "use_muon")


def _matches(section: kit.RawSection) -> bool:
    # ms-swift has the same switches, such as --use_galore, but reads command lines.
    is_file = section.document.syntax is not kit.Syntax.ARGUMENTS
    return any(key in section for key in (*_OWN, *(_SWITCHES if is_file else ())))


class _Arguments(
    Arguments,
    irrelevant="apollo_layerwise galore_layerwise loraplus_lr_embedding loraplus_lr_ratio "
    "pref_beta profiler_warmup_steps use_distributed_optimizer",
):
    use_adam_mini: bool = False
    use_apollo: bool = False
    use_badam: bool = False
    use_galore: bool = False
    use_muon: bool = False


FRAMEWORK = framework_of(
    TrainerProgram("llama-factory", _matches, _Arguments, switches=_SWITCHES),
    "https://github.com/hiyouga/LLaMA-Factory",
    "ff6d4d12eeb0",
)
