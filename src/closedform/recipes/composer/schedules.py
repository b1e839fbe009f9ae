"""The schedulers of Composer and llm-foundry: factors of the rate, by the time of the batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import sympy as sp

from closedform.errors import DefinitionError, UnknownNameError, nearest
from closedform.language import Schedule, floor_div, product
from closedform.recipes.clock import Clock, Unit
from closedform.recipes.composer.times import Time, Trainer, trainer
from closedform.recipes.defects import Defect, Kind
from closedform.recipes.entries import REQUIRED, Context, ScheduleEntry, parameters
from closedform.recipes.intervals import (
    UndefinedError,
    by_intervals,
    ending,
    first_from,
    power_quotient,
    quotient,
)
from closedform.recipes.native import check_name, entry, exact, number, options, refuse_unless
from closedform.schedules.blends import along_cosine, along_inverse_root, along_line

CLOCK = Clock(Unit.UPDATE)
"""The schedulers are stepped every batch; their times may have other units."""

Arguments = Mapping[str, Any]
Stage = tuple[Callable[[], sp.Expr], int | None]
Factor = Callable[[Arguments, Trainer], tuple[Stage, ...]]
MAX_PERIODS = 1000
"""The most restarts that are written out."""


def _part(run: Trainer, time: Time, begin: sp.Expr = sp.S.Zero) -> sp.Expr:
    """The part of a time that is over, counted from ``begin``."""
    return quotient(run.now(time.unit) - begin, exact(time.value) - begin)


def _number(given: Arguments, name: str, run: Trainer) -> sp.Expr:
    return number(given[name], name, run.where)


def _step(given: Arguments, run: Trainer) -> tuple[Stage, ...]:
    gamma, size = _number(given, "gamma", run), run.convert(given["step_size"], "step_size")
    return ((lambda: gamma ** floor_div(_part(run, size), 1), None),)


def _milestones(given: Arguments, run: Trainer) -> tuple[Stage, ...]:
    gamma = _number(given, "gamma", run)
    marks = sorted(
        first_from(run.update(run.convert(mark, "milestones"))) for mark in given["milestones"]
    )
    stages: list[Stage] = [(_fixed(gamma**index), mark) for index, mark in enumerate(marks)]
    return *stages, (_fixed(gamma ** len(marks)), None)


def _fixed(value: sp.Expr) -> Callable[[], sp.Expr]:
    return lambda: value


def _constant(given: Arguments, run: Trainer) -> tuple[Stage, ...]:
    alpha = _number(given, "alpha", run)
    end = first_from(run.update(run.convert(given["t_max"], "t_max")))
    return (_fixed(alpha), end), (_fixed(sp.S.One), None)


def _exponential(given: Arguments, run: Trainer) -> tuple[Stage, ...]:
    gamma = _number(given, "gamma", run)
    period = run.convert(given["decay_period"], "decay_period")
    return ((lambda: gamma ** _part(run, period), None),)


Shape = Callable[[Arguments, Trainer], tuple[Callable[[sp.Expr, sp.Expr], sp.Expr], sp.Expr]]
"""From the arguments to the curve, of the time that is over and the whole one, and its end."""


def _line(given: Arguments, run: Trainer) -> tuple[Callable[[sp.Expr, sp.Expr], sp.Expr], sp.Expr]:
    first, last = _number(given, "alpha_i", run), _number(given, "alpha_f", run)
    return (lambda done, length: along_line(first, last, quotient(done, length))), last


def _cosine(
    given: Arguments, run: Trainer
) -> tuple[Callable[[sp.Expr, sp.Expr], sp.Expr], sp.Expr]:
    last = _number(given, "alpha_f", run)
    return (lambda done, length: along_cosine(sp.S.One, last, quotient(done, length))), last


def _power(given: Arguments, run: Trainer) -> tuple[Callable[[sp.Expr, sp.Expr], sp.Expr], sp.Expr]:
    last, power = _number(given, "alpha_f", run), _number(given, "power", run)

    def curve(done: sp.Expr, length: sp.Expr) -> sp.Expr:
        return along_line(last, sp.S.One, power_quotient(length - done, length, power))

    return curve, last


def _flat(given: Arguments, run: Trainer) -> tuple[Callable[[sp.Expr, sp.Expr], sp.Expr], sp.Expr]:
    alpha = _number(given, "alpha", run)
    return (lambda done, length: alpha), alpha


def _shaped(shape: Shape) -> Factor:
    """The curve over ``t_max``, and its end afterwards."""

    def factor(given: Arguments, run: Trainer) -> tuple[Stage, ...]:
        curve, last = shape(given, run)
        length = run.convert(given["t_max"], "t_max")
        if length.value == 0:
            raise DefinitionError("t_max is 0: division by zero", where=run.where)
        now = run.now(length.unit)
        return (
            (lambda: curve(now, exact(length.value)), first_from(run.update(length))),
            (_fixed(last), None),
        )

    return factor


def _rise(given: Arguments, run: Trainer, top: sp.Expr) -> tuple[Stage, Time]:
    """The warmup; where it is scaled, the test for its end is not, as it is implemented."""
    warmup = _warmup_end(given, run)
    length = warmup
    if given["scale_warmup"]:
        length = run.convert(given["t_warmup"], "t_warmup")
    now = run.now(length.unit)
    part = sp.Min(1, now / length.value) if length.value else sp.S.One
    return (_fixed(top * part), first_from(run.update(warmup))), warmup


def _warmup_end(given: Arguments, run: Trainer) -> Time:
    is_scaled = given["scale_warmup"] and not run.as_implemented
    return run.convert(given["t_warmup"], "t_warmup", None if is_scaled else 1)


def _warmed_milestones(given: Arguments, run: Trainer) -> tuple[Stage, ...]:
    rise, _ = _rise(given, run, sp.S.One)
    return rise, *_milestones(given, run)


def _warmed(shape: Shape) -> Factor:
    """A warmup, the curve over the rest of ``t_max``, and its end afterwards."""

    def factor(given: Arguments, run: Trainer) -> tuple[Stage, ...]:
        curve, last = shape(given, run)
        top = given.get("alpha_i", given.get("alpha", 1))
        rise, warmup = _rise(given, run, number(top, "alpha_i", run.where))
        length = run.convert(given["t_max"], "t_max")
        _check_warmed(length, warmup, run)
        begin, now = exact(warmup.value), run.now(length.unit)
        rest = exact(length.value) - begin
        if rest <= 0:
            return rise, (lambda: curve(sp.S.Zero, sp.S.One), None)
        end = first_from(run.update(length))
        return rise, (lambda: curve(now - begin, rest), end), (_fixed(last), None)

    return factor


def _check_warmed(length: Time, warmup: Time, run: Trainer) -> None:
    refuse_unless(
        length.unit == warmup.unit,
        f"t_warmup and t_max must have the same unit, got {warmup.unit} and {length.unit}",
        run.where,
    )
    refuse_unless(
        length.unit != run.length.unit or length.value >= run.length.value,
        f"t_max must be at least max_duration {run.length.value}, got {length.value}",
        run.where,
    )


def _restarts(given: Arguments, run: Trainer) -> tuple[Stage, ...]:
    last, growth = _number(given, "alpha_f", run), float(_number(given, "t_mult", run))
    period = run.convert(given["t_0"], "t_0")
    now, begin, length = run.now(period.unit), 0, int(period.value)
    if length and growth == 1:
        part = now / length - floor_div(now, length)
        return ((lambda: along_cosine(sp.S.One, last, part), None),)
    stages: list[Stage] = []
    for _ in range(MAX_PERIODS):
        end = first_from(run.update(Time(begin + length, period.unit)))
        if length == 0:
            return *stages, (_decayed, None)
        stages.append((_wave(now - begin, length, last), end))
        begin, length = begin + length, int(growth * length)
        if end > _FAR:
            break
    return *stages, (_too_far, None)


_FAR = 10**9
"""The update up to which restarts are written out."""


def _wave(done: sp.Expr, length: int, last: sp.Expr) -> Callable[[], sp.Expr]:
    return lambda: along_cosine(sp.S.One, last, done / length)


def _decayed() -> sp.Expr:
    raise UndefinedError("ValueError: the interval between restarts has decayed to 0")


def _too_far() -> sp.Expr:
    raise UndefinedError(f"more than {MAX_PERIODS} restarts are not written out")


def _inverse_root(given: Arguments, run: Trainer) -> tuple[Stage, ...]:
    where, last = run.where, _number(given, "alpha_f_cooldown", run)
    floor = _number(given, "alpha_f_decay", run)
    names = ("t_warmup", "t_scale", "t_cooldown")
    times = {name: run.convert(given[name], name) for name in names}
    times["t_warmup"] = _warmup_end(given, run)
    for name, time in times.items():
        refuse_unless(
            time.unit == run.given and "dur" not in str(given[name]),
            f"{name} must have the unit of max_duration and not be in dur, got {given[name]!r}",
            where,
        )
    warmup, scale, cooldown = (exact(time.value) for time in times.values())
    rise, _ = _rise(given, run, sp.S.One)
    total = run.convert(given["t_max"], "t_max")
    now = run.now(run.length.unit)

    def fall(at: sp.Expr) -> sp.Expr:
        if total.unit != run.length.unit:
            raise UndefinedError("ValueError: t_max has another unit than max_duration")
        return along_inverse_root(sp.S.One, floor, at - warmup, scale)

    begin = max(warmup, exact(total.value) - cooldown)
    unit = run.length.unit

    def cool() -> sp.Expr:
        start = fall(begin)
        if cooldown == 0:
            return start
        return along_line(start, last, sp.Min(1, (now - begin) / cooldown))

    return (
        rise,
        (lambda: fall(now), first_from(run.update(Time(int(begin), unit)))),
        (cool, None),
    )


_LENGTH = {"t_max": "1dur"}
_WARMUP = {"t_warmup": REQUIRED, "scale_warmup": False}
_STEPS = {"milestones": REQUIRED, "gamma": 0.1}
_LINE = {"alpha_i": 1.0, "alpha_f": 0.0}
CLASSES: Mapping[str, tuple[Factor, Arguments]] = {
    "StepScheduler": (_step, {"step_size": REQUIRED, "gamma": 0.1}),
    "MultiStepScheduler": (_milestones, _STEPS),
    "ConstantScheduler": (_constant, {"alpha": 1.0, **_LENGTH}),
    "LinearScheduler": (_shaped(_line), {**_LINE, **_LENGTH}),
    "ExponentialScheduler": (_exponential, {"gamma": REQUIRED, "decay_period": "1ep"}),
    "CosineAnnealingScheduler": (_shaped(_cosine), {"alpha_f": 0.0, **_LENGTH}),
    "CosineAnnealingWarmRestartsScheduler": (
        _restarts,
        {"t_0": REQUIRED, "t_mult": 1.0, "alpha_f": 0.0},
    ),
    "PolynomialScheduler": (_shaped(_power), {"power": REQUIRED, "alpha_f": 0.0, **_LENGTH}),
    "MultiStepWithWarmupScheduler": (_warmed_milestones, {**_WARMUP, **_STEPS}),
    "ConstantWithWarmupScheduler": (_warmed(_flat), {**_WARMUP, "alpha": 1.0, **_LENGTH}),
    "LinearWithWarmupScheduler": (_warmed(_line), {**_WARMUP, **_LINE, **_LENGTH}),
    "CosineAnnealingWithWarmupScheduler": (
        _warmed(_cosine),
        {**_WARMUP, "alpha_f": 0.0, **_LENGTH},
    ),
    "PolynomialWithWarmupScheduler": (
        _warmed(_power),
        {**_WARMUP, "power": 2.0, "alpha_f": 0.0, **_LENGTH},
    ),
    "InverseSquareRootWithWarmupScheduler": (
        _inverse_root,
        {
            **_WARMUP,
            **_LENGTH,
            "t_scale": REQUIRED,
            "t_cooldown": REQUIRED,
            "alpha_f_decay": 0.0,
            "alpha_f_cooldown": 0.0,
        },
    ),
}

"""The schedulers by class name: their factor, and their arguments with defaults."""


def _build(given: Arguments, context: Context) -> Schedule:
    where, name, specs = context.where, context.path[-1], given["schedulers"]
    rate = number(entry(given["optimizer"], "lr", where), "lr", where)
    refuse_unless(isinstance(specs, list | tuple) and specs, "schedulers must be a list", where)
    if name != "list":
        refuse_unless(len(specs) == 1, f"{name} must be the only scheduler", where)
        check_name(name, entry(specs[0], "name", where), "name", where)
    run = trainer(given["max_duration"], given["scale_schedule_ratio"], context)
    factors = [by_intervals(name, *_factors(spec, run)) for spec in specs]
    if context.as_implemented or len(factors) == 1:
        # Each scheduler writes base times factor, so that the last one of a list decides.
        return factors[-1].scale(rate)
    together = product(factors, name=name).scale(rate)
    last_steps = [factor.last_step for factor in factors if factor.last_step is not None]
    if not last_steps:
        return together
    return ending(together.expr, min(last_steps) + 1, "a scheduler of the list has ended", name)


def _factors(spec: Arguments, run: Trainer) -> tuple[Stage, ...]:
    name = entry(spec, "name", run.where)
    if name not in CLASSES:
        raise UnknownNameError(
            f"composer has no scheduler {name!r}", where=run.where, hint=nearest(name, CLASSES)
        )
    factor, defaults = CLASSES[name]
    return factor(options(spec, run.where, {"name": REQUIRED, **defaults}), run)


_PARAMETERS = parameters(
    optimizer=REQUIRED, schedulers=REQUIRED, max_duration=REQUIRED, scale_schedule_ratio=1.0
)
DEFECTS = {
    "last-scheduler-wins": Defect(
        "the schedulers do not multiply, as documented: the last one decides",
        "composer/optim/scheduler.py:202",
        lambda schedulers, ratio: len(schedulers) > 1,
        documented="the product of the schedulers",
        classes=("list",),
    ),
    "scaled-warmup": Defect(
        "a scaled warmup ends where the warmup that is not scaled would end",
        "composer/optim/scheduler.py:773",
        lambda schedulers, ratio: (
            ratio != 1 and any(entry.get("scale_warmup") for entry in schedulers)
        ),
        documented="a warmup that is scaled as the rest of the schedule is",
        classes=tuple(name for name in CLASSES if "WithWarmup" in name),
    ),
    "constant-ends-at-one": Defect(
        "after t_max the factor is 1, not alpha",
        "composer/optim/scheduler.py:307",
        lambda schedulers, ratio: any(
            entry["name"] == "ConstantScheduler" and "alpha" in entry for entry in schedulers
        ),
        kind=Kind.CONVENTION,
        classes=("ConstantScheduler",),
    ),
}
SCHEDULES = {name: ScheduleEntry(name, (), _PARAMETERS, _build) for name in (*CLASSES, "list")}
