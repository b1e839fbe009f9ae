"""The schedulers of transformers' Trainer, from the keys of ``TrainingArguments``.

Every curve is a factor of the rate of each param group; the clock is the update.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import sympy as sp

from closedform.frameworks.curves import along_line
from closedform.language import Schedule, t
from closedform.recipes import kit

CLOCK = kit.Clock(kit.Unit.UPDATE)
V4 = "4.57.1"


@dataclass(frozen=True, slots=True)
class ScheduleNumbers:
    """The numbers of a schedule.

    Attributes:
        base: The rate of the param group.
        default: The rate of the optimizer, which some factors divide by.
        warmup: The updates of the warmup.
        total: The updates of the run.
        context: The context of the framework.
        count: The count of the clock at update t.
    """

    base: sp.Expr
    default: sp.Expr
    warmup: sp.Expr
    total: sp.Expr
    context: kit.Context
    count: sp.Expr = t

    @property
    def rest(self) -> sp.Expr:
        """The updates after the warmup, at least 1."""
        # max(1, ·) of transformers/optimization.py: a warmup of the whole run divides by 1.
        return max(sp.S.One, self.total - self.warmup)


class Cosine(kit.Section):
    num_cycles: kit.Number = 0.5


class CosineWithMinLr(Cosine):
    min_lr: kit.EndRate | None = None
    min_lr_rate: kit.RateRatio | None = None


SHAPES = ("linear", "cosine", "1-sqrt")


class CosineWithRestarts(kit.Section):
    num_cycles: kit.Number = 1


class Polynomial(kit.Section):
    lr_end: kit.EndRate = 1e-7
    power: kit.Power = 1


class InverseSqrt(kit.Section):
    timescale: kit.Steps | None = None


class CosineWarmupWithMinLr(CosineWithMinLr):
    warmup_lr_rate: kit.RateRatio | None = None


class WarmupStableDecay(Cosine):
    num_decay_steps: kit.RealSteps
    num_stable_steps: kit.RealSteps | None = None
    warmup_type: str = kit.choice(*SHAPES, default="linear")
    decay_type: str = kit.choice(*SHAPES, default="cosine")
    min_lr_ratio: kit.RateRatio = 0


# From the count n, the run and the keys to the factor of the rate, after a warmup from 0.
def _linear(n: float, run: ScheduleNumbers, keys: kit.Section) -> sp.Expr:
    return max(0, (run.total - n) / run.rest)


def _wave(n: float, run: ScheduleNumbers, keys: Cosine) -> sp.Expr:
    return (1 + math.cos(2 * math.pi * keys.num_cycles * ((n - run.warmup) / run.rest))) / 2


def _restarts(n: float, run: ScheduleNumbers, keys: CosineWithRestarts) -> sp.Expr:
    # The rate is 0 from the end on, where the cosine would restart.
    if n >= run.warmup + run.rest:
        return 0
    return (1 + math.cos(math.pi * (keys.num_cycles * (n - run.warmup) % run.rest / run.rest))) / 2


def _polynomial(n: float, run: ScheduleNumbers, keys: Polynomial) -> sp.Expr:
    end, length = keys.lr_end, run.total - run.warmup
    # current_step > num_training_steps, so that update T is still on the curve.
    if n > run.total:
        return end / run.default
    # No max(1, ·) here: a warmup of the whole run divides by zero after the last update.
    if length == 0:
        raise ZeroDivisionError("division by zero")
    factor = (run.total - n) ** keys.power / length**keys.power
    return along_line(end, run.default, factor) / run.default


def _constant(n: float, run: ScheduleNumbers, keys: kit.Section) -> sp.Expr:
    return 1


def _inverse_root(n: float, run: ScheduleNumbers, keys: InverseSqrt) -> sp.Expr:
    # num_warmup_steps or 10_000: transformers 5.23.0, optimization.py, get_inverse_sqrt_schedule.
    scale = (run.warmup or 10_000) if keys.timescale is None else keys.timescale
    return math.sqrt(scale) / math.sqrt(n - run.warmup + scale)


def _wave_to_minimum(n: float, run: ScheduleNumbers, keys: CosineWithMinLr) -> sp.Expr:
    low = keys.min_lr / run.default if keys.min_lr_rate is None else keys.min_lr_rate
    return max(0, along_line(low, 1, _wave(n, run, keys)))


def _one_ahead(n: float, run: ScheduleNumbers, keys: CosineWarmupWithMinLr) -> sp.Expr:
    """The warmup from its first step on, and the cosine one step ahead.

    The peak of the warmup is that of its last update in both cases: the docstring leaves the warmup
    open, and states a cosine that begins at the rate of the optimizer.
    """
    first = keys.warmup_lr_rate
    if n < run.warmup and first is None:
        return (n + 1) / max(1, run.warmup)
    if n < run.warmup:
        # max(1, W - 1): the last update of the warmup has the peak.
        return along_line(first or 0, 1, n / max(1, run.warmup - 1))
    return _wave_to_minimum(n + 1 if run.context.as_implemented else n, run, keys)


def _wsd(n: float, run: ScheduleNumbers, keys: WarmupStableDecay) -> sp.Expr:
    low, decay, flat = keys.min_lr_ratio, keys.num_decay_steps, keys.num_stable_steps
    # A given num_stable_steps wins over the length of the run.
    begin = run.total - decay if flat is None else run.warmup + flat
    if n < run.warmup:
        factor = _rising(keys.warmup_type, n, max(1, run.warmup))
    elif n < begin:
        return 1
    elif n < begin + decay:
        factor = _falling(keys.decay_type, n - begin, max(1, decay), keys.num_cycles)
    else:
        return low
    # min_lr_ratio is mixed into the warmup, too: it starts at that part of the rate.
    return max(0, along_line(low, 1, factor))


def _rising(kind: str, steps: float, length: float) -> sp.Expr:
    if kind == "linear":
        return steps / length
    if kind == "cosine":
        return (1 - math.cos(math.pi * steps / length)) / 2
    return 1 - math.sqrt(length - steps) / math.sqrt(length)


def _falling(kind: str, steps: float, length: float, cycles: float) -> sp.Expr:
    if kind == "linear":
        return 1 - steps / length
    if kind == "cosine":
        return (1 + math.cos(2 * math.pi * cycles * (steps / length))) / 2
    return 1 - math.sqrt(steps) / math.sqrt(length)


CURVES: Mapping[str, tuple[kit.CurveFunction, type[kit.Section]]] = {
    "linear": (_linear, kit.Section),
    "cosine": (_wave, Cosine),
    "cosine_with_restarts": (_restarts, CosineWithRestarts),
    "polynomial": (_polynomial, Polynomial),
    "constant": (_constant, kit.ClassSection),
    "constant_with_warmup": (_constant, kit.ClassSection),
    "inverse_sqrt": (_inverse_root, InverseSqrt),
    "cosine_with_min_lr": (_wave_to_minimum, CosineWithMinLr),
    "cosine_warmup_with_min_lr": (_one_ahead, CosineWarmupWithMinLr),
    "warmup_stable_decay": (_wsd, WarmupStableDecay),
}
"""The schedulers by name, with the keys of ``lr_scheduler_kwargs``; constants ignore them."""
_OWN_WARMUPS = ("constant", "cosine_warmup_with_min_lr", "warmup_stable_decay")

OF_LOSS = ("reduce_lr_on_plateau", "greedy")
"""Schedulers that are functions of the loss."""


class Scheduler(kit.Section):
    """The keys of TrainingArguments that decide the schedule."""

    learning_rate: kit.Rate = 5e-5
    max_steps: kit.Steps = -1
    warmup_steps: kit.RealSteps = 0
    warmup_ratio: kit.RunRatio | None = None
    lr_scheduler_type: str = kit.choice(*CURVES, *OF_LOSS, default="linear")
    lr_scheduler_kwargs: kit.ClassSection


_OPTIMIZATION = "src/transformers/optimization.py"
_AHEAD = "cosine_warmup_with_min_lr"


def _rises_again(name: str, line: int) -> kit.Note[[Scheduler]]:
    return kit.Convention(
        f"{name} rises again after the run",
        f"{_OPTIMIZATION}:{line}",
        lambda arguments: arguments.lr_scheduler_type == name,
        classes=(name,),
    )


DEFECTS: Mapping[str, kit.Note[[Scheduler]]] = {
    "cosine-1": _rises_again("cosine", 140),
    "cosine_with_min_lr-1": _rises_again("cosine_with_min_lr", 332),
    f"{_AHEAD}-1": kit.Defect(
        f"the cosine of {_AHEAD} is one step ahead: it does not begin at the peak",
        f"{_OPTIMIZATION}:408",
        lambda arguments: arguments.lr_scheduler_type == _AHEAD,
        documented="the same warmup, and a cosine that begins at the peak",
        classes=(_AHEAD,),
    ),
    f"{_AHEAD}-2": _rises_again(_AHEAD, 409),
    "inverse_sqrt-1": kit.Defect(
        "4.57.1 ignores the timescale of inverse_sqrt",
        f"{_OPTIMIZATION} (get_scheduler)",
        lambda arguments: (
            arguments.lr_scheduler_type == "inverse_sqrt"
            and "timescale" in arguments.lr_scheduler_kwargs
        ),
        documented="the inverse root with the timescale",
        classes=("inverse_sqrt",),
        versions=(V4,),
    ),
    "constant-1": kit.Convention(
        "lr_scheduler_kwargs and the warmup have no effect on constant",
        f"{_OPTIMIZATION}:1014",
        lambda arguments: (
            arguments.lr_scheduler_type == "constant"
            and bool(arguments.warmup_steps or arguments.lr_scheduler_kwargs.origin.content)
        ),
        classes=("constant",),
    ),
    "polynomial-1": kit.Convention(
        "a polynomial whose warmup is as long as the run divides by zero after the last update",
        f"{_OPTIMIZATION}:237",
        lambda arguments: (
            arguments.lr_scheduler_type == "polynomial"
            and arguments.warmup_steps == arguments.max_steps
        ),
        classes=("polynomial",),
    ),
    "warmup-ratio": kit.Convention(
        "transformers 5 replaces warmup_ratio by a warmup_steps below 1; read as before",
        "src/transformers/training_args.py:2154",
        lambda arguments: "warmup_ratio" in arguments,
        classes=(),
        versions=("5.23.0",),
    ),
    "deepspeed-scheduler": kit.Convention(
        "a scheduler or optimizer in the DeepSpeed config takes the place of this one",
        "src/transformers/integrations/deepspeed.py:576",
        lambda arguments: "deepspeed" in arguments,
        classes=(),
    ),
    "deepspeed-clipping": kit.Convention(
        "without gradient_clipping in the DeepSpeed config, max_grad_norm has no effect",
        "src/transformers/integrations/deepspeed.py:161",
        classes=(),
    ),
}


def schedule_by_name(name: str, kwargs: kit.RawSection, run: ScheduleNumbers) -> Schedule:
    """Returns the schedule of ``get_scheduler``.

    Raises:
        ConfigError: A keyword argument is missing or unknown.
        DefinitionError: An argument is not valid.
    """
    factor, section = CURVES[name]
    if run.context.as_implemented and run.context.version == V4 and name == "inverse_sqrt":
        kwargs = kit.RawSection(kwargs.document, {}, kwargs.path)
    keys = section.read(kwargs)
    if isinstance(keys, Polynomial):
        message = f"lr_end must be below the rate {run.default}, got {keys.lr_end}"
        kit.refuse_unless(keys.lr_end < run.default, message, run.context.where)
    if isinstance(keys, CosineWithMinLr):
        message = "exactly one of min_lr and min_lr_rate must be given"
        kit.refuse_unless(
            (keys.min_lr_rate is None) != (keys.min_lr is None), message, run.context.where
        )
    is_warmed = name not in _OWN_WARMUPS

    def value(n: float) -> sp.Expr:
        if is_warmed and n < run.warmup:
            return run.base * n / run.warmup
        return run.base * factor(n, run, keys)

    return kit.curve(name, value, run.count)


def warmup_updates(steps: sp.Expr, ratio: sp.Expr | None, total: int) -> sp.Integer:
    """Returns the updates of the warmup: ``steps`` from 1 on, else a fraction of the run.

    Example:
        >>> part = sp.Rational(1, 10)
        >>> [warmup_updates(sp.Integer(steps), part, 50) for steps in (0, 7)]
        [5, 7]
    """
    if steps >= 1:
        return sp.Integer(int(steps))
    return sp.Integer(math.ceil(total * float(steps if steps > 0 else ratio or 0)))


def warmup(arguments: Scheduler, total: int, version: str) -> sp.Expr:
    """Returns the updates of the warmup of arguments.

    Raises:
        ConfigError: It is negative, or more than the run.
    """
    steps, ratio = arguments.warmup_steps, arguments.warmup_ratio
    if steps < 0:
        raise arguments.error(
            f"warmup_steps must not be negative, got {float(steps):g}", "warmup_steps"
        )
    if ratio is not None and not 0 <= ratio <= 1:
        raise arguments.error(
            f"warmup_ratio must be in [0, 1], got {float(ratio):g}", "warmup_ratio"
        )
    return steps if version == V4 and steps > 0 else warmup_updates(steps, ratio, total)


def rate(context: kit.Context, arguments: Scheduler) -> Schedule:
    """Returns the rate of a param group.

    Raises:
        ConfigError: An argument is not valid.
        DefinitionError: The number of updates is not determined, or not above 0.
    """
    total = context.facts.get("num_training_steps", arguments.max_steps)
    kit.refuse_unless(
        isinstance(total, int) and total > 0,
        f"the run must have a number of updates above 0, got {total!r}: give max_steps or the "
        "fact num_training_steps",
        context.where,
    )
    run = ScheduleNumbers(
        context.of_group("lr", arguments.learning_rate),
        arguments.learning_rate,
        warmup(arguments, total, context.version),
        sp.Integer(total),
        context,
    )
    kwargs = arguments.lr_scheduler_kwargs.origin
    return schedule_by_name(arguments.lr_scheduler_type, kwargs, run)


def _class_rate(context: kit.Context, arguments: Scheduler) -> Schedule:
    if context.version != V4 and "warmup_ratio" in arguments:
        raise arguments.error("warmup_ratio is not an argument of transformers 5", "warmup_ratio")
    return rate(context, arguments)


SCHEDULES = kit.section_entries(
    dict.fromkeys(CURVES, _class_rate),
    {"": Scheduler},
    style=lambda arguments: str(arguments.lr_scheduler_type),
    defects=DEFECTS,
)
