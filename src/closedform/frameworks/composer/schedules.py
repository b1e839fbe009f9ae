"""The schedulers of Composer and llm-foundry: factors of the rate, by the time of the batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sympy as sp

from closedform.errors import DefinitionError
from closedform.frameworks.composer.times import Duration, Time, Trainer, trainer
from closedform.language import Schedule, floor_div, product
from closedform.recipes import kit
from closedform.schedules.blends import along_cosine, along_inverse_root, along_line

CLOCK = kit.Clock(kit.Unit.UPDATE)
"""The schedulers are stepped every batch; their times may have other units."""

Factor = Callable[..., tuple[kit.Stage, ...]]
MAX_PERIODS = 1000
"""The most restarts that are written out."""


def _part(run: Trainer, time: Time, begin: sp.Expr = sp.S.Zero) -> sp.Expr:
    """The part of a time that is over, counted from ``begin``."""
    return kit.quotient(run.now(time.unit) - begin, time.exact - begin)


def _step(given: StepScheduler, run: Trainer) -> tuple[kit.Stage, ...]:
    gamma, size = given.gamma, run.time(given, "step_size")
    # floor_div(·, 1): gamma to whole steps of a time in any unit.
    return ((lambda: gamma ** floor_div(_part(run, size), 1), None),)


def _milestones(given: _Steps, run: Trainer) -> tuple[kit.Stage, ...]:
    gamma = given.gamma
    marks = sorted(run.first_from(run.convert(mark, "milestones")) for mark in given.milestones)
    stages: list[kit.Stage] = [(gamma**index, mark) for index, mark in enumerate(marks)]
    return *stages, (gamma ** len(marks), None)


def _constant(given: ConstantScheduler, run: Trainer) -> tuple[kit.Stage, ...]:
    alpha = given.alpha
    end = run.first_from(run.time(given, "t_max"))
    # After t_max the factor is 1, not alpha.
    return (alpha, end), (sp.S.One, None)


def _exponential(given: ExponentialScheduler, run: Trainer) -> tuple[kit.Stage, ...]:
    gamma = given.gamma
    period = run.time(given, "decay_period")
    return ((lambda: gamma ** _part(run, period), None),)


Fall = Callable[[sp.Expr, sp.Expr], sp.Expr]
"""From the time that is over and the whole one to the factor."""

FallShape = Callable[..., tuple[Fall, sp.Expr]]
"""From the arguments to the curve and its end."""


def _line(given: _Line) -> tuple[Fall, sp.Expr]:
    first, last = given.alpha_i, given.alpha_f
    return (lambda done, length: along_line(first, last, kit.quotient(done, length))), last


def _cosine(given: _Last) -> tuple[Fall, sp.Expr]:
    last = given.alpha_f
    return (lambda done, length: along_cosine(sp.S.One, last, kit.quotient(done, length))), last


def _power(given: PolynomialScheduler) -> tuple[Fall, sp.Expr]:
    last, power = given.alpha_f, given.power

    def curve(done: sp.Expr, length: sp.Expr) -> sp.Expr:
        return along_line(last, sp.S.One, kit.power_quotient(length - done, length, power))

    return curve, last


def _flat(given: ConstantScheduler) -> tuple[Fall, sp.Expr]:
    return (lambda done, length: given.alpha), given.alpha


def _shaped(shape: FallShape) -> Factor:
    """The curve over ``t_max``, and its end afterwards."""

    def factor(given: kit.Section, run: Trainer) -> tuple[kit.Stage, ...]:
        curve, last = shape(given)
        length = run.time(given, "t_max")
        # ZeroDivisionError in the first batch upstream.
        if length.value == 0:
            raise DefinitionError("t_max is 0: division by zero", where=run.where)
        now = run.now(length.unit)
        return (
            (lambda: curve(now, length.exact), run.first_from(length)),
            (last, None),
        )

    return factor


def _rise(given: _Warmup, run: Trainer, top: sp.Expr) -> tuple[kit.Stage, Time]:
    """The warmup; where it is scaled, the test for its end is not, as it is implemented."""
    warmup = _warmup_end(given, run)
    length = warmup
    if given.scale_warmup:
        # The line is over the scaled warmup, its end is tested without the scale.
        length = run.time(given, "t_warmup")
    now = run.now(length.unit)
    part = sp.Min(1, now / length.value) if length.value else sp.S.One
    return (top * part, run.first_from(warmup)), warmup


def _warmup_end(given: _Warmup, run: Trainer) -> Time:
    is_scaled = given.scale_warmup and not run.as_implemented
    # The warmup is converted without scale_schedule_ratio, except for a time in dur.
    return run.time(given, "t_warmup", None if is_scaled else 1)


def _warmed_milestones(given: MultiStepWithWarmupScheduler, run: Trainer) -> tuple[kit.Stage, ...]:
    rise, _ = _rise(given, run, sp.S.One)
    return rise, *_milestones(given, run)


def _warmed(shape: FallShape) -> Factor:
    """A warmup, the curve over the rest of ``t_max``, and its end afterwards."""

    def factor(given: _Warmup, run: Trainer) -> tuple[kit.Stage, ...]:
        curve, last = shape(given)
        rise, warmup = _rise(given, run, curve(sp.S.Zero, sp.S.One))
        length = run.time(given, "t_max")
        _check_warmed(length, warmup, run)
        begin, now = warmup.exact, run.now(length.unit)
        rest = length.exact - begin
        # A warmup of the whole run leaves the position at 0.
        if rest <= 0:
            return rise, (lambda: curve(sp.S.Zero, sp.S.One), None)
        end = run.first_from(length)
        return rise, (lambda: curve(now - begin, rest), end), (last, None)

    return factor


def _check_warmed(length: Time, warmup: Time, run: Trainer) -> None:
    kit.refuse_unless(
        length.unit == warmup.unit,
        f"t_warmup and t_max must have the same unit, got {warmup.unit} and {length.unit}",
        run.where,
    )
    kit.refuse_unless(
        length.unit != run.length.unit or length.value >= run.length.value,
        f"t_max must be at least max_duration {run.length.value}, got {length.value}",
        run.where,
    )


def _restarts(given: CosineAnnealingWarmRestartsScheduler, run: Trainer) -> tuple[kit.Stage, ...]:
    last, growth = given.alpha_f, float(given.t_mult)
    period = run.time(given, "t_0")
    now, begin, length = run.now(period.unit), 0, int(period.value)
    if length and growth == 1:
        # now/length - floor: exact for any length, without a stage for each period.
        part = now / length - floor_div(now, length)
        return ((lambda: along_cosine(sp.S.One, last, part), None),)
    stages: list[kit.Stage] = []
    for _ in range(MAX_PERIODS):
        end = run.first_from(Time(begin + length, period.unit))
        if length == 0:
            return *stages, (kit.undefined(_DECAYED), None)
        stages.append((along_cosine(sp.S.One, last, (now - begin) / length), end))
        # int(t_mult · length): periods are whole units.
        begin, length = begin + length, int(growth * length)
        if end > _FAR:
            break
    return *stages, (kit.undefined(_TOO_FAR), None)


_DECAYED = "ValueError: the interval between restarts has decayed to 0"
_TOO_FAR = f"more than {MAX_PERIODS} restarts are not written out"
_FAR = 10**9
"""The update up to which restarts are written out."""


def _inverse_root(
    given: InverseSquareRootWithWarmupScheduler, run: Trainer
) -> tuple[kit.Stage, ...]:
    floor, last = given.alpha_f_decay, given.alpha_f_cooldown
    times = {
        name: (time, getattr(given, name))
        for name, time in (
            ("t_warmup", _warmup_end(given, run)),
            *((name, run.time(given, name)) for name in ("t_scale", "t_cooldown")),
        )
    }
    for name, (time, argument) in times.items():
        kit.refuse_unless(
            time.unit == run.unit and "dur" not in str(argument),
            f"{name} must have the unit of max_duration and not be in dur, got {argument!r}",
            run.where,
        )
    warmup, scale, cooldown = (time.exact for time, _ in times.values())
    rise, _ = _rise(given, run, sp.S.One)
    total = run.time(given, "t_max")
    now = run.now(run.length.unit)

    def fall(at: sp.Expr) -> sp.Expr:
        if total.unit != run.length.unit:
            raise kit.UndefinedError("ValueError: t_max has another unit than max_duration")
        return along_inverse_root(sp.S.One, floor, at - warmup, scale)

    # A cooldown longer than the run after the warmup begins at the warmup's end.
    begin = max(warmup, total.exact - cooldown)
    unit = run.length.unit

    def cool() -> sp.Expr:
        start = fall(begin)
        if cooldown == 0:
            return start
        return along_line(start, last, sp.Min(1, (now - begin) / cooldown))

    return (
        rise,
        (lambda: fall(now), run.first_from(Time(int(begin), unit))),
        (cool, None),
    )


class _Scheduler(kit.Section):
    name: str


class _Length(_Scheduler):
    t_max: Any = "1dur"


class _Warmup(_Scheduler):
    t_warmup: Any
    scale_warmup: bool = False


class _Steps(_Scheduler):
    milestones: Any
    gamma: kit.Number = 0.1


class _Line(_Length):
    alpha_i: kit.RateRatio = 1
    alpha_f: kit.RateRatio = 0


class _Last(_Length):
    alpha_f: kit.RateRatio = 0


class StepScheduler(_Scheduler):
    step_size: Any  # Trainer.time checks it, as other lengths.
    gamma: kit.Number = 0.1


class ConstantScheduler(_Length):
    alpha: kit.RateRatio = 1


class ExponentialScheduler(_Scheduler):
    gamma: kit.Number
    decay_period: Any = "1ep"


class CosineAnnealingWarmRestartsScheduler(_Scheduler):
    t_0: Any
    t_mult: kit.Number = 1
    alpha_f: kit.RateRatio = 0


class PolynomialScheduler(_Last):
    power: kit.Power


class MultiStepWithWarmupScheduler(_Steps, _Warmup):
    pass


class ConstantWithWarmupScheduler(_Warmup, ConstantScheduler):
    pass


class LinearWithWarmupScheduler(_Warmup, _Line):
    pass


class CosineAnnealingWithWarmupScheduler(_Warmup, _Last):
    pass


class PolynomialWithWarmupScheduler(_Warmup, PolynomialScheduler):
    power: kit.Power = 2


class InverseSquareRootWithWarmupScheduler(_Warmup, _Length):
    t_scale: Any
    t_cooldown: Any
    alpha_f_decay: kit.RateRatio = 0
    alpha_f_cooldown: kit.RateRatio = 0


CLASSES: Mapping[str, tuple[Factor, type[kit.Section]]] = {
    "StepScheduler": (_step, StepScheduler),
    "MultiStepScheduler": (_milestones, _Steps),
    "ConstantScheduler": (_constant, ConstantScheduler),
    "LinearScheduler": (_shaped(_line), _Line),
    "ExponentialScheduler": (_exponential, ExponentialScheduler),
    "CosineAnnealingScheduler": (_shaped(_cosine), _Last),
    "CosineAnnealingWarmRestartsScheduler": (_restarts, CosineAnnealingWarmRestartsScheduler),
    "PolynomialScheduler": (_shaped(_power), PolynomialScheduler),
    "MultiStepWithWarmupScheduler": (_warmed_milestones, MultiStepWithWarmupScheduler),
    "ConstantWithWarmupScheduler": (_warmed(_flat), ConstantWithWarmupScheduler),
    "LinearWithWarmupScheduler": (_warmed(_line), LinearWithWarmupScheduler),
    "CosineAnnealingWithWarmupScheduler": (_warmed(_cosine), CosineAnnealingWithWarmupScheduler),
    "PolynomialWithWarmupScheduler": (_warmed(_power), PolynomialWithWarmupScheduler),
    "InverseSquareRootWithWarmupScheduler": (_inverse_root, InverseSquareRootWithWarmupScheduler),
}
"""The schedulers by class name: their factor, and their arguments."""


def rate(context: kit.Context, config: Duration, members: Sequence[Any], base: sp.Expr) -> Schedule:
    """Returns the schedule of a config, for an optimizer of a rate before scheduling.

    Args:
        context: Facts, and whether to build what Composer computes.
        config: The values of ``max_duration`` and ``scale_schedule_ratio``.
        members: Those of each of ``schedulers``.
        base: The rate.
    """
    run, name = trainer(config, context), style(members)
    kit.refuse_unless(members, "schedulers must hold at least one scheduler", context.where)
    factors = [kit.by_intervals(name, *CLASSES[entry.name][0](entry, run)) for entry in members]
    if context.as_implemented or len(factors) == 1:
        # Each scheduler writes base times factor, so that the last one of a list decides.
        return factors[-1].scale(base)
    together = product(factors, name=name).scale(base)
    last_steps = [factor.last_step for factor in factors if factor.last_step is not None]
    if not last_steps:
        return together
    return kit.ending(together.expr, min(last_steps) + 1, "a scheduler of the list has ended", name)


def style(members: Sequence[Any]) -> str:
    """Returns the class of a config; ``list`` unless it has one scheduler."""
    return str(members[0].name) if len(members) == 1 else "list"


DEFECTS: Mapping[str, kit.Note[[Any]]] = {
    "last-scheduler-wins": kit.Defect(
        "the schedulers do not multiply, as documented: the last one decides",
        "composer/optim/scheduler.py:202",
        lambda config: len(config.schedulers) > 1,
        documented="the product of the schedulers",
        classes=("list",),
    ),
    "scaled-warmup": kit.Defect(
        "a scaled warmup ends where the warmup that is not scaled would end",
        "composer/optim/scheduler.py:773",
        lambda config: (
            config.scale_schedule_ratio != 1
            and any("scale_warmup" in entry and entry.scale_warmup for entry in config.schedulers)
        ),
        documented="a warmup that is scaled as the rest of the schedule is",
        classes=tuple(name for name in CLASSES if "WithWarmup" in name),
    ),
    "constant-ends-at-one": kit.Convention(
        "after t_max the factor is 1, not alpha",
        "composer/optim/scheduler.py:307",
        lambda config: any(
            entry.name == "ConstantScheduler" and "alpha" in entry for entry in config.schedulers
        ),
        classes=("ConstantScheduler",),
    ),
}
