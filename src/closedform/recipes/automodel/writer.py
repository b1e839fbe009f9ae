"""The writer of NeMo Automodel's configs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from closedform.recipes.forms import Config, Curve, Form, Optimizer, Writer, native, whole

_STYLES = {Curve.LINEAR: "linear", Curve.COSINE: "cosine", Curve.CONSTANT: "constant"}


def _configs(form: Form, made: Optimizer, facts: Mapping[str, Any]) -> Iterator[Config]:
    del facts
    if form.curve not in _STYLES:
        return
    section: dict[str, Any] = {
        "lr_decay_style": _STYLES[form.curve],
        "lr_warmup_steps": whole(form.warmup()),
        "lr_decay_steps": whole(form.end),
        "init_lr": native(form.at()),
        "min_lr": native(form.low),
    }
    if form.curve is Curve.CONSTANT:
        section["lr_decay_steps"] = max(form.total, whole(form.warmup()) + 1)
    elif form.has_plateau:
        section |= {
            "lr_decay_style": "WSD",
            "wsd_decay_steps": whole(form.end - form.begin),
            "lr_wsd_decay_style": _STYLES[form.curve],
        }
    optimizer: dict[str, Any] = {
        "_target_": made.argument(f"torch.optim.{made.class_name}"),
        **made.keywords(form.peak),
    }
    config: dict[str, Any] = {
        "step_scheduler": {"max_steps": form.total, "num_epochs": None},
        "optimizer": optimizer,
        "lr_scheduler": section,
    }
    if made.clipping is not None:
        config["clip_grad_norm"] = {"max_norm": native(made.clipping)}
    yield config


WRITER = Writer(".yaml", _configs, {}, ("adam", "adamw", "sgd"))
