"""Parameters that are DTensors: their local parts, and tensors distributed like them.

A DTensor is distributed over a mesh of processes, with one placement for each axis of the mesh:
sharded along an axis of the tensor, or replicated. Shards may differ in size, and may be empty.
``torch.distributed`` is imported only once there is a DTensor.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from closedform.errors import ArgumentError, StateError
from closedform.exporters.torch_ops import TORCH_DTYPES
from closedform.ir.types import DType
from closedform.language import UpdateRule


def is_dtensor(value: Tensor) -> bool:
    """Returns whether a tensor is a DTensor, with any placement."""
    return hasattr(value, "placements")


def is_sharded(value: Tensor) -> bool:
    """Returns whether this process has only a part of the tensor."""
    placements = getattr(value, "placements", ())
    return any(not placement.is_replicate() for placement in placements)


def local(value: Tensor) -> Tensor:
    """Returns the local part of a DTensor; a plain tensor itself."""
    tensor: Any = value
    part: Tensor = tensor.to_local() if is_dtensor(value) else value
    return part


def full_tensor(value: Tensor) -> Tensor:
    """Returns the full tensor, gathered from all processes that have a part of it."""
    tensor: Any = value
    full: Tensor = tensor.full_tensor() if is_dtensor(value) else value
    return full


def local_part(full: Tensor, like: Tensor) -> Tensor:
    """Returns the local part of a full tensor, if it were distributed like another one."""
    if not is_dtensor(like):
        return full
    replicated: Any = _place(full, like)
    return local(replicated.redistribute(placements=_placements(like)))


def dtensor_like(part: Tensor, param: Tensor) -> Tensor:
    """Returns a DTensor distributed like a parameter, from its local part."""
    if not is_dtensor(param):
        return part
    from torch.distributed.tensor import DTensor

    return DTensor.from_local(
        part,
        _mesh(param),
        _placements(param),
        # run_check=True of torch costs a broadcast from the first process.
        run_check=False,
        shape=param.shape,
        stride=param.stride(),
    )


def is_redistributable(value: Tensor, like: Tensor) -> bool:
    """Returns whether ``redistributed_like`` applies: two DTensors must be on the same mesh."""
    return not (is_dtensor(value) and is_dtensor(like)) or _mesh(value) == _mesh(like)


def redistributed_like(value: Tensor, like: Tensor) -> Tensor:
    """Returns a tensor with the placements of another one, on its mesh."""
    if not is_dtensor(like):
        return full_tensor(value)
    if not is_dtensor(value):
        return dtensor_like(local_part(value, like), like)
    tensor: Any = value
    result: Tensor = tensor.redistribute(placements=_placements(like))
    return result


def gradient_of(param: Tensor) -> Tensor:
    """Returns the gradient of a parameter, dense and distributed like it.

    It is the parameter itself if there is none.
    """
    grad = (param if param.grad is None else param.grad).detach()
    # Embedding(sparse=True): to_dense() also adds up repeated rows.
    if grad.layout is torch.sparse_coo:
        grad = grad.to_dense()
    if not is_dtensor(param) or _placements(grad) == _placements(param):
        return grad
    return redistributed_like(grad, param)


def local_gradient(param: Tensor, grad: Tensor, part: Tensor) -> Tensor | None:
    """Returns the local part of the gradient of a DTensor whose local part is still the given one.

    It is None if the gradient is not placed like the parameter, or has a graph.
    """
    if not is_dtensor(grad) or grad.requires_grad or _mesh(grad) != _mesh(param):
        return None
    if _placements(grad) != _placements(param) or local(param).data_ptr() != part.data_ptr():
        return None
    gradient = local(grad)
    return gradient if type(gradient) is Tensor and gradient.layout is torch.strided else None


def check_placement(param: Tensor, where: str) -> None:
    """Raises ArgumentError for a parameter that is neither sharded nor replicated.

    The check uses only what all processes know, so either all raise or none does.
    """
    for axis, placement in enumerate(_placements(param) if is_dtensor(param) else ()):
        if placement.is_partial():
            raise ArgumentError(
                f"a parameter must be sharded or replicated, got {placement!r} along axis {axis} "
                "of its mesh",
                where=where,
                hint="redistribute it before the optimizer is made",
            )


def is_plain(value: Tensor) -> bool:
    """Returns whether a tensor is dense and not a DTensor."""
    return value.layout is torch.strided and not is_dtensor(value)


def check_gradient(param: Tensor, grad: Tensor, where: str, *, may_be_sparse: bool) -> None:
    """Raises ArgumentError if a gradient is sparse, or is not distributed like its parameter."""
    is_taken = may_be_sparse and grad.layout is torch.sparse_coo and not is_dtensor(param)
    if grad.layout is not torch.strided and not is_taken:
        raise ArgumentError(
            f"the gradient must be dense, got {grad.layout}",
            where=where,
            hint="make the layer with sparse=False, or use SGD or Adagrad",
        )
    kinds = ["a DTensor" if is_dtensor(value) else "a plain tensor" for value in (param, grad)]
    if kinds[0] != kinds[1]:
        raise ArgumentError(
            f"the gradient must be {kinds[0]} like its parameter, got {kinds[1]}", where=where
        )
    if is_dtensor(param) and _mesh(param) != _mesh(grad):
        raise ArgumentError(
            f"the gradient must be on the parameter's mesh {_mesh(param)}, got {_mesh(grad)}",
            where=where,
        )


@dataclass(frozen=True, slots=True)
class ShardMesh:
    """The processes that have the shards of a tensor.

    Attributes:
        mesh: Their mesh; None for a tensor that is not sharded.
        axes: The axes of the mesh along which the tensor is sharded.
    """

    mesh: Any = None
    axes: tuple[int, ...] = ()

    def all_reduce(self, partial_sums: Sequence[Tensor], guard: Tensor | None) -> Sequence[Tensor]:
        """Returns the sums over these processes: one all_reduce for each axis.

        Args:
            partial_sums: The sums of this process.
            guard: Numbers that must be equal in all processes, sent with the sums.

        Raises:
            StateError: They are not, or another process did not send its sums.
        """
        device = partial_sums[0].device if partial_sums else self.mesh.device_type
        guards = [] if guard is None else list(guard.to(device))
        totals = torch.stack([*guards, *partial_sums])
        for axis in self.axes:
            # Axes that replicate hold the same sums: with them the total would be a multiple.
            with self._together():
                torch.distributed.all_reduce(totals, group=self.mesh.get_group(axis))
        if guard is None:
            return totals.unbind()
        is_alike = (totals[: len(guards)] == self.size * guard.to(device)).all()
        totals = totals[len(guards) :]
        if partial_sums and not totals.is_cpu:
            # No step waits for a device: its numbers are NaN.
            return torch.where(is_alike, totals, math.nan).unbind()
        if not is_alike:
            raise StateError(
                "the processes have gradients of different parameters, or one has raised an error",
                hint="give each process gradients of the same parameters, zeros for those unused",
            )
        return totals.unbind()

    @property
    def size(self) -> int:
        """The number of these processes."""
        return math.prod(map(self.mesh.size, self.axes))

    @property
    def rank(self) -> int:
        """The place of this process along the only axis."""
        (axis,) = self.axes
        return int(self.mesh.get_local_rank(axis))

    def part_of(self, shape: Sequence[int], place: int) -> tuple[int, ...]:
        """Returns the shape of the rows of a tensor that a process along the only axis has."""
        return (row_counts(shape[0], self.size)[place], *shape[1:])

    def gather(self, parts: Sequence[tuple[Tensor, Sequence[int], int]]) -> list[Tensor | None]:
        """Returns full tensors, each in the process that is to have it, and None elsewhere.

        Args:
            parts: For each tensor its rows here, its shape, and the place of its process.
        """
        segments = [
            [
                part if place == self.rank else part.new_empty(self.part_of(shape, place))
                for place in range(self.size)
            ]
            if owner == self.rank
            else []
            for part, shape, owner in parts
        ]
        self._transfer(
            [(part, owner) for part, _, owner in parts],
            [(segment, place) for row in segments for place, segment in enumerate(row)],
        )
        return [torch.cat(row) if row else None for row in segments]

    def scatter(self, tensors: Sequence[tuple[Tensor, int, bool]]) -> list[Tensor]:
        """Returns the rows here of full tensors, each of which one process has, or all of it.

        Args:
            tensors: For each the tensor, or one on the meta device where it is not, the place of
                its process, and whether it is sharded.
        """
        results, sent_segments, received_segments = [], [], []
        for value, owner, is_sharded in tensors:
            if owner == self.rank:
                rows = row_counts(len(value), self.size) if is_sharded else []
                segments = value.split(rows) if is_sharded else [value] * self.size
                sent_segments += list(zip(segments, range(self.size), strict=True))
                results.append(segments[self.rank])
                continue
            shape = self.part_of(value.shape, self.rank) if is_sharded else value.shape
            results.append(torch.empty(shape, dtype=value.dtype, device=self.mesh.device_type))
            received_segments.append((results[-1], owner))
        self._transfer(sent_segments, received_segments)
        return results

    def _transfer(
        self,
        sent_segments: Sequence[tuple[Tensor, int]],
        received_segments: Sequence[tuple[Tensor, int]],
    ) -> None:
        """Sends tensors to the places of other processes, and receives theirs, as one batch."""
        group = self.mesh.get_group(*self.axes)
        ranks = torch.distributed.get_process_group_ranks(group)
        operations = [
            torch.distributed.P2POp(function, value.contiguous(), ranks[place], group)
            for function, pairs in (
                (torch.distributed.isend, sent_segments),
                (torch.distributed.irecv, received_segments),
            )
            for value, place in pairs
            if value.numel() and place != self.rank
        ]
        with self._together():
            for request in torch.distributed.batch_isend_irecv(operations) if operations else ():
                request.wait()

    @contextmanager
    def _together(self) -> Iterator[None]:
        """An error of a collective as one of processes that do not step together."""
        try:
            yield
        except RuntimeError as error:
            raise StateError(
                f"the processes of mesh {self.mesh} did not step together: {error}",
                hint="has another process raised an error, or not called step()?",
            ) from error


def shard_mesh(param: Tensor) -> ShardMesh:
    """Returns the processes that have the shards of a tensor."""
    if not is_sharded(param):
        return ShardMesh()
    axes = (
        axis for axis, placement in enumerate(_placements(param)) if not placement.is_replicate()
    )
    return ShardMesh(_mesh(param), tuple(axes))


def first_place(param: Tensor) -> int | None:
    """Returns the place of the first local element of a DTensor in the full tensor, row by row.

    It is None unless the local elements follow each other: a tensor sharded once, by rows.
    """
    count = row_shards(param)
    if count is None:
        return None
    first_row = sum(row_counts(param.shape[0], count)[: shard_mesh(param).rank])
    return first_row * math.prod(param.shape[1:])


def row_counts(rows: int, count: int) -> list[int]:
    """Returns how many rows of a tensor each of several processes has: equal parts, then the rest.

    Example:
        >>> row_counts(7, 4), row_counts(1, 2)
        ([2, 2, 2, 1], [1, 0])
    """
    most = -(-rows // count)
    return [min(most, max(0, rows - most * place)) for place in range(count)]


def row_shards(param: Tensor) -> int | None:
    """Returns into how many shards of rows a DTensor is cut; None if it is not cut so, or twice."""
    from torch.distributed.tensor import Shard

    axes = shard_mesh(param).axes
    if len(axes) != 1:
        return None
    placement = _placements(param)[axes[0]]
    is_by_rows = type(placement) is Shard and placement.dim == 0
    return int(_mesh(param).size(axes[0])) if is_by_rows else None


def steps_by_shards(rule: UpdateRule) -> bool:
    """Returns whether elements step independently, so that a shard needs no other shard."""
    return rule.is_elementwise and rule.is_for_all_shapes


def other_states(rule: UpdateRule, param: Tensor, dtype: torch.dtype) -> Mapping[str, Tensor]:
    """Returns the states of a DTensor that do not have its shape by rule, before the first step.

    States of rank 0 are plain tensors. The others are in shards of their rows if the parameter is,
    and else replicated, unless their sizes are those of the parameter.

    Args:
        rule: The rule for the shape of the parameter.
        param: The parameter.
        dtype: The dtype of states that are not stored in another one.
    """
    part, mesh, is_by_rows = local(param.detach()), shard_mesh(param), row_shards(param) is not None
    states = {}
    for name, spec in rule.states.items():
        if spec.shape == "param":
            continue
        shape = tuple(int(size) for size in rule.state_shape(name, tuple(param.shape)))
        is_alike = shape == tuple(param.shape)
        local_shape = tuple(part.shape) if is_alike else shape
        if is_by_rows and shape:
            local_shape = mesh.part_of(shape, mesh.rank)
        stored_dtype = dtype if spec.stored is None else TORCH_DTYPES[DType(spec.stored)]
        value = torch.full(local_shape, float(spec.initial), dtype=stored_dtype, device=part.device)
        placements = _placements(param) if is_alike or is_by_rows else None
        states[name] = _place(value, param, placements, shape) if shape else value
    return states


def _place(
    part: Tensor,
    like: Tensor,
    placements: Sequence[Any] | None = None,
    shape: tuple[int, ...] | None = None,
) -> Tensor:
    """A DTensor on the mesh of another one, replicated or with placements, of a shape."""
    from torch.distributed.tensor import DTensor, Replicate

    mesh, full = _mesh(like), torch.empty(shape or part.shape, device="meta")
    placements = placements or [Replicate()] * mesh.ndim
    return DTensor.from_local(
        part, mesh, placements, run_check=False, shape=full.shape, stride=full.stride()
    )


def _mesh(value: Any) -> Any:
    return value.device_mesh


def _placements(value: Any) -> Sequence[Any]:
    placements: Sequence[Any] = value.placements
    return placements
