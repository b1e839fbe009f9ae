"""Fewer passes over activations: numbers as factors of products, one error function of a GELU."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from onnxscript import ir

_RANGE = 1e-6, 1e6
"""The numbers that are moved: none takes a sum of products out of the range of float32."""


def merge_factors(graph: Any) -> None:
    """Rewrites a graph in place; what it makes void is left as unused nodes.

    1. A GELU whose gradient computes Φ(x) is x·Φ(x), without a second error function.
    2. A number that multiplies the result of a product of matrices in float32, or one of its
       operands, is the ``alpha`` of a ``Gemm``.

    Values change by roundings.
    """
    for node in graph:
        if node.op_type == "Gelu":
            _share_distribution(node)
    for node in graph:
        if node.op_type == "Mul":
            _move_factor(node)
    graph.sort()


def _share_distribution(node: Any) -> None:
    """Makes x·Φ(x) of a GELU, or √2·u·Φ(x) with u = x/√2 if only products read them."""
    value = node.inputs[0]
    if node.attributes.get_string("approximate", "none") != "none":
        return
    for mul_node in _readers(value, "Mul"):
        number = _number(mul_node)
        if number is None or not math.isclose(number, math.sqrt(0.5), rel_tol=1e-6):
            continue
        for error in _readers(mul_node.outputs[0], "Erf"):
            for below in _readers(error.outputs[0], "HardSigmoid"):
                result = node.outputs[0]
                is_product = (
                    _product_of(value, {node, mul_node}) is not None and _readers_of(result) != []
                )
                factor = mul_node.outputs[0] if is_product else value
                if is_product:
                    _scale_readers(result, math.sqrt(2))
                node.op_type, node.version = "Mul", None
                node.attributes.clear()
                node.resize_inputs(2)
                node.replace_input_with(0, factor)
                node.replace_input_with(1, below.outputs[0])
                return


def _move_factor(node: Any) -> None:
    number, value, result = _number(node), _factor_of(node), node.outputs[0]
    if number is None or value is None or result.is_graph_output():
        return
    if not _RANGE[0] <= abs(number) <= _RANGE[1]:
        return
    product = _product_of(value, {node})
    if product is not None:
        _scale(product, number, is_result=True)
    elif _readers_of(result):
        _scale_readers(result, number)
    else:
        return
    ir.convenience.replace_all_uses_with(result, value)


def _readers(value: Any, op_type: str) -> list[Any]:
    return [use.node for use in value.uses() if use.node.op_type == op_type]


def _number(node: Any) -> float | None:
    """The number that multiplies a tensor of float32."""
    for operand in node.inputs:
        constant = operand.const_value
        if constant is not None and constant.size == 1 and constant.dtype is ir.DataType.FLOAT:
            return float(np.asarray(constant.numpy()).reshape(()))
    return None


def _factor_of(node: Any) -> Any:
    """The tensor that a number multiplies, if the result has its shape."""
    values = [operand for operand in node.inputs if operand.const_value is None]
    if len(values) != 1 or values[0].shape is None:
        return None
    (number,) = (operand for operand in node.inputs if operand.const_value is not None)
    return values[0] if len(number.const_value.shape) <= len(values[0].shape) else None


def _is_product(node: Any) -> bool:
    """Whether a node is a product of two matrices in float32."""
    if node.op_type not in ("Gemm", "MatMul") or node.domain:
        return False
    operands = node.inputs[:2]
    return all(
        operand.shape is not None and len(operand.shape) == 2 and operand.dtype is ir.DataType.FLOAT
        for operand in operands
    )


def _product_of(value: Any, readers: set[Any]) -> Any:
    """The product that a value is, after reshapes, if nothing but these nodes reads it; or None."""
    while {use.node for use in value.uses()} <= readers and not value.is_graph_output():
        node = value.producer()
        if node is None or node.op_type != "Reshape":
            return node if node is not None and _is_product(node) else None
        value, readers = node.inputs[0], {node}
    return None


def _readers_of(value: Any) -> list[Any]:
    """The products that read a value, after reshapes; empty if anything else reads it."""
    products: list[Any] = []
    for use in value.uses():
        if use.node.op_type == "Reshape" and use.idx == 0:
            products_after_reshape = _readers_of(use.node.outputs[0])
            if not products_after_reshape:
                return []
            products += products_after_reshape
        elif _is_product(use.node) and use.idx < 2:
            products.append(use.node)
        else:
            return []
    return [] if value.is_graph_output() else products


def _scale_readers(value: Any, number: float) -> None:
    for product in _readers_of(value):
        _scale(product, number)


def _scale(product: Any, number: float, *, is_result: bool = False) -> None:
    """Multiplies a product by a number: with what is added to it, or without."""
    product.op_type = "Gemm"
    for name in ("alpha", "beta")[: 2 if is_result and len(product.inputs) > 2 else 1]:
        before = product.attributes.get_float(name, 1.0)
        product.attributes[name] = ir.AttrFloat32(name, before * number)
