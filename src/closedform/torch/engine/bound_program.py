"""Steps of parameters as programs on tensors, and what runs them one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor

from closedform.exporters.torch_module import GraphProgram


class Call(NamedTuple):
    """A program on tensors.

    Attributes:
        program: The program.
        reads: What it reads, in its order.
        writes: What each result is written to.
        hypers: Those of what it reads that calls of one group share.
    """

    program: GraphProgram
    reads: Sequence[Tensor]
    writes: Sequence[Sequence[Tensor]]
    hypers: Mapping[str, Tensor] = MappingProxyType({})


Function = Callable[[list[Tensor]], None]
"""What does steps on tensors."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """Steps of several parameters, to be done again and again.

    Attributes:
        tensors: What they read and write. Another tensor may take the place of one that is only
            read.
        function: Does the steps.
    """

    tensors: list[Tensor]
    function: Function

    def run(self) -> None:
        """Does the steps once."""
        self.function(self.tensors)


Preparer = Callable[[Sequence[Call]], Sequence[Prepared]]
"""What makes the steps of several parameters ready."""


def run_torch(calls: Sequence[Call]) -> None:
    """Does the steps of several parameters, one after the other."""
    for program, reads, writes, _ in calls:
        for targets, result in zip(writes, results_of(program, reads), strict=True):
            for target in targets:
                target.copy_(result)


def in_dtype(value: Tensor, dtype: torch.dtype) -> Tensor:
    """Returns a tensor in the dtype that a program takes: itself, or a copy."""
    return value if value.dtype is dtype else value.to(dtype)


def results_of(program: GraphProgram, reads: Iterable[Tensor]) -> tuple[Tensor, ...]:
    """Returns what a program computes of tensors, which may be stored in other dtypes."""
    found = program(*map(in_dtype, reads, program.input_dtypes))
    return found if isinstance(found, tuple) else (found,)


def run_traced(calls: Sequence[Call]) -> None:
    """Does what ``run_torch`` does, within a trace; outside of it where its graph loses results."""
    targets = [target for call in calls for group in call.writes for target in group]
    is_apart = any(map(is_lost, targets))
    (_run_apart if is_apart else run_torch)(calls)


def is_lost(target: Tensor) -> bool:
    """Whether a compiled graph of torch 2.13 loses what is written: a float64 of rank 0 on the CPU.

    Dynamo takes such a tensor for a Python number.
    """
    return target.dim() == 0 and target.dtype == torch.float64 and target.device.type == "cpu"


@torch.compiler.disable  # type: ignore[untyped-decorator] # nothing of it may be traced
def _run_apart(calls: Sequence[Call]) -> None:
    """Does what ``run_torch`` does, outside of any trace."""
    run_torch(calls)
