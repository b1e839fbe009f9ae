"""The schedulers of pytorch-accelerated 0.1.61: each a function of the group's base value.

The step is the argument ``num_updates`` of ``get_updated_values``; ``step()`` sets the value of
step 0 twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import sympy as sp

from closedform.errors import ArgumentError, DefinitionError
from closedform.language import Schedule, sequential, t
from closedform.recipes import kit
from closedform.schedules import (
    constant,
    cosine_k_decay,
    linear,
    multi_step,
    step_decay,
    wsd_checkpoints,
)
from closedform.schedules.blends import along_line

# max_safe_ratio of wsd_scheduler.py.
_LARGEST_RATIO = sp.Rational(1, 3)


def checkpoint_steps(total_steps: int, num_checkpoints: int = 3) -> list[int]:
    """Returns the implemented ends of the periods: a quarter of the run, doubled each time.

    Args:
        total_steps: The number of steps N of the run, at least 1.
        num_checkpoints: How many are wanted; with more than three, N itself is the last one.

    Example:
        >>> checkpoint_steps(100, 1), checkpoint_steps(100, 2), checkpoint_steps(103, 4)
        ([100], [25, 50], [25, 50, 100, 103])
    """
    if num_checkpoints == 1:
        return [total_steps]
    marks: list[int] = []
    for index in range(num_checkpoints):
        # total // 4 · 2^i: a quarter, a half, all of it, in whole steps.
        marks.append(min(total_steps // 4 * 2**index, total_steps))
        if marks[-1] == total_steps or marks[-1] == 0:
            break
    return marks


@dataclass(frozen=True, slots=True)
class WsdPlan:
    """The plan that the arguments of a WSDLrScheduler define.

    Attributes:
        total_steps: The number of steps of the run.
        num_warmup_steps: The number of steps of the warmup.
        decay_phase_ratio: The part of each period in which it decays.
        lr_min: The end of a decay, as a part of the base value.
        warmup_starting_lr: The value at step 0, where there is a warmup.
        use_inverse_sqrt_decay: The shape: 1 - sqrt(p), or inverse proportional.
        num_checkpoints: The number of checkpoints that was asked for.
        is_continuation_from_checkpoint: Whether the warmup is left out.
    """

    total_steps: int
    num_warmup_steps: int
    decay_phase_ratio: sp.Rational
    lr_min: sp.Expr
    warmup_starting_lr: sp.Expr
    use_inverse_sqrt_decay: bool
    num_checkpoints: int
    is_continuation_from_checkpoint: bool

    @property
    def checkpoint_steps(self) -> tuple[int, ...]:
        """The steps at which periods end."""
        return tuple(checkpoint_steps(self.total_steps, self.num_checkpoints))

    def get_checkpoint_steps(self) -> list[int]:
        """Returns the steps at which periods end."""
        return list(self.checkpoint_steps)

    def get_phase_info(self, num_updates: int) -> dict[str, int]:
        """Returns the period of a step; a checkpoint belongs to the period that ends there.

        Beyond the last checkpoint it is the last period.
        """
        periods = [info for info in self.get_decay_info() if info["period_end"] >= num_updates]
        return periods[0] if periods else self.get_decay_info()[-1]

    def get_decay_info(self) -> list[dict[str, int]]:
        """Returns for each period its start, its end, its decay's length and first step."""
        starts = (0, *self.checkpoint_steps)
        return [
            {
                "period_start": start,
                "period_end": stop,
                # int() of a product of floats: 28 steps for 0.29 of 100 (wsd_scheduler.py:200).
                "decay_steps": (steps := int(float(self.decay_phase_ratio) * (stop - start))),
                "pre_decay_step": stop - steps,
            }
            for start, stop in zip(starts, self.checkpoint_steps, strict=False)
        ]


