"""The writer of DeepSpeed's JSON, whose schedulers are one update late."""

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


def _configs(form: WarmupDecayForm, made: Optimizer, facts: Mapping[str, Any]) -> Iterator[Config]:
    del facts
    params = {**made.keywords(form.peak), **made.arguments("lr", "weight_decay")}
    shared: dict[str, Any] = {
        "optimizer": {"type": made.argument(made.class_name), "params": params},
        "train_micro_batch_size_per_gpu": 1,
    }
    if made.clipping is not None:
        shared["gradient_clipping"] = native(made.clipping)
    if form.curve is CurveName.CONSTANT and form.rise is None:
        yield shared
        return
    if form.rise is not None and form.rise.curve is CurveName.LOGARITHM:
        yield from _logarithmic(form, shared)
        return
    warmup = max(0, whole(form.warmup(-1)) if form.rise is not None else 0)
    rates = {
        "warmup_min_lr": native(form.at(-1)),
        "warmup_max_lr": native(form.peak),
        "warmup_num_steps": warmup,
        "warmup_type": "linear",
    }
    cosine = {
        "warmup_min_ratio": native(form.at(-1) / form.peak) if form.peak != 0 else 0.0,
        "cos_min_ratio": native(form.low / form.peak) if form.peak != 0 else 0.0,
        "warmup_type": "linear",
    }
    match form.curve:
        case CurveName.CONSTANT:
            found = [("WarmupLR", rates)]
        case CurveName.LINEAR:
            found = [("WarmupDecayLR", {**rates, "total_num_steps": whole(form.end) - 1})]
        case CurveName.COSINE:
            found = [
                (
                    "WarmupCosineLR",
                    {
                        **cosine,
                        "warmup_num_steps": length,
                        "total_num_steps": whole(form.end) - shift,
                    },
                )
                for length in (warmup, warmup + 1)
                for shift in (0, 1)
            ]
        case _:
            found = []
    for name, arguments in found:
        yield {**shared, "scheduler": {"type": name, "params": arguments}}


def _logarithmic(form: WarmupDecayForm, shared: Mapping[str, Any]) -> Iterator[Config]:
    """The warmup of DeepSpeed's default type: log(t) / log(length), one update late."""
    if form.rise is None or form.curve not in (CurveName.CONSTANT, CurveName.LINEAR):
        return
    for length in (form.rise.end - 1, form.rise.end, form.rise.end + 1):
        rates: dict[str, Any] = {
            "warmup_min_lr": native(form.rise.start),
            "warmup_max_lr": native(form.peak),
            "warmup_num_steps": length,
            "warmup_type": "log",
        }
        name = "WarmupLR"
        if form.curve is CurveName.LINEAR:
            name = "WarmupDecayLR"
            rates["total_num_steps"] = whole(form.end) - 1
        yield {**shared, "scheduler": {"type": name, "params": rates}}


WRITER = Writer(".json", _configs, {}, ("adamw", "lion", "sgd"))
