"""The writer of torchtitan's TOML configs, whose warmup rises from one part of its length."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from closedform.recipes.forms import Config, Curve, Form, Optimizer, Writer, native, whole
from closedform.recipes.torchtitan.schedules import VERSIONS

_MINIMUM = dict.fromkeys(VERSIONS[1:4], "lr_min")
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
    shared = {"optimizer": optimizer, "training": training}
    if made.version in VERSIONS[1:]:
        yield from _formerly(form, shared, section, made.version)
    else:
        yield {**shared, "lr_scheduler": section}


def _formerly(
    form: Form, shared: Mapping[str, Any], section: Mapping[str, Any], version: str
) -> Iterator[Config]:
    """The configs of a version before June 2025, whose divisors differ by one update."""
    low = section["min_lr_factor"]
    optimizer = dict(shared["optimizer"])
    if form.rise is not None and not form.has_plateau and form.rise.start > 0:
        # The peak is not reached.
        optimizer["lr"] = native(form.rise.start * (form.rise.end + 1))
    for warmup, shift in itertools.product((0, 1), (0, -1, 1)):
        length = form.rise.end - warmup if form.rise is not None else 0
        end = form.total if form.curve is Curve.CONSTANT else whole(form.end) + shift
        if end < 1:
            continue
        training = {**shared["training"], "steps": end}
        scheduler = {"decay_type": section["decay_type"]}
        if version in VERSIONS[4:]:
            training["warmup_steps"] = length
        else:
            scheduler |= {"warmup_steps": length, _MINIMUM[version]: low}
            if form.has_plateau:
                scheduler["decay_ratio"] = whole(form.end - form.begin + shift) / end
        made = {"optimizer": optimizer, "training": training}
        yield {**made, "lr_scheduler": scheduler}


WRITER = Writer(".toml", _configs, {}, ("adam", "adamw"))
