"""Memory of small parameters that are stepped as one vector, and of their states.

Parameters of 3 and 5 elements are one run; each state of theirs is a part of a vector of 8.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from closedform.torch.engine.programs import in_dtype
from closedform.torch.shards import dtensor_like, is_dtensor, is_plain, local

SMALL = 2**14
"""The most elements of a parameter that is stepped with others."""


JOINED = 2**16
"""The most elements that are stepped as one vector."""


def segments(sizes: Sequence[int]) -> list[range]:
    """Returns the runs of parameters that are stepped as one vector, in order.

    Args:
        sizes: The number of elements of each parameter.
    """
    runs: list[range] = []
    start, total = 0, 0
    for index, size in enumerate(sizes):
        is_large = size > SMALL
        if index > start and (is_large or total + size > JOINED):
            runs.append(range(start, index))
            start, total = index, 0
        total += size
        if is_large:
            runs.append(range(start, index + 1))
            start, total = index + 1, 0
    if start < len(sizes):
        runs.append(range(start, len(sizes)))
    return runs


def is_flat(param: Tensor) -> bool:
    """Returns whether a tensor, or its local part, may be stepped as a part of a vector."""
    if is_dtensor(param):
        param = local(param.detach())
    is_real_on_cpu = param.is_cpu and not param.is_complex()
    return is_real_on_cpu and is_plain(param) and param.is_contiguous()


def pack_states(params: Sequence[Tensor], states: Sequence[dict[str, Tensor]]) -> None:
    """Makes the states of parameters that are stepped as one vector parts of one vector."""
    rows = [row for row, param in enumerate(params) if is_flat(param)]
    for run in segments([local(params[row].detach()).numel() for row in rows]):
        members = [rows[index] for index in run]
        # One parameter needs no vector.
        if len(members) < 2:
            continue
        for name, first in states[members[0]].items():
            columns = [states[row].get(name, first) for row in members]
            pairs = zip(columns, (params[row] for row in members), strict=True)
            if not all(
                column.shape == param.shape and column.dtype == first.dtype and is_flat(column)
                for column, param in pairs
            ):
                continue
            own_columns = [local(column) for column in columns]
            parts = flat_vector(own_columns).split([column.numel() for column in own_columns])
            for row, part, column in zip(members, parts, own_columns, strict=True):
                if name in states[row]:
                    states[row][name] = dtensor_like(part.view(column.shape), params[row])


def packed_zeros(
    params: Sequence[Tensor], dtype: torch.dtype, scalars: Sequence[str], names: Sequence[str]
) -> list[dict[str, Tensor]]:
    """Returns zero states, laid out as by ``pack_states``: the states of a run are one vector.

    Args:
        params: Parameters of one dtype that may be stepped as parts of a vector.
        dtype: The dtype of the states.
        scalars: The names of the states of rank 0.
        names: The names of the states of the shape of the parameter.
    """
    states: list[dict[str, Tensor]] = [{} for _ in params]
    for name in scalars:
        for state, scalar in zip(
            states, torch.zeros(len(params), dtype=dtype).unbind(), strict=True
        ):
            state[name] = scalar
    sizes, shapes = [param.numel() for param in params], [param.shape for param in params]
    for run in segments(sizes):
        part = slice(run.start, run.stop)
        for name in names:
            vector = torch.zeros(sum(sizes[part]), dtype=dtype)
            for state, row, shape in zip(
                states[part], vector.split(sizes[part]), shapes[part], strict=True
            ):
                state[name] = row.view(shape)
    return states


def adjacent(tensors: Sequence[Tensor]) -> Tensor | None:
    """Returns contiguous tensors that follow each other in memory as one vector, if they do."""
    # The data_ptr() of an empty tensor is 0, wherever its neighbours are.
    nonempty = [tensor for tensor in tensors if tensor.numel()]
    if not nonempty:
        return None
    end, total = nonempty[0].data_ptr(), 0
    storage, dtype = nonempty[0].untyped_storage().data_ptr(), nonempty[0].dtype
    for tensor in nonempty:
        if tensor.data_ptr() != end or tensor.dtype != dtype or not tensor.is_contiguous():
            return None
        # Two allocations may lie next to each other; a vector must not reach beyond its storage.
        if tensor.untyped_storage().data_ptr() != storage:
            return None
        total += tensor.numel()
        end += tensor.numel() * tensor.element_size()
    return nonempty[0].as_strided((total,), (1,))


class StateColumn:
    """A state of several parameters, as one vector.

    Args:
        tensors: The state of each parameter.
        dtype: The dtype in which it is computed.
    """

    def __init__(self, tensors: Sequence[Tensor], dtype: torch.dtype) -> None:
        self.tensors = list(tensors)
        self._dtype = dtype
        self._vector = adjacent(tensors)
        self._is_scalar = all(not tensor.dim() for tensor in tensors)

    @property
    def vector(self) -> Tensor | None:
        """The memory of the states, if they are adjacent and in the dtype of the computation."""
        is_own = self._vector is not None and self._vector.dtype is self._dtype
        return self._vector if is_own else None

    def is_vector(self, tensor: Tensor) -> bool:
        """Returns whether a tensor is the memory of the states."""
        return tensor is self._vector

    def load(self) -> Tensor:
        """Returns the values; they are those in memory if the tensors are adjacent."""
        if self._vector is not None:
            return in_dtype(self._vector, self._dtype)
        return in_dtype(flat_vector(self.tensors), self._dtype)

    def store(self, value: Tensor) -> None:
        """Writes the values, or one value for all."""
        if self._vector is not None:
            if value is not self._vector:
                # One value for all may have been written over the first element of the vector.
                is_inside = value.data_ptr() == self._vector.data_ptr()
                self._vector.copy_(value.clone() if is_inside else value)
            return
        sizes = [tensor.numel() for tensor in self.tensors]
        parts = value.expand(sum(sizes)).split(sizes)
        shaped_parts = [
            part.view(tensor.shape) for part, tensor in zip(parts, self.tensors, strict=True)
        ]
        torch._foreach_copy_(self.tensors, shaped_parts)


def flat_vector(tensors: Sequence[Tensor]) -> Tensor:
    """One vector of the elements of some tensors."""
    vector: Tensor = torch._C._nn.flatten_dense_tensors(list(tensors))
    return vector
