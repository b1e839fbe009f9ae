"""Torch programs bound to the tensors that they read and write."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple, ParamSpec, TypeVar

import torch
from torch import Tensor

from closedform.exporters.torch_module import GraphProgram

P = ParamSpec("P")
R = TypeVar("R")


def outside_traces(function: Callable[P, R]) -> Callable[P, R]:
    """Returns a function that runs outside of any trace; only a trace imports ``torch._dynamo``."""

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        if not torch.compiler.is_compiling():
            return function(*args, **kwargs)
        outside: Callable[P, R] = torch.compiler.disable(function)
        return outside(*args, **kwargs)

    return run


def at_trace_time(function: Callable[P, R]) -> Callable[P, R]:
    """Returns a function that a trace calls once, while it is made, and takes as a constant."""
    # torch.compiler.assume_constant_result sets the same, and imports torch._dynamo before.
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


class BoundProgram(NamedTuple):
    """A program with its input and output tensors.

    Attributes:
        program: The program.
        reads: The input tensors, in the program's order.
        writes: The tensors that each output is copied to, in the program's order.
        hypers: The hyperparameter tensors, which the parameters of a group share.
    """

    program: GraphProgram
    reads: Sequence[Tensor]
    writes: Sequence[Sequence[Tensor]]
    hypers: Mapping[str, Tensor] = MappingProxyType({})


StepFunction = Callable[[list[Tensor]], None]
"""Performs the step of several parameters, given all tensors that it reads and writes."""


@dataclass(frozen=True, slots=True)
class BatchedStep:
    """The step of several parameters, which can be repeated.

    Attributes:
        tensors: All tensors that are read and written. A tensor that is only read, such as a
            gradient, may be replaced between runs.
        function: Performs the step.
    """

    tensors: list[Tensor]
    function: StepFunction

    def run(self) -> None:
        """Performs the step once."""
        self.function(self.tensors)


Batcher = Callable[[Sequence[BoundProgram]], Sequence[BatchedStep]]
"""Turns the programs of several parameters into batched steps."""


def run_programs(programs: Sequence[BoundProgram]) -> None:
    """Runs the programs of several parameters, one after the other."""
    for program, reads, writes, _ in programs:
        for targets, result in zip(writes, outputs_of(program, reads), strict=True):
            for target in targets:
                target.copy_(result)


_run_outside = outside_traces(run_programs)
"""Runs programs outside of any trace."""


def in_dtype(value: Tensor, dtype: torch.dtype) -> Tensor:
    """Returns a tensor in the dtype that a program takes: the tensor itself, or a copy."""
    return value if value.dtype is dtype else value.to(dtype)


def outputs_of(program: GraphProgram, reads: Iterable[Tensor]) -> tuple[Tensor, ...]:
    """Returns the outputs of a program; its inputs may be stored in other dtypes."""
    results = program(*map(in_dtype, reads, program.input_dtypes))
    return results if isinstance(results, tuple) else (results,)


def run_in_trace(programs: Sequence[BoundProgram]) -> None:
    """Runs programs within a trace, or outside of it if the traced graph would lose a result."""
    targets = [target for program in programs for group in program.writes for target in group]
    is_outside = any(map(is_lost_in_trace, targets))
    (_run_outside if is_outside else run_programs)(programs)


def is_lost_in_trace(target: Tensor) -> bool:
    """Whether a graph compiled by torch 2.13 loses a write: to a CPU float64 tensor of rank 0.

    Dynamo treats such a tensor as a Python number.
    """
    return target.dim() == 0 and target.dtype == torch.float64 and target.device.type == "cpu"
