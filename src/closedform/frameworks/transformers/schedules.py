"""The schedulers of transformers' Trainer, from the keys of ``TrainingArguments``.

Every curve is a factor of the rate of each param group; the clock is the update.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import sympy as sp

from closedform.language import Schedule, floor_mod
from closedform.recipes import kit
from closedform.schedules.blends import along_inverse_root, along_line

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
        where: The place, for errors.
        count: The count of the clock.
        as_implemented: False for the documented formula, where it is another one.
    """

    base: sp.Expr
    default: sp.Expr
    warmup: sp.Expr
    total: sp.Expr
    where: str
    count: kit.Count = field(default_factory=lambda: CLOCK.count(kit.Facts()))
    as_implemented: bool = True

    @property
    def rest(self) -> sp.Expr:
        """The updates after the warmup, at least 1."""
        # max(1, ·) of transformers/optimization.py: a warmup of the whole run divides by 1.
        return max(sp.S.One, self.total - self.warmup)

    @property
    def progress(self) -> sp.Expr:
        """The part of them that is done."""
        return (self.count.n - self.warmup) / self.rest

    def rise(self) -> tuple[Callable[[], sp.Expr], int]:
        """The warmup from 0."""
        # A warmup of 0 divides by 1, in an empty interval.
        line = self.base * self.count.n / max(sp.S.One, self.warmup)
        return (lambda: line), self.count.first_from(self.warmup)


ScheduleBuilder = Callable[..., Schedule]


def cosine_wave(cycles: sp.Expr, progress: sp.Expr) -> sp.Expr:
    """Returns ``(1 + cos(2 pi cycles progress)) / 2``."""
    return (1 + sp.cos(2 * sp.pi * cycles * progress)) / 2


def _after_warmup(name: str, run: ScheduleNumbers, factor: sp.Expr) -> Schedule:
    return kit.by_intervals(name, run.rise(), (lambda: run.base * factor, None))


def linear(run: ScheduleNumbers, arguments: kit.Section) -> Schedule:
    """The line to 0."""
    del arguments
    return _after_warmup("linear", run, sp.Max(0, (run.total - run.count.n) / run.rest))


def cosine(run: ScheduleNumbers, arguments: Cosine) -> Schedule:
    """The cosine, which rises again after the run."""
    return _after_warmup("cosine", run, cosine_wave(arguments.num_cycles, run.progress))


def _restarts(run: ScheduleNumbers, arguments: CosineWithRestarts) -> Schedule:
    # floor_mod of integers: (c·progress) % 1.0 of upstream in exact numbers.
    part = floor_mod(arguments.num_cycles * (run.count.n - run.warmup), run.rest) / run.rest
    return kit.by_intervals(
        "cosine_with_restarts",
        run.rise(),
        (
            lambda: run.base * (1 + sp.cos(sp.pi * part)) / 2,
            # progress >= 1.0 is tested before: the rate is 0 from the end on, where the cosine
            # would restart.
            run.count.first_from(run.warmup + run.rest),
        ),
        (lambda: sp.S.Zero, None),
    )


def _polynomial(run: ScheduleNumbers, arguments: Polynomial) -> Schedule:
    end = arguments.lr_end
    kit.refuse_unless(
        end < run.default, f"lr_end must be below the rate {run.default}, got {end}", run.where
    )
    # No max(1, ·) here: a warmup of the whole run divides by zero when the scheduler steps after
    # the last update.
    length = run.total - run.warmup

    def fall() -> sp.Expr:
        rest = kit.power_quotient(run.total - run.count.n, length, arguments.power)
        return run.base * along_line(end, run.default, rest) / run.default

    return kit.by_intervals(
        "polynomial",
        run.rise(),
        # current_step > num_training_steps, so that update T is still on the curve.
        (fall, run.count.first_after(run.total)),
        (lambda: run.base * end / run.default, None),
    )


def _constant(run: ScheduleNumbers, arguments: kit.ClassSection) -> Schedule:
    del arguments
    return kit.by_intervals("constant", (lambda: run.base, None))


def _constant_with_warmup(run: ScheduleNumbers, arguments: kit.ClassSection) -> Schedule:
    del arguments
    return _after_warmup("constant_with_warmup", run, sp.S.One)


def _inverse_root(run: ScheduleNumbers, arguments: InverseSqrt) -> Schedule:
    # num_warmup_steps or 10_000: transformers 5.23.0, optimization.py, get_inverse_sqrt_schedule.
    scale = (run.warmup or 10_000) if arguments.timescale is None else arguments.timescale
    fall = along_inverse_root(sp.S.One, sp.S.Zero, run.count.n - run.warmup, sp.Integer(scale))
    return _after_warmup("inverse_sqrt", run, fall)


def _minimum(run: ScheduleNumbers, arguments: CosineWithMinLr) -> sp.Expr:
    """The minimum as a part of the rate."""
    rate, value = arguments.min_lr_rate, arguments.min_lr
    kit.refuse_unless(
        (rate is None) != (value is None),
        "exactly one of min_lr and min_lr_rate must be given",
        run.where,
    )
    return value / run.default if rate is None else rate


