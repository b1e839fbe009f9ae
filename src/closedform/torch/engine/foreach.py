"""The eager step: the programs of many parameters, op by op, on lists of tensors.

A program is a torch.fx graph. Its ops become ``torch._foreach`` functions where torch has one, and
a loop over the parameters otherwise: Python spends as much time as for one parameter. An op writes
in place where it can, so that an output takes the memory of the state that it replaces.
``engine/flat.py`` steps the parameters of elementwise rules on a CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx

from closedform.exporters.torch_module import GraphProgram
from closedform.ir.graph import Graph
from closedform.ir.naming import NEXT
from closedform.ir.ops import Op
from closedform.torch.engine.batching import (
    Binding,
    ProgramGroup,
    Ref,
    TensorTable,
    batched_programs,
    batcher,
    run_batched,
)
from closedform.torch.engine.programs import Batcher, StepFunction, in_dtype
from closedform.torch.engine.tensor_program import FOREACH_OPS, InplaceProgram, is_list

# Without it, Lion, Adafactor and LAMB take 1.3, 1.6 and 2.1 times the CPU time on 12 tensors of
# 384 x 512.
CPU_BATCH = 2**18
"""Elements that are stepped at once on a CPU: intermediate values stay in its cache."""

DEVICE_BATCH = 2**26
"""Elements that are stepped at once on a device: enough to keep it busy, without a model's copy."""

NodeLists = list[Any]
"""The value of each node: a list with one tensor per parameter, or a value that all share."""

TensorsByRef = Mapping[Ref, Tensor]
"""Tensors of a table, and elements of its vectors."""

ParamsStep = Callable[[TensorsByRef], None]
"""Steps some parameters."""


def foreach() -> Batcher:
    """Returns a batcher that runs programs op by op on lists of tensors."""
    cache: dict[object, ForeachProgram] = {}
    return batcher(partial(_step_function, cache))


def _step_function(
    cache: MutableMapping[object, ForeachProgram],
    table: TensorTable,
    scalars: Sequence[ProgramGroup],
    tensors: Sequence[ProgramGroup],
) -> StepFunction:
    """Returns the step function of a table; ``cache`` holds the programs made so far, and grows."""
    programs, _ = batched_programs(table, scalars)
    groups: dict[object, tuple[GraphProgram, list[_Operands]]] = {}
    for program, (binding,) in tensors:
        operands = _Operands.of(program, binding)
        signature = _signature(program.source), tuple(operands.overwritable(program).items())
        groups.setdefault(signature, (program, []))[1].append(operands)
    runs: list[ParamsStep] = []
    for key, (program, params) in groups.items():
        if key not in cache:
            cache[key] = ForeachProgram(InplaceProgram(program, params[0].overwritable(program)))
        runs += _runs(cache[key], params, table.tensors)
    refs = sorted({ref for _, params in groups.values() for member in params for ref in member.all})

    def run(tensors: list[Tensor]) -> None:
        values = list(tensors)
        run_batched(values, programs)
        tensors_by_ref = _tensors(values, refs)
        for part in runs:
            part(tensors_by_ref)

    return run


def _tensors(values: Sequence[Tensor], refs: Iterable[Ref]) -> TensorsByRef:
    """The tensors of some refs; each vector of scalars is unbound once."""
    tensors: dict[Ref, Tensor] = {}
    vectors: dict[int, Sequence[Tensor]] = {}
    for ref in refs:
        index, row = ref
        if row >= 0 and values[index].dim():
            if index not in vectors:
                # One call for all rows: values[index][row] is one for each.
                vectors[index] = values[index].unbind()
            tensors[ref] = vectors[index][row]
        else:
            tensors[ref] = values[index]
    return tensors


