"""Operators of ONNX that sum over axes: reductions, products of matrices and convolutions."""

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import z3
from onnx import NodeProto

from closedform.errors import VerificationError
from tests.proofs.gradients.formulas import power
from tests.proofs.gradients.index_sums import (
    Index,
    Sum,
    Summand,
    fresh,
    plain,
    product,
    restrict,
    scale,
    total,
)
from tests.proofs.gradients.layouts import transpose
from tests.proofs.gradients.normal_forms import number_of
from tests.proofs.gradients.tensors import (
    Indices,
    Tensor,
    as_index,
    axes_of,
    broadcast,
    check_shapes,
    integers,
    is_within,
    joint_shape,
    operand_index,
    reduced_shape,
    without_axes,
)


def _reduce_sum(node: NodeProto, operands: Sequence[Tensor], attributes: Any) -> Tensor:
    operand = operands[0]
    if not operand.is_real:
        # A sum of integers over a free size has no term in z3: it is read as one of reals.
        integers_ = operand
        operand = Tensor(integers_.shape, lambda index: number_of(integers_.at(index)))
    rank = len(operand.shape)
    axes = axes_of(node, operands, rank) or list(range(rank))
    keeps = bool(attributes.get("keepdims", 1))

    def at(index: Indices) -> Sum:
        outer = operand_index(index, axes, rank, keeps=keeps)

        def inner(rest: Sequence[int], fixed: list[Index]) -> Sum:
            if not rest:
                element: Sum = operand.at(tuple(fixed))
                return element

            def term(i: Index) -> Sum:
                return inner(rest[1:], [*fixed[: rest[0]], i, *fixed[rest[0] + 1 :]])

            return total(term, operand.shape[rest[0]])

        return inner(axes, outer)

    return Tensor(reduced_shape(operand.shape, axes, keeps=keeps), at)


def _reduce_mean(node: NodeProto, operands: Sequence[Tensor], attributes: Any) -> Tensor:
    operand = operands[0]
    sums = _reduce_sum(node, operands, attributes)
    size: Index = 1
    for axis in axes_of(node, operands, len(operand.shape)) or range(len(operand.shape)):
        size = size * operand.shape[axis]
    if isinstance(size, int):
        return Tensor(sums.shape, lambda index: scale(sums.at(index), Fraction(1, size)))
    inverse = power(number_of(size), Fraction(-1))
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
        return without_axes(_matmul(node, [left, column], {}), [max(len(left.shape), 2) - 1])
    if len(left.shape) == 1:
        row = Tensor((1, *left.shape), lambda index: left.at(index[1:]))
        return without_axes(_matmul(node, [row, right], {}), [len(right.shape) - 2])
    batch = joint_shape([Tensor(left.shape[:-2], left.at), Tensor(right.shape[:-2], right.at)])

    check_shapes(left.shape[-1:], right.shape[-2:-1], "factors")

    def at(index: Indices) -> Sum:
        *outer, row, column = index
        return total(
            lambda i: product(
                broadcast((*outer, row, i), left), broadcast((*outer, i, column), right)
            ),
            left.shape[-1],
        )

    return Tensor((*batch, left.shape[-2], right.shape[-1]), at)


def _gemm(node: NodeProto, operands: Sequence[Tensor], attributes: Any) -> Tensor:
    left, right, *rest = operands
    if attributes.get("transA", 0):
        left = transpose(node, [left], {})
    if attributes.get("transB", 0):
        right = transpose(node, [right], {})
    matrix = _matmul(node, [left, right], {})
    alpha, beta = (Fraction(float(attributes.get(n, 1.0))) for n in ("alpha", "beta"))

    def at(index: Indices) -> Sum:
        result = scale(matrix.at(index), alpha)
        if rest and rest[0] is not None:
            result = (*result, *scale(broadcast(index, rest[0]), beta))
        return result

    return Tensor(matrix.shape, at)


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
        group = 0 if groups == 1 else as_index(channel) / outputs_of_group
        channel_in_group = channel if groups == 1 else as_index(channel) % outputs_of_group

        def at_channel(c: Index, k: Indices) -> Sum:
            # A convolution reads at p·stride + k·dilation − pad; its transpose writes there.
            reads = [as_index(p) for p in places]
            origins = tuple(fresh("o") for _ in places) if is_transposed else tuple(reads)
            targets = tuple(
                o * s + d * j - a
                for o, s, d, j, a in zip(origins, strides, dilations, k, pads, strict=False)
            )
            if not is_transposed:
                source = c if groups == 1 else group * channels + c
                element = restrict(
                    value.at((image, source, *targets)), is_within(targets, value.shape[2:])
                )
                return product(element, weight.at((channel, c, *k)))
            meets = z3.And(
                *(t == p for t, p in zip(targets, reads, strict=True)),
                is_within(origins, value.shape[2:]),
            )
            source = c if groups == 1 else group * channels + c
            terms = product(
                value.at((image, source, *origins)), weight.at((source, channel_in_group, *k))
            )
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
            sizes.append(plain((size - 1) * strides[axis] + reach - around + more))
        else:
            span = size + around - reach
            length = span // strides[axis] if isinstance(span, int) else span / strides[axis]
            sizes.append(plain(length + 1))
    channels_out = plain(outputs * groups) if is_transposed else outputs
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
        plain((as_index(size) - k) / s + 1)
        for size, k, s in zip(value.shape[2:], kernel, strides, strict=True)
    ]
    return Tensor((*value.shape[:2], *sizes), at)


CONTRACTIONS: Mapping[str, Callable[..., Tensor]] = {
    "Conv": _convolution,
    "ConvTranspose": _convolution,
    "AveragePool": _average_pool,
    "CumSum": _cumulative,
    "Gemm": _gemm,
    "MatMul": _matmul,
    "ReduceMean": _reduce_mean,
    "ReduceSum": _reduce_sum,
}
"""Operators that sum over axes, by name."""
