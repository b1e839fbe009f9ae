"""The step of many parameters as one function, compiled by ``torch.compile``.

Inductor fuses what it can into the loop over the elements, and would compute a power of a decay
rate, or a schedule, again for every vector of 16. Scalars are therefore computed first
(``engine/batching.py``) and returned: inductor writes to memory what a function returns. All
tensors are read and written once, in place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count
from types import FunctionType
from typing import Any

import torch
from torch import Tensor

from closedform.ir.graph import Graph
from closedform.torch.engine.batching import (
    BatchedProgram,
    ProgramGroup,
    TensorTable,
    batched_programs,
    batcher,
    run_batched,
    store,
)
from closedform.torch.engine.programs import Batcher, StepFunction, is_lost_in_trace

MAX_COMPILED = 8
"""How many sets of parameters are compiled as a whole; further ones step one by one."""

MAX_SHARED = 64
"""How many compiled functions are remembered for other optimizers."""

_NAMES = count()
"""Numbers for functions: torch remembers by name which sizes have changed."""


def compiled() -> Batcher:
    """Returns a batcher that compiles one function for each sequence of programs."""
    return batcher(_step_function, MAX_COMPILED)


def _step_function(
    table: TensorTable, scalars: Sequence[ProgramGroup], tensors: Sequence[ProgramGroup]
) -> StepFunction:
    """Returns a compiled function of the tensors of a table."""
    programs, deferred = batched_programs(table, [*scalars, *tensors], is_lost_in_trace)
    used, renumbered = _compact(programs, len(table.tensors))
    function = _compiled(_Request.of(renumbered, [table.tensors[index] for index in used]))

    def run(tensors: list[Tensor]) -> None:
        results = function(*[tensors[index] for index in used])
        for index, stores in deferred.items():
            store(tensors, stores, results[index - len(tensors)])

    return run


def _compact(
    programs: Sequence[BatchedProgram], count: int
) -> tuple[list[int], list[BatchedProgram]]:
    """The tensors that are used, and the programs on these alone; results follow the tensors."""
    used = {index for one in programs for refs in one.inputs for index, _ in refs}
    used |= {index for one in programs for stores in one.outputs for (index, _), _ in stores}
    given = sorted(index for index in used if index < count)
    order = {old: new for new, old in enumerate(given)}
    order |= {index: index - count + len(given) for index in used if index >= count}
    renumbered = [
        BatchedProgram(
            program,
            [[(order[index], row) for index, row in refs] for refs in inputs],
            [[((order[index], row), element) for (index, row), element in one] for one in outputs],
        )
        for program, inputs, outputs in programs
    ]
    return given, renumbered


@dataclass(frozen=True, slots=True)
class _Request:
    """Programs to compile, equal to those of other optimizers with the same graphs and layouts.

    Attributes:
        graphs: The graph of each program.
        places: Where each program finds its inputs and stores its outputs.
        layouts: The type, dtype, shape, strides and device of each tensor.
        copies: The first tensor that is the same as each.
        programs: The programs.
    """

    graphs: tuple[Graph, ...]
    places: tuple[Any, ...]
    layouts: tuple[Any, ...]
    copies: tuple[int, ...]
    programs: Sequence[BatchedProgram] = field(compare=False)

    @staticmethod
    def of(programs: Sequence[BatchedProgram], tensors: Sequence[Tensor]) -> _Request:
        """Returns the request for programs on tensors like these."""
        first: dict[int, int] = {}
        return _Request(
            tuple(one.program.source for one in programs),
            tuple(
                (tuple(map(tuple, inputs)), tuple(map(tuple, outputs)))
                for _, inputs, outputs in programs
            ),
            tuple((type(x), x.dtype, x.shape, x.stride(), x.device) for x in tensors),
            tuple(first.setdefault(id(one), index) for index, one in enumerate(tensors)),
            programs,
        )


@lru_cache(MAX_SHARED)
def _compiled(request: _Request) -> Callable[..., list[Tensor]]:
    """Returns a compiled function of tensors that returns the outputs that are not stored.

    The programs are constants of the function. torch counts the compilations of each code object
    and stops after a few, so each function gets a code object of its own.
    """
    programs = request.programs

    def traced(*tensors: Tensor) -> list[Tensor]:
        values = list(tensors)
        run_batched(values, programs)
        return values[len(tensors) :]

    name = f"step_{next(_NAMES)}"
    code = traced.__code__.replace(co_name=name)
    own = FunctionType(code, traced.__globals__, name, None, traced.__closure__)
    options: dict[str, Any] = {"guard_filter_fn": _is_of_tensors, "size_asserts": False}
    found: Callable[..., list[Tensor]]
    found = torch.compile(own, fullgraph=True, options=options)  # dynamic=False costs 4 µs a call
    return found


def _is_of_tensors(guards: Sequence[Any]) -> list[bool]:
    """The guards that are needed: those of the tensors and of torch, not those of the programs."""
    return [not guard.name or guard.name.startswith("tensors") for guard in guards]
