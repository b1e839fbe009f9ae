"""The schedulers of DeepSpeed, and their sections in its config.

The scheduler steps after the update: update t uses the value of its step t - 1, and update 0 the
value that the constructor leaves in the optimizer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import sympy as sp

from closedform.errors import ArgumentError
from closedform.frameworks.curves import along_cosine, along_line
from closedform.language import Schedule
from closedform.recipes import kit
from closedform.schedules import constant
from closedform.schedules.sweeps import range_test

VERSIONS = ("edaa72212672", "6c58fb75f^", "v0.19.0", "v0.16.0", "v0.14.0")
HEAD, FIRST_GROUP, V0_19, V0_16, V0_14 = VERSIONS
# offset=-1: DeepSpeed steps its scheduler after the optimizer, so update t has the value of
# scheduler step t - 1.
CLOCK = kit.Clock(kit.Unit.UPDATE, offset=-1)
COUNT = CLOCK.position(kit.Facts())
"""The last step of the scheduler when update t runs; -1 before the first one."""


class _Stepped(kit.Section, irrelevant="last_batch_iteration verbose"):
    pass


class _Rise(_Stepped):
    # 1,000 updates and "log" are the defaults of WarmupLR.
    warmup_num_steps: kit.RealSteps = 1000
    warmup_type: str = "log"


class _Warmup(_Rise):
    warmup_min_lr: kit.RateOrRates = 0


class WarmupLR(_Warmup):
    warmup_max_lr: kit.RateOrRates | None = None


class WarmupDecayLR(_Warmup):
    # The default 0.001 of WarmupDecayLR stays in all versions, whatever the rate of the
    # optimizer is.
    total_num_steps: kit.RealSteps
    warmup_max_lr: kit.RateOrRates = sp.Rational(1, 1000)


class WarmupCosineLR(_Rise):
    total_num_steps: kit.RealSteps
    warmup_min_ratio: kit.RateRatio = 0
    cos_min_ratio: kit.RateRatio = 0.0001


class LRRangeTest(_Stepped):
    lr_range_test_min_lr: kit.RateOrRates = 0.001
    lr_range_test_step_size: kit.Steps = 2000
    lr_range_test_step_rate: kit.Number = 1
    lr_range_test_staircase: bool = False


class OneCycle(_Stepped):
    cycle_min_lr: kit.RateOrRates
    cycle_max_lr: kit.RateOrRates
    decay_lr_rate: kit.Number = 0
    cycle_first_step_size: kit.RealSteps = 2000
    cycle_second_step_size: kit.RealSteps | None = None
    cycle_first_stair_count: int = 0
    cycle_second_stair_count: int | None = None
    decay_step_size: kit.RealSteps = 0
    cycle_momentum: bool = True
    cycle_min_mom: kit.Momentum = 0.8
    cycle_max_mom: kit.Momentum = 0.9
    decay_mom_rate: kit.Number = 0


PARAMETERS: Mapping[str, type[kit.Section]] = {
    "WarmupLR": WarmupLR,
    "WarmupDecayLR": WarmupDecayLR,
    "WarmupCosineLR": WarmupCosineLR,
    "LRRangeTest": LRRangeTest,
    "OneCycle": OneCycle,
}
"""The parameters of each scheduler."""


class Params(kit.ClassSection):
    lr: kit.Rate | None = None
    weight_decay: kit.WeightDecay | None = None
    betas: kit.Momenta = (0.9, 0.999)
    momentum: kit.Momentum = 0


class Optimizer(kit.Section, irrelevant="legacy_fusion"):
    type: str = ""
    params: Params


class Scheduler(kit.Section, irrelevant="legacy_fusion"):
    type: str = kit.choice(*PARAMETERS)
    # The parameters depend on the type, which stands next to them.
    params: Any = kit.read_by(
        lambda place, key, default: PARAMETERS[place.text("type")].read(place.section(key)), None
    )


def _rate(context: kit.Context, optimizer: Optimizer) -> sp.Expr:
    """The rate of the group: that of the optimizer unless the group has one."""
    groups, rate = context.groups, optimizer.params.lr
    if rate is None and any("lr" not in group for group in groups):
        raise optimizer.params.error("lr is missing", "lr", "give optimizer.params.lr")
    return context.of_group("lr", rate)


MUON_GROUPS = {"muon": "muon_lr", "adam": "adam_lr"}
"""The param groups of Muon, and the rates that replace ``lr`` in them."""


def is_muon(optimizer: Optimizer) -> bool:
    """Returns whether the optimizer is Muon, which has two param groups."""
    return str(optimizer.type).lower() == "muon"


def _has_one_peak(optimizer: Optimizer, params: WarmupLR) -> bool:
    """Whether a single peak replaces the rates of Muon's groups."""
    peak = params.warmup_max_lr
    return is_muon(optimizer) and peak is not None and not isinstance(peak, tuple)


