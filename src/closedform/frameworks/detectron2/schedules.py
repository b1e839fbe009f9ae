"""The schedulers of detectron2 with fvcore: the section ``SOLVER``, its curves, its defects.

A curve is a function of the part of the run that is done, x = t / MAX_ITER. ``WarmupPolyLR`` is of
the project DeepLab.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import sympy as sp

from closedform.errors import DefinitionError
from closedform.language import Schedule, exact_number
from closedform.recipes import kit
from closedform.schedules.blends import along_cosine, along_line

CLOCK = kit.Clock(kit.Unit.UPDATE)
EPSILON = sp.Rational(1, 10**6)
"""It is added to a position before it is compared: WHERE_EPSILON of fvcore."""
_PAST_THE_END = "RuntimeError: the position in the schedule must be in [0, 1]"
FactorSegment = tuple[Callable[[sp.Expr], sp.Expr], sp.Expr | None]
"""From x to the factor, and the x at which the next stage begins."""


@dataclass(frozen=True, slots=True)
class MultiplierCurve:
    """The curve without its warmup.

    Attributes:
        stages: Its stages in x.
        end: The x after which a value is refused; None for no end.
        with_end: Whether x = end is refused as well.
        reason: What detectron2 does there.
    """

    stages: tuple[FactorSegment, ...]
    end: sp.Expr | None = None
    with_end: bool = False
    reason: str = ""

    def at(self, x: sp.Expr) -> sp.Expr:
        """Returns the factor at a number x."""
        if self.end is not None and (x > self.end or (self.with_end and x == self.end)):
            raise kit.UndefinedError(self.reason)
        return next(value for value, mark in self.stages if mark is None or x < mark)(x)


def _steps(solver: Solver) -> MultiplierCurve:
    total = solver.MAX_ITER
    # Steps beyond the run are dropped, but one at MAX_ITER is left, and fails below.
    steps = [step for step in solver.STEPS if step <= total]
    if steps != sorted(set(steps)):
        raise solver.error(f"STEPS must increase, got {steps}", "STEPS")
    if steps and steps[-1] >= total:
        raise solver.error(f"STEPS must be below MAX_ITER {total}, got {steps}", "STEPS")
    marks = [sp.Rational(step, total) for step in steps]
    return steps_at([solver.GAMMA**index for index in range(len(marks) + 1)], marks)


def _cosine(solver: Solver) -> MultiplierCurve:
    if solver.BASE_LR_END > solver.BASE_LR:
        raise solver.error("BASE_LR_END must not be above BASE_LR", "BASE_LR_END")
    end = solver.BASE_LR_END / solver.BASE_LR
    return MultiplierCurve(((lambda x: along_cosine(sp.S.One, end, x), None),))


def _fixed_gamma(solver: Solver) -> MultiplierCurve:
    return equal_steps([solver.GAMMA**index for index in range(solver.NUM_DECAYS + 1)])


def equal_steps(values: Sequence[sp.Expr]) -> MultiplierCurve:
    """Returns the curve of values that hold equally long; the end of the run has none."""
    marks = [sp.Rational(index + 1, len(values)) - EPSILON for index in range(len(values))]
    stages = tuple((_value(value), mark) for value, mark in zip(values, marks, strict=True))
    return MultiplierCurve(
        stages,
        marks[-1],
        with_end=True,
        reason="IndexError: list index out of range",
        # At the end of the run the index is the number of values: refused already at x = 1.
    )


def steps_at(values: Sequence[sp.Expr], marks: Sequence[sp.Expr]) -> MultiplierCurve:
    """Returns the curve of values that change at increasing parts of the run."""
    ends = [mark - EPSILON for mark in marks]
    stages = [(_value(value), mark) for value, mark in zip(values, ends, strict=False)]
    return MultiplierCurve((*stages, (_value(values[-1]), None)), sp.S.One, reason=_PAST_THE_END)


def _value(factor: sp.Expr) -> Callable[[sp.Expr], sp.Expr]:
    return lambda x: factor


CURVES: Mapping[str, Callable[[Solver], MultiplierCurve]] = {
    "WarmupMultiStepLR": _steps,
    "WarmupCosineLR": _cosine,
    "WarmupStepWithFixedGammaLR": _fixed_gamma,
}
POLYNOMIAL = "WarmupPolyLR"


class Clipping(kit.Section, irrelevant="NORM_TYPE"):
    ENABLED: bool = False
    CLIP_TYPE: Literal["value", "norm", "full_model"] = "value"
    CLIP_VALUE: kit.Norm = 1.0


class Solver(kit.Section, irrelevant="IMS_PER_BATCH CHECKPOINT_PERIOD AMP"):
    LR_SCHEDULER_NAME: str = kit.choice(*CURVES, POLYNOMIAL, default="WarmupMultiStepLR")
    BASE_LR: kit.Rate = 0.001
    BASE_LR_END: kit.EndRate = 0.0
    MAX_ITER: kit.Steps = 40000
    STEPS: tuple[int, ...] = (30000,)
    GAMMA: kit.Number = 0.1
    NUM_DECAYS: int = 3
    WARMUP_ITERS: kit.Steps = 1000
    WARMUP_FACTOR: kit.RateRatio = 0.001
    WARMUP_METHOD: Literal["linear", "constant"] = "linear"
    RESCALE_INTERVAL: bool = False
    REFERENCE_WORLD_SIZE: int = 0
    OPTIMIZER: str = "SGD"
    MOMENTUM: kit.Momentum = 0.9
    NESTEROV: bool = False
    WEIGHT_DECAY: kit.WeightDecay = 0.0001
    WEIGHT_DECAY_NORM: kit.WeightDecay = 0.0
    WEIGHT_DECAY_BIAS: kit.WeightDecay | None = None
    BIAS_LR_FACTOR: kit.RateRatio = 1.0
    CLIP_GRADIENTS: Clipping
    # Those of projects.
    BACKBONE_MULTIPLIER: kit.RateRatio | None = None
    WEIGHT_DECAY_EMBED: kit.WeightDecay | None = None
    POLY_LR_POWER: kit.Power = 0.9
    POLY_LR_CONSTANT_ENDING: kit.RateRatio = 0.0


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


def at_workers(solver: Solver, facts: kit.Facts, where: str) -> Solver:
    """Returns the options of a run with as many workers as the facts have.

    Raises:
        ConfigError: The run has no update.
        MissingFactsError: The number of workers is missing, and the options depend on it.
    """
    if solver.REFERENCE_WORLD_SIZE:
        (workers,) = facts.require("world_size", where=where)
        # detectron2 computes in floats, and rounds half to even.
        scale = int(workers) / solver.REFERENCE_WORLD_SIZE
        solver = solver.replace(
            REFERENCE_WORLD_SIZE=0,
            BASE_LR=exact_number(float(solver.BASE_LR) * scale),
            MAX_ITER=round(solver.MAX_ITER / scale),
            WARMUP_ITERS=round(solver.WARMUP_ITERS / scale),
            STEPS=tuple(round(step / scale) for step in solver.STEPS),
        )
    if solver.MAX_ITER <= 0:
        raise solver.error(f"MAX_ITER must be above 0, got {solver.MAX_ITER}", "MAX_ITER")
    return solver


def rate_of(context: kit.Context, solver: Solver) -> Schedule:
    """Returns the rate of the param group of a context."""
    solver = at_workers(solver, context.numbers, context.where)
    rate = context.of_group("lr", solver.BASE_LR)
    if solver.LR_SCHEDULER_NAME == POLYNOMIAL:
        return _polynomial(solver, rate)
    total = sp.Integer(solver.MAX_ITER)
    warmup = Warmup(
        # A warmup that is longer than the run ends with it.
        min(solver.WARMUP_ITERS / total, sp.S.One),
        solver.WARMUP_FACTOR,
        solver.WARMUP_METHOD,
        solver.RESCALE_INTERVAL,
    )
    name = solver.LR_SCHEDULER_NAME
    return warmed_up(name, rate, total, CURVES[name](solver), warmup)


def _polynomial(solver: Solver, rate: sp.Expr) -> Schedule:
    """A polynomial to 0, times the factor of a warmup."""
    n, total = CLOCK.count(kit.Facts()).n, sp.Integer(solver.MAX_ITER)
    start, last = solver.WARMUP_FACTOR, solver.POLY_LR_CONSTANT_ENDING
    fall = sp.Max(0, total - n) ** solver.POLY_LR_POWER / total**solver.POLY_LR_POWER
    rise = start
    if solver.WARMUP_METHOD == "linear" and solver.WARMUP_ITERS > 0:
        rise = along_line(start, sp.S.One, n / solver.WARMUP_ITERS)
    rest = sp.Max(last, fall) if last > 0 else fall
    end = int(total) + 1
    return kit.by_intervals(
        POLYNOMIAL,
        (lambda: rate * rise * fall, min(solver.WARMUP_ITERS, end)),
        (lambda: rate * rest, end),
        (_refusal("ValueError: a negative number to a fractional power"), None),
    )


def warmed_up(
    name: str, rate: sp.Expr, total: sp.Expr, curve: MultiplierCurve, warmup: Warmup
) -> Schedule:
    """Returns a rate times a curve of the run with its warmup.

    Raises:
        DefinitionError: The curve has no value where the warmup needs one.
    """
    count = CLOCK.count(kit.Facts())
    length, rescale = warmup.length, warmup.rescale and warmup.length > 0
    x = count.n / total
    stages: list[tuple[Callable[[], sp.Expr], int | None]] = []
    if length > 0:
        rise = _warmup(curve, warmup)
        # The warmup holds while x + epsilon <= length.
        stages.append((lambda: rate * rise(x), count.first_after((length - EPSILON) * total)))

    def position(mark: sp.Expr) -> sp.Expr:
        """The update of a mark of the curve."""
        return (length + mark * (1 - length) if rescale else mark) * total

    place = x
    if rescale:
        if length == 1:
            reason = "ZeroDivisionError: RESCALE_INTERVAL leaves no updates"
            return kit.by_intervals(name, *stages, (_refusal(reason), None))
        place = (count.n - length * total) / (total - length * total)
    for value, mark in curve.stages:
        stop = curve.end if mark is None else mark
        after = mark is None and not curve.with_end
        until = count.first_after if after else count.first_from
        end = None if stop is None else until(position(stop))
        stages.append((_scaled(rate, value, place), end))
    return kit.by_intervals(name, *stages, (_refusal(curve.reason), None))


def _warmup(curve: MultiplierCurve, warmup: Warmup) -> Callable[[sp.Expr], sp.Expr]:
    """The warmup: to the curve at its end, which is its start if the curve is moved."""
    try:
        first = warmup.factor * curve.at(sp.S.Zero)
        # The warmup ends at the curve's value, not at the peak, unless the curve is moved behind
        # it.
        last = curve.at(sp.S.Zero if warmup.rescale else warmup.length)
    except kit.UndefinedError as error:
        raise DefinitionError(str(error)) from error
    if warmup.method == "constant":
        return lambda x: first
    return lambda x: along_line(first, last, x / warmup.length)


def _scaled(
    rate: sp.Expr, value: Callable[[sp.Expr], sp.Expr], x: sp.Expr
) -> Callable[[], sp.Expr]:
    return lambda: rate * value(x)


def _refusal(reason: str) -> Callable[[], sp.Expr]:
    def refuse() -> sp.Expr:
        raise kit.UndefinedError(reason)

    return refuse


def _of_scheduler(name: str, condition: Callable[[Solver], bool]) -> Callable[..., bool]:
    """The condition of a defect of a scheduler; LazyConfigs have no SOLVER."""
    return lambda solver, params: (
        solver is not None and solver.LR_SCHEDULER_NAME == name and condition(solver)
    )


DEFECTS: Mapping[str, kit.Defect[[Solver | None, Any]]] = {
    "step-hides-peak": kit.Defect(
        "a warmup that reaches past a step ends at a rate that has already been decayed",
        "detectron2/solver/lr_scheduler.py:46",
        _of_scheduler(
            "WarmupMultiStepLR",
            lambda solver: any(
                step <= min(solver.WARMUP_ITERS, solver.MAX_ITER) for step in solver.STEPS
            ),
        ),
        kind=kit.DefectKind.CONVENTION,
        classes=("WarmupMultiStepLR",),
    ),
    "steps-dropped": kit.Defect(
        "STEPS beyond MAX_ITER are dropped, but a step at MAX_ITER is refused",
        "detectron2/solver/build.py:290",
        _of_scheduler(
            "WarmupMultiStepLR",
            lambda solver: any(step > solver.MAX_ITER for step in solver.STEPS),
        ),
        kind=kit.DefectKind.CONVENTION,
        classes=("WarmupMultiStepLR",),
    ),
    "warmup-ends-below-peak": kit.Defect(
        "without RESCALE_INTERVAL the cosine begins with the run: the warmup ends below the peak, "
        "and one as long as the run falls all the way",
        "detectron2/solver/lr_scheduler.py:46",
        _of_scheduler(
            "WarmupCosineLR",
            lambda solver: solver.WARMUP_ITERS > 0 and not solver.RESCALE_INTERVAL,
        ),
        kind=kit.DefectKind.CONVENTION,
        classes=("WarmupCosineLR",),
    ),
    "no-value-at-the-end": kit.Defect(
        "WarmupStepWithFixedGammaLR raises IndexError at the end of the run",
        "fvcore/common/param_scheduler.py: StepParamScheduler.__call__",
        _of_scheduler("WarmupStepWithFixedGammaLR", lambda solver: True),
        kind=kit.DefectKind.CONVENTION,
        classes=("WarmupStepWithFixedGammaLR",),
    ),
    "falls-in-the-warmup": kit.Defect(
        "the polynomial falls during the warmup as well",
        "projects/DeepLab/deeplab/lr_scheduler.py:56",
        _of_scheduler(POLYNOMIAL, lambda solver: solver.WARMUP_ITERS > 0),
        kind=kit.DefectKind.CONVENTION,
        classes=(POLYNOMIAL,),
    ),
    "clip-each": kit.Defect(
        "gradients are clipped for each parameter on its own, not all together",
        "detectron2/config/defaults.py:583",
        lambda solver, params: (
            solver is not None
            and solver.CLIP_GRADIENTS.ENABLED
            and solver.CLIP_GRADIENTS.CLIP_TYPE == "norm"
        ),
        kind=kit.DefectKind.CONVENTION,
    ),
    "rates-by-layer": kit.Defect(
        "lr_factor_func gives every layer its own factor of the rate",
        "detectron2/solver/build.py:231",
        lambda solver, params: params is not None and "lr_factor_func" in params,
        kind=kit.DefectKind.CONVENTION,
    ),
}

SCHEDULES = kit.section_entries(
    dict.fromkeys((*CURVES, POLYNOMIAL), rate_of),
    {"SOLVER": Solver},
    style=lambda solver: str(solver.LR_SCHEDULER_NAME),
)