def _signature(graph: Graph) -> object:
    """Equal for graphs whose programs may run as one, on parameters of several shapes.

    Where all tensors of a graph have the same shape, any shape of that rank may take its place.
    """
    # A reduction or a product of matrices ties the program to its shape.
    if len({node.type.shape for node in graph.nodes if node.type.rank}) > 1:
        return graph
    nodes = tuple(
        (
            node.op,
            node.operands,
            node.type.dtype,
            node.type.rank,
            None if node.op is Op.INPUT else node.attributes,
        )
        for node in graph.nodes
    )
    return nodes, tuple(output.index for output in graph.outputs)


@dataclass(frozen=True, slots=True)
class _Operands:
    """The tensors of one parameter in the order of a program: its inputs, and output targets."""

    inputs: list[Ref]
    outputs: list[list[Ref]]

    @staticmethod
    def of(program: GraphProgram, binding: Binding) -> _Operands:
        """Returns the operands of a binding."""
        return _Operands(
            [binding.inputs[name] for name in program.input_names],
            [binding.outputs[name] for name in program.output_names],
        )

    def overwritable(self, program: GraphProgram) -> dict[int, int]:
        """Returns the output that may be written over each input, both by index."""
        names = [name.removeprefix(NEXT) for name in program.output_names]
        return {
            index: names.index(name)
            for index, name in enumerate(program.input_names)
            if name in names and self.outputs[names.index(name)] == [self.inputs[index]]
        }

    @property
    def all(self) -> list[Ref]:
        """All that is read and written."""
        return [*self.inputs, *(ref for refs in self.outputs for ref in refs)]


def _runs(
    program: ForeachProgram, params: Sequence[_Operands], tensors: Sequence[Tensor]
) -> Iterator[ParamsStep]:
    """Steps of the parameters of one program, as many at once as their elements allow."""
    limit = CPU_BATCH if tensors[0].device.type == "cpu" else DEVICE_BATCH
    batch: list[_Operands] = []
    count = 0
    for param in params:
        size = max(tensors[index].numel() for index, _ in param.inputs if index < len(tensors))
        if batch and count + size > limit:
            yield partial(_run, program, _Columns.of(batch))
            batch, count = [], 0
        batch.append(param)
        count += size
    if batch:
        yield partial(_run, program, _Columns.of(batch))


class _Columns(NamedTuple):
    """The refs of several parameters, a column for each input and output of their program."""

    inputs: list[tuple[Ref, ...]]
    outputs: list[tuple[list[Ref], ...]]

    @staticmethod
    def of(params: Sequence[_Operands]) -> _Columns:
        """Returns the columns of some parameters."""
        return _Columns(
            list(zip(*(param.inputs for param in params), strict=True)),
            list(zip(*(param.outputs for param in params), strict=True)),
        )


def _run(program: ForeachProgram, columns: _Columns, tensors: TensorsByRef) -> None:
    """Steps several parameters at once."""
    inputs = [[tensors[ref] for ref in refs] for refs in columns.inputs]
    for results, outputs in zip(program.run(inputs), columns.outputs, strict=True):
        pairs = [
            (tensors[ref], result)
            for result, refs in zip(results, outputs, strict=True)
            for ref in refs
            # A result that was computed in place is there already.
            if tensors[ref] is not result
        ]
        if pairs:
            targets, values = zip(*pairs, strict=True)
            torch._foreach_copy_(targets, values)


class _Instruction(NamedTuple):
    """One op of a program.

    Attributes:
        result: The index of its result among the values.
        function: Computes the result from all values and the number of parameters.
        frees: Values that are not used afterwards.
    """

    result: int
    function: Callable[[NodeLists, int], Any]
    frees: tuple[int, ...]


