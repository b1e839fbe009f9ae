"""Nodes of a file whose values depend on the threads that compute them.

The kernel of ``ScatterND`` with a reduction of onnxruntime (1.31 and 1.32, scatter_nd.cc) reads,
adds and writes rows from several threads without a lock: where two rows have one place, one of them
may be lost. That of ``ScatterElements`` runs on one thread.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto, numpy_helper

from closedform.exporters.onnx_scopes import scopes_of
from closedform.ir.graph import Array


def node_with_shared_places(serialized: bytes) -> NodeProto | None:
    """Returns the first ScatterND with a reduction that may have two rows for one place."""
    # Most files have none, and are not parsed a second time.
    if b"ScatterND" not in serialized:
        return None
    try:
        model = ModelProto.FromString(serialized)
    except Exception:  # protobuf's errors have no types; onnxruntime tells the reason
        return None
    for body in (model.graph, *model.functions):
        for scope in scopes_of(body):
            producers = {name: node for node in scope.node for name in node.output}
            constants = _constants(scope)
            node: NodeProto
            for node in scope.node:
                if _reduces(node) and not _are_distinct(node.input[1], producers, constants):
                    return node
    return None


def _reduces(node: NodeProto) -> bool:
    reductions = [a.s for a in node.attribute if a.name == "reduction"]
    # A reduction that a function takes from its caller has no value here.
    is_sum = node.op_type == "ScatterND" and reductions not in ([], [b"none"])
    return is_sum and len(node.input) == 3  # onnxruntime refuses others


def _constants(scope: GraphProto | FunctionProto) -> dict[str, TensorProto]:
    """The constants that no caller replaces, with their values in the file."""
    constants = {}
    if isinstance(scope, GraphProto):
        inputs = {value.name for value in scope.input}
        constants = {t.name: t for t in scope.initializer if t.name not in inputs}
    for node in scope.node:
        for attribute in node.attribute:
            if node.op_type == "Constant" and attribute.name == "value":
                constants.update(dict.fromkeys(node.output, attribute.t))
    external = TensorProto.EXTERNAL
    return {name: t for name, t in constants.items() if t.data_location != external}


def _are_distinct(
    name: str, producers: Mapping[str, NodeProto], constants: Mapping[str, TensorProto]
) -> bool:
    """Whether no two rows of indices can be equal."""
    if name in constants:
        return _has_distinct_rows(numpy_helper.to_array(constants[name]))
    node = producers.get(name)
    if node is None or node.op_type != "Transpose":
        return False
    mask = producers.get(node.input[0])
    perms = [[*a.ints] for a in node.attribute if a.name == "perm"]
    # NonZero has each place once, as a column.
    return mask is not None and mask.op_type == "NonZero" and perms in ([], [[1, 0]])


def _has_distinct_rows(indices: Array) -> bool:
    rows = indices.reshape(-1, indices.shape[-1]) if indices.ndim else indices.reshape(1, 1)
    # An index below 0 counts from the end of an axis whose size is not known here.
    is_of_one_sign = bool((rows >= 0).all() or (rows < 0).all())
    return len(rows) < 2 or (is_of_one_sign and len(np.unique(rows, axis=0)) == len(rows))
