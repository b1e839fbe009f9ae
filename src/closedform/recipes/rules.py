"""Optimizers of configs by their common names, built when they are asked for."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from closedform.errors import ArgumentError, UnknownNameError, nearest
from closedform.language import Schedule, UpdateRule
from closedform.recipes.recipe import OptimizerPlan, is_constant

_SAME: Mapping[str, str] = MappingProxyType(
    {
        "adamdecoupled": "adamw",
        "decoupledadamw": "adamw",
        "decoupledsgdw": "sgd",
        "fusedadam": "adam",
        "fusedadamw": "adamw",
        "fusedlamb": "lamb",
        "fusedsgd": "sgd",
        "momentum": "sgd",
    }
)
"""Names that other frameworks have for rules of the library, without underscores."""


def rule_of_library(name: str) -> Callable[..., UpdateRule] | None:
    """Returns the function of the library for an optimizer's common name; None if there is none.

    Letter case, underscores and dashes are ignored.

    Example:
        >>> rule_of_library("AdamW").__name__
        'adamw'
    """
    from closedform import optimizers

    plain = name.lower().replace("_", "").replace("-", "")
    plain = _SAME.get(plain, plain)
    names = {rule_name.replace("_", ""): rule_name for rule_name in optimizers.__all__}
    rule: Callable[..., UpdateRule] | None = (
        getattr(optimizers, names[plain]) if plain in names else None
    )
    return rule


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
        rule: The function of the library, or its name; found by ``name`` if not given.
        where: The place in the config, for errors.
        by_name: Whether ``name`` determines the rule where none is given.

    Example:
        >>> from closedform.schedules import constant
        >>> plan = plan_optimizer("AdamW", {"betas": (0.9, 0.95)})
        >>> plan.build({"lr": constant(0.1)}).hyperparameters["beta2"]
        19/20
    """

    def build(schedules: Mapping[str, Schedule]) -> UpdateRule:
        # rule_of_library imports the optimizers: a comparison of schedules does not need them.
        # Some programs use names of the library for other rules: by_name=False refuses them when
        # asked.
        choice = name if rule is None and by_name else rule
        function = rule_of_library(choice) if isinstance(choice, str) else choice
        if function is None:
            from closedform import optimizers

            # The name exists, but the framework's class of that name is another rule.
            if name in optimizers.__all__:
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
