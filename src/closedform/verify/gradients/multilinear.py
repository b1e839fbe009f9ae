"""ONNX graphs of linear operators as sums over indices, for all sizes of their ranks.

Sizes, and tensors that follow from sizes, are integers of z3; integer inputs are unknown functions
of their indices. Indices into tensors are within them, as a training session checks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import z3
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper
from z3 import z3util

from closedform.errors import VerificationError
from closedform.verify.gradients.index_sums import (
    Access,
    Index,
    Sum,
    Summand,
    fresh,
    product,
    restrict,
    scale,
    total,
)

Indices = tuple[Index, ...]


@dataclass(frozen=True, slots=True)
class Tensor:
    """A value of a graph.

    Attributes:
        shape: Its sizes.
        at: The element at an index: a sum, or an integer or truth of z3.
        is_real: Whether its elements are sums.
    """

    shape: Indices
    at: Callable[[Indices], Any]
    is_real: bool = True


def read_tensors(model: ModelProto, barrier: str | None = None) -> tuple[dict[str, Tensor], Reader]:
    """Returns the outputs of a graph of linear operators.

    Args:
        model: The graph.
        barrier: The operator whose result is a new tensor, the gradient in the output.

    Raises:
        VerificationError: An operator is not read.
    """
    reader = Reader(model, barrier)
    return {value.name: reader.tensor(value.name) for value in model.graph.output}, reader


class Reader:
    """Reads each value of a graph when it is first needed.

    Attributes:
        sizes: The free sizes by name.
        cotangent: The tensor of the barrier.
    """

    def __init__(self, model: ModelProto, barrier: str | None) -> None:
        self.sizes: dict[str, Index] = {}
        self.cotangent: Tensor | None = None
        self._barrier = barrier
        self._nodes = {name: node for node in model.graph.node for name in node.output}
        self._tensors: dict[str, Tensor] = {}
        for value in model.graph.input:
            type_ = value.type.tensor_type
            shape = tuple(
                self.sizes.setdefault(dim.dim_param, z3.Int(f"size.{dim.dim_param}"))
                if dim.dim_param
                else dim.dim_value
                for dim in type_.shape.dim
            )
            is_real = type_.elem_type == TensorProto.FLOAT
            self._tensors[value.name] = _input(value.name, shape, is_real=is_real)
        for tensor in model.graph.initializer:
            self._tensors[tensor.name] = _constant(numpy_helper.to_array(tensor))

    def tensor(self, name: str) -> Tensor:
        """The value of a name."""
        if name not in self._tensors:
            node = self._nodes[name]
            operands = [self.tensor(operand) if operand else None for operand in node.input]
            if node.op_type == self._barrier:
                self.cotangent = _input("g", self.tensor(node.input[0]).shape, is_real=True)
                results: Sequence[Tensor] = [self.cotangent]
            elif node.op_type in OPERATORS:
                attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
                result = OPERATORS[node.op_type](node, operands, attributes)
                results = [result] if isinstance(result, Tensor) else result
            else:
                raise VerificationError(f"{node.op_type} is not read as linear")
            self._tensors |= dict(zip(node.output, results, strict=False))
        return self._tensors[name]


def _input(name: str, shape: Indices, *, is_real: bool) -> Tensor:
    if is_real:
        return Tensor(shape, lambda index: (Summand(Fraction(1), (Access(name, index),)),))
    function = z3.Function(name, *[z3.IntSort()] * (len(shape) + 1))
    return Tensor(shape, lambda index: function(*index), is_real=False)


def _constant(array: np.ndarray[Any, Any]) -> Tensor:
    is_real = array.dtype.kind == "f"

    def number(value: Any) -> Any:
        if is_real:
            return (Summand(Fraction(float(value))),) if value else ()
        return z3.BoolVal(bool(value)) if array.dtype == bool else z3.IntVal(int(value))

    def at(index: Indices) -> Any:
        flat = set(array.reshape(-1).tolist())
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


# --- integers ------------------------------------------------------------------------------------


def integers(tensor: Tensor) -> list[Index]:
    """Returns the entries of a vector of integers of a known length."""
    (length,) = tensor.shape if tensor.shape else (1,)
    entries = [tensor.at((z3.IntVal(i),) if tensor.shape else ()) for i in range(int(str(length)))]
    return [_plain(entry) for entry in entries]


def _plain(index: Any) -> Index:
    """An integer of z3 as one of Python if it is a number."""
    if isinstance(index, int):
        return index
    simple = z3.simplify(index)
    return simple.as_long() if z3.is_int_value(simple) else simple


def _is_one(size: Index) -> bool:
    return isinstance(size, int) and size == 1


def _same(first: Index, second: Index) -> bool:
    """Whether two sizes are equal for all free sizes from 1 on."""
    difference = _plain(_as_index(first) - second)
    if isinstance(difference, int):
        return difference == 0
    solver = z3.Solver()
    solver.set("rlimit", 10**6)
    solver.add(difference != 0, *(size >= 1 for size in z3util.get_vars(difference)))
    return bool(solver.check() == z3.unsat)


def check_shapes(first: Indices, second: Indices, where: str) -> None:
    """Raises VerificationError unless two shapes are equal for all free sizes."""
    if len(first) != len(second) or not all(map(_same, first, second)):
        raise VerificationError(f"the shapes of {where} differ: {first} and {second}")


# --- operators -----------------------------------------------------------------------------------

Result = Tensor | list[Tensor]


def _choose(condition: Any, then: Any, otherwise: Any, is_real: bool) -> Any:
    if is_real:
        return (*restrict(then, condition), *restrict(otherwise, z3.Not(condition)))
    return z3.simplify(z3.If(condition, then, otherwise))


def _broadcast(index: Indices, tensor: Tensor) -> Any:
    """The element of a tensor at an index of a larger shape."""
    own = index[len(index) - len(tensor.shape) :]
    return tensor.at(
        tuple(0 if _is_one(size) else i for size, i in zip(tensor.shape, own, strict=True))
    )


def _joint_shape(tensors: Sequence[Tensor]) -> Indices:
    rank = max(len(tensor.shape) for tensor in tensors)
    shape: list[Index] = [1] * rank
    for tensor in tensors:
        for axis, size in enumerate(tensor.shape, rank - len(tensor.shape)):
            if _is_one(size):
                continue
            if not _is_one(shape[axis]):
                check_shapes((shape[axis],), (size,), "operands")
            shape[axis] = size
    return tuple(shape)


def _elementwise(form: Callable[..., Any], *, is_real: bool | None = None) -> Callable[..., Tensor]:
    def compute(node: NodeProto, operands: Sequence[Tensor], _: Any) -> Tensor:
        real = operands[0].is_real if is_real is None else is_real
        return Tensor(
            _joint_shape(operands),
            lambda index: form(real, *(_broadcast(index, operand) for operand in operands)),
            real,
        )

    return compute


def _add(is_real: bool, first: Any, second: Any) -> Any:
    return (*first, *second) if is_real else first + second


def _subtract(is_real: bool, first: Any, second: Any) -> Any:
    return (*first, *scale(second, Fraction(-1))) if is_real else first - second


def _multiply(is_real: bool, first: Any, second: Any) -> Any:
    return product(first, second) if is_real else first * second


def _negate(is_real: bool, value: Any) -> Any:
    return scale(value, Fraction(-1)) if is_real else -value


def _divide(is_real: bool, first: Any, second: Any) -> Any:
    if not is_real:
        return first / second
    (divisor,) = second
    if divisor.accesses and divisor.accesses[0].tensor == "number":
        (access,) = divisor.accesses
        return product(first, (Summand(1 / divisor.factor, (Access("1/number", access.index),)),))
    if divisor.accesses:
        raise VerificationError("a quotient by a tensor is not linear")
    return scale(first, 1 / divisor.factor)


def _where(node: NodeProto, operands: Sequence[Tensor], _: Any) -> Tensor:
    condition, then, otherwise = operands
    return Tensor(
        _joint_shape(operands),
        lambda index: _choose(
            _broadcast(index, condition),
            _broadcast(index, then),
            _broadcast(index, otherwise),
            then.is_real,
        ),
        then.is_real,
    )


def _cast(node: NodeProto, operands: Sequence[Tensor], attributes: Mapping[str, Any]) -> Tensor:
    (operand,) = operands
    if operand.is_real or attributes["to"] not in (TensorProto.FLOAT, TensorProto.DOUBLE):
        return operand
    return Tensor(
        operand.shape,
        lambda index: (Summand(Fraction(1), (Access("number", (operand.at(index),)),)),),
    )


def _transpose(node: NodeProto, operands: Sequence[Tensor], attributes: Any) -> Tensor:
    (operand,) = operands
    rank = len(operand.shape)
    order = list(attributes.get("perm", reversed(range(rank))))
    return Tensor(
        tuple(operand.shape[axis] for axis in order),
        lambda index: operand.at(tuple(index[order.index(axis)] for axis in range(rank))),
        operand.is_real,
    )


def _axes(node: NodeProto, operands: Sequence[Any], rank: int) -> list[int]:
    if len(operands) < 2 or operands[1] is None:
        return []
    return [axis % rank for axis in integers(operands[1])]


def _unsqueeze(node: NodeProto, operands: Sequence[Tensor], _: Any) -> Tensor:
    operand = operands[0]
    rank = len(operand.shape) + int(str(operands[1].shape[0]) if operands[1].shape else 1)
    axes = _axes(node, operands, rank)
    rest = iter(operand.shape)
    return Tensor(
        tuple(1 if axis in axes else next(rest) for axis in range(rank)),
        lambda index: operand.at(tuple(i for axis, i in enumerate(index) if axis not in axes)),
        operand.is_real,
    )


def _squeeze(node: NodeProto, operands: Sequence[Tensor], _: Any) -> Tensor:
    operand = operands[0]
    axes = _axes(node, operands, len(operand.shape)) or [
        axis for axis, size in enumerate(operand.shape) if _is_one(size)
    ]
    return _with_zeros(operand, axes)


def _with_zeros(operand: Tensor, axes: Sequence[int]) -> Tensor:
    """A tensor without axes of size 1."""

    def at(index: Indices) -> Any:
        rest = iter(index)
        return operand.at(tuple(0 if a in axes else next(rest) for a in range(len(operand.shape))))

    shape = tuple(size for axis, size in enumerate(operand.shape) if axis not in axes)
    return Tensor(shape, at, operand.is_real)


def _shape(node: NodeProto, operands: Sequence[Tensor], attributes: Any) -> Tensor:
    rank = len(operands[0].shape)
    start, end = attributes.get("start", 0) % (rank + 1), attributes.get("end", rank)
    sizes = operands[0].shape[start : end if end >= 0 else end + rank]

    def at(index: Indices) -> Any:
        result = z3.IntVal(0)
        for place, size in enumerate(sizes):
            result = z3.If(_as_index(index[0]) == place, _as_index(size), result)
        return z3.simplify(result)

    return Tensor((len(sizes),), at, is_real=False)


def _as_index(index: Index) -> Any:
    return z3.IntVal(index) if isinstance(index, int) else index


def _concat(node: NodeProto, operands: Sequence[Tensor], attributes: Any) -> Tensor:
    first = operands[0]
    axis = attributes["axis"] % len(first.shape)
    ends: list[Index] = [0]
    for operand in operands:
        across = [(*o.shape[:axis], *o.shape[axis + 1 :]) for o in (first, operand)]
        check_shapes(across[0], across[1], "what is joined")
        ends.append(_plain(ends[-1] + operand.shape[axis]))

    def at(index: Indices) -> Any:
        along = _as_index(index[axis])
        parts = []
        for operand, start, end in zip(operands, ends, ends[1:], strict=False):
            place = (*index[:axis], z3.simplify(along - start), *index[axis + 1 :])
            parts.append((z3.And(along >= start, along < end), operand.at(place)))
        if first.is_real:
            return tuple(s for condition, value in parts for s in restrict(value, condition))
        result = parts[-1][1]
        for condition, value in reversed(parts[:-1]):
            result = z3.If(condition, value, result)
        return z3.simplify(result)

    shape = (*first.shape[:axis], ends[-1], *first.shape[axis + 1 :])
    return Tensor(shape, at, first.is_real)


def _expand(node: NodeProto, operands: Sequence[Tensor], _: Any) -> Tensor:
    operand, sizes = operands
    target = Tensor(tuple(integers(sizes)), lambda index: None)
    shape = _joint_shape([operand, target])
    return Tensor(shape, lambda index: _broadcast(index, operand), operand.is_real)


def _fill(node: NodeProto, operands: Sequence[Tensor], attributes: Any) -> Tensor:
    value = attributes.get("value")
    array = np.zeros(1, np.float32) if value is None else numpy_helper.to_array(value)
    single = _constant(array)
    return Tensor(tuple(integers(operands[0])), lambda index: single.at((0,)), single.is_real)


def _range(node: NodeProto, operands: Sequence[Tensor], _: Any) -> Tensor:
    start, stop, step = (integers(operand)[0] for operand in operands)
    if not isinstance(step, int) or step < 1:
        raise VerificationError("this Range is not read")
    span = _as_index(stop) - start
    length = span if step == 1 else (span + step - 1) / step
    return Tensor((_plain(length),), lambda index: start + step * index[0], is_real=False)


_FAR = 2**30
"""An end of a slice beyond it is the end of its axis."""


def _slice(node: NodeProto, operands: Sequence[Tensor], _: Any) -> Tensor:
    operand, starts, stops, axes, *rest = operands
    lows, highs, places = integers(starts), integers(stops), integers(axes)
    steps = integers(rest[0]) if rest else [1] * len(places)
    shape, begin, along = list(operand.shape), [0] * len(operand.shape), [1] * len(operand.shape)
    for low, high, axis, step in zip(lows, highs, places, steps, strict=True):
        size = operand.shape[axis]
        if step == -1 and low == -1:
            shape[axis], begin[axis], along[axis] = size, _plain(size - 1), -1
            continue
        if not isinstance(step, int) or step < 1:
            raise VerificationError("this Slice is not read")
        first, last = _bound(low, size), _bound(high, size)
        begin[axis], along[axis] = first, step
        if isinstance(first, int) and isinstance(last, int):
            shape[axis] = max(0, -((first - last) // step))
        else:
            span = _as_index(last) - first
            shape[axis] = _plain(span if step == 1 else (span + step - 1) / step)
    return Tensor(
        tuple(shape),
        lambda index: operand.at(
            tuple(b + s * i for b, s, i in zip(begin, along, index, strict=True))
        ),
        operand.is_real,
    )


def _bound(place: Index, size: Index) -> Index:
    """An end of a slice within an axis."""
    if isinstance(place, int):
        if place >= _FAR:
            return size
        if place < 0:
            return _plain(size + place)
        if isinstance(size, int):
            return min(place, size)
        return _plain(z3.If(size < place, size, place)) if place else 0
    return place


def _pad(node: NodeProto, operands: Sequence[Tensor], attributes: Any) -> Tensor:
    operand, amounts = operands[0], integers(operands[1])
    if attributes.get("mode", b"constant") != b"constant":
        raise VerificationError("this Pad is not read")
    rank = len(operand.shape)
    axes = integers(operands[3]) if len(operands) > 3 and operands[3] else list(range(rank))
    before, after = [0] * rank, [0] * rank
    for place, axis in enumerate(axes):
        before[axis], after[axis] = amounts[place], amounts[place + len(axes)]

    def at(index: Indices) -> Sum:
        place = tuple(i - b for i, b in zip(index, before, strict=True))
        return restrict(operand.at(place), _within(place, operand.shape))

    shape = tuple(
        _plain(size + b + a) for size, b, a in zip(operand.shape, before, after, strict=True)
    )
    return Tensor(shape, at)


def _within(index: Indices, shape: Indices) -> Any:
    return z3.And(
        *(
            z3.And(_as_index(i) >= 0, _as_index(i) < _as_index(n))
            for i, n in zip(index, shape, strict=True)
        )
    )


def _reduce_sum(node: NodeProto, operands: Sequence[Tensor], attributes: Any) -> Tensor:
    operand = operands[0]
    rank = len(operand.shape)
    axes = _axes(node, operands, rank) or list(range(rank))

    def at(index: Indices) -> Sum:
        places = iter(index)
        if attributes.get("keepdims", 1):
            outer = list(index)
        else:
            outer = [None if a in axes else next(places) for a in range(rank)]

        def inner(rest: Sequence[int], fixed: list[Index]) -> Sum:
            if not rest:
                element: Sum = operand.at(tuple(fixed))
                return element

            def term(i: Index) -> Sum:
                return inner(rest[1:], [*fixed[: rest[0]], i, *fixed[rest[0] + 1 :]])

            return total(term, operand.shape[rest[0]])

        return inner(axes, outer)

    keeps = attributes.get("keepdims", 1)
    shape = tuple(
        1 if a in axes else size for a, size in enumerate(operand.shape) if keeps or a not in axes
    )
    return Tensor(shape, at)


def _reduce_mean(node: NodeProto, operands: Sequence[Tensor], attributes: Any) -> Tensor:
    operand = operands[0]
    sums = _reduce_sum(node, operands, attributes)
    size: Index = 1
    for axis in _axes(node, operands, len(operand.shape)) or range(len(operand.shape)):
        size = size * operand.shape[axis]
    if isinstance(size, int):
        return Tensor(sums.shape, lambda index: scale(sums.at(index), Fraction(1, size)))
    inverse = (Summand(Fraction(1), (Access("1/number", (size,)),)),)
    return Tensor(sums.shape, lambda index: product(sums.at(index), inverse))


def _cumulative(node: NodeProto, operands: Sequence[Tensor], attributes: Any) -> Tensor:
    operand = operands[0]
    axis = integers(operands[1])[0] % len(operand.shape)
    is_exclusive, is_reverse = attributes.get("exclusive", 0), attributes.get("reverse", 0)

    def at(index: Indices) -> Sum:
        here = index[axis]

        def term(i: Index) -> Sum:
            low, high = (here, i) if is_reverse else (i, here)
            condition = low < high if is_exclusive else low <= high
            return restrict(operand.at((*index[:axis], i, *index[axis + 1 :])), condition)

        return total(term, operand.shape[axis])

    return Tensor(operand.shape, at)


def _matmul(node: NodeProto, operands: Sequence[Tensor], _: Any) -> Tensor:
    left, right = operands
    if len(right.shape) == 1:
        column = Tensor((*right.shape, 1), lambda index: right.at(index[:1]))
        return _with_zeros(_matmul(node, [left, column], {}), [max(len(left.shape), 2) - 1])
    if len(left.shape) == 1:
        row = Tensor((1, *left.shape), lambda index: left.at(index[1:]))
        return _with_zeros(_matmul(node, [row, right], {}), [len(right.shape) - 2])
    batch = _joint_shape([Tensor(left.shape[:-2], left.at), Tensor(right.shape[:-2], right.at)])

    check_shapes(left.shape[-1:], right.shape[-2:-1], "factors")

    def at(index: Indices) -> Sum:
        *outer, row, column = index
        return total(
            lambda i: product(
                _broadcast((*outer, row, i), left), _broadcast((*outer, i, column), right)
            ),
            left.shape[-1],
        )

    return Tensor((*batch, left.shape[-2], right.shape[-1]), at)


def _gemm(node: NodeProto, operands: Sequence[Tensor], attributes: Any) -> Tensor:
    left, right, *rest = operands
    if attributes.get("transA", 0):
        left = _transpose(node, [left], {})
    if attributes.get("transB", 0):
        right = _transpose(node, [right], {})
    matrix = _matmul(node, [left, right], {})
    alpha, beta = (Fraction(float(attributes.get(n, 1.0))) for n in ("alpha", "beta"))

    def at(index: Indices) -> Sum:
        result = scale(matrix.at(index), alpha)
        if rest and rest[0] is not None:
            result = (*result, *scale(_broadcast(index, rest[0]), beta))
        return result

    return Tensor(matrix.shape, at)


def _gather(node: NodeProto, operands: Sequence[Tensor], attributes: Any) -> Tensor:
    operand, indices = operands
    axis = attributes.get("axis", 0) % len(operand.shape)
    extra = len(indices.shape)

    def at(index: Indices) -> Any:
        place = _plain(_as_index(indices.at(index[axis : axis + extra])))
        if isinstance(place, int):
            place = place if place >= 0 else _plain(operand.shape[axis] + place)
        element = operand.at((*index[:axis], place, *index[axis + extra :]))
        if not operand.is_real:
            return element
        return restrict(element, _within((place,), (operand.shape[axis],)))

    shape = (*operand.shape[:axis], *indices.shape, *operand.shape[axis + 1 :])
    return Tensor(shape, at, operand.is_real)


def _gather_elements(node: NodeProto, operands: Sequence[Tensor], attributes: Any) -> Tensor:
    operand, indices = operands
    axis = attributes.get("axis", 0) % len(operand.shape)

    def at(index: Indices) -> Sum:
        place = indices.at(index)
        element = operand.at((*index[:axis], place, *index[axis + 1 :]))
        return restrict(element, _within((place,), (operand.shape[axis],)))

    return Tensor(indices.shape, at)


def _scatter_elements(node: NodeProto, operands: Sequence[Tensor], attributes: Any) -> Tensor:
    operand, indices, updates = operands
    axis = attributes.get("axis", 0) % len(operand.shape)
    reduction = attributes.get("reduction", b"none")
    check_shapes(updates.shape, indices.shape, "what is scattered")
    if reduction != b"add" and not _is_one(indices.shape[axis]):
        raise VerificationError("this ScatterElements is not read")

    def at(index: Indices) -> Sum:
        before = operand.at(index)
        if reduction != b"add":
            # One entry of each row is written to.
            place = (*index[:axis], 0, *index[axis + 1 :])
            is_met = z3.And(indices.at(place) == index[axis], _within(place, indices.shape))
            before = restrict(before, z3.Not(is_met))

        def term(i: Index) -> Sum:
            place = (*index[:axis], i, *index[axis + 1 :])
            is_met = z3.And(
                indices.at(place) == _as_index(index[axis]), _within(place, indices.shape)
            )
            return restrict(updates.at(place), is_met)

        return (*before, *total(term, indices.shape[axis]))

    return Tensor(operand.shape, at)


def _scatter_nd(node: NodeProto, operands: Sequence[Tensor], attributes: Any) -> Tensor:
    operand, indices, updates = operands
    if len(indices.shape) != 2 or not _is_one(indices.shape[1]):
        raise VerificationError("this ScatterND is not read")
    reduction = attributes.get("reduction", b"none")
    size = indices.shape[0]
    check_shapes(updates.shape, (size, *operand.shape[1:]), "what is scattered")
    if reduction == b"none":
        _check_distinct(indices)

    def at(index: Indices) -> Sum:
        def term(i: Index) -> Sum:
            return restrict(
                updates.at((i, *index[1:])), _as_index(indices.at((i, 0))) == _as_index(index[0])
            )

        before = operand.at(index)
        if before and reduction == b"none":
            place = fresh("p")
            is_met = z3.And(place >= 0, place < size, indices.at((place, 0)) == index[0])
            before = restrict(before, z3.Not(z3.Exists([place], is_met)))
        return (*before, *total(term, size))

    if reduction not in (b"none", b"add"):
        raise VerificationError("this ScatterND is not read")
    return Tensor(operand.shape, at)


def _check_distinct(indices: Tensor) -> None:
    """Raises VerificationError unless no two rows are written to one place."""
    first, second = fresh(), fresh()
    solver = z3.Solver()
    solver.set("rlimit", 10**6)
    within = [_within((i,), indices.shape[:1]) for i in (first, second)]
    solver.add(*within, first != second, indices.at((first, 0)) == indices.at((second, 0)))
    if solver.check() != z3.unsat:
        raise VerificationError("two rows may be written to one place")


def _reshape(node: NodeProto, operands: Sequence[Tensor], _: Any) -> Tensor:
    operand = operands[0]
    shape = list(integers(operands[1]))
    shape = [operand.shape[axis] if size == 0 else size for axis, size in enumerate(shape)]
    if shape.count(-1) == 1:
        shape = _with_rest(operand.shape, shape)
    groups = _groups(list(operand.shape), shape)

    def at(index: Indices) -> Any:
        place: list[Index] = []
        for sources, targets, offset in groups:
            part = index[offset : offset + len(targets)]
            place += _split(_flat(part, targets), sources, part, targets)
        return operand.at(tuple(place))

    return Tensor(tuple(shape), at, operand.is_real)


def _with_rest(sizes: Indices, shape: list[Index]) -> list[Index]:
    """A shape whose size -1 is the product of the sizes that it lacks."""
    rest, numerator, denominator = list(sizes), 1, 1
    for size in shape:
        match = next((s for s in rest if _same(s, size)), None)
        if match is not None:
            rest.remove(match)
        elif not (isinstance(size, int) and size == -1):
            denominator = denominator * size
    result: Index = 1
    for size in rest:
        if isinstance(size, int):
            numerator *= size
        else:
            result = size if _is_one(result) else result * size
    if not isinstance(denominator, int) or numerator % denominator:
        raise VerificationError("this Reshape is not read")
    whole = _plain(result * (numerator // denominator))
    return [whole if isinstance(size, int) and size == -1 else size for size in shape]


def _groups(
    sources: list[Index], targets: list[Index]
) -> list[tuple[list[Index], list[Index], int]]:
    """The axes of both shapes in groups with equal numbers of elements."""
    groups, offset = [], 0
    while sources or targets:
        if sources and targets and _same(sources[0], targets[0]):
            above, below = 1, 1
        else:
            pairs = (
                (above, axes - above)
                for axes in range(1, len(sources) + len(targets) + 1)
                for above in range(max(0, axes - len(targets)), min(axes, len(sources)) + 1)
            )
            above, below = next(
                (
                    pair
                    for pair in pairs
                    if _have_equal_counts(sources[: pair[0]], targets[: pair[1]])
                ),
                (0, 0),
            )
        if not above + below:
            raise VerificationError("this Reshape is not read")
        groups.append((sources[:above], targets[:below], offset))
        sources, targets, offset = sources[above:], targets[below:], offset + below
    return groups


def _have_equal_counts(sources: Sequence[Index], targets: Sequence[Index]) -> bool:
    return _same(_count(sources), _count(targets))


def _count(sizes: Sequence[Index]) -> Index:
    """The product of sizes, in one order of its factors."""
    number, factors = 1, []
    for size in sizes:
        if isinstance(size, int):
            number *= size
        else:
            factors.append(size)
    result: Index = number
    for factor in sorted(factors, key=str):
        result = factor if _is_one(result) else result * factor
    return _plain(result) if factors else number


def _flat(index: Sequence[Index], sizes: Sequence[Index]) -> Index:
    flat: Index = 0
    for i, size in zip(index, sizes, strict=True):
        flat = i if isinstance(flat, int) and flat == 0 else flat * size + i
    return flat


def _split(
    flat: Index, sizes: Sequence[Index], index: Sequence[Index], targets: Sequence[Index]
) -> list[Index]:
    """The index of a place in row-major order."""
    large = [size for size in sizes if not _is_one(size)]
    large_targets = [size for size in targets if not _is_one(size)]
    if [*map(str, map(_plain, large))] == [*map(str, map(_plain, large_targets))]:
        rest = iter([i for i, size in zip(index, targets, strict=True) if not _is_one(size)])
        return [0 if _is_one(size) else next(rest) for size in sizes]
    result: list[Index] = []
    for size in reversed(sizes[1:]):
        result.append(_as_index(flat) % size)
        flat = _as_index(flat) / size
    return [flat, *reversed(result)] if sizes else []


def _splits(node: NodeProto, operands: Sequence[Tensor], attributes: Any) -> list[Tensor]:
    operand = operands[0]
    axis = attributes.get("axis", 0) % len(operand.shape)
    lengths = integers(operands[1])
    results, start = [], 0
    for length in lengths:
        shape = (*operand.shape[:axis], length, *operand.shape[axis + 1 :])
        results.append(Tensor(shape, _shift(operand, axis, start), operand.is_real))
        start += length
    return results


def _shift(operand: Tensor, axis: int, start: Index) -> Callable[[Indices], Any]:
    return lambda index: operand.at((*index[:axis], index[axis] + start, *index[axis + 1 :]))


def _convolution(node: NodeProto, operands: Sequence[Tensor], attributes: Any) -> Tensor:
    value, weight, *rest = operands
    axes = len(value.shape) - 2
    kernel = weight.shape[2:]
    strides, dilations, pads, groups = _geometry(attributes, axes)
    is_transposed = node.op_type == "ConvTranspose"
    outputs = weight.shape[1 if is_transposed else 0]
    channels = weight.shape[1]
    if is_transposed:
        channels = weight.shape[0] if groups == 1 else int(str(weight.shape[0])) // groups

    def at(index: Indices) -> Sum:
        image, channel, *places = index
        # Outputs of a group read the inputs of this group only.
        outputs_of_group = outputs if is_transposed or groups == 1 else int(str(outputs)) // groups
        group = 0 if groups == 1 else _as_index(channel) / outputs_of_group
        own = channel if groups == 1 else _as_index(channel) % outputs_of_group

        def at_channel(c: Index, k: Indices) -> Sum:
            # A convolution reads at p·stride + k·dilation − pad; its transpose writes there.
            reads = [_as_index(p) for p in places]
            origins = tuple(fresh("o") for _ in places) if is_transposed else tuple(reads)
            targets = tuple(
                o * s + d * j - a
                for o, s, d, j, a in zip(origins, strides, dilations, k, pads, strict=False)
            )
            if not is_transposed:
                source = c if groups == 1 else group * channels + c
                element = restrict(
                    value.at((image, source, *targets)), _within(targets, value.shape[2:])
                )
                return product(element, weight.at((channel, c, *k)))
            meets = z3.And(
                *(t == p for t, p in zip(targets, reads, strict=True)),
                _within(origins, value.shape[2:]),
            )
            source = c if groups == 1 else group * channels + c
            terms = product(value.at((image, source, *origins)), weight.at((source, own, *k)))
            bound = tuple(zip(origins, value.shape[2:], strict=True))
            return tuple(
                Summand(t.factor, t.accesses, t.condition, (*t.bound, *bound))
                for t in restrict(terms, meets)
            )

        def over_kernel(k: Indices) -> Sum:
            if len(k) == axes:
                return total(lambda c: at_channel(c, k), channels)
            return total(lambda i: over_kernel((*k, i)), kernel[len(k)])

        bias = rest[0].at((channel,)) if rest and rest[0] is not None else ()
        return (*over_kernel(()), *bias)

    sizes = []
    for axis in range(axes):
        size, reach = value.shape[axis + 2], dilations[axis] * (kernel[axis] - 1) + 1
        around = pads[axis] + pads[axis + axes]
        if is_transposed:
            more = attributes.get("output_padding", [0] * axes)[axis]
            sizes.append(_plain((size - 1) * strides[axis] + reach - around + more))
        else:
            span = size + around - reach
            length = span // strides[axis] if isinstance(span, int) else span / strides[axis]
            sizes.append(_plain(length + 1))
    channels_out = _plain(outputs * groups) if is_transposed else outputs
    return Tensor((value.shape[0], channels_out, *sizes), at)


def _geometry(attributes: Any, axes: int) -> tuple[list[int], list[int], list[int], int]:
    if attributes.get("auto_pad", b"NOTSET") != b"NOTSET":
        raise VerificationError("Conv with auto_pad is not read")
    return (
        list(attributes.get("strides", [1] * axes)),
        list(attributes.get("dilations", [1] * axes)),
        list(attributes.get("pads", [0] * 2 * axes)),
        attributes.get("group", 1),
    )


def _average_pool(node: NodeProto, operands: Sequence[Tensor], attributes: Any) -> Tensor:
    (value,) = operands
    kernel = tuple(attributes["kernel_shape"])
    strides, dilations, pads, _ = _geometry(attributes, len(kernel))
    if any(pads) or set(dilations) != {1} or attributes.get("ceil_mode", 0):
        raise VerificationError("this AveragePool is not read")

    def at(index: Indices) -> Sum:
        def over_kernel(k: Indices) -> Sum:
            if len(k) == len(kernel):
                place = tuple(p * s + j for p, s, j in zip(index[2:], strides, k, strict=True))
                element: Sum = value.at((*index[:2], *place))
                return element
            return total(lambda i: over_kernel((*k, i)), kernel[len(k)])

        return scale(over_kernel(()), Fraction(1, math.prod(kernel)))

    sizes = [
        _plain((_as_index(size) - k) / s + 1)
        for size, k, s in zip(value.shape[2:], kernel, strides, strict=True)
    ]
    return Tensor((*value.shape[:2], *sizes), at)


def _diagonal_units(node: NodeProto, operands: Sequence[Tensor], attributes: Any) -> Tensor:
    offset = attributes.get("k", 0)
    unit = (Summand(Fraction(1)),)
    return Tensor(
        operands[0].shape,
        lambda index: restrict(unit, _as_index(index[1]) - index[0] == offset),
    )


def _tile(node: NodeProto, operands: Sequence[Tensor], _: Any) -> Tensor:
    operand, repeats = operands[0], integers(operands[1])
    return Tensor(
        tuple(_plain(size * n) for size, n in zip(operand.shape, repeats, strict=True)),
        lambda index: operand.at(
            tuple(
                i if n == 1 else _as_index(i) % size
                for i, size, n in zip(index, operand.shape, repeats, strict=True)
            )
        ),
        operand.is_real,
    )


def _identity(node: NodeProto, operands: Sequence[Tensor], _: Any) -> Tensor:
    return operands[0]


def _least(is_real: bool, first: Any, second: Any) -> Any:
    return z3.If(first < second, first, second)


def _clip(is_real: bool, value: Any, low: Any, high: Any) -> Any:
    return _least(is_real, _greatest(is_real, value, low), high)


def _greatest(is_real: bool, first: Any, second: Any) -> Any:
    return z3.If(first > second, first, second)


OPERATORS: Mapping[str, Callable[..., Result]] = {
    "Add": _elementwise(_add),
    "And": _elementwise(lambda _, a, b: z3.And(a, b)),
    "Cast": _cast,
    "Clip": _elementwise(_clip),
    "Concat": _concat,
    "ConstantOfShape": _fill,
    "Conv": _convolution,
    "ConvTranspose": _convolution,
    "AveragePool": _average_pool,
    "CumSum": _cumulative,
    "Div": _elementwise(_divide),
    "EyeLike": _diagonal_units,
    "Equal": _elementwise(lambda _, a, b: a == b, is_real=False),
    "Expand": _expand,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "Gemm": _gemm,
    "Greater": _elementwise(lambda _, a, b: a > b, is_real=False),
    "GreaterOrEqual": _elementwise(lambda _, a, b: a >= b, is_real=False),
    "Identity": _identity,
    "Less": _elementwise(lambda _, a, b: a < b, is_real=False),
    "LessOrEqual": _elementwise(lambda _, a, b: a <= b, is_real=False),
    "MatMul": _matmul,
    "Max": _elementwise(_greatest),
    "Min": _elementwise(_least),
    "Mod": _elementwise(lambda _, a, b: a % b),
    "Mul": _elementwise(_multiply),
    "Neg": _elementwise(_negate),
    "Not": _elementwise(lambda _, a: z3.Not(a)),
    "Pad": _pad,
    "Range": _range,
    "ReduceMean": _reduce_mean,
    "ReduceSum": _reduce_sum,
    "Reshape": _reshape,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
    "Shape": _shape,
    "Slice": _slice,
    "Split": _splits,
    "Squeeze": _squeeze,
    "Sub": _elementwise(_subtract),
    "Tile": _tile,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
    "Where": _where,
}
"""Operators by name: from operands and attributes to the result, or to several results."""
