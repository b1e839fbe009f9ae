"""Gather and scatter operators of ONNX on tensors of index sums.

Indices are within their axes, as a training session checks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import z3
from onnx import NodeProto

from closedform.errors import VerificationError
from closedform.verify.gradients.index_sums import (
    Index,
    Sum,
    fresh,
    plain,
    restrict,
    total,
)
from closedform.verify.gradients.tensors import (
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
        return restrict(element, is_within(place, operand.shape)) if operand.is_real else element

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
    if reduction != b"add" and not is_one(indices.shape[axis]):
        raise VerificationError("this ScatterElements is not read")

    def at(index: Indices) -> Sum:
        before = operand.at(index)
        if reduction != b"add":
            # One entry of each row is written to.
            place = (*index[:axis], 0, *index[axis + 1 :])
            is_met = z3.And(indices.at(place) == index[axis], is_within(place, indices.shape))
            before = restrict(before, z3.Not(is_met))

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
    if len(indices.shape) != 2 or not is_one(indices.shape[1]):
        raise VerificationError("this ScatterND is not read")
    reduction = attributes.get("reduction", b"none")
    size = indices.shape[0]
    check_shapes(updates.shape, (size, *operand.shape[1:]), "what is scattered")
    if reduction == b"none":
        _check_distinct(indices)

    def at(index: Indices) -> Sum:
        def term(i: Index) -> Sum:
            return restrict(
                updates.at((i, *index[1:])), as_index(indices.at((i, 0))) == as_index(index[0])
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
    within = [is_within((i,), indices.shape[:1]) for i in (first, second)]
    solver.add(*within, first != second, indices.at((first, 0)) == indices.at((second, 0)))
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
