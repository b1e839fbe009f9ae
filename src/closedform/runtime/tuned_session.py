"""Sessions whose graphs are rewritten in memory for the machine at hand; files are unchanged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
from onnx import ModelProto, TensorProto

from closedform.errors import SessionError
from closedform.files import check_regular
from closedform.runtime.blocked_convolutions import block_convolutions
from closedform.runtime.onnx_session import OnnxSession, open_session
from closedform.runtime.transposed_factors import transpose_factors

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