def _with_groups(context: kit.Context, optimizer: Optimizer) -> kit.Context:
    """The context with the param groups of a list of rates, or of Muon."""
    facts, rates = context.facts, context.facts.get("group_lrs")
    if rates is None and is_muon(optimizer) and "param_groups" not in facts:
        params = optimizer.params.origin
        rates = [params.number(key, optimizer.params.lr) for key in MUON_GROUPS.values()]
        if "group_index" not in facts and facts.get("group") in MUON_GROUPS:
            context = context.with_facts(group_index=list(MUON_GROUPS).index(facts["group"]))
    return context if rates is None else context.with_facts(group_lrs=rates)


def _warmup_steps(context: kit.Context, params: _Rise) -> sp.Expr:
    """The length of the warmup: at least 2."""
    steps, written = params.warmup_num_steps, params.origin.content.get("warmup_num_steps")
    # A float such as 10.0 is refused by the newest version, accepted by older ones.
    is_count = steps.is_Integer and steps > 0 and not isinstance(written, float)
    if context.version in (HEAD, FIRST_GROUP) and not is_count:
        message = f"warmup_num_steps must be an integer above 0, got {written!r}"
        raise params.error(message, "warmup_num_steps")
    # max(2, ·): log(1) would be a divisor of 0.
    return max(sp.Integer(2), steps)


def _risen(params: _Rise, warmup: sp.Expr) -> kit.CurveFunction:
    """The part of the warmup that is done; an unknown type is taken as log."""
    is_linear = params.warmup_type == "linear"
    return lambda n: n / warmup if is_linear else math.log(n + 1) / math.log(warmup)


def _warmup(context: kit.Context, optimizer: Optimizer, scheduler: Scheduler) -> Schedule:
    params, is_old = scheduler.params, context.version in (V0_16, V0_14)
    warmup = _warmup_steps(context, params)
    low = params.of_group("warmup_min_lr", context)
    has_rates = scheduler.type == "WarmupLR" and _has_one_peak(optimizer, params)
    if has_rates and not context.as_implemented:
        peak = _rate(context, optimizer)
    elif params.warmup_max_lr is not None:
        # v0.16 and v0.14 had 0.001 as the default of warmup_max_lr.
        peak = params.of_group("warmup_max_lr", context)
    elif is_old or not context.as_implemented:
        peak = sp.Rational(1, 1000)
    else:
        is_first = context.version in (FIRST_GROUP, V0_19)
        peak = _rate(context.with_facts(group_index=0) if is_first else context, optimizer)
    # v0.14.0 leaves update 0 at the optimizer's rate.
    has_own_start = context.version == V0_14 and context.as_implemented
    start = _rate(context, optimizer) if has_own_start else low
    risen, total = _risen(params, warmup), getattr(params, "total_num_steps", None)

    def value(n: float) -> Any:
        if n < 0:
            return start
        if n < warmup:
            return along_line(low, peak, risen(n))
        if total is None:  # WarmupLR
            return peak
        # max(1, T - W) and max(0, ·): the decay ends at T and stays at warmup_min_lr.
        return along_line(low, peak, max(0, (total - n) / max(1, total - warmup)))

    return kit.curve(scheduler.type, value, COUNT)


def _cosine(context: kit.Context, optimizer: Optimizer, scheduler: Scheduler) -> Schedule:
    version, params = context.version, scheduler.params
    warmup, total = _warmup_steps(context, params), params.total_num_steps
    low, end = params.warmup_min_ratio, params.cos_min_ratio
    rate = _rate(context, optimizer)
    # v0.16.0 initialises the first group only.
    is_later_group = context.facts.get("group_index", 0) > 0
    if not context.as_implemented:
        start = low * rate
    elif version == V0_14 or (version == V0_16 and is_later_group):
        start = rate
    else:
        start = sp.S.Zero
    kind, risen = params.warmup_type, _risen(params, warmup)
    is_known = kind in ("log", "linear") or version not in (V0_14, V0_16)
    # After a linear warmup the implementation leaves the peak out.
    # W + 1 instead of W in the cosine: the peak of a linear warmup is skipped.
    ahead = 1 if context.as_implemented or kind != "linear" else 0
    # Up to v0.19.0 the progress is not clamped: the rate climbs after T.
    is_bounded = version in (HEAD, FIRST_GROUP) or not context.as_implemented

    def value(n: float) -> Any:
        if n < 0:
            return start
        if n < warmup:
            if not is_known:
                raise ValueError(f"UnboundLocalError: warmup_type {kind!r} is unknown")
            return along_line(low, 1, risen(n)) * rate
        # Without the clamp T = W divides by zero.
        if not is_bounded and total == warmup:
            raise ValueError("division by zero: total_num_steps is warmup_num_steps")
        progress = (n - warmup + ahead) / (max(1, total - warmup) if is_bounded else total - warmup)
        return max(0, along_cosine(1, end, min(1, progress) if is_bounded else progress)) * rate

    return kit.curve("WarmupCosineLR", value, COUNT)


