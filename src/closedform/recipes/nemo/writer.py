"""The writer of NeMo's configs: its policies rise from one part of ``warmup_steps + 1``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from closedform.recipes.forms import Config, Curve, Form, Optimizer, Writer, native, whole

_NAMES = {
    Curve.CONSTANT: "WarmupPolicy",
    Curve.COSINE: "CosineAnnealing",
    Curve.LINEAR: "PolynomialDecayAnnealing",
}


def _configs(form: Form, made: Optimizer, facts: Mapping[str, Any]) -> Iterator[Config]:
    del facts
    if form.curve not in _NAMES:
        return
    warmup = whole(form.warmup()) if form.rise is not None else 0
    sched: dict[str, Any] = {
        "name": _NAMES[form.curve],
        "warmup_steps": warmup,
        "min_lr": native(form.low),
        "max_steps": whole(form.end),
    }
    optim: dict[str, Any] = {
        "name": made.name or "adamw",
        "lr": native(form.peak),
        "weight_decay": native(made.weight_decay or 0),
        **{key: native(one) for key, one in made.values.items() if key != "betas"},
        "sched": sched,
    }
    if "betas" in made.values:
        optim["betas"] = [native(beta) for beta in made.values["betas"]]
    trainer: dict[str, Any] = {"max_steps": form.total}
    if made.clipping is not None:
        trainer["gradient_clip_val"] = native(made.clipping)
    if form.curve is Curve.CONSTANT:
        sched["max_steps"] = form.total
    elif form.has_plateau and form.curve is Curve.LINEAR:
        sched |= {
            "name": "WarmupHoldAnnealLinear",
            "hold_steps": whole(form.begin) - warmup,
        }
    if sched["max_steps"] != form.total:
        # The trainer's number of updates would replace that of the schedule.
        trainer = {**trainer, "max_steps": -1}
    yield {"model": {"optim": optim}, "trainer": trainer}
    if form.rise is None or form.at() == 0:
        constant = {**sched, "name": "CosineAnnealing"}
        if form.curve is Curve.COSINE:
            # With a constant phase the warmup rises from 0.
            end = whole(form.end)
            longer = max(form.total, end + 1)
            constant |= {"max_steps": longer, "constant_steps": longer - end}
            yield {
                "model": {"optim": {**optim, "sched": constant}},
                "trainer": {**trainer, "max_steps": longer},
            }


WRITER = Writer(".yaml", _configs, {}, ("adam", "adamw", "sgd"))
