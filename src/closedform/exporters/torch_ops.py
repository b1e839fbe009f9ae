"""The torch table: for each op of the graph language the torch.fx nodes that mean the same.

Where torch's semantics differ, the row says so: integer ``sum`` widens to int64, ``sum`` and
``amax`` over no axes reduce all of them, division by a Python number is a multiplication by its
inverse on CUDA (so constants that divide stay tensors), and ``remainder`` is recomputed as
a - b*floor(a/b) by inductor's vector code (so floats go through ``fmod``, which in torch 2.13 on
CPU gives NaN where the quotient of finite operands overflows).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx
from torch.fx.node import Argument

from closedform.ir import draws
from closedform.ir.graph import Graph, Node
from closedform.ir.ops import Op
from closedform.ir.types import DType

TORCH_DTYPES: Mapping[DType, torch.dtype] = {
    dtype: getattr(torch, dtype.row.name) for dtype in DType
}

SIXTEEN_BITS = (DType.F16, DType.BF16)


@dataclass(frozen=True, slots=True)
class Site:
    """Where a node is emitted.

    Attributes:
        graph: The graph that is written.
        program: The torch.fx graph under construction.
        node: The node that is written.
        device: The value with the device of the first input; None if there is no input.
    """

    graph: Graph
    program: fx.Graph
    node: Node
    device: fx.Node | None

    def call(
        self, function: Callable[..., Any], *arguments: Argument, **keywords: Argument
    ) -> fx.Node:
        """Adds a call and returns its value."""
        return self.program.call_function(function, arguments, keywords)

    def number(self, position: int) -> int | float | None:
        """Returns the value of an operand if it is a constant of rank 0, else None."""
        source = self.graph.nodes[self.node.operands[position]]
        if source.op is not Op.CONST or source.type.shape or source.type.dtype is DType.BOOL:
            return None
        value: int | float = source.array().item()
        return value


Emitter = Callable[[Site, tuple[fx.Node, ...]], fx.Node]


def _input(site: Site, _: tuple[fx.Node, ...]) -> fx.Node:
    """A parameter of ``forward``: the name as an identifier, made unique by torch.fx."""
    name = site.node.attribute("name")
    identifier = "".join(character if character.isalnum() else "_" for character in name)
    value = site.program.placeholder("self_" if identifier == "self" else identifier)
    value.target = value.name
    return value


def _const(site: Site, _: tuple[fx.Node, ...]) -> fx.Node:
    """A tensor made at run time: not a buffer, which ``.half()`` would round."""
    type_ = site.node.type
    options = {"dtype": TORCH_DTYPES[type_.dtype], "device": site.device}
    values = site.node.array()
    # By bytes: -0.0 equals 0.0, and NaN not itself.
    if values.size and values.tobytes() == values.size * values.flat[0].tobytes():
        return site.call(torch.full, values.shape, values.flat[0].item(), **options)
    # A flat list: nested lists of torch.tensor lose the other sizes where one is 0.
    flat = site.call(torch.tensor, values.reshape(-1).tolist(), **options)
    return flat if type_.rank == 1 else site.call(torch.reshape, flat, type_.shape)


def _direct(function: Callable[..., Any]) -> Emitter:
    """An op that is one torch function of the same operands."""

    def emit(site: Site, operands: tuple[fx.Node, ...]) -> fx.Node:
        return site.call(function, *operands)

    return emit


def _with_number(function: Callable[..., Any], *, is_commutative: bool) -> Emitter:
    """An op whose second operand may be a Python number.

    Exact: the constant is representable in the dtype of the other operand, which decides the
    dtype of the result. It saves the kernel that fills the constant.
    """

    def emit(site: Site, operands: tuple[fx.Node, ...]) -> fx.Node:
        first, second = site.number(0), site.number(1)
        if second is not None and first is None:
            return site.call(function, operands[0], second)
        if first is not None and second is None and is_commutative:
            return site.call(function, operands[1], first)
        return site.call(function, *operands)

    return emit


def _floor_div(site: Site, operands: tuple[fx.Node, ...]) -> fx.Node:
    return site.call(torch.div, *operands, rounding_mode="floor")


def _floor_mod(site: Site, operands: tuple[fx.Node, ...]) -> fx.Node:
    """Integer remainder; on floats fmod, plus the divisor where r != 0 and the signs differ."""
    if site.node.type.dtype.is_integer:
        return site.call(torch.remainder, *operands)
    divisor = operands[1]
    remainder = site.call(torch.fmod, *operands)
    signs = site.call(torch.sign, remainder), site.call(torch.sign, divisor)
    # A product of signs, not of values, which may underflow to 0.
    misfit = site.call(torch.lt, site.call(torch.mul, *signs), 0)
    shifted_remainder = site.call(torch.add, remainder, divisor)
    return site.call(torch.where, misfit, shifted_remainder, remainder)


def rounded(value: Tensor, dtype: torch.dtype) -> Tensor:
    """Returns a tensor in a dtype of 16 bits, which inductor rounds even where it is widened next.

    Inductor of torch 2.13 computes with wider numbers, and leaves out a conversion to 16 bits and
    back, also one by way of ``view``. It converts a number before an operation on its bits.
    """
    narrow = value.to(dtype)
    if type(value) is Tensor and not torch.compiler.is_compiling():
        return narrow
    return (narrow.view(torch.int16) ^ 0).view(dtype)


def _cast(site: Site, operands: tuple[fx.Node, ...]) -> fx.Node:
    to = site.node.attribute("to")
    if to in SIXTEEN_BITS and _is_widened(site):
        return site.call(rounded, *operands, TORCH_DTYPES[to])
    return site.program.call_method("to", (*operands, TORCH_DTYPES[to]))


def _is_widened(site: Site) -> bool:
    """Whether an op of the graph converts the result to another dtype."""
    place = next(index for index, node in enumerate(site.graph.nodes) if node is site.node)
    return any(node.op is Op.CAST and place in node.operands for node in site.graph.nodes)


def _reduce_sum(site: Site, operands: tuple[fx.Node, ...]) -> fx.Node:
    axes = site.node.attribute("axes")
    if not axes:
        return operands[0]
    keepdim = bool(site.node.attribute("keepdims"))
    dtype = TORCH_DTYPES[site.node.type.dtype]
    # dtype: torch sums int32 in int64 otherwise.
    return site.call(torch.sum, *operands, dim=tuple(axes), keepdim=keepdim, dtype=dtype)


def _reduce_max(site: Site, operands: tuple[fx.Node, ...]) -> fx.Node:
    axes = site.node.attribute("axes")
    if not axes:
        return operands[0]
    return site.call(torch.amax, *operands, tuple(axes), bool(site.node.attribute("keepdims")))


def _transpose(site: Site, operands: tuple[fx.Node, ...]) -> fx.Node:
    return site.call(torch.permute, *operands, tuple(site.node.attribute("permutation")))


def _reshape(site: Site, operands: tuple[fx.Node, ...]) -> fx.Node:
    """A named size is read from the operand: -1 has no meaning next to a size of 0."""
    shape = site.node.attribute("shape")
    size_name = next((dim for dim in shape if isinstance(dim, str)), None)
    target_shape: list[int | fx.Node] = [dim for dim in shape if isinstance(dim, int)]
    if size_name is not None:
        source = site.graph.nodes[site.node.operands[0]].type.shape
        size = site.program.call_method("size", (operands[0], source.index(size_name)))
        target_shape.insert(shape.index(size_name), size)
    return site.call(torch.reshape, operands[0], tuple(target_shape))


def _broadcast_to(site: Site, operands: tuple[fx.Node, ...]) -> fx.Node:
    return site.call(torch.broadcast_to, *operands, tuple(site.node.attribute("shape")))


def _slice(site: Site, operands: tuple[fx.Node, ...]) -> fx.Node:
    axis, start, stop = (site.node.attribute(name) for name in ("axis", "start", "stop"))
    return site.call(torch.narrow, *operands, axis, start, stop - start)


def _lookup(site: Site, operands: tuple[fx.Node, ...]) -> fx.Node:
    """``index_select`` of a vector of indices.

    Not ``table[index]``, which reads a 0-dim index back to the host, and not ``take``, which
    inductor of torch 2.13 decomposes into that.
    """
    table, index = operands
    type_ = site.graph.nodes[site.node.operands[1]].type
    if type_.dtype is not DType.I64:
        index = site.program.call_method("to", (index, torch.int64))
    if type_.rank == 1:
        return site.call(torch.index_select, table, 0, index)
    shape = site.program.call_method("size", (index,))
    rows = site.call(torch.index_select, table, 0, site.call(torch.reshape, index, (-1,)))
    return site.call(torch.reshape, rows, shape)


def uniform(like: Tensor, step: Tensor, seed: int, dtype: torch.dtype, first: int = 0) -> Tensor:
    """Returns random numbers of the shape of a tensor: ``closedform.ir.draws`` in int64.

    torch has few operations on unsigned integers. A product of two words wraps, and its lower 32
    bits are exact.

    Args:
        like: The tensor.
        step: The step, an integer of rank 0.
        seed: The word of the seed.
        dtype: The dtype of the result.
        first: The place of the first element, in a tensor of which this is a part.
    """
    step = step.to(torch.int64)
    places = torch.arange(first, first + like.numel(), dtype=torch.int64, device=like.device)
    # Two words of 32 bits of the step.
    bits: Tensor = draws.INTEGERS.bits(
        places.reshape(like.shape), step & draws.WORD, step >> 32, seed
    )
    return bits.to(dtype) * 2.0**-draws.BITS


def _uniform(site: Site, operands: tuple[fx.Node, ...]) -> fx.Node:
    word = draws.seed_word(int(site.node.attribute("seed")))
    return site.call(uniform, *operands, word, TORCH_DTYPES[site.node.type.dtype])


def rounded_sqrt(value: Tensor) -> Tensor:
    """Returns the square root of a tensor of float32, rounded to nearest.

    On CPUs torch calls MKL, whose results are off by one place in 20 % of the numbers (torch 2.13,
    AVX-512). A root in [1, 2) of a float32 is at least 2**-50 away from the middle of two float32,
    and the root in float64 has an error of at most 2**-52: it rounds to the nearest.
    """
    if not value.is_cpu:
        return value.sqrt()
    return value.to(torch.float64).sqrt().to(torch.float32)


def _sqrt(site: Site, operands: tuple[fx.Node, ...]) -> fx.Node:
    """A graph that rounds to 16 bits has the same bits in every engine: its roots are exact."""
    rounds = any(node.type.dtype in SIXTEEN_BITS for node in site.graph.nodes)
    is_exact = rounds and site.node.type.dtype is DType.F32
    return site.call(rounded_sqrt if is_exact else torch.sqrt, *operands)


TORCH_OPS: Mapping[Op, Emitter] = {
    Op.INPUT: _input,
    Op.CONST: _const,
    Op.ADD: _with_number(torch.add, is_commutative=True),
    Op.SUB: _with_number(torch.sub, is_commutative=False),
    Op.MUL: _with_number(torch.mul, is_commutative=True),
    Op.NEG: _direct(torch.neg),
    Op.ABS: _direct(torch.abs),
    Op.DIV: _direct(torch.true_divide),
    Op.FLOOR_DIV: _floor_div,
    Op.FLOOR_MOD: _floor_mod,
    Op.MIN: _direct(torch.minimum),
    Op.MAX: _direct(torch.maximum),
    Op.FLOOR: _direct(torch.floor),
    Op.SQRT: _sqrt,
    Op.EXP: _direct(torch.exp),
    Op.LOG: _direct(torch.log),
    Op.COS: _direct(torch.cos),
    Op.SIN: _direct(torch.sin),
    Op.ATAN: _direct(torch.atan),
    Op.POW: _direct(torch.pow),
    Op.LT: _with_number(torch.lt, is_commutative=False),
    Op.LE: _with_number(torch.le, is_commutative=False),
    Op.EQ: _with_number(torch.eq, is_commutative=True),
    Op.AND: _direct(torch.logical_and),
    Op.OR: _direct(torch.logical_or),
    Op.NOT: _direct(torch.logical_not),
    Op.WHERE: _direct(torch.where),
    Op.CAST: _cast,
    Op.REDUCE_SUM: _reduce_sum,
    Op.REDUCE_MAX: _reduce_max,
    Op.MATMUL: _direct(torch.matmul),
    Op.TRANSPOSE: _transpose,
    Op.RESHAPE: _reshape,
    Op.BROADCAST_TO: _broadcast_to,
    Op.SLICE: _slice,
    Op.CONCAT: lambda site, operands: site.call(torch.cat, operands, site.node.attribute("axis")),
    Op.LOOKUP: _lookup,
    Op.UNIFORM: _uniform,
}


def device_of(value: fx.Node, program: fx.Graph) -> fx.Node:
    """Adds ``value.device``."""
    return program.call_function(getattr, (value, "device"))
