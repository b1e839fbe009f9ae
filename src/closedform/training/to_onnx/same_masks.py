"""Masks that are computed twice: one mask, so that what they select has one size."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakIdKeyDictionary

from closedform.training.to_onnx.operators import ATEN


class SameMasks(TorchDispatchMode):
    """Has operators that select by a mask use the first mask of the same operators and inputs.

    The number of entries of a mask is a symbol of the trace. ``output[target > 0]`` and
    ``target[target > 0]`` have two masks, and torch would not know that their sizes are equal.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._count = itertools.count()
        self._of: Any = WeakIdKeyDictionary()
        self._numbers: dict[object, int] = {}
        self._masks: dict[int, torch.Tensor] = {}

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if function in _SELECTIONS:
            args = tuple(self._first(argument) for argument in args)
        result = function(*args, **(kwargs or {}))
        # A random operator or a write has another result at each call.
        is_pure = not (
            function._schema.is_mutable or torch.Tag.nondeterministic_seeded in function.tags
        )
        if is_pure and isinstance(result, torch.Tensor):
            key = function, self._key(args), self._key(tuple((kwargs or {}).items()))
            number = self._numbers.setdefault(key, next(self._count))
            self._of[result] = number, result._version
            if result.dtype is torch.bool:
                self._masks.setdefault(number, result)
        return result

    def _number(self, tensor: torch.Tensor) -> int:
        """The number of the value of a tensor; a new one after a write."""
        # A tensor's version counts its writes in place: a stale number is not reused.
        number, version = self._of.get(tensor, (None, None))
        if number is None or version != tensor._version:
            number = next(self._count)
            self._of[tensor] = number, tensor._version
        return int(number)

    def _key(self, value: Any) -> object:
        if isinstance(value, torch.Tensor):
            return "tensor", self._number(value)
        if isinstance(value, list | tuple):
            return tuple(map(self._key, value))
        return type(value).__name__, str(value)

    def _first(self, value: Any) -> Any:
        """The first mask with the value of a mask, also within a list of indices."""
        if isinstance(value, list | tuple):
            return type(value)(map(self._first, value))
        if isinstance(value, torch.Tensor) and value.dtype is torch.bool:
            mask = self._masks.get(self._number(value), value)
            return mask if mask.shape == value.shape else value
        return value


_SELECTIONS = frozenset(
    {
        ATEN.index.Tensor,
        ATEN.index_put.default,
        ATEN.index_put_.default,
        ATEN.nonzero.default,
    }
)
"""Operators whose sizes depend on a mask."""
