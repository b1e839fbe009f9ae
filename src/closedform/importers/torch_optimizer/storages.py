"""The value of each tensor: values belong to storages, and tensors are views of them.

An operation in place on a view changes its storage, so every other view sees it. A view is the
chain of view operations that leads to it from the whole storage; its geometry (offset, sizes,
strides) names it, whichever tensor has it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from closedform.errors import TraceError
from closedform.importers.tensors.values import Value

Geometry = tuple[int, tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class View:
    """One view operation.

    Attributes:
        name: Its name, for errors.
        read: The value of the view, from that of what it views.
        write: The new value of what is viewed, from its old one and the new one of the view; None
            if only a part of it is viewed.
    """

    name: str
    read: Callable[[Value], Value]
    write: Callable[[Value, Value], Value] | None


@dataclass(slots=True)
class Storage:
    """The value of a storage.

    Attributes:
        owner: A tensor that has all of it; alive, so that its address is not used again.
        value: Its value; None while it is not initialized.
        geometry: The layout that the value is of.
        initial: The value that it was created with.
        views: Chains of view operations by geometry.
        is_wide: Whether it is float64 where the parameters are float32.
    """

    owner: torch.Tensor
    value: Value | None
    geometry: Geometry
    initial: Value | None = None
    views: dict[Geometry, tuple[View, ...]] = field(default_factory=dict)
    is_wide: bool = False


def geometry(tensor: torch.Tensor) -> Geometry:
    """Returns which elements of its storage a tensor has."""
    strides = tuple(
        1 if size == 1 else stride
        for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
    )
    return int(tensor.storage_offset()), tuple(tensor.shape), strides


class Storages:
    """The values of all storages of a run."""

    def __init__(self) -> None:
        self._known: dict[int, Storage] = {}

    def of(self, tensor: torch.Tensor) -> Storage | None:
        """Returns the storage of a tensor if it is known."""
        return self._known.get(_address(tensor))

    def is_wide(self, tensor: torch.Tensor) -> bool:
        """Returns whether a tensor is float64 where the parameters are float32."""
        storage = self.of(tensor)
        return storage is not None and storage.is_wide

    def create(self, tensor: torch.Tensor, value: Value | None) -> None:
        """Gives a new tensor a value."""
        if _address(tensor) in self._known:
            self.write(tensor, value)
            return
        self._known[_address(tensor)] = Storage(tensor, value, geometry(tensor), value)

    def read(self, tensor: torch.Tensor) -> Value | None:
        """Returns the value of a tensor; None if it has none.

        Raises:
            TraceError: It is a view that was not made by a known operation.
        """
        storage = self.of(tensor)
        if storage is None or storage.value is None:
            return None
        value = storage.value
        for view in self._chain(storage, tensor):
            value = view.read(value)
        return value

    def write(self, tensor: torch.Tensor, value: Value | None) -> None:
        """Changes the elements of a tensor."""
        storage = self._known[_address(tensor)]
        chain = self._chain(storage, tensor)
        if storage.initial is None and not chain:
            storage.initial = value
        if value is None or not chain:
            storage.value = value
            return
        if storage.value is None:
            raise TraceError("a part of a tensor is written before the tensor has a value")
        values = [storage.value]
        for view in chain[:-1]:
            values.append(view.read(values[-1]))
        for view, before in zip(reversed(chain), reversed(values), strict=True):
            if view.write is None:
                raise TraceError(f"{view.name}: a part of a tensor is changed in place")
            value = view.write(before, value)
        storage.value = value

    def view(self, source: torch.Tensor, result: torch.Tensor, view: View) -> None:
        """Records that a tensor is a view of another one."""
        storage = self.of(source)
        if storage is None:
            return
        key = geometry(result)
        if key != storage.geometry and key not in storage.views:
            storage.views[key] = (*self._chain(storage, source), view)

    def _chain(self, storage: Storage, tensor: torch.Tensor) -> tuple[View, ...]:
        key = geometry(tensor)
        if key == storage.geometry:
            return ()
        if key not in storage.views:
            raise TraceError(
                f"a view of shape {list(tensor.shape)} of a tensor of shape "
                f"{list(storage.geometry[1])} was made outside of the traced operations"
            )
        return storage.views[key]


def _address(tensor: torch.Tensor) -> int:
    address: Any = tensor.untyped_storage()._cdata
    return int(address)
