"""The step of many parameters as functions compiled by ``torch.compile``.

On a CPU, an elementwise rule is compiled once for vectors of any length, which ``engine/flat.py``
steps: the time to compile depends neither on the number of parameters nor on their shapes, and
which of them have a gradient changes nothing. All others are compiled as one function.

Inductor fuses what it can into the loop over the elements, and would compute a power of a decay
rate, or a schedule, again for every vector of 16. Scalars are therefore computed first. In the
function of all parameters (``engine/batching.py``) they are returned: inductor writes to memory
what a function returns. All tensors are read and written once, in place.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count
from types import FunctionType
from typing import Any

import torch
from torch import Tensor

from closedform.errors import StateError
from closedform.exporters.torch_module import to_module
from closedform.ir.graph import Graph, input_names
from closedform.ir.naming import NEXT
from closedform.ir.program import NUMBER
from closedform.torch.engine.batching import (
    BatchedProgram,
    ProgramGroup,
    TensorTable,
    batched_programs,
    batcher,
    run_batched,
    store,
)
from closedform.torch.engine.flat import (
    FlatKernel,
    NumberProgram,
    ProgramFactory,
    build_kernel,
    inplace,
)
from closedform.torch.engine.inductor import PARALLEL, CompiledFunction, compiled_function
from closedform.torch.engine.programs import Batcher, StepFunction, is_lost_in_trace, outputs_of
from closedform.torch.engine.tensor_program import NodeValues, TensorProgram

MAX_COMPILED = 8
"""How many sets of parameters are compiled as a whole; further ones step one by one."""

MAX_SHARED = 64
"""How many compiled functions are remembered for other optimizers."""

_NAMES = count()
"""Numbers for functions: torch remembers by name which sizes have changed."""


def compiling_batcher() -> Batcher:
    """Returns a batcher that compiles one function for each sequence of programs."""
    return batcher(_step_function, MAX_COMPILED)


def _step_function(
    table: TensorTable, scalars: Sequence[ProgramGroup], tensors: Sequence[ProgramGroup]
) -> StepFunction:
    """Returns a compiled function of the tensors of a table."""
    programs, late_stores = batched_programs(table, [*scalars, *tensors], is_lost_in_trace)
    indices, compact_programs = _compact(programs, len(table.tensors))
    function = _compile_step(
        _Request.of(compact_programs, [table.tensors[index] for index in indices])
    )

    def run(tensors: list[Tensor]) -> None:
        results = function(*[tensors[index] for index in indices])
        for index, stores in late_stores.items():
            store(tensors, stores, results[index - len(tensors)])

    return run


def _compact(
    programs: Sequence[BatchedProgram], count: int
) -> tuple[list[int], list[BatchedProgram]]:
    """The tensors that are used, and the programs on only these; results follow the tensors."""
    indices = {index for program in programs for refs in program.inputs for index, _ in refs}
    indices |= {
        index for program in programs for stores in program.outputs for (index, _), _ in stores
    }
    table_indices = sorted(index for index in indices if index < count)
    order = {old: new for new, old in enumerate(table_indices)}
    order |= {index: index - count + len(table_indices) for index in indices if index >= count}
    compact_programs = [
        BatchedProgram(
            program,
            [[(order[index], row) for index, row in refs] for refs in inputs],
            [
                [((order[index], row), element) for (index, row), element in stores]
                for stores in outputs
            ],
        )
        for program, inputs, outputs in programs
    ]
    return table_indices, compact_programs


@dataclass(frozen=True, slots=True)
class _Request:
    """Programs to compile, equal for optimizers with the same graphs and layouts.

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
            tuple(program.source for program, *_ in programs),
            tuple(
                (tuple(map(tuple, inputs)), tuple(map(tuple, outputs)))
                for _, inputs, outputs in programs
            ),
            tuple((type(x), x.dtype, x.shape, x.stride(), x.device) for x in tensors),
            tuple(first.setdefault(id(tensor), index) for index, tensor in enumerate(tensors)),
            programs,
        )


@lru_cache(MAX_SHARED)
def _compile_step(request: _Request) -> Callable[..., list[Tensor]]:
    """Returns a compiled function of tensors that returns the outputs that are not stored.

    The programs are constants of the function. torch counts the compilations of each code object
    and stops after a few, so each function gets a separate code object.
    """
    programs = request.programs

    def run_all(*tensors: Tensor) -> list[Tensor]:
        values = list(tensors)
        run_batched(values, programs)
        return values[len(tensors) :]

    name = f"step_{next(_NAMES)}"
    # torch._dynamo stops at its recompile_limit, which is 8 for a code object in torch 2.13.
    code = run_all.__code__.replace(co_name=name)
    function = FunctionType(code, run_all.__globals__, name, None, run_all.__closure__)
    options: dict[str, Any] = {"guard_filter_fn": _keep_tensor_guards, "size_asserts": False}
    compiled_step: Callable[..., list[Tensor]]
    compiled_step = torch.compile(
        function, fullgraph=True, options=options
    )  # dynamic=False costs 4 µs a call
    return compiled_step


def _keep_tensor_guards(guards: Sequence[Any]) -> list[bool]:
    """Returns whether each guard of torch.compile stays: those on tensors and on torch do."""
    return [not guard.name or guard.name.startswith("tensors") for guard in guards]


