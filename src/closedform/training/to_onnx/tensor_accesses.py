"""Tensors that a forward reaches: replaced, read past their names, in one memory, or written to.

A write to a tensor that is neither a parameter nor a buffer is an error that names its module.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from closedform.errors import TrainingExportError
from closedform.training.to_onnx.onnx_program import Tensors
from closedform.training.to_onnx.places import Places


class Substitutes(TorchFunctionMode):
    """Passes tensors in the place of others, wherever these are held: in closures and lists, too.

    Args:
        tensors_by_id: The tensors by the identity of those that they stand for.

    Attributes:
        ids: The identities of the tensors that have been replaced so far.
    """

    def __init__(self, tensors_by_id: Mapping[int, torch.Tensor]) -> None:
        super().__init__()
        self._tensors_by_id = tensors_by_id
        self.ids: set[int] = set()

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return function(*self._replace(args), **self._replace(kwargs or {}))

    def _replace(self, value: Any) -> Any:
        # By exact types: torch.Size and other subclasses hold no tensors.
        if type(value) in (tuple, list):
            return type(value)(map(self._replace, value))
        if type(value) is dict:
            return {key: self._replace(entry) for key, entry in value.items()}
        if id(value) not in self._tensors_by_id:
            return value
        self.ids.add(id(value))
        return self._tensors_by_id[id(value)]


class OutsideReads(TorchDispatchMode):
    """Notes the operators of a trace that read the memory of a parameter or buffer itself.

    Tensors of a trace have no memory. What has one is a constant, and a view, ``.data`` or a NumPy
    array that was taken of a parameter earlier would be frozen.

    Args:
        tensors: The parameters and buffers by name.
        places: The calling modules.
        reads: The place of a read by the name of the tensor, filled in.
    """

    def __init__(self, tensors: Tensors, places: Places, reads: dict[str, str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._ranges = [(*_memory(value), name) for name, value in tensors.items() if value.numel()]
        self._places, self._reads = places, reads

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        for value in torch.utils._pytree.tree_leaves((args, kwargs)):
            if isinstance(value, torch.Tensor) and not isinstance(value, FakeTensor):
                start, end = _memory(value)
                for low, high, name in self._ranges:
                    if start < high and low < end:
                        self._reads.setdefault(name, self._places.here())
        return function(*args, **(kwargs or {}))


def check_shared_memory(params: Tensors, buffers: Tensors, where: str) -> None:
    """Raises ExportError for parameters, or a parameter and a buffer, in the same memory.

    Args:
        params: The parameters to train by name.
        buffers: Buffers and frozen parameters by name.
        where: The model, named in errors.
    """
    ranges = sorted(
        (*_memory(value), name) for name, value in (params | buffers).items() if value.numel()
    )
    tensors, (end, owner) = params | buffers, (0, "")
    for low, high, name in ranges:
        is_trained = name in params or owner in params
        # Parts of the columns of one matrix have memory between that of each other.
        is_apart = owner and not (tensors[owner].is_contiguous() or tensors[name].is_contiguous())
        if low < end and is_trained and not is_apart:
            raise TrainingExportError(
                f"{owner!r} and {name!r} are two tensors in the same memory, which a step would "
                "carry apart",
                where=where,
                hint="make them one, such as b.weight = a.weight: an assignment to .data, or a "
                "buffer of it, shares only the memory",
            )
        if high > end:
            end, owner = high, name


def _memory(tensor: torch.Tensor) -> tuple[int, int]:
    """The first address of a tensor, and the one after its last."""
    if tensor.layout is not torch.strided or not tensor.numel():
        return 0, 0
    start = tensor.data_ptr()
    last = sum((size - 1) * s for size, s in zip(tensor.shape, tensor.stride(), strict=True))
    return start, start + (last + 1) * tensor.element_size()


class Writes(TorchDispatchMode):
    """Raises ExportError before an operator writes to a tensor that is not a state of the step.

    Args:
        places: The calling modules, for the message.
        writable_tensors: Tensors that may be written to: copies of parameters and buffers; None for
            all but the caller's.
        caller_tensors: Parameters that are not copies, since the first run did not write to them.
        where: The model, named in errors.
    """

    def __init__(
        self,
        places: Places,
        writable_tensors: dict[str, torch.Tensor] | None,
        caller_tensors: dict[str, torch.Tensor],
        where: str,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._places, self._where = places, where
        # A weak reference frees the memory of an intermediate result, and reserves its address.
        self._known: dict[int, StorageWeakRef] | None = None
        if writable_tensors is not None:
            self._known = {storage_of(t): _reference(t) for t in writable_tensors.values()}
        self._shared = {storage_of(tensor): name for name, tensor in caller_tensors.items()}
        self._written: set[int] = set()

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        arguments_by_name = {**dict(zip(_names(function), args, strict=False)), **(kwargs or {})}
        for argument in function._schema.arguments:
            if argument.alias_info is None or not argument.alias_info.is_write:
                continue
            for tensor in torch.utils._pytree.tree_leaves(arguments_by_name.get(argument.name)):
                self._check(tensor, function)
        result = function(*args, **(kwargs or {}))
        if self._known is None or _aliases(function):
            return result
        for tensor in torch.utils._pytree.tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                # Memory that the forward itself allocates may be written to.
                self._known.setdefault(storage_of(tensor), _reference(tensor))
        return result

    def names_of_written(self, tensors: Tensors) -> frozenset[str]:
        """Returns the names of the tensors that the forward has written to."""
        return frozenset(n for n, value in tensors.items() if storage_of(value) in self._written)

    def _check(self, tensor: object, function: Any) -> None:
        if not isinstance(tensor, torch.Tensor):
            return
        storage = storage_of(tensor)
        if storage in self._shared:
            raise rare_write_error(self._shared[storage], self._where)
        self._written.add(storage)
        if self._known is not None and storage not in self._known:
            raise TrainingExportError(
                f"{function} writes to a tensor {list(tensor.shape)} that is neither a parameter "
                f"nor a buffer, in {self._places.here()}",
                where=self._where,
                hint="register it with register_buffer, so that a step can carry it",
            )


def rare_write_error(name: str, where: str) -> TrainingExportError:
    """The error of a parameter to which the first run has not written, and a later one has."""
    return TrainingExportError(
        f"the forward writes to the parameter {name!r} in some runs only, but a graph writes in "
        "each step",
        where=where,
        hint="write to it in each call, or before the export",
    )


def _names(function: Any) -> list[str]:
    return [argument.name for argument in function._schema.arguments]


def _aliases(function: Any) -> bool:
    """Whether a result shares the memory of an argument."""
    return any(result.alias_info is not None for result in function._schema.returns)


def storage_of(tensor: torch.Tensor) -> int:
    """Returns the identity of the memory of a tensor, which its views have, too."""
    return int(tensor.untyped_storage()._cdata)


def _reference(tensor: torch.Tensor) -> StorageWeakRef:
    return StorageWeakRef(tensor.untyped_storage())
