"""The LearningRateSchedules of Keras 3, by their documents."""

from __future__ import annotations

from itertools import pairwise

import sympy as sp

from closedform.errors import DefinitionError
from closedform.language import Schedule, floor_div, t
from closedform.recipes import kit
from closedform.schedules import (
    cosine,
    exponential,
    inverse_time,
    linear,
    piecewise_constant,
    polynomial,
)
from closedform.schedules.exponential import check_factor


def _exponential(arguments: kit.Arguments, context: kit.Context) -> Schedule:
    start, rate, steps = (
        arguments[k] for k in ("initial_learning_rate", "decay_rate", "decay_steps")
    )
    names = ("decay_rate", "decay_steps")
    check_factor(rate, steps, context.where, staircase=arguments["staircase"], names=names)
    return exponential(start, rate, steps, staircase=arguments["staircase"])


def _inverse_time(arguments: kit.Arguments, context: kit.Context) -> Schedule:
    kit.checks.rate(arguments["decay_rate"], "decay_rate", context.where)
    start, rate, steps = (
        arguments[k] for k in ("initial_learning_rate", "decay_rate", "decay_steps")
    )
    return inverse_time(start, rate, steps, staircase=arguments["staircase"])


def _piecewise_constant(arguments: kit.Arguments, context: kit.Context) -> Schedule:
    """A boundary is the last step of the value before it."""
    values, marks = arguments["values"], arguments["boundaries"]
    if len(values) != len(marks) + 1:
        raise DefinitionError(
            f"values must be one more than boundaries: expected {len(marks) + 1}, got {len(values)}"
        )
    # Keras compares step <= boundary: a boundary at 0 is valid, as the last step of the first
    # value.
    for earlier, later in pairwise((sp.Integer(-1), *marks)):
        if later <= earlier:
            raise DefinitionError(
                f"boundaries must increase from 0 on, got {later} after {earlier}"
            )
    return piecewise_constant(values, [mark + 1 for mark in marks])


def _polynomial(arguments: kit.Arguments, context: kit.Context) -> Schedule:
    """With ``cycle`` the length is stretched to its next multiple, which is met at its end."""
    del context
    start, end = arguments["initial_learning_rate"], arguments["end_learning_rate"]
    steps, power = arguments["decay_steps"], arguments["power"]
    if not arguments["cycle"]:
        return polynomial(start, end, steps, power)
    # ceil(t / decay_steps) decay_steps; at step 0 Keras sets the multiplier to 1, not 0.
    length = steps * (floor_div(sp.Max(t, 1) - 1, steps) + 1)
    return Schedule(end + (start - end) * (1 - t / length) ** power, name="polynomial")


def _cosine(arguments: kit.Arguments, context: kit.Context) -> Schedule:
    """With ``warmup_target`` a line to it, from which the cosine falls."""
    start, steps = arguments["initial_learning_rate"], arguments["decay_steps"]
    target, warmup = arguments["warmup_target"], arguments["warmup_steps"]
    if target is None:
        return cosine(start, arguments["alpha"] * start, steps)
    # With a warmup, alpha is a part of warmup_target, not of the initial rate.
    fall = cosine(target, arguments["alpha"] * target, steps)
    del context
    return linear(start, target, warmup).then(fall) if warmup else fall


def _restarts(arguments: kit.Arguments, context: kit.Context) -> Schedule:
    """The height of each cycle is above alpha; its factor is m_mul to the number of restarts."""
    start, alpha = arguments["initial_learning_rate"], arguments["alpha"]
    first, growth = arguments["first_decay_steps"], arguments["t_mul"]
    place = kit.cycles(first, growth, arguments["m_mul"], None, context.where)
    swing = place.decay * (1 + sp.cos(sp.pi * place.progress)) / 2
    return Schedule(start * ((1 - alpha) * swing + alpha), name="warm_restarts", length=first)


_START = kit.Parameter("initial_learning_rate", kit.REQUIRED, kit.checks.number)
_STEPS = kit.Parameter("decay_steps", kit.REQUIRED, kit.checks.count(1))
_ALPHA = kit.Parameter("alpha", 0.0, kit.checks.number)
_DECAY = (
    _START,
    _STEPS,
    kit.Parameter("decay_rate", kit.REQUIRED, kit.checks.number),
    kit.Parameter("staircase", False, kit.checks.flag),
)
_ENTRIES = (
    kit.ScheduleEntry("ExponentialDecay", ("exponential",), _DECAY, _exponential),
    kit.ScheduleEntry(
        "PiecewiseConstantDecay",
        ("piecewise_constant",),
        (
            kit.Parameter("boundaries", kit.REQUIRED, kit.checks.integer_milestones),
            kit.Parameter("values", kit.REQUIRED, kit.checks.numbers),
        ),
        _piecewise_constant,
    ),
    kit.ScheduleEntry(
        "PolynomialDecay",
        ("polynomial",),
        (
            _START,
            _STEPS,
            kit.Parameter("end_learning_rate", 1e-4, kit.checks.number),
            kit.Parameter("power", 1.0, kit.checks.at_least(0)),
            kit.Parameter("cycle", False, kit.checks.flag),
        ),
        _polynomial,
    ),
    kit.ScheduleEntry("InverseTimeDecay", ("inverse_time",), _DECAY, _inverse_time),
    kit.ScheduleEntry(
        "CosineDecay",
        ("cosine",),
        (
            _START,
            _STEPS,
            _ALPHA,
            kit.Parameter("warmup_target", None, kit.checks.number),
            kit.Parameter("warmup_steps", 0, kit.checks.count(0)),
        ),
        _cosine,
    ),
    kit.ScheduleEntry(
        "CosineDecayRestarts",
        ("warm_restarts",),
        (
            _START,
            kit.Parameter("first_decay_steps", kit.REQUIRED, kit.checks.steps),
            kit.Parameter("t_mul", 2.0, kit.checks.at_least(1)),
            kit.Parameter("m_mul", 1.0, kit.checks.number),
            _ALPHA,
        ),
        _restarts,
    ),
)
SCHEDULES = {entry.name: entry for entry in _ENTRIES}
