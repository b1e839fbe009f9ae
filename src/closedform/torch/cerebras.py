"""The classes of cerebras.pytorch.optim, and bases for your own.

``closedform.torch.cerebras.CosineDecayLR(optimizer, …)``, ``ConstantWD``, ``AdamW`` and so on, each
under its name there; the functions ``configure_…`` make them from configs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import sympy as sp
import torch
from torch import nn

from closedform.errors import ArgumentError, nearest
from closedform.language import Schedule, t
from closedform.recipes import frameworks
from closedform.recipes.frameworks import FRAMEWORKS
from closedform.torch.base import OptimizerBase
from closedform.torch.compat.configure import (
    NO_OPTIMIZER,
    Registry,
    norm_names,
    trained,
    with_parameters,
)
from closedform.torch.compat.optimizers import NamedOptimizer, optimizer_class
from closedform.torch.compat.schedulers import NamedScheduler, scheduler_class
from closedform.torch.schedule_values import assign
from closedform.torch.scheduler import ParamScheduler, check_optimizer, read_drives

Optimizer = OptimizerBase
"""The base of optimizers of your own: preinitialize, step and state_names_to_sparsify."""

_SYSTEM = "cerebras"
_GENERIC = ("Scheduler", "LRScheduler", "WeightDecayScheduler")


class Scheduler(ParamScheduler):
    """A scheduler whose value is the SymPy expression that ``_get_closed_form`` returns.

    A subclass sets its own attributes before it calls this constructor, gives ``param_group_key``
    and overrides ``_get_closed_form``: an expression in ``closedform.t``, or in
    ``self.last_epoch``, which is t while it is called; a number; or a Schedule. There are no Python
    conditions on the step in it: branches are ``sympy.Piecewise``.

    Args:
        optimizer: The optimizer.
        total_iters: The number of steps of the schedule, if it has one.
        last_epoch: As in ``ParamScheduler``.
        param_group_tags: The tags of the groups that are meant, None for all.

    Raises:
        ArgumentError: The subclass gives no expression, or no key.
    """

    param_group_key: str = ""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        total_iters: int | None = None,
        last_epoch: int = -1,
        param_group_tags: object = None,
    ) -> None:
        where = type(self).__name__
        check_optimizer(optimizer, where)
        if not self.param_group_key:
            raise ArgumentError(
                "the class has no param_group_key",
                where=where,
                hint='set it to the entry that it schedules, such as "lr"',
            )
        self.total_iters = total_iters
        self.param_group_tags = param_group_tags
        schedule = self._own_schedule(where)
        key = self.param_group_key
        drives = read_drives(optimizer, schedule, key, param_group_tags, where)
        self._start(optimizer, drives, key, last_epoch)

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
        """Returns the value as an expression; a subclass overrides it, or ``…_lr`` as of 2.2."""
        if type(self)._get_closed_form_lr is not ParamScheduler._get_closed_form_lr:
            return self._get_closed_form_lr()
        raise ArgumentError(
            "the class does not override _get_closed_form",
            where=type(self).__name__,
            hint="return a SymPy expression in closedform.t from it",
        )

    def get(self) -> list[Any]:
        """Returns the value of each group at this step, None for one that is left as it is."""
        return self.get_last_value()

    def increment_last_epoch(self) -> None:
        """Moves the clock by one step and writes nothing."""
        self.last_epoch += 1

    def update_last_value(self) -> None:
        """Writes the values of this step to the groups."""
        self._write(self.last_epoch)

    def update_groups(self, values: list[Any]) -> None:
        """Writes these values to the groups; None leaves one as it is."""
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
    name: scheduler_class(_SYSTEM, entry, _base(name).param_group_key, __name__, _base(name))
    for name, entry in FRAMEWORKS[_SYSTEM].schedules.items()
    if name not in _GENERIC
}
"""The scheduler classes by name."""


OPTIMIZERS: dict[str, type[NamedOptimizer]] = {
    name: optimizer_class(_SYSTEM, entry, __name__)
    for name, entry in FRAMEWORKS[_SYSTEM].optimizers.items()
}
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
    optimizer: torch.optim.Optimizer,
    learning_rate: object,
    adjust_learning_rate: Mapping[str, Any] | None = None,
) -> ParamScheduler | None:
    """Returns the scheduler of a learning rate as configs give it; None where it is none.

    Args:
        optimizer: The optimizer that it schedules.
        learning_rate: A number or its text, a mapping with ``scheduler``, or a list of such.
        adjust_learning_rate: Where it is not empty, the result is wrapped in ScalePerParamLR.

    Raises:
        ClosedFormError: Those of ``closedform.frameworks.configure_lr_scheduler`` and of the class.
    """
    made = frameworks.configure_lr_scheduler(
        learning_rate, adjust_learning_rate, own=_REGISTRY.entries(optimizer)
    )
    return None if made is None else _REGISTRY.build(optimizer, *made)


def configure_scheduler(
    optimizer: torch.optim.Optimizer, schedulers_params: Mapping[str, Any]
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
        version: "2.3" for the rules from that version on, "2.2" for those before.

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


def configure_optimizer(
    optimizer_type: str, params: Iterable[Any], **kwargs: Any
) -> NamedOptimizer:
    """Returns the optimizer of a config.

    Args:
        optimizer_type: The class name in any letter case.
        params: Parameters or param groups.
        **kwargs: The config: ``learning_rate`` and the arguments of the class; others are left out.

    Raises:
        ConfigError: The class is unknown, or an argument bears a name that it had before.
    """
    cls, given = configure_optimizer_params(optimizer_type, kwargs)
    return cls(params, **given)


def __getattr__(name: str) -> Any:
    known: dict[str, Any] = {**SCHEDULERS, **OPTIMIZERS}
    if name in known:
        return known[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}: {nearest(name, known)}")


def __dir__() -> list[str]:
    return sorted([*globals(), *SCHEDULERS, *OPTIMIZERS])