def _cosine_to_minimum(run: ScheduleNumbers, arguments: CosineWithMinLr) -> Schedule:
    wave = along_line(
        _minimum(run, arguments), sp.S.One, cosine_wave(arguments.num_cycles, run.progress)
    )
    return _after_warmup("cosine_with_min_lr", run, sp.Max(0, wave))


def _cosine_one_ahead(run: ScheduleNumbers, arguments: CosineWarmupWithMinLr) -> Schedule:
    """The warmup from its first step on, and the cosine one step ahead.

    The peak of the warmup is that of its last update in both cases: the docstring leaves the warmup
    open, and states a cosine that begins at the rate of the optimizer.
    """
    n, first = run.count.n, arguments.warmup_lr_rate
    if first is None:
        rise = (n + 1) / max(sp.S.One, run.warmup)
    else:
        # max(1, W - 1): the last update of the warmup has the peak.
        rise = along_line(first, sp.S.One, n / max(sp.S.One, run.warmup - 1))
    ahead = 1 if run.as_implemented else 0
    wave = cosine_wave(arguments.num_cycles, (n + ahead - run.warmup) / run.rest)
    return kit.by_intervals(
        "cosine_warmup_with_min_lr",
        (lambda: run.base * rise, run.count.first_from(run.warmup)),
        (lambda: run.base * sp.Max(0, along_line(_minimum(run, arguments), sp.S.One, wave)), None),
    )


def _rising(kind: str, steps: sp.Expr, length: sp.Expr) -> sp.Expr:
    if kind == "linear":
        return steps / length
    if kind == "cosine":
        return (1 - sp.cos(sp.pi * steps / length)) / 2
    return 1 - kit.power_quotient(length - steps, length, sp.S.Half)


def _falling(kind: str, steps: sp.Expr, length: sp.Expr, cycles: sp.Expr) -> sp.Expr:
    if kind == "linear":
        return 1 - steps / length
    if kind == "cosine":
        return cosine_wave(cycles, steps / length)
    return 1 - kit.power_quotient(steps, length, sp.S.Half)


def _wsd(run: ScheduleNumbers, arguments: WarmupStableDecay) -> Schedule:
    n, low, decay, flat = (
        run.count.n,
        arguments.min_lr_ratio,
        arguments.num_decay_steps,
        arguments.num_stable_steps,
    )
    # A given num_stable_steps wins over the length of the run.
    stable = run.total - run.warmup - decay if flat is None else flat
    begin = run.warmup + stable
    rise = _rising(arguments.warmup_type, n, max(sp.S.One, run.warmup))
    fall = _falling(arguments.decay_type, n - begin, max(sp.S.One, decay), arguments.num_cycles)

    def above_minimum(factor: sp.Expr) -> sp.Expr:
        # min_lr_ratio is mixed into the warmup, too: it starts at that part of the rate.
        return run.base * sp.Max(0, along_line(low, sp.S.One, factor))

    return kit.by_intervals(
        "warmup_stable_decay",
        (lambda: above_minimum(rise), run.count.first_from(run.warmup)),
        (lambda: run.base, run.count.first_from(begin)),
        (lambda: above_minimum(fall), run.count.first_from(begin + decay)),
        (lambda: run.base * low, None),
    )


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


CURVES: Mapping[str, tuple[ScheduleBuilder, type[kit.Section]]] = {
    "linear": (linear, kit.Section),
    "cosine": (cosine, Cosine),
    "cosine_with_restarts": (_restarts, CosineWithRestarts),
    "polynomial": (_polynomial, Polynomial),
    "constant": (_constant, kit.ClassSection),
    "constant_with_warmup": (_constant_with_warmup, kit.ClassSection),
    "inverse_sqrt": (_inverse_root, InverseSqrt),
    "cosine_with_min_lr": (_cosine_to_minimum, CosineWithMinLr),
    "cosine_warmup_with_min_lr": (_cosine_one_ahead, CosineWarmupWithMinLr),
    "warmup_stable_decay": (_wsd, WarmupStableDecay),
}
"""The schedulers by name, with the keys of ``lr_scheduler_kwargs``; constants ignore them."""

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


def schedule_by_name(
    name: str, kwargs: kit.RawSection, run: ScheduleNumbers, version: str = ""
) -> Schedule:
    """Returns the schedule of ``get_scheduler``.

    Raises:
        ConfigError: A keyword argument is missing or unknown.
        DefinitionError: An argument is not valid.
    """
    curve, keys = CURVES[name]
    if run.as_implemented and version == V4 and name == "inverse_sqrt":
        kwargs = kit.RawSection(kwargs.document, {}, kwargs.path)
    return curve(run, keys.read(kwargs))


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
        context.where,
        CLOCK.count(context.numbers),
        context.as_implemented,
    )
    kwargs = arguments.lr_scheduler_kwargs.origin
    return schedule_by_name(arguments.lr_scheduler_type, kwargs, run, context.version)


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
