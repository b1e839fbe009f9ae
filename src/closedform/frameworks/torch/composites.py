"""The schedulers of torch 2.13 that hold other ones: a sequence and a product.

As implemented, the members share the rate of the group, and some of them overwrite it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import sympy as sp

from closedform.errors import DefinitionError
from closedform.frameworks.torch.products import factor_of
from closedform.language import Schedule, sequential, t
from closedform.language.exact import value_at
from closedform.recipes import kit

Spec = tuple[Any, Mapping[str, Any]]

_COMPOSITES = ("SequentialLR", "ChainedScheduler")
# Classes whose step() computes the rate anew instead of changing the one that it finds.
_OVERWRITING = ("LambdaLR", "CyclicLR", "OneCycleLR", "CosineAnnealingWarmRestarts")


def sequence(given: kit.Arguments, context: kit.Context) -> Schedule:
    """Each member from the base value, in its own local time; a milestone may occur twice.

    As implemented, a OneCycleLR changes the value that a first member starts from, a
    MultiplicativeLR goes on from the rate that it finds, times its factor at step 0, a first
    composite runs one step ahead, and milestones need not be sorted.
    """
    specs = kit.sub_schedules(given["schedulers"], "schedulers")
    marks = given["milestones"]
    kit.check_joints(marks, specs)
    parsed = [kit.sub_schedule(spec) for spec in specs]
    if context.as_implemented:
        return _sequence_as_implemented(parsed, marks, context)
    for earlier, later in pairwise((sp.Integer(0), *marks)):
        if later < earlier:
            raise DefinitionError(
                f"milestones must be >= 0 and must not decrease, got {later} after {earlier}",
                hint="sort them",
            )
    members = [kit.build_schedule(name, kwargs, context) for name, kwargs in parsed]
    return _in_a_row(members, _active(marks))


def _sequence_as_implemented(
    parsed: Sequence[Spec], marks: Sequence[sp.Integer], context: kit.Context
) -> Schedule:
    active = _active(marks)
    for start, index in active:
        if index and parsed[index][0] in _COMPOSITES:
            raise DefinitionError(
                f"a {parsed[index][0]} as a later member has no value as implemented: torch raises",
                hint="give as_implemented=False for local time all the way down",
            )
        if index and marks[index - 1] != start:
            raise DefinitionError(
                f"the member after milestone {marks[index - 1]} begins at step {start}, where "
                "torch goes on from the rate that it finds",
                hint="sort the milestones",
            )
    bases = _bases(parsed, context)
    members = [
        kit.build_schedule(name, kwargs, replace(context, base=base))
        for (name, kwargs), base in zip(parsed, bases, strict=True)
    ]
    if parsed[0][0] in _COMPOSITES:
        members[0] = members[0].shift(1)
    for (begin, before), (start, index) in pairwise(active):
        name, kwargs = parsed[index]
        if name == "MultiplicativeLR":
            # torch 2.13: get_lr multiplies unless the scheduler is being constructed.
            first = value_at(factor_of(kwargs, context), {t: sp.S.Zero})
            base = members[before].exact(start - begin - 1) * first
            members[index] = kit.build_schedule(name, kwargs, replace(context, base=base))
    return _in_a_row(members, active)


def _bases(parsed: Sequence[Spec], context: kit.Context) -> list[sp.Expr]:
    """The base value of each member: a OneCycleLR sets that of those made after it.

    The first one continues from the value that the last OneCycleLR set, unless it computes the rate
    anew.
    """
    bases = []
    base = kit.base_value(context)
    for name, kwargs in parsed:
        bases.append(base)
        if name == "OneCycleLR":
            base = _one_cycle_start(kwargs, context)
    if parsed[0][0] not in _OVERWRITING:
        bases[0] = base
    return bases


def _one_cycle_start(kwargs: Mapping[str, Any], context: kit.Context) -> sp.Expr:
    """The rate that a OneCycleLR writes into its group as the one to start from."""
    peak = kit.number_of_group(kwargs, "max_lr", context)
    return peak / kit.checks.divisor(kwargs.get("div_factor", 25.0), "div_factor", context.where)


def _active(marks: Sequence[sp.Integer]) -> list[tuple[int, int]]:
    """(start, index) of the members that are ever shown: index = bisect_right(milestones, t)."""
    starts = sorted({0, *(int(mark) for mark in marks if mark > 0)})
    found: list[tuple[int, int]] = []
    for start in starts:
        index = bisect_right(marks, start)
        if not found or found[-1][1] != index:
            found.append((start, index))
    return found


def _in_a_row(members: Sequence[Schedule], active: Sequence[tuple[int, int]]) -> Schedule:
    return sequential([members[index] for _, index in active], [start for start, _ in active[1:]])


def product(given: kit.Arguments, context: kit.Context) -> Schedule:
    """The base value times the factor of each member: its value over the base.

    As implemented, members that compute the rate anew overwrite what came before them, and those
    after the last such one apply only their factor of the present step.
    """
    specs = kit.sub_schedules(given["schedulers"], "schedulers")
    parsed = [kit.sub_schedule(spec) for spec in specs]
    base = kit.base_value(context)
    members = [kit.build_schedule(name, kwargs, context) for name, kwargs in parsed]
    if len(members) == 1:
        return members[0]
    if base == 0:
        raise DefinitionError("the factors of a chain need a base other than 0")
    last = 0
    if context.as_implemented:
        _refuse_recursion(parsed, context)
        last = max((i for i, (name, _) in enumerate(parsed) if name in _OVERWRITING), default=0)
    is_overwritten = parsed[last][0] in _OVERWRITING and context.as_implemented
    factors = [
        _present_factor(member, base) if is_overwritten else member.bound / base
        for member in members[last + 1 :]
    ]
    return Schedule(sp.Mul(members[last].bound, *factors), name="chained")


def _present_factor(member: Schedule, base: sp.Expr) -> sp.Expr:
    """The factor by which one step() multiplies the rate."""
    before = member.bound.xreplace({t: sp.Max(t - 1, 0)})
    return sp.Piecewise((member.bound / base, t < 1), (member.bound / before, True))


def _refuse_recursion(parsed: Sequence[Spec], context: kit.Context) -> None:
    for name, kwargs in parsed:
        if name in _COMPOSITES or (name == "CosineAnnealingLR" and kwargs.get("eta_min", 0) != 0):
            what = (
                "a CosineAnnealingLR with eta_min" if name == "CosineAnnealingLR" else f"a {name}"
            )
            raise DefinitionError(
                f"{what} in a chain is not modelled as implemented: it is a recursion on the "
                "rate that the others change",
                hint="give as_implemented=False for the product of factors",
            )
