"""The schedulers of DeepSpeed, from the sections ``optimizer`` and ``scheduler`` of its config.

The scheduler steps after the update: update t uses the value of its step k = t - 1, and update 0
the value that the constructor leaves in the optimizer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import sympy as sp

from closedform.errors import ArgumentError
from closedform.language import Schedule, floor_div, floor_mod, t
from closedform.recipes.clock import Clock, Facts
from closedform.recipes.entries import (
    REQUIRED,
    Context,
    ScheduleBuilder,
    ScheduleEntry,
    parameters,
)
from closedform.recipes.intervals import UndefinedError, by_intervals, first_from
from closedform.recipes.native import (
    check_name,
    entry,
    group_rate,
    number,
    options,
    refuse_unless,
)
from closedform.schedules.blends import along_cosine, along_line, logarithmic
from closedform.schedules.sweeps import range_test

VERSIONS = ("edaa72212672", "v0.19.0", "v0.16.0", "v0.14.0")
HEAD, V0_19, V0_16, V0_14 = VERSIONS
STEP = Clock(offset=-1).position(Facts())
"""The last step of the scheduler when update t runs."""

Arguments = Mapping[str, Any]
Curve = Callable[[Arguments, sp.Expr, Context], Schedule]

_TORCH = {"beta1": 0.9, "beta2": 0.999, "momentum": 0.0}
"""The defaults of torch's optimizers."""


def _of(curve: Curve, defaults: Arguments) -> ScheduleBuilder:
    """The builder that reads the two sections."""

    def build(given: Arguments, context: Context) -> Schedule:
        where = context.where
        scheduler = options(given["scheduler"], where, {"type": REQUIRED, "params": {}})
        check_name(context.path[-1], scheduler["type"], "scheduler.type", where)
        arguments = options(scheduler["params"], where, defaults)
        if context.key != "lr":
            return _momentum(given["optimizer"], arguments, context)
        rate = entry(given["optimizer"], "params.lr", where)
        return curve(arguments, group_rate(context, rate), context)

    return build


def _group_value(value: object, name: str, context: Context) -> sp.Expr:
    """A number, or that of the group where the argument is a list with one for each group."""
    if isinstance(value, list | tuple):
        groups = len(context.facts.get("param_groups", (None,)))
        refuse_unless(
            len(value) == groups,
            f"{name} must hold one value for each of {groups} param groups, got {len(value)}",
            context.where,
        )
        value = value[context.facts.get("group_index", 0)]
    return number(value, name, context.where)


def _warmup_steps(given: Arguments, context: Context) -> sp.Expr:
    """The length of the warmup: at least 2."""
    steps = given["warmup_num_steps"]
    is_count = isinstance(steps, int) and not isinstance(steps, bool) and steps > 0
    refuse_unless(
        context.version != HEAD or is_count,
        f"warmup_num_steps must be an integer above 0, got {steps!r}",
        context.where,
    )
    return max(sp.Integer(2), number(steps, "warmup_num_steps", context.where))


def _rise(given: Arguments, warmup: sp.Expr) -> sp.Expr:
    """The part of the warmup that is done; an unknown type is taken as log."""
    if given["warmup_type"] == "linear":
        return STEP / warmup
    return logarithmic(STEP, warmup)


def _warmup(given: Arguments, rate: sp.Expr, context: Context) -> Schedule:
    where = context.where
    warmup = _warmup_steps(given, context)
    low = _group_value(given["warmup_min_lr"], "warmup_min_lr", context)
    top = given["warmup_max_lr"]
    if top is not None:
        peak = _group_value(top, "warmup_max_lr", context)
    elif "total_num_steps" in given or context.version in (V0_16, V0_14):
        peak = sp.Rational(1, 1000)
    else:
        peak = rate
    start = rate if context.version == V0_14 else low
    arrival = first_from(warmup) + 1
    begin = (lambda: start, 1)
    rise = (lambda: along_line(low, peak, _rise(given, warmup)), arrival)
    if "total_num_steps" not in given:
        return by_intervals("WarmupLR", begin, rise, (lambda: peak, None))
    total = number(given["total_num_steps"], "total_num_steps", where)
    rest = sp.Max(0, (total - STEP) / max(sp.S.One, total - warmup))
    return by_intervals("WarmupDecayLR", begin, rise, (lambda: along_line(low, peak, rest), None))


