"""Which parameters an optimizer steps: those it accepts, and those that have a gradient."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from closedform.errors import ArgumentError
from closedform.torch.base import place
from closedform.torch.distributed.shards import check_gradient, check_placement, is_plain
from closedform.torch.engine.kernels import COMPUTED, check_onnx

_ACCEPTED = f"dtypes are {', '.join(str(dtype) for dtype in COMPUTED)}"


def check_parameter(
    parameter: Tensor,
    first: Tensor,
    backend: str,
    providers: Sequence[str] | None,
    where: str,
) -> None:
    """Raises ArgumentError for a parameter that cannot be stepped.

    Args:
        parameter: The parameter.
        first: The first parameter of its optimizer.
        backend: One of ``BACKENDS``.
        providers: Those of onnxruntime.
        where: For errors.
    """
    if parameter.dtype not in COMPUTED:
        kind = "complex" if parameter.is_complex() else str(parameter.dtype)
        raise ArgumentError(
            f"a parameter must be a real floating-point tensor, got {kind}",
            where=where,
            hint=_ACCEPTED,
        )
    if parameter.device != first.device:
        raise ArgumentError(
            f"all parameters must be on one device, got {parameter.device} after {first.device}",
            where=where,
            hint="make an optimizer for each device",
        )
    check_placement(parameter, where)
    if backend == "onnxruntime":
        check_onnx(parameter, providers, where)


def with_gradients(group: Mapping[str, Any], index: int, owner: str) -> list[tuple[int, Tensor]]:
    """Returns the parameters of a group that have a gradient, and their places.

    Args:
        group: The group.
        index: Its place.
        owner: The class of the optimizer, for errors.

    Raises:
        ArgumentError: A gradient is sparse, or not spread as its parameter is.
    """
    found = [
        (number, param) for number, param in enumerate(group["params"]) if param.grad is not None
    ]
    for number, param in found:
        if not (is_plain(param.grad) and is_plain(param)):
            check_gradient(param, param.grad, f"{owner}, {place(group, index, number)}")
    return found


def check_all(
    found: Sequence[tuple[int, Tensor]], group: Mapping[str, Any], index: int, owner: str
) -> None:
    """Raises ArgumentError where only some parameters have a gradient that step together."""
    if len(found) == len(group["params"]):
        return
    lacking = next(number for number, one in enumerate(group["params"]) if one.grad is None)
    raise ArgumentError(
        "all parameters step together in this rule, and one has no gradient",
        where=f"{owner}, {place(group, index, lacking)}",
        hint="give it a gradient of zeros, or leave it out of the optimizer",
    )
