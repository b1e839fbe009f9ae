"""The parameters and gradients that an optimizer accepts; errors that name them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from closedform.errors import ArgumentError, StateError
from closedform.exporters.torch_ops import TORCH_DTYPES
from closedform.ir.types import DType
from closedform.language import UpdateRule
from closedform.torch.engine.kernels import COMPUTE_DTYPES, has_one_graph, is_joint
from closedform.torch.param_groups import place
from closedform.torch.shards import check_gradient, check_placement, is_plain, steps_by_shards

_COMPLEX = (torch.complex64, torch.complex128)
_ACCEPTED = f"dtypes are {', '.join(str(dtype) for dtype in (*COMPUTE_DTYPES, *_COMPLEX))}"


def is_usual(parameter: Tensor, first: Tensor) -> bool:
    """Returns whether a parameter passes ``check_parameter`` without a closer look."""
    is_dense = type(parameter) is Parameter and is_plain(parameter)
    return is_dense and parameter.device == first.device and parameter.dtype in COMPUTE_DTYPES


def check_stored(rule: UpdateRule, dtypes: Collection[torch.dtype], where: str) -> None:
    """Raises ArgumentError if a rule stores parameters in another dtype than theirs.

    Args:
        rule: The rule.
        dtypes: The dtypes of the parameters.
        where: The place of the group, for errors.
    """
    if rule.stored is None:
        return
    storage_dtype = TORCH_DTYPES[DType(rule.stored)]
    for dtype in dtypes:
        if dtype is not storage_dtype:
            raise ArgumentError(
                f"the rule {rule.name!r} is for parameters of {storage_dtype}, got {dtype}",
                where=where,
                hint=f"convert the model with .to({storage_dtype}), or leave the transform out",
            )


def check_parameter(parameter: Tensor, first: Tensor, where: str) -> None:
    """Raises ArgumentError for a parameter that the optimizer does not support.

    Args:
        parameter: The parameter.
        first: The first parameter of its optimizer.
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


def check_whole(rule: UpdateRule, group: Mapping[str, Any], index: int, owner: str) -> None:
    """Raises ArgumentError if a rule that is not elementwise gets parts of parameters.

    FullyShardedDataParallel with ``use_orig_params`` gives each process another part of a
    parameter, a plain tensor of one axis.
    """
    if steps_by_shards(rule) and not is_joint(rule):
        return
    for number, param in enumerate(group["params"]):
        if getattr(param, "_fsdp_flattened", False):
            raise ArgumentError(
                f"the rule {rule.name!r} needs whole parameters, and FullyShardedDataParallel has "
                "flattened this one",
                where=f"{owner}, {place(group, index, number)}",
                hint="use fully_shard, whose parameters keep their shape",
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
    numbered_params = [
        (number, param) for number, param in enumerate(group["params"]) if param.grad is not None
    ]
    for number, param in numbered_params:
        if not (is_plain(param.grad) and is_plain(param)):
            spot = f"{owner}, {place(group, index, number)}"
            check_gradient(param, param.grad, spot, may_be_sparse=may_be_sparse)
    return numbered_params


def check_captured(group: Mapping[str, Any], index: int, owner: str) -> None:
    """Raises StateError if a parameter that is trained has no gradient where a step is captured.

    A replay steps the parameters that the captured step has stepped, whatever gradients come later.
    """
    for number, param in enumerate(group["params"]):
        if param.requires_grad and param.grad is None:
            raise StateError(
                "a captured step would leave out a parameter that has no gradient, in all replays",
                where=f"{owner}, {place(group, index, number)}",
                hint="run backward() before the capture, then zero_grad(set_to_none=False); or "
                "freeze the parameter with requires_grad_(False)",
            )


def check_all(
    numbered_params: Sequence[tuple[int, Tensor]], group: Mapping[str, Any], index: int, owner: str
) -> None:
    """Raises ArgumentError if parameters that step together do not all have a gradient."""
    if len(numbered_params) == len(group["params"]):
        return
    lacking = next(number for number, param in enumerate(group["params"]) if param.grad is None)
    raise ArgumentError(
        "this rule steps all parameters together, but one has no gradient",
        where=f"{owner}, {place(group, index, lacking)}",
        hint="give it a gradient of zeros, or leave it out of the optimizer",
    )
