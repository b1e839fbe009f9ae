"""Param groups: their values, and their names in errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor
from torch.nn.parameter import is_lazy

from closedform.errors import ClosedFormError

TRAIN_MODE = "train_mode"
"""The entry of a group that is False while its parameters are at the point of evaluation."""


def is_training(group: Mapping[str, Any]) -> bool:
    """Returns whether a group, or a saved one, is at the point of training."""
    return bool(group.get(TRAIN_MODE, True))


def plain(value: object) -> Any:
    """Returns a value for exact arithmetic: a tensor of one element as its NumPy number."""
    if isinstance(value, Tensor):
        array = value.detach().cpu().numpy()
        return array.reshape(())[()] if array.size == 1 else array
    return tuple(plain(entry) for entry in value) if isinstance(value, tuple | list) else value


def copy_value(value: object) -> Any:
    """Returns a copy of a value that shares no memory with it."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    return tuple(copy_value(entry) for entry in value) if isinstance(value, tuple | list) else value


def like(old: Any, value: Any) -> Any:
    """Returns a scheduled value in the form that its group has: a new tensor for a tensor."""
    if isinstance(value, tuple):
        return tuple(like(*pair) for pair in zip(old, value, strict=True))
    if value is None:
        return copy_value(old)
    if isinstance(value, Tensor):
        return copy_value(value)
    return old.new_full(old.shape, value) if isinstance(old, Tensor) else value


def assign(group: dict[str, Any], key: str, value: Any) -> None:
    """Writes a scheduled value to a group; a tensor there is filled in place."""
    old = group[key]
    if isinstance(old, Tensor):
        old.fill_(value)
    elif isinstance(value, tuple):
        entries: list[Any] = []
        for before, after in zip(old, value, strict=True):
            if isinstance(before, Tensor) and after is not None:
                before.fill_(after)
            entries.append(before if after is None or isinstance(before, Tensor) else after)
        group[key] = tuple(entries)
    else:
        group[key] = value


def place(group: Mapping[str, Any], group_index: int, index: int) -> str:
    """Returns the name of a parameter for errors: its group, name or index, and shape."""
    parameter = group["params"][index]
    shape = "an unknown shape" if is_lazy(parameter) else f"shape {list(parameter.shape)}"
    names = group.get("param_names")
    name = f"parameter {index}" if names is None else f"parameter {names[index]!r}"
    return f"param group {group_index}, {name} of {shape}"


@contextmanager
def locate_errors(where: str) -> Iterator[None]:
    """Adds a location to the errors raised within."""
    try:
        yield
    except ClosedFormError as error:
        inner = where if error.where is None else f"{where}: {error.where}"
        raise type(error)(error.what, where=inner, hint=error.hint) from error
