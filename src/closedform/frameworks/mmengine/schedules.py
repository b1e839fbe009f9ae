"""The param schedulers of MMEngine, from ``optimizer`` and ``param_scheduler``.

Each scheduler changes the present value of the param group at its own clock, which counts updates
or, by default, epochs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sympy as sp

from closedform.errors import ArgumentError, DefinitionError, nearest
from closedform.frameworks.mmengine.chain import Action, chained
from closedform.frameworks.mmengine.classes import (
    CLASSES,
    SUFFIXES,
    Group,
    build_action,
    split_name,
)
from closedform.language import Schedule, exact_number
from closedform.recipes import kit


def param_schedule(
    config: kit.Arguments,
    context: kit.Context,
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
    index = context.facts.get("group_index", 0)
    actions: list[Action] = []
    initial = base
    for position, spec in enumerate(specs):
        where = f"{context.where} > param_scheduler[{position}]"
        name, key, arguments = _class(spec, where)
        if key != context.key or (initial == 0 and str(spec["type"]).endswith("WeightDecay")):
            # A weight decay of 0 stays.
            continue
        made = Group(index, lambda: _epoch_length(context), has_epochs, f"{where} > {name}")
        with kit.locate_errors(made.where):
            action, initial = build_action(name, arguments, initial, made)
        actions += [] if action is None else [action]
    return chained(context.path[-1], base, actions)


def initial_value(optimizer: object, context: kit.Context) -> sp.Expr:
    """Returns the value before any scheduler: of the param group, or else of the optimizer.

    Raises:
        ArgumentError: The optimizer has no such entry.
        DefinitionError: It is not a number.
    """
    key, options = context.key, optimizer if isinstance(optimizer, Mapping) else {}
    value, betas = options.get(key), options.get("betas")
    if key == "momentum" and "momentum" not in options and isinstance(betas, list | tuple):
        value = betas[0] if betas else None  # The momentum of such an optimizer is its first beta.
    groups = context.facts.get("param_groups") or ()
    if value is None and not any(key in group for group in groups):
        raise ArgumentError(f"missing argument {key!r}", where=context.where)
    return context.of_group(key, value)


def _epoch_length(context: kit.Context) -> int:
    length = context.facts.get("epoch_length")
    length = exact_number(context.fact("updates_per_epoch") if length is None else length)
    if not (length.is_Integer and length >= 1):
        raise DefinitionError(
            f"epoch_length must be an integer above 0, got {length}", where=context.where
        )
    return int(length)


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


def _build(given: kit.Arguments, context: kit.Context) -> Schedule:
    return param_schedule(given, context)


_UPSTREAM = "mmengine/optim/scheduler/param_scheduler.py"
CLOCK = kit.Clock(kit.Unit.UPDATE)


def _names(part: str) -> tuple[str, ...]:
    suffixes = ("LR",) if part == "OneCycle" else tuple(SUFFIXES)
    return tuple(part + suffix for suffix in suffixes)


def _convention(
    text: str, place: str, *parts: str, applies: Callable[..., bool] | None = None
) -> kit.Note[...]:
    """A convention of classes, by the first parts of their names."""
    classes = tuple(name for part in parts for name in _names(part))
    return kit.Convention(text, f"{_UPSTREAM} ({place})", applies, classes=classes)


def _has(part: str) -> Callable[..., bool]:
    return lambda schedulers, has_epochs, has_layers: any(
        str(spec["type"]).startswith(part) for spec in schedulers
    )


DEFECTS: Mapping[str, kit.Note[[Any, bool, bool]]] = {
    "epochs-by-default": kit.Convention(
        "by_epoch is True by default",
        f"{_UPSTREAM} (_ParamScheduler.__init__)",
    ),
    "cosine-ends-early": _convention(
        "CosineAnnealing ends one step short of its minimum, unless T_max is end - begin - 1",
        "CosineAnnealingParamScheduler._get_value",
        "CosineAnnealing",
        applies=_has("CosineAnnealing"),
    ),
    "cosine-climbs": _convention(
        "a T_max shorter than the range makes the value rise again",
        "CosineAnnealingParamScheduler._get_value",
        "CosineAnnealing",
    ),
    "constant-ends-early": _convention(
        "Constant takes its factor back one step before end",
        "ConstantParamScheduler._get_value",
        "Constant",
        applies=_has("Constant"),
    ),
    "zero-start": _convention(
        "start_factor 0 is accepted and divides by zero at the second step",
        "LinearParamScheduler._get_value",
        "Linear",
    ),
    "range-of-one": _convention(
        "a range of one step never comes back to the full value",
        "LinearParamScheduler._get_value",
        "Linear",
    ),
    "milestones-from-begin": _convention(
        "milestones count from begin", "MultiStepParamScheduler._get_value", "MultiStep"
    ),
    "steps-from-begin": _convention(
        "steps count from begin", "StepParamScheduler._get_value", "Step"
    ),
    "one-step-too-many": _convention(
        "the step total_steps is allowed, at which the value rises again",
        "OneCycleParamScheduler._get_value",
        "OneCycle",
    ),
    "present-value": kit.Convention(
        "schedulers act on the present value, in the order of the list",
        f"{_UPSTREAM} (_ParamScheduler.step)",
        classes=("list",),
    ),
    "epochs-never-end": kit.Convention(
        "in an IterBasedTrainLoop, schedulers that count epochs stay at step 0",
        "mmengine/runner/loops.py (IterBasedTrainLoop)",
        lambda schedulers, has_epochs, has_layers: (
            not has_epochs and any(spec.get("by_epoch", True) for spec in schedulers)
        ),
        classes=(),
    ),
    "rates-by-layer": kit.Convention(
        "layer_decay_rate gives every layer its own rate, below that of the config",
        "mmpretrain/engine/optimizers/layer_decay_optim_wrapper_constructor.py",
        lambda schedulers, has_epochs, has_layers: has_layers,
        classes=(),
    ),
}
_PARAMETERS = kit.parameters(optimizer=kit.REQUIRED, param_scheduler=kit.REQUIRED)
SCHEDULES = {
    name: kit.ScheduleEntry(name, (), _PARAMETERS, _build)
    for name in (*(name for part in CLASSES for name in _names(part)), "list")
}