def _range_test(context: kit.Context, optimizer: Optimizer, scheduler: Scheduler) -> Schedule:
    params = scheduler.params
    low, size = (
        params.of_group("lr_range_test_min_lr", context),
        params.lr_range_test_step_size,
    )
    if size <= 0:
        message = f"lr_range_test_step_size must be an integer above 0, got {size}"
        raise params.error(message, "lr_range_test_step_size")
    growth, staircase = params.lr_range_test_step_rate, params.lr_range_test_staircase
    return range_test(low, growth, size, staircase=staircase).rename("LRRangeTest")


def _cycle(
    context: kit.Context, params: OneCycle, low: sp.Expr, top: sp.Expr, decay: sp.Expr
) -> Schedule:
    """A cycle between two values, and a decay by a part of a value for each of its steps."""
    first, second = params.cycle_first_step_size, params.cycle_second_step_size
    second = first if second is None else second
    if first <= 0:
        message = f"cycle_first_step_size must be above 0, got {first}"
        raise params.error(message, "cycle_first_step_size")
    if second < 0:
        message = f"cycle_second_step_size must not be negative, got {second}"
        raise params.error(message, "cycle_second_step_size")
    up, down = params.cycle_first_stair_count, params.cycle_second_stair_count
    down = up if down is None else down
    # Stairs came with edaa72212672: before it, their counts are read and not used.
    if context.version != HEAD and context.as_implemented:
        up = down = 0
    total, size, is_rate = first + second, params.decay_step_size, context.key == "lr"
    decay = decay / size if size else 0

    def part(position: float) -> Any:
        is_first = position <= first or not second
        progress = position / first if is_first else (total - position) / second
        count = up if is_first else down
        return math.floor(progress * count) / count if count else progress

    def value(n: float) -> Any:
        if n < 0:
            return low
        if n >= total:
            after = n - total + 1
            return low / (1 + decay * after) if is_rate else top * (1 + decay * after)
        # OneCycle counts from 1; the momentum moves against the rate, down and up again.
        progress = part(n + 1 if n + 1 < total else 0)
        return along_line(low, top, progress) if is_rate else along_line(top, low, progress)

    return kit.curve("OneCycle", value, COUNT)


def _one_cycle(context: kit.Context, optimizer: Optimizer, scheduler: Scheduler) -> Schedule:
    params = scheduler.params
    low = params.of_group("cycle_min_lr", context)
    top = params.of_group("cycle_max_lr", context)
    return _cycle(context, params, low, top, params.decay_lr_rate)


def _momentum(context: kit.Context, optimizer: Optimizer, scheduler: Scheduler) -> Schedule:
    """The momentum: OneCycle drives the betas of an optimizer that has them."""
    key, params = context.key, scheduler.params
    if key not in ("beta1", "beta2", "momentum"):
        raise ArgumentError(
            f"{scheduler.type} does not schedule {key}",
            where=context.where,
            hint="it schedules lr, beta1, beta2, momentum",
        )
    # Only SGD has a momentum and no betas among DeepSpeed's optimizers.
    has_betas = optimizer.type != "SGD"
    is_driven = scheduler.type == "OneCycle" and params.cycle_momentum
    if key == "momentum" or not has_betas or not is_driven:
        entries = optimizer.params
        return constant(entries.momentum if key == "momentum" else entries.betas[key == "beta2"])
    # beta2 becomes 0.99 as soon as OneCycle drives the momentum.
    if key == "beta2":
        return constant(sp.Rational(99, 100)).rename("OneCycle")
    low, top = params.cycle_min_mom, params.cycle_max_mom
    return _cycle(context, params, low, top, params.decay_mom_rate)


_CURVES: Mapping[str, Callable[..., Schedule]] = {
    "WarmupLR": _warmup,
    "WarmupDecayLR": _warmup,
    "WarmupCosineLR": _cosine,
    "LRRangeTest": _range_test,
    "OneCycle": _one_cycle,
}


