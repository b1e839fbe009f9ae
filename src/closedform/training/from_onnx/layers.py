"""Operators that are layers: products, convolutions, pooling, normalisation, attention."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.nn import functional

from closedform.errors import TrainingExportError
from closedform.training.from_onnx.values import ANOTHER_SOURCE, NodeCall, OperatorFunction

Tensor = torch.Tensor


def _gemm(call: NodeCall) -> Tensor:
    left, right, addend = call.tensor(), call.tensor(1), call.optional(2)
    left = left.T if call.attributes["transA"] else left
    right = right.T if call.attributes["transB"] else right
    alpha, beta = call.attributes["alpha"], call.attributes["beta"]
    if addend is not None and alpha == beta == 1:
        return torch.addmm(addend, left, right)
    product = left @ right if alpha == 1 else alpha * (left @ right)
    if addend is None:
        return product
    return product + (addend if beta == 1 else beta * addend)


# --- windows -------------------------------------------------------------------------------------


def _windows(call: NodeCall, value: Tensor, kernel: Sequence[int]) -> dict[str, list[int]]:
    """Strides, dilations and the padding at the beginning and at the end of each axis."""
    axes = len(kernel)
    attributes = call.attributes
    stride = list(attributes["strides"] or [1] * axes)
    spread = list(attributes["dilations"] or [1] * axes)
    pads = list(attributes["pads"] or [0] * 2 * axes)
    automatic = attributes["auto_pad"].decode()
    if automatic in ("SAME_UPPER", "SAME_LOWER"):
        total = [
            # ceil(size / step) windows, as ONNX defines SAME; independent of the size for step 1.
            torch.sym_max(((size - 1) // step) * step + (width - 1) * wide + 1 - size, 0)
            if step > 1
            else (width - 1) * wide
            for size, width, step, wide in zip(value.shape[2:], kernel, stride, spread, strict=True)
        ]
        # SAME_UPPER puts the odd one at the end, SAME_LOWER at the beginning.
        less, more = [n // 2 for n in total], [n - n // 2 for n in total]
        pads = [*less, *more] if automatic == "SAME_UPPER" else [*more, *less]
    elif automatic not in ("NOTSET", "VALID"):
        raise _unknown_padding(automatic)
    return {
        "stride": stride,
        "dilation": spread,
        "before": pads[:axes],
        "after": pads[axes:],
    }


def _is_unequal(windows: Mapping[str, list[int]]) -> bool:
    """Whether the padding is not one number on both sides of each axis."""
    pads = windows["before"] + windows["after"]
    return (
        any(isinstance(pad, torch.SymInt) for pad in pads) or windows["before"] != windows["after"]
    )


def _pad_unequally(value: Tensor, windows: Mapping[str, list[int]], fill: float = 0.0) -> Tensor:
    """The value with its unequal padding."""
    # torch lists the padding from the last axis on.
    pairs = zip(reversed(windows["before"]), reversed(windows["after"]), strict=True)
    return functional.pad(value, [pad for pair in pairs for pad in pair], value=fill)


_CONVOLUTIONS = (functional.conv1d, functional.conv2d, functional.conv3d)
_TRANSPOSED = (
    functional.conv_transpose1d,
    functional.conv_transpose2d,
    functional.conv_transpose3d,
)


def _convolution(call: NodeCall) -> Tensor:
    value, weight, bias = call.tensor(), call.tensor(1), call.optional(2)
    windows = _windows(call, value, weight.shape[2:])
    padding = windows["before"]
    if _is_unequal(windows):
        value, padding = _pad_unequally(value, windows), [0] * len(padding)
    function = _of_axes(_CONVOLUTIONS, value)
    result: Tensor = function(
        value,
        weight,
        bias,
        windows["stride"],
        padding,
        windows["dilation"],
        call.attributes["group"],
    )
    return result


def _unknown_padding(automatic: str) -> TrainingExportError:
    return TrainingExportError(
        f"its auto_pad must be NOTSET, VALID, SAME_UPPER or SAME_LOWER, got {automatic!r}",
        hint="write its padding as the attribute pads",
    )


def _of_axes(functions: Sequence[Callable[..., Tensor]], value: Tensor) -> Callable[..., Tensor]:
    axes = value.dim() - 2
    if not 1 <= axes <= len(functions):
        raise TrainingExportError(
            f"it has {axes} spatial axes; 1 to {len(functions)} are supported", hint=ANOTHER_SOURCE
        )
    return functions[axes - 1]


def _transposed_convolution(call: NodeCall) -> Tensor:
    """A transposed convolution without padding, of which the padding is cut off."""
    value, weight, bias = call.tensor(), call.tensor(1), call.optional(2)
    axes = value.dim() - 2
    attributes = call.attributes
    stride, spread = (list(attributes[name] or [1] * axes) for name in ("strides", "dilations"))
    extra = list(attributes["output_padding"] or [0] * axes)
    before, after = _cut(call, value, weight, stride, spread, extra)
    is_symmetric = before == after
    function = _of_axes(_TRANSPOSED, value)
    result: Tensor = function(
        value,
        weight,
        bias,
        stride,
        # torch cuts the same on both sides only; else the whole result is computed and cut.
        before if is_symmetric else [0] * axes,
        extra,
        attributes["group"],
        spread,
    )
    for axis, (first, last) in enumerate(zip(before, after, strict=True), 2):
        if not is_symmetric:
            result = result.narrow(axis, first, result.shape[axis] - first - last)
    return result


def _cut(
    call: NodeCall,
    value: Tensor,
    weight: Tensor,
    stride: Sequence[int],
    spread: Sequence[int],
    extra: Sequence[int],
) -> tuple[list[int], list[int]]:
    """The padding that is cut off at the beginning and at the end of each axis."""
    attributes = call.attributes
    axes, automatic = len(stride), attributes["auto_pad"].decode()
    output_shape = attributes["output_shape"]
    if output_shape is None and automatic in ("NOTSET", "VALID"):
        pads = list(attributes["pads"] or [0] * 2 * axes)
        return pads[:axes], pads[axes:]
    if automatic not in ("NOTSET", "SAME_LOWER", "SAME_UPPER"):
        raise _unknown_padding(automatic)
    before = []
    for axis in range(axes):
        length = int(value.shape[2 + axis])
        # Without output_shape, SAME means length · stride.
        size = length * stride[axis] if output_shape is None else output_shape[axis - axes]
        width = (weight.shape[2 + axis] - 1) * spread[axis] + 1
        # ONNX: total_padding = stride·(n − 1) + output_padding + kernel − output_shape (onnx.defs,
        # ConvTranspose).
        total = stride[axis] * (length - 1) + width + extra[axis] - size
        if total % 2 or total < 0:
            # onnxruntime 1.31 does not cut as the standard says where the halves differ.
            raise TrainingExportError(
                f"its padding of {total} in all is not the same on both sides",
                hint="write its padding as the attribute pads",
            )
        before.append(total // 2)
    return before, list(before)


_MAXIMA = (functional.max_pool1d, functional.max_pool2d, functional.max_pool3d)
_AVERAGES = (functional.avg_pool1d, functional.avg_pool2d, functional.avg_pool3d)


def _maximum_pool(call: NodeCall) -> Tensor:
    call.refuse(storage_order=0)
    value, kernel = call.tensor(), list(call.attributes["kernel_shape"])
    windows = _windows(call, value, kernel)
    padding = windows["before"]
    if _is_unequal(windows):
        # −∞ never is the maximum, and gets no gradient.
        value, padding = _pad_unequally(value, windows, float("-inf")), [0] * len(padding)
    result: Tensor = _of_axes(_MAXIMA, value)(
        value,
        kernel,
        windows["stride"],
        padding,
        windows["dilation"],
        ceil_mode=bool(call.attributes["ceil_mode"]),
    )
    return result


def _average_pool(call: NodeCall) -> Tensor:
    value, kernel = call.tensor(), list(call.attributes["kernel_shape"])
    windows = _windows(call, value, kernel)
    if any(spread != 1 for spread in windows["dilation"]):
        raise TrainingExportError(
            f"its dilations are supported as 1, got {windows['dilation']}",
            hint="write it as a Conv with equal weights, or " + ANOTHER_SOURCE,
        )
    counts_padding, is_ceil = (
        bool(call.attributes["count_include_pad"]),
        call.attributes["ceil_mode"],
    )
    # torch pads both sides of an axis alike.
    function = _of_axes(_AVERAGES, value)

    def average(tensor: Tensor, padding: list[int]) -> Tensor:
        result: Tensor = function(
            tensor, kernel, windows["stride"], padding, bool(is_ceil), counts_padding
        )
        return result

    none = [0] * len(kernel)
    if not _is_unequal(windows):
        return average(value, windows["before"])
    if counts_padding:
        return average(_pad_unequally(value, windows), none)
    # The part of each window that is not padding.
    # Without count_include_pad the divisor is the number of values: the mean over zeros is divided
    # by the share of the window inside.
    part = average(_pad_unequally(torch.ones_like(value[:1, :1]), windows), none)
    return average(_pad_unequally(value, windows), none) / part


def _global(function: Callable[..., Tensor]) -> Callable[[NodeCall], Tensor]:
    def row(call: NodeCall) -> Tensor:
        value = call.tensor()
        return function(value, list(range(2, value.dim())), keepdim=True)

    return row


# --- normalisation -------------------------------------------------------------------------------


def _batch_norm(call: NodeCall) -> Tensor:
    """Batch normalisation: by the statistics of the batch where it is trained."""
    # spatial=0 of opsets below 9 normalises each place by itself.
    call.refuse(spatial=1)
    value, scale, bias, mean, variance = call.tensors()
    return functional.batch_norm(
        value,
        mean,
        variance,
        scale,
        bias,
        training=call.is_training,
        # ONNX weights the running statistics by momentum, torch the new ones.
        momentum=1 - call.attributes["momentum"],
        eps=call.attributes["epsilon"],
    )


def _instance_norm(call: NodeCall) -> Tensor:
    value, scale, bias = call.tensors()
    eps = call.attributes["epsilon"]
    return functional.instance_norm(value, weight=scale, bias=bias, eps=eps)


def _group_norm(call: NodeCall) -> Tensor:
    value, scale, bias = call.tensors()
    groups, eps = call.attributes["num_groups"], call.attributes["epsilon"]
    if scale.shape[0] != value.shape[1]:  # opset 18 has one scale for each group
        per_group = value.shape[1] // groups
        scale, bias = scale.repeat_interleave(per_group), bias.repeat_interleave(per_group)
    return functional.group_norm(value, groups, scale, bias, eps)


def _layer_norm(call: NodeCall) -> Tensor:
    value, scale, bias = call.tensor(), call.tensor(1), call.optional(2)
    eps, shape = call.attributes["epsilon"], _normalized_shape(call, value)
    # The scale may broadcast, such as one number for all.
    if scale.dim() == len(shape) and list(scale.shape) == shape:
        return functional.layer_norm(value, shape, scale, bias, eps)
    result = functional.layer_norm(value, shape, eps=eps) * scale
    return result if bias is None else result + bias


# The scale is applied apart: torch's rms_norm wants its full shape, ONNX broadcasts it.
def _rms_norm(call: NodeCall) -> Tensor:
    value, scale = call.tensor(), call.tensor(1)
    shape = _normalized_shape(call, value)
    return functional.rms_norm(value, shape, eps=call.attributes["epsilon"]) * scale


def _normalized_shape(call: NodeCall, value: Tensor) -> list[int]:
    return list(value.shape[call.attributes["axis"] :])


def _local_response_norm(call: NodeCall) -> Tensor:
    attributes = call.attributes
    return functional.local_response_norm(
        call.tensor(),
        attributes["size"],
        attributes["alpha"],
        attributes["beta"],
        attributes["bias"],
    )


def _dropout(call: NodeCall) -> Tensor | tuple[Tensor, Tensor]:
    """Dropout: it draws where the file has it in training form."""
    # training_mode is the operand 2 from opset 12 on.
    if call.is_training and bool(call.number(2, 0)):
        return functional.dropout(call.tensor(), float(call.number(1, 0.5)))
    return call.tensor(), torch.ones_like(call.tensor(), dtype=torch.bool)


def _attention(call: NodeCall) -> Tensor:
    attributes = call.attributes
    call.refuse(softcap=0.0, qk_matmul_output_mode=0)
    # Operands 4 to 6 are past_key, past_value and nonpad_kv_seqlen.
    if any(call.has(place) for place in (4, 5, 6)):
        raise TrainingExportError(
            "it has a cache of keys and values, which is not supported",
            hint="export the model for whole sequences, with use_cache=False",
        )
    query, key, value = call.tensor(), call.tensor(1), call.tensor(2)
    is_flat = query.dim() == 3
    if is_flat:
        counts = attributes["q_num_heads"], *[attributes["kv_num_heads"]] * 2
        # (batch, sequence, heads · size), as of ONNX's Attention with three axes.
        query, key, value = (
            part.reshape(*part.shape[:2], count, part.shape[2] // count).transpose(1, 2)
            for part, count in zip((query, key, value), counts, strict=True)
        )
    result = functional.scaled_dot_product_attention(
        query,
        key,
        value,
        call.optional(3),
        is_causal=bool(attributes["is_causal"]),
        scale=attributes["scale"],
        # Fewer heads of keys than of queries: each is read by several (grouped queries).
        enable_gqa=query.shape[1] != key.shape[1],
    )
    return result.transpose(1, 2).flatten(2) if is_flat else result


_WINDOWS = {"auto_pad": b"NOTSET", "dilations": None, "pads": None, "strides": None}

LAYERS: Mapping[str, tuple[OperatorFunction, Mapping[str, Any]]] = {
    "Attention": (
        _attention,
        {
            "is_causal": 0,
            "kv_num_heads": None,
            "q_num_heads": None,
            "qk_matmul_output_mode": 0,
            "scale": None,
            "softcap": 0.0,
            "softmax_precision": None,
        },
    ),
    "AveragePool": (
        _average_pool,
        {**_WINDOWS, "ceil_mode": 0, "count_include_pad": 0, "kernel_shape": None},
    ),
    "BatchNormalization": (
        _batch_norm,
        {"epsilon": 1e-5, "momentum": 0.9, "spatial": 1, "training_mode": 0},
    ),
    "Conv": (_convolution, {**_WINDOWS, "group": 1, "kernel_shape": None}),
    "ConvTranspose": (
        _transposed_convolution,
        {
            **_WINDOWS,
            "group": 1,
            "kernel_shape": None,
            "output_padding": None,
            "output_shape": None,
        },
    ),
    "Dropout": (_dropout, {"ratio": 0.5, "seed": None}),
    "Gemm": (_gemm, {"alpha": 1.0, "beta": 1.0, "transA": 0, "transB": 0}),
    "GlobalAveragePool": (_global(torch.mean), {}),
    "GlobalMaxPool": (_global(torch.amax), {}),
    "GroupNormalization": (_group_norm, {"epsilon": 1e-5, "num_groups": None, "stash_type": 1}),
    "InstanceNormalization": (_instance_norm, {"epsilon": 1e-5}),
    "LRN": (_local_response_norm, {"alpha": 1e-4, "beta": 0.75, "bias": 1.0, "size": None}),
    "LayerNormalization": (_layer_norm, {"axis": -1, "epsilon": 1e-5, "stash_type": 1}),
    "MatMul": (lambda call: torch.matmul(call.tensor(), call.tensor(1)), {}),
    "MaxPool": (
        _maximum_pool,
        {**_WINDOWS, "ceil_mode": 0, "kernel_shape": None, "storage_order": 0},
    ),
    "RMSNormalization": (_rms_norm, {"axis": -1, "epsilon": 1e-5, "stash_type": 1}),
}
"""Rows of operators, with their attributes and defaults."""