def _cosine(given: Arguments, rate: sp.Expr, context: Context) -> Schedule:
    where, version = context.where, context.version
    warmup = _warmup_steps(given, context)
    total = number(given["total_num_steps"], "total_num_steps", where)
    low = number(given["warmup_min_ratio"], "warmup_min_ratio", where)
    end = number(given["cos_min_ratio"], "cos_min_ratio", where)
    own = version == V0_14 or (version == V0_16 and context.facts.get("group_index", 0) > 0)
    is_known = given["warmup_type"] in ("log", "linear")

    def rise() -> sp.Expr:
        if version in (V0_14, V0_16) and not is_known:
            raise UndefinedError(
                f"UnboundLocalError: warmup_type {given['warmup_type']!r} is unknown"
            )
        return along_line(low, sp.S.One, _rise(given, warmup)) * rate

    def fall() -> sp.Expr:
        length = total - warmup
        if version == HEAD:
            length = max(sp.S.One, length)
        if length == 0:
            raise UndefinedError("division by zero: total_num_steps is warmup_num_steps")
        progress = (STEP - warmup + 1) / length
        if version == HEAD:
            progress = sp.Min(1, progress)
        return sp.Max(0, along_cosine(sp.S.One, end, progress)) * rate

    return by_intervals(
        "WarmupCosineLR",
        (lambda: rate if own else sp.S.Zero, 1),
        (rise, first_from(warmup) + 1),
        (fall, None),
    )


def _range_test(given: Arguments, rate: sp.Expr, context: Context) -> Schedule:
    del rate
    where = context.where
    low = _group_value(given["lr_range_test_min_lr"], "lr_range_test_min_lr", context)
    size = number(given["lr_range_test_step_size"], "lr_range_test_step_size", where)
    growth = number(given["lr_range_test_step_rate"], "lr_range_test_step_rate", where)
    refuse_unless(
        size > 0 and size.is_Integer,
        f"lr_range_test_step_size must be an integer above 0, got {size}",
        where,
    )
    staircase = bool(given["lr_range_test_staircase"])
    return range_test(low, growth, size, staircase=staircase).rename("LRRangeTest")


def _one_cycle(given: Arguments, rate: sp.Expr, context: Context) -> Schedule:
    del rate
    where, cycle = context.where, _cycle(given, context)
    decay = number(given["decay_step_size"], "decay_step_size", where)
    low = _group_value(given["cycle_min_lr"], "cycle_min_lr", context)
    top = _group_value(given["cycle_max_lr"], "cycle_max_lr", context)
    fall = number(given["decay_lr_rate"], "decay_lr_rate", where)
    last = low / (1 + fall * cycle.after / decay) if decay and fall else low
    curve = along_line(low, top, cycle.scale)
    return by_intervals(
        "OneCycle", (lambda: low, 1), (lambda: curve, cycle.end), (lambda: last, None)
    )


@dataclass(frozen=True, slots=True)
class _Cycle:
    """The position in the cycle, the updates since its end, and the first update after it."""

    scale: sp.Expr
    after: sp.Expr
    end: int


def _cycle(given: Arguments, context: Context) -> _Cycle:
    where = context.where
    first = number(given["cycle_first_step_size"], "cycle_first_step_size", where)
    second = given["cycle_second_step_size"]
    second = first if second is None else number(second, "cycle_second_step_size", where)
    refuse_unless(first > 0, f"cycle_first_step_size must be above 0, got {first}", where)
    refuse_unless(second >= 0, f"cycle_second_step_size must not be negative, got {second}", where)
    up, down = given["cycle_first_stair_count"], given["cycle_second_stair_count"]
    down = up if down is None else down
    if context.version != HEAD:
        up = down = 0
    total = first + second
    scale = _triangle(first, second, (up, down))
    return _Cycle(scale, STEP - total + 1, first_from(total) + 1)


def _triangle(first: sp.Expr, second: sp.Expr, stairs: tuple[int, int]) -> sp.Expr:
    """The position between the ends of the cycle, at update t."""
    position = floor_mod(t, first + second)
    up = position / first
    if stairs[0]:
        up = floor_div(up * stairs[0], 1) / stairs[0]
    if not second:
        return up
    down = (first + second - position) / second
    if stairs[1]:
        down = floor_div(down * stairs[1], 1) / stairs[1]
    return sp.Piecewise((up, position <= first), (down, True))


