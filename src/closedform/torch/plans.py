"""What a group of an optimizer runs with, and the source of a rule that is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from closedform.errors import DefinitionError
from closedform.language import UpdateRule
from closedform.torch.settings import Variant


@dataclass(frozen=True, slots=True)
class GivenRule:
    """The source of an optimizer whose rule is given: an entry is a hyperparameter by name."""

    rule: UpdateRule

    @property
    def name(self) -> str:
        """The name of the rule."""
        return f"rule {self.rule.name!r}"

    @property
    def keys(self) -> tuple[str, ...]:
        """The hyperparameters."""
        return tuple(self.rule.hyperparameters)

    def build(self, values: Mapping[str, Any]) -> UpdateRule:
        """Returns the rule with these values of its hyperparameters."""
        rate = values.get("lr")
        if isinstance(rate, int | float) and rate < 0:
            raise DefinitionError(f"lr must be >= 0, got {rate!r}", where=self.name)
        return self.rule.bind(**values)


@dataclass(slots=True)
class Plan:
    """What a group runs with.

    Attributes:
        variant: Its rule.
        inputs: Tensors for the hyperparameters.
        filled: The numbers that were last written to them.
        kernels: The kernel of each parameter, or the one of all.
        is_joint: Whether all parameters step together.
    """

    variant: Variant
    inputs: dict[str, Tensor]
    filled: dict[str, Any] = field(default_factory=dict)
    kernels: list[Any] = field(default_factory=list)
    is_joint: bool = False

    def read(self, values: Mapping[str, Any]) -> dict[str, Tensor]:
        """Returns the hyperparameters of a group as tensors.

        A number is written to its input only where it changed. A trace makes new tensors: AOT
        autograd of torch 2.13 loses a fill of a tensor that the graph is given.
        """
        is_traced = torch.compiler.is_compiling()
        found: dict[str, Tensor] = {}
        for name, leaf, _ in self.variant.drives:
            number, filled = leaf.of(values), self.inputs[name]
            if isinstance(number, Tensor):
                found[name] = number.detach().to(filled.device, filled.dtype)
                continue
            if is_traced:
                found[name] = torch.full_like(filled, number)
                continue
            if self.filled.get(name) != number:
                filled.fill_(number)
                self.filled[name] = number
            found[name] = filled
        return found
