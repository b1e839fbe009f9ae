"""The schedulers of detectron2 with fvcore, from the section ``SOLVER``.

The clock is the part of the run that is done, x = t / MAX_ITER.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy as sp

from closedform.language import Schedule, t
from closedform.recipes.entries import REQUIRED, Context, ScheduleEntry, parameters
from closedform.recipes.intervals import UndefinedError, by_intervals, first_after, first_from
from closedform.recipes.native import (
    check_name,
    count,
    group_rate,
    number,
    options,
    refuse_unless,
)
from closedform.schedules.blends import along_cosine, along_line

Arguments = Mapping[str, Any]
EPSILON = sp.Rational(1, 10**6)
"""It is added to a position before it is compared: WHERE_EPSILON of fvcore."""
_PAST_THE_END = "RuntimeError: the position in the schedule must be in [0, 1]"
Stage = tuple[Callable[[sp.Expr], sp.Expr], sp.Expr | None]
"""From x to the factor, and the x at which the next stage begins."""


@dataclass(frozen=True, slots=True)
class Curve:
    """The curve without its warmup.

    Attributes:
        stages: Its stages in x.
        end: The x after which a value is refused; None for no end.
        with_end: Whether x = end is refused as well.
        reason: What detectron2 does there.
    """

    stages: tuple[Stage, ...]
    end: sp.Expr | None = None
    with_end: bool = False
    reason: str = ""

    def at(self, x: sp.Expr) -> sp.Expr:
        """Returns the factor at a number x."""
        if self.end is not None and (x > self.end or (self.with_end and x == self.end)):
            raise UndefinedError(self.reason)
        return next(value for value, mark in self.stages if mark is None or x < mark)(x)


def _steps(solver: Arguments, where: str) -> Curve:
    total, gamma = solver["MAX_ITER"], number(solver["GAMMA"], "GAMMA", where)
    steps = [count(step, "STEPS", where) for step in solver["STEPS"] if step <= total]
    refuse_unless(steps == sorted(set(steps)), f"STEPS must increase, got {steps}", where)
    refuse_unless(
        not steps or steps[-1] < total, f"STEPS must be below MAX_ITER {total}, got {steps}", where
    )
    marks = [sp.Rational(step, total) for step in steps]
    return steps_at([gamma**index for index in range(len(marks) + 1)], marks)


def _cosine(solver: Arguments, where: str) -> Curve:
    end = number(solver["BASE_LR_END"], "BASE_LR_END", where)
    end /= number(solver["BASE_LR"], "BASE_LR", where)
    refuse_unless(end <= 1, "BASE_LR_END must not be above BASE_LR", where)
    return Curve(((lambda x: along_cosine(sp.S.One, end, x), None),))


def _fixed_gamma(solver: Arguments, where: str) -> Curve:
    gamma = number(solver["GAMMA"], "GAMMA", where)
    decays = count(solver["NUM_DECAYS"], "NUM_DECAYS", where)
    return equal_steps([gamma**index for index in range(decays + 1)])


def equal_steps(values: Sequence[sp.Expr]) -> Curve:
    """Returns the curve of values that hold equally long; the end of the run has none."""
    marks = [sp.Rational(index + 1, len(values)) - EPSILON for index in range(len(values))]
    stages = tuple((_value(value), mark) for value, mark in zip(values, marks, strict=True))
    return Curve(stages, marks[-1], with_end=True, reason="IndexError: list index out of range")


def steps_at(values: Sequence[sp.Expr], marks: Sequence[sp.Expr]) -> Curve:
    """Returns the curve of values that change at increasing parts of the run."""
    ends = [mark - EPSILON for mark in marks]
    stages = [(_value(value), mark) for value, mark in zip(values, ends, strict=False)]
    return Curve((*stages, (_value(values[-1]), None)), sp.S.One, reason=_PAST_THE_END)


def _value(factor: sp.Expr) -> Callable[[sp.Expr], sp.Expr]:
    return lambda x: factor


_CURVES: Mapping[str, Callable[[Arguments, str], Curve]] = {
    "WarmupMultiStepLR": _steps,
    "WarmupCosineLR": _cosine,
    "WarmupStepWithFixedGammaLR": _fixed_gamma,
}


@dataclass(frozen=True, slots=True)
class Warmup:
    """A warmup before a curve.

    Attributes:
        length: Its part of the run.
        factor: Its start as a factor of the curve's start.
        method: ``linear`` or ``constant``.
        rescale: Whether the curve begins after the warmup.
    """

    length: sp.Expr
    factor: sp.Expr
    method: str
    rescale: bool


def _build(given: Arguments, context: Context) -> Schedule:
    where, name = context.where, context.path[-1]
    solver = options(given["SOLVER"], where, SECTION)
    check_name(name, solver["LR_SCHEDULER_NAME"], "LR_SCHEDULER_NAME", where)
    rate = group_rate(context, solver["BASE_LR"])
    total = _total(solver, where)
    curve = _CURVES[name](solver, where)
    updates = sp.Integer(count(solver["WARMUP_ITERS"], "WARMUP_ITERS", where))
    warmup = Warmup(
        min(updates / total, sp.S.One),
        number(solver["WARMUP_FACTOR"], "WARMUP_FACTOR", where),
        solver["WARMUP_METHOD"],
        bool(solver["RESCALE_INTERVAL"]),
    )
    return warmed_up(name, rate, total, curve, warmup, where)


def _total(solver: Arguments, where: str) -> sp.Integer:
    total = count(solver["MAX_ITER"], "MAX_ITER", where)
    refuse_unless(total > 0, f"MAX_ITER must be above 0, got {total}", where)
    return sp.Integer(total)


def warmed_up(
    name: str, rate: sp.Expr, total: sp.Expr, curve: Curve, warmup: Warmup, where: str
) -> Schedule:
    """Returns a rate times a curve of the run with its warmup.

    Raises:
        DefinitionError: The method of the warmup is unknown, or detectron2 refuses it.
    """
    method, length, rescale = warmup.method, warmup.length, warmup.rescale
    refuse_unless(
        method in ("linear", "constant"),
        f"WARMUP_METHOD must be linear or constant, got {method!r}",
        where,
    )
    x = t / total
    stages: list[tuple[Callable[[], sp.Expr], int | None]] = []
    if length > 0:
        rise = _warmup(curve, warmup, where)
        stages.append((lambda: rate * rise(x), first_after((length - EPSILON) * total)))

    def position(mark: sp.Expr) -> sp.Expr:
        """The update of a mark of the curve."""
        return (length + mark * (1 - length) if rescale else mark) * total

    place = x
    if rescale and length > 0:
        if length == 1:
            return by_intervals(name, *stages, (_no_updates, None))
        place = (t - length * total) / (total - length * total)
    rescale = rescale and length > 0
    for value, mark in curve.stages:
        stop = curve.end if mark is None else mark
        after = mark is None and not curve.with_end
        end = None if stop is None else (first_after if after else first_from)(position(stop))
        stages.append((_scaled(rate, value, place), end))
    return by_intervals(name, *stages, (_refused(curve), None))


def _warmup(curve: Curve, warmup: Warmup, where: str) -> Callable[[sp.Expr], sp.Expr]:
    """The warmup: to the curve at its end, which is its start if the curve is moved."""
    try:
        first = warmup.factor * curve.at(sp.S.Zero)
        last = curve.at(sp.S.Zero if warmup.rescale else warmup.length)
    except UndefinedError as error:
        refuse_unless(False, str(error), where)
        raise
    if warmup.method == "constant":
        return lambda x: first
    return lambda x: along_line(first, last, x / warmup.length)


def _poly(given: Arguments, context: Context) -> Schedule:
    """DeepLab's WarmupPolyLR: a polynomial to 0, times the factor of a warmup."""
    where, name = context.where, context.path[-1]
    solver = options(given["SOLVER"], where, {**SECTION, **_DEEPLAB})
    check_name(name, solver["LR_SCHEDULER_NAME"], "LR_SCHEDULER_NAME", where)
    rate = group_rate(context, solver["BASE_LR"])
    total = _total(solver, where)
    updates = sp.Integer(count(solver["WARMUP_ITERS"], "WARMUP_ITERS", where))
    power, last = (number(solver[key], key, where) for key in _DEEPLAB)
    start, method = number(solver["WARMUP_FACTOR"], "WARMUP_FACTOR", where), solver["WARMUP_METHOD"]
    refuse_unless(
        method in ("linear", "constant"),
        f"WARMUP_METHOD must be linear or constant, got {method!r}",
        where,
    )
    fall = sp.Max(0, total - t) ** power / total**power
    rise = along_line(start, sp.S.One, t / updates) if method == "linear" else start
    rest = sp.Max(last, fall) if last > 0 else fall
    end = int(total) + 1
    return by_intervals(
        name,
        (lambda: rate * rise * fall, min(int(updates), end)),
        (lambda: rate * rest, end),
        (_past_zero, None),
    )


