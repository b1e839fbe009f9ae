"""The computation of a param group: its rule, the tensors of its hyperparameters, its kernels.

A group whose ``lr`` is set to 0.1 writes 0.1 to the tensor that its kernels read, once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from closedform.torch.engine.specialize import Specialization


def input_tensors(specialization: Specialization, params: Sequence[Tensor]) -> dict[str, Tensor]:
    """Returns tensors for the inputs of a group, contiguous in memory."""
    names = [name for name, *_ in specialization.inputs]
    device = params[0].device if params else None
    numbers = torch.zeros(len(names), dtype=torch.float64, device=device)
    return dict(zip(names, numbers.unbind(), strict=True))


class Layout(NamedTuple):
    """The shape, dtype and device for which the step of a parameter is compiled."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device


@dataclass(slots=True)
class CompiledGroup:
    """The computation of a param group.

    Attributes:
        specialization: Its rule.
        inputs: The tensors of its hyperparameters.
        layouts: The layouts for which its kernels are compiled; None for a parameter without shape.
        state_names: The states of each parameter, in order, without the step.
        written_values: The numbers that were last written to them.
        kernels: The kernel of each parameter, or one for all.
        is_joint: Whether all parameters step together.
        version: Counts the changes of its hyperparameters.
    """

    specialization: Specialization
    inputs: dict[str, Tensor]
    layouts: list[Layout | None] = field(default_factory=list)
    state_names: list[tuple[str, ...]] = field(default_factory=list)
    written_values: dict[str, Any] = field(default_factory=dict)
    kernels: list[Any] = field(default_factory=list)
    is_joint: bool = False
    version: int = 0

    def write_inputs(self, values: Mapping[str, Any]) -> Mapping[str, Tensor]:
        """Returns the hyperparameters of a group as tensors, the same ones each time.

        A number is written only if it has changed. Within a trace the tensors are new: AOT
        autograd of torch 2.13 loses a fill of a tensor that is an input of the graph.
        """
        numbers = {name: entry.of(values) for name, entry, _ in self.specialization.inputs}
        if torch.compiler.is_compiling():
            return {name: self._new(name, number) for name, number in numbers.items()}
        for name, number in numbers.items():
            if isinstance(number, Tensor):
                self.inputs[name].copy_(number.detach().reshape(()))
                self.written_values.pop(name, None)
                self.version += 1
            elif self.written_values.get(name) != number:
                self.inputs[name].fill_(number)
                # Read by kernels that cache numbers computed from hyperparameters.
                self.written_values[name] = number
                self.version += 1
        return self.inputs

    def _new(self, name: str, number: float | Tensor) -> Tensor:
        like = self.inputs[name]
        if isinstance(number, Tensor):
            return number.detach().to(like.device, like.dtype).reshape(())
        return torch.zeros_like(like) + number  # a number of a full would be a constant
