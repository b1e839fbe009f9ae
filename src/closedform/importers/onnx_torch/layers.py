"""Operators that are layers: products, convolutions, pooling, normalisation, attention."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.nn import functional

from closedform.errors import ExportError
from closedform.importers.onnx_torch.values import Call

Tensor = torch.Tensor


def _gemm(call: Call) -> Tensor:
    left, right, added = call.tensor(), call.tensor(1), call.optional(2)
    left = left.T if call.attributes["transA"] else left
    right = right.T if call.attributes["transB"] else right
    alpha, beta = call.attributes["alpha"], call.attributes["beta"]
    if added is not None and alpha == beta == 1:
        return torch.addmm(added, left, right)
    product = left @ right if alpha == 1 else alpha * (left @ right)
    if added is None:
        return product
    return product + (added if beta == 1 else beta * added)


# --- windows -------------------------------------------------------------------------------------


def _windows(call: Call, value: Tensor, kernel: Sequence[int]) -> dict[str, list[int]]:
    """Strides, dilations and the padding at the beginning and at the end of each axis."""
    axes = len(kernel)
    given = call.attributes
    stride = list(given["strides"] or [1] * axes)
    spread = list(given["dilations"] or [1] * axes)
    pads = list(given["pads"] or [0] * 2 * axes)
    automatic = given["auto_pad"].decode()
    if automatic in ("SAME_UPPER", "SAME_LOWER"):
        total = [
            max((-(-int(size) // step) - 1) * step + (width - 1) * wide + 1 - int(size), 0)
            for size, width, step, wide in zip(value.shape[2:], kernel, stride, spread, strict=True)
        ]
        less, more = [n // 2 for n in total], [n - n // 2 for n in total]
        pads = [*less, *more] if automatic == "SAME_UPPER" else [*more, *less]
    elif automatic not in ("NOTSET", "VALID"):
        raise ExportError(f"its auto_pad {automatic!r} is not supported")
    return {
        "stride": stride,
        "dilation": spread,
        "before": pads[:axes],
        "after": pads[axes:],
    }


def _padded(value: Tensor, found: Mapping[str, list[int]], fill: float = 0.0) -> Tensor:
    """The value with its unequal padding."""
    pairs = zip(reversed(found["before"]), reversed(found["after"]), strict=True)
    return functional.pad(value, [pad for pair in pairs for pad in pair], value=fill)


_CONVOLUTIONS = (functional.conv1d, functional.conv2d, functional.conv3d)
_TRANSPOSED = (
    functional.conv_transpose1d,
    functional.conv_transpose2d,
    functional.conv_transpose3d,
)


def _convolution(call: Call) -> Tensor:
    value, weight, bias = call.tensor(), call.tensor(1), call.optional(2)
    found = _windows(call, value, weight.shape[2:])
    padding = found["before"]
    if padding != found["after"]:
        value, padding = _padded(value, found), [0] * len(padding)
    function = _of_axes(_CONVOLUTIONS, value)
    result: Tensor = function(
        value, weight, bias, found["stride"], padding, found["dilation"], call.attributes["group"]
    )
    return result


def _of_axes(functions: Sequence[Callable[..., Tensor]], value: Tensor) -> Callable[..., Tensor]:
    axes = value.dim() - 2
    if not 1 <= axes <= len(functions):
        raise ExportError(f"it has {axes} spatial axes; 1 to {len(functions)} are supported")
    return functions[axes - 1]


def _transposed_convolution(call: Call) -> Tensor:
    call.refuse(auto_pad=b"NOTSET", output_shape=None)
    value, weight, bias = call.tensor(), call.tensor(1), call.optional(2)
    found = _windows(call, value, weight.shape[2:])
    before, after = found["before"], found["after"]
    if before != after:
        raise ExportError(f"its pads must be equal on both sides, got {before} and {after}")
    extra = list(call.attributes["output_padding"] or [0] * len(before))
    function = _of_axes(_TRANSPOSED, value)
    result: Tensor = function(
        value,
        weight,
        bias,
        found["stride"],
        before,
        extra,
        call.attributes["group"],
        found["dilation"],
    )
    return result


_MAXIMA = (functional.max_pool1d, functional.max_pool2d, functional.max_pool3d)
_AVERAGES = (functional.avg_pool1d, functional.avg_pool2d, functional.avg_pool3d)


def _maximum_pool(call: Call) -> Tensor:
    call.refuse(storage_order=0)
    if call.results > 1:
        raise ExportError("the places of its maxima are not supported")
    value, kernel = call.tensor(), list(call.attributes["kernel_shape"])
    found = _windows(call, value, kernel)
    padding = found["before"]
    if padding != found["after"]:
        value, padding = _padded(value, found, float("-inf")), [0] * len(padding)
    result: Tensor = _of_axes(_MAXIMA, value)(
        value,
        kernel,
        found["stride"],
        padding,
        found["dilation"],
        ceil_mode=bool(call.attributes["ceil_mode"]),
    )
    return result


def _average_pool(call: Call) -> Tensor:
    value, kernel = call.tensor(), list(call.attributes["kernel_shape"])
    found = _windows(call, value, kernel)
    if any(spread != 1 for spread in found["dilation"]):
        raise ExportError(f"its dilations are supported as 1, got {found['dilation']}")
    counted, padding = bool(call.attributes["count_include_pad"]), found["before"]
    if padding != found["after"]:
        if not counted:
            raise ExportError("pads that are unequal and not counted are not supported")
        value, padding = _padded(value, found), [0] * len(padding)
    result: Tensor = _of_axes(_AVERAGES, value)(
        value, kernel, found["stride"], padding, bool(call.attributes["ceil_mode"]), counted
    )
    return result


def _global(function: Callable[..., Tensor]) -> Callable[[Call], Tensor]:
    def row(call: Call) -> Tensor:
        value = call.tensor()
        return function(value, list(range(2, value.dim())), keepdim=True)

    return row


_MODES = {
    (b"nearest", b"asymmetric"): ("nearest", None),
    (b"linear", b"half_pixel"): ("linear", False),
    (b"linear", b"pytorch_half_pixel"): ("linear", False),
    (b"linear", b"align_corners"): ("linear", True),
    (b"cubic", b"half_pixel"): ("bicubic", False),
    (b"cubic", b"pytorch_half_pixel"): ("bicubic", False),
    (b"cubic", b"align_corners"): ("bicubic", True),
}


def _resize(call: Call) -> Tensor:
    call.refuse(antialias=0, exclude_outside=0, axes=None, keep_aspect_ratio_policy=b"stretch")
    value = call.tensor()
    given = call.attributes
    key = given["mode"], given["coordinate_transformation_mode"]
    floors = given["nearest_mode"] == b"floor"
    if key not in _MODES or (key[0] == b"nearest" and not floors):
        raise ExportError(f"its mode {' '.join(word.decode() for word in key)} is not supported")
    if key[0] == b"cubic" and given["cubic_coeff_a"] != -0.75:
        raise ExportError(f"its cubic_coeff_a must be -0.75, got {given['cubic_coeff_a']}")
    mode, corners = _MODES[key]
    if mode == "linear":
        mode = {3: "linear", 4: "bilinear", 5: "trilinear"}[value.dim()]
    sizes = call.numbers(3) if call.has(3) else None
    factors = call.numbers(2) if call.has(2) else None
    if sizes:
        chosen: list[Any] = [s if isinstance(s, torch.SymInt) else int(s) for s in sizes[2:]]
        return functional.interpolate(value, size=chosen, mode=mode, align_corners=corners)
    if not factors or any(float(factor) != 1 for factor in factors[:2]):
        raise ExportError("it resizes the first two axes, or to no size")
    wanted = [float(factor) for factor in factors[2:]]
    return functional.interpolate(
        value,
        scale_factor=wanted,
        mode=mode,
        align_corners=corners,
        recompute_scale_factor=False,
    )


# --- normalisation -------------------------------------------------------------------------------


def _batch_norm(call: Call) -> Tensor:
    """Batch normalisation: by the statistics of the batch where it is trained."""
    value, scale, bias, mean, variance = call.tensors()
    return functional.batch_norm(
        value,
        mean,
        variance,
        scale,
        bias,
        training=call.is_training,
        momentum=1 - call.attributes["momentum"],
        eps=call.attributes["epsilon"],
    )


def _instance_norm(call: Call) -> Tensor:
    value, scale, bias = call.tensors()
    eps = call.attributes["epsilon"]
    return functional.instance_norm(value, weight=scale, bias=bias, eps=eps)


def _group_norm(call: Call) -> Tensor:
    value, scale, bias = call.tensors()
    groups, eps = call.attributes["num_groups"], call.attributes["epsilon"]
    if scale.shape[0] != value.shape[1]:  # opset 18 has one scale for each group
        per_group = value.shape[1] // groups
        scale, bias = scale.repeat_interleave(per_group), bias.repeat_interleave(per_group)
    return functional.group_norm(value, groups, scale, bias, eps)


def _layer_norm(call: Call) -> Tensor:
    value, scale, bias = call.tensor(), call.tensor(1), call.optional(2)
    eps, shape = call.attributes["epsilon"], _normalised(call, value)
    if scale.dim() == len(shape) and list(scale.shape) == shape:
        return functional.layer_norm(value, shape, scale, bias, eps)
    result = functional.layer_norm(value, shape, eps=eps) * scale
    return result if bias is None else result + bias


def _rms_norm(call: Call) -> Tensor:
    value, scale = call.tensor(), call.tensor(1)
    shape = _normalised(call, value)
    return functional.rms_norm(value, shape, eps=call.attributes["epsilon"]) * scale


def _normalised(call: Call, value: Tensor) -> list[int]:
    if call.results > 1:
        raise ExportError("its results after the first are not supported")
    return list(value.shape[call.attributes["axis"] :])


def _local_response_norm(call: Call) -> Tensor:
    given = call.attributes
    return functional.local_response_norm(
        call.tensor(), given["size"], given["alpha"], given["beta"], given["bias"]
    )


def _dropout(call: Call) -> Tensor:
    """Dropout: it draws where the file has it in training form."""
    if call.results > 1:
        raise ExportError("its mask is not supported")
    ratio = float(call.number(1, 0.5))
    drops = call.is_training and bool(call.number(2, 0))
    return functional.dropout(call.tensor(), ratio) if drops else call.tensor()


def _attention(call: Call) -> Tensor:
    given = call.attributes
    call.refuse(softcap=0.0, qk_matmul_output_mode=0)
    if call.results > 1 or any(call.has(place) for place in (4, 5, 6)):
        raise ExportError("it has a cache of keys and values, which is not supported")
    query, key, value = call.tensor(), call.tensor(1), call.tensor(2)
    is_flat = query.dim() == 3
    if is_flat:
        counts = given["q_num_heads"], *[given["kv_num_heads"]] * 2
        query, key, value = (
            part.reshape(*part.shape[:2], count, part.shape[2] // count).transpose(1, 2)
            for part, count in zip((query, key, value), counts, strict=True)
        )
    result = functional.scaled_dot_product_attention(
        query,
        key,
        value,
        call.optional(3),
        is_causal=bool(given["is_causal"]),
        scale=given["scale"],
        enable_gqa=query.shape[1] != key.shape[1],
    )
    return result.transpose(1, 2).flatten(2) if is_flat else result


Row = Callable[[Call], Any]

_WINDOWS = {"auto_pad": b"NOTSET", "dilations": None, "pads": None, "strides": None}

LAYERS: Mapping[str, tuple[Row, Mapping[str, Any]]] = {
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
    "BatchNormalization": (_batch_norm, {"epsilon": 1e-5, "momentum": 0.9, "training_mode": 0}),
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
    "Dropout": (_dropout, {"seed": None}),
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
    "Resize": (
        _resize,
        {
            "antialias": 0,
            "axes": None,
            "coordinate_transformation_mode": b"half_pixel",
            "cubic_coeff_a": -0.75,
            "exclude_outside": 0,
            "extrapolation_value": 0.0,
            "keep_aspect_ratio_policy": b"stretch",
            "mode": b"nearest",
            "nearest_mode": b"round_prefer_floor",
        },
    ),
}
"""Rows of operators, with their attributes and defaults."""
