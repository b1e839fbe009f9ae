"""The classes of cerebras.pytorch.optim, bases for your own, and its config functions.

``CosineDecayLR(optimizer, …)``, ``ConstantWD``, ``AdamW`` and so on have their names there;
the functions ``configure_…`` create them from configs. Subclass ``Optimizer``, ``LRScheduler``,
``WeightDecayScheduler`` or ``Scheduler`` for your own.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import sympy as sp
from torch import nn
from torch.optim import Optimizer as TorchOptimizer
from torch.optim.optimizer import ParamsT

from closedform import frameworks
from closedform.errors import ArgumentError
from closedform.frameworks import FRAMEWORKS, cerebras
from closedform.language import Schedule, t
from closedform.recipes.entries import REQUIRED, ScheduleEntry
from closedform.torch.compat.cerebras_optimizer import NamedCerebrasOptimizer, Optimizer
from closedform.torch.compat.namespaces import Argument, class_namespace
from closedform.torch.compat.optimizers import NamedOptimizer, optimizer_classes
from closedform.torch.compat.schedulers import NamedScheduler, scheduler_class
from closedform.torch.param_groups import assign, copy_value
from closedform.torch.scheduler import ParamScheduler, Tags, check_optimizer, scheduled_entries

__all__: list[str] = [
    "OPTIMIZERS",
    "SCHEDULERS",
    "LRScheduler",
    "Optimizer",
    "Scheduler",
    "WeightDecayScheduler",
    "configure_lr_scheduler",
    "configure_optimizer",
    "configure_optimizer_params",
    "configure_param_groups",
    "configure_scheduler",
    "configure_scheduler_params",
]

LearningRate = float | str | Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""A learning rate of a config: a number, its text, or one or several schedulers."""

_SYSTEM = "cerebras"
_GENERIC = ("Scheduler", "LRScheduler", "WeightDecayScheduler")
_NOT_PASSED = ("self", "optimizer", "param_group_tags")
# _NormBase is that of batch and instance norms of all ranks.
_NORMS = (nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, nn.modules.batchnorm._NormBase)

_NO_OPTIMIZER: Any = None
"""For entries of which only the argument names are read."""


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
        optimizer: TorchOptimizer,
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
        # The subclass computes with the symbol as if it were the step.
        self.last_epoch = t
        value = self._get_closed_form()
        if isinstance(value, Schedule):
            return value
        if isinstance(value, bool) or not isinstance(value, sp.Expr | int | float):
            raise ArgumentError(
                f"_get_closed_form must return a SymPy expression, got {type(value).__name__}",
                where=where,
                hint="write it with sympy and closedform.t, without torch",
            )
        return Schedule(value, name=where, length=self.total_iters)

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
    name: scheduler_class(_SYSTEM, entry, _base(name).param_group_key, __name__, _base(name))
    for name, entry in FRAMEWORKS[_SYSTEM].schedules.items()
    if name not in _GENERIC
}
"""The scheduler classes by name."""

OPTIMIZERS = optimizer_classes(_SYSTEM, __name__, NamedCerebrasOptimizer)
"""The optimizer classes by name."""


def _own_classes() -> dict[str, type[ParamScheduler]]:
    """Your own classes by name; of two with the same name, the one defined last."""
    bases = (Scheduler, LRScheduler, WeightDecayScheduler)
    library_classes = {*SCHEDULERS.values(), *bases}
    return {
        cls.__name__: cls
        for base in bases
        for cls in _subclasses(base)
        if cls not in library_classes
    }


def _class_of(name: str) -> type[ParamScheduler]:
    """The class of this name; your own has precedence."""
    return {**SCHEDULERS, **_own_classes()}[name]


def _own_entries(optimizer: TorchOptimizer) -> list[ScheduleEntry]:
    """The entries of your own classes for ``recipes.frameworks``."""
    return [_entry(cls, optimizer) for cls in _own_classes().values()]


def _build(optimizer: TorchOptimizer, name: str, kwargs: Mapping[str, Any]) -> ParamScheduler:
    """The scheduler of a class and its arguments from ``recipes.frameworks``."""
    arguments = {key: _sub_schedules(optimizer, value) for key, value in kwargs.items()}
    if name.startswith("Chained"):
        return _class_of(name)(optimizer=optimizer, **arguments)
    return _class_of(name)(optimizer, **arguments)


def _sub_schedules(optimizer: TorchOptimizer, value: Any) -> Any:
    """Sub-schedules, with your own classes as objects."""
    if isinstance(value, list | tuple):
        return [_sub_schedules(optimizer, item) for item in value]
    if not isinstance(value, Mapping) or "class" not in value:
        return value
    name, kwargs = value["class"], value.get("kwargs", {})
    own_classes = _own_classes()
    if name in own_classes:
        return own_classes[name](_shadow(optimizer), **kwargs)
    arguments = {key: _sub_schedules(optimizer, item) for key, item in kwargs.items()}
    return {"class": name, "kwargs": arguments}


def _norm_names(model: nn.Module) -> list[str]:
    """Returns the names of the normalization modules of a model."""
    return [name for name, module in model.named_modules() if isinstance(module, _NORMS)]