def schedule(context: kit.Context, optimizer: Optimizer, scheduler: Scheduler) -> Schedule:
    """Returns the schedule of the key of a context."""
    context = _with_groups(context, optimizer)
    curve = _CURVES[scheduler.type] if context.key == "lr" else _momentum
    return curve(context, optimizer, scheduler)


_FILE = "deepspeed/runtime/lr_schedules.py"
_LINES, _CYCLES = ("WarmupLR", "WarmupDecayLR"), ("OneCycle",)
_COSINES = ("WarmupCosineLR",)


def _note(
    text: str,
    line: str,
    classes: tuple[str, ...],
    concerns: Callable[[Any], bool] = lambda params: True,
    documented: str | None = None,
    versions: tuple[str, ...] = (),
) -> kit.Note[[Optimizer, Scheduler | None]]:
    """A note on scheduler classes with some parameters; without a formula it is a convention."""

    def applies(optimizer: Optimizer, scheduler: Scheduler | None) -> bool:
        return scheduler is not None and scheduler.type in classes and concerns(scheduler.params)

    place = f"{_FILE}{line}"
    if documented is None:
        return kit.Convention(text, place, applies, classes, versions)
    return kit.Defect(text, place, applies, classes, versions, documented)


DEFECTS: Mapping[str, kit.Note[[Optimizer, Scheduler | None]]] = {
    "one-update-late": _note(
        "the scheduler is one step late: updates 0 and 1 both use the start of the warmup",
        ":735",
        _LINES,
    ),
    "starts-at-the-full-rate": _note(
        "update 0 uses the optimizer's rate",
        "@v0.14.0:682",
        (*_LINES, *_COSINES),
        documented="the start of the warmup in update 0",
        versions=(V0_14,),
    ),
    "logarithmic-warmup": _note(
        "without warmup_type the warmup is logarithmic",
        ":705",
        (*_LINES, *_COSINES),
        lambda params: "warmup_type" not in params,
    ),
    "default-peak-is-the-rate": _note(
        "without warmup_max_lr the peak is the rate of the optimizer",
        ":714",
        ("WarmupLR",),
        lambda params: "warmup_max_lr" not in params,
        documented="a peak of 0.001",
        versions=(HEAD, FIRST_GROUP, V0_19),
    ),
    "one-peak-for-groups": kit.Defect(
        "a single warmup_max_lr replaces muon_lr and adam_lr",
        f"{_FILE}:721",
        lambda optimizer, scheduler: (
            scheduler is not None
            and scheduler.type == "WarmupLR"
            and _has_one_peak(optimizer, scheduler.params)
        ),
        documented="the rate of each group as its peak",
        classes=("WarmupLR-groups",),
    ),
    "peak-of-the-first-group": kit.Convention(
        "without warmup_max_lr the peak of every group is the rate of the first one",
        f"{_FILE}@6c58fb75f^:683",
        lambda optimizer, scheduler: (
            is_muon(optimizer)
            and scheduler is not None
            and scheduler.type == "WarmupLR"
            and scheduler.params.warmup_max_lr is None
        ),
        classes=("WarmupLR-groups",),
        versions=(FIRST_GROUP, V0_19),
    ),
    "default-peak": _note(
        "the default peak is 0.001, whatever the rate of the optimizer is",
        ":793",
        ("WarmupDecayLR",),
        lambda params: "warmup_max_lr" not in params,
    ),
    "starts-at-zero": _note(
        "update 0 is 0, whatever warmup_min_ratio is",
        ":914",
        _COSINES,
        lambda params: params.warmup_min_ratio != 0,
        documented="warmup_min_ratio of the rate in update 0",
        versions=(HEAD, FIRST_GROUP, V0_19, V0_16),
    ),
    "peak-left-out": _note(
        "with a linear warmup, the peak is never reached",
        ":893",
        _COSINES,
        lambda params: params.warmup_type == "linear",
        documented="a cosine that begins at the peak",
    ),
    "rises-again": _note(
        "before the commit edaa72212672, the rate rises again after the last step",
        "@v0.19.0:850",
        _COSINES,
        versions=(V0_19, V0_16, V0_14),
    ),
    "stairs-ignored": _note(
        "before the commit edaa72212672, stair counts have no effect",
        "@v0.19.0:487",
        _CYCLES,
        lambda params: bool(params.cycle_first_stair_count or params.cycle_second_stair_count),
        documented="the stairs of the newest version",
        versions=(FIRST_GROUP, V0_19, V0_16, V0_14),
    ),
    "no-scheduler": kit.Convention(
        "DeepSpeed leaves the rate alone; the script may have a scheduler",
        "deepspeed/runtime/engine.py:1558",
        lambda optimizer, scheduler: scheduler is None,
    ),
}
