"""The writer of levanter's YAML configs, whose lengths up to 1 are parts of the run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from closedform.recipes.forms import Config, Curve, Form, Optimizer, Writer, native, whole

_SHAPES = {Curve.LINEAR: "linear", Curve.COSINE: "cosine", Curve.CONSTANT: "constant"}


def _length(updates: int, total: int) -> Any:
    """A length in updates; 1 would be the whole run, and is written as a part of it."""
    return updates if updates != 1 or total == 1 else 1.5 / total


def _configs(form: Form, made: Optimizer, facts: Mapping[str, Any]) -> Iterator[Config]:
    del facts
    beta1, beta2 = made.betas() or [0.9, 0.95]
    optimizer: dict[str, Any] = {
        "type": made.argument("lion" if made.name == "lion" else "adam"),
        "learning_rate": native(form.peak),
        "weight_decay": native(made.weight_decay or 0),
        "beta1": beta1,
        "beta2": beta2,
        "max_grad_norm": native(made.clipping or 0),
    }
    if made.own is not None:
        optimizer = {
            key: optimizer[key] for key in ("type", "learning_rate", "weight_decay")
        } | made.arguments()
    elif made.name != "lion":
        optimizer["epsilon"] = native(made.values.get("eps", 1e-8))
    for section, total in _shapes(form):
        yield {"optimizer": {**optimizer, **section}, "trainer": {"num_train_steps": total}}


def _shapes(form: Form) -> Iterator[tuple[dict[str, Any], int]]:
    warmup = whole(form.warmup()) if form.rise is not None else 0
    total = form.total
    section: dict[str, Any] = {
        "warmup": _length(warmup, total),
        "min_lr_ratio": native(form.low / form.peak) if form.peak != 0 else 0.0,
    }
    if form.curve in _SHAPES:
        section["lr_schedule"] = _SHAPES[form.curve]
        if form.curve is Curve.CONSTANT:
            yield section, total
            return
        if form.curve is Curve.LINEAR and form.low == 0 and form.has_plateau:
            yield (
                {**section, "lr_schedule": "constant", "cooldown": total - whole(form.begin)},
                total,
            )
        decay = whole(form.end - form.begin)
        if whole(form.end) != total and not form.has_plateau:
            # The decay ends before the run, and the rate stays at its minimum.
            yield {**section, "decay": _length(decay, total)}, total
            yield section, whole(form.end)
            return
        yield {**section, "decay": _length(decay, total)} if form.has_plateau else section, total
    elif form.curve is Curve.INVERSE_ROOT and form.begin == 0:
        shape = {"type": "inv_sqrt", "timescale": native(form.end)}
        for low in (form.low, form.after or form.low):
            section["min_lr_ratio"] = native(low / form.peak)
            yield {**section, "lr_schedule": shape}, total


WRITER = Writer(".yaml", _configs, {}, ("adamw", "lion"))