def read_plan(arguments: Mapping[str, Any], context: kit.Context) -> WsdPlan:
    """Returns the plan of checked arguments, after the state of a first run was loaded if any was.

    As documented, a continuation has its own arguments and no warmup. As implemented, loading a
    state overwrites all of them, including the switch itself, except the length of a continuation.

    Raises:
        ArgumentError: The length is missing, or given twice.
        DefinitionError: The ratio is too large for several checkpoints, the run too short for
            them, or ``continuation`` has another form.
    """
    plan = _plan(arguments, context)
    continuation = arguments["continuation"]
    if continuation is None:
        return plan
    if not isinstance(continuation, Mapping) or not isinstance(continuation.get("first"), Mapping):
        raise DefinitionError(
            f'continuation must be {{"first": {{…}}, "load_state": bool}}, got {continuation!r}'
        )
    if not context.as_implemented or not continuation.get("load_state", True):
        return plan
    entry = kit.find_schedule("WSDLrScheduler", context)
    first = _plan(
        kit.fill(entry.parameters, continuation["first"], f"{context.where} > first"), context
    )
    if not plan.is_continuation_from_checkpoint:
        return first
    return replace(first, total_steps=plan.total_steps)


def _plan(arguments: Mapping[str, Any], context: kit.Context) -> WsdPlan:
    total = _total(arguments, context)
    warmup = arguments["num_warmup_steps"]
    plan = WsdPlan(
        total_steps=total,
        # int(0.01 · total) of upstream, which equals total // 100 for all runs below 200,000 steps.
        num_warmup_steps=total // 100 if warmup is None else warmup,
        decay_phase_ratio=arguments["decay_phase_ratio"],
        lr_min=arguments["lr_min"],
        warmup_starting_lr=arguments["warmup_starting_lr"],
        use_inverse_sqrt_decay=arguments["use_inverse_sqrt_decay"],
        num_checkpoints=arguments["num_checkpoints"],
        is_continuation_from_checkpoint=arguments["is_continuation_from_checkpoint"],
    )
    if plan.num_checkpoints > 1 and plan.decay_phase_ratio > _LARGEST_RATIO:
        raise DefinitionError(
            f"decay_phase_ratio must be at most 1/3 with several checkpoints, got "
            f"{plan.decay_phase_ratio}"
        )
    if plan.checkpoint_steps[0] == 0:
        raise DefinitionError(
            f"total_steps must be at least 4 for several checkpoints, got {total}"
        )
    if not plan.use_inverse_sqrt_decay and plan.lr_min == 0:
        raise DefinitionError(
            "lr_min must be above 0 where use_inverse_sqrt_decay is False, got 0",
            hint="the inverse of the rate rises along a line; it cannot reach infinity",
        )
    return plan


def _total(arguments: Mapping[str, Any], context: kit.Context) -> int:
    """The length: of epochs times steps per epoch, or given itself."""
    epochs, per_epoch = arguments["num_epochs"], arguments["num_update_steps_per_epoch"]
    total = arguments["total_steps"]
    if epochs is not None and per_epoch is not None:
        if total is not None:
            raise DefinitionError(
                f"total_steps must be left out where epochs and steps per epoch are given, "
                f"got {total}"
            )
        return int(epochs * per_epoch)
    if total is None:
        raise ArgumentError(
            "missing argument 'total_steps'",
            hint="give it, or num_epochs and num_update_steps_per_epoch",
        )
    return int(total)


