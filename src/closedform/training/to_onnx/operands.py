"""Operands in the types that torch's functions for ONNX read.

torch's own kernels take numbers and sizes in place of tensors, and indices of both integer types.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

from closedform.training.to_onnx.operators import ATEN

_INDEXED = frozenset(
    {
        ATEN.index.Tensor,
        ATEN.index_put.default,
        ATEN._unsafe_index.Tensor,
        ATEN._unsafe_index_put.default,
    }
)
"""Operators whose second operand is a list of indices."""

OF_TENSORS: Mapping[Any, Any] = {
    **{
        getattr(ATEN, name).Scalar: getattr(ATEN, name).Tensor
        for name in (
            *("add", "sub", "mul", "div", "eq", "ne", "lt", "le", "gt", "ge"),
            *("fmod", "remainder"),
        )
    },
    ATEN.div.Scalar_mode: ATEN.div.Tensor_mode,
    ATEN.floor_divide.Scalar: ATEN.floor_divide.default,
    ATEN.pow.Tensor_Scalar: ATEN.pow.Tensor_Tensor,
}
"""Operators of a tensor and a number, with a tensor in place of the number."""


def normalize_operands(graph_module: torch.fx.GraphModule) -> None:
    """Rewrites traced operators in place.

    1. A number or a size in place of a tensor (``torch.mul(0.5, x)``, ``x / x.shape[0]``) becomes a
       tensor in the dtype of the operation, and so does a size in place of a number (the factor
       n / (n - 1) of a variance over n rows).
    2. Indices of ``GatherND`` and ``ScatterND`` become int64, the only type that they have there.
    3. The bounds of a clamp become numbers of one kind, and a relu of integers becomes a clamp,
       which onnxruntime has for integers.
    4. A quotient of sizes that may be negative (``-(-n // 2)``) becomes that of a multiple of its
       divisor: ONNX's quotient rounds towards zero, Python's down.
    """
    for node in list(graph_module.graph.nodes):
        if node.target is operator.floordiv:
            _divide_multiples(node)
        if isinstance(node.target, torch._ops.OpOverload):
            if node.target in OF_TENSORS and isinstance(node.args[1], torch.fx.Node):
                node.target = OF_TENSORS[node.target]
            _normalize_bounds(node)
            _make_tensors_of_numbers(node)
            if node.target in _INDEXED:
                _widen_indices(node)
    graph_module.recompile()


def _normalize_bounds(node: torch.fx.Node) -> None:
    if node.target is ATEN.clamp.default and any(isinstance(bound, float) for bound in node.args):
        node.args = tuple(float(v) if type(v) is int else v for v in node.args)
    elif node.target is ATEN.relu.default and not node.meta["val"].is_floating_point():
        node.target, node.args = ATEN.clamp_min.default, (*node.args, 0)


def _make_tensors_of_numbers(node: torch.fx.Node) -> None:
    target: Any = node.target
    tensors = [
        value
        for source_node in node.all_input_nodes
        if (value := _tensor_of(source_node)) is not None
    ]
    for place, (argument, number) in enumerate(
        zip(target._schema.arguments, node.args, strict=False)
    ):
        if not isinstance(argument.type, torch.TensorType) or _tensor_of(number) is not None:
            continue
        dtype = functools.reduce(
            torch.promote_types,
            (torch.result_type(tensor, _like(number)) for tensor in tensors),
        )
        with node.graph.inserting_before(node):
            constant_node = node.graph.call_function(
                ATEN.scalar_tensor.default, (number,), {"dtype": dtype}
            )
        constant_node.meta = {**node.meta, "val": torch.empty((), dtype=dtype, device="meta")}
        node.update_arg(place, constant_node)


def _divide_multiples(node: torch.fx.Node) -> None:
    over, under = node.args
    value, divisor = _size_of(over), _size_of(under)
    if isinstance(value, int) or statically_known_true(value >= 0):
        return
    with node.graph.inserting_before(node):
        rest = node.graph.call_function(operator.mod, (over, under))
        rest.meta = {**node.meta, "val": value % divisor}
        multiple = node.graph.call_function(operator.sub, (over, rest))
        multiple.meta = {**node.meta, "val": value - value % divisor}
    node.update_arg(0, multiple)


def _size_of(operand: Any) -> Any:
    return operand.meta["val"] if isinstance(operand, torch.fx.Node) else operand


def _tensor_of(operand: Any) -> torch.Tensor | None:
    value = operand.meta.get("val") if isinstance(operand, torch.fx.Node) else None
    return value if isinstance(value, torch.Tensor) else None


def _like(number: Any) -> bool | int | float:
    """A number of the kind of a number or a size."""
    value = number.meta.get("val") if isinstance(number, torch.fx.Node) else number
    if isinstance(value, bool | torch.SymBool):
        return True
    return 1.0 if isinstance(value, float | torch.SymFloat) else 1


def _widen_indices(node: torch.fx.Node) -> None:
    indices: Any = node.args[1]
    int64_indices = []
    for index in indices:
        value = _tensor_of(index)
        if value is None or value.dtype is not torch.int32:
            int64_indices.append(index)
            continue
        with node.graph.inserting_before(node):
            wide = node.graph.call_function(ATEN._to_copy.default, (index,), {"dtype": torch.int64})
        wide.meta = {**node.meta, "val": value.to(torch.int64)}
        int64_indices.append(wide)
    node.update_arg(1, int64_indices)
