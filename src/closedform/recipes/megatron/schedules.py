"""The schedules of Megatron-LM, from its command line flags.

The clock counts samples: an update adds the global batch size, and flags in iterations are
multiplied by it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sympy as sp

from closedform.errors import DefinitionError
from closedform.language import Schedule
from closedform.recipes.clock import Clock, Facts, Unit
from closedform.recipes.entries import Context, ScheduleEntry, parameters
from closedform.recipes.megatron.curves import STYLES, Plan, check, learning_rate, weight_decay
from closedform.recipes.native import check_name, exact, number, refuse_unless

FLAGS = {
    "--lr": None,
    "--lr-decay-style": "linear",
    "--global-batch-size": None,
    "--min-lr": 0.0,
    "--train-iters": None,
    "--train-samples": None,
    "--lr-decay-iters": None,
    "--lr-decay-samples": None,
    "--lr-warmup-iters": 0,
    "--lr-warmup-samples": 0,
    "--lr-warmup-fraction": None,
    "--lr-warmup-init": 0.0,
    "--lr-wsd-decay-iters": None,
    "--lr-wsd-decay-samples": None,
    "--lr-wsd-decay-style": "exponential",
    "--weight-decay": 0.01,
    "--weight-decay-incr-style": "constant",
    "--start-weight-decay": None,
    "--end-weight-decay": None,
}
"""The flags that schedules depend on, with their defaults."""

NOTES = (
    "inverse-square-root falls to the minimum at once after the horizon",
    "inverse-square-root without a warmup divides by the root of the number of samples",
    "constant ignores the horizon and the minimum",
    "the warmup start is ignored without a warmup",
    "a WSD decay that would begin inside the warmup starts late: the rate jumps",
)


@dataclass(frozen=True, slots=True)
class _Horizon:
    """Lengths in samples."""

    batch: sp.Expr
    run: sp.Expr
    decay: sp.Expr
    warmup: sp.Expr
    tail: sp.Expr | None


def _facts(given: Mapping[str, Any], context: Context) -> Facts:
    """The batch size of the flags, or else of the facts."""
    flag = given["--global-batch-size"]
    if flag is None:
        flag = context.facts.get("global_batch_size")
    return Facts(global_batch_size=flag)


def _horizon(given: Mapping[str, Any], context: Context) -> _Horizon:
    where = context.where
    batch = Clock(Unit.SAMPLE).per_update(_facts(given, context))
    if (given["--train-iters"] is None) == (given["--train-samples"] is None):
        raise DefinitionError(
            "exactly one of --train-iters and --train-samples must be given", where=where
        )
    unit, other = "iters", "samples"
    if given["--train-iters"] is None:
        unit, other = other, unit
    factor = batch if unit == "iters" else sp.S.One
    refuse_unless(
        given[f"--lr-decay-{other}"] is None and not given[f"--lr-warmup-{other}"],
        f"a run in {unit} must have its decay and warmup in {unit}",
        where,
    )
    run = number(given[f"--train-{unit}"], f"--train-{unit}", where) * factor
    decay = given[f"--lr-decay-{unit}"]
    decay = run if decay is None else number(decay, f"--lr-decay-{unit}", where) * factor
    part = given["--lr-warmup-fraction"]
    warmup = number(given[f"--lr-warmup-{unit}"], f"--lr-warmup-{unit}", where) * factor
    if part is not None:
        refuse_unless(
            warmup == 0,
            f"only one of --lr-warmup-fraction and --lr-warmup-{unit} may be given",
            where,
        )
        # The warmup is not rounded to whole updates. A product that is whole in floats counts as it
        # is: the update at its end is in the warmup. Otherwise that update has the peak either way.
        warmup = number(part, "--lr-warmup-fraction", where) * decay
        in_floats = float(part) * float(decay)
        warmup = sp.Integer(int(in_floats)) if in_floats.is_integer() else warmup
    tail = given[f"--lr-wsd-decay-{unit}"]
    tail = None if tail is None else number(tail, f"--lr-wsd-decay-{unit}", where) * factor
    return _Horizon(batch, run, decay, warmup, tail)


def _group(context: Context) -> Mapping[str, Any]:
    found: Mapping[str, Any] = context.facts.get("param_group", {})
    return found


def _rate(given: Mapping[str, Any], context: Context) -> Schedule:
    where = context.where
    check_name(context.path[-1], given["--lr-decay-style"], "--lr-decay-style", where)
    horizon = _horizon(given, context)
    peak, low = number(given["--lr"], "--lr", where), number(given["--min-lr"], "--min-lr", where)
    first = number(given["--lr-warmup-init"], "--lr-warmup-init", where)

    def plan(highest: sp.Expr, lowest: sp.Expr) -> Plan:
        return Plan(
            str(given["--lr-decay-style"]),
            highest,
            lowest,
            first,
            horizon.warmup,
            horizon.decay,
            horizon.tail,
            given["--lr-wsd-decay-style"],
            horizon.batch,
        )

    check(plan(peak, low), where)
    own = _group(context)
    own_peak = number(own.get("max_lr", peak), "max_lr", where)
    return learning_rate(plan(own_peak, number(own.get("min_lr", low), "min_lr", where)))


def _decay(given: Mapping[str, Any], context: Context) -> Schedule:
    where = context.where
    style = given["--weight-decay-incr-style"]
    check_name(context.path[-1], f"wd-{style}", "--weight-decay-incr-style", where)
    horizon = _horizon(given, context)
    first, last = given["--start-weight-decay"], given["--end-weight-decay"]
    if style == "constant":
        refuse_unless(
            first is None and last is None,
            "a constant weight decay takes no --start-weight-decay and --end-weight-decay",
            where,
        )
        first = last = given["--weight-decay"]
    refuse_unless(
        first is not None and last is not None,
        f"a {style} weight decay needs --start-weight-decay and --end-weight-decay",
        where,
    )
    start, end = (
        number(first, "--start-weight-decay", where),
        number(last, "--end-weight-decay", where),
    )
    refuse_unless(
        0 <= start <= end,
        f"the weight decay must not fall or be negative, got {start} to {end}",
        where,
    )
    own = _group(context)
    start, end = exact(own.get("start_wd", start)), exact(own.get("end_wd", end))
    made = weight_decay(style, start, end, horizon.run, horizon.batch)
    return made.scale(exact(own.get("wd_mult", 1)))


_PARAMETERS = parameters(**FLAGS)
SCHEDULES = {
    **{name: ScheduleEntry(name, (), _PARAMETERS, _rate, notes=NOTES) for name in STYLES},
    **{
        f"wd-{name}": ScheduleEntry(f"wd-{name}", (), _PARAMETERS, _decay)
        for name in ("constant", "linear", "cosine")
    },
}
