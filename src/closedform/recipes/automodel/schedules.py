"""The schedules of NeMo Automodel, from its sections ``optimizer`` and ``lr_scheduler``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sympy as sp

from closedform.language import Schedule, t
from closedform.recipes.entries import REQUIRED, Context, ScheduleEntry, parameters
from closedform.recipes.intervals import by_intervals
from closedform.recipes.megatron.curves import STYLES, Plan, check, learning_rate, weight_decay
from closedform.recipes.native import (
    check_name,
    entry,
    exact,
    fact,
    number,
    options,
    refuse_unless,
)
from closedform.schedules.blends import along_cosine

SECTION = {
    "lr_decay_style": "cosine",
    "lr_warmup_steps": None,
    "lr_decay_steps": None,
    "min_lr": None,
    "max_lr": None,
    "init_lr": None,
    "wsd_decay_steps": None,
    "lr_wsd_decay_style": None,
    "wd_incr_style": "constant",
    "wd_incr_steps": None,
    "start_wd": None,
    "end_wd": None,
}
"""The keys of ``lr_scheduler`` that the schedules depend on, with their defaults."""


def _value(section: Mapping[str, Any], name: str, default: sp.Expr, where: str) -> sp.Expr:
    return default if section[name] is None else number(section[name], name, where)


def _run(context: Context) -> sp.Expr:
    """The updates of the run: its epochs, at most ``max_steps``."""
    steps = context.facts.get("step_scheduler")
    if steps is None:
        return exact(fact(context, "total_updates"))
    length, most = steps.get("epoch_len"), steps.get("max_steps")
    if length is None:
        return exact(fact(context, "total_updates") if most is None else most)
    run = steps.get("num_epochs", 1) * length
    return exact(run if most is None else min(run, most))


def _rate(given: Mapping[str, Any], context: Context) -> Schedule:
    where = context.where
    section = options(given["lr_scheduler"], where, SECTION)
    check_name(context.path[-1], section["lr_decay_style"], "lr_decay_style", where)
    rate, total = number(entry(given["optimizer"], "lr", where), "lr", where), _run(context)
    peak = _value(section, "max_lr", rate, where)
    warmup = section["lr_warmup_steps"]
    refuse_unless(
        warmup is None or number(warmup, "lr_warmup_steps", where).is_Integer,
        f"lr_warmup_steps must be an integer, got {warmup}",
        where,
    )
    tail = section["wsd_decay_steps"]
    plan = Plan(
        section["lr_decay_style"],
        peak,
        _value(section, "min_lr", rate / 100, where),
        _value(section, "init_lr", rate / 10, where),
        _value(section, "lr_warmup_steps", exact(min(1000, int(total) // 10)), where),
        _value(section, "lr_decay_steps", total, where),
        None if tail is None else number(tail, "wsd_decay_steps", where),
        section["lr_wsd_decay_style"],
    )
    check(plan, where)
    return learning_rate(plan)


def _weight_decay(given: Mapping[str, Any], context: Context) -> Schedule:
    where = context.where
    section = options(given["lr_scheduler"], where, SECTION)
    style = section["wd_incr_style"]
    check_name(context.path[-1], f"wd-{style}", "wd_incr_style", where)
    own = number(given["optimizer"].get("weight_decay", 0.0), "weight_decay", where)
    first, last = _value(section, "start_wd", own, where), _value(section, "end_wd", own, where)
    refuse_unless(
        0 <= first <= last,
        f"the weight decay must not fall or be negative, got {first} to {last}",
        where,
    )
    total = _value(section, "wd_incr_steps", _run(context), where)
    return weight_decay(style, first, last, total, sp.S.One)


def _speculative(given: Mapping[str, Any], context: Context) -> Schedule:
    """The rate of the recipes that train a draft model: a warmup from its first step, a cosine."""
    where = context.where
    section = options(given["optimizer"], where, _DRAFT)
    rate = number(section["lr"], "lr", where)
    low = number(section["min_lr_ratio"], "min_lr_ratio", where)
    part = number(section["warmup_ratio"], "warmup_ratio", where)
    total = int(fact(context, "total_updates"))
    least = given["least_warmup"]
    # int() of a product of floats, at least 1; or what the recipe wants at least.
    warmup = 1 if least > 1 and part <= 0 else max(least, int(float(part) * total))
    rest = max(1, total - warmup)
    wave = along_cosine(sp.S.One, low, (t - warmup) / rest)
    return by_intervals(
        "speculative",
        (lambda: rate * (t + 1) / warmup, warmup),
        (lambda: rate * wave, warmup + rest),
        (lambda: rate * low, None),
    )


_DRAFT = {"lr": REQUIRED, "warmup_ratio": 0.05, "min_lr_ratio": 0.1}
_PARAMETERS = parameters(optimizer=REQUIRED, lr_scheduler=REQUIRED)
_NOTES = (
    "the default warmup is a tenth of the run, at most 1000 updates, from a tenth of the rate",
    "WSD without a style of its decay fails where the decay begins",
)
SCHEDULES = {
    **{name: ScheduleEntry(name, (), _PARAMETERS, _rate, notes=_NOTES) for name in STYLES},
    **{
        f"wd-{name}": ScheduleEntry(f"wd-{name}", (), _PARAMETERS, _weight_decay)
        for name in ("constant", "linear", "cosine")
    },
    "speculative": ScheduleEntry(
        "speculative", (), parameters(optimizer=REQUIRED, least_warmup=1), _speculative
    ),
}
