"""Sessions whose graphs are rewritten in memory for the machine at hand; files are unchanged.

The gradient of a weight is a product whose first factor is transposed. onnxruntime reads such a
factor while it multiplies; a Transpose before the product is faster where the result has many
columns: 0.85 to 0.95 of the time for 384 to 4608 columns, on one thread and on two (onnxruntime
1.31, AVX-512). With 256 columns and fewer it takes up to 1.24 of the time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx
from onnx import ModelProto, NodeProto, TensorProto, helper

from closedform.errors import SessionError
from closedform.exporters.onnx_join import with_nodes
from closedform.files import check_regular
from closedform.runtime.blocked_convolutions import block_convolutions
from closedform.runtime.onnx_session import OnnxSession, open_session

COLUMNS = 512
"""Columns of the result from which on a Transpose pays."""

ROWS_PER_COLUMN = 2
"""The most rows of the result for each column: the copy of the factor has as many columns."""

_PLAIN = {"transB": 0, "alpha": 1.0}
"""The other attributes of a product of two matrices; ``beta`` is the factor of a third operand."""

_TUNED = frozenset({"Conv", "ConvTranspose", "Gemm"})
"""The operators that are rewritten."""


def open_tuned(source: Path | ModelProto, **options: Any) -> OnnxSession:
    """Returns a session on the CPU for a model with blocked convolutions and transposed factors.

    Args:
        source: The model, or the path of its file.
        **options: As of ``open_session``.

    Raises:
        SessionError: onnxruntime cannot load the model.
    """
    if not isinstance(source, ModelProto):
        check_regular(source, SessionError)
    try:
        model = source if isinstance(source, ModelProto) else onnx.load(source, "protobuf")
    except Exception:  # protobuf's errors have no types; onnxruntime tells the reason
        return open_session(source, **options)
    tuned_model = tune(model)
    if tuned_model is not None:
        try:
            return open_session(tuned_model, **options)
        except SessionError:
            # Another version of onnxruntime has no such blocks.
            pass
    return open_session(source, **options)


def tune(model: ModelProto) -> ModelProto | None:
    """Returns a model with the same values that this machine runs faster; None for the same."""
    if not any(node.op_type in _TUNED for node in model.graph.node):
        return None  # and no shapes to infer
    # External data is read relative to the file, and a model in memory has none.
    if any(t.data_location == TensorProto.EXTERNAL for t in model.graph.initializer):
        return None
    shapes = _shapes(model)
    blocked = block_convolutions(model, shapes)
    return transpose_factors(blocked or model, shapes) or blocked


def _shapes(model: ModelProto) -> dict[str, list[int]]:
    """The shapes of values of float32 without free sizes."""
    graph = onnx.shape_inference.infer_shapes(model).graph
    shapes = {}
    for value in (*graph.value_info, *graph.input, *graph.output):
        type_ = value.type.tensor_type
        sizes = [size.dim_value for size in type_.shape.dim]
        # dim_value of a free size is 0.
        if type_.elem_type == TensorProto.FLOAT and type_.HasField("shape") and all(sizes):
            shapes[value.name] = sizes
    return shapes


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
