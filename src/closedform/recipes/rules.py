"""Optimizers of configs by their common names, built when they are asked for."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import MappingProxyType, ModuleType
from typing import Any

from closedform.errors import ArgumentError, UnknownNameError, nearest
from closedform.language import Schedule, UpdateRule
from closedform.recipes.recipe import OptimizerPlan, is_constant

CLASSES: Mapping[str, str] = MappingProxyType(
    {
        # torch.optim, which most frameworks build by the name of the class
        "adadelta": "adadelta",
        "adafactor": "adafactor",
        "adagrad": "adagrad",
        "adam": "adam",
        "adamax": "adamax",
        "adamw": "adamw",
        "asgd": "asgd",
        "momentum": "sgd",  # paddle, fluid
        "muon": "muon",
        "nadam": "nadam",
        "radam": "radam",
        "rmsprop": "rmsprop",
        "rprop": "rprop",
        "sgd": "sgd",
        # apex: FusedAdam is in optimizer_classes, FusedLAMB also clips the norm of all gradients
        "fusedadamw": "adamw",
        "fusedsgd": "sgd",
        # packages of one optimizer, by their authors
        "adan": "adan",
        "ademamix": "ademamix",
        "came": "came",
        "lion": "lion",
        "prodigy": "prodigy",
        "schedulefreeadamw": "schedule_free_adamw",
        "schedulefreeradam": "schedule_free_radam",
        "schedulefreesgd": "schedule_free_sgd",
        "stableadamw": "stable_adamw",
        "lamb": "lamb",
    }
)
"""Classes in configs whose rule is one of the library, in lower case without separators.

A rule of the library that is not in this table is never taken for a class of its name: several
packages have a Kron, SOAP or Shampoo, each with a different step.
"""


def rule_of_class(name: str) -> Callable[..., UpdateRule] | None:
    """Returns the function of the library for a class in a config; None if there is none.

    Letter case, underscores and dashes are ignored.

    Example:
        >>> rule_of_class("AdamW").__name__, rule_of_class("SOAP")
        ('adamw', None)
    """
    from closedform import optimizers

    rule = CLASSES.get(_plain_name(name))
    return None if rule is None else _function(optimizers, rule)


def _plain_name(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


def _function(optimizers: ModuleType, rule: str) -> Callable[..., UpdateRule]:
    function: Callable[..., UpdateRule] = getattr(optimizers, rule)
    return function


def plan_optimizer(
    name: str,
    arguments: Mapping[str, Any],
    rule: Callable[..., UpdateRule] | str | None = None,
    where: str | None = None,
    by_name: bool = True,
) -> OptimizerPlan:
    """Returns the plan of an optimizer.

    Args:
        name: The class in the config.
        arguments: Its arguments by the names of the library's rule: ``betas``, ``eps``,
            ``weight_decay``, …; "lr" and "weight_decay" are replaced by the schedules of the group.
        rule: The function of the library, or its name; that of ``CLASSES`` for ``name`` if None.
        where: The place in the config, for errors.
        by_name: Whether ``name`` determines the rule where none is given: some programs use names
            of ``CLASSES`` for different rules.

    Example:
        >>> from closedform.schedules import constant
        >>> plan = plan_optimizer("AdamW", {"betas": (0.9, 0.95)})
        >>> plan.build({"lr": constant(0.1)}).hyperparameters["beta2"]
        19/20
    """

    def build(schedules: Mapping[str, Schedule]) -> UpdateRule:
        # The import is here because a comparison of schedules does not need the optimizers.
        from closedform import optimizers

        function = _function(optimizers, rule) if isinstance(rule, str) else rule
        if function is None and by_name:
            function = rule_of_class(name)
        if function is None:
            # The name exists, but the framework's class of that name is another rule.
            if _plain_name(name) in map(_plain_name, optimizers.__all__):
                raise UnknownNameError(
                    f"the optimizer {name!r} of this config is not the library's rule of that name",
                    where=where,
                    hint="recipe.schedule() has its schedules, and can be the lr of a rule",
                )
            raise UnknownNameError(
                f"the library has no optimizer {name!r}",
                where=where,
                hint=nearest(name, optimizers.__all__),
            )
        parameters = inspect.signature(function).parameters
        for key in arguments:
            if key not in parameters:
                raise ArgumentError(
                    f"{name} has no argument {key!r} here",
                    where=where,
                    hint=nearest(str(key), parameters),
                )
        values = {key: _plain(schedule) for key, schedule in schedules.items() if key in parameters}
        return function(**{**arguments, **values})

    return OptimizerPlan(name, dict(arguments), build)


def _plain(schedule: Schedule) -> Any:
    """The number of a constant schedule, and the schedule itself otherwise."""
    return schedule.exact(0) if is_constant(schedule) else schedule
