"""The semantics of graphs, in NumPy.

Constant folding and every test call this module; other engines are compared with it. Where IEEE
754 leaves a choice, or engines disagree, the meaning is fixed here:

- Integers wrap. ``floor_div`` and ``floor_mod`` of integers by zero are errors, and so is a
  ``lookup`` out of range; ``check`` proves that neither happens.
- NaN is one value: its sign and payload are unspecified, and no op observes them.
- ``min``, ``max`` and ``reduce_max`` propagate NaN and hold -0.0 to be below 0.0, so their operands
  commute.
- ``floor_mod`` of floats is ``r = fmod(a, b)``, then ``r + b`` where r is not 0 and its sign
  differs from that of b.
- ``cast`` to an integer truncates; NaN and values out of range give the least integer, as x86 does.
  A wider integer wraps. A float to bool is ``x != 0``; f64 reaches bf16 by way of f32, as in
  onnxruntime and torch.
- Nothing is computed in a wider dtype than the one that the node states.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from closedform.errors import GraphError, nearest
from closedform.ir import draws
from closedform.ir.array_ops import ArrayOp, array_ops, direct
from closedform.ir.graph import Array, Graph, Node, Role, input_names
from closedform.ir.ops import Op
from closedform.ir.types import DType, Shape, TensorType, convert

Sizes = Mapping[str, int]
Kernel = Callable[[Node, tuple[Array, ...], Sizes], Any]

STEP_MAX = 2**53
"""The largest step that a graph is defined on: f64 holds every integer up to here."""


def evaluate(graph: Graph, inputs: Mapping[str, ArrayLike]) -> dict[str, Array]:
    """Returns the outputs of a graph by name.

    Args:
        graph: A graph that ``check`` accepts.
        inputs: An array of the declared dtype and shape for each input; a plain Python number is
            taken in the dtype of a rank-0 input. The step is in 0..2**53.

    Raises:
        GraphError: An input is missing, unknown, or of another dtype or shape; a named size has
            two values; an integer is divided by zero; an index is out of range.
    """
    arrays = _check_inputs(graph, inputs)
    sizes = _bind_sizes(graph, arrays)
    values: list[Array] = []
    for node in graph.nodes:
        if node.op is Op.INPUT:
            operands: tuple[Array, ...] = (arrays[node.attribute("name")],)
        else:
            operands = tuple(values[operand] for operand in node.operands)
        values.append(evaluate_node(node, operands, sizes))
    return {output.name: values[output.index] for output in graph.outputs}


def evaluate_node(node: Node, operands: tuple[Array, ...], sizes: Sizes | None = None) -> Array:
    """Returns the value of one node applied to these arrays (an input: to its own value).

    Raises:
        GraphError: An integer division by zero, an index out of range, or a result of another
            type than the node states.
    """
    axis_sizes: Sizes = {} if sizes is None else sizes
    with np.errstate(all="ignore"):
        # order="C": a transpose is a view, and np.sum adds in memory order, so that its bits would
        # depend on how an operand was made.
        result = np.asarray(KERNELS[node.op](node, operands, axis_sizes), order="C")
    expected = concrete_shape(node.type.shape, axis_sizes)
    if result.dtype != node.type.dtype.numpy or result.shape != expected:
        raise GraphError(
            f"{node.op}: the node states {node.type}, its value is {result.dtype} of shape "
            f"{list(result.shape)}",
            hint="run check on the graph",
        )
    return result


def concrete_shape(shape: Shape, sizes: Sizes) -> tuple[int, ...]:
    """Returns the shape with each named size replaced by its value.

    Raises:
        GraphError: A named size occurs in no input.
    """
    for dim in shape:
        if isinstance(dim, str) and dim not in sizes:
            raise GraphError(
                f"named size {dim!r} has no value", hint="a named size must occur in an input"
            )
    return tuple(sizes[dim] if isinstance(dim, str) else dim for dim in shape)


def _check_inputs(graph: Graph, inputs: Mapping[str, ArrayLike]) -> dict[str, Array]:
    names = input_names(graph)
    where = f"graph {graph.name!r}"
    for name in inputs:
        if name not in names:
            hint = nearest(name, names) if names else "the graph has no inputs"
            raise GraphError(f"the graph has no input {name!r}", where=where, hint=hint)
    missing = [name for name in names if name not in inputs]
    if missing:
        missing_names = ", ".join(missing)
        raise GraphError(
            f"inputs are missing: {missing_names}", where=where, hint="give each an array"
        )
    return {node.attribute("name"): _check_input(graph, node, inputs) for node in graph.inputs}


def _check_input(graph: Graph, node: Node, inputs: Mapping[str, ArrayLike]) -> Array:
    name = node.attribute("name")
    where = f"input {name!r} of graph {graph.name!r}"
    array = _as_array(inputs[name], node.type, where)
    if array.dtype != node.type.dtype.numpy:
        raise GraphError(
            f"expected dtype {node.type.dtype.numpy}, got {array.dtype}",
            where=where,
            hint="convert the array before the call",
        )
    fits = len(array.shape) == node.type.rank and all(
        isinstance(dim, str) or dim == size
        for dim, size in zip(node.type.shape, array.shape, strict=True)
    )
    if not fits:
        raise GraphError(f"expected {node.type}, got shape {list(array.shape)}", where=where)
    if node.attribute("role") is Role.STEP and array.size:
        _check_step(int(array.min()), int(array.max()), where)
    return array


def _check_step(low: int, high: int, where: str) -> None:
    if low < 0 or high > STEP_MAX:
        wrong = low if low < 0 else high
        raise GraphError(
            f"the step must be in 0..2**53, got {wrong}",
            where=where,
            hint="count the optimizer steps done so far, from 0",
        )


def _as_array(value: ArrayLike, type_: TensorType, where: str) -> Array:
    """The value as an array; plain Python numbers take the dtype of the input if they fit it."""
    is_bool = isinstance(value, bool) and type_.dtype is DType.BOOL
    is_integer = type(value) is int and (type_.dtype.is_integer or type_.dtype.is_float)
    is_float = type(value) is float and type_.dtype.is_float
    # NumPy would make int64 of 1 and float64 of 0.1, which a float32 input refuses.
    if not (is_bool or is_integer or is_float):
        return np.asarray(value)
    try:
        return np.asarray(value, dtype=type_.dtype.numpy)
    except OverflowError:
        raise GraphError(f"{value!r} does not fit {type_.dtype}", where=where) from None


def _bind_sizes(graph: Graph, arrays: Mapping[str, Array]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    origin: dict[str, str] = {}
    for node in graph.inputs:
        name = node.attribute("name")
        for dim, size in zip(node.type.shape, arrays[name].shape, strict=True):
            if isinstance(dim, int):
                continue
            if sizes.setdefault(dim, size) != size:
                raise GraphError(
                    f"size {dim!r} is {size} in input {name!r} but {sizes[dim]} in input "
                    f"{origin[dim]!r}",
                    where=f"graph {graph.name!r}",
                    hint="a named size has one value",
                )
            origin.setdefault(dim, name)
    return sizes


def _of_any_size(function: ArrayOp) -> Kernel:
    """The kernel of an op that needs no sizes."""
    return lambda node, operands, _: function(node, operands)


def _plain(function: Callable[..., Any]) -> Kernel:
    """The kernel of an op that is a function of only its operands."""
    return _of_any_size(direct(function))


def _const(node: Node, _: tuple[Array, ...], __: Sizes) -> Array:
    return node.array()


def _refuse_zero(op: Op, divisor: Array) -> None:
    if not np.all(divisor):
        raise GraphError(
            f"{op}: division of an integer by zero", hint="guard the divisor: max(divisor, 1)"
        )


def _floor_div(dividend: Array, divisor: Array) -> Any:
    _refuse_zero(Op.FLOOR_DIV, divisor)
    return np.floor_divide(dividend, divisor)


def _floor_mod(dividend: Array, divisor: Array) -> Any:
    if dividend.dtype.kind == "i":
        _refuse_zero(Op.FLOOR_MOD, divisor)
        return np.remainder(dividend, divisor)
    remainder = np.fmod(dividend, divisor)
    is_off = (remainder != 0) & (np.signbit(remainder) != np.signbit(divisor))
    return np.where(is_off, remainder + divisor, remainder)


def _is_below(first: Array, second: Array) -> Any:
    """True where ``first`` is less, -0.0 being less than 0.0."""
    if first.dtype.kind != "f":
        return first < second
    tie = (first == second) & np.signbit(first) & ~np.signbit(second)
    return (first < second) | tie


def _min(first: Array, second: Array) -> Any:
    # NaN of either side wins: the first by ``first != first``, the second since no comparison with
    # it holds. np.minimum leaves the sign of a zero open.
    return np.where(_is_below(first, second) | (first != first), first, second)


def _max(first: Array, second: Array) -> Any:
    return np.where(_is_below(second, first) | (first != first), first, second)


def _cast(node: Node, operands: tuple[Array, ...], _: Sizes) -> Any:
    return convert(operands[0], node.type.dtype)


def _reduce_sum(node: Node, operands: tuple[Array, ...], _: Sizes) -> Any:
    (operand,) = operands
    axes = node.attribute("axes")
    if not axes:
        return operand
    keepdims = node.attribute("keepdims")
    return np.sum(operand, axis=axes, keepdims=keepdims, dtype=operand.dtype)


def _reduce_max(node: Node, operands: tuple[Array, ...], _: Sizes) -> Any:
    """The largest element; a zero is -0.0 where all the elements at 0 are."""
    (operand,) = operands
    axes = node.attribute("axes")
    if not axes:
        return operand
    keepdims = node.attribute("keepdims")
    result = np.max(operand, axis=axes, keepdims=keepdims)
    if operand.dtype.kind != "f":
        return result
    # np.max returns either zero, depending on its vector length.
    has_zero = np.any((operand == 0) & ~np.signbit(operand), axis=axes, keepdims=keepdims)
    return np.where((result == 0) & has_zero, operand.dtype.type(0), result)


def _reshape(node: Node, operands: tuple[Array, ...], sizes: Sizes) -> Any:
    return np.reshape(operands[0], concrete_shape(node.type.shape, sizes))


def _broadcast_to(node: Node, operands: tuple[Array, ...], sizes: Sizes) -> Any:
    return np.broadcast_to(operands[0], concrete_shape(node.type.shape, sizes))


def _lookup(table: Array, index: Array) -> Any:
    # NumPy counts negative indices from the end, onnxruntime's Gather too, torch.take and XLA do
    # not or clamp.
    is_out = (index < 0) | (index >= table.size)
    if np.any(is_out):
        wrong = np.asarray(index)[is_out].flat[0]
        raise GraphError(
            f"lookup: index {wrong} is outside 0..{table.size - 1}",
            hint="clamp the index with min and max",
        )
    return table[index]


def _uniform(node: Node, operands: tuple[Array, ...], _: Sizes) -> Any:
    like, step = operands
    dtype = node.type.dtype.numpy
    return draws.uniform(like.shape, int(step), int(node.attribute("seed")), dtype)


KERNELS: Mapping[Op, Kernel] = {
    **{op: _of_any_size(function) for op, function in array_ops(np).items()},
    Op.CONST: _const,
    Op.FLOOR_DIV: _plain(_floor_div),
    Op.FLOOR_MOD: _plain(_floor_mod),
    Op.MIN: _plain(_min),
    Op.MAX: _plain(_max),
    Op.CAST: _cast,
    Op.REDUCE_SUM: _reduce_sum,
    Op.REDUCE_MAX: _reduce_max,
    Op.RESHAPE: _reshape,
    Op.BROADCAST_TO: _broadcast_to,
    Op.LOOKUP: _plain(_lookup),
    Op.UNIFORM: _uniform,
}
"""How each op is computed."""
