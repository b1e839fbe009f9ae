"""The classes of cerebras.pytorch.optim, bases for your own, and ``configure_…`` functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sympy as sp
from torch import nn
from torch.optim import Optimizer
from torch.optim.optimizer import ParamsT

from closedform.errors import ArgumentError
from closedform.language import Schedule, t
from closedform.recipes import frameworks
from closedform.recipes.frameworks import FRAMEWORKS
from closedform.torch.compat.cerebras_optimizer import NamedCerebrasOptimizer
from closedform.torch.compat.configure import (
    NO_OPTIMIZER,
    Registry,
    norm_names,
    trained,
    with_parameters,
)
from closedform.torch.compat.namespaces import Argument
from closedform.torch.compat.optimizers import NamedOptimizer, optimizer_classes
from closedform.torch.compat.schedulers import NamedScheduler, scheduler_class
from closedform.torch.param_groups import assign
from closedform.torch.scheduler import ParamScheduler, Tags, check_optimizer, scheduled_entries

MODULE = "closedform.torch.cerebras"
"""The public module of the classes."""

LearningRate = float | str | Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""A learning rate of a config: a number, its text, or one or several schedulers."""

_SYSTEM = "cerebras"
_GENERIC = ("Scheduler", "LRScheduler", "WeightDecayScheduler")


class Scheduler(ParamScheduler):
    """A scheduler whose value is the SymPy expression that ``_get_closed_form`` returns.

    A subclass sets its own attributes before it calls this constructor, sets ``param_group_key``
    and overrides ``_get_closed_form``, which returns an expression in ``closedform.t`` or in
    ``self.last_epoch`` (which is t during the call), a number, or a Schedule. It must not use
    Python conditions on the step: write branches as ``sympy.Piecewise``.

    Args:
        optimizer: The optimizer.
        total_iters: The number of steps of the schedule, if it is finite.
        last_epoch: As in ``ParamScheduler``.
        param_group_tags: The tags of the groups that it drives, None for all groups.

    Raises:
        ArgumentError: The subclass does not provide an expression or a key.
    """

    param_group_key: str = ""

    def __init__(
        self,
        optimizer: Optimizer,
        total_iters: int | None = None,
        last_epoch: int = -1,
        param_group_tags: Tags = None,
    ) -> None:
        where = type(self).__name__
        check_optimizer(optimizer, where)
        if not self.param_group_key:
            raise ArgumentError(
                "the class does not set param_group_key",
                where=where,
                hint='set it to the entry that it schedules, such as "lr"',
            )
        self.total_iters = total_iters
        self.param_group_tags = param_group_tags
        schedule = self._own_schedule(where)
        key = self.param_group_key
        entries = scheduled_entries(optimizer, schedule, key, param_group_tags, where)
        self._start(optimizer, entries, key, last_epoch)

    def _own_schedule(self, where: str) -> Schedule:
        self.last_epoch = t
        made = self._get_closed_form()
        if isinstance(made, Schedule):
            return made
        if isinstance(made, bool) or not isinstance(made, sp.Expr | int | float):
            raise ArgumentError(
                f"_get_closed_form must return a SymPy expression, got {type(made).__name__}",
                where=where,
                hint="write it with sympy and closedform.t, without torch",
            )
        return Schedule(made, name=where, length=self.total_iters)

    def _get_closed_form(self) -> Any:
        """Returns the value as an expression; a subclass overrides it, or ``…_lr`` as in 2.2."""
        if type(self)._get_closed_form_lr is not ParamScheduler._get_closed_form_lr:
            return self._get_closed_form_lr()
        raise ArgumentError(
            "the class does not override _get_closed_form",
            where=type(self).__name__,
            hint="return a SymPy expression in closedform.t from it",
        )

    def get(self) -> list[Any]:
        """Returns the value of each group at this step, None for one that is not scheduled."""
        return self.get_last_value()

    def increment_last_epoch(self) -> None:
        """Moves the clock by one step without writing values."""
        self.last_epoch += 1

    def update_last_value(self) -> None:
        """Writes the values of this step to the groups."""
        self._write(self.last_epoch)

    def update_groups(self, values: list[Any]) -> None:
        """Writes these values to the groups; None does not change a group."""
        for group, value in zip(self.optimizer.param_groups, values, strict=True):
            if value is not None:
                assign(group, self.key, value)


