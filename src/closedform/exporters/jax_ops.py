"""The JAX table: for each op of the graph language the function of arrays with the same values.

Where XLA differs from the graph language, the row says so: a conversion of a float that does not
fit the integer saturates, and the remainder of floats has the sign of the dividend. XLA flushes
subnormal numbers to zero on some devices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from closedform.errors import ExportError
from closedform.ir import draws
from closedform.ir.array_ops import ArrayOp, array_ops
from closedform.ir.graph import Graph, Node
from closedform.ir.ops import Op
from closedform.ir.types import COMPUTED_FLOATS, DType

# Without jax_enable_x64 JAX computes in 32 bits, with a warning at most.
_WIDE = frozenset({DType.I64, DType.F64})

_ARITHMETIC = frozenset({Op.ADD, Op.SUB, Op.MUL, Op.DIV})


def run_graph(
    graph: Graph, inputs: Mapping[str, Array], *, keeps_roundings: bool = False
) -> dict[str, Array]:
    """Returns the outputs of a graph by name; the inputs are arrays of exactly the declared dtypes.

    It may be traced by ``jax.jit``, ``vmap`` and ``grad``.

    Args:
        graph: The graph.
        inputs: Arrays by the names of inputs.
        keeps_roundings: Whether each operation is rounded by itself, as arithmetic in pairs of
            floats needs it: XLA adds the constants of ``(a + 1) + 2`` first, and LLVM contracts
            ``a * b + c``.

    Raises:
        ExportError: The graph has types of 64 bits, which JAX computes only where they are enabled.
    """
    if not is_x64():
        wide = sorted({node.type.dtype for node in graph.nodes} & _WIDE)
        if wide:
            raise ExportError(
                f"the graph computes in {' and '.join(wide)}, which JAX has switched off",
                where=f"graph {graph.name!r}",
                hint='jax.config.update("jax_enable_x64", True), or compile it for 32 bits',
            )
    values: list[Array] = []
    for node in graph.nodes:
        if node.op is Op.INPUT:
            operands: tuple[Array, ...] = (inputs[node.attribute("name")],)
        else:
            operands = tuple(values[operand] for operand in node.operands)
        if node.op is Op.DIV:
            operands = operands[0], _divisor(graph, node.operands[1], values)
        if node.op is Op.DIV and graph.nodes[node.operands[0]].op is Op.DIV:
            # XLA rewrites (a / b) / c as a / (b * c), where b * c may underflow: 0/0 is NaN.
            operands = lax.optimization_barrier(operands)
        is_rounded = keeps_roundings and node.op in _ARITHMETIC and node.type.dtype.is_float
        if is_rounded and node.op is Op.DIV:
            # XLA multiplies by the reciprocal of a divisor that it sees broadcast: two roundings.
            operands = tuple(jnp.broadcast_arrays(*operands))
        if is_rounded:
            operands = lax.optimization_barrier(operands)
        value = JAX_OPS[node.op](node, operands)
        values.append(_rounded_product(value) if is_rounded and node.op is Op.MUL else value)
    return {output.name: values[output.index] for output in graph.outputs}


def _rounded_product(product: Array) -> Array:
    """A product that is not contracted with a sum: it is selected where it is not one NaN.

    The bits are compared, since LLVM knows that a product of integers is a number, and the other
    branch is not a constant, since LLVM moves a sum into a choice where a branch becomes simpler.
    """
    size = np.dtype(f"i{product.dtype.itemsize}")
    is_that_nan = lax.bitcast_convert_type(product, size) == np.array(-1, size)
    return jnp.where(is_that_nan, product + product, product)


def is_x64() -> bool:
    """Returns whether JAX computes in 64 bits."""
    return bool(jax.config.jax_enable_x64)


def _const(node: Node, _: tuple[Array, ...]) -> Array:
    """A constant; a subnormal one is zero on any device, as XLA takes it on CPUs."""
    values = np.where(_is_subnormal(node), np.copysign(0, node.array()), node.array())
    return jnp.asarray(values, node.type.dtype.numpy)


def _is_subnormal(node: Node) -> Any:
    """Where a constant is subnormal."""
    values = node.array()
    if node.type.dtype not in COMPUTED_FLOATS:
        return False
    # tiny is the least normal number.
    return (values != 0) & (np.abs(values) < np.finfo(values.dtype).tiny)


def _divisor(graph: Graph, index: int, values: Sequence[Array]) -> Array:
    """A divisor; a subnormal constant, or entry of a table, is the least normal number.

    Pairs of floats divide zeros by the powers of two by which they multiplied: 0/0 is NaN.
    """
    node = graph.nodes[index]
    is_entry = node.op is Op.LOOKUP
    source = graph.nodes[node.operands[0]] if is_entry else node
    if source.op is not Op.CONST or not np.any(_is_subnormal(source)):
        return values[index]
    numbers = source.array()
    least = np.copysign(np.finfo(numbers.dtype).tiny, numbers)
    divisors = jnp.asarray(np.where(_is_subnormal(source), least, numbers), source.type.dtype.numpy)
    return _lookup(node, (divisors, values[node.operands[1]])) if is_entry else divisors


def _floor_mod(_: Node, operands: tuple[Array, ...]) -> Array:
    """``lax.rem``, plus the divisor where the rest is not 0 and the signs differ."""
    dividend, divisor = jnp.broadcast_arrays(*operands)
    rest = lax.rem(dividend, divisor)
    zero = jnp.zeros((), rest.dtype)
    is_off = (rest != zero) & ((rest < zero) != (divisor < zero))
    return jnp.where(is_off, rest + divisor, rest)


def _cast(node: Node, operands: tuple[Array, ...]) -> Array:
    """A conversion; a float that does not fit the integer gives the least one."""
    (operand,) = operands
    target = node.type.dtype
    if target is DType.BOOL:
        return operand != jnp.zeros((), operand.dtype)
    if target is DType.BF16 and operand.dtype == jnp.float64:
        operand = operand.astype(jnp.float32)  # as onnxruntime and torch round
    result = operand.astype(target.numpy)
    if not (target.is_integer and jnp.issubdtype(operand.dtype, jnp.floating)):
        return result
    info = np.iinfo(target.numpy)
    wide = operand if operand.dtype == jnp.float64 else operand.astype(jnp.float32)
    whole = jnp.trunc(wide)
    bound = jnp.asarray(float(info.min), wide.dtype)
    # -bound is 2**31 or 2**63, which is a float; the largest integer is not.
    fits = (whole >= bound) & (whole < -bound)
    return jnp.where(fits, result, jnp.asarray(info.min, result.dtype))


def _reduce_sum(node: Node, operands: tuple[Array, ...]) -> Array:
    (operand,) = operands
    axes = tuple(node.attribute("axes"))
    keepdims = bool(node.attribute("keepdims"))
    return jnp.sum(operand, axis=axes, keepdims=keepdims, dtype=operand.dtype)


def _matmul(_: Node, operands: tuple[Array, ...]) -> Array:
    """The product at full precision: the default of accelerators is bfloat16 or TF32."""
    return jnp.matmul(*operands, precision=lax.Precision.HIGHEST)


def _lookup(_: Node, operands: tuple[Array, ...]) -> Array:
    table, index = operands
    return table.at[index].get(mode="promise_in_bounds")


def _uniform(node: Node, operands: tuple[Array, ...]) -> Array:
    """``closedform.ir.draws`` in words of 32 bits."""
    like, step = operands
    place = jnp.arange(like.size, dtype=jnp.uint32).reshape(like.shape)
    high = (step >> 32).astype(jnp.uint32) if step.dtype == jnp.int64 else None
    seed = draws.seed_word(int(node.attribute("seed")))
    bits = draws.UNSIGNED.bits(place, step.astype(jnp.uint32), high, seed)
    dtype = node.type.dtype.numpy
    return bits.astype(dtype) * jnp.asarray(2.0**-draws.BITS, dtype)


JAX_OPS: Mapping[Op, ArrayOp] = {
    **array_ops(jnp),
    Op.CONST: _const,
    Op.FLOOR_MOD: _floor_mod,
    Op.CAST: _cast,
    Op.REDUCE_SUM: _reduce_sum,
    Op.MATMUL: _matmul,
    Op.LOOKUP: _lookup,
    Op.UNIFORM: _uniform,
}
