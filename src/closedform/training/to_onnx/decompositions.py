"""Backward operators of torch, in terms of those that its ONNX exporter supports.

Each entry is equivalent to the operator, with operators of the core set.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._decomp import get_decompositions
from torch.onnx.ops import symbolic

from closedform.training.tables import union
from closedform.training.to_onnx.arrays import NARROW
from closedform.training.to_onnx.convolutions import convolution_backward, unconvolve
from closedform.training.to_onnx.elementary import ELEMENTARY
from closedform.training.to_onnx.matrices import MATRICES
from closedform.training.to_onnx.normalisation import NORMALISATION
from closedform.training.to_onnx.onnx_registry import core_decompositions
from closedform.training.to_onnx.operators import ATEN
from closedform.training.to_onnx.random_operators import Draw, random_decompositions
from closedform.training.to_onnx.reductions import in_stages
from closedform.training.to_onnx.scattered_sums import add_at_places
from closedform.training.to_onnx.specials import SPECIALS


def decompositions(draw: Draw) -> dict[Any, Callable[..., Any]]:
    """Returns the decompositions of a training step, by operator: torch's own, and ours.

    Args:
        draw: Gives the numbers of a random operator.
    """
    layers = {
        ATEN.native_layer_norm.default: layer_norm,
        ATEN.mean.dim: in_stages(ATEN.mean.dim),
        ATEN.mean.default: in_stages(ATEN.mean.dim),
        # sum.default is a sum.dim_IntList over all axes. torch 2.13 leaves sums in 16 bits that are
        # outputs of the graph in float32.
        ATEN.sum.dim_IntList: _in_float32(ATEN.sum.dim_IntList, in_stages(ATEN.sum.dim_IntList)),
        ATEN.empty_permuted.default: _zeros,
        ATEN.empty.memory_format: _zeros,
    }
    by_dtype = {
        # onnxruntime 1.31 does not have them in 16 bits.
        ATEN.scatter_add.default: _in_float32(ATEN.scatter_add.default),
        ATEN.index_put.default: _in_float32(ATEN.index_put.default, add_at_places),
        **{operator: _only_float64(operator) for operator in _WITH_ATTRIBUTES},
        ATEN.addmm.default: _addmm,
        ATEN.baddbmm.default: _only_float64(ATEN.baddbmm.default, needs_options=True),
    }
    tables = (ELEMENTARY, MATRICES, SPECIALS, NORMALISATION, layers, by_dtype, _BACKWARD)
    return core_decompositions() | union(*tables, random_decompositions(draw))


def _zeros(size: Any, *_: Any, dtype: Any = None, **__: Any) -> torch.Tensor:
    """Memory that is overwritten."""
    return torch.zeros(size, dtype=dtype)


_LAYER_NORM = get_decompositions([ATEN.native_layer_norm])[ATEN.native_layer_norm.default]


def layer_norm(value: torch.Tensor, *arguments: Any) -> Any:
    """Returns the layer norm with its mean and scale in the dtype of the value, as torch has them.

    ONNX's operator returns these two in float32; for float32 it is used itself.
    """
    # NotImplemented: torch.export keeps the operator, for which ONNX has LayerNormalization.
    if value.dtype is torch.float32:
        return NotImplemented
    return _LAYER_NORM(value, *arguments)


_LAYER_NORM_BACKWARD = get_decompositions([ATEN.native_layer_norm_backward])[
    ATEN.native_layer_norm_backward.default
]


def layer_norm_backward(
    grad: torch.Tensor,
    value: torch.Tensor,
    normalized_shape: Sequence[int],
    mean: torch.Tensor,
    deviation: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    output_mask: list[bool],
) -> Any:
    """Returns the gradients of a layer norm in its input, weight and bias.

    With r = 1/σ, c = x − μ, g the gradient, and sums over the d entries of a row,

        ∂x = r·(w·g − Σwg/d − c·r²·Σwgc/d),   ∂w = Σ r·g·c over rows,   ∂b = Σ g over rows

    The sums with weights are products with a vector, which need no weighted copies.
    """
    if value.dtype in NARROW or weight is None or not output_mask[0]:
        arguments = grad, value, normalized_shape, mean, deviation, weight, bias, output_mask
        return _LAYER_NORM_BACKWARD(*arguments)
    width = math.prod(normalized_shape)
    rows = math.prod(value.shape[: value.dim() - len(normalized_shape)])
    rate, column = deviation.reshape(rows, 1), weight.reshape(width, 1)
    # A tensor in the dtype of the value: a number of Python would be a float32 constant in ONNX.
    per_entry = torch.tensor(1 / width, dtype=value.dtype)
    grad = grad.reshape(rows, width)
    centred_value = value.reshape(rows, width) - mean.reshape(rows, 1)
    product = grad * centred_value
    slope = (product @ column) * (rate * rate * per_entry)
    offset = (grad @ column) * per_entry
    in_value = rate * (grad * weight.reshape(width) - offset - centred_value * slope)
    return (
        in_value.reshape(value.shape),
        (rate.reshape(1, rows) @ product).reshape(weight.shape) if output_mask[1] else None,
        grad.sum(0).reshape(weight.shape) if output_mask[2] else None,
    )


_GELU_BACKWARD = get_decompositions([ATEN.gelu_backward])[ATEN.gelu_backward.default]


def gelu_backward(grad: torch.Tensor, value: torch.Tensor, approximate: str = "none") -> Any:
    """Returns g·(Φ(x) + x·φ(x)), with Φ(x) = (1 + erf u)/2 and x·φ(x) = u/(√π·exp u²), u = x/√2.

    An infinite exp u² gives 0. ONNX's ``HardSigmoid`` is αx + β limited to [0, 1], as Φ is.
    """
    if approximate != "none" or value.dtype is not torch.float32:
        return _GELU_BACKWARD(grad, value, approximate=approximate)
    # One multiplication: onnxruntime's Gelu and Erf have u as argument, too.
    erf_argument = value * math.sqrt(0.5)
    below = symbolic(
        "HardSigmoid",
        [torch.erf(erf_argument)],
        {"alpha": 0.5, "beta": 0.5},
        dtype=value.dtype,
        shape=value.shape,
    )
    # A quotient instead of u·exp(-u²), whose negation is one more pass over the tensor.
    density = erf_argument / torch.exp(erf_argument * erf_argument)
    return grad * (below + density * (1 / math.sqrt(math.pi)))


def hardtanh_backward(
    grad: torch.Tensor, value: torch.Tensor, low: float, high: float
) -> torch.Tensor:
    """Returns the gradient of a limit (ReLU6), where its result is between the bounds.

    The condition is on the result of the forward, which the next operator keeps, not on the
    input, which is freed.
    At NaN the gradient passes, as in torch.
    """
    result = ATEN.hardtanh.default(value, low, high)
    return torch.where((result <= low) | (result >= high), 0.0, grad)


def hardsigmoid_backward(grad: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Returns g/6 where |x| < 3, with torch's sixth: its kernel has that of float32 in float64."""
    sixth = torch.tensor(1 / 6, dtype=torch.float32).item()
    return torch.where((value > -3) & (value < 3), grad * sixth, 0.0)


