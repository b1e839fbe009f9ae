"""The reader of LLaMA-Factory's configs."""

from __future__ import annotations

from closedform.recipes.document import Form
from closedform.recipes.section import Section
from closedform.recipes.transformers.arguments import Variant, reader_of

_OWN = ("stage", "finetuning_type", "cutoff_len", "template", "max_samples", "overwrite_cache")
_KNOWN = (
    "apollo_layerwise",
    "galore_layerwise",
    "loraplus_lr_embedding",
    "loraplus_lr_ratio",
    "pref_beta",
    "profiler_warmup_steps",
    "use_distributed_optimizer",
)
_SWITCHES = ("use_adam_mini", "use_apollo", "use_badam", "use_galore", "use_muon")


def _matches(section: Section) -> bool:
    # Flags of a command line such as --use_galore are those of ms-swift as well.
    is_file = section.document.form is not Form.ARGUMENTS
    return any(key in section for key in (*_OWN, *(_SWITCHES if is_file else ())))


READER = reader_of(Variant("llama-factory", _matches, known=_KNOWN, switches=_SWITCHES))
