"""The schedulers of torch 2.13: each a factor or course of the group's base value.

By default each is its closed form; as shipped it is what calling ``step()`` gives, which differs
where a number of steps is no positive integer.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import sympy as sp

from closedform.dialects import checks
from closedform.dialects.entries import (
    REQUIRED,
    Context,
    Parameter,
    ScheduleEntry,
    build_schedule,
    sub_schedule,
    sub_schedules,
)
from closedform.dialects.expressions import parse_function
from closedform.errors import ArgumentError, DefinitionError, DomainError
from closedform.language import Schedule, exact_number, sequential, t
from closedform.schedules import constant, cosine_annealing, linear, multi_step, polynomial

Arguments = Mapping[str, Any]


def _base(context: Context) -> sp.Expr:
    if context.base is None:
        raise ArgumentError(
            f"a torch scheduler starts from the {context.key} of its group, got none",
            where=context.where,
            hint="give base, or a group that holds it",
        )
    return exact_number(context.base, f"base of {context.where}")


def _total(given: Arguments, context: Context) -> sp.Rational:
    """The number of steps, above 0 by default; as shipped it may be anything."""
    if context.as_shipped:
        return checks.number(given["total_iters"], "total_iters", context.where)
    return checks.steps(given["total_iters"], "total_iters", context.where)


def _constant(given: Arguments, context: Context) -> Schedule:
    base, total = _base(context), _total(given, context)
    low = base * given["factor"]
    if context.as_shipped and not (total.is_Integer and total > 0):
        return constant(low)  # step() undoes the factor at t == total_iters only
    expr = sp.Piecewise((low, t < total), (base, True))
    return Schedule(expr, name="constant", length=sp.ceiling(total))


def _linear(given: Arguments, context: Context) -> Schedule:
    base, total = _base(context), _total(given, context)
    start, end = base * given["start_factor"], base * given["end_factor"]
    if not context.as_shipped or (total > 0 and total.is_Integer):
        return linear(start, end, total)
    if total <= 0:  # step() never moves
        return constant(start)
    last = sp.floor(total)  # step() stops there
    return Schedule(start + (end - start) * sp.Min(t, last) / total, name="linear", length=last)


def _polynomial(given: Arguments, context: Context) -> Schedule:
    base, total, power = _base(context), _total(given, context), given["power"]
    if power < 0:
        raise DomainError(
            f"power must be >= 0, got {power}: the value at t = total_iters would be infinite",
            where=context.where,
        )
    if power == 0 or total <= 0:  # 0**0 is 1: it never falls; total <= 0: step() never moves
        return constant(base)
    if not context.as_shipped or total.is_Integer:
        return polynomial(base, 0, total, power)
    last = sp.floor(total)  # step() stops there
    return Schedule(base * (1 - sp.Min(t, last) / total) ** power, name="polynomial", length=last)


def _cosine_annealing(given: Arguments, context: Context) -> Schedule:
    return cosine_annealing(_base(context), given["eta_min"], given["T_max"])


def _multi_step(given: Arguments, context: Context) -> Schedule:
    """As shipped, step() only sees a milestone that t equals: others are lost."""
    marks = given["milestones"]
    if context.as_shipped:
        marks = tuple(mark for mark in marks if mark.is_Integer and mark >= 0)
    return multi_step(_base(context), given["gamma"], marks)


def _lambda(given: Arguments, context: Context) -> Schedule:
    functions = given["lr_lambda"]
    if isinstance(functions, list | tuple):
        if context.group_index >= len(functions):
            raise DefinitionError(
                f"lr_lambda must hold a function for each group, got {len(functions)}",
                where=context.where,
            )
        functions = functions[context.group_index]
    factor = parse_function(functions, f"lr_lambda of {context.where}")
    return Schedule(_base(context) * factor, name="lambda")


def _sequential(given: Arguments, context: Context) -> Schedule:
    """Each member from the base value, in its own local time; a milestone may occur twice."""
    specs = sub_schedules(given["schedulers"], "schedulers", context)
    marks = given["milestones"]
    if len(marks) != len(specs) - 1:
        raise DefinitionError(
            f"milestones must be one fewer than schedulers: expected {len(specs) - 1}, "
            f"got {len(marks)}",
            where=context.where,
        )
    for earlier, later in pairwise((sp.Integer(0), *marks)):
        if later < earlier:
            raise DefinitionError(
                f"milestones must be >= 0 and must not decrease, got {later} after {earlier}",
                where=context.where,
                hint="sort them",
            )
    parsed = [sub_schedule(spec, context) for spec in specs]
    nested = [name for name, _ in parsed if name == "SequentialLR"]
    if nested and context.as_shipped:
        raise DefinitionError(
            f"a {nested[0]} within a SequentialLR is not modelled as shipped: torch runs it one "
            "step ahead, or raises",
            where=context.where,
            hint="leave as_shipped out for local time all the way down",
        )
    members = [build_schedule(name, kwargs, context) for name, kwargs in parsed]
    bounds = [*marks[1:], sp.oo]
    kept = [0, *(i + 1 for i, mark in enumerate(marks) if mark < bounds[i])]
    if marks and marks[0] == 0:
        kept = kept[1:]
    shown = [members[index] for index in kept]
    return sequential(shown, [marks[index - 1] for index in kept[1:]])


_TOTAL = Parameter("total_iters", 5)
_FRACTION = checks.in_range(0, 1)
_ENTRIES = (
    ScheduleEntry(
        "ConstantLR", (Parameter("factor", sp.Rational(1, 3), _FRACTION), _TOTAL), _constant
    ),
    ScheduleEntry(
        "LinearLR",
        (
            Parameter("start_factor", sp.Rational(1, 3), checks.in_range(0, 1, is_open_below=True)),
            Parameter("end_factor", 1.0, _FRACTION),
            _TOTAL,
        ),
        _linear,
    ),
    ScheduleEntry("PolynomialLR", (_TOTAL, Parameter("power", 1.0, checks.number)), _polynomial),
    ScheduleEntry(
        "CosineAnnealingLR",
        (
            Parameter("T_max", REQUIRED, checks.steps),
            Parameter("eta_min", 0.0, checks.number),
        ),
        _cosine_annealing,
    ),
    ScheduleEntry(
        "MultiStepLR",
        (
            Parameter("milestones", REQUIRED, checks.milestones),
            Parameter("gamma", 0.1, checks.number),
        ),
        _multi_step,
    ),
    ScheduleEntry("LambdaLR", (Parameter("lr_lambda"),), _lambda),
    ScheduleEntry(
        "SequentialLR",
        (Parameter("schedulers"), Parameter("milestones", REQUIRED, checks.integer_milestones)),
        _sequential,
        children="schedulers",
    ),
)
SCHEDULES = {entry.name: entry for entry in _ENTRIES}
