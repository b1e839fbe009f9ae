"""The writer of transformers' TrainingArguments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from closedform.recipes.forms import (
    Config,
    CurveName,
    Optimizer,
    WarmupDecayForm,
    Writer,
    native,
    whole,
)

_SWITCHES = ("adam_mini", "apollo", "badam", "galore", "muon")
"""Optimizers that a flag of LLaMA-Factory or ms-swift chooses."""


def kinds(form: WarmupDecayForm, warmup: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the schedulers of a curve, with their arguments."""
    ratio = native(form.low / form.peak) if form.peak != 0 else 0.0
    if form.has_plateau and form.curve in (CurveName.LINEAR, CurveName.COSINE, CurveName.ROOT):
        yield (
            "warmup_stable_decay",
            {
                "num_decay_steps": whole(form.end - form.begin),
                "num_stable_steps": whole(form.begin) - warmup,
                "decay_type": "1-sqrt" if form.curve is CurveName.ROOT else form.curve.value,
                "min_lr_ratio": ratio,
            },
        )
        return
    match form.curve:
        case CurveName.CONSTANT:
            yield ("constant_with_warmup" if warmup else "constant"), {}
        case CurveName.LINEAR if form.low == 0:
            yield "linear", {}
        case CurveName.LINEAR | CurveName.POWER:
            yield "polynomial", {"lr_end": native(form.low), "power": native(form.power)}
        case CurveName.COSINE if form.cycles > 1 and form.low == 0:
            yield "cosine_with_restarts", {"num_cycles": form.cycles}
        case CurveName.COSINE if form.low == 0:
            yield "cosine", {}
            length = form.end - form.begin
            if warmup < form.total and length > 0:
                # A cosine that does not end with the run, by its number of cycles.
                yield "cosine", {"num_cycles": native((form.total - warmup) / (2 * length))}
        case CurveName.COSINE:
            yield "cosine_with_min_lr", {"min_lr": native(form.low)}
            yield "cosine_warmup_with_min_lr", {"min_lr": native(form.low)}
        case CurveName.INVERSE_ROOT:
            yield "inverse_sqrt", {"timescale": whole(form.end)}


def _configs(
    form: WarmupDecayForm, optimizer: Optimizer, facts: Mapping[str, Any]
) -> Iterator[Config]:
    del facts
    warmup = whole(form.warmup()) if form.rise is not None else 0
    end = form.total
    if form.curve in (CurveName.LINEAR, CurveName.COSINE, CurveName.POWER) and form.cycles == 1:
        end = whole(form.end)
    fields: dict[str, Any] = {
        "optim": optimizer.argument("sgd" if optimizer.name == "sgd" else "adamw_torch"),
        "weight_decay": native(optimizer.weight_decay or 0),
        "max_grad_norm": native(optimizer.clipping or 0),
    }
    if optimizer.argument("") in _SWITCHES:
        fields = {**fields, "optim": "adamw_torch", f"use_{optimizer.argument('')}": True}
    for index, beta in enumerate(optimizer.values.get("betas", ()), 1):
        fields[f"adam_beta{index}"] = native(beta)
    if "eps" in optimizer.values:
        fields["adam_epsilon"] = native(optimizer.values["eps"])
    for name, arguments in kinds(form, warmup):
        config: dict[str, Any] = {
            "learning_rate": native(form.peak),
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
                config[key] = native(factors[0] * form.peak)
        yield config


WRITER = Writer(".yaml", _configs, {}, ("adamw", "sgd"))
