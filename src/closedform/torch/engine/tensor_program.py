"""A torch program on single tensors of the CPU: constants made once, ops in place.

Constants, and what depends on inputs that rarely change, are computed before a run and reused; the
other ops are called one after the other. A sum or difference of a tensor and a number times a
tensor is one op, which rounds once where the processor has a fused multiply-add.
``InplaceProgram`` says which ops may write their result over an operand.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx

from closedform.exporters.torch_module import TYPE, FxProgram, GraphProgram
from closedform.ir.types import Shape


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
        scaled_sums = {
            node: scaled_sum
            for node in source.ops
            if (scaled_sum := _match_scaled_sum(node)) is not None
        }
        # The product has no op any more: it is a part of the sum.
        products = {scaled_sum.product for scaled_sum in scaled_sums.values()}
        for node in source.ops:
            index = self._index[node]
            if node in products:
                continue
            if node in scaled_sums:
                self._calls.append(
                    self._fused_call(node, scaled_sums[node], constant_indices | rare_indices)
                )
                continue
            operands = {self._index[operand] for operand in node.all_input_nodes}
            if node.target is getattr:
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
        for result, function, arguments, frees in self._calls:
            values[result] = function(*[values[index] for index in arguments])
            for dead in frees:
                values[dead] = None
        return [values[index] for index in self._outputs]

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
        dead = (self._index[operand] for operand in self._source.frees(node))
        frees = tuple(index for index in dead if index not in reusable)
        return _Call(self._index[node], function, arguments, frees)

    def _fused_call(
        self, node: fx.Node, scaled_sum: _ScaledSum, reusable: Collection[int]
    ) -> _Call:
        """The call of a sum or difference with a number times a tensor."""
        operands = (scaled_sum.addend, scaled_sum.tensor, scaled_sum.number)
        arguments = tuple(map(self._place, operands))
        target = self._overwritten_by(node, scaled_sum)
        sign = -1 if node.target is torch.sub else 1
        position = None if target is None else operands.index(target)
        if position is not None and arguments[position] in reusable:
            position = None
        # The operands of the product live until the sum.
        dead_nodes = [*self._source.frees(node), *self._source.frees(scaled_sum.product)]
        dead = {
            self._index[dead_node]
            for dead_node in dead_nodes
            if dead_node is not scaled_sum.product
        }
        frees = tuple(index for index in dead if index not in reusable)
        return _Call(self._index[node], _add_scaled(sign, position), arguments, frees)

    def _overwritten_by(self, node: fx.Node, scaled_sum: _ScaledSum) -> Any:
        """The tensor in whose memory the result is, if any."""
        over = self._source.overwritten
        if node not in over:
            return None
        target = node.args[over[node]]
        if target is not scaled_sum.product:
            return target
        return (
            scaled_sum.product.args[over[scaled_sum.product]]
            if scaled_sum.product in over
            else None
        )

    def _place(self, operand: Any) -> int:
        """The index of an operand; a constant is appended to the values."""
        if isinstance(operand, fx.Node):
            return self._index[operand]
        self._constants.append(operand)
        return len(self._constants) - 1


class _ScaledSum(NamedTuple):
    """A number times a tensor that is added to, or subtracted from, another tensor."""

    addend: Any
    tensor: fx.Node
    number: fx.Node
    product: fx.Node


def _match_scaled_sum(node: fx.Node) -> _ScaledSum | None:
    """The parts of such a sum or difference, if a node is one."""
    if node.target not in (torch.add, torch.sub) or not all(map(_is_float, node.args)):
        return None
    # torch.add and torch.sub scale their second operand: ``n·a - b`` has no such form.
    for position in (1, 0) if node.target is torch.add else (1,):
        addend: Any = node.args[1 - position]
        product: Any = node.args[position]
        # p + p and a product with a second user need the product itself.
        if product.target is not torch.mul or len(product.users) > 1 or addend is product:
            continue
        if not all(map(_is_float, product.args)):
            continue
        first, second = product.args
        for number, tensor in ((first, second), (second, first)):
            # A product of another shape would be broadcast by the sum.
            is_scaled = not _shape(number) and _shape(tensor) == _shape(node)
            if is_scaled and not _is_used_between(product, node):
                return _ScaledSum(addend, tensor, number, product)
    return None


def _is_used_between(product: fx.Node, node: fx.Node) -> bool:
    """Whether an op between the two uses an operand of the product: it may overwrite it."""
    return any(
        product < user < node for operand in product.all_input_nodes for user in operand.users
    )


def _is_float(operand: Any) -> bool:
    """Whether an operand is a tensor of floating-point numbers."""
    return (
        isinstance(operand, fx.Node) and TYPE in operand.meta and operand.meta[TYPE].dtype.is_float
    )


def _shape(node: fx.Node) -> Shape:
    shape: Shape = node.meta[TYPE].shape
    return shape


def _add_scaled(sign: int, position: int | None) -> Callable[..., Any]:
    """Returns the function a + sign·number·b of a, b and number, written over an argument."""

    def run(*args: Any) -> Any:
        addend, tensor, number = args
        out = None if position is None else args[position]
        # alpha is a number of Python; item() of a CPU tensor waits for nothing.
        if number.numel() == 1:
            return torch.add(addend, tensor, alpha=sign * number.item(), out=out)
        # A number for each element, such as the bias corrections of several parameters.
        return torch.addcmul(addend, number, tensor, value=sign, out=out)

    return run


def _written_over(function: Callable[..., Any], position: int) -> Callable[..., Any]:
    """Returns the function that writes its result over an argument."""

    def run(*args: Any) -> Any:
        return function(*args, out=args[position])

    return run
