"""The writer of fairseq's YAML configs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from closedform.recipes import kit


def _configs(form: kit.WarmupDecayForm, made: kit.Optimizer) -> Iterator[kit.Config]:
    optimizer: dict[str, Any] = {
        "_name": "nag" if made.name == "nag" else "sgd" if made.name == "sgd" else "adam",
        "weight_decay": kit.native(made.weight_decay or 0),
    }
    if made.betas():
        optimizer["adam_betas"] = f"({made.betas()[0]}, {made.betas()[1]})"
        optimizer["adam_eps"] = kit.native(made.values.get("eps", 1e-8))
    elif "momentum" in made.values:
        optimizer["momentum"] = kit.native(made.values["momentum"])
    for scheduler in _schedulers(form):
        yield {
            "optimization": {
                "lr": [kit.native(form.peak)],
                "max_update": form.total,
                "clip_norm": kit.native(made.clipping or 0),
            },
            "optimizer": optimizer,
            "lr_scheduler": scheduler,
        }


def _schedulers(form: kit.WarmupDecayForm) -> Iterator[dict[str, Any]]:
    warmup = kit.nearest_integer(form.warmup())
    first = kit.native(form.rise.start) if form.rise is not None else kit.native(form.peak)
    match form.curve:
        case kit.CurveName.CONSTANT:
            yield {
                "_name": "fixed",
                "warmup_updates": kit.nearest_integer(form.warmup(1)) if warmup else 0,
            }
            # A minimum that is the peak.
            yield {
                "_name": "cosine",
                "warmup_updates": warmup,
                "warmup_init_lr": first,
                "min_lr": kit.native(form.peak),
                "lr_period_updates": form.total,
                "lr_shrink": 1.0,
            }
        case kit.CurveName.LINEAR | kit.CurveName.POWER:
            yield {
                "_name": "polynomial_decay",
                "warmup_updates": warmup,
                "total_num_update": kit.nearest_integer(form.end),
                "end_learning_rate": kit.native(form.low),
                "power": kit.native(form.power),
            }
        case kit.CurveName.COSINE:
            for shrink in (kit.native(form.shrink), 0.1):
                yield {
                    "_name": "cosine",
                    "warmup_updates": warmup,
                    "warmup_init_lr": first,
                    "min_lr": kit.native(form.low),
                    "lr_period_updates": kit.native(form.end - form.begin),
                    "lr_shrink": shrink,
                }
        case kit.CurveName.INVERSE_ROOT:
            yield {"_name": "inverse_sqrt", "warmup_updates": warmup, "warmup_init_lr": first}
        case kit.CurveName.EXPONENTIAL:
            yield {
                "_name": "tri_stage",
                "warmup_steps": warmup,
                "hold_steps": kit.nearest_integer(form.begin) - warmup,
                "decay_steps": kit.nearest_integer(form.end - form.begin),
                "init_lr_scale": kit.native(form.rise.start / form.peak) if form.rise else 1.0,
                "final_lr_scale": kit.native(form.low / form.peak),
            }
        case kit.CurveName.STEPS:
            values = {first: kit.native(value) for first, value in form.marks}
            if form.rise is None:
                yield {"_name": "manual", "update2lr": repr(values)}
        case _:
            return


WRITER = kit.Writer(".yaml", _configs, {}, ("adamw", "sgd", "nag"))
