"""The kernels of onnxruntime-web's WebGPU provider: the operators that a step for it may contain.

Measured with onnxruntime-web 1.30 (the native provider), Chromium 156 and SwiftShader, operator by
operator, on special values, too: tests/web/compare_webgpu.py repeats it. An operator that has a
kernel but gives other values than onnxruntime on a CPU is not in the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper

from closedform.errors import TrainingExportError

MAX_TENSORS = 7
"""The largest number of operands of a Concat or results of a Split: every WebGPU device has 8
storage buffers in a shader."""

_F = frozenset({TensorProto.FLOAT})
_I = frozenset({TensorProto.INT32})
_B = frozenset({TensorProto.BOOL})
# WGSL has no integers of 64 bits; the provider narrows indices.
_INDEX = frozenset({TensorProto.INT32, TensorProto.INT64})


@dataclass(frozen=True, slots=True)
class Kernel:
    """An operator that the provider computes on the GPU.

    Attributes:
        types: The element types of its operands, but for those that follow.
        host: Places of operands that it reads on the CPU: constants, or computed from shapes.
        indices: Places of indices, in int32 or int64.
        only_int64: Whether indices must be int64, as ONNX has it.
        conditions: Places of operands that are bool.
        max_tensors: The largest number of its operands, or of its results; None for any.
        max_axes: The largest number of axes of its first operand; None for any.
        outputs: The largest number of results; further ones have no implementation.
    """

    types: frozenset[int] = _F
    host: frozenset[int] = frozenset()
    indices: frozenset[int] = frozenset()
    only_int64: bool = False
    conditions: frozenset[int] = frozenset()
    max_tensors: int | None = None
    max_axes: int | None = None
    outputs: int | None = None


def _at(*places: int) -> frozenset[int]:
    return frozenset(places)


_FLOAT_ONLY = (
    *("Abs", "Neg", "Floor", "Ceil", "Reciprocal", "Sqrt", "Exp", "Erf", "Log", "Tanh", "Atan"),
    *("Asin", "Sinh", "Cosh", "Acosh", "Atanh", "Sigmoid", "HardSigmoid", "HardSwish", "Relu"),
    *("LeakyRelu", "ThresholdedRelu", "Elu", "Gelu", "Softplus", "Softmax", "PRelu", "MatMul"),
    *("Gemm", "Conv", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "Einsum"),
    *("LayerNormalization", "InstanceNormalization", "BatchNormalization", "DepthToSpace", "Pow"),
)
_REDUCTIONS = ("ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd")
_FLOAT_REDUCTIONS = ("ReduceMean", "ReduceL1", "ReduceL2", "ReduceSumSquare")
_BINARY = ("Add", "Sub", "Mul", "Div", "Max", "Min")
_COMPARISONS = ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual")

KERNELS: Mapping[str, Kernel] = {
    **{name: Kernel() for name in _FLOAT_ONLY},
    **{name: Kernel(_F | _I) for name in (*_BINARY, *_COMPARISONS)},
    **{name: Kernel(_F | _I, host=_at(1)) for name in _REDUCTIONS},
    **{name: Kernel(_F, host=_at(1)) for name in _FLOAT_REDUCTIONS},
    "ConvTranspose": Kernel(max_axes=4),  # in three dimensions `run` fails
    "MaxPool": Kernel(outputs=1),  # with indices `run` fails
    "Not": Kernel(_B),
    "And": Kernel(_B),
    "Where": Kernel(_F | _I, conditions=_at(0)),
    "Cast": Kernel(_F | _I | _B),
    "Clip": Kernel(_F | _I),
    "CumSum": Kernel(_F | _I, host=_at(1)),
    "Identity": Kernel(_F | _I),
    "Reshape": Kernel(_F | _I | _B, host=_at(1)),
    "Flatten": Kernel(_F | _I | _B),
    "Unsqueeze": Kernel(_F | _I | _B, host=_at(1)),
    "Squeeze": Kernel(_F | _I, host=_at(1)),
    "Expand": Kernel(_F | _I | _B, host=_at(1)),
    "Transpose": Kernel(_F | _I),
    "Tile": Kernel(_F | _I, host=_at(1)),
    "Trilu": Kernel(_F | _I, host=_at(1)),
    "Pad": Kernel(_F | _I, host=_at(1, 3)),
    "Slice": Kernel(_F, host=_at(1, 2, 3, 4)),
    "Resize": Kernel(_F, host=_at(1, 2, 3)),
    "Range": Kernel(_F | _I, host=_at(0, 1, 2)),
    "Concat": Kernel(_F | _I, max_tensors=MAX_TENSORS),
    "Split": Kernel(_F | _I, host=_at(1), max_tensors=MAX_TENSORS),
    "Gather": Kernel(_F | _I | _B, indices=_at(1)),
    "GatherElements": Kernel(_F, indices=_at(1)),
    "GatherND": Kernel(_F | _I, indices=_at(1), only_int64=True),
    "ScatterElements": Kernel(_F | _I, indices=_at(1)),
    "ScatterND": Kernel(_F | _I, indices=_at(1), only_int64=True),
    "TopK": Kernel(_F, host=_at(1)),
    "Shape": Kernel(_F | _I | _B),
}
"""By operator."""

REASONS: Mapping[str, str] = {
    "Acos": "WGSL's is off by 5e-5",
    "Asinh": "WGSL's is off by 5e-6, and wrong above 1e6",
    "ConvTranspose": "the provider's has one or two spatial axes",
    "MaxPool": "the provider's has no indices",
    "ReduceLogSum": "WGSL's logarithm of 0 is -88",
    "NonZero": "the size of its result depends on data",
    "Unique": "the size of its result depends on data",
    "Compress": "the size of its result depends on data",
}
"""Why an operator, or a use of it, is not in the table, where it is not only absent."""

SHAPE_OPERATORS = frozenset(
    {"Shape", "Size", "Gather", "Slice", "Concat", "Squeeze", "Unsqueeze", "Reshape", "Identity"}
    | {"Add", "Sub", "Mul", "Div", "Mod", "Max", "Min", "Neg", "Abs", "ReduceProd", "ReduceSum"}
    | {"Equal", "Where", "Cast"}
)
"""Operators that the CPU computes on sizes: the provider leaves them there."""


def element_types(graph: GraphProto) -> dict[str, int]:
    """Returns the element types of all values of a graph whose types were inferred."""
    values = (*graph.input, *graph.output, *graph.value_info)
    types = {value.name: value.type.tensor_type.elem_type for value in values}
    return types | {tensor.name: tensor.data_type for tensor in graph.initializer}


def ranks(graph: GraphProto) -> dict[str, int]:
    """Returns the numbers of axes of all values, where they are known."""
    values = (*graph.input, *graph.output, *graph.value_info)
    tensor_types = ((value.name, value.type.tensor_type) for value in values)
    counts = {name: len(type_.shape.dim) for name, type_ in tensor_types if type_.HasField("shape")}
    return counts | {tensor.name: len(tensor.dims) for tensor in graph.initializer}


def sizes_on_host(graph: GraphProto) -> set[str]:
    """Returns the values that follow from shapes only: int64 numbers and vectors, on the CPU."""
    types, axes = element_types(graph), ranks(graph)
    constants = {tensor.name for tensor in graph.initializer}
    sizes: set[str] = set()
    for node in graph.node:
        operands = [name for name in node.input if name]
        # A constant operand does not make a node a size; another size does.
        is_size = node.op_type in ("Shape", "Size") or (
            node.op_type in SHAPE_OPERATORS
            and any(name in sizes for name in operands)
            and all(name in sizes or name in constants for name in operands)
        )
        if is_size and all(
            types.get(name) in (TensorProto.INT64, TensorProto.BOOL) and axes.get(name, 2) <= 1
            for name in node.output
        ):
            sizes.update(node.output)
    return sizes


def check_kernels(model: ModelProto, where: str) -> None:
    """Raises ExportError at the first operator for which the provider has no kernel."""
    graph = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    for node, why in violations(graph):
        reason = REASONS.get(node.op_type)
        raise TrainingExportError(
            f"the WebGPU provider has no kernel for {why}{f': {reason}' if reason else ''}",
            where=f"{where}, node of {node.output[0]!r}",
            hint="write the model with other operators, or train it without target='webgpu'",
        )


def violations(graph: GraphProto) -> Iterator[tuple[NodeProto, str]]:
    """Yields the nodes that no kernel computes, each with its operator and what does not fit."""
    types, axes = element_types(graph), ranks(graph)
    sizes = sizes_on_host(graph)
    on_host = sizes | {tensor.name for tensor in graph.initializer}
    for node in graph.node:
        if all(name in sizes for name in node.output):
            continue
        kernel = KERNELS.get(node.op_type)
        if kernel is None or node.domain:
            yield node, node.op_type
            continue
        if kernel.outputs is not None and sum(map(bool, node.output)) > kernel.outputs:
            yield node, f"{node.op_type} with {len(node.output)} results"
        if kernel.max_tensors is not None:
            count = max(len(node.output), len(node.input) - len(kernel.host))
            if count > kernel.max_tensors:
                yield node, f"{node.op_type} of {count} tensors"
        if kernel.max_axes is not None and axes.get(node.input[0], 0) > kernel.max_axes:
            yield node, f"{node.op_type} of a tensor with {axes[node.input[0]]} axes"
        for place, name in enumerate(node.input):
            if name and not _fits(kernel, node, place, types.get(name, 0), name in on_host):
                element = TensorProto.DataType.Name(types.get(name, 0)).lower()
                yield node, f"{node.op_type} of {element} (operand {place})"
                break
        if node.op_type == "Cast" and not _casts(node):
            to = TensorProto.DataType.Name(helper.get_node_attr_value(node, "to")).lower()
            yield node, f"Cast to {to}"


def _casts(node: NodeProto) -> bool:
    """Whether a Cast has a result that the GPU has; int64 is for indices only."""
    return helper.get_node_attr_value(node, "to") in _F | _I | _B | {TensorProto.INT64}


def _fits(kernel: Kernel, node: NodeProto, place: int, element: int, is_on_host: bool) -> bool:
    if place in kernel.host:
        return is_on_host or node.op_type == "Range"
    if place in kernel.conditions:
        return element == TensorProto.BOOL
    if place in kernel.indices:
        return element == TensorProto.INT64 if kernel.only_int64 else element in _INDEX
    if node.op_type in ("Cast", "Shape") and element == TensorProto.INT64:
        return is_on_host or node.op_type == "Shape"
    return element in kernel.types