class LRScheduler(Scheduler):
    """A Scheduler of the learning rate; see there for what a subclass overrides.

    Example:
        >>> import torch
        >>> class InverseLR(LRScheduler):
        ...     def __init__(self, optimizer, initial):
        ...         self.initial = initial
        ...         super().__init__(optimizer)
        ...
        ...     def _get_closed_form(self):
        ...         return self.initial / (1 + self.last_epoch)
        >>> optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(2))], lr=1.0)
        >>> scheduler = InverseLR(optimizer, 0.5)
        >>> optimizer.step()
        >>> scheduler.step()
        >>> scheduler.get_last_lr()
        [0.25]
    """

    param_group_key = "lr"


class WeightDecayScheduler(Scheduler):
    """A Scheduler of the weight decay; see there for what a subclass overrides."""

    param_group_key = "weight_decay"


def _base(name: str) -> type[Scheduler]:
    if name.endswith("WD"):
        return WeightDecayScheduler
    return Scheduler if name.endswith("Scheduler") and name != "ChainedScheduler" else LRScheduler


SCHEDULERS: dict[str, type[NamedScheduler]] = {
    name: scheduler_class(_SYSTEM, entry, _base(name).param_group_key, MODULE, _base(name))
    for name, entry in FRAMEWORKS[_SYSTEM].schedules.items()
    if name not in _GENERIC
}
"""The scheduler classes by name."""

OPTIMIZERS = optimizer_classes(_SYSTEM, MODULE, NamedCerebrasOptimizer)
"""The optimizer classes by name."""

_REGISTRY = Registry(SCHEDULERS, (Scheduler, LRScheduler, WeightDecayScheduler))


def configure_scheduler_params(
    learning_rate: Mapping[str, Any],
) -> tuple[type[ParamScheduler], dict[str, Any]]:
    """Returns the class and arguments of a flat config; see ``closedform.frameworks``."""
    name, kwargs = frameworks.configure_scheduler_params(
        learning_rate, _REGISTRY.entries(NO_OPTIMIZER)
    )
    return _REGISTRY.class_of(name), kwargs


def configure_lr_scheduler(
    optimizer: Optimizer,
    learning_rate: LearningRate,
    adjust_learning_rate: Mapping[str, Any] | None = None,
) -> ParamScheduler | None:
    """Returns the scheduler of a learning rate in a config; None if there is none.

    Args:
        optimizer: The optimizer that it schedules.
        learning_rate: A number or its text, a mapping with ``scheduler``, or a list of these.
        adjust_learning_rate: If it is not empty, the result is wrapped in ScalePerParamLR.

    Raises:
        ClosedFormError: Those of ``closedform.frameworks.configure_lr_scheduler`` and of the class.
    """
    made = frameworks.configure_lr_scheduler(
        learning_rate, adjust_learning_rate, own=_REGISTRY.entries(optimizer)
    )
    return None if made is None else _REGISTRY.build(optimizer, *made)


def configure_scheduler(
    optimizer: Optimizer, schedulers_params: Mapping[str, Any]
) -> ParamScheduler:
    """Returns the scheduler of the nested form ``{class name: {arguments}}``."""
    made = frameworks.configure_scheduler(schedulers_params, _REGISTRY.entries(optimizer))
    return _REGISTRY.build(optimizer, *made)


def configure_param_groups(
    model: nn.Module, config: Mapping[str, Any], version: str = "2.3"
) -> list[dict[str, Any]]:
    """Returns the param groups of a model, with its parameters.

    Args:
        model: The model.
        config: As in ``closedform.frameworks.configure_param_groups``.
        version: "2.3" for the rules since that version, "2.2" for the earlier ones.

    Raises:
        ConfigError: A layer type is unknown, or the globs of a tag match nothing.
    """
    names, norms = trained(model), norm_names(model)
    if version == "2.2":
        groups = frameworks.configure_param_groups_2_2(names, norms, config)
    else:
        groups = frameworks.configure_param_groups(names, norms, config)
    return with_parameters(model, groups)


def configure_optimizer_params(
    optimizer_type: str, kwargs: Mapping[str, Any]
) -> tuple[type[NamedOptimizer], dict[str, Any]]:
    """Returns the class and arguments of an optimizer config; see ``closedform.frameworks``."""
    name, given = frameworks.configure_optimizer_params(optimizer_type, kwargs)
    return OPTIMIZERS[name], given


def configure_optimizer(optimizer_type: str, params: ParamsT, **kwargs: Argument) -> NamedOptimizer:
    """Returns the optimizer of a config.

    Args:
        optimizer_type: The class name in any letter case.
        params: Parameters or param groups.
        **kwargs: The config: ``learning_rate`` and the arguments of the class; other keys are
            ignored.

    Raises:
        ConfigError: The class is unknown, or an argument has its former name.
    """
    cls, given = configure_optimizer_params(optimizer_type, kwargs)
    return cls(params, **given)