def _momentum(optimizer: object, given: Arguments, context: Context) -> Schedule:
    """The momentum: OneCycle drives the betas of an optimizer that has them."""
    where, key = context.where, context.key
    if key not in _TORCH:
        raise ArgumentError(
            f"{context.path[-1]} does not schedule {key}",
            where=where,
            hint=f"it schedules lr, {', '.join(_TORCH)}",
        )
    has_betas = entry(optimizer, "type", where) != "SGD"
    if key == "momentum" or not has_betas or not given.get("cycle_momentum"):
        own = entry(optimizer, "params", where)
        betas = own.get("betas", (_TORCH["beta1"], _TORCH["beta2"]))
        value = own.get("momentum", _TORCH[key]) if key == "momentum" else betas[key == "beta2"]
        return by_intervals("constant", (lambda: number(value, key, where), None))
    if key == "beta2":
        return by_intervals("OneCycle", (lambda: sp.Rational(99, 100), None))
    cycle = _cycle(given, context)
    low = number(given["cycle_min_mom"], "cycle_min_mom", where)
    top = number(given["cycle_max_mom"], "cycle_max_mom", where)
    growth = number(given["decay_mom_rate"], "decay_mom_rate", where)
    decay = number(given["decay_step_size"], "decay_step_size", where)
    last = top * (1 + growth * cycle.after / decay) if decay and growth else top
    curve = along_line(top, low, cycle.scale)
    return by_intervals(
        "OneCycle", (lambda: low, 1), (lambda: curve, cycle.end), (lambda: last, None)
    )


_WARMUP = {
    "warmup_min_lr": 0.0,
    "warmup_max_lr": None,
    "warmup_num_steps": 1000,
    "warmup_type": "log",
}
_COSINE = {
    "total_num_steps": REQUIRED,
    "warmup_min_ratio": 0.0,
    "warmup_num_steps": 1000,
    "cos_min_ratio": 0.0001,
    "warmup_type": "log",
}
_RANGE = {
    "lr_range_test_min_lr": 0.001,
    "lr_range_test_step_size": 2000,
    "lr_range_test_step_rate": 1.0,
    "lr_range_test_staircase": False,
}
_CYCLE = {
    "cycle_min_lr": REQUIRED,
    "cycle_max_lr": REQUIRED,
    "decay_lr_rate": 0.0,
    "cycle_first_step_size": 2000,
    "cycle_second_step_size": None,
    "cycle_first_stair_count": 0,
    "cycle_second_stair_count": None,
    "decay_step_size": 0,
    "cycle_momentum": True,
    "cycle_min_mom": 0.8,
    "cycle_max_mom": 0.9,
    "decay_mom_rate": 0.0,
}
_SECTIONS = parameters(optimizer=REQUIRED, scheduler=REQUIRED)
_LATE = "the scheduler is one step late: updates 0 and 1 both use the start of the warmup"
PARAMETERS: Mapping[str, Arguments] = {
    "WarmupLR": _WARMUP,
    "WarmupDecayLR": {"total_num_steps": REQUIRED, **_WARMUP},
    "WarmupCosineLR": _COSINE,
    "LRRangeTest": _RANGE,
    "OneCycle": _CYCLE,
}
"""The parameters of each scheduler, with their defaults."""

SCHEDULES = {
    name: ScheduleEntry(name, (), _SECTIONS, _of(curve, defaults), notes=notes)
    for name, curve, defaults, notes in (
        ("WarmupLR", _warmup, _WARMUP, (_LATE, "v0.14.0: update 0 uses the optimizer's own rate")),
        (
            "WarmupDecayLR",
            _warmup,
            PARAMETERS["WarmupDecayLR"],
            (_LATE, "the default peak is 0.001, whatever the rate of the optimizer is"),
        ),
        (
            "WarmupCosineLR",
            _cosine,
            _COSINE,
            (
                "update 0 is 0 (v0.14.0, and groups but the first in v0.16.0: the full rate)",
                "with a linear warmup, the peak is never reached",
                "before the commit edaa72212672, the rate rises again after the last step",
            ),
        ),
        ("LRRangeTest", _range_test, _RANGE, ()),
        (
            "OneCycle",
            _one_cycle,
            _CYCLE,
            ("before the commit edaa72212672, stair counts have no effect",),
        ),
    )
}
