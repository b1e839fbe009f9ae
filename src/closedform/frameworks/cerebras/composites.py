"""The schedules of cerebras.pytorch 2.10 that hold other ones.

As implemented, an outer composite moves only the counter of its members, not that of their
children: ``Context.frozen`` says that one is around, ``Context.is_halted`` that it is a chain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import sympy as sp

from closedform.errors import DefinitionError
from closedform.language import Schedule, chained, sequential
from closedform.recipes import kit
from closedform.schedules import constant, piecewise_constant, scale

SCALE_CLASSES = ("ScalePerParamLR", "ScalePerParamWD", "ScalePerParamScheduler")


def values_between(given: kit.Arguments, context: kit.Context) -> Schedule:
    """One value more than milestones; with as many, the last one is repeated."""
    values, marks = list(given["vals"]), given["milestones"]
    if len(values) == len(marks) and values:
        values.append(values[-1])
    if len(values) > len(marks) + 1 and context.as_implemented:
        values = [*values[: len(marks)], values[-1]]
    if len(values) != len(marks) + 1:
        names = context.entries[context.path[-1]].generic
        own_name = next((name for name in names if names[name] == "vals"), "vals")
        message = f"{own_name} must be one more than milestones: expected {len(marks) + 1}"
        raise DefinitionError(f"{message}, got {len(values)}")
    reached = _reached(marks)
    shown = [values[0 if index is None else index + 1] for index, _ in reached]
    return piecewise_constant(shown, [mark for _, mark in reached[1:]])


def sequence(given: kit.Arguments, context: kit.Context) -> Schedule:
    """Local time all the way down; as implemented, children of composite members stay at step 0."""
    specs = kit.sub_schedules(given["schedulers"], "schedulers")
    marks = given["milestones"]
    kit.check_joints(marks, specs)
    inner = replace(context, frozen=context.as_implemented, is_halted=False)
    tags = given["param_group_tags"]
    first = int(given["last_epoch"]) + 1
    # As implemented, last_epoch moves the outer counter only.
    milestones = [mark - first for mark in marks] if context.as_implemented else list(marks)
    # A member without a step is not built: it may be one that has no value over no steps.
    entries = _reached(milestones)
    members_of_run = [specs[0 if index is None else index + 1] for index, _ in entries]
    members = [kit.build_member(kit.sub_schedule(spec), tags, inner) for spec in members_of_run]
    if context.frozen:
        members = [constant(member.exact(0)) for member in members]
    joined = sequential(members, [mark for _, mark in entries[1:]])
    return joined if context.as_implemented else joined.shift(first)


def product(given: kit.Arguments, context: kit.Context) -> Schedule:
    """The first one times value/initial of each other one; only the first keeps its size.

    As implemented, the children of composite members stay at step 0, and so does a chain in a
    chain.
    """
    specs = kit.sub_schedules(given["schedulers"], "schedulers")
    inner = replace(context, frozen=context.as_implemented, is_halted=context.as_implemented)
    tags = given["param_group_tags"]
    parsed = [kit.sub_schedule(spec) for spec in specs]
    members = [kit.build_member(spec, tags, inner) for spec in parsed]
    initials = [_initial_value(spec, inner) for spec in parsed[1:]]
    if all(m.exact(0) == v for m, v in zip(members[1:], initials, strict=True)):
        result = chained(members)
    else:  # An inverse root begins at another value than its initial one.
        quotients = (m.bound / v for m, v in zip(members[1:], initials, strict=True))
        result = Schedule(sp.Mul(members[0].bound, *quotients), name="chained")
    return constant(result.exact(0)) if context.is_halted else result


def scaled(given: kit.Arguments, context: kit.Context) -> Schedule:
    """As implemented, a member of a composite is not scaled and its child stays at step 0."""
    spec = kit.sub_schedule(given["scheduler"])
    if spec[0] in SCALE_CLASSES:
        raise DefinitionError(
            f"a {spec[0]} cannot scale another one", hint="scale once, around the whole schedule"
        )
    inner = replace(context, frozen=False, is_halted=False)
    child = kit.build_member(spec, given["param_group_tags"], inner)
    if context.frozen:
        return constant(child.exact(0))
    group = context.group
    factor = group.get("adjust_learning_rate", group.get("adjust_val", 1))
    return child if factor == 1 else scale(child, factor)


def _initial_value(spec: tuple[Any, Mapping[str, Any]], context: kit.Context) -> sp.Expr:
    """The initial value of a later member of a chain, by which it is divided."""
    name, kwargs = spec
    entry = kit.find_schedule(name, context)
    generic = kit.generic_arguments(entry, kwargs, f"{context.where} > {name}")
    if "initial_val" not in generic:
        raise DefinitionError(
            f"a {name} has no initial value to be divided by", hint="put it first"
        )
    if generic["initial_val"] == 0:
        raise DefinitionError(
            f"a chained {name} is divided by its initial value, which is 0",
            hint="put it first, or start it above 0",
        )
    return generic["initial_val"]


def _reached(marks: Sequence[sp.Integer]) -> list[tuple[int | None, sp.Integer]]:
    """The milestones that take effect, increasing; first the one at step 0 (None: no milestone).

    A milestone takes effect from its step on until a later one of the list is reached, so that one
    with a later one at or below it never does.
    """
    reached: list[tuple[int | None, sp.Integer]] = []
    for index in reversed(range(len(marks))):
        if reached and marks[index] >= reached[0][1]:
            continue
        reached.insert(0, (index, marks[index]))
        if marks[index] <= 0:
            return reached
    return [(None, sp.Integer(0)), *reached]
