"""The schedules of optax 0.2: functions of the count, with their values as arguments.

Where optax logs that a length is not above 0 and goes on with a constant, it is refused here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import sympy as sp

from closedform.errors import DefinitionError
from closedform.language import Schedule, sequential, t
from closedform.recipes import kit
from closedform.schedules import (
    constant,
    cosine,
    exponential,
    linear,
    piecewise_constant,
    polynomial,
)
from closedform.schedules.exponential import check_factor

_CURVES = {"linear": linear, "cosine": cosine}


def _polynomial(given: kit.Arguments, context: kit.Context) -> Schedule:
    """Power 0 stays at its initial value, since 0^0 is 1."""
    del context
    start, power = given["init_value"], given["power"]
    if power == 0:
        return constant(start)
    curve = polynomial(start, given["end_value"], given["transition_steps"], power)
    return _begun(curve, given)


def _linear(given: kit.Arguments, context: kit.Context) -> Schedule:
    del context
    return _begun(linear(given["init_value"], given["end_value"], given["transition_steps"]), given)


def _begun(curve: Schedule, given: kit.Arguments) -> Schedule:
    begin = given["transition_begin"]
    return curve.shift(-begin) if begin else curve


def _decayed(given: kit.Arguments, context: kit.Context, start: str = "init_value") -> Schedule:
    """Constant at ``end_value`` once it is reached."""
    rate, end = given["decay_rate"], given["end_value"]
    steps = given["transition_steps"]
    names = ("decay_rate", "transition_steps")
    check_factor(rate, steps, context.where, staircase=given["staircase"], names=names)
    curve = _begun(exponential(given[start], rate, steps, staircase=given["staircase"]), given)
    if end is None:
        return curve
    return curve.clip(low=end) if rate < 1 else curve.clip(high=end)


def _cosine(given: kit.Arguments, context: kit.Context) -> Schedule:
    del context
    return _fallen(given["init_value"], given["decay_steps"], given["alpha"], given["exponent"])


def _fallen(start: sp.Expr, steps: Any, alpha: sp.Expr, exponent: sp.Expr) -> Schedule:
    """The cosine to a power, from ``start`` to ``alpha`` times it."""
    if exponent == 1:
        return cosine(start, alpha * start, steps)
    swing = (1 + sp.cos(sp.pi * sp.Min(t, steps) / steps)) / 2
    expr = start * ((1 - alpha) * swing**exponent + alpha)
    return Schedule(expr, name="cosine", length=steps)


def _piecewise_constant(given: kit.Arguments, context: kit.Context) -> Schedule:
    """At t = boundary the factor is applied already."""
    marks = _boundaries(given, context)
    value, values, used = given["init_value"], [], []
    for mark, scale in marks:
        if mark > 0:
            values.append(value)
            used.append(mark)
        value = value * scale
    return piecewise_constant([*values, value], used)


def _interpolated(given: kit.Arguments, context: kit.Context) -> Schedule:
    return _joined_curves(
        given["interpolate_type"], given["init_value"], _boundaries(given, context)
    )


def _joined_curves(kind: str, start: sp.Expr, marks: Sequence[tuple[int, sp.Expr]]) -> Schedule:
    """Curves from boundary to boundary, each to the value before times its factor."""
    values = [start]
    for _, scale in marks:
        values.append(values[-1] * scale)
    bounds = [0, *(mark for mark, _ in marks)]
    members = [
        _CURVES[kind](low, high, stop - begin)
        for (low, high), (begin, stop) in zip(pairwise(values), pairwise(bounds), strict=True)
        if stop > begin
    ]
    return sequential(members) if members else constant(values[-1])


def _linear_one_cycle(given: kit.Arguments, context: kit.Context) -> Schedule:
    steps, up = given["transition_steps"], given["div_factor"]
    marks = [
        (_part(given["pct_start"], steps), up),
        (_part(given["pct_final"], steps), 1 / up),
        (steps, 1 / given["final_div_factor"]),
    ]
    return _joined_curves("linear", given["peak_value"] / up, _increasing(marks, context))


def _cosine_one_cycle(given: kit.Arguments, context: kit.Context) -> Schedule:
    steps, up = given["transition_steps"], given["div_factor"]
    marks = [
        (_part(given["pct_start"], steps), up),
        (steps, 1 / (up * given["final_div_factor"])),
    ]
    return _joined_curves("cosine", given["peak_value"] / up, _increasing(marks, context))


def _warmup_cosine(given: kit.Arguments, context: kit.Context) -> Schedule:
    peak, warmup = given["peak_value"], given["warmup_steps"]
    if given["decay_steps"] <= warmup:
        raise DefinitionError(
            f"decay_steps must be above warmup_steps, got {given['decay_steps']} and {warmup}",
            hint="decay_steps counts the warmup, too",
        )
    alpha = given["end_value"] / peak if peak != 0 else sp.Integer(0)
    fall = _fallen(peak, given["decay_steps"] - warmup, alpha, given["exponent"])
    return linear(given["init_value"], peak, warmup).then(fall) if warmup else fall


def _warmup_exponential(given: kit.Arguments, context: kit.Context) -> Schedule:
    peak, warmup = given["peak_value"], given["warmup_steps"]
    fall = _decayed(given, context, "peak_value")
    return linear(given["init_value"], peak, warmup).then(fall) if warmup else fall


def _sgdr(given: kit.Arguments, context: kit.Context) -> Schedule:
    """Cosines with warmup in a row, each of its ``decay_steps``."""
    specs = kit.sub_schedules(given["cosine_kwargs"], "cosine_kwargs")
    name = "warmup_cosine_decay_schedule"
    members = [kit.build_schedule(name, spec, context) for spec in specs]
    marks = [sum(int(spec["decay_steps"]) for spec in specs[: i + 1]) for i in range(len(specs))]
    return sequential(members, marks[:-1])


def _joined(given: kit.Arguments, context: kit.Context) -> Schedule:
    specs = kit.sub_schedules(given["schedules"], "schedules")
    members = [kit.build_schedule(*kit.sub_schedule(spec), context) for spec in specs]
    marks = given["boundaries"]
    kit.check_joints(marks, specs, "boundaries", "schedules")
    for earlier, later in pairwise((sp.Integer(0), *marks)):
        if later <= earlier:
            raise DefinitionError(
                f"boundaries must increase from above 0, got {later} after {earlier}"
            )
    return sequential(members, marks)


def _part(part: sp.Expr, steps: int) -> int:
    return int(sp.floor(part * steps))


def _boundaries(given: kit.Arguments, context: kit.Context) -> list[tuple[int, sp.Expr]]:
    """Boundaries with their factors, sorted; JSON has the boundaries as text."""
    marks = given["boundaries_and_scales"] or {}
    if not isinstance(marks, Mapping):
        raise DefinitionError(f"boundaries_and_scales must be a mapping, got {marks!r}")
    found = []
    for mark, scale in marks.items():
        step = int(mark) if str(mark).lstrip("-").isdigit() else mark
        exact = kit.checks.number(step, "a boundary", context.where)
        factor = kit.checks.at_least(0)(scale, f"the factor at {mark}", context.where)
        found.append((int(exact), factor))
    return sorted(found, key=lambda pair: pair[0])


def _increasing(
    marks: Sequence[tuple[int, sp.Expr]], context: kit.Context
) -> Sequence[tuple[int, sp.Expr]]:
    for (earlier, _), (later, _) in pairwise(marks):
        if later <= earlier:
            raise DefinitionError(
                f"the phases must have steps, got boundaries {earlier} and {later}"
            )
    return marks


_INIT = kit.Parameter("init_value", kit.REQUIRED, kit.checks.number)
_END = kit.Parameter("end_value", kit.REQUIRED, kit.checks.number)
_PEAK = kit.Parameter("peak_value", kit.REQUIRED, kit.checks.number)
_STEPS = kit.Parameter("transition_steps", kit.REQUIRED, kit.checks.count(1))
_BEGIN = kit.Parameter("transition_begin", 0, kit.checks.count(0))
_WARMUP = kit.Parameter("warmup_steps", kit.REQUIRED, kit.checks.count(0))
_DECAY = kit.Parameter("decay_steps", kit.REQUIRED, kit.checks.count(1))
_EXPONENT = kit.Parameter("exponent", 1.0, kit.checks.at_least(0))
_FACTORS = (
    kit.Parameter("div_factor", 25.0, kit.checks.divisor),
    kit.Parameter("final_div_factor", 1e4, kit.checks.divisor),
)
_JOINTS = kit.Parameter("boundaries", kit.REQUIRED, kit.checks.integer_milestones)
_SCALES = kit.Parameter("boundaries_and_scales", None)
_FRACTION = kit.checks.in_range(0, 1)
_DECAYED = (
    kit.Parameter("decay_rate", kit.REQUIRED, kit.checks.divisor),
    _BEGIN,
    kit.Parameter("staircase", False, kit.checks.flag),
    kit.Parameter("end_value", None, kit.checks.number),
)
_POWER = kit.Parameter("power", kit.REQUIRED, kit.checks.at_least(0))
_TABLE = {
    "constant_schedule": (
        ("constant",),
        (kit.Parameter("value", kit.REQUIRED, kit.checks.number),),
        kit.values_of(constant, "value"),
    ),
    "linear_schedule": (("linear",), (_INIT, _END, _STEPS, _BEGIN), _linear),
    "polynomial_schedule": (("polynomial",), (_INIT, _END, _POWER, _STEPS, _BEGIN), _polynomial),
    "exponential_decay": (("exponential",), (_INIT, _STEPS, *_DECAYED), _decayed),
    "cosine_decay_schedule": (
        ("cosine",),
        (_INIT, _DECAY, kit.Parameter("alpha", 0.0, kit.checks.number), _EXPONENT),
        _cosine,
    ),
    "piecewise_constant_schedule": (("piecewise_constant",), (_INIT, _SCALES), _piecewise_constant),
    "piecewise_interpolate_schedule": (
        ("sequential",),
        (
            kit.Parameter("interpolate_type", kit.REQUIRED, kit.checks.choice(*_CURVES)),
            _INIT,
            _SCALES,
        ),
        _interpolated,
    ),
    "linear_onecycle_schedule": (
        ("sequential", "linear"),
        (
            _STEPS,
            _PEAK,
            kit.Parameter("pct_start", 0.3, _FRACTION),
            kit.Parameter("pct_final", 0.85, _FRACTION),
            *_FACTORS,
        ),
        _linear_one_cycle,
    ),
    "cosine_onecycle_schedule": (
        ("sequential", "cosine"),
        (_STEPS, _PEAK, kit.Parameter("pct_start", 0.3, _FRACTION), *_FACTORS),
        _cosine_one_cycle,
    ),
    "warmup_constant_schedule": (
        ("linear",),
        (_INIT, _PEAK, kit.Parameter("warmup_steps", kit.REQUIRED, kit.checks.count(1))),
        kit.values_of(linear, "init_value", "peak_value", "warmup_steps"),
    ),
    "warmup_cosine_decay_schedule": (
        ("cosine",),
        (
            _INIT,
            _PEAK,
            _WARMUP,
            _DECAY,
            kit.Parameter("end_value", 0.0, kit.checks.number),
            _EXPONENT,
        ),
        _warmup_cosine,
    ),
    "warmup_exponential_decay_schedule": (
        ("exponential",),
        (_INIT, _PEAK, _WARMUP, _STEPS, *_DECAYED),
        _warmup_exponential,
    ),
    "sgdr_schedule": (("sequential", "cosine"), (kit.Parameter("cosine_kwargs"),), _sgdr),
    "join_schedules": (("sequential",), (kit.Parameter("schedules"), _JOINTS), _joined),
}
SCHEDULES = {
    name: kit.ScheduleEntry(
        name, builds, parameters, build, children="schedules" if name == "join_schedules" else None
    )
    for name, (builds, parameters, build) in _TABLE.items()
}
