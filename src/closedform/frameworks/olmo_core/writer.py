"""The writer of OLMo-core's configs, as checkpoints have them; the clock counts t + 1."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from closedform.recipes import kit

_CLASSES = {"adam": "AdamConfig", "adamw": "AdamWConfig", "lion": "LionConfig"}
_MODULE = "olmo_core.optim"


def _configs(form: kit.WarmupDecayForm, optimizer: kit.Optimizer) -> Iterator[kit.Config]:
    optim: dict[str, Any] = {
        "_CLASS_": f"{_MODULE}.{_CLASSES.get(optimizer.name, 'AdamWConfig')}",
        "weight_decay": kit.native(optimizer.weight_decay or 0),
        **optimizer.hyperparameters(),
    }
    overrides = [
        {
            "params": list(group.patterns or (group.name,)),
            "opts": {"weight_decay": kit.native(decay)},
        }
        for group in optimizer.groups
        if (decay := group.weight_decay) is not None and group.factor == 1
    ]
    if overrides:
        optim["group_overrides"] = overrides
    for scheduler, peak in _schedulers(form):
        module: dict[str, Any] = {
            "optim": {**optim, "lr": kit.native(peak)},
            "scheduler": scheduler,
        }
        module |= optimizer.clip("max_grad_norm")
        duration = {"_CLASS_": "olmo_core.train.Duration", "value": form.total, "unit": "steps"}
        yield {"train_module": module, "trainer": {"max_duration": duration}}


def _scheduler_section(name: str, **fields: Any) -> dict[str, Any]:
    return {"_CLASS_": f"{_MODULE}.scheduler.{name}", **fields}


def _schedulers(form: kit.WarmupDecayForm) -> Iterator[tuple[dict[str, Any], Any]]:
    """The scheduler, and the rate of the optimizer."""
    rise = {"warmup": kit.nearest_integer(form.warmup(1))}
    if form.rise is not None:
        rise["warmup_min_lr"] = kit.native(form.at(1))
    ratio = form.low_ratio
    # The clock counts t + 1.
    last = (
        kit.nearest_integer(form.end) + 1
        if form.curve is not kit.CurveName.INVERSE_ROOT
        else form.total
    )
    length = {} if last == form.total else {"t_max": last}
    match form.curve:
        case kit.CurveName.CONSTANT:
            if form.rise is None:
                yield _scheduler_section("ConstantScheduler"), form.peak
            else:
                yield _scheduler_section("ConstantWithWarmup", **rise), form.peak
        case kit.CurveName.COSINE | kit.CurveName.LINEAR if not form.has_plateau:
            name = "CosWithWarmup" if form.curve is kit.CurveName.COSINE else "LinearWithWarmup"
            if form.rise is None and form.begin == 0:
                # A warmup of one update is none: n = 1 is at the peak, where the curve begins.
                yield _scheduler_section(name, warmup=1, alpha_f=ratio, **length), form.peak
            yield _scheduler_section(name, **rise, alpha_f=ratio, **length), form.peak
            if form.rise is None and form.curve is kit.CurveName.LINEAR:
                # The line goes on to where the clock is 0.
                share = (form.begin + 1) / (form.end - form.begin)
                peak = form.peak + (form.peak - form.low) * share
                part = kit.native(form.low / peak)
                yield _scheduler_section(name, **rise, alpha_f=part, **length), peak
        case kit.CurveName.LINEAR:
            # The minimum is the rate of the last update, where n is the length of the run.
            decay = form.total - 1 - form.begin
            low = form.peak + (form.low - form.peak) * decay / (form.end - form.begin)
            fields = {
                "decay": kit.nearest_integer(decay),
                "decay_fraction": None,
                "decay_min_lr": kit.native(low),
            }
            yield _scheduler_section("WSD", **rise, **fields), form.peak
        case kit.CurveName.INVERSE_ROOT:
            # The root is that of the warmup, which is 1 where the first update is at the peak.
            rise["warmup"] = rise["warmup"] or form.first + 1
            for part in (0.0, ratio):
                yield _scheduler_section("InvSqrtWithWarmup", **rise, alpha_f=part), form.peak


WRITER = kit.Writer(".json", _configs, {}, ("adam", "adamw", "lion"))
