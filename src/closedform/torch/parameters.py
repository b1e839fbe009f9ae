"""Which parameters an optimizer steps."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from closedform.errors import ArgumentError
from closedform.torch.kernels import COMPUTED, check_onnx
from closedform.torch.shards import check_placement

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