def _cosine(arguments: kit.Arguments, context: kit.Context) -> Schedule:
    """Warmup, a cosine of the time to the power k_decay, and the minimum.

    As implemented, the cosine ends as many steps early as the warmup is long, and the warmup from a
    ratio has the slope of the one from ``warmup_starting_lr``.
    """
    base, per_epoch = kit.base_value(context), arguments["num_update_steps_per_epoch"]
    names = ("total_num_epochs", "num_warmup_epochs", "num_cooldown_epochs")
    steps, warmup, cooldown = (arguments[name] * per_epoch for name in names)
    if warmup + cooldown > steps:
        raise DefinitionError(
            f"warmup and cooldown must fit into the epochs, got {warmup} + {cooldown} of {steps} "
            "steps"
        )
    low = (
        arguments["lr_min"]
        if arguments["min_lr_ratio"] is None
        else arguments["min_lr_ratio"] * base
    )
    default_start, ratio = arguments["warmup_starting_lr"], arguments["warmup_starting_lr_ratio"]
    # The ratio's start with the default start's slope: cosine_scheduler.py adds num_updates · (lr -
    # warmup_lr_init) / warmup.
    start = default_start if ratio is None else ratio * base
    fall = steps - warmup - cooldown
    if not (warmup.is_Integer and cooldown.is_Integer) and fall != 0 and arguments["k_decay"] != 0:
        wave = along_line(
            low, base, (1 + sp.cos(sp.pi * ((t - warmup) / fall) ** arguments["k_decay"])) / 2
        )
        slope = base - default_start if context.as_implemented else base - start
        # The cosine is cut at total - (warmup + cooldown), but counts from the warmup's end.
        end = fall if context.as_implemented else steps - cooldown
        rise = start + t * slope / warmup if warmup else start
        cut = sp.Piecewise((wave, t < sp.Max(end, warmup)), (low, True))
        return Schedule(_after(rise, cut, warmup), length=steps)
    if fall == 0 or arguments["k_decay"] == 0:  # 0^0 is 1: power 0 is at the minimum throughout.
        curve = constant(low)
    elif context.as_implemented and warmup:
        curve = cosine_k_decay(base, low, fall, arguments["k_decay"])
    else:
        return cosine_k_decay(base, low, steps, arguments["k_decay"], warmup, start, cooldown)
    if not warmup:
        return curve
    local = curve.bound.xreplace({t: t - warmup})
    if not context.as_implemented:
        return Schedule(_after(along_line(start, base, t / warmup), local, warmup))
    cut = sp.Piecewise((local, t < max(fall, warmup)), (low, True))
    return Schedule(_after(start + t * (base - default_start) / warmup, cut, warmup), length=steps)


def _after(rise: sp.Expr, curve: sp.Expr, warmup: sp.Expr) -> sp.Expr:
    return sp.Piecewise((rise, t < warmup), (curve, True))


def _wsd(arguments: kit.Arguments, context: kit.Context) -> Schedule:
    """Warmup, and a decay before each checkpoint.

    As implemented, loading a state brings back every argument of the first run except the length.
    """
    plan = read_plan(arguments, context)
    base = kit.base_value(context)
    bases = [value for value in context.bases if value is not None]
    largest = max(kit.checks.number(value, "base", context.where) for value in bases)
    if plan.warmup_starting_lr > largest:
        raise DefinitionError(
            f"warmup_starting_lr must be at most the largest base value {largest}, got "
            f"{plan.warmup_starting_lr}"
        )
    return _build_from_plan(plan, base, context)


def _build_from_plan(plan: WsdPlan, base: sp.Expr, context: kit.Context) -> Schedule:
    marks = list(plan.checkpoint_steps)
    end = base * plan.lr_min
    stable = [info for info in plan.get_decay_info() if info["decay_steps"] == 0]
    if stable and stable[0]["period_start"] == 0:
        raise DefinitionError(
            f"decay_phase_ratio is {plan.decay_phase_ratio}: the decay before checkpoint "
            f"{marks[0]} has no steps, and later steps have no value",
            hint="take a larger ratio",
        )
    decay_marks = [mark for mark in marks if not stable or mark <= stable[0]["period_start"]]
    shape = "sqrt" if plan.use_inverse_sqrt_decay else "inverse"
    # The exact ratio whose floors are these lengths; that of decay_phase_ratio may be one more.
    ratio = max(
        sp.Rational(info["decay_steps"], info["period_end"] - info["period_start"])
        for info in plan.get_decay_info()
    )
    falling = wsd_checkpoints(
        base,
        end,
        decay_marks[-1],
        0,
        ratio,
        decay_marks,
        shape=shape,
    )
    if stable:  # A last period of a few steps, too short for a decay.
        flat = [constant(base), constant(end)]
        falling = sequential([falling, *flat], [decay_marks[-1], marks[-1]])
    if plan.is_continuation_from_checkpoint or not plan.num_warmup_steps:
        return falling
    warmup = plan.num_warmup_steps
    rise = linear(plan.warmup_starting_lr, base, warmup)
    return sequential([rise, falling.shift(warmup)], [warmup], name="wsd_checkpoints")


