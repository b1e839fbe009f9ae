"""The learning rate of gpt-neox: warmup and annealing of ``AnnealingLR``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sympy as sp

from closedform.language import Schedule, t
from closedform.recipes.entries import REQUIRED, Context, ScheduleEntry, parameters
from closedform.recipes.intervals import by_intervals, first_after, quotient
from closedform.recipes.native import check_name, entry, exact, number, refuse_unless
from closedform.schedules.blends import along_cosine

STYLES = ("linear", "cosine", "exponential", "constant")


def _build(given: Mapping[str, Any], context: Context) -> Schedule:
    where = context.where
    style = given["lr_decay_style"]
    check_name(context.path[-1], style, "lr_decay_style", where)
    rate = number(entry(given["optimizer"], "params.lr", where), "lr", where)
    low = number(given["min_lr"], "min_lr", where)
    run, total, part = (
        given[name] for name in ("train_iters", "lr_decay_iters", "lr_decay_fraction")
    )
    refuse_unless(
        total is None or part is None,
        "only one of lr_decay_iters and lr_decay_fraction may be given",
        where,
    )
    number(run, "train_iters", where)
    if part is not None:
        number(part, "lr_decay_fraction", where)
        total = int(run * part)
    total = run if total is None else total
    number(given["warmup"], "warmup", where)
    # The warmup is not rounded to whole updates. Its product in floats may end just before an
    # update where this one ends at it: the rate is that of the peak in both.
    end, warmup = exact(total), exact(given["warmup"]) * exact(total)

    def anneal() -> sp.Expr:
        if style == "constant":
            return rate
        length, done = end - warmup, t - warmup
        if style == "linear":
            return rate * quotient(end - t, length)
        if style == "cosine":
            return along_cosine(rate, low, quotient(done, length))
        return rate * sp.exp(sp.Rational(-693, 1000) * quotient(done, length))

    made = by_intervals(
        style,
        (lambda: rate * sp.Max(1, t) / warmup, first_after(warmup) if warmup > 0 else 0),
        (lambda: sp.Max(anneal(), low), None),
    )
    if not given["use_mup"]:
        return made
    width = context.facts.get("param_group", {}).get("width_mult", 1)
    return made.scale(1 / number(width, "width_mult", where))


_PARAMETERS = parameters(
    train_iters=REQUIRED,
    optimizer=REQUIRED,
    lr_decay_style="linear",
    lr_decay_iters=None,
    lr_decay_fraction=None,
    warmup=0.01,
    min_lr=0.0,
    use_mup=False,
)
_NOTES = (
    "the warmup is not rounded to whole updates: below one update, update 0 is above the peak",
    "updates 0 and 1 are equal",
    "a minimum above the peak raises the rate after the warmup",
    "cosine rises again after the decay",
)
SCHEDULES = {name: ScheduleEntry(name, (), _PARAMETERS, _build, notes=_NOTES) for name in STYLES}
