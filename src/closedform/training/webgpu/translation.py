"""A training step in the types and operators of the WebGPU provider.

1. int64, int16, int8 and uint8 become int32, float64 becomes float32; sizes, which the CPU computes
   from shapes, stay int64. A constant that has no such value is refused.
2. Operators without a kernel, or whose kernel gives other values, are replaced (`replacements`).

Integers of data are taken to fit int32: the page checks tokens and labels when it converts them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from closedform.errors import TrainingExportError
from closedform.training.webgpu.kernels import KERNELS, element_types, sizes_on_host

_FLOAT, _INT, _BOOL, _LONG = (
    TensorProto.FLOAT,
    TensorProto.INT32,
    TensorProto.BOOL,
    TensorProto.INT64,
)
NARROWED: Mapping[int, int] = {
    TensorProto.DOUBLE: _FLOAT,
    TensorProto.INT64: _INT,
    TensorProto.INT16: _INT,
    TensorProto.INT8: _INT,
    TensorProto.UINT8: _INT,
}
"""The types of data that a step for WebGPU has another type for."""

_WRAPPING = frozenset({TensorProto.INT16, TensorProto.INT8, TensorProto.UINT8})
"""Types whose arithmetic wraps around where that of int32 does not."""


Replacement = Callable[["Translation", NodeProto], bool]
"""Writes the nodes for a node; returns False to have it copied."""


class Translation:
    """Writes the nodes of a step; a replacement calls ``emit`` for each node that it writes.

    Attributes:
        types: The element types of the values of the new graph, by name.
        shapes: The sizes of the values of the given graph, None for a free one.
        constants: The constants of the given graph.
    """

    def __init__(self, graph: GraphProto, where: str) -> None:
        self.where = where
        self.graph = graph
        self.constants = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
        self.shapes = _shapes(graph)
        self._before = element_types(graph)
        self._sizes = sizes_on_host(graph)
        # Written once: several nodes may read a constant.
        self._written: dict[str, str] = {}  # constants and sizes on the GPU, by name
        self._literals: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self._count = itertools.count()
        self.nodes: list[NodeProto] = []
        self.initializers: list[TensorProto] = []
        self.types = {
            name: element if name in self._sizes else NARROWED.get(element, element)
            for name, element in self._before.items()
        }

    def run(self, replacements: Mapping[str, Replacement]) -> GraphProto:
        """Returns the new graph, with the replacements of its operators."""
        for node in self.graph.node:
            # Nodes on shapes run on the CPU, in int64 as ONNX has them.
            if set(node.output) <= self._sizes:
                self._copy_size(node)
                continue
            self._check_wrapping(node)
            replacement = replacements.get(node.op_type)
            if replacement is None or not replacement(self, node):
                self.copy(node)
        for output in self.graph.output:
            if output.name in self.constants:  # no node writes it
                array = self.constants[output.name]
                # A constant has another name than the output: a node copies it.
                element = self.types[output.name]
                literal = self.literal(self._narrow(output.name, array, element), element)
                sizes = self.literal(array.shape)
                # allowzero: a size of 0 is 0, not a copy of the input's.
                self.emit("Reshape", [literal, sizes], outputs=[output.name], allowzero=1)
        return helper.make_graph(
            self.nodes,
            self.graph.name,
            [self._port(value) for value in self.graph.input],
            [self._port(value) for value in self.graph.output],
            self.initializers,
        )

    def copy(self, node: NodeProto) -> None:
        """Copies a node, with operands and results in the new types."""
        kernel = KERNELS.get(node.op_type)
        host = kernel.host if kernel else frozenset()
        operands = [
            (self.on_host(node, place) if place in host else self.operand(node, place))
            for place in range(len(node.input))
        ]
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        if node.op_type == "Cast":
            # A cast to float64 or int64 has no kernel: it ends in the narrow type.
            attributes["to"] = NARROWED.get(attributes["to"], attributes["to"])
            if node.input[0] in self._sizes:
                operands = [node.input[0]]  # the CPU casts it
        self.emit(node.op_type, operands, outputs=list(node.output), **attributes)

    def emit(
        self,
        operator: str,
        operands: Sequence[str],
        *,
        outputs: Sequence[str] = (),
        element: int | None = None,
        **attributes: Any,
    ) -> str:
        """Writes a node and returns its first result.

        Args:
            operator: The operator.
            operands: Names of values of the new graph.
            outputs: Names of its results; one new name if empty.
            element: The type of a result with a new name; that of its first operand if None.
            **attributes: Its attributes.
        """
        label = f"webgpu/{operator.lower()}_{next(self._count)}"
        names = list(outputs) or [label]
        if not outputs:
            self.types[label] = self.types[operands[0]] if element is None else element
        self.nodes.append(helper.make_node(operator, operands, names, name=label, **attributes))
        return names[0]

    def literal(self, value: object, element: int = _LONG) -> str:
        """Returns the name of a constant."""
        # The bytes tell −0.0 from 0.0 and NaN from NaN, which == does not.
        array = np.asarray(value, helper.tensor_dtype_to_np_dtype(element))
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._literals:
            name = f"webgpu/constant_{len(self._literals)}"
            self._literals[key] = name
            self.types[name] = element
            self.initializers.append(numpy_helper.from_array(array, name))
        return self._literals[key]

    def operand(self, node: NodeProto, place: int) -> str:
        """Returns an operand on the GPU, in its new type; "" for one that is left out."""
        name = node.input[place] if place < len(node.input) else ""
        if name in self._written or not name:
            return self._written.get(name, "")
        if name in self.constants:
            self._written[name] = self._constant(name)
        elif name in self._sizes:
            self._written[name] = self.emit("Cast", [name], element=_INT, to=_INT)
        return self._written.get(name, name)

    def on_host(self, node: NodeProto, place: int) -> str:
        """Returns an operand that is read on the CPU: a constant, or one computed from shapes.

        Raises:
            ExportError: It depends on data.
        """
        name = node.input[place] if place < len(node.input) else ""
        if not name:
            return ""
        if name in self.constants:
            array = self.constants[name]
            element = helper.np_dtype_to_tensor_dtype(array.dtype)
            # Range runs on the GPU, with operands there.
            if node.op_type == "Range":
                return self.operand(node, place)
            is_size = element == _LONG
            return self.literal(array, element if is_size else NARROWED.get(element, element))
        if name in self._sizes:
            return self.operand(node, place) if node.op_type == "Range" else name
        raise TrainingExportError(
            f"the WebGPU provider reads the sizes of {node.op_type} on the CPU, and they depend on "
            "data",
            where=f"{self.where}, node of {node.output[0]!r}",
            hint="write the model with sizes that follow from the sizes of the batch",
        )

    def element(self, node: NodeProto, place: int = 0) -> int:
        """The new type of an operand."""
        name = node.input[place]
        if name in self._sizes:
            return _INT
        return NARROWED.get(self._before[name], self._before[name])

    def attribute(self, node: NodeProto, name: str, default: Any) -> Any:
        """The value of an attribute."""
        return next(
            (helper.get_attribute_value(a) for a in node.attribute if a.name == name), default
        )

    def shape(self, name: str) -> tuple[int | None, ...] | None:
        """The sizes of a given value, None for free ones; None if its axes are unknown."""
        return self.shapes.get(name)

    def constant(self, name: str) -> NDArray[Any] | None:
        """The value of a constant of the given graph."""
        return self.constants.get(name)

    def _constant(self, name: str) -> str:
        array = self.constants[name]
        element = NARROWED.get(self._before[name], self._before[name])
        if element == self._before[name]:
            tensor = numpy_helper.from_array(array, name)
            self.initializers.append(tensor)
            return name
        narrow = self._narrow(name, array, element)
        return self.literal(narrow, element)

    def _narrow(self, name: str, array: NDArray[Any], element: int) -> NDArray[Any]:
        """A constant in another type; ExportError if it has no such value."""
        # NumPy warns of a cast that overflows; ``is_lost`` finds it.
        with np.errstate(over="ignore", under="ignore"):
            narrow: NDArray[Any] = array.astype(helper.tensor_dtype_to_np_dtype(element))
        # A float is lost if it becomes infinite or 0; else it is rounded to float32.
        is_lost = (
            (np.isfinite(array) & ~np.isfinite(narrow)) | ((array != 0) & (narrow == 0))
            if array.dtype.kind == "f"
            else array != narrow
        )
        if not is_lost.any():
            return narrow
        bounds = np.iinfo(np.int64)
        # The largest int64 stands for "to the end" in slices.
        if np.isin(array[is_lost], (bounds.min, bounds.max)).all():  # no bound
            limit = np.iinfo(np.int32)
            return np.array(np.clip(array, limit.min, limit.max), np.int32)
        kind = np.dtype(helper.tensor_dtype_to_np_dtype(element)).name
        raise TrainingExportError(
            f"the constant {array[is_lost].flat[0]!s} has no value in {kind}",
            where=f"{self.where}, constant {name!r}",
            hint="GPUs have float32 and int32: write the model with such constants",
        )

    def _copy_size(self, node: NodeProto) -> None:
        """A node on sizes: its constants stay int64."""
        operands = [
            self.literal(self.constants[name], _element(self.constants[name]))
            if name in self.constants
            else name
            for name in node.input
        ]
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        self.emit(node.op_type, operands, outputs=list(node.output), **attributes)

    def _check_wrapping(self, node: NodeProto) -> None:
        kinds = {self._before.get(name) for name in node.output} & _WRAPPING
        # Moves do no arithmetic, so that nothing wraps around.
        if kinds and node.op_type not in _MOVES:
            kind = TensorProto.DataType.Name(next(iter(kinds)) or 0).lower()
            raise TrainingExportError(
                f"the WebGPU provider has no kernel for {node.op_type} of {kind}",
                where=f"{self.where}, node of {node.output[0]!r}",
                hint="compute in int32 or int64",
            )

    def _port(self, value: ValueInfoProto) -> ValueInfoProto:
        port = ValueInfoProto()
        port.CopyFrom(value)
        port.type.tensor_type.elem_type = self.types[value.name]
        return port


_MOVES = frozenset(
    {"Identity", "Reshape", "Flatten", "Unsqueeze", "Squeeze", "Expand", "Transpose", "Slice"}
    | {"Concat", "Split", "Gather", "GatherElements", "GatherND", "Tile"}
)


def _element(array: NDArray[Any]) -> int:
    return int(helper.np_dtype_to_tensor_dtype(array.dtype))


def _shapes(graph: GraphProto) -> dict[str, tuple[int | None, ...]]:
    values = (*graph.input, *graph.output, *graph.value_info)
    shapes: dict[str, tuple[int | None, ...]] = {
        value.name: tuple(
            size.dim_value if size.HasField("dim_value") else None
            for size in value.type.tensor_type.shape.dim
        )
        for value in values
        if value.type.tensor_type.HasField("shape")
    }
    return shapes | {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}


def infer(model: onnx.ModelProto) -> GraphProto:
    """Returns the graph of a model with the types and shapes of its values."""
    # data_prop: sizes that are computed from shapes are known, as the operands of Reshape.
    return onnx.shape_inference.infer_shapes(model, data_prop=True).graph