def _past_zero() -> sp.Expr:
    raise UndefinedError("ValueError: a negative number to a fractional power")


def _scaled(
    rate: sp.Expr, value: Callable[[sp.Expr], sp.Expr], x: sp.Expr
) -> Callable[[], sp.Expr]:
    return lambda: rate * value(x)


def _no_updates() -> sp.Expr:
    raise UndefinedError("ZeroDivisionError: RESCALE_INTERVAL leaves no updates")


def _refused(curve: Curve) -> Callable[[], sp.Expr]:
    def refuse() -> sp.Expr:
        raise UndefinedError(curve.reason)

    return refuse


SECTION: Mapping[str, Any] = {
    "BASE_LR": 0.001,
    "BASE_LR_END": 0.0,
    "MAX_ITER": 40000,
    "LR_SCHEDULER_NAME": "WarmupMultiStepLR",
    "STEPS": (30000,),
    "GAMMA": 0.1,
    "NUM_DECAYS": 3,
    "WARMUP_ITERS": 1000,
    "WARMUP_FACTOR": 0.001,
    "WARMUP_METHOD": "linear",
    "RESCALE_INTERVAL": False,
}
"""The options that decide on the rate, with their defaults."""
_DEEPLAB: Mapping[str, Any] = {"POLY_LR_POWER": 0.9, "POLY_LR_CONSTANT_ENDING": 0.0}
_NOTES: Mapping[str, tuple[str, ...]] = {
    "WarmupMultiStepLR": (
        "a warmup that reaches past a step never sees the peak",
        "STEPS beyond MAX_ITER are dropped, but a step at MAX_ITER is refused",
    ),
    "WarmupCosineLR": ("a warmup as long as the run falls all the way",),
    "WarmupStepWithFixedGammaLR": ("raises IndexError at the end of the run",),
}
SCHEDULES = {
    name: ScheduleEntry(name, (), parameters(SOLVER=REQUIRED), _build, notes=_NOTES[name])
    for name in _CURVES
}
SCHEDULES["WarmupPolyLR"] = ScheduleEntry(
    "WarmupPolyLR",
    (),
    parameters(SOLVER=REQUIRED),
    _poly,
    notes=("a scheduler of the project DeepLab", "the polynomial falls during the warmup as well"),
)
