"""The writer of torchtitan's TOML configs, whose warmup rises from one part of its length."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from closedform.recipes.forms import Config, Curve, Form, Optimizer, Writer, native, whole

_TYPES = {Curve.LINEAR: "linear", Curve.COSINE: "cosine", Curve.CONSTANT: "linear"}


def _configs(form: Form, made: Optimizer, facts: Mapping[str, Any]) -> Iterator[Config]:
    del facts
    if form.curve not in _TYPES:
        return
    # The rise counts t + 1: its value is 0 one update before the first.
    warmup = whole(form.warmup(1)) if form.rise is not None else 0
    section: dict[str, Any] = {
        "warmup_steps": warmup,
        "decay_type": _TYPES[form.curve],
        "min_lr_factor": native(form.low / form.peak) if form.peak != 0 else 0.0,
    }
    end = form.total
    if form.curve is Curve.CONSTANT:
        section["decay_ratio"] = 0.0
    else:
        end = whole(form.end)
        decay = whole(form.end - form.begin)
        if decay != end - warmup:
            section["decay_ratio"] = decay / end
    if end != form.total:
        section["total_steps"] = end
    optimizer: dict[str, Any] = {
        "name": "Adam" if made.name == "adam" else "AdamW",
        "lr": native(form.peak),
        "weight_decay": native(made.weight_decay or 0),
        "eps": native(made.values.get("eps", 1e-8)),
    }
    for index, beta in enumerate(made.values.get("betas", ()), 1):
        optimizer[f"beta{index}"] = native(beta)
    training: dict[str, Any] = {"steps": form.total}
    if made.clipping is not None:
        training["max_norm"] = native(made.clipping)
    yield {"optimizer": optimizer, "lr_scheduler": section, "training": training}


WRITER = Writer(".toml", _configs, {}, ("adam", "adamw"))
