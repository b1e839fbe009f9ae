"""The writer of transformers' TrainingArguments."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from closedform.recipes import kit

_SWITCHES = ("adam_mini", "apollo", "badam", "galore", "muon")
"""Optimizers that a flag of LLaMA-Factory or ms-swift chooses."""


def kinds(form: kit.WarmupDecayForm, warmup: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the schedulers of a curve, with their arguments."""
    ratio = form.low_ratio
    if form.has_plateau and form.curve in (
        kit.CurveName.LINEAR,
        kit.CurveName.COSINE,
        kit.CurveName.ROOT,
    ):
        yield (
            "warmup_stable_decay",
            {
                "num_decay_steps": kit.nearest_integer(form.end - form.begin),
                "num_stable_steps": kit.nearest_integer(form.begin) - warmup,
                "decay_type": "1-sqrt" if form.curve is kit.CurveName.ROOT else form.curve.value,
                "min_lr_ratio": ratio,
            },
        )
        return
    match form.curve:
        case kit.CurveName.CONSTANT:
            yield ("constant_with_warmup" if warmup else "constant"), {}
        case kit.CurveName.LINEAR if form.low == 0:
            yield "linear", {}
        case kit.CurveName.LINEAR | kit.CurveName.POWER:
            yield "polynomial", {"lr_end": kit.native(form.low), "power": kit.native(form.power)}
        case kit.CurveName.COSINE if form.cycles > 1 and form.low == 0:
            yield "cosine_with_restarts", {"num_cycles": form.cycles}
        case kit.CurveName.COSINE if form.low == 0:
            yield "cosine", {}
            length = form.end - form.begin
            if warmup < form.total and length > 0:
                # A cosine that does not end with the run, by its number of cycles.
                yield "cosine", {"num_cycles": kit.native((form.total - warmup) / (2 * length))}
        case kit.CurveName.COSINE:
            yield "cosine_with_min_lr", {"min_lr": kit.native(form.low)}
            yield "cosine_warmup_with_min_lr", {"min_lr": kit.native(form.low)}
        case kit.CurveName.INVERSE_ROOT:
            yield "inverse_sqrt", {"timescale": kit.nearest_integer(form.end)}


def _configs(form: kit.WarmupDecayForm, optimizer: kit.Optimizer) -> Iterator[kit.Config]:
    warmup = kit.nearest_integer(form.warmup())
    end = form.total
    if (
        form.curve in (kit.CurveName.LINEAR, kit.CurveName.COSINE, kit.CurveName.POWER)
        and form.cycles == 1
    ):
        end = kit.nearest_integer(form.end)
    fields: dict[str, Any] = {
        "optim": optimizer.argument("sgd" if optimizer.name == "sgd" else "adamw_torch"),
        "weight_decay": kit.native(optimizer.weight_decay or 0),
        "max_grad_norm": kit.native(optimizer.clipping or 0),
    }
    if optimizer.argument("") in _SWITCHES:
        fields = {**fields, "optim": "adamw_torch", f"use_{optimizer.argument('')}": True}
    for index, beta in enumerate(optimizer.values.get("betas", ()), 1):
        fields[f"adam_beta{index}"] = kit.native(beta)
    if "eps" in optimizer.values:
        fields["adam_epsilon"] = kit.native(optimizer.values["eps"])
    for name, arguments in kinds(form, warmup):
        config: dict[str, Any] = {
            "learning_rate": kit.native(form.peak),
            "max_steps": end,
            "warmup_steps": warmup,
            "lr_scheduler_type": name,
            **fields,
        }
        if arguments:
            config["lr_scheduler_kwargs"] = arguments
        if "num_cycles" in arguments:
            config["max_steps"] = form.total
        for key in ("aligner_lr", "vit_lr"):
            factors = [group.factor for group in optimizer.groups if group.name == key]
            if factors and factors[0] is not None:
                config[key] = kit.native(factors[0] * form.peak)
        yield config


WRITER = kit.Writer(".yaml", _configs, {}, ("adamw", "sgd"))
