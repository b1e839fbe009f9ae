"""The writer of detectron2's YAML configs, whose warmup is a factor of the rate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from closedform.language import Schedule
from closedform.recipes.forms import (
    Config,
    CurveName,
    Optimizer,
    WarmupDecayForm,
    Writer,
    native,
    whole,
)
from closedform.recipes.recipe import ClippingKind

_KINDS = {
    ClippingKind.NORM: "full_model",
    ClippingKind.PARAM_NORM: "norm",
    ClippingKind.VALUE: "value",
}


def _solver(form: WarmupDecayForm, made: Optimizer) -> dict[str, Any]:
    solver: dict[str, Any] = {
        "BASE_LR": native(form.peak),
        "MAX_ITER": form.total,
        "WEIGHT_DECAY": native(made.weight_decay or 0),
        "WEIGHT_DECAY_NORM": native(made.weight_decay or 0),
        "WARMUP_ITERS": 0,
    }
    if made.name == "sgd":
        solver["MOMENTUM"] = native(made.values.get("momentum", 0))
    for group in made.groups:
        if group.name == "norm" or "norm" in " ".join(group.patterns):
            solver["WEIGHT_DECAY_NORM"] = native(group.weight_decay or 0)
        elif group.name == "bias":
            solver["BIAS_LR_FACTOR"] = native(group.factor or 1)
            if group.weight_decay is not None:
                solver["WEIGHT_DECAY_BIAS"] = native(group.weight_decay)
    if form.rise is not None:
        solver["WARMUP_ITERS"] = whole(form.warmup())
        if form.rise.curve is CurveName.CONSTANT:
            solver["WARMUP_METHOD"] = "constant"
        solver["WARMUP_FACTOR"] = native(form.rise.start / form.peak) if form.peak != 0 else 0.0
    if made.limit is not None and not isinstance(made.limit.threshold, Schedule):
        kind, value = _KINDS[made.limit.kind], native(made.limit.threshold)
        clipping = {"ENABLED": True, "CLIP_TYPE": kind, "CLIP_VALUE": value}
        solver["CLIP_GRADIENTS"] = clipping
    return solver


def _configs(form: WarmupDecayForm, made: Optimizer, facts: Mapping[str, Any]) -> Iterator[Config]:
    del facts
    solver = _solver(form, made)
    match form.curve:
        case CurveName.STEPS:
            values = [value for _, value in form.marks]
            gamma = values[1] / values[0] if values[0] != 0 else 0
            steps = [first for first, _ in form.marks[1:]]
            solver |= {"STEPS": steps, "GAMMA": native(gamma)}
            solver["LR_SCHEDULER_NAME"] = "WarmupMultiStepLR"
        case CurveName.CONSTANT:
            solver |= {"STEPS": [], "LR_SCHEDULER_NAME": "WarmupMultiStepLR"}
        case CurveName.COSINE:
            solver |= {"LR_SCHEDULER_NAME": "WarmupCosineLR", "MAX_ITER": whole(form.end)}
        case _:
            return
    yield {"SOLVER": solver}
    if form.rise is not None:
        # The rise ends on a curve that decays from update 0 on, at its last update.
        for length in (form.rise.end - 1, form.rise.end):
            yield {"SOLVER": {**solver, "WARMUP_ITERS": length}}


WRITER = Writer(".yaml", _configs, {}, ("sgd",))
