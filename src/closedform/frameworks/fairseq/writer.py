"""The writer of fairseq's YAML configs."""

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
    optimizer: dict[str, Any] = {
        "_name": "nag" if made.name == "nag" else "sgd" if made.name == "sgd" else "adam",
        "weight_decay": native(made.weight_decay or 0),
    }
    if made.betas():
        optimizer["adam_betas"] = f"({made.betas()[0]}, {made.betas()[1]})"
        optimizer["adam_eps"] = native(made.values.get("eps", 1e-8))
    elif "momentum" in made.values:
        optimizer["momentum"] = native(made.values["momentum"])
    for scheduler in _schedulers(form):
        yield {
            "optimization": {
                "lr": [native(form.peak)],
                "max_update": form.total,
                "clip_norm": native(made.clipping or 0),
            },
            "optimizer": optimizer,
            "lr_scheduler": scheduler,
        }


def _schedulers(form: WarmupDecayForm) -> Iterator[dict[str, Any]]:
    warmup = whole(form.warmup()) if form.rise is not None else 0
    first = native(form.rise.start) if form.rise is not None else native(form.peak)
    match form.curve:
        case CurveName.CONSTANT:
            yield {"_name": "fixed", "warmup_updates": whole(form.warmup(1)) if warmup else 0}
            # A minimum that is the peak.
            yield {
                "_name": "cosine",
                "warmup_updates": warmup,
                "warmup_init_lr": first,
                "min_lr": native(form.peak),
                "lr_period_updates": form.total,
                "lr_shrink": 1.0,
            }
        case CurveName.LINEAR | CurveName.POWER:
            yield {
                "_name": "polynomial_decay",
                "warmup_updates": warmup,
                "total_num_update": whole(form.end),
                "end_learning_rate": native(form.low),
                "power": native(form.power),
            }
        case CurveName.COSINE:
            for shrink in (native(form.shrink), 0.1):
                yield {
                    "_name": "cosine",
                    "warmup_updates": warmup,
                    "warmup_init_lr": first,
                    "min_lr": native(form.low),
                    "lr_period_updates": native(form.end - form.begin),
                    "lr_shrink": shrink,
                }
        case CurveName.INVERSE_ROOT:
            yield {"_name": "inverse_sqrt", "warmup_updates": warmup, "warmup_init_lr": first}
        case CurveName.EXPONENTIAL:
            yield {
                "_name": "tri_stage",
                "warmup_steps": warmup,
                "hold_steps": whole(form.begin) - warmup,
                "decay_steps": whole(form.end - form.begin),
                "init_lr_scale": native(form.rise.start / form.peak) if form.rise else 1.0,
                "final_lr_scale": native(form.low / form.peak),
            }
        case CurveName.STEPS:
            values = {first: native(value) for first, value in form.marks}
            if form.rise is None:
                yield {"_name": "manual", "update2lr": repr(values)}
        case _:
            return


WRITER = Writer(".yaml", _configs, {}, ("adamw", "sgd", "nag"))
