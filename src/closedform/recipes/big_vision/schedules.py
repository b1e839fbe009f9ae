"""The learning rate of big_vision: the multiplier of ``create_learning_rate_schedule``."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import sympy as sp

from closedform.language import Schedule, t
from closedform.recipes.clock import Clock, Facts, Unit
from closedform.recipes.entries import REQUIRED, Context, ScheduleEntry, parameters
from closedform.recipes.intervals import by_intervals, first_from
from closedform.recipes.native import check_name, exact, fact, number, options, refuse_unless
from closedform.schedules.arguments import stepwise
from closedform.schedules.blends import along_cosine, along_inverse_root, along_line

Arguments = Mapping[str, Any]
_UNITS = ("steps", "examples", "epochs", "percent")


def _duration(given: Arguments, name: str, context: Context) -> sp.Expr:
    """A length in updates, at least 1 where it is given; 0 if it is not."""
    where = context.where
    amounts = {unit: given.get(f"{name}_{unit}") for unit in _UNITS}
    # A negative amount counts as none.
    found = [
        unit
        for unit, amount in amounts.items()
        if amount is not None and number(amount, f"{name}_{unit}", where) >= 0
    ]
    refuse_unless(
        len(found) <= 1,
        f"only one of {', '.join(f'{name}_{unit}' for unit in found)} may be given",
        where,
    )
    if not found:
        return sp.S.Zero
    key = f"{name}_{found[0]}"
    if found[0] == "steps":
        return exact(given[key])
    factors = {
        "examples": lambda: 1 / fact(context, "batch_size"),
        "epochs": lambda: fact(context, "data_size") / fact(context, "batch_size"),
        "percent": lambda: fact(context, "total_steps"),
    }
    amount = given[key] * factors[found[0]]()
    refuse_unless(math.isfinite(amount), f"{key} is too large: {given[key]}", where)
    return exact(max(1, round(amount)) if amount else 0)


def _line(given: Arguments, base: sp.Expr, left: sp.Expr, context: Context) -> sp.Expr:
    power = number(given["power"], "power", context.where)
    end = given["linear_end"] if given["end"] is None else given["end"]
    return along_line(number(end, "end", context.where), base, left**power)


def _cosine(given: Arguments, base: sp.Expr, left: sp.Expr, context: Context) -> sp.Expr:
    del given, context
    return along_cosine(base, sp.S.Zero, 1 - left)


def _root(given: Arguments, base: sp.Expr, left: sp.Expr, context: Context) -> sp.Expr:
    """The inverse root, from the end of the warmup on."""
    del left
    scale = given["timescale"]
    steps = _duration(given, "timescale", context)
    scale = steps if scale is None and steps > 0 else exact(10_000 if scale is None else scale)
    shift = number(given["shift"], "shift", context.where)
    done = sp.Max(0, t - _duration(given, "warmup", context)) + shift
    return along_inverse_root(base, sp.S.Zero, done, scale)


def _stair(given: Arguments, base: sp.Expr, left: sp.Expr, context: Context) -> sp.Expr:
    """The multipliers by the number of steps that are over."""
    del left
    where = context.where
    steps = [number(step, "steps", where) for step in given["steps"]]
    mults = [number(mult, "mults", where) for mult in given["mults"]]
    refuse_unless(
        len(steps) == len(mults),
        f"there must be one of mults for each of {len(steps)} steps, got {len(mults)}",
        where,
    )
    values = [base, *(base * mult for mult in mults)]
    return stepwise(values, [sp.Integer(first_from(step)) for step in steps])


_CURVES: Mapping[str, Callable[[Arguments, sp.Expr, sp.Expr, Context], sp.Expr]] = {
    "linear": _line,
    "polynomial": _line,
    "cosine": _cosine,
    "rsqrt": _root,
    "stair": _stair,
}


def _build(given: Mapping[str, Any], context: Context) -> Schedule:
    where = context.where
    section = options(given["schedule"], where, SECTION)
    kind = section["decay_type"]
    check_name(context.path[-1], kind, "decay_type", where)
    total = exact(fact(context, "total_steps"))
    warmup = _duration(section, "warmup", context)
    cooldown = _duration(section, "cooldown", context)
    refuse_unless(
        warmup < total, f"the warmup must be shorter than {total} updates, got {warmup}", where
    )
    base = number(section["mult"], "mult", where)
    if section["scale_with_batchsize"]:
        # The reference batch of big_vision has 256 samples.
        facts = Facts(global_batch_size=fact(context, "batch_size"))
        base *= Clock(Unit.SAMPLE).per_update(facts) / 256
    left = sp.Min(1, sp.Max(0, total - t) / (total - warmup))
    rate = _CURVES[kind](section, base, left, context)
    if warmup > 0:
        rate *= sp.Min(1, t / warmup)
    if cooldown > 0:
        rate *= sp.Min(1, (total - t) / cooldown)
    return by_intervals(kind, (lambda: rate, None))


SECTION: Arguments = {
    "decay_type": REQUIRED,
    "mult": 1.0,
    "scale_with_batchsize": False,
    "linear_end": 0,
    "end": None,
    "power": 1,
    "timescale": None,
    "shift": 0,
    "steps": (),
    "mults": (),
    **{f"{name}_{unit}": None for name in ("warmup", "cooldown", "timescale") for unit in _UNITS},
}
_NOTES = (
    "it multiplies the weight decay as well",
    "a cooldown makes it negative after the run",
)
SCHEDULES = {
    name: ScheduleEntry(name, (), parameters(schedule=REQUIRED), _build, notes=_NOTES)
    for name in _CURVES
}
