"""Fewer moves of data in an ONNX graph: transposes and reshapes that need not be done."""

from __future__ import annotations

from typing import Any

from onnxscript import ir

_SWAP = [1, 0]


def merge_moves(graph: Any) -> None:
    """Rewrites a graph in place; what it makes void is left as unused nodes.

    1. A transpose of a transpose is one transpose, or none.
    2. A reshape of a reshape is one reshape, unless its shape has zeros.
    3. A product of matrices of which one is a transpose is a ``Gemm``, which reads it as stored.

    Values do not change; the sums of a product may be added in another order.
    """
    for node in graph:
        if node.op_type == "Transpose":
            _merge_transposes(node)
        elif node.op_type == "Reshape":
            _merge_reshapes(node)
        elif node.op_type in ("MatMul", "Gemm"):
            _read_as_stored(node)


def _source(value: Any, op_type: str) -> Any:
    """The node of this type that makes a value, or None."""
    producer = None if value is None else value.producer()
    is_found = producer is not None and producer.op_type == op_type and producer.domain == ""
    return producer if is_found else None


def _permutation(node: Any) -> list[int] | None:
    return list(node.attributes["perm"].as_ints()) if "perm" in node.attributes else None


def _merge_transposes(node: Any) -> None:
    first, second = _source(node.inputs[0], "Transpose"), _permutation(node)
    if first is None or second is None:
        return
    before = _permutation(first)
    if before is None:
        return
    # Axis i of the result is axis before[second[i]] of the source.
    permutation = [before[axis] for axis in second]
    result, origin = node.outputs[0], first.inputs[0]
    if permutation == sorted(permutation) and (
        not result.is_graph_output() or _may_be_output(origin)
    ):
        ir.convenience.replace_all_uses_with(result, origin, replace_graph_outputs=True)
        return
    node.replace_input_with(0, first.inputs[0])
    node.attributes["perm"] = ir.AttrInt64s("perm", permutation)


def _may_be_output(value: Any) -> bool:
    """Whether a value is not an input, a constant or an output already."""
    return value.producer() is not None and not value.is_graph_output()


def _merge_reshapes(node: Any) -> None:
    first = _source(node.inputs[0], "Reshape")
    shape = node.inputs[1].const_value
    # A 0 in a shape copies a size of the operand, which the first Reshape changes.
    if first is not None and shape is not None and (shape.numpy() != 0).all():
        node.replace_input_with(0, first.inputs[0])


def _read_as_stored(node: Any) -> None:
    operands = [node.inputs[place] for place in (0, 1)]
    if any(operand.shape is None or len(operand.shape) != 2 for operand in operands):
        return
    sources = [_source(operand, "Transpose") for operand in operands]
    swaps = [source is not None and _permutation(source) == _SWAP for source in sources]
    if not any(swaps):
        return
    for place, (source, swap) in enumerate(zip(sources, swaps, strict=True)):
        name = ("transA", "transB")[place]
        flag = node.attributes.get_int(name, 0) if node.op_type == "Gemm" else 0
        node.attributes[name] = ir.AttrInt64(name, flag ^ swap)
        if swap:
            node.replace_input_with(place, source.inputs[0])
    node.op_type = "Gemm"
