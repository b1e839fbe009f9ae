"""Param groups: their values, the parameters that are accepted, and their names in errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from closedform.errors import ArgumentError, ClosedFormError
from closedform.language import UpdateRule
from closedform.torch.distributed.shards import (
    check_gradient,
    check_placement,
    is_plain,
    steps_by_shards,
)
from closedform.torch.engine.kernels import COMPUTE_DTYPES, has_one_graph, real_view
from closedform.torch.engine.ort import check_ort_support

TRAIN_MODE = "train_mode"
"""The entry of a group that is False while its parameters are at the point of evaluation."""

_COMPLEX = (torch.complex64, torch.complex128)
_ACCEPTED = f"dtypes are {', '.join(str(dtype) for dtype in (*COMPUTE_DTYPES, *_COMPLEX))}"


def is_training(group: Mapping[str, Any]) -> bool:
    """Returns whether a group, or a saved one, is at the point of training."""
    return bool(group.get(TRAIN_MODE, True))


def plain(value: object) -> Any:
    """Returns a value for exact arithmetic: a tensor as its NumPy number."""
    if isinstance(value, Tensor):
        return value.detach().cpu().numpy()[()]
    return tuple(plain(entry) for entry in value) if isinstance(value, tuple | list) else value


def copied(value: object) -> Any:
    """Returns a copy of a value that shares no memory with it."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    return tuple(copied(entry) for entry in value) if isinstance(value, tuple | list) else value


def like(old: Any, value: Any) -> Any:
    """Returns a scheduled value in the form that its group has: a new tensor for a tensor."""
    if isinstance(value, tuple):
        return tuple(like(*pair) for pair in zip(old, value, strict=True))
    if value is None:
        return copied(old)
    if isinstance(value, Tensor):
        return copied(value)
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
    shape = list(group["params"][index].shape)
    names = group.get("param_names")
    name = f"parameter {index}" if names is None else f"parameter {names[index]!r}"
    return f"param group {group_index}, {name} of shape {shape}"


@contextmanager
def located(where: str) -> Iterator[None]:
    """Adds a location to the errors raised within."""
    try:
        yield
    except ClosedFormError as error:
        inner = where if error.where is None else f"{where}: {error.where}"
        raise type(error)(error.what, where=inner, hint=error.hint) from error


def is_usual(parameter: Tensor, first: Tensor, backend: str) -> bool:
    """Returns whether a parameter passes ``check_parameter`` without a closer look."""
    is_dense = type(parameter) is Parameter and is_plain(parameter)
    is_beside = parameter.device == first.device and backend != "onnxruntime"
    return is_dense and is_beside and parameter.dtype in COMPUTE_DTYPES


def check_parameter(
    parameter: Tensor,
    first: Tensor,
    backend: str,
    providers: Sequence[str] | None,
    where: str,
) -> None:
    """Raises ArgumentError for a parameter that the optimizer does not support.

    Args:
        parameter: The parameter.
        first: The first parameter of its optimizer.
        backend: One of ``BACKENDS``.
        providers: The execution providers of onnxruntime.
        where: The parameter's place, for errors.
    """
    if parameter.dtype not in (*COMPUTE_DTYPES, *_COMPLEX):
        raise ArgumentError(
            f"a parameter must be a floating-point or complex tensor, got {parameter.dtype}",
            where=where,
            hint=_ACCEPTED,
        )
    if parameter.is_complex() and not is_plain(parameter):
        raise ArgumentError(
            "a complex parameter must be a plain tensor, got a DTensor",
            where=where,
            hint="distribute torch.view_as_real of it",
        )
    if parameter.device != first.device:
        raise ArgumentError(
            f"all parameters must be on one device, got {parameter.device} after {first.device}",
            where=where,
            hint="make an optimizer for each device",
        )
    check_placement(parameter, where)
    if backend == "onnxruntime":
        check_ort_support(real_view(parameter), providers, where)


def check_complex(rule: UpdateRule, where: str) -> None:
    """Raises ArgumentError for a rule that does not step complex parameters."""
    is_elementwise = has_one_graph(rule) or steps_by_shards(rule)
    if not is_elementwise or rule.evaluation is not None:
        raise ArgumentError(
            f"the rule {rule.name!r} steps real parameters: a complex one is stepped as its real "
            "and imaginary parts, by elementwise rules that have no point of evaluation",
            where=where,
            hint="make torch.view_as_real of it the parameter",
        )


def with_gradients(
    group: Mapping[str, Any], index: int, owner: str, *, may_be_sparse: bool = False
) -> list[tuple[int, Tensor]]:
    """Returns the parameters of a group that have a gradient, with their indices.

    Args:
        group: The group.
        index: Its index.
        owner: The class of the optimizer, for errors.
        may_be_sparse: Whether sparse gradients are stepped as dense ones.

    Raises:
        ArgumentError: A gradient is sparse, or is not distributed like its parameter.
    """
    found = [
        (number, param) for number, param in enumerate(group["params"]) if param.grad is not None
    ]
    for number, param in found:
        if not (is_plain(param.grad) and is_plain(param)):
            spot = f"{owner}, {place(group, index, number)}"
            check_gradient(param, param.grad, spot, may_be_sparse=may_be_sparse)
    return found


def check_all(
    found: Sequence[tuple[int, Tensor]], group: Mapping[str, Any], index: int, owner: str
) -> None:
    """Raises ArgumentError if parameters that step together do not all have a gradient."""
    if len(found) == len(group["params"]):
        return
    lacking = next(number for number, one in enumerate(group["params"]) if one.grad is None)
    raise ArgumentError(
        "this rule steps all parameters together, but one has no gradient",
        where=f"{owner}, {place(group, index, lacking)}",
        hint="give it a gradient of zeros, or leave it out of the optimizer",
    )
