"""Optimizer classes of other libraries, generated from the tables of ``recipes.frameworks``."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch.optim.optimizer import ParamsT

from closedform import frameworks
from closedform.errors import ArgumentError
from closedform.frameworks import FRAMEWORKS
from closedform.language import Schedule, UpdateRule
from closedform.recipes.entries import OptimizerEntry, Parameter, fill
from closedform.torch.compat.arguments import describe_arguments
from closedform.torch.compat.namespaces import (
    Argument,
    bound_arguments,
    keyword_only,
    shown_parameters,
)
from closedform.torch.optimizer import Optimizer

_TAKE_SPARSE = ("SGD", "Adagrad")


@dataclass(frozen=True, slots=True)
class FrameworkRule:
    """The rule source of an optimizer class, whose groups hold the arguments of the class.

    Attributes:
        system: The library.
        optimizer: The name of the class.
        as_implemented: Whether to reproduce the defects of the library.
        choices: Arguments of the library's rule that the class does not take, in pairs.
    """

    system: str
    optimizer: str
    as_implemented: bool = False
    choices: tuple[tuple[str, Any], ...] = ()

    @property
    def name(self) -> str:
        """The library and the class."""
        return f"{self.system} > {self.optimizer}"

    @property
    def keys(self) -> tuple[str, ...]:
        """The arguments of the class."""
        entry = FRAMEWORKS[self.system].optimizers[self.optimizer]
        return tuple(parameter.name for parameter in entry.parameters)

    @property
    def optional(self) -> Mapping[str, Any]:
        """The switches that are off by default, which older versions did not save."""
        entry = FRAMEWORKS[self.system].optimizers[self.optimizer]
        switches = (p for p in entry.parameters if p.default is None or p.default is False)
        return {
            **entry.group_entries,
            **{parameter.name: parameter.default for parameter in switches},
        }

    @property
    def takes_sparse(self) -> bool:
        """Whether the class of torch takes sparse gradients, for which it gives the same values."""
        return self.system == "torch" and self.optimizer in _TAKE_SPARSE

    def build(self, values: Mapping[str, Any]) -> UpdateRule:
        """Returns the rule of the class with these arguments."""
        if not self.choices:
            return frameworks.optimizer(self.system, self.optimizer, values, self.as_implemented)
        entry = FRAMEWORKS[self.system].optimizers[self.optimizer]
        arguments = fill(entry.parameters, values, self.name)
        return entry.build({**arguments, **dict(self.choices)})


class NamedOptimizer(Optimizer):
    """An optimizer class of another library; its groups hold its arguments, as they do there.

    ``backend`` is as in ``Optimizer``; ``as_implemented=True`` reproduces the defects of the
    library.
    """

    system: ClassVar[str]
    entry: ClassVar[OptimizerEntry]

    def __init__(
        self,
        params: ParamsT,
        *args: Argument,
        backend: str = "eager",
        as_implemented: bool = False,
        **kwargs: Argument,
    ) -> None:
        choices = tuple(self._choices().items())
        source = FrameworkRule(self.system, self.entry.name, as_implemented, choices)
        names = ["params", *(parameter.name for parameter in self.entry.parameters)]
        arguments = bound_arguments(self.entry.name, names, (params, *args), kwargs, source.name)
        del arguments["params"]
        defaults = fill(self.entry.parameters, arguments, source.name)
        self._check_arguments(defaults, source.name)
        self._begin(params, source, {**defaults, **self.entry.group_entries}, backend)

    def _choices(self) -> dict[str, Any]:
        """The arguments of the library's rule that the class does not take."""
        return {}

    def _check_arguments(self, values: Mapping[str, Any], where: str) -> None:
        """Raises ArgumentError for values that the class does not take, such as schedules."""
        for name, value in values.items():
            if isinstance(value, Schedule):
                raise ArgumentError(
                    f"{name} must be a number, got schedule {value.name!r}",
                    where=where,
                    hint="drive the param groups with closedform.torch.ParamScheduler, or pass a "
                    "rule of closedform.optimizers to closedform.torch.Optimizer",
                )


def optimizer_classes(
    system: str, module: str, base: type[NamedOptimizer] = NamedOptimizer
) -> dict[str, type[NamedOptimizer]]:
    """Returns the optimizer classes of a library by name.

    Args:
        system: The library.
        module: The public module of the classes.
        base: Their base class.
    """
    entries = FRAMEWORKS[system].optimizers
    return {name: _optimizer_class(system, entry, module, base) for name, entry in entries.items()}


def _optimizer_class(
    system: str, entry: OptimizerEntry, module: str, base: type[NamedOptimizer]
) -> type[NamedOptimizer]:
    """The class of an entry, with its signature in the library."""
    parameters = (Parameter("params"), *entry.parameters)
    engine_options: dict[str, object] = {"backend": "eager", "as_implemented": False}
    arguments_text = describe_arguments(
        (*parameters, *(Parameter(name) for name in engine_options))
    )
    namespace = {
        "__module__": module,
        "__qualname__": entry.name,
        "__doc__": (
            f"The optimizer ``{entry.name}`` of {system}, by its documented formula.\n\n"
            f"``closedform show {system}:{entry.name}`` prints the formula.\n\n{arguments_text}\n"
        ),
        "__signature__": inspect.Signature(
            [*shown_parameters(parameters), *keyword_only(**engine_options)]
        ),
        "system": system,
        "entry": entry,
    }
    return type(entry.name, (base,), namespace)
