"""The writer of nanotron's YAML configs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from closedform.recipes.forms import Config, Curve, Form, Optimizer, Writer, native, whole

_STYLES = {Curve.LINEAR: "linear", Curve.COSINE: "cosine", Curve.ROOT: "1-sqrt"}


def _factory(made: Optimizer) -> dict[str, Any]:
    if made.name == "sgd":
        return {"name": "sgd"}
    betas = made.betas() or [0.9, 0.999]
    return {
        "name": "adamW",
        "adam_beta1": betas[0],
        "adam_beta2": betas[1],
        "adam_eps": native(made.values.get("eps", 1e-8)),
        "torch_adam_is_fused": True,
    }


def _configs(form: Form, made: Optimizer, facts: Mapping[str, Any]) -> Iterator[Config]:
    del facts
    if form.curve not in (*_STYLES, Curve.CONSTANT):
        return
    warmup = whole(form.warmup())
    scheduler: dict[str, Any] = {
        "learning_rate": native(form.peak),
        "lr_warmup_steps": warmup,
        "lr_warmup_style": "linear",
        "lr_decay_style": _STYLES.get(form.curve, "linear"),
        "min_decay_lr": native(form.low),
    }
    if form.curve is not Curve.CONSTANT:
        scheduler["lr_decay_starting_step"] = whole(form.begin)
        scheduler["lr_decay_steps"] = whole(form.end - form.begin)
    excluded = [one for one in made.groups if one.weight_decay == 0]
    optimizer: dict[str, Any] = {
        "accumulate_grad_in_fp32": True,
        "clip_grad": None if made.clipping is None else native(made.clipping),
        "learning_rate_scheduler": scheduler,
        "optimizer_factory": _factory(made),
        "weight_decay": native(made.weight_decay or 0),
        "zero_stage": 0,
    }
    if excluded:
        patterns = [pattern for one in excluded for pattern in one.patterns]
        optimizer["weight_decay_exclude_named_params"] = patterns
    yield {"optimizer": optimizer, "tokens": {"train_steps": form.total}}


WRITER = Writer(".yaml", _configs, {}, ("adamw", "sgd"))
