"""The param schedulers of MMEngine, from ``optimizer`` and ``param_scheduler``.

Each scheduler changes the present value of the param group at its own clock, which counts updates
or, by default, epochs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sympy as sp

from closedform.errors import ArgumentError, DefinitionError, nearest
from closedform.language import Schedule
from closedform.recipes.entries import REQUIRED, Context, ScheduleEntry, located, parameters
from closedform.recipes.mmengine.chain import Action, chained
from closedform.recipes.mmengine.classes import (
    CLASSES,
    SUFFIXES,
    Group,
    build_action,
    split_name,
)
from closedform.recipes.native import count, entry, fact, group, number

Arguments = Mapping[str, Any]


def param_schedule(
    config: Arguments,
    context: Context,
    *,
    has_epochs: bool = True,
) -> Schedule:
    """Returns the value of ``context.key`` under all entries of ``param_scheduler``.

    Args:
        config: The sections ``optimizer`` and ``param_scheduler``.
        context: The key, the facts with the param group, and the place for errors.
        has_epochs: Whether epochs end; in an ``IterBasedTrainLoop`` they do not.

    Raises:
        ArgumentError: An argument or the fact ``epoch_length`` is missing, or unknown.
        DefinitionError: A value is refused by MMEngine.
    """
    given = config["param_scheduler"]
    specs = [given] if isinstance(given, Mapping) else given
    if not isinstance(specs, Sequence) or isinstance(specs, str):
        raise ArgumentError("param_scheduler must be a list of mappings", where=context.where)
    base = initial_value(config["optimizer"], context)
    index = count(context.facts.get("group_index", 0), "group_index", context.where)
    actions: list[Action] = []
    initial = base
    for position, spec in enumerate(specs):
        where = f"{context.where} > param_scheduler[{position}]"
        name, key, arguments = _class(spec, where)
        if key != context.key or (initial == 0 and str(spec["type"]).endswith("WeightDecay")):
            # A weight decay of 0 stays.
            continue
        made = Group(index, lambda: _epoch_length(context), has_epochs, f"{where} > {name}")
        with located(made.where):
            action, initial = build_action(name, arguments, initial, made)
        actions += [] if action is None else [action]
    return chained(context.path[-1], base, actions)


def initial_value(optimizer: object, context: Context) -> sp.Expr:
    """Returns the value before any scheduler: of the param group, or else of the optimizer.

    Raises:
        ArgumentError: The optimizer has no such entry.
        DefinitionError: It is not a number.
    """
    key = context.key
    own = group(context).get(key)
    if own is None and key == "momentum" and isinstance(optimizer, Mapping):
        betas = optimizer.get("betas")
        if isinstance(betas, list | tuple) and betas and "momentum" not in optimizer:
            own = betas[0]  # The momentum of an optimizer with betas is the first of them.
    if own is None:
        own = entry(optimizer, key, context.where)
    return number(own, key, context.where)


def _epoch_length(context: Context) -> int:
    length = count(
        fact(context, "epoch_length", "updates_per_epoch"), "epoch_length", context.where
    )
    if length < 1:
        raise DefinitionError(f"epoch_length must be above 0, got {length}", where=context.where)
    return length


def _class(spec: object, where: str) -> tuple[str, str, dict[str, Any]]:
    """The first part of the class name, what it schedules, and its arguments."""
    if not isinstance(spec, Mapping) or not isinstance(spec.get("type"), str):
        raise ArgumentError("a param scheduler must be a mapping with a type", where=where)
    arguments = {key: value for key, value in spec.items() if key != "type"}
    found = split_name(spec["type"])
    if found is None:
        names = [part + suffix for part in CLASSES for suffix in (*SUFFIXES, "ParamScheduler")]
        hint = nearest(spec["type"], names)
        if spec["type"].startswith("ReduceOnPlateau"):
            hint = "it depends on a metric: its value is not a function of the update"
        raise ArgumentError(f"unknown param scheduler {spec['type']!r}", where=where, hint=hint)
    name, key = found
    if key is None:
        key = arguments.pop("param_name", None)
        if not isinstance(key, str):
            raise ArgumentError("missing argument 'param_name'", where=where)
    return name, key, arguments


def _build(given: Arguments, context: Context) -> Schedule:
    return param_schedule(given, context)


_PARAMETERS = parameters(optimizer=REQUIRED, param_scheduler=REQUIRED)
_NOTES: Mapping[str, tuple[str, ...]] = {
    "Constant": ("the factor holds for end - begin - 1 steps: at the last one it is taken back",),
    "CosineAnnealing": (
        "the range ends one step short of the minimum unless T_max is end - begin - 1",
        "a T_max shorter than the range makes the value rise again",
    ),
    "Linear": (
        "start_factor 0 is accepted and divides by zero at the second step",
        "a range of one step never comes back to the full value",
    ),
    "MultiStep": ("milestones count from begin",),
    "Step": ("steps count from begin",),
    "OneCycle": ("the step total_steps is allowed, at which the value rises again",),
}
_GENERAL = ("by_epoch is True by default",)


def _entry(name: str, notes: tuple[str, ...]) -> ScheduleEntry:
    return ScheduleEntry(name, (), _PARAMETERS, _build, notes=(*_GENERAL, *notes))


_NAMES = {
    part + suffix: _NOTES.get(part, ())
    for part in CLASSES
    for suffix in SUFFIXES
    if part != "OneCycle" or suffix == "LR"
}
SCHEDULES = {
    **{name: _entry(name, notes) for name, notes in _NAMES.items()},
    "list": _entry("list", ("schedulers act on the present value, in the order of the list",)),
}
