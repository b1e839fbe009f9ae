"""The writer of MaxText's YAML configs, whose phases are parts of the schedule, rounded down."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from closedform.recipes.forms import Config, Curve, Form, Optimizer, Writer, native, whole


def _part(length: int, total: int) -> float:
    """The simplest part of the run that is rounded down to a length."""
    for digits in range(1, 17):
        part = round(length / total, digits)
        if int(total * part) == length:
            return part
    return (length + 0.5) / total


def _configs(form: Form, made: Optimizer, facts: Mapping[str, Any]) -> Iterator[Config]:
    del facts
    if form.curve not in (Curve.COSINE, Curve.LINEAR, Curve.CONSTANT):
        return
    beta1, beta2 = made.betas() or [0.9, 0.95]
    shared: dict[str, Any] = {
        "opt_type": "sgd" if made.name == "sgd" else "adamw",
        "learning_rate": native(form.peak),
        "learning_rate_final_fraction": native(form.low / form.peak) if form.peak != 0 else 0.0,
        "steps": form.total,
        "adam_b1": beta1,
        "adam_b2": beta2,
        "adam_eps": native(made.values.get("eps", 1e-8)),
        "adam_weight_decay": native(made.weight_decay or 0),
        "gradient_clipping_threshold": native(made.clipping or 0),
    }
    masked = [pattern for one in made.groups if one.weight_decay == 0 for pattern in one.patterns]
    if masked:
        shared["adamw_mask"] = masked
    warmup = whole(form.warmup())
    # The last update of the decay has the final rate.
    total = form.total if form.curve is Curve.CONSTANT else whole(form.end) + 1
    if total < 1:
        return
    shared["learning_rate_schedule_steps"] = total
    shared["warmup_steps_fraction"] = _part(warmup, total)
    if form.curve is Curve.COSINE and not form.has_plateau:
        yield {**shared, "lr_schedule_type": "cosine"}
        return
    decay = 0 if form.curve is Curve.CONSTANT else total - whole(form.begin)
    style = "cosine" if form.curve is Curve.COSINE else "linear"
    part = {"wsd_decay_steps_fraction": _part(decay, total), "wsd_decay_style": style}
    yield {**shared, "lr_schedule_type": "wsd", **part}


WRITER = Writer(".yaml", _configs, {}, ("adamw", "sgd"))
