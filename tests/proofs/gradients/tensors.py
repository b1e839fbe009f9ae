"""Tensors of sums over indices, whose sizes are integers of z3.

Inputs of integers are functions without a definition. Two sizes are equal if they are for all free
sizes from 1 on.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import z3
from onnx import NodeProto
from z3 import z3util

from closedform.errors import VerificationError
from tests.proofs.gradients.index_sums import Access, Index, Summand, plain, restrict

Indices = tuple[Index, ...]


@dataclass(frozen=True, slots=True)
class Tensor:
    """A value of a graph.

    Attributes:
        shape: Its sizes.
        at: The element at an index: a sum, or an integer or truth of z3.
        is_real: Whether its elements are sums.
        distinct_axis: An axis along which no two integers are equal.
    """

    shape: Indices
    at: Callable[[Indices], Any]
    is_real: bool = True
    distinct_axis: int | None = None


Result = Tensor | list[Tensor]


def input_tensor(name: str, shape: Indices, *, is_real: bool) -> Tensor:
    """Returns an input of the graph: unknown reals, or a function of integers."""
    if is_real:
        return Tensor(shape, lambda index: (Summand(Fraction(1), (Access(name, index),)),))
    function = z3.Function(name, *[z3.IntSort()] * (len(shape) + 1))
    return Tensor(shape, lambda index: function(*index), is_real=False)


def constant_tensor(array: np.ndarray[Any, Any]) -> Tensor:
    """Returns the tensor of an array's numbers."""
    is_real = array.dtype.kind == "f"

    def number(value: Any) -> Any:
        if is_real and np.isinf(value):
            # An unknown number: fractions have no infinity.
            return (Summand(Fraction(1 if value > 0 else -1), (Access("infinity", ()),)),)
        if is_real:
            return (Summand(Fraction(float(value))),) if value else ()
        return z3.BoolVal(bool(value)) if array.dtype == bool else z3.IntVal(int(value))

    def at(index: Indices) -> Any:
        flat = set(array.reshape(-1).tolist())
        # One number everywhere needs no condition on the index.
        if len(flat) == 1:
            return number(flat.pop())
        places = [(place, array[place]) for place in np.ndindex(array.shape)]
        if is_real:
            return tuple(
                summand
                for place, value in places
                for summand in restrict(number(value), _is_at(index, place))
            )
        result = number(places[-1][1])
        for place, value in places[:-1]:
            result = z3.If(_is_at(index, place), number(value), result)
        return z3.simplify(result)

    return Tensor(array.shape, at, is_real)


def _is_at(index: Indices, place: Indices) -> Any:
    return z3.And(*(a == b for a, b in zip(index, place, strict=True)))


def integers(tensor: Tensor) -> list[Index]:
    """Returns the entries of a vector of integers of a known length."""
    (length,) = tensor.shape if tensor.shape else (1,)
    entries = [tensor.at((z3.IntVal(i),) if tensor.shape else ()) for i in range(int(str(length)))]
    return [plain(entry) for entry in entries]


def is_one(size: Index) -> bool:
    """Returns whether a size is the number 1."""
    return isinstance(size, int) and size == 1


def are_equal_sizes(first: Index, second: Index) -> bool:
    """Whether two sizes are equal for all free sizes from 1 on."""
    difference = plain(as_index(first) - second)
    if isinstance(difference, int):
        return difference == 0
    solver = z3.Solver()
    # A count of z3's own steps: unlike a time, it gives every machine the same answer.
    solver.set("rlimit", 10**6)
    solver.add(difference != 0, *(size >= 1 for size in z3util.get_vars(difference)))
    return bool(solver.check() == z3.unsat)


def as_index(index: Index) -> Any:
    """Returns an index as an integer of z3."""
    return z3.IntVal(index) if isinstance(index, int) else index


def check_shapes(first: Indices, second: Indices, where: str) -> None:
    """Raises VerificationError unless two shapes are equal for all free sizes."""
    if len(first) != len(second) or not all(map(are_equal_sizes, first, second)):
        raise VerificationError(f"the shapes of {where} differ: {first} and {second}")


def broadcast(index: Indices, tensor: Tensor) -> Any:
    """The element of a tensor at an index of a larger shape."""
    aligned = index[len(index) - len(tensor.shape) :]
    return tensor.at(
        tuple(0 if is_one(size) else i for size, i in zip(tensor.shape, aligned, strict=True))
    )


def joint_shape(tensors: Sequence[Tensor]) -> Indices:
    """Returns the shape to which tensors broadcast."""
    rank = max(len(tensor.shape) for tensor in tensors)
    shape: list[Index] = [1] * rank
    for tensor in tensors:
        for axis, size in enumerate(tensor.shape, rank - len(tensor.shape)):
            if is_one(size):
                continue
            if not is_one(shape[axis]):
                check_shapes((shape[axis],), (size,), "operands")
            shape[axis] = size
    return tuple(shape)


def is_within(index: Indices, shape: Indices) -> Any:
    """Returns the condition that an index is within a shape."""
    return z3.And(
        *(
            z3.And(as_index(i) >= 0, as_index(i) < as_index(n))
            for i, n in zip(index, shape, strict=True)
        )
    )


def reduced_shape(shape: Indices, axes: Sequence[int], *, keeps: bool) -> Indices:
    """Returns the shape of a reduction, in which its axes have size 1 or are left out."""
    return tuple(1 if a in axes else size for a, size in enumerate(shape) if keeps or a not in axes)


def operand_index(index: Indices, axes: Sequence[int], rank: int, *, keeps: bool) -> list[Index]:
    """Returns an index of a reduction as one of its operand: 0 along axes that are left out."""
    if keeps:
        return list(index)
    remaining = iter(index)
    return [0 if a in axes else next(remaining) for a in range(rank)]


def without_axes(operand: Tensor, axes: Sequence[int]) -> Tensor:
    """A tensor without axes of size 1."""
    rank = len(operand.shape)

    def at(index: Indices) -> Any:
        return operand.at(tuple(operand_index(index, axes, rank, keeps=False)))

    return Tensor(reduced_shape(operand.shape, axes, keeps=False), at, operand.is_real)


def axes_of(node: NodeProto, operands: Sequence[Any], rank: int) -> list[int]:
    """Returns the axes that the second operand of a node lists, none if it is left out."""
    if len(operands) < 2 or operands[1] is None:
        return []
    if not rank:
        raise VerificationError(f"{node.op_type} over axes of a number is not read")
    return [axis % rank for axis in integers(operands[1])]
