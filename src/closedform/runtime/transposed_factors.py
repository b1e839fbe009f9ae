"""Products of matrices whose first factor is transposed, for the CPU provider of onnxruntime.

The gradient of a weight is such a product. onnxruntime reads a transposed first factor while it
multiplies; a Transpose before the product is faster where the result has many columns: 0.85 to 0.95
of the time for 384 to 4608 columns, on one thread and on two (onnxruntime 1.31, AVX-512). With 256
columns and fewer it takes up to 1.24 of the time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from onnx import ModelProto, NodeProto, helper

from closedform.exporters.onnx_join import with_nodes

COLUMNS = 512
"""Columns of the result from which on a Transpose pays."""

ROWS_PER_COLUMN = 2
"""The most rows of the result for each column: the copy of the factor has as many columns."""

_PLAIN = {"transB": 0, "alpha": 1.0}
"""The other attributes of a product of two matrices; ``beta`` is the factor of a third operand."""


def transpose_factors(model: ModelProto, shapes: Mapping[str, Sequence[int]]) -> ModelProto | None:
    """Returns a model with these Transposes; None if no product has one.

    Args:
        model: The model.
        shapes: The shapes of values of float32 without free sizes.
    """
    nodes: list[NodeProto] = []
    for node in model.graph.node:
        if not _has_pay_off(node, shapes):
            nodes.append(node)
            continue
        transposed = f"{node.input[0]}.transposed.{len(nodes)}"
        nodes += [
            helper.make_node("Transpose", [node.input[0]], [transposed], perm=[1, 0]),
            # onnxruntime would put a Transpose before a Gemm back into the Gemm.
            helper.make_node("MatMul", [transposed, node.input[1]], list(node.output)),
        ]
    if len(nodes) == len(model.graph.node):
        return None
    return with_nodes(model, nodes)


def _has_pay_off(node: NodeProto, shapes: Mapping[str, Sequence[int]]) -> bool:
    if node.op_type != "Gemm" or node.domain or len(node.input) != 2:
        return False
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    if not attributes.get("transA") or any(
        attributes.get(name, plain) != plain for name, plain in _PLAIN.items()
    ):
        return False
    shape = shapes.get(node.output[0])
    return shape is not None and shape[1] >= COLUMNS and shape[0] <= ROWS_PER_COLUMN * shape[1]
