"""The schedulers of torch 2.13: each a factor or a function of the group's base value.

By default a formula is its closed form; as implemented it is the value that ``step()`` sets, which
differs where a number of steps is not a positive integer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sympy as sp

from closedform.errors import DefinitionError, DomainError
from closedform.frameworks.torch import composites
from closedform.frameworks.torch.products import factor_of, running_product
from closedform.language import Schedule, t
from closedform.recipes import kit
from closedform.schedules import (
    constant,
    cosine_annealing,
    cyclic,
    function,
    linear,
    multi_step,
    multiplicative,
    one_cycle,
    one_cycle_momentum,
    piecewise_constant,
    polynomial,
    step_decay,
    warm_restarts,
)
from closedform.schedules.cyclic import MODES, SCALE_MODES
from closedform.schedules.one_cycle import ANNEALS, cycle_phases


def _total(given: kit.Arguments, context: kit.Context) -> sp.Rational:
    """The number of steps, above 0 by default; as implemented it may be anything."""
    if context.as_implemented:
        return kit.checks.number(given["total_iters"], "total_iters", context.where)
    return kit.checks.steps(given["total_iters"], "total_iters", context.where)


def constant_factor(given: kit.Arguments, context: kit.Context) -> Schedule:
    """A factor until ``total_iters``, then none."""
    base, total = kit.base_value(context), _total(given, context)
    low = base * given["factor"]
    if context.as_implemented and not (total.is_Integer and total > 0):
        return constant(low)  # step() undoes the factor at t == total_iters only
    return piecewise_constant([low, base], [sp.ceiling(total)])


def line(given: kit.Arguments, context: kit.Context) -> Schedule:
    """A line between two factors."""
    base, total = kit.base_value(context), _total(given, context)
    start, end = base * given["start_factor"], base * given["end_factor"]
    if not context.as_implemented or (total > 0 and total.is_Integer):
        return linear(start, end, total)
    if total <= 0:  # step() never moves
        return constant(start)
    last = sp.floor(total)  # step() stops there
    return Schedule(start + (end - start) * sp.Min(t, last) / total, name="linear", length=last)


def power_of_rest(given: kit.Arguments, context: kit.Context) -> Schedule:
    """A power of the remaining time, to 0."""
    base, total, power = kit.base_value(context), _total(given, context), given["power"]
    if power < 0:
        raise DomainError(
            f"power must be >= 0, got {power}: the value at t = total_iters would be infinite"
        )
    if power == 0 or total <= 0:  # 0**0 is 1: it never falls; total <= 0: step() never moves
        return constant(base)
    if not context.as_implemented or total.is_Integer:
        return polynomial(base, 0, total, power)
    last = sp.floor(total)  # step() stops there
    return Schedule(base * (1 - sp.Min(t, last) / total) ** power, name="polynomial", length=last)


def milestones_down(given: kit.Arguments, context: kit.Context) -> Schedule:
    """As implemented, step() only sees a milestone that t equals: others are lost."""
    marks = given["milestones"]
    if context.as_implemented:
        marks = tuple(mark for mark in marks if mark.is_Integer and mark >= 0)
    return multi_step(kit.base_value(context), given["gamma"], marks)


def function_of_step(given: kit.Arguments, context: kit.Context) -> Schedule:
    """The base value times a function."""
    return function(kit.base_value(context) * factor_of(given, context), name="lambda")


def running_factors(given: kit.Arguments, context: kit.Context) -> Schedule:
    """The base value times the function at every step from 1 on; that at step 0 is not used."""
    factor = factor_of(given, context)
    product = running_product(factor, f"lr_lambda of {context.where}")
    return Schedule(kit.base_value(context) * product, name="multiplicative")


def steps_down(given: kit.Arguments, context: kit.Context) -> Schedule:
    """As implemented, step() misses multiples of a fractional size that are not integers."""
    size = given["step_size"]
    seen = sp.Integer(size.p) if context.as_implemented else size
    return step_decay(kit.base_value(context), given["gamma"], seen)


def triangles(given: kit.Arguments, context: kit.Context) -> Schedule:
    """The rate between ``base_lr`` and ``max_lr``; the momentum moves against it."""
    bounds = ("base_lr", "max_lr")
    if context.key == "momentum":
        bounds = ("max_momentum", "base_momentum")
    low, high = (kit.number_of_group(given, name, context) for name in bounds)
    scale = given["scale_fn"]
    if scale is not None:
        scale = kit.parse_function(scale, f"scale_fn of {context.where}", "x")
    return cyclic(
        low,
        high,
        given["step_size_up"],
        given["step_size_down"],
        mode="triangular" if scale is not None else given["mode"],
        gamma=given["gamma"],
        scale=scale,
        scale_mode=given["scale_mode"],
    )


def _pct_start(value: object, name: str, where: str) -> sp.Expr:
    """A float in [0, 1]: torch refuses an int."""
    if isinstance(value, int):
        raise DefinitionError(f"{name} must be a float in [0, 1], got {value!r}", where=where)
    return kit.checks.in_range(0, 1)(value, name, where)


def one_cycle_policy(given: kit.Arguments, context: kit.Context) -> Schedule:
    """At t = total_steps the last phase goes on; torch raises beyond, where it goes on here.

    Before a last phase without steps it ends: there torch divides by its length
    (torch/optim/lr_scheduler.py@v2.13, OneCycleLR.get_lr).
    """
    total = _total_steps(given, context)
    cycle_phases(
        total,
        given["pct_start"],
        context.where,
        three_phase=given["three_phase"],
        clamp=False,
        names=("total_steps", "pct_start"),
    )
    arguments = {
        "steps": total,
        "rise": given["pct_start"],
        "anneal": given["anneal_strategy"],
        "three_phase": given["three_phase"],
        "clamp": False,
    }
    if context.key == "momentum":
        high, low = (
            kit.number_of_group(given, name, context) for name in ("max_momentum", "base_momentum")
        )
        return one_cycle_momentum(high, low, **arguments)
    peak = kit.number_of_group(given, "max_lr", context)
    start = peak / given["div_factor"]
    return one_cycle(start, peak, start / given["final_div_factor"], **arguments)


def is_cycled(given: kit.Arguments, key: str) -> bool:
    """Returns whether a cycle moves the key: the momentum only with ``cycle_momentum``."""
    return key != "momentum" or bool(given["cycle_momentum"])


def _total_steps(given: kit.Arguments, context: kit.Context) -> sp.Expr:
    """The length, given itself or as epochs times steps per epoch."""
    if given["total_steps"] is not None:
        return given["total_steps"]
    if given["epochs"] is None or given["steps_per_epoch"] is None:
        raise DefinitionError(
            "the length is missing", hint="give total_steps, or epochs and steps_per_epoch"
        )
    return given["epochs"] * given["steps_per_epoch"]


_TOTAL = kit.Parameter("total_iters", 5)
_FRACTION = kit.checks.in_range(0, 1)
_GAMMA = kit.Parameter("gamma", 0.1, kit.checks.number)
_LAMBDA = kit.Parameter("lr_lambda")
_LAST_EPOCH = kit.Parameter("last_epoch", -1, kit.checks.last_epoch)
_LOW = kit.Parameter("eta_min", 0.0, kit.checks.number)
_MEMBERS = kit.Parameter("schedulers")
_COUNT = kit.checks.count(1)


def _resumed(build: kit.ScheduleBuilder) -> kit.ScheduleBuilder:
    """The builder of a scheduler that is made in mid-run: it begins at last_epoch + 1."""

    def build_resumed(given: Mapping[str, Any], context: kit.Context) -> Schedule:
        done = given["last_epoch"] + 1
        schedule = build(given, context)
        return schedule if done == 0 else schedule.shift(done)

    return build_resumed


def _entry(
    name: str,
    builds: tuple[str, ...],
    build: kit.ScheduleBuilder,
    *parameters: kit.Parameter,
    children: str | None = None,
    touches: kit.Touches = kit.touches_all,
) -> kit.ScheduleEntry:
    """A class whose last argument is ``last_epoch``."""
    given = (*parameters, _LAST_EPOCH)
    return kit.ScheduleEntry(
        name, builds, given, _resumed(build), children=children, touches=touches
    )


_ENTRIES = (
    _entry("LambdaLR", ("function",), function_of_step, _LAMBDA),
    _entry("MultiplicativeLR", ("multiplicative",), running_factors, _LAMBDA),
    _entry(
        "StepLR",
        ("step_decay",),
        steps_down,
        kit.Parameter("step_size", kit.REQUIRED, kit.checks.steps),
        _GAMMA,
    ),
    _entry(
        "MultiStepLR",
        ("multi_step",),
        milestones_down,
        kit.Parameter("milestones", kit.REQUIRED, kit.checks.milestones),
        _GAMMA,
    ),
    _entry(
        "ConstantLR",
        ("piecewise_constant",),
        constant_factor,
        kit.Parameter("factor", sp.Rational(1, 3), _FRACTION),
        _TOTAL,
    ),
    _entry(
        "LinearLR",
        ("linear",),
        line,
        kit.Parameter(
            "start_factor", sp.Rational(1, 3), kit.checks.in_range(0, 1, is_open_below=True)
        ),
        kit.Parameter("end_factor", 1.0, _FRACTION),
        _TOTAL,
    ),
    _entry(
        "ExponentialLR",
        ("multiplicative",),
        kit.of_base(multiplicative, "gamma"),
        kit.Parameter("gamma", kit.REQUIRED, kit.checks.number),
    ),
    _entry(
        "SequentialLR",
        ("sequential",),
        composites.sequence,
        _MEMBERS,
        kit.Parameter("milestones", kit.REQUIRED, kit.checks.integer_milestones),
        children="schedulers",
    ),
    _entry(
        "PolynomialLR",
        ("polynomial",),
        power_of_rest,
        _TOTAL,
        kit.Parameter("power", 1.0, kit.checks.number),
    ),
    _entry(
        "CosineAnnealingLR",
        ("cosine_annealing",),
        kit.of_base(cosine_annealing, "eta_min", "T_max"),
        kit.Parameter("T_max", kit.REQUIRED, kit.checks.steps),
        _LOW,
    ),
    kit.ScheduleEntry(
        "ChainedScheduler", ("chained",), (_MEMBERS,), composites.product, children="schedulers"
    ),
    kit.metric_entry("ReduceLROnPlateau", kit.TORCH_ARGUMENTS, kit.torch_plateau),
    _entry(
        "CyclicLR",
        ("cyclic",),
        triangles,
        kit.Parameter("base_lr"),
        kit.Parameter("max_lr"),
        kit.Parameter("step_size_up", 2000, kit.checks.steps),
        kit.Parameter("step_size_down", None, kit.checks.at_least(0)),
        kit.Parameter("mode", "triangular", kit.checks.choice(*MODES)),
        kit.Parameter("gamma", 1.0, kit.checks.number),
        kit.Parameter("scale_fn", None),
        kit.Parameter("scale_mode", "cycle", kit.checks.choice(*SCALE_MODES)),
        kit.Parameter("cycle_momentum", True, kit.checks.flag),
        kit.Parameter("base_momentum", 0.8),
        kit.Parameter("max_momentum", 0.9),
        touches=is_cycled,
    ),
    _entry(
        "CosineAnnealingWarmRestarts",
        ("warm_restarts",),
        kit.of_base(warm_restarts, "eta_min", "T_0", "T_mult"),
        kit.Parameter("T_0", kit.REQUIRED, _COUNT),
        kit.Parameter("T_mult", 1, _COUNT),
        _LOW,
    ),
    _entry(
        "OneCycleLR",
        ("one_cycle", "one_cycle_momentum"),
        one_cycle_policy,
        kit.Parameter("max_lr"),
        kit.Parameter("total_steps", None, _COUNT),
        kit.Parameter("epochs", None, _COUNT),
        kit.Parameter("steps_per_epoch", None, _COUNT),
        kit.Parameter("pct_start", 0.3, _pct_start),
        kit.Parameter("anneal_strategy", "cos", kit.checks.choice(*ANNEALS)),
        kit.Parameter("cycle_momentum", True, kit.checks.flag),
        kit.Parameter("base_momentum", 0.85),
        kit.Parameter("max_momentum", 0.95),
        kit.Parameter("div_factor", 25.0, kit.checks.divisor),
        kit.Parameter("final_div_factor", 1e4, kit.checks.divisor),
        kit.Parameter("three_phase", False, kit.checks.flag),
        touches=is_cycled,
    ),
)
SCHEDULES = {entry.name: entry for entry in _ENTRIES}
