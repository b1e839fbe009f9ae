"""The schedules of NeMo Automodel, from its sections ``optimizer`` and ``lr_scheduler``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sympy as sp

from closedform.language import Schedule
from closedform.recipes.entries import REQUIRED, Context, ScheduleEntry, parameters
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

_SECTION = {
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
    section = options(given["lr_scheduler"], where, _SECTION)
    check_name(context.path[-1], section["lr_decay_style"], "lr_decay_style", where)
    rate, total = number(entry(given["optimizer"], "lr", where), "lr", where), _run(context)
    peak = _value(section, "max_lr", rate, where)
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
    section = options(given["lr_scheduler"], where, _SECTION)
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
}