def _with_parameters(model: nn.Module, groups: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns param groups with parameters instead of their names."""
    by_name = dict(model.named_parameters())
    return [{**group, "params": [by_name[name] for name in group["params"]]} for group in groups]


def _trainable_names(model: nn.Module) -> list[str]:
    """Returns the names of the parameters that are trained, in the order of the model."""
    return [name for name, parameter in model.named_parameters() if parameter.requires_grad]


def _subclasses(base: type[ParamScheduler]) -> list[type[ParamScheduler]]:
    """All subclasses, parents before children."""
    subclasses: list[type[ParamScheduler]] = []
    for cls in base.__subclasses__():
        subclasses += [cls, *_subclasses(cls)]
    return subclasses


def _entry(cls: type[ParamScheduler], optimizer: TorchOptimizer) -> ScheduleEntry:
    parameters = [
        parameter
        for parameter in inspect.signature(cls).parameters.values()
        if parameter.name not in _NOT_PASSED
        and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    ]
    defaults = {p.name: REQUIRED if p.default is p.empty else p.default for p in parameters}

    def make(**arguments: Any) -> Schedule:
        scheduler = cls(_shadow(optimizer), **arguments)
        schedule: Schedule = next(item for item in scheduler.schedules if item is not None)
        return schedule

    return frameworks.own_schedule(cls.__name__, make, **defaults)


def _shadow(optimizer: TorchOptimizer) -> TorchOptimizer:
    """An optimizer with the same groups, for the construction of a sub-schedule."""
    groups = [
        {key: value if key == "params" else copy_value(value) for key, value in group.items()}
        for group in optimizer.param_groups
    ]
    return TorchOptimizer(groups, {})


def configure_scheduler_params(
    learning_rate: Mapping[str, Any],
) -> tuple[type[ParamScheduler], dict[str, Any]]:
    """Returns the class and arguments of a flat config; see ``closedform.frameworks.cerebras``."""
    name, kwargs = cerebras.configure_scheduler_params(learning_rate, _own_entries(_NO_OPTIMIZER))
    return _class_of(name), kwargs


def configure_lr_scheduler(
    optimizer: TorchOptimizer,
    learning_rate: LearningRate,
    adjust_learning_rate: Mapping[str, Any] | None = None,
) -> ParamScheduler | None:
    """Returns the scheduler of a learning rate in a config; None if there is none.

    Args:
        optimizer: The optimizer that it schedules.
        learning_rate: A number or its text, a mapping with ``scheduler``, or a list of these.
        adjust_learning_rate: If it is not empty, the result is wrapped in ScalePerParamLR.

    Raises:
        ClosedFormError: The errors of ``closedform.frameworks.cerebras.configure_lr_scheduler`` and
            of the class.
    """
    name_and_kwargs = cerebras.configure_lr_scheduler(
        learning_rate, adjust_learning_rate, own=_own_entries(optimizer)
    )
    return None if name_and_kwargs is None else _build(optimizer, *name_and_kwargs)


def configure_scheduler(
    optimizer: TorchOptimizer, schedulers_params: Mapping[str, Any]
) -> ParamScheduler:
    """Returns the scheduler of the nested form ``{class name: {arguments}}``."""
    name_and_kwargs = cerebras.configure_scheduler(schedulers_params, _own_entries(optimizer))
    return _build(optimizer, *name_and_kwargs)


def configure_param_groups(
    model: nn.Module, config: Mapping[str, Any], version: str = "2.3"
) -> list[dict[str, Any]]:
    """Returns the param groups of a model, with its parameters.

    Args:
        model: The model.
        config: As in ``closedform.frameworks.cerebras.configure_param_groups``.
        version: "2.3" for the rules since that version, "2.2" for the earlier ones.

    Raises:
        ConfigError: A layer type is unknown, or the globs of a tag match nothing.
    """
    names, norms = _trainable_names(model), _norm_names(model)
    if version == "2.2":
        groups = cerebras.configure_param_groups_2_2(names, norms, config)
    else:
        groups = cerebras.configure_param_groups(names, norms, config)
    return _with_parameters(model, groups)


def configure_optimizer_params(
    optimizer_type: str, kwargs: Mapping[str, Any]
) -> tuple[type[NamedOptimizer], dict[str, Any]]:
    """Returns the class and arguments of an optimizer config, as ``recipes.cerebras`` does."""
    name, arguments = cerebras.configure_optimizer_params(optimizer_type, kwargs)
    return OPTIMIZERS[name], arguments


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
    cls, arguments = configure_optimizer_params(optimizer_type, kwargs)
    return cls(params, **arguments)


if TYPE_CHECKING:
    from closedform.torch.classes import cerebras as classes
    from closedform.torch.classes.cerebras import *  # noqa: F403 - the generated classes

    # Pyright takes a name that is not listed for a private one.
    __all__ += classes.__all__
else:
    __getattr__, __dir__ = class_namespace(__name__, {**SCHEDULERS, **OPTIMIZERS}, __all__)
