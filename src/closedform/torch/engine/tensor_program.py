"""A torch program on single tensors of the CPU: constants made once, ops in place.

Constants, and what depends on inputs that rarely change, are computed before a run and reused; the
other ops are called one after the other. A sum with a scaled tensor is one op
(``engine/scaled_sums.py``).
``InplaceProgram`` says which ops may write their result over an operand.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx

from closedform.exporters.torch_module import TYPE, FxProgram, GraphProgram
from closedform.ir.naming import NEXT
from closedform.torch.engine.scaled_sums import ScaledSum, match_scaled_sum


class ForeachOp(NamedTuple):
    """A torch function that also exists on lists of tensors, and in place.

    Attributes:
        name: The functions are ``torch._foreach_<name>`` and, in place, ``_foreach_<name>_``.
        operands: How many operands it may write over: the first, or either if they commute.
    """

    name: str
    operands: int


FOREACH_OPS: Mapping[Any, ForeachOp] = {
    torch.add: ForeachOp("add", 2),
    torch.sub: ForeachOp("sub", 1),
    torch.mul: ForeachOp("mul", 2),
    torch.true_divide: ForeachOp("div", 1),
    torch.neg: ForeachOp("neg", 1),
    torch.abs: ForeachOp("abs", 1),
    torch.sqrt: ForeachOp("sqrt", 1),
    torch.exp: ForeachOp("exp", 1),
    torch.log: ForeachOp("log", 1),
    torch.sin: ForeachOp("sin", 1),
    torch.cos: ForeachOp("cos", 1),
    torch.atan: ForeachOp("atan", 1),
    torch.floor: ForeachOp("floor", 1),
    # Only the base: _foreach_pow_ has no form that writes over the exponent.
    torch.pow: ForeachOp("pow", 1),
    torch.minimum: ForeachOp("minimum", 2),
    torch.maximum: ForeachOp("maximum", 2),
}
"""The functions that programs consist of, except comparisons and choices."""

_ELEMENTWISE = frozenset(
    {
        *FOREACH_OPS,
        torch.where,
        torch.lt,
        torch.le,
        torch.eq,
        torch.logical_and,
        torch.logical_or,
        torch.logical_not,
        torch.fmod,
        torch.sign,
        torch.clone,
    }
)
"""Elementwise functions, whose result is in new memory."""


class InplaceProgram:
    """The nodes of a program, and which of them share memory.

    Args:
        program: The program.
        overwritable: The output that may be written over each input, both by index.

    Attributes:
        program: The program.
        nodes: All nodes: inputs, ops, the output.
        ops: The nodes between inputs and output.
        results: The nodes that are returned.
        overwritten: The operand that an op writes its result over, by its position.
        is_elementwise: Whether the program may run on tiles of its tensors.
    """

    def __init__(self, program: FxProgram | GraphProgram, overwritable: Mapping[int, int]) -> None:
        self.program = program
        self.nodes = list(program.graph.nodes)
        self.ops = self.nodes[len(program.input_names) : -1]
        outputs: Any = self.nodes[-1].args[0]
        self.results: tuple[fx.Node, ...] = outputs if isinstance(outputs, tuple) else (outputs,)
        self.is_elementwise = all(
            node.target in _ELEMENTWISE
            or node.target in (getattr, "to")
            or (node.target is torch.full and node.args[0] == ())
            for node in self.ops
        )
        self._last_use = {operand: node for node in self.nodes for operand in node.all_input_nodes}
        self.overwritten: dict[fx.Node, int] = {}
        # States first: a chain of ops in place saves the copy of a state, an intermediate only an
        # allocation.
        for index, result in overwritable.items():
            self.overwritten |= self._chain(self.results[result], self.nodes[index]) or {}
        for node in self.ops:
            if node not in self.overwritten:
                self._overwrite_intermediate(node)

    def frees(self, node: fx.Node) -> list[fx.Node]:
        """Returns the values whose last use is this op."""
        return [operand for operand in node.all_input_nodes if self._last_use[operand] is node]

    def _overwrite_intermediate(self, node: fx.Node) -> None:
        """Lets an op write over an intermediate value that is not used afterwards."""
        for position in self._writable(node):
            operand: Any = node.args[position]
            if operand.target in _ELEMENTWISE:
                self.overwritten[node] = position
                return

    def _chain(self, node: fx.Node, start: fx.Node) -> dict[fx.Node, int] | None:
        """The ops, with their operands, that compute a value in the memory of an input, if any."""
        if node is start:
            return {}
        for position in self._writable(node):
            operand: Any = node.args[position]
            chain = self._chain(operand, start)
            if chain is not None:
                return {**chain, node: position}
        return None

    def _writable(self, node: fx.Node) -> list[int]:
        """The operands that an op could write over if it owned their memory.

        Such an operand has the shape and dtype of the result, is used here for the last time, and
        no op that uses it returns a view.
        """
        count = FOREACH_OPS[node.target].operands if node.target in FOREACH_OPS else 0
        return [
            position
            for position, operand in enumerate(node.args[:count])
            if isinstance(operand, fx.Node)
            # x·x reads its operand twice.
            and node.args.count(operand) == 1
            and self._last_use[operand] is node
            and _has_same_type(operand, node)
            # A view of the operand would see the new value.
            and all(user.target in _ELEMENTWISE for user in operand.users)
        ]


def _has_same_type(value: fx.Node, operand: fx.Node) -> bool:
    """Whether two values are known to have the same shape and dtype."""
    return TYPE in value.meta and value.meta[TYPE] == operand.meta.get(TYPE)


def is_list(value: object) -> bool:
    """Returns whether a value is a tensor for each parameter; a device is shared by all."""
    return isinstance(value, fx.Node) and value.target is not getattr


_CPU = torch.device("cpu")

NodeValues = list[Any]
"""The value of each node, and of each constant argument."""


class _Call(NamedTuple):
    """One op: the index of its result, its function, and the indices of its arguments.

    ``frees`` are the values that are not used afterwards.
    """

    result: int
    function: Callable[..., Any]
    arguments: tuple[int, ...]
    frees: tuple[int, ...]


class TensorProgram:
    """A program whose ops are called one by one.

    Args:
        source: The program, and which of its ops run in place.
        rare: Names of inputs that rarely change.

    Attributes:
        input_names: The inputs, in order.
        input_dtypes: Their dtypes.
        output_names: The outputs, in order.
        varying: The outputs that depend on other inputs.
    """

    def __init__(self, source: InplaceProgram, rare: Collection[str] = ()) -> None:
        program = source.program
        self.input_names, self.output_names = program.input_names, program.output_names
        self.input_dtypes = program.input_dtypes
        self._source = source
        self._index = {node: number for number, node in enumerate(source.nodes)}
        self._constants: NodeValues = [None] * len(source.nodes)
        self._rare: list[_Call] = []
        self._calls: list[_Call] = []
        constant_indices: set[int] = set()
        rare_indices = {index for index, name in enumerate(self.input_names) if name in rare}
        scaled_sums: dict[fx.Node, ScaledSum] = {}
        absorbed_nodes: set[fx.Node] = set()
        for node in reversed(source.ops):
            scaled_sum = match_scaled_sum(node, source.overwritten)
            if scaled_sum is not None and node not in absorbed_nodes:
                scaled_sums[node] = scaled_sum
                absorbed_nodes |= scaled_sum.absorbed
        for node in source.ops:
            index = self._index[node]
            operands = {self._index[operand] for operand in node.all_input_nodes}
            if node in absorbed_nodes:
                continue
            if node in scaled_sums:
                reusable = constant_indices | rare_indices
                self._calls.append(self._sum_call(node, scaled_sums[node], reusable))
            elif node.target is getattr:
                self._constants[index] = _CPU
                constant_indices.add(index)
            elif operands <= constant_indices:
                call = self._call(node, constant_indices)
                self._constants[index] = call.function(*self._arguments_of(call, self._constants))
                constant_indices.add(index)
            elif operands <= constant_indices | rare_indices:
                self._rare.append(self._call(node, constant_indices | rare_indices))
                rare_indices.add(index)
            else:
                self._calls.append(self._call(node, constant_indices | rare_indices))
        self._outputs = [self._index[result] for result in source.results]
        self._free_values(constant_indices | rare_indices)
        pairs = zip(self.output_names, self._outputs, strict=True)
        self.varying = tuple(
            name for name, index in pairs if index not in constant_indices | rare_indices
        )

    def start(self, rare: Mapping[str, Tensor]) -> NodeValues:
        """Returns the values of constants, and of what depends only on these inputs."""
        values = list(self._constants)
        for index, name in enumerate(self.input_names):
            if name in rare:
                values[index] = rare[name]
        for call in self._rare:
            values[call.result] = call.function(*self._arguments_of(call, values))
        return values

    def run(self, start: NodeValues, inputs: Sequence[Tensor | None]) -> list[Tensor]:
        """Returns the outputs; one that was computed in place is the input itself.

        Args:
            start: A result of ``start``.
            inputs: The inputs in order; None for those that ``start`` has.
        """
        values = list(start)
        for index, value in enumerate(inputs):
            if value is not None:
                values[index] = value
        return self._results(values)

    def step(self, inputs: list[Any]) -> None:
        """Writes the outputs over the inputs, which are given in order; each must have one."""
        results = self._results(inputs + self._constants[len(inputs) :])
        for place, result in zip(self._written, results, strict=True):
            if result is not inputs[place]:
                inputs[place].copy_(result)

    def _results(self, values: NodeValues) -> list[Tensor]:
        """Runs the calls on the values of inputs and constants."""
        for result, function, arguments, frees in self._calls:
            values[result] = function(*[values[index] for index in arguments])
            for dead in frees:
                values[dead] = None
        return [values[index] for index in self._outputs]

    @cached_property
    def _written(self) -> list[int]:
        """The input that each output is written over by a step."""
        return [self.input_names.index(name.removeprefix(NEXT)) for name in self.output_names]

    def _arguments_of(self, call: _Call, values: NodeValues) -> list[Any]:
        return [values[index] for index in call.arguments]

    def _call(self, node: fx.Node, reusable: Collection[int]) -> _Call:
        """The call of an op, which overwrites and frees no value that is reused."""
        target: Any = node.target
        function = getattr(Tensor, target) if node.op == "call_method" else target
        if node.kwargs:  # a device is the only node among them
            options = {k: _CPU if isinstance(v, fx.Node) else v for k, v in node.kwargs.items()}
            function = partial(function, **options)
        arguments = tuple(map(self._place, node.args))
        target_position = self._source.overwritten.get(node)
        if target_position is not None and arguments[target_position] not in reusable:
            function = _written_over(function, target_position)
        return _Call(self._index[node], function, arguments, ())

    def _sum_call(self, node: fx.Node, scaled_sum: ScaledSum, reusable: Collection[int]) -> _Call:
        """The call of a sum that absorbs the ops of its scaled term."""
        arguments = tuple(self._index[operand] for operand in scaled_sum.arguments)
        target: Any = node
        while target is node or target in scaled_sum.absorbed:
            position = self._source.overwritten.get(target)
            target = None if position is None else target.args[position]
        place = self._index.get(target)
        is_writable = place in arguments and place not in reusable
        position = arguments.index(place) if is_writable else None
        return _Call(self._index[node], scaled_sum.call(position), arguments, ())

    def _free_values(self, reusable: Collection[int]) -> None:
        """Lets each call free the values that no later one and no output needs."""
        needed_places = {*self._outputs, *reusable, *range(len(self._index), len(self._constants))}
        for number, call in reversed(list(enumerate(self._calls))):
            frees = tuple(set(call.arguments) - needed_places)
            needed_places |= set(frees)
            self._calls[number] = call._replace(frees=frees)

    def _place(self, operand: Any) -> int:
        """The index of an operand; a constant is appended to the values."""
        if isinstance(operand, fx.Node):
            return self._index[operand]
        self._constants.append(operand)
        return len(self._constants) - 1


def _written_over(function: Callable[..., Any], position: int) -> Callable[..., Any]:
    """Returns the function that writes its result over an argument."""

    def run(*args: Any) -> Any:
        return function(*args, out=args[position])

    return run