def _keep(*_: Any, **__: Any) -> Any:
    """Leaves an operator as it is."""
    return NotImplemented


def _in_float32(operator: Any, of_wide: Callable[..., Any] = _keep) -> Callable[..., Any]:
    """An operator that computes tensors of 16 bits in float32 and rounds once.

    Args:
        operator: The operator.
        of_wide: Its decomposition for tensors of the other dtypes.
    """

    def wide(value: Any) -> Any:
        is_narrow = isinstance(value, torch.Tensor) and value.dtype in NARROW
        return value.float() if is_narrow else value

    def compute(value: torch.Tensor, *arguments: Any, **options: Any) -> Any:
        if value.dtype not in NARROW or options:
            return of_wide(value, *arguments, **options)
        return operator(value.float(), *map(wide, arguments)).to(value.dtype)

    return compute


def _addmm(value: torch.Tensor, first: torch.Tensor, second: torch.Tensor, **factors: Any) -> Any:
    """Returns β·C where the matrices share an axis of size 0, which onnxruntime 1.31 leaves out."""
    size = first.shape[1]
    if not isinstance(size, int) or size:
        return _ADDMM_IN_FLOAT64(value, first, second, **factors)
    shape = first.shape[0], second.shape[1]
    beta = factors.get("beta", 1)
    return (value * beta).expand(shape) if beta else torch.zeros(shape, dtype=value.dtype)


