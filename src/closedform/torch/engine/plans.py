"""What a group of an optimizer runs with, and the source of a rule that is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from closedform.errors import DefinitionError
from closedform.language import UpdateRule
from closedform.torch.engine.specialize import Variant


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


def inputs_for(variant: Variant, params: Sequence[Tensor]) -> dict[str, Tensor]:
    """Returns tensors for the hyperparameters of a group, one behind the other in memory."""
    names = [name for name, *_ in variant.drives]
    device = params[0].device if params else None
    numbers = torch.zeros(len(names), dtype=torch.float64, device=device)
    return dict(zip(names, numbers.unbind(), strict=True))


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

    def read(self, values: Mapping[str, Any]) -> Mapping[str, Tensor]:
        """Returns the hyperparameters of a group as tensors, always the same ones.

        A number is written to its input only where it changed. A trace makes new tensors: AOT
        autograd of torch 2.13 loses a fill of a tensor that the graph is given.
        """
        numbers = {name: leaf.of(values) for name, leaf, _ in self.variant.drives}
        if torch.compiler.is_compiling():
            return {name: self._new(name, number) for name, number in numbers.items()}
        for name, number in numbers.items():
            if isinstance(number, Tensor):
                self.inputs[name].copy_(number.detach().reshape(()))
                self.filled.pop(name, None)
            elif self.filled.get(name) != number:
                self.inputs[name].fill_(number)
                self.filled[name] = number
        return self.inputs

    def _new(self, name: str, number: Any) -> Tensor:
        like = self.inputs[name]
        if isinstance(number, Tensor):
            return number.detach().to(like.device, like.dtype)
        return torch.full_like(like, number)
