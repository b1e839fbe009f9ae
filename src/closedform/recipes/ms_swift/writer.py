"""The writer of ms-swift's command lines: ``swift sft``, or ``megatron sft`` with its flags."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from closedform.recipes import megatron, transformers
from closedform.recipes.forms import Config, Form, Optimizer, Writer, native


def _configs(form: Form, made: Optimizer, facts: Mapping[str, Any]) -> Iterator[Config]:
    if transformers.FRAMEWORK.writer is None or megatron.FRAMEWORK.writer is None:
        return
    yield from transformers.FRAMEWORK.writer.configs(form, made, facts)
    rates = {
        one.name: native(peak)
        for one in made.groups
        if one.name in ("vit_lr", "aligner_lr") and (peak := one.peak(form.peak)) is not None
    }
    for config in megatron.FRAMEWORK.writer.configs(form, made, facts):
        flags = {key.replace("-", "_"): value for key, value in config.items()}
        if "train_iters" in flags:
            yield {**flags, **rates}


WRITER = Writer(".args", _configs, {"global_batch_size": 1}, ("adamw", "sgd"))
