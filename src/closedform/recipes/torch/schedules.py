"""The schedulers of torch 2.13: each a factor or a function of the group's base value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sympy as sp

from closedform.language import Schedule
from closedform.recipes import checks
from closedform.recipes.entries import (
    REQUIRED,
    Context,
    Parameter,
    ScheduleBuilder,
    ScheduleEntry,
    Touches,
    touches_all,
)
from closedform.recipes.plateau import TORCH_ARGUMENTS, metric_entry, torch_plateau
from closedform.recipes.torch import composites, formulas
from closedform.schedules.cyclic import MODES, SCALE_MODES
from closedform.schedules.one_cycle import ANNEALS

_TOTAL = Parameter("total_iters", 5)
_FRACTION = checks.in_range(0, 1)
_GAMMA = Parameter("gamma", 0.1, checks.number)
_LAMBDA = Parameter("lr_lambda")
_LAST_EPOCH = Parameter("last_epoch", -1, checks.last_epoch)
_LOW = Parameter("eta_min", 0.0, checks.number)
_MEMBERS = Parameter("schedulers")
_COUNT = checks.count(1)


def _resumed(build: ScheduleBuilder) -> ScheduleBuilder:
    """The builder of a scheduler that is made in mid-run: it begins at last_epoch + 1."""

    def build_resumed(given: Mapping[str, Any], context: Context) -> Schedule:
        done = given["last_epoch"] + 1
        schedule = build(given, context)
        return schedule if done == 0 else schedule.shift(done)

    return build_resumed


def _entry(
    name: str,
    builds: tuple[str, ...],
    build: ScheduleBuilder,
    *parameters: Parameter,
    children: str | None = None,
    touches: Touches = touches_all,
) -> ScheduleEntry:
    """A class whose last argument is ``last_epoch``."""
    given = (*parameters, _LAST_EPOCH)
    return ScheduleEntry(name, builds, given, _resumed(build), children=children, touches=touches)


_ENTRIES = (
    _entry("LambdaLR", ("function",), formulas.function_of_step, _LAMBDA),
    _entry("MultiplicativeLR", ("multiplicative",), formulas.running_factors, _LAMBDA),
    _entry(
        "StepLR",
        ("step_decay",),
        formulas.steps_down,
        Parameter("step_size", REQUIRED, checks.steps),
        _GAMMA,
    ),
    _entry(
        "MultiStepLR",
        ("multi_step",),
        formulas.milestones_down,
        Parameter("milestones", REQUIRED, checks.milestones),
        _GAMMA,
    ),
    _entry(
        "ConstantLR",
        ("piecewise_constant",),
        formulas.constant_factor,
        Parameter("factor", sp.Rational(1, 3), _FRACTION),
        _TOTAL,
    ),
    _entry(
        "LinearLR",
        ("linear",),
        formulas.line,
        Parameter("start_factor", sp.Rational(1, 3), checks.in_range(0, 1, is_open_below=True)),
        Parameter("end_factor", 1.0, _FRACTION),
        _TOTAL,
    ),
    _entry(
        "ExponentialLR",
        ("multiplicative",),
        formulas.power_of_gamma,
        Parameter("gamma", REQUIRED, checks.number),
    ),
    _entry(
        "SequentialLR",
        ("sequential",),
        composites.sequence,
        _MEMBERS,
        Parameter("milestones", REQUIRED, checks.integer_milestones),
        children="schedulers",
    ),
    _entry(
        "PolynomialLR",
        ("polynomial",),
        formulas.power_of_rest,
        _TOTAL,
        Parameter("power", 1.0, checks.number),
    ),
    _entry(
        "CosineAnnealingLR",
        ("cosine_annealing",),
        formulas.cosine_swing,
        Parameter("T_max", REQUIRED, checks.steps),
        _LOW,
    ),
    ScheduleEntry(
        "ChainedScheduler", ("chained",), (_MEMBERS,), composites.product, children="schedulers"
    ),
    metric_entry("ReduceLROnPlateau", TORCH_ARGUMENTS, torch_plateau),
    _entry(
        "CyclicLR",
        ("cyclic",),
        formulas.triangles,
        Parameter("base_lr"),
        Parameter("max_lr"),
        Parameter("step_size_up", 2000, checks.steps),
        Parameter("step_size_down", None, checks.at_least(0)),
        Parameter("mode", "triangular", checks.choice(*MODES)),
        Parameter("gamma", 1.0, checks.number),
        Parameter("scale_fn", None),
        Parameter("scale_mode", "cycle", checks.choice(*SCALE_MODES)),
        Parameter("cycle_momentum", True, checks.flag),
        Parameter("base_momentum", 0.8),
        Parameter("max_momentum", 0.9),
        touches=formulas.is_cycled,
    ),
    _entry(
        "CosineAnnealingWarmRestarts",
        ("warm_restarts",),
        formulas.cosine_restarts,
        Parameter("T_0", REQUIRED, _COUNT),
        Parameter("T_mult", 1, _COUNT),
        _LOW,
    ),
    _entry(
        "OneCycleLR",
        ("one_cycle", "one_cycle_momentum"),
        formulas.one_cycle_policy,
        Parameter("max_lr"),
        Parameter("total_steps", None, _COUNT),
        Parameter("epochs", None, _COUNT),
        Parameter("steps_per_epoch", None, _COUNT),
        Parameter("pct_start", 0.3, checks.in_range(0, 1)),
        Parameter("anneal_strategy", "cos", checks.choice(*ANNEALS)),
        Parameter("cycle_momentum", True, checks.flag),
        Parameter("base_momentum", 0.85),
        Parameter("max_momentum", 0.95),
        Parameter("div_factor", 25.0, checks.divisor),
        Parameter("final_div_factor", 1e4, checks.divisor),
        Parameter("three_phase", False, checks.flag),
        touches=formulas.is_cycled,
    ),
)
SCHEDULES = {entry.name: entry for entry in _ENTRIES}
