"""The schedulers of detectron2 with fvcore: the section ``SOLVER``, its curves, its defects.

A curve is a function of the part of the run that is done, x = t / MAX_ITER. ``WarmupPolyLR`` is of
the project DeepLab.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

import sympy as sp

from closedform.errors import DefinitionError
from closedform.frameworks.detectron2 import curves
from closedform.language import Schedule, exact_number, t
from closedform.recipes import kit

CLOCK = kit.Clock(kit.Unit.UPDATE)
MultiplierCurve = tuple[kit.CurveFunction, Mapping[str, Any]]
"""A curve of the part of the run without its warmup, and its numbers."""


def _steps(solver: Solver) -> MultiplierCurve:
    total = solver.MAX_ITER
    # Steps beyond the run are dropped, but one at MAX_ITER is left, and fails below.
    steps = [step for step in solver.STEPS if step <= total]
    if steps != sorted(set(steps)):
        raise solver.error(f"STEPS must increase, got {steps}", "STEPS")
    if steps and steps[-1] >= total:
        raise solver.error(f"STEPS must be below MAX_ITER {total}, got {steps}", "STEPS")
    marks = [sp.Rational(step, total) for step in steps]
    values = [solver.GAMMA**index for index in range(len(marks) + 1)]
    return curves.milestones, {"values": values, "marks": marks}


def _cosine(solver: Solver) -> MultiplierCurve:
    if solver.BASE_LR_END > solver.BASE_LR:
        raise solver.error("BASE_LR_END must not be above BASE_LR", "BASE_LR_END")
    return curves.cosine, {"start_value": 1, "end_value": solver.BASE_LR_END / solver.BASE_LR}


def _fixed_gamma(solver: Solver) -> MultiplierCurve:
    values = [solver.GAMMA**index for index in range(solver.NUM_DECAYS + 1)]
    return curves.equal_steps, {"values": values}


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
        return kit.curve(POLYNOMIAL, curves.deeplab, t, solver, rate=rate)
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


def warmed_up(
    name: str, rate: sp.Expr, total: sp.Expr, curve: MultiplierCurve, warmup: Warmup
) -> Schedule:
    """Returns a rate times a curve of the run with its warmup.

    Raises:
        DefinitionError: The curve has no value where the warmup needs one.
    """
    function, numbers = curve
    if warmup.length > 0:
        try:
            for x in (sp.S.Zero, sp.S.Zero if warmup.rescale else warmup.length):
                function(x, **numbers)
        except (LookupError, ValueError) as error:
            raise DefinitionError(str(error)) from error
    lengths = {field.name: getattr(warmup, field.name) for field in fields(warmup)}
    parts = {"curve": function, "numbers": numbers, **lengths}
    return kit.curve(name, curves.warmed_up, rate=rate, total=total, **parts)


def _of_scheduler(name: str, condition: Callable[[Solver], bool]) -> Callable[..., bool]:
    """The condition of a defect of a scheduler; LazyConfigs have no SOLVER."""
    return lambda solver, params: (
        solver is not None and solver.LR_SCHEDULER_NAME == name and condition(solver)
    )


DEFECTS: Mapping[str, kit.Note[[Solver | None, Any]]] = {
    "step-hides-peak": kit.Convention(
        "a warmup that reaches past a step ends at a rate that has already been decayed",
        "detectron2/solver/lr_scheduler.py:46",
        _of_scheduler(
            "WarmupMultiStepLR",
            lambda solver: any(
                step <= min(solver.WARMUP_ITERS, solver.MAX_ITER) for step in solver.STEPS
            ),
        ),
        classes=("WarmupMultiStepLR",),
    ),
    "steps-dropped": kit.Convention(
        "STEPS beyond MAX_ITER are dropped, but a step at MAX_ITER is refused",
        "detectron2/solver/build.py:290",
        _of_scheduler(
            "WarmupMultiStepLR",
            lambda solver: any(step > solver.MAX_ITER for step in solver.STEPS),
        ),
        classes=("WarmupMultiStepLR",),
    ),
    "warmup-ends-below-peak": kit.Convention(
        "without RESCALE_INTERVAL the cosine begins with the run: the warmup ends below the peak, "
        "and one as long as the run falls all the way",
        "detectron2/solver/lr_scheduler.py:46",
        _of_scheduler(
            "WarmupCosineLR",
            lambda solver: solver.WARMUP_ITERS > 0 and not solver.RESCALE_INTERVAL,
        ),
        classes=("WarmupCosineLR",),
    ),
    "no-value-at-the-end": kit.Convention(
        "WarmupStepWithFixedGammaLR raises IndexError at the end of the run",
        "fvcore/common/param_scheduler.py: StepParamScheduler.__call__",
        _of_scheduler("WarmupStepWithFixedGammaLR", lambda solver: True),
        classes=("WarmupStepWithFixedGammaLR",),
    ),
    "falls-in-the-warmup": kit.Convention(
        "the polynomial falls during the warmup as well",
        "projects/DeepLab/deeplab/lr_scheduler.py:56",
        _of_scheduler(POLYNOMIAL, lambda solver: solver.WARMUP_ITERS > 0),
        classes=(POLYNOMIAL,),
    ),
    "clip-each": kit.Convention(
        "gradients are clipped for each parameter on its own, not all together",
        "detectron2/config/defaults.py:583",
        lambda solver, params: (
            solver is not None
            and solver.CLIP_GRADIENTS.ENABLED
            and solver.CLIP_GRADIENTS.CLIP_TYPE == "norm"
        ),
    ),
    "rates-by-layer": kit.Convention(
        "lr_factor_func gives every layer its own factor of the rate",
        "detectron2/solver/build.py:231",
        lambda solver, params: params is not None and "lr_factor_func" in params,
    ),
}

SCHEDULES = kit.section_entries(
    dict.fromkeys((*CURVES, POLYNOMIAL), rate_of),
    {"SOLVER": Solver},
    style=lambda solver: str(solver.LR_SCHEDULER_NAME),
)
