"""The schedulers of cerebras.pytorch 2.10: one row for each formula, three classes a row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import sympy as sp

from closedform.dialects import checks
from closedform.dialects.entries import (
    REQUIRED,
    Context,
    Parameter,
    ScheduleBuilder,
    ScheduleEntry,
    sub_schedule,
    sub_schedules,
)
from closedform.dialects.tags import build_member, read_tags
from closedform.errors import DefinitionError
from closedform.language import Schedule, sequential
from closedform.schedules import (
    constant,
    cosine,
    cosine_annealing,
    inverse_square_root,
    linear,
    multi_step,
    piecewise_constant,
    polynomial,
)

Arguments = Mapping[str, Any]

_LR_NAMES = {
    "val": "learning_rate",
    "initial_val": "initial_learning_rate",
    "end_val": "end_learning_rate",
    "vals": "learning_rates",
}
_TAGS = Parameter("param_group_tags", None, read_tags)
_START = Parameter("initial_val", REQUIRED, checks.number)
_END = Parameter("end_val", REQUIRED, checks.number)
_STEPS = Parameter("total_iters", REQUIRED, checks.steps)
_CYCLE = Parameter("cycle", False, checks.flag)


def _constant(given: Arguments, context: Context) -> Schedule:
    """The length is only read when a Sequential is configured; it may be 0."""
    del context
    total = given["total_iters"]
    return constant(given["val"], total if total is not None and total > 0 else None)


def _linear(given: Arguments, context: Context) -> Schedule:
    if given["cycle"] and not context.as_shipped:
        return _polynomial({**given, "power": 1}, context)
    return linear(given["initial_val"], given["end_val"], given["total_iters"])


def _polynomial(given: Arguments, context: Context) -> Schedule:
    """As shipped, ``cycle`` has no effect: the value is held before the time is stretched."""
    return polynomial(
        given["initial_val"],
        given["end_val"],
        given["total_iters"],
        given["power"],
        cycle=given["cycle"] and not context.as_shipped,
    )


def _cosine_decay(given: Arguments, context: Context) -> Schedule:
    del context
    return cosine(given["initial_val"], given["end_val"], given["total_iters"])


def _cosine_annealing(given: Arguments, context: Context) -> Schedule:
    del context
    return cosine_annealing(given["initial_val"], given["eta_min"], given["T_max"])


def _inverse_square_root(given: Arguments, context: Context) -> Schedule:
    del context
    return inverse_square_root(given["initial_val"], given["scale"], given["warmup_steps"])


def _multi_step(given: Arguments, context: Context) -> Schedule:
    del context
    return multi_step(given["initial_val"], given["gamma"], given["milestones"])


def _piecewise_constant(given: Arguments, context: Context) -> Schedule:
    """One value more than milestones; with as many, the last one is repeated."""
    values, marks = list(given["vals"]), given["milestones"]
    if len(values) == len(marks) and values:
        values.append(values[-1])
    if len(values) > len(marks) + 1 and context.as_shipped:
        values = [*values[: len(marks)], values[-1]]
    if len(values) != len(marks) + 1:
        raise DefinitionError(
            f"values must be one more than milestones: expected {len(marks) + 1}, "
            f"got {len(values)}",
            where=context.where,
        )
    kept = _reached(marks)
    shown = [values[0 if index is None else index + 1] for index, _ in kept]
    return piecewise_constant(shown, [mark for _, mark in kept[1:]])


def _sequential(given: Arguments, context: Context) -> Schedule:
    """Local time all the way down; as shipped, children of composite members stay at step 0."""
    specs = sub_schedules(given["schedulers"], "schedulers", context)
    marks = given["milestones"]
    if len(marks) != len(specs) - 1:
        raise DefinitionError(
            f"milestones must be one fewer than schedulers: expected {len(specs) - 1}, "
            f"got {len(marks)}",
            where=context.where,
        )
    inner = replace(context, frozen=context.as_shipped)
    tags = given["param_group_tags"]
    members = [build_member(sub_schedule(spec, context), tags, inner) for spec in specs]
    if context.frozen:
        members = [constant(member.exact(0)) for member in members]
    done = int(given["last_epoch"]) + 1
    if context.as_shipped:  # last_epoch moves the outer counter alone
        return _in_list_order(members, [mark - done for mark in marks])
    return _in_list_order(members, marks).shift(done)


def _scale_per_param(given: Arguments, context: Context) -> Schedule:
    """As shipped, a member of a Sequential is not scaled and its child stays at step 0."""
    spec = sub_schedule(given["scheduler"], context)
    if spec[0] in _SCALE_CLASSES:
        raise DefinitionError(
            f"a {spec[0]} cannot scale another one",
            where=context.where,
            hint="scale once, around the whole schedule",
        )
    child = build_member(spec, given["param_group_tags"], replace(context, frozen=False))
    if context.frozen:
        return constant(child.exact(0))
    group = context.group
    factor = group.get("adjust_learning_rate", group.get("adjust_val", 1))
    return child if factor == 1 else child.scale(factor)


def _in_list_order(members: Sequence[Schedule], marks: Sequence[sp.Integer]) -> Schedule:
    """The sequence in which the last milestone in list order that is reached decides."""
    kept = _reached(marks)
    shown = [members[0 if index is None else index + 1] for index, _ in kept]
    return sequential(shown, [mark for _, mark in kept[1:]])


def _reached(marks: Sequence[sp.Integer]) -> list[tuple[int | None, sp.Integer]]:
    """The milestones that ever decide, increasing, after what holds at step 0 (None: no milestone).

    One decides from its step on until a later one of the list is reached, so that one with a later
    one at or below it never does.
    """
    kept: list[tuple[int | None, sp.Integer]] = []
    for index in reversed(range(len(marks))):
        if kept and marks[index] >= kept[0][1]:
            continue
        kept.insert(0, (index, marks[index]))
        if marks[index] <= 0:
            return kept
    return [(None, sp.Integer(0)), *kept]


def _row(
    stem: str, build: ScheduleBuilder, *parameters: Parameter, children: str | None = None
) -> tuple[ScheduleEntry, ...]:
    """The lr class, the wd class and the generic class of a formula."""
    generic = (*parameters, _TAGS)
    lr = tuple(replace(p, name=_LR_NAMES.get(p.name, p.name)) for p in generic)
    known = {_LR_NAMES.get(p.name, p.name): p.name for p in generic}
    return (
        ScheduleEntry(f"{stem}LR", lr, build, known, children),
        ScheduleEntry(f"{stem}WD", generic, build, {}, children),
        ScheduleEntry(f"{stem}Scheduler", generic, build, {}, children),
    )


_SCALE_CLASSES = ("ScalePerParamLR", "ScalePerParamWD", "ScalePerParamScheduler")
_ROWS = (
    _row(
        "Constant",
        _constant,
        Parameter("val", REQUIRED, checks.number),
        Parameter("total_iters", None, checks.number),
    ),
    _row("Linear", _linear, _START, _END, _STEPS, _CYCLE),
    _row(
        "Polynomial",
        _polynomial,
        _START,
        _END,
        _STEPS,
        Parameter("power", 1.0, checks.number),
        _CYCLE,
    ),
    _row("CosineDecay", _cosine_decay, _START, _END, _STEPS),
    _row(
        "CosineAnnealing",
        _cosine_annealing,
        _START,
        Parameter("T_max", REQUIRED, checks.steps),
        Parameter("eta_min", 0.0, checks.number),
    ),
    _row(
        "InverseSquareRootDecay",
        _inverse_square_root,
        Parameter("initial_val", 1.0, checks.number),
        Parameter("scale", 1.0, checks.number),
        Parameter("warmup_steps", 1.0, checks.warmup),
    ),
    _row(
        "MultiStep",
        _multi_step,
        _START,
        Parameter("gamma", REQUIRED, checks.number),
        Parameter("milestones", REQUIRED, checks.milestones),
    ),
    _row(
        "PiecewiseConstant",
        _piecewise_constant,
        Parameter("vals", REQUIRED, checks.numbers),
        Parameter("milestones", REQUIRED, checks.integer_milestones),
    ),
    _row(
        "Sequential",
        _sequential,
        Parameter("schedulers"),
        Parameter("milestones", REQUIRED, checks.integer_milestones),
        Parameter("last_epoch", -1, checks.last_epoch),
        children="schedulers",
    ),
    _row("ScalePerParam", _scale_per_param, Parameter("scheduler"), children="scheduler"),
)
SCHEDULES = {entry.name: entry for row in _ROWS for entry in row}