class CompiledProgram:
    """A program on vectors of any length and numbers, compiled by inductor as one loop.

    It is given to inductor without ``torch.compile``, whose checks and wrappers take 90 µs at each
    call. What the compiled loop assumes of its memory is checked here, in 2 µs.

    Args:
        graph: The graph, for a parameter of rank 1.
        numbers: The inputs that have one element, or one for each element of the vectors; others
            are vectors of one length, or have one element if there is no vector.
        varying: The outputs that depend on inputs that often change.

    Attributes:
        input_names: The inputs, in order.
        input_dtypes: Their dtypes.
        output_names: The outputs, in order.
        varying: The outputs that depend on inputs that often change.
    """

    def __init__(
        self, graph: Graph, numbers: Collection[str], varying: tuple[str, ...] = ()
    ) -> None:
        self._program = to_module(graph)
        self.input_names, self.output_names = self._program.input_names, self._program.output_names
        self.input_dtypes = self._program.input_dtypes
        self.varying = varying
        index = {name: number for number, name in enumerate(self.input_names)}
        vectors = {name: place for name, place in index.items() if name not in numbers}
        self._places = [vectors.get(name.removeprefix(NEXT)) for name in self.output_names]
        self._written = [place for place in self._places if place is not None]
        self._numbers = [index[name] for name in self.input_names if name in numbers]
        self._are_numbers = [name in numbers for name in self.input_names]
        self._longest = next(iter(vectors.values()), None)
        self._compile_step: dict[tuple[Any, ...], CompiledFunction] = {}

    def start(self, rare: Mapping[str, Tensor]) -> NodeValues:
        """Returns the inputs that rarely change."""
        return [rare.get(name) for name in self.input_names]

    def run(self, start: NodeValues, inputs: Sequence[Any]) -> list[Tensor]:
        """Returns the outputs; the next state of vectors is written over the one before."""
        # The compiled function empties its list of inputs, hence the copy below.
        values = [old if new is None else new for old, new in zip(start, inputs, strict=True)]
        new = self._function_of(values)(values.copy())
        if not self._written:
            return list(new)
        # The compiled loop writes without counting versions, by which autograd finds stale tensors.
        next_states = [values[place] for place in self._written]
        torch.autograd.graph.increment_version(next_states)
        return next_states if not new else self._in_order(next_states, new)

    def step(self, inputs: list[Any]) -> None:
        """Writes the outputs over the inputs, which are given in order; each must have one."""
        next_states = [inputs[place] for place in self._written]
        self._function_of(inputs)(inputs)
        torch.autograd.graph.increment_version(next_states)

    def _function_of(self, inputs: Sequence[Any]) -> CompiledFunction:
        """The compiled function of vectors and numbers like these.

        Raises:
            StateError: The memory of a vector is not what the program assumes.
        """
        longest = self._longest
        length = max(map(Tensor.numel, inputs)) if longest is None else inputs[longest].numel()
        for tensor, dtype, is_number in zip(
            inputs, self.input_dtypes, self._are_numbers, strict=True
        ):
            count = tensor.numel()
            is_long = count == length or (is_number and count == 1)
            if (
                not is_long
                or tensor.dtype is not dtype
                or not tensor.is_contiguous()
                or not tensor.is_cpu
            ):
                raise self._error(inputs)
        # The number of threads is a constant of the compiled loop.
        threads = torch.get_num_threads() if length >= PARALLEL else 1
        # Whether a number is broadcast is in the loop; the length of the vectors is not.
        key = threads, *[inputs[index].numel() > 1 for index in self._numbers]
        if key not in self._compile_step:
            self._compile_step[key] = self._compile(inputs, threads)
        return self._compile_step[key]

    def _error(self, inputs: Sequence[Tensor]) -> StateError:
        kinds = "; ".join(
            f"{name}: {dtype}, got {tensor.dtype} of shape {list(tensor.shape)} on {tensor.device}"
            for name, tensor, dtype in zip(self.input_names, inputs, self.input_dtypes, strict=True)
        )
        return StateError(
            f"a compiled step takes contiguous vectors of one length on the CPU: {kinds}",
            hint="a parameter, its gradient or a state was replaced: make the optimizer again",
        )

    def _in_order(self, next_states: Sequence[Tensor], new: Sequence[Tensor]) -> list[Tensor]:
        """The outputs, some of which were written in place."""
        sources = iter(next_states), iter(new)
        return [next(sources[place is None]) for place in self._places]

    def _compile(self, inputs: Sequence[Tensor], threads: int) -> CompiledFunction:
        """Compiles a function of vectors and numbers like these."""

        def step(*tensors: Tensor) -> list[Tensor]:
            new = []
            results = outputs_of(self._program, tensors)
            for place, result in zip(self._places, results, strict=True):
                if place is None:
                    new.append(result)
                else:
                    tensors[place].copy_(result)
            return new

        vectors = [
            index
            for index, tensor in enumerate(inputs)
            if tensor.numel() > 1 or index not in self._numbers
        ]
        return compiled_function(step, inputs, vectors, threads)


def _compiled_numbers(graph: Graph, rare: Sequence[str]) -> NumberProgram:
    program = TensorProgram(inplace(graph), rare)
    if not any(name.startswith(NUMBER) for name in program.varying):
        return program  # it counts the step
    return CompiledProgram(graph, input_names(graph), program.varying)


def _compiled_vectors(graph: Graph) -> CompiledProgram | None:
    if not inplace(graph).is_elementwise:
        return None
    return CompiledProgram(graph, [x for x in input_names(graph) if x.startswith(NUMBER)])


_COMPILED = ProgramFactory(_compiled_numbers, _compiled_vectors, is_in_one_pass=True)
"""Makes programs compiled by inductor."""


@lru_cache(MAX_SHARED)
def compiled_kernel(graph: Graph, label: str) -> FlatKernel | None:
    """Returns the compiled programs of the step graph of a parameter; None if not elementwise.

    Args:
        graph: The graph, for a parameter of rank 1.
        label: The name of the parameter in it.
    """
    return build_kernel(graph, label, _COMPILED)
