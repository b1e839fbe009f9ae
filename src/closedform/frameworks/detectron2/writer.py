"""The writer of detectron2's YAML configs, whose warmup is a factor of the rate."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from closedform.language import Schedule
from closedform.recipes import kit

_KINDS = {
    kit.ClippingKind.NORM: "full_model",
    kit.ClippingKind.PARAM_NORM: "norm",
    kit.ClippingKind.VALUE: "value",
}


def _solver(form: kit.WarmupDecayForm, made: kit.Optimizer) -> dict[str, Any]:
    solver: dict[str, Any] = {
        "BASE_LR": kit.native(form.peak),
        "MAX_ITER": form.total,
        "WEIGHT_DECAY": kit.native(made.weight_decay or 0),
        "WEIGHT_DECAY_NORM": kit.native(made.weight_decay or 0),
        "WARMUP_ITERS": 0,
    }
    if made.name == "sgd":
        solver["MOMENTUM"] = kit.native(made.values.get("momentum", 0))
    for group in made.groups:
        if group.name == "norm" or "norm" in " ".join(group.patterns):
            solver["WEIGHT_DECAY_NORM"] = kit.native(group.weight_decay or 0)
        elif group.name == "bias":
            solver["BIAS_LR_FACTOR"] = kit.native(group.factor or 1)
            if group.weight_decay is not None:
                solver["WEIGHT_DECAY_BIAS"] = kit.native(group.weight_decay)
    if form.rise is not None:
        solver["WARMUP_ITERS"] = kit.nearest_integer(form.warmup())
        if form.rise.curve is kit.CurveName.CONSTANT:
            solver["WARMUP_METHOD"] = "constant"
        solver["WARMUP_FACTOR"] = kit.native(form.rise.start / form.peak) if form.peak != 0 else 0.0
    if made.limit is not None and not isinstance(made.limit.threshold, Schedule):
        kind, value = _KINDS[made.limit.kind], kit.native(made.limit.threshold)
        clipping = {"ENABLED": True, "CLIP_TYPE": kind, "CLIP_VALUE": value}
        solver["CLIP_GRADIENTS"] = clipping
    return solver


def _configs(form: kit.WarmupDecayForm, made: kit.Optimizer) -> Iterator[kit.Config]:
    solver = _solver(form, made)
    match form.curve:
        case kit.CurveName.STEPS:
            solver |= {"STEPS": form.milestones, "GAMMA": kit.native(form.gamma)}
            solver["LR_SCHEDULER_NAME"] = "WarmupMultiStepLR"
        case kit.CurveName.CONSTANT:
            solver |= {"STEPS": [], "LR_SCHEDULER_NAME": "WarmupMultiStepLR"}
        case kit.CurveName.COSINE:
            solver |= {
                "LR_SCHEDULER_NAME": "WarmupCosineLR",
                "MAX_ITER": kit.nearest_integer(form.end),
            }
        case _:
            return
    yield {"SOLVER": solver}
    if form.rise is not None:
        # The rise ends on a curve that decays from update 0 on, at its last update.
        for length in (form.rise.end - 1, form.rise.end):
            yield {"SOLVER": {**solver, "WARMUP_ITERS": length}}


WRITER = kit.Writer(".yaml", _configs, {}, ("sgd",))
