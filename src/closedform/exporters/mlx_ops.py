"""The MLX table: for each op of the graph language the function of arrays with the same values.

Where MLX differs from the graph language, the row says so: a conversion of a float that does not
fit the integer is that of the processor, and its exponential is off by ``|x|`` ulp on CPUs. Float64
is left out: it exists only on CPUs, where exp, sin and cos of it have the precision of float32.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import mlx.core as mx
import numpy as np

from closedform.errors import ExportError
from closedform.ir import draws
from closedform.ir.array_ops import ArrayOp, array_ops
from closedform.ir.graph import Graph, Node
from closedform.ir.ops import Op
from closedform.ir.types import DType

Array = Any

MLX_DTYPES: Mapping[DType, Any] = {
    DType.BOOL: mx.bool_,
    **{dtype: getattr(mx, dtype.row.name) for dtype in DType if dtype is not DType.BOOL},
}

# Beyond these the exponential is infinite or zero. The high part of log(2) has 9 bits: its products
# with the counts are exact.
_EXPONENTS = (-104.0, 89.0)
_LOG2_E = math.log2(math.e)
_LN2_HIGH = 355 / 512
_LN2_LOW = math.log(2) - _LN2_HIGH


def run_graph(graph: Graph, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Returns the outputs of a graph by name; the inputs are arrays of exactly the declared dtypes.

    It may be compiled by ``mx.compile``. Numbers that no tensor is an operand of, such as pairs of
    float32, are computed on the CPU, whose operations are rounded one by one.

    Raises:
        ExportError: The graph has float64.
    """
    if any(node.type.dtype is DType.F64 for node in graph.nodes):
        raise ExportError(
            "the graph computes in f64, which MLX has only on CPUs, and whose exp, sin and cos "
            "have the precision of f32",
            where=f"graph {graph.name!r}",
            hint='compile it with dtype="f32", scalar_dtype="f32" and precision="double-float"',
        )
    values: list[Array] = []
    are_numbers: list[bool] = []
    for node in graph.nodes:
        if node.op is Op.INPUT:
            values.append(inputs[node.attribute("name")])
            are_numbers.append(node.type.rank == 0)
            continue
        are_numbers.append(all(are_numbers[operand] for operand in node.operands))
        if are_numbers[-1]:
            with mx.stream(mx.cpu):
                operands = tuple(values[operand] for operand in node.operands)
                values.append(MLX_OPS[node.op](node, operands))
            continue
        for operand in node.operands:
            if are_numbers[operand] and graph.nodes[operand].op is not Op.CONST:
                # mx.compile would compute the number again for each element.
                values[operand] = mx.contiguous(values[operand])
        operands = tuple(values[operand] for operand in node.operands)
        values.append(MLX_OPS[node.op](node, operands))
    return {output.name: values[output.index] for output in graph.outputs}


def _const(node: Node, _: tuple[Array, ...]) -> Array:
    return mx.array(node.array(), MLX_DTYPES[node.type.dtype])


def _cast(node: Node, operands: tuple[Array, ...]) -> Array:
    """A conversion; a float that does not fit the integer gives the least one."""
    (operand,) = operands
    target = node.type.dtype
    result = operand.astype(MLX_DTYPES[target])
    if not (target.is_integer and mx.issubdtype(operand.dtype, mx.floating)):
        return result
    least = np.iinfo(target.numpy).min
    whole = operand.astype(mx.float32)
    fits = (whole >= float(least)) & (whole < -float(least))
    return mx.where(fits, result, mx.array(least, result.dtype))


def _exp(_: Node, operands: tuple[Array, ...]) -> Array:
    """``exp(x) = 2**k * exp(x - k*log(2))``: MLX does not reduce the argument exactly on CPUs."""
    (x,) = operands
    count = mx.floor(mx.clip(x, *_EXPONENTS) * _LOG2_E + 0.5)
    rest = (x - count * _LN2_HIGH) - count * _LN2_LOW
    half = mx.floor(count * 0.5)  # 2**count may overflow where the product does not
    two = mx.array(2.0)
    return mx.exp(rest) * mx.power(two, half) * mx.power(two, count - half)


def _uniform(node: Node, operands: tuple[mx.array, ...]) -> mx.array:
    """``closedform.ir.draws`` in words of 32 bits."""
    like, step = operands
    place = mx.arange(like.size, dtype=mx.uint32).reshape(like.shape)
    high = (step >> 32).astype(mx.uint32) if step.dtype == mx.int64 else None
    seed = draws.seed_word(int(node.attribute("seed")))
    bits = _WORDS.bits(place, step.astype(mx.uint32), high, seed).astype(
        MLX_DTYPES[node.type.dtype]
    )
    return bits * mx.array(2.0**-draws.BITS, bits.dtype)


def _word(value: int) -> mx.array:
    return mx.array(value, mx.uint32)


_WORDS: draws.Words[mx.array] = draws.Words(
    mx.add,
    lambda x, factor: x * _word(factor),
    lambda x, count: x >> _word(count),
    mx.bitwise_xor,
    _word,
)


MLX_OPS: Mapping[Op, ArrayOp] = {
    **array_ops(mx),
    Op.CONST: _const,
    Op.EXP: _exp,
    Op.CAST: _cast,
    Op.LOOKUP: lambda _, operands: mx.take(operands[0], operands[1], axis=0),
    Op.UNIFORM: _uniform,
}
