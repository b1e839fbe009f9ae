"""Gather and scatter operators of ONNX on tensors of index sums.

Indices are within their axes, as a training session checks.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import z3
from onnx import NodeProto

from closedform.errors import VerificationError
from tests.proofs.gradients.index_sums import (
    Index,
    Sum,
    fresh,
    plain,
    restrict,
    total,
)
from tests.proofs.gradients.tensors import (
    Indices,
    Tensor,
    as_index,
    check_shapes,
    is_one,
    is_within,
)


def _gather(node: NodeProto, operands: Sequence[Tensor], attributes: Any) -> Tensor:
    operand, indices = operands
    axis = attributes.get("axis", 0) % len(operand.shape)
    extra = len(indices.shape)

    def at(index: Indices) -> Any:
        place = plain(as_index(indices.at(index[axis : axis + extra])))
        if isinstance(place, int):
            place = place if place >= 0 else plain(operand.shape[axis] + place)
        element = operand.at((*index[:axis], place, *index[axis + extra :]))
        if not operand.is_real:
            return element
        return restrict(element, is_within((place,), (operand.shape[axis],)))

    shape = (*operand.shape[:axis], *indices.shape, *operand.shape[axis + 1 :])
    return Tensor(shape, at, operand.is_real)


def _gather_nd(node: NodeProto, operands: Sequence[Tensor], attributes: Any) -> Tensor:
    operand, indices = operands
    if attributes.get("batch_dims", 0):
        raise VerificationError("GatherND with batches is not read")
    depth, outer = int(str(indices.shape[-1])), len(indices.shape) - 1

    def at(index: Indices) -> Any:
        place = tuple(plain(as_index(indices.at((*index[:outer], j)))) for j in range(depth))
        element = operand.at((*place, *index[outer:]))
        if not operand.is_real:
            return element
        return restrict(element, is_within(place, operand.shape[:depth]))

    return Tensor((*indices.shape[:-1], *operand.shape[depth:]), at, operand.is_real)


def _gather_elements(node: NodeProto, operands: Sequence[Tensor], attributes: Any) -> Tensor:
    operand, indices = operands
    axis = attributes.get("axis", 0) % len(operand.shape)

    def at(index: Indices) -> Sum:
        place = indices.at(index)
        element = operand.at((*index[:axis], place, *index[axis + 1 :]))
        return restrict(element, is_within((place,), (operand.shape[axis],)))

    return Tensor(indices.shape, at)


def _scatter_elements(node: NodeProto, operands: Sequence[Tensor], attributes: Any) -> Tensor:
    operand, indices, updates = operands
    axis = attributes.get("axis", 0) % len(operand.shape)
    reduction = attributes.get("reduction", b"none")
    check_shapes(updates.shape, indices.shape, "what is scattered")
    is_single = is_one(indices.shape[axis])
    if reduction != b"add" and not is_single and indices.distinct_axis != axis:
        raise VerificationError("two rows may be written to one place")

    def at(index: Indices) -> Sum:
        before = operand.at(index)
        if reduction != b"add" and before:
            # A place is written to at most once.
            writer = 0 if is_single else fresh("p")
            place = (*index[:axis], writer, *index[axis + 1 :])
            is_met = z3.And(indices.at(place) == index[axis], is_within(place, indices.shape))
            before = restrict(before, z3.Not(is_met if is_single else z3.Exists([writer], is_met)))

        def term(i: Index) -> Sum:
            place = (*index[:axis], i, *index[axis + 1 :])
            is_met = z3.And(
                indices.at(place) == as_index(index[axis]), is_within(place, indices.shape)
            )
            return restrict(updates.at(place), is_met)

        return (*before, *total(term, indices.shape[axis]))

    return Tensor(operand.shape, at)


def _scatter_nd(node: NodeProto, operands: Sequence[Tensor], attributes: Any) -> Tensor:
    operand, indices, updates = operands
    depth, sizes = int(str(indices.shape[-1])), indices.shape[:-1]
    reduction = attributes.get("reduction", b"none")
    check_shapes(updates.shape, (*sizes, *operand.shape[depth:]), "what is scattered")
    if reduction not in (b"none", b"add"):
        raise VerificationError("this ScatterND is not read")
    # Also for a sum: onnxruntime adds rows from several threads without a lock.
    _check_distinct(indices)

    def meets(index: Indices, row: Indices) -> Any:
        return z3.And(
            *(as_index(indices.at((*row, j))) == as_index(index[j]) for j in range(depth))
        )

    def at(index: Indices) -> Sum:
        def over(row: Indices) -> Sum:
            if len(row) == len(sizes):
                return restrict(updates.at((*row, *index[depth:])), meets(index, row))
            return total(lambda i: over((*row, i)), sizes[len(row)])

        before = operand.at(index)
        if before and reduction == b"none":
            row = tuple(fresh("p") for _ in sizes)
            is_met = z3.And(is_within(row, sizes), meets(index, row))
            before = restrict(before, z3.Not(z3.Exists(list(row), is_met)))
        return (*before, *over(()))

    return Tensor(operand.shape, at)


def _check_distinct(indices: Tensor) -> None:
    """Raises VerificationError unless no two rows are written to one place."""
    sizes, depth = indices.shape[:-1], int(str(indices.shape[-1]))
    first, second = (tuple(fresh() for _ in sizes) for _ in range(2))
    solver = z3.Solver()
    solver.set("rlimit", 10**6)
    solver.add(
        *(is_within(row, sizes) for row in (first, second)),
        z3.Or(*(a != b for a, b in zip(first, second, strict=True))),
        *(indices.at((*first, j)) == indices.at((*second, j)) for j in range(depth)),
    )
    if solver.check() != z3.unsat:
        raise VerificationError("two rows may be written to one place")


INDEXING: Mapping[str, Callable[..., Tensor]] = {
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
}
"""Gather and scatter operators by name."""
