"""The writer of NeMo's configs: its policies rise from one part of ``warmup_steps + 1``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import sympy as sp

from closedform.recipes import kit

_NAMES = {
    kit.CurveName.CONSTANT: "WarmupPolicy",
    kit.CurveName.COSINE: "CosineAnnealing",
    kit.CurveName.LINEAR: "PolynomialDecayAnnealing",
    kit.CurveName.POWER: "PolynomialDecayAnnealing",
    kit.CurveName.ROOT: "WarmupHoldAnnealOneMinusSquareRoot",
    kit.CurveName.INVERSE_ROOT: "InverseSquareRootAnnealing",
}


def _configs(form: kit.WarmupDecayForm, made: kit.Optimizer) -> Iterator[kit.Config]:
    if form.curve not in _NAMES:
        return
    warmup = kit.nearest_integer(form.warmup())
    sched: dict[str, Any] = {
        "name": _NAMES[form.curve],
        "warmup_steps": warmup,
        "min_lr": kit.native(form.low),
        "max_steps": kit.nearest_integer(form.end),
    }
    optim: dict[str, Any] = {
        "name": made.name or "adamw",
        **made.keywords(form.peak),
        "sched": sched,
    }
    trainer: dict[str, Any] = {"max_steps": form.total, **made.clip("gradient_clip_val")}
    if form.curve is kit.CurveName.CONSTANT:
        sched["max_steps"] = form.total
    elif form.has_plateau and form.curve is kit.CurveName.LINEAR:
        sched |= {
            "name": "WarmupHoldAnnealLinear",
            "hold_steps": kit.nearest_integer(form.begin) - warmup,
        }
    if form.curve is kit.CurveName.ROOT:
        sched["hold_steps"] = kit.nearest_integer(form.begin) - warmup
    elif form.curve is kit.CurveName.POWER:
        sched["power"] = kit.native(form.power)
        if form.has_plateau:
            sched |= {
                "name": "PolynomialHoldDecayAnnealing",
                "hold_steps": kit.nearest_integer(form.begin) - warmup,
            }
    elif form.curve is kit.CurveName.INVERSE_ROOT:
        sched |= {"max_steps": form.total, "min_lr": kit.native(form.after or form.low)}
    if sched["max_steps"] != form.total:
        # The trainer's number of updates would replace that of the schedule.
        trainer = {**trainer, "max_steps": -1}
    yield {"model": {"optim": optim, **_encoder(form, made)}, "trainer": trainer}
    for other, rate in _more(form, sched, warmup):
        own = {**optim, "lr": kit.native(rate), "sched": other}
        yield {"model": {"optim": own}, "trainer": {**trainer, "max_steps": -1}}
    if form.rise is None or form.at() == 0:
        constant = {**sched, "name": "CosineAnnealing"}
        if form.curve is kit.CurveName.COSINE:
            # With a constant phase the warmup rises from 0.
            end = kit.nearest_integer(form.end)
            longer = max(form.total, end + 1)
            constant |= {"max_steps": longer, "constant_steps": longer - end}
            yield {
                "model": {"optim": {**optim, "sched": constant}},
                "trainer": {**trainer, "max_steps": longer},
            }


def _encoder(form: kit.WarmupDecayForm, made: kit.Optimizer) -> dict[str, Any]:
    """The rates of parts of the model."""
    own = {
        one.name: {"lr": kit.native(peak)}
        for one in made.groups
        if (peak := one.peak(form.peak)) not in (None, form.peak) and one.name.isidentifier()
    }
    return {"optim_param_groups": own} if own else {}


def _more(
    form: kit.WarmupDecayForm, sched: Mapping[str, Any], warmup: int
) -> Iterator[tuple[dict[str, Any], Any]]:
    """Policies whose curve counts from update 0, with the rate of the optimizer."""
    if form.curve is kit.CurveName.POWER and form.power == sp.S.Half:
        # The root of what is left of the whole run.
        for rate in {form.peak * sp.sqrt(form.end / (form.end - form.begin)), form.peak}:
            own = {key: one for key, one in sched.items() if key != "power"}
            yield {**own, "name": "SquareRootAnnealing"}, rate
    if form.curve is kit.CurveName.INVERSE_ROOT and form.begin == 0:
        rate = form.peak * sp.sqrt(form.end)
        low = kit.native(form.after or form.low)
        yield {"name": "NoamAnnealing", "d_model": 1, "warmup_steps": warmup, "min_lr": low}, rate
        policy = {"name": "NoamHoldAnnealing", "decay_rate": 0.5, "hold_steps": 0}
        yield {**sched, **policy, "warmup_steps": warmup}, form.peak


WRITER = kit.Writer(".yaml", _configs, {}, ("adam", "adamw", "sgd"))
