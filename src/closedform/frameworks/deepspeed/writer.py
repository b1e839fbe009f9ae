"""The writer of DeepSpeed's JSON, whose schedulers are one update late."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from closedform.recipes import kit


def _configs(form: kit.WarmupDecayForm, made: kit.Optimizer) -> Iterator[kit.Config]:
    params = {**made.keywords(form.peak), **made.arguments("lr", "weight_decay")}
    shared: dict[str, Any] = {
        "optimizer": {"type": made.argument(made.class_name), "params": params},
        "train_micro_batch_size_per_gpu": 1,
    }
    shared |= made.clip("gradient_clipping")
    if form.curve is kit.CurveName.CONSTANT and form.rise is None:
        yield shared
        return
    if form.rise is not None and form.rise.curve is kit.CurveName.LOGARITHM:
        yield from _logarithmic(form, shared)
        return
    warmup = max(0, kit.nearest_integer(form.warmup(-1)))
    rates = {
        "warmup_min_lr": kit.native(form.at(-1)),
        "warmup_max_lr": kit.native(form.peak),
        "warmup_num_steps": warmup,
        "warmup_type": "linear",
    }
    cosine = {
        "warmup_min_ratio": kit.native(form.at(-1) / form.peak) if form.peak != 0 else 0.0,
        "cos_min_ratio": form.low_ratio,
        "warmup_type": "linear",
    }
    match form.curve:
        case kit.CurveName.CONSTANT:
            found = [("WarmupLR", rates)]
        case kit.CurveName.LINEAR:
            found = [
                ("WarmupDecayLR", {**rates, "total_num_steps": kit.nearest_integer(form.end) - 1})
            ]
        case kit.CurveName.COSINE:
            found = [
                (
                    "WarmupCosineLR",
                    {
                        **cosine,
                        "warmup_num_steps": length,
                        "total_num_steps": kit.nearest_integer(form.end) - shift,
                    },
                )
                for length in (warmup, warmup + 1)
                for shift in (0, 1)
            ]
        case _:
            found = []
    for name, arguments in found:
        yield {**shared, "scheduler": {"type": name, "params": arguments}}


def _logarithmic(form: kit.WarmupDecayForm, shared: Mapping[str, Any]) -> Iterator[kit.Config]:
    """The warmup of DeepSpeed's default type: log(t) / log(length), one update late."""
    if form.rise is None or form.curve not in (kit.CurveName.CONSTANT, kit.CurveName.LINEAR):
        return
    for length in (form.rise.end - 1, form.rise.end, form.rise.end + 1):
        rates: dict[str, Any] = {
            "warmup_min_lr": kit.native(form.rise.start),
            "warmup_max_lr": kit.native(form.peak),
            "warmup_num_steps": length,
            "warmup_type": "log",
        }
        name = "WarmupLR"
        if form.curve is kit.CurveName.LINEAR:
            name = "WarmupDecayLR"
            rates["total_num_steps"] = kit.nearest_integer(form.end) - 1
        yield {**shared, "scheduler": {"type": name, "params": rates}}


WRITER = kit.Writer(".json", _configs, {}, ("adamw", "lion", "sgd"))