class ForeachProgram:
    """A program on lists of tensors.

    Args:
        source: The program, and which ops run in place.
    """

    def __init__(self, source: InplaceProgram) -> None:
        self.source = source
        self._dtypes = source.program.input_dtypes
        self._index = {node: index for index, node in enumerate(source.nodes)}
        self._outputs = [self._index[result] for result in source.results]
        self._instructions = [
            _Instruction(
                self._index[node],
                self._function(node, source.overwritten.get(node)),
                tuple(self._index[operand] for operand in source.frees(node)),
            )
            for node in source.ops
        ]

    def run(self, inputs: Sequence[list[Tensor]]) -> list[list[Tensor]]:
        """Returns a list for each output; one that was computed in place is the input itself.

        Args:
            inputs: A list for each input, with one tensor for each parameter.
        """
        values: NodeLists = [None] * len(self._index)
        for index, (tensors, dtype) in enumerate(zip(inputs, self._dtypes, strict=True)):
            # No copy where the dtype is the same, so that an op in place writes to the state
            # itself.
            values[index] = [in_dtype(tensor, dtype) for tensor in tensors]
        count = len(inputs[0])
        for index, function, frees in self._instructions:
            values[index] = function(values, count)
            for dead in frees:
                values[dead] = None
        return [values[index] for index in self._outputs]

    def _function(self, node: fx.Node, overwritten: int | None) -> Callable[[NodeLists, int], Any]:
        """Returns the function that computes a node for all parameters."""
        if node.target in FOREACH_OPS:
            return self._foreach_op(node, FOREACH_OPS[node.target].name, overwritten)
        if node.target is getattr:
            owner, name = self._operand(node.args[0]), str(node.args[1])
            return lambda values, _: getattr(owner(values)[0], name)
        target: Any = node.target
        function = getattr(Tensor, target) if node.op == "call_method" else target
        lists = [operand for operand in node.args if is_list(operand)]
        if not node.kwargs and lists and len(lists) == len(node.all_input_nodes):
            return self._loop(node, function)
        return self._general_loop(node, function)

    def _foreach_op(
        self, node: fx.Node, name: str, overwritten: int | None
    ) -> Callable[[NodeLists, int], Any]:
        """An op that torch has on lists.

        A scalar tensor that all parameters share is given as a list: torch would read a tensor of
        rank 0 outside of a list back to the host.
        """
        args = list(node.args)
        if overwritten is not None:
            # _foreach_add_ writes over its first list; the op commutes where that is the second
            # operand.
            args.insert(0, args.pop(overwritten))
            name += "_"
        function = getattr(torch, f"_foreach_{name}")
        first, *rest = (self._operand(operand) for operand in args)

        def run(values: NodeLists, _: int) -> Any:
            target = first(values)
            result = function(target, *(operand(values) for operand in rest))
            return target if overwritten is not None else result

        return run

    def _loop(self, node: fx.Node, function: Callable[..., Any]) -> Callable[[NodeLists, int], Any]:
        """An op that torch has on single tensors only, whose operands are lists or constants."""
        operands = [(is_list(operand), self._operand(operand)) for operand in node.args]

        def run(values: NodeLists, count: int) -> Any:
            columns = (
                operand(values) if is_column else [operand(values)] * count
                for is_column, operand in operands
            )
            return [function(*row) for row in zip(*columns, strict=True)]

        return run

    def _general_loop(
        self, node: fx.Node, function: Callable[..., Any]
    ) -> Callable[[NodeLists, int], Any]:
        """An op with keyword arguments, or with tensors nested in its arguments."""

        def call(values: NodeLists, row: int) -> Any:
            def operand(node_of_operand: fx.Node) -> Any:
                value = values[self._index[node_of_operand]]
                return value[row] if is_list(node_of_operand) else value

            args = fx.map_arg(node.args, operand)
            return function(*args, **fx.map_arg(node.kwargs, operand))

        if not any(map(is_list, node.all_input_nodes)):
            return lambda values, count: [call(values, 0)] * count
        return lambda values, count: [call(values, row) for row in range(count)]

    def _operand(self, operand: Any) -> Callable[[NodeLists], Any]:
        """Returns the function that finds an operand: a list, or a constant."""
        if not isinstance(operand, fx.Node):
            return lambda _: operand
        index = self._index[operand]
        return lambda values: values[index]
