"""Classes that are driven by a metric: torch's ReduceLROnPlateau and the schedulers around it."""

from __future__ import annotations

import sympy as sp

from closedform.errors import DefinitionError
from closedform.language import Schedule, State, UpdateRule, state, t
from closedform.recipes import checks
from closedform.recipes.entries import Arguments, Context, Parameter, RuleBuilder, ScheduleEntry
from closedform.recipes.group_values import base_value, number_of_group
from closedform.schedules import reduce_on_plateau
from closedform.schedules.plateau import MODES, THRESHOLD_MODES

_COUNT = checks.count(0)
TORCH_ARGUMENTS = (
    Parameter("mode", "min", checks.choice(*MODES)),
    Parameter("factor", 0.1, checks.in_range(0, 1)),
    Parameter("patience", 10, _COUNT),
    Parameter("threshold", 1e-4, checks.number),
    Parameter("threshold_mode", "rel", checks.choice(*THRESHOLD_MODES)),
    Parameter("cooldown", 0, _COUNT),
    Parameter("min_lr", 0),
    Parameter("eps", 1e-8, checks.at_least(0)),
)
"""The arguments of torch's class, which transformers passes on."""


def metric_entry(name: str, parameters: tuple[Parameter, ...], rule: RuleBuilder) -> ScheduleEntry:
    """Returns the entry of a class that is driven by a metric: it builds a rule, no schedule."""
    return ScheduleEntry(name, ("reduce_on_plateau",), parameters, _refuse, rule=rule)


def _refuse(arguments: Arguments, context: Context) -> Schedule:
    del arguments
    raise DefinitionError(
        f"{context.path[-1]} is driven by a metric: its value is not a function of the step",
        hint="build its update rule with closedform.frameworks.metric_rule",
    )


def torch_plateau(arguments: Arguments, context: Context) -> UpdateRule:
    """Returns the rule of ``ReduceLROnPlateau``; ``min_lr`` may be a list, one for each group."""
    if arguments["factor"] == 1:
        raise DefinitionError("factor must be below 1, got 1")
    return reduce_on_plateau(
        arguments["mode"],
        arguments["factor"],
        arguments["patience"],
        arguments["threshold"],
        arguments["threshold_mode"],
        arguments["cooldown"],
        number_of_group(arguments, "min_lr", context),
        arguments["eps"],
    )


def timm_plateau(arguments: Arguments, context: Context) -> UpdateRule:
    """Returns the rule of ``PlateauLRScheduler``: a warmup, then the rule of torch.

    Its step t is timm's epoch t + 1: up to ``warmup_t`` the metric is not looked at.
    """
    if arguments["noise_range_t"] is not None:
        raise DefinitionError(
            "noise is not modelled: the value that it changes is put back one step later",
            hint="leave noise_range_t out",
        )
    if arguments["decay_rate"] == 1:
        raise DefinitionError("decay_rate must be below 1, got 1")
    rule = reduce_on_plateau(
        arguments["mode"],
        arguments["decay_rate"],
        arguments["patience_t"],
        arguments["threshold"],
        cooldown=arguments["cooldown_t"],
        minimum=arguments["lr_min"],
    )
    warmup = arguments["warmup_t"]
    if not warmup:
        return rule
    start = arguments["warmup_lr_init"]
    scale = checks.number(context.group.get("lr_scale", 1), "lr_scale", context.where)
    rise = scale * (start + (base_value(context) - start) * (t + 1) / sp.Integer(warmup))
    # During the warmup the states stay as they are: timm does not pass the metric on.
    states = {
        name: State(sp.Piecewise((state(name), t < warmup), (spec.next, True)), spec.initial)
        for name, spec in rule.states.items()
    }
    param = sp.Piecewise((rise, t < warmup), (rule.param, True))
    return UpdateRule(rule.name, param, states, rule.hyperparameters)
