"""Batch normalisation with the statistics of the batch, and its backward, in few operators."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch._decomp import get_decompositions
from torch.onnx.ops import symbolic

from closedform.training.to_onnx.arrays import NARROW
from closedform.training.to_onnx.operators import ATEN

Tensor = torch.Tensor

_OF_TORCH: Mapping[Any, Callable[..., Any]] = get_decompositions(
    [
        ATEN._native_batch_norm_legit,
        ATEN._native_batch_norm_legit_functional,
        ATEN.native_batch_norm,
        ATEN.native_batch_norm_backward,
    ]
)


def _affine(
    value: Tensor, scale: Tensor, shift: Tensor | None, variance: Tensor | None = None
) -> Tensor:
    """scale·value/√variance + shift for each channel: one operator of ONNX.

    It has no mean, since the difference of a value and a mean is rounded less. In its training
    mode, onnxruntime 1.31 writes the statistics over its inputs, even over constants.
    """
    zeros, units = torch.zeros_like(scale), torch.ones_like(scale)
    result: Tensor = symbolic(
        "BatchNormalization",
        [
            value,
            scale,
            zeros if shift is None else shift,
            zeros,
            units if variance is None else variance,
        ],
        {"epsilon": 0.0},  # any other would be rounded to float32
        dtype=value.dtype,
        shape=value.shape,
    )
    return result


def _around(numbers: Tensor, value: Tensor) -> Tensor:
    """The number of each channel, in a shape that is broadcast to that of the values."""
    return numbers.reshape([1, -1] + [1] * (value.dim() - 2))


def batch_norm(
    value: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    """Returns the normalised values, mean and inverse deviation, and the running statistics."""
    if not training or value.dtype in NARROW:
        legit = _OF_TORCH[ATEN._native_batch_norm_legit_functional.default]
        return legit(value, weight, bias, running_mean, running_var, training, momentum, eps)
    axes = [0, *range(2, value.dim())]
    mean = value.mean(axes)
    centred_value = value - _around(mean, value)
    variance = (centred_value * centred_value).mean(axes)
    # As tensors, since the exporter rounds numbers to float32.
    new, old, more = (torch.tensor(n, dtype=mean.dtype) for n in (momentum, 1 - momentum, eps))
    variance_and_eps = variance + more
    scale = torch.ones_like(mean) if weight is None else weight
    result = _affine(centred_value, scale, bias, variance_and_eps)
    if running_mean is not None:
        running_mean = new * mean + old * running_mean
    if running_var is not None:
        count = torch.scalar_tensor(_count(value), dtype=value.dtype)
        # torch normalises by the biased variance, and keeps the unbiased one.
        unbiased_variance = variance * (count / (count - 1))
        running_var = new * unbiased_variance + old * running_var
    return result, mean, torch.rsqrt(variance_and_eps), running_mean, running_var


def _count(value: Tensor) -> Any:
    """The number of values of a channel."""
    return value.shape[0] * math.prod(value.shape[2:])


def _in_place(
    value: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    """The same, with running statistics that are written to."""
    arguments = value, weight, bias, running_mean, running_var, training, momentum, eps
    *results, mean, variance = batch_norm(*arguments)
    if training and running_mean is not None and running_var is not None:
        running_mean.copy_(mean)
        running_var.copy_(variance)
    return tuple(results)


def _without_statistics(
    value: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    return batch_norm(value, weight, bias, None, None, training, momentum, eps)[:3]


def batch_norm_backward(
    grad: Tensor,
    value: Tensor,
    weight: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    mean: Tensor | None,
    deviation: Tensor | None,
    train: bool,
    eps: float,
    output_mask: list[bool],
) -> Any:
    """Returns the gradients of a batch normalisation in its input, weight and bias.

    With r = 1/σ, g the gradient, and sums over the n values of a channel,

        ∂x = w·r·g + b·(x − μ) + c,   b = −w·r³·Σg(x − μ)/n,   c = −w·r·Σg/n

    which is one product with the values, and one affine function of each channel.
    """
    if not train or value.dtype in NARROW or mean is None or deviation is None:
        backward = _OF_TORCH[ATEN.native_batch_norm_backward.default]
        arguments = grad, value, weight, running_mean, running_var, mean, deviation, train
        return backward(*arguments, eps, output_mask)
    axes = [0, *range(2, value.dim())]
    count = torch.scalar_tensor(_count(value), dtype=value.dtype)
    centred_value = value - _around(mean, value)
    total, product = grad.sum(axes), (grad * centred_value).sum(axes)
    in_value = None
    if output_mask[0]:
        scale = deviation if weight is None else deviation * weight
        slope = -scale * deviation * deviation * product / count
        offset = -scale * total / count
        in_value = grad * _around(scale, value) + _affine(centred_value, slope, offset)
    return (
        in_value,
        product * deviation if output_mask[1] else None,
        total if output_mask[2] else None,
    )


NORMALISATION: Mapping[Any, Callable[..., Any]] = {
    ATEN._native_batch_norm_legit_functional.default: batch_norm,
    ATEN._native_batch_norm_legit.default: _in_place,
    ATEN._native_batch_norm_legit.no_stats: _without_statistics,
    ATEN.native_batch_norm.default: _in_place,
    ATEN.native_batch_norm_backward.default: batch_norm_backward,
}
"""Decompositions by operator."""
