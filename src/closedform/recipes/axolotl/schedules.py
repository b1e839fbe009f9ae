"""The schedulers of axolotl, from the keys of its config."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sympy as sp

from closedform.language import Schedule, t
from closedform.recipes import torch
from closedform.recipes.document import Document
from closedform.recipes.entries import (
    REQUIRED,
    Context,
    ScheduleEntry,
    build_schedule,
    parameters,
)
from closedform.recipes.intervals import by_intervals, ending, first_after
from closedform.recipes.native import exact, fact, number, refuse_unless
from closedform.recipes.section import whole
from closedform.recipes.transformers.schedules import CURVES, Run, cosine_wave, scheduled
from closedform.schedules.blends import along_geometric, along_line
from closedform.schedules.restarts import jagged_factor

Arguments = Mapping[str, Any]


def _warmup(given: Arguments, total: int, where: str) -> sp.Expr:
    """The updates of the warmup; one alone becomes two."""
    steps, ratio = given["warmup_steps"], given["warmup_ratio"]
    if steps is None:
        number(ratio or 0, "warmup_ratio", where)
        steps = min(int(0.03 * total), 100) if ratio is None else int(ratio * total)
    number(steps, "warmup_steps", where)
    return exact(2 if steps == 1 else steps)


def _run(given: Arguments, context: Context) -> Run:
    where, total = context.where, fact(context, "num_training_steps")
    rate = number(given["learning_rate"], "learning_rate", where)
    return Run(rate, rate, _warmup(given, total, where), exact(total), where)


def _low(given: Arguments, where: str, default: float = 0.0) -> sp.Expr:
    """The minimum as a part of the rate."""
    low = number(given["cosine_min_lr_ratio"] or default, "cosine_min_lr_ratio", where)
    refuse_unless(0 <= low <= 1, f"cosine_min_lr_ratio must be in [0, 1], got {low}", where)
    return low


def _rex(given: Arguments, run: Run) -> Schedule:
    low = _low(given, run.where)
    length = run.total - run.warmup
    refuse_unless(
        length >= 0,
        f"warmup_steps must be at most {run.total} updates, got {run.warmup}",
        run.where,
    )

    def fall() -> sp.Expr:
        rest = (run.total - t - 1) / length
        factor = rest / (sp.Rational(1, 10) + sp.Rational(9, 10) * rest)
        return run.base * along_line(low, sp.S.One, factor)

    # The scheduler counts from 1: update 0 uses its step 1.
    return by_intervals(
        "rex",
        (lambda: run.base * (t + 1) / run.warmup, int(run.warmup)),
        (fall, int(run.total) - 1),
        (lambda: run.base * low, None),
    )


def _quadratic(given: Arguments, run: Run) -> Schedule:
    del given
    rise = run.base * (t / max(sp.S.One, run.warmup)) ** 2
    wave = run.base * cosine_wave(sp.S.Half, run.progress)
    return by_intervals(
        "cosine_quadratic_warmup", (lambda: rise, int(run.warmup)), (lambda: wave, None)
    )


def _to_minimum(given: Arguments, run: Run) -> Schedule:
    low = _low(given, run.where)
    wave = run.base * along_line(low, sp.S.One, cosine_wave(sp.S.Half, run.progress))
    return by_intervals("cosine_min_lr", run.rise(), (lambda: wave, None))


def _to_constant(given: Arguments, run: Run) -> Schedule:
    low, part = _low(given, run.where), given["cosine_constant_lr_ratio"]
    number(part, "cosine_constant_lr_ratio", run.where)
    end = int(int(run.total) * part)
    length = max(1, end - int(run.warmup))

    def wave(step: sp.Expr) -> sp.Expr:
        part = cosine_wave(sp.S.Half, (step - run.warmup) / length)
        return run.base * along_line(low, sp.S.One, part)

    return by_intervals(
        "cosine_constant_lr",
        run.rise(),
        (lambda: wave(t), end),
        (lambda: wave(sp.Integer(end)), None),
    )


def _one_cycle(given: Arguments, run: Run) -> Schedule:
    refuse_unless(
        run.warmup <= run.total,
        f"the warmup must be at most {run.total} updates, got {run.warmup}",
        run.where,
    )
    kwargs = {
        "max_lr": run.base,
        "total_steps": int(run.total),
        "pct_start": exact(int(run.warmup) / int(run.total)),
        **(given["lr_scheduler_kwargs"] or {}),
    }
    context = Context("torch", torch.FRAMEWORK.schedules, base=run.base, as_implemented=True)
    made = build_schedule("OneCycleLR", kwargs, context)
    end = int(run.total)
    return ending(made.bound, end + 1, f"ValueError: Tried to step {end + 1} times", "one_cycle")


def _plain(given: Arguments, run: Run) -> Schedule:
    name = given["lr_scheduler"]
    refuse_unless(name in CURVES, f"there is no lr_scheduler {name!r}", run.where)
    kwargs = given["lr_scheduler_kwargs"] or {}
    return scheduled(name, whole(Document(dict(kwargs), run.where)), run)


def _jagged(given: Arguments, run: Run) -> Schedule:
    """The inner schedule times a factor that falls at the end of each period and rises after."""
    where = run.where
    period = number(given["jagged_restart_steps"], "jagged_restart_steps", where)
    rise = number(given["jagged_restart_warmup_steps"] or 10, "jagged_restart_warmup_steps", where)
    fall = number(given["jagged_restart_anneal_steps"] or 1, "jagged_restart_anneal_steps", where)
    low = _low(given, where, 0.001)
    inner = _chosen({**given, "jagged_restart_steps": None}, run)
    # Its step is one ahead, and two over rex, which is one ahead itself.
    step = t + (2 if given["lr_scheduler"] == "rex" else 1)
    factor = jagged_factor(step, period, rise, fall, low)
    return Schedule(inner.shift(1).expr * factor, name="jagged_restart")


def _chosen(given: Arguments, run: Run) -> Schedule:
    """The schedule that the config asks for."""
    name = given["lr_scheduler"]
    if given["jagged_restart_steps"] is not None:
        return _jagged(given, run)
    if name == "rex":
        return _rex(given, run)
    if name == "one_cycle":
        return _one_cycle(given, run)
    if name == "cosine" and given["lr_quadratic_warmup"]:
        return _quadratic(given, run)
    if name == "cosine" and given["cosine_min_lr_ratio"]:
        with_constant = given["cosine_constant_lr_ratio"] is not None
        return (_to_constant if with_constant else _to_minimum)(given, run)
    return _plain(given, run)


def _build(given: Arguments, context: Context) -> Schedule:
    return _chosen(given, _run(given, context))


def _interpolating(given: Arguments, context: Context) -> Schedule:
    where = context.where
    low, high, count = (
        number(given[name], name, where) for name in ("min_lr", "max_lr", "num_steps")
    )
    refuse_unless(count != 1, "num_steps is 1: division by zero", where)
    return by_intervals(
        "InterpolatingLogScheduler",
        (lambda: low, 1),
        (lambda: along_geometric(low, high, (t - 1) / (count - 1)), first_after(count - 1)),
        (lambda: high, None),
    )


_PARAMETERS = parameters(
    learning_rate=REQUIRED,
    lr_scheduler="cosine",
    lr_scheduler_kwargs=None,
    warmup_steps=None,
    warmup_ratio=None,
    lr_quadratic_warmup=False,
    cosine_min_lr_ratio=None,
    cosine_constant_lr_ratio=None,
    jagged_restart_steps=None,
    jagged_restart_warmup_steps=None,
    jagged_restart_anneal_steps=None,
)
_CLIMBS = "rises again after the run"
_AHEAD = "counts from 1: update 0 uses the value of step 1"
NOTES: Mapping[str, tuple[str, ...]] = {
    "rex": (_AHEAD,),
    "cosine_quadratic_warmup": ("a minimum is ignored", _CLIMBS),
    "cosine_min_lr": (_CLIMBS,),
    "cosine_constant_lr": (),
    "one_cycle": (),
    "jagged_restart": (_AHEAD,),
    "default": (_CLIMBS,),
}
SCHEDULES = {
    **{
        name: ScheduleEntry(name, (), _PARAMETERS, _build, notes=notes)
        for name, notes in NOTES.items()
    },
    "InterpolatingLogScheduler": ScheduleEntry(
        "InterpolatingLogScheduler",
        (),
        parameters(num_steps=REQUIRED, min_lr=REQUIRED, max_lr=REQUIRED),
        _interpolating,
        notes=("the first two values are equal",),
    ),
}