def _only_float64(operator: Any, *, needs_options: bool = False) -> Callable[..., Any]:
    """The decomposition of an operator by torch, for tensors in float64.

    Args:
        operator: The operator.
        needs_options: Whether it is exported as it is without keyword arguments.
    """
    formula = get_decompositions([operator])[operator]

    def compute(value: torch.Tensor, *arguments: Any, **options: Any) -> Any:
        if value.dtype is not torch.float64 or (needs_options and not options):
            return NotImplemented
        return formula(value, *arguments, **options)

    return compute


_WITH_ATTRIBUTES = (
    ATEN.leaky_relu.default,
    ATEN.elu.default,
    ATEN.hardtanh.default,
    ATEN.hardsigmoid.default,
    ATEN.hardswish.default,
    ATEN.softplus.default,
    ATEN.clamp.default,
    ATEN.clamp_min.default,
    ATEN.clamp_max.default,
)
"""Operators whose numbers are attributes in ONNX, which are float32, or constants that torch's
exporter has in float32; onnxruntime 1.31 has LeakyRelu and Elu for float32 only."""

_ADDMM_IN_FLOAT64 = _only_float64(ATEN.addmm.default, needs_options=True)


def max_pool2d_backward(
    grad: torch.Tensor,
    value: torch.Tensor,
    kernel_size: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    ceil_mode: bool,
    indices: torch.Tensor,
) -> torch.Tensor:
    """Returns the gradient of a maximum pooling: it goes to the position of the maximum."""
    del kernel_size, stride, padding, dilation, ceil_mode
    flat = torch.zeros_like(value).flatten(-2)
    # Windows overlap where the stride is below the kernel: a maximum may get several gradients.
    spread = flat.scatter_add(-1, indices.flatten(-2), grad.flatten(-2))
    return spread.view(value.shape)


def avg_pool2d_backward(
    grad: torch.Tensor,
    value: torch.Tensor,
    kernel_size: list[int],
    stride: list[int],
    padding: list[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> torch.Tensor:
    """Returns the gradient of an average pooling: a transposed convolution with a constant kernel.

    Windows have equal counts: ``forms`` has the others.
    """
    del ceil_mode, count_include_pad
    height, width = kernel_size if len(kernel_size) == 2 else kernel_size * 2
    step = [height, width] if not stride else (stride if len(stride) == 2 else stride * 2)
    pad = padding if len(padding) == 2 else (padding or [0]) * 2
    # One group for each channel: channels are averaged separately.
    channels = value.shape[1]
    share = 1 / (divisor_override or height * width)
    kernel = torch.full((channels, 1, height, width), share, dtype=grad.dtype)
    return unconvolve(grad, kernel, value, (list(step), list(pad), [1, 1], channels))


_BACKWARD: Mapping[Any, Callable[..., Any]] = {
    ATEN.convolution_backward.default: convolution_backward,
    ATEN.gelu_backward.default: gelu_backward,
    ATEN.hardtanh_backward.default: hardtanh_backward,
    ATEN.hardsigmoid_backward.default: hardsigmoid_backward,
    ATEN.native_layer_norm_backward.default: layer_norm_backward,
    ATEN.max_pool2d_with_indices_backward.default: max_pool2d_backward,
    ATEN.avg_pool2d_backward.default: avg_pool2d_backward,
}