def _milestones(arguments: kit.Arguments, context: kit.Context) -> Schedule:
    """The first example of the documents: a factor when an epoch of the list begins."""
    marks = sorted(
        {mark * arguments["num_steps_per_epoch"] for mark in arguments["epoch_milestones"]}
    )
    return multi_step(kit.base_value(context), arguments["gamma"], marks)


_LOW = kit.Parameter("lr_min", 1e-6, kit.checks.at_least(0))
_WARMUP_START = kit.Parameter("warmup_starting_lr", 1e-6, kit.checks.number)
_PER_EPOCH = kit.Parameter("num_update_steps_per_epoch", kit.REQUIRED, kit.checks.count(1))
_GAMMA = kit.Parameter("gamma", kit.REQUIRED, kit.checks.number)
_ENTRIES = (
    kit.ScheduleEntry(
        "CosineLrScheduler",
        ("cosine_k_decay",),
        (
            kit.Parameter("total_num_epochs", kit.REQUIRED, kit.checks.count(1)),
            _PER_EPOCH,
            kit.Parameter("k_decay", 1.0, kit.checks.at_least(0)),
            _LOW,
            kit.Parameter("min_lr_ratio", None, kit.checks.number),
            kit.Parameter("num_warmup_epochs", 0, kit.checks.at_least(0)),
            _WARMUP_START,
            kit.Parameter("warmup_starting_lr_ratio", None, kit.checks.number),
            kit.Parameter("num_cooldown_epochs", 0, kit.checks.at_least(0)),
        ),
        _cosine,
    ),
    kit.ScheduleEntry(
        "WSDLrScheduler",
        ("wsd_checkpoints",),
        (
            kit.Parameter("num_epochs", None, kit.checks.count(1)),
            kit.Parameter("num_update_steps_per_epoch", None, kit.checks.count(1)),
            kit.Parameter("total_steps", None, kit.checks.count(1)),
            kit.Parameter("num_warmup_steps", 0, kit.checks.optional(kit.checks.count(0))),
            kit.Parameter("decay_phase_ratio", 0.1, kit.checks.in_range(0, 1)),
            _LOW,
            _WARMUP_START,
            kit.Parameter("use_inverse_sqrt_decay", True, kit.checks.flag),
            kit.Parameter("num_checkpoints", 1, kit.checks.count(1)),
            kit.Parameter("is_continuation_from_checkpoint", False, kit.checks.flag),
            kit.Parameter("continuation", None),
        ),
        _wsd,
    ),
    kit.ScheduleEntry(
        "StatefulSchedulerBase:Milestone",
        ("multi_step",),
        (
            _GAMMA,
            kit.Parameter("epoch_milestones", kit.REQUIRED, kit.checks.integer_milestones),
            kit.Parameter("num_steps_per_epoch", kit.REQUIRED, kit.checks.count(1)),
        ),
        _milestones,
    ),
    kit.ScheduleEntry(
        "StatefulSchedulerBase:StepWd",
        ("step_decay",),
        (kit.Parameter("n", kit.REQUIRED, kit.checks.count(1)), _GAMMA),
        kit.of_base(step_decay, "gamma", "n"),
    ),
)
SCHEDULES = {entry.name: entry for entry in _ENTRIES}


def wsd_plan(config: Mapping[str, Any], as_implemented: bool = False) -> WsdPlan:
    """Returns the plan that the arguments of a WSDLrScheduler define, with its methods.

    Args:
        config: The arguments of the class.
        as_implemented: As in ``schedule``.

    Raises:
        ArgumentError: An argument is missing or unknown.
        DefinitionError: The arguments are not valid.

    Example:
        >>> plan = wsd_plan({"total_steps": 100, "num_checkpoints": 2})
        >>> plan.get_checkpoint_steps(), plan.get_phase_info(30)["pre_decay_step"]
        ([25, 50], 48)
    """
    framework, name = "pytorch_accelerated", "WSDLrScheduler"
    context = kit.Context(framework, SCHEDULES, as_implemented=as_implemented, path=(name,))
    with kit.locate_errors(context.where):
        return read_plan(kit.fill(SCHEDULES[name].parameters, config, context.where), context)
