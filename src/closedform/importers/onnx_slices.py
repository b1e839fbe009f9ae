"""The file of a step by parameters: which are computed in the same way, and the graph of one.

A model of a thousand tensors has a few kinds of steps. The nodes behind the outputs of a parameter
are distinguished by their operators and operands, without the parameter's own name;
parameters whose nodes are the same have one graph, but for names (and for shapes, where no node
looks at one). A value that mixes parameters is identified by its name and never shared.

A sum over parameters is cut out: an Add of what belongs to several parameters, until another node
takes it. It becomes an input, and its parts are looked at by themselves.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass

from onnx import FunctionProto, ModelProto, NodeProto

from closedform.errors import VerificationError
from closedform.importers.onnx_checks import CheckedModel
from closedform.importers.onnx_composed_ops import ROWS, WHOLE_TENSOR
from closedform.importers.onnx_graph import (
    STEP,
    begin_graph,
    checked_model,
    read_node,
    type_of,
    value_of,
)
from closedform.importers.onnx_ops import Reader
from closedform.ir import DType, Graph, Role, TensorType

ELEMENTWISE = ROWS.keys() - WHOLE_TENSOR
_MIXED, _SUM = "", "+"  # no names of parameters


@dataclass(frozen=True, slots=True)
class _Value:
    """A value: its kind, the parameter that it belongs to, and the parts of a sum.

    The owner is None for what belongs to none, ``_MIXED`` or ``_SUM`` for what belongs to several.
    """

    kind: int
    owner: str | None = None
    parts: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Total:
    """A sum over parameters.

    Attributes:
        symbol: The input that stands for it.
        parts: The name of each part by the parameter that it belongs to.
    """

    symbol: str
    parts: Mapping[str, str]


class Slices:
    """The nodes of a model by the parameters that they belong to.

    Args:
        source: The model.
        owned: The parameter of an input, and what it is to it, by its name.
        scalar: The dtype of sums over parameters.

    Attributes:
        is_elementwise: Whether no node looks at a shape.
        totals: The sums over parameters, in order.
    """

    def __init__(
        self,
        source: CheckedModel | ModelProto,
        labels: Mapping[str, tuple[str, str]],
        scalar: DType,
    ) -> None:
        valid = checked_model(source)
        model = self.model = valid.model
        self.scalar = scalar
        self.functions = valid.functions
        nodes = [
            *model.graph.node,
            *(node for function in model.functions for node in function.node),
        ]
        elementwise = {*self.functions, *(("", operator) for operator in ELEMENTWISE)}
        self.is_elementwise = all((node.domain, node.op_type) in elementwise for node in nodes)
        self.totals: dict[str, Total] = {}
        self._inputs = {value.name: value for value in model.graph.input}
        self._tensors = {tensor.name: tensor for tensor in model.graph.initializer}
        self._makers: dict[str, int] = {}
        self._kinds: dict[Hashable, int] = {}
        self._values: dict[str, _Value] = {"": _Value(-1)}
        for name in self._inputs:
            self._values[name] = self._input(name, labels.get(name))
        for name, tensor in self._tensors.items():
            if name not in self._values:
                facts = tensor.data_type, tuple(tensor.dims), name
                self._values[name] = _Value(self._kind("constant", *facts))
        for place, node in enumerate(model.graph.node):
            for name in node.output:
                self._makers[name] = place
            self._add(node)

    def kind_of(self, name: str, param: str) -> Hashable:
        """Returns a key that distinguishes a parameter's value from those computed differently."""
        value = self._take(name)
        return value.kind if value.owner in (None, param) else name

    def graph(self, outputs: Iterable[str]) -> Graph:
        """Returns the graph that computes some values, with these outputs.

        Raises:
            VerificationError: A node is not supported.
        """
        names = list(outputs)
        nodes, used_names = self._behind(names)
        inputs = [value for name, value in self._inputs.items() if name in used_names]
        tensors = [tensor for name, tensor in self._tensors.items() if name in used_names]
        reader = begin_graph(self.model.graph.name, inputs, tensors, STEP)
        for name, total in self.totals.items():
            if name in used_names:
                type_ = TensorType(self.scalar)
                reader.values[name] = reader.builder.input(total.symbol, type_, Role.HYPER)
        for place in nodes:
            self._read(reader, self.model.graph.node[place])
        for name in names:
            reader.output(name, value_of(reader, name))
        return reader.builder.build()

    # --- reading the model -----------------------------------------------------------------------

    def _kind(self, *key: Hashable) -> int:
        return self._kinds.setdefault(key, len(self._kinds))

    def _input(self, name: str, label_of_input: tuple[str, str] | None) -> _Value:
        type_ = type_of(self._inputs[name])
        if label_of_input is None:
            return _Value(self._kind("input", name, str(type_)))
        param, label = label_of_input
        shape = () if self.is_elementwise else type_.shape
        return _Value(self._kind("own", label, type_.dtype, shape), param)

    def _add(self, node: NodeProto) -> None:
        parts = self._parts(node)
        if parts:
            self._values[node.output[0]] = _Value(self._kind("sum", node.output[0]), _SUM, parts)
            return
        values = [self._take(name) for name in node.input]
        owners = {value.owner for value in values} - {None}
        owner = next(iter(owners)) if len(owners) == 1 else _MIXED if owners else None
        own_name = node.output[0] if owner == _MIXED else ""
        kinds = tuple(value.kind for value in values)
        attributes = tuple(
            attribute.SerializeToString(deterministic=True) for attribute in node.attribute
        )
        key = self._kind(node.op_type, node.domain, attributes, kinds, own_name)
        for place, name in enumerate(node.output):
            self._values[name] = _Value(self._kind("output", key, place), owner)

    def _parts(self, node: NodeProto) -> tuple[tuple[str, str], ...]:
        """The parts of a sum over several parameters, one part each; else none."""
        if node.op_type != "Add" or node.domain:
            return ()
        parts: list[tuple[str, str]] = []
        for name in node.input:
            value = self._values[name]
            if value.owner in (None, _MIXED) or name in self.totals:
                return ()
            parts += value.parts if value.owner == _SUM else [(str(value.owner), name)]
        owners = {owner for owner, _ in parts}
        return tuple(parts) if len(owners) == len(parts) else ()

    def _take(self, name: str) -> _Value:
        """A value that is taken by a node; a sum is cut out here."""
        value = self._values[name]
        if value.owner != _SUM:
            return value
        place = len(self.totals)
        while (symbol := f"total.{place}") in self._inputs:
            place += len(self._inputs)
        total = Total(symbol, dict(value.parts))
        self.totals[name] = total
        self._values[name] = _Value(self._kind("total", name))
        return self._values[name]

    def _behind(self, names: Iterable[str]) -> tuple[list[int], set[str]]:
        """The places of the nodes behind some values, and all values that these take."""
        pending, inputs, nodes = list(names), set(), set()
        while pending:
            name = pending.pop()
            if name in inputs:
                continue
            inputs.add(name)
            place = None if name in self.totals else self._makers.get(name)
            if place is not None and place not in nodes:
                nodes.add(place)
                pending.extend(self.model.graph.node[place].input)
        return sorted(nodes), inputs

    def _read(self, reader: Reader, node: NodeProto) -> None:
        function = self.functions.get((node.domain, node.op_type))
        if function is None:
            read_node(reader, node)
            return
        self._read_call(reader, node, function)

    def _read_call(self, reader: Reader, node: NodeProto, function: FunctionProto) -> None:
        """Adds the nodes of a function, its inputs being the operands of a call."""
        has_attributes = node.attribute or function.attribute or function.attribute_proto
        if has_attributes or not all(node.input):
            raise VerificationError(
                f"the function {function.name!r} is called with attributes or a missing operand"
            )
        inner = Reader(
            reader.builder, remainders=reader.remainders, signs=reader.signs, failing=reader.failing
        )
        for formal, actual in zip(function.input, node.input, strict=True):
            if actual in reader.words:
                inner.words[formal] = reader.words[actual]
                continue
            inner.values[formal] = reader.values[actual]
            if actual in reader.arrays:
                inner.arrays[formal] = reader.arrays[actual]
        for inner_node in function.node:
            self._read(inner, inner_node)
        for formal, actual in zip(function.output, node.output, strict=True):
            reader.values[actual] = inner.values[formal]
