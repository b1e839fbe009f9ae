"""The config functions of cerebras.pytorch on the classes of this package.

``closedform.recipes`` reads the configs; here a class and its arguments become an object. A config
is never modified. Your own classes are found by name among the subclasses of ``LRScheduler`` and
``WeightDecayScheduler``.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

from torch import nn
from torch.optim import Optimizer

from closedform.language import Schedule
from closedform.recipes import frameworks
from closedform.recipes.entries import REQUIRED, ScheduleEntry
from closedform.torch.compat.schedulers import NamedScheduler
from closedform.torch.param_groups import copied
from closedform.torch.scheduler import ParamScheduler

_NOT_PASSED = ("self", "optimizer", "param_group_tags")
_NORMS = (
    nn.LayerNorm,
    nn.GroupNorm,
    nn.RMSNorm,
    nn.BatchNorm1d,
    nn.BatchNorm2d,
    nn.BatchNorm3d,
    nn.InstanceNorm1d,
    nn.InstanceNorm2d,
    nn.InstanceNorm3d,
    nn.SyncBatchNorm,
)

NO_OPTIMIZER: Any = None
"""For entries of which only the argument names are read."""


class Registry:
    """The scheduler classes that a config may name: those of the library and your own.

    Args:
        known: The classes of the library by name.
        bases: The classes whose other subclasses are your own.
    """

    def __init__(
        self, known: Mapping[str, type[NamedScheduler]], bases: Iterable[type[ParamScheduler]]
    ) -> None:
        self.known = known
        self.bases = tuple(bases)

    def own(self) -> dict[str, type[ParamScheduler]]:
        """Returns your own classes by name; of two with the same name, the one defined last."""
        found: dict[str, type[ParamScheduler]] = {}
        for base in self.bases:
            for cls in _subclasses(base):
                if cls not in self.known.values() and cls not in self.bases:
                    found[cls.__name__] = cls
        return found

    def class_of(self, name: str) -> type[ParamScheduler]:
        """Returns the class of this name; your own has precedence."""
        return {**self.known, **self.own()}[name]

    def entries(self, optimizer: Optimizer) -> list[ScheduleEntry]:
        """Returns the entries of your own classes for ``recipes.frameworks``."""
        return [_entry(cls, optimizer) for cls in self.own().values()]

    def build(self, optimizer: Optimizer, name: str, kwargs: Mapping[str, Any]) -> ParamScheduler:
        """Returns the scheduler of a class and its arguments from ``recipes.frameworks``."""
        given = {key: self._sub_schedules(optimizer, value) for key, value in kwargs.items()}
        if name.startswith("Chained"):
            return self.class_of(name)(optimizer=optimizer, **given)
        return self.class_of(name)(optimizer, **given)

    def _sub_schedules(self, optimizer: Optimizer, value: Any) -> Any:
        """Sub-schedules, with your own classes as objects."""
        if isinstance(value, list | tuple):
            return [self._sub_schedules(optimizer, item) for item in value]
        if not isinstance(value, Mapping) or "class" not in value:
            return value
        name, kwargs = value["class"], value.get("kwargs", {})
        own = self.own()
        if name in own:
            return own[name](_shadow(optimizer), **kwargs)
        return {
            "class": name,
            "kwargs": {key: self._sub_schedules(optimizer, item) for key, item in kwargs.items()},
        }


def norm_names(model: nn.Module) -> list[str]:
    """Returns the names of the normalization modules of a model."""
    return [name for name, module in model.named_modules() if isinstance(module, _NORMS)]


def with_parameters(model: nn.Module, groups: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns param groups with parameters instead of their names."""
    by_name = dict(model.named_parameters())
    return [{**group, "params": [by_name[name] for name in group["params"]]} for group in groups]


def trained(model: nn.Module) -> list[str]:
    """Returns the names of the parameters that are trained, in the order of the model."""
    return [name for name, parameter in model.named_parameters() if parameter.requires_grad]


def _subclasses(base: type[ParamScheduler]) -> list[type[ParamScheduler]]:
    """All subclasses, parents before children."""
    found: list[type[ParamScheduler]] = []
    for cls in base.__subclasses__():
        found += [cls, *_subclasses(cls)]
    return found


def _entry(cls: type[ParamScheduler], optimizer: Optimizer) -> ScheduleEntry:
    parameters = [
        parameter
        for parameter in inspect.signature(cls).parameters.values()
        if parameter.name not in _NOT_PASSED
        and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    ]
    defaults = {p.name: REQUIRED if p.default is p.empty else p.default for p in parameters}

    def make(**arguments: Any) -> Schedule:
        made = cls(_shadow(optimizer), **arguments)
        found: Schedule = next(one for one in made.schedules if one is not None)
        return found

    return frameworks.own_schedule(cls.__name__, make, **defaults)


def _shadow(optimizer: Optimizer) -> Optimizer:
    """An optimizer with the same groups, for the construction of a sub-schedule."""
    groups = [
        {key: value if key == "params" else copied(value) for key, value in group.items()}
        for group in optimizer.param_groups
    ]
    return Optimizer(groups, {})
