"""The writer of MMEngine's configs: one scheduler for each segment of the values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sympy as sp

from closedform.recipes import kit


def _scheduler(kind: str, begin: Any, end: Any, stride: int, **more: Any) -> dict[str, Any]:
    """The entry of a scheduler: in epochs, or in updates."""
    return {
        "type": kind,
        "by_epoch": stride > 1,
        "begin": kit.nearest_integer(sp.Integer(1) * begin / stride),
        "end": kit.nearest_integer(sp.Integer(1) * end / stride),
        **{
            key: one if isinstance(one, list | str) else kit.native(one)
            for key, one in more.items()
        },
    }


def _rise(form: kit.WarmupDecayForm) -> list[dict[str, Any]]:
    if form.rise is None or form.peak == 0:
        return []
    if form.rise.curve is kit.CurveName.CONSTANT:
        factor = form.rise.start / form.peak
        return [_scheduler("ConstantLR", 0, form.rise.end + 1, 1, factor=factor)]
    # The last update before the end of a range has the peak.
    end = kit.nearest_integer(form.warmup()) + 1
    factor = form.rise.start / form.peak
    return [_scheduler("LinearLR", 0, end, 1, start_factor=factor)] if factor > 0 else []


def _schedulers(form: kit.WarmupDecayForm) -> Iterator[list[dict[str, Any]]]:
    rise, each = _rise(form), form.stride
    begin = sp.Integer(0) if form.curve is kit.CurveName.CONSTANT else form.begin
    total = -(-form.total // each) * each
    match form.curve:
        case kit.CurveName.CONSTANT:
            yield rise
        case kit.CurveName.COSINE if form.cycles == 1:
            for last in dict.fromkeys((form.end, sp.Integer(total))):
                curve = {"eta_min": form.low, "T_max": (form.end - begin) / each}
                yield [*rise, _scheduler("CosineAnnealingLR", begin, last, each, **curve)]
        case kit.CurveName.LINEAR | kit.CurveName.POWER:
            for end in (form.end + 1, form.end):
                curve = {"eta_min": form.low, "power": form.power}
                yield [*rise, _scheduler("PolyLR", begin, end, each, **curve)]
        case kit.CurveName.STEPS:
            for stride in dict.fromkeys((form.stride, 1)):
                marks = [step // stride for step in form.milestones]
                curve = {"milestones": marks, "gamma": form.gamma}
                yield [*rise, _scheduler("MultiStepLR", 0, total, stride, **curve)]
        case kit.CurveName.EXPONENTIAL:
            gamma = (form.low / form.peak) ** (sp.Integer(each) / (form.end - begin))
            number = sp.Float(sp.N(gamma, 40), 17)
            yield [*rise, _scheduler("ExponentialLR", begin, total, each, gamma=number)]
        case _:
            return


def _group(form: kit.WarmupDecayForm, group: kit.GroupDifference) -> dict[str, Any]:
    """The multipliers of a group."""
    found: dict[str, Any] = {}
    peak = group.peak(form.peak)
    if peak is not None and peak != form.peak and form.peak != 0:
        found["lr_mult"] = kit.native(peak / form.peak)
    if group.weight_decay == 0:
        found["decay_mult"] = 0.0
    return found


_OPTIONS = {"norm", "bias", "flat", "dwconv"}


def _paramwise(form: kit.WarmupDecayForm, made: kit.Optimizer) -> dict[str, Any]:
    """The options of ``paramwise_cfg``: by kind of parameter, or by a part of the name."""
    found: dict[str, Any] = {}
    custom: dict[str, Any] = {}
    for group in made.groups:
        own = _group(form, group)
        if not own:
            continue
        if group.name in _OPTIONS and not group.patterns:
            if "decay_mult" in own:
                found[f"{group.name}_decay_mult"] = own["decay_mult"]
            if "lr_mult" in own:
                found[f"{group.name}_lr_mult"] = own["lr_mult"]
            continue
        for pattern in group.patterns:
            custom[pattern] = own
    return {**found, **({"custom_keys": custom} if custom else {})}


def _configs(form: kit.WarmupDecayForm, made: kit.Optimizer) -> Iterator[kit.Config]:
    each = form.stride
    length = made.facts.get("updates_per_epoch")
    if each > 1 and length != each:
        return
    optimizer: dict[str, Any] = {
        "type": made.argument(made.class_name),
        **made.keywords(form.peak),
        **made.arguments("lr", "weight_decay"),
    }
    wrapper: dict[str, Any] = {"type": "OptimWrapper", "optimizer": optimizer}
    if made.clipping is not None:
        wrapper["clip_grad"] = {"max_norm": kit.native(made.clipping)}
    elif made.limit is not None and made.limit.kind is kit.ClippingKind.VALUE:
        wrapper["clip_grad"] = {"type": "value", "clip_value": kit.native(made.limit.threshold)}
    paramwise = _paramwise(form, made)
    if paramwise:
        wrapper["paramwise_cfg"] = paramwise
    for schedulers in _schedulers(form):
        changed = [*schedulers, *_others(form, made)]
        loop: dict[str, Any] = {"type": "IterBasedTrainLoop", "max_iters": form.total}
        if any(one["by_epoch"] for one in changed) and length:
            loop = {"type": "EpochBasedTrainLoop", "max_epochs": form.total // length}
        yield {"optim_wrapper": wrapper, "param_scheduler": changed, "train_cfg": loop}


def _others(form: kit.WarmupDecayForm, made: kit.Optimizer) -> Iterator[dict[str, Any]]:
    """The schedulers of the weight decay and of the momentum: a cosine over the run."""
    del form
    for key, one in made.schedules.items():
        if one.curve is not kit.CurveName.COSINE or one.rise is not None:
            continue
        curve = {"eta_min": one.low, "T_max": (one.end - one.begin) / one.stride}
        entry = _scheduler("CosineAnnealingParamScheduler", one.begin, one.end, one.stride, **curve)
        yield {**entry, "param_name": key}


WRITER = kit.Writer(
    ".py", _configs, {"updates_per_epoch": kit.RUN}, ("adam", "adamw", "sgd", "lion")
)
