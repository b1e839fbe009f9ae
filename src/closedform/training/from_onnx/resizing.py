"""Resize and Upsample: values of images between pixels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from closedform.errors import TrainingExportError
from closedform.training.from_onnx.sizes import Quotient
from closedform.training.from_onnx.values import NodeCall

Tensor = torch.Tensor
Floats = NDArray[np.float32]

_MODES = {
    # torch's "nearest" takes floor(i·n/m), which ONNX names asymmetric and floor.
    ("nearest", "asymmetric", "floor"): ("nearest", None),
    ("linear", "half_pixel", ""): ("linear", False),
    ("linear", "pytorch_half_pixel", ""): ("linear", False),
    ("linear", "align_corners", ""): ("linear", True),
    ("cubic", "half_pixel", ""): ("bicubic", False),
    ("cubic", "pytorch_half_pixel", ""): ("bicubic", False),
    ("cubic", "align_corners", ""): ("bicubic", True),
}
"""Modes of torch, which has them for free sizes, too."""

_WHOLE = frozenset(
    {
        *product(("half_pixel", "pytorch_half_pixel"), ("round_prefer_ceil", "round_prefer_floor")),
        ("tf_half_pixel_for_nn", "floor"),
    }
)
"""Places and roundings that, for a whole factor k, give the pixel floor(i/k) for the result i."""

LAST_WITHOUT_MODES = 10
"""The last opset whose resizing has neither a coordinate transformation nor a nearest mode."""


def _resize(call: NodeCall) -> Tensor:
    attributes = call.attributes
    if call.version <= LAST_WITHOUT_MODES:
        return _old(call)
    call.refuse(antialias=0, exclude_outside=0, axes=None, keep_aspect_ratio_policy=b"stretch")
    mode, places, nearest = (
        attributes[name].decode()
        for name in ("mode", "coordinate_transformation_mode", "nearest_mode")
    )
    # Keys' kernel: -0.75 in torch and OpenCV, -0.5 in the paper of 1981 and in Pillow.
    if mode == "cubic" and attributes["cubic_coeff_a"] != -0.75:
        raise TrainingExportError(
            f"its cubic_coeff_a must be -0.75, got {attributes['cubic_coeff_a']}",
            hint="export the model with -0.75, the coefficient of torch, or with mode linear",
        )
    sizes = call.numbers(3) if call.has(3) else None
    return _interpolate(
        call, call.numbers(2) if call.has(2) else None, sizes, (mode, places, nearest)
    )


def _old(call: NodeCall) -> Tensor:
    """Opsets 7 to 10: factors, and places that begin at the first pixel."""
    attributes = call.attributes
    factors = call.numbers(1) if call.has(1) else list(attributes["scales"] or ())
    mode = attributes["mode"].decode()
    if mode == "nearest" and any(float(factor) < 1 for factor in factors or ()):
        raise TrainingExportError(
            "a nearest mode that makes images smaller is not supported in its opset",
            hint="export the model for opset 11 or later",
        )
    return _interpolate(call, factors, None, (mode, "asymmetric", "floor"))


def _interpolate(
    call: NodeCall, factors: list[Any] | None, sizes: list[Any] | None, key: tuple[str, str, str]
) -> Tensor:
    value = call.tensor()
    mode, places, nearest = key
    is_of_images = True
    if sizes:
        new_sizes: list[Any] = [
            size if isinstance(size, torch.SymInt) else int(size) for size in sizes
        ]
        is_of_images = all(
            isinstance(size, torch.SymInt) or size == length
            for size, length in zip(new_sizes[:2], value.shape[:2], strict=True)
        )
    elif factors:
        if any(isinstance(factor, Quotient | torch.SymInt) for factor in factors):
            raise TrainingExportError(
                "its factors depend on a free size", hint="leave that size out of dynamic_axes"
            )
        factors = [float(factor) for factor in factors]
        is_of_images = factors[:2] == [1, 1]
        is_whole = all(factor == int(factor) for factor in factors)
        # (i + 0.5)/k is in the pixel floor(i/k), and less than half a pixel from its middle.
        if mode == "nearest" and is_whole and (places, nearest) in _WHOLE:
            key = "nearest", "asymmetric", "floor"
    if not (sizes or factors) or not is_of_images:
        raise TrainingExportError(
            "it resizes the first two axes, or to no size",
            hint="move the axes with Transpose behind the first two",
        )
    in_torch = _MODES.get((key[0], key[1], key[2] if key[0] == "nearest" else ""))
    if places == "pytorch_half_pixel" and _makes_one(value, factors, sizes):
        in_torch = None
    if in_torch is None:
        return _by_places(value, factors, sizes, key)
    mode, corners = in_torch
    if mode == "linear":
        mode = {3: "linear", 4: "bilinear", 5: "trilinear"}[value.dim()]
    if sizes:
        return functional.interpolate(value, size=new_sizes[2:], mode=mode, align_corners=corners)
    return functional.interpolate(
        value,
        scale_factor=(factors or [])[2:],
        mode=mode,
        align_corners=corners,
        # ONNX computes places with the factor itself, not with the quotient of the sizes.
        recompute_scale_factor=False,
    )


def _makes_one(value: Tensor, factors: list[float] | None, sizes: list[Any] | None) -> bool:
    """Whether an axis becomes one pixel: ONNX has the first one there, torch the middle."""
    counts = sizes or [
        int(length * factor) if isinstance(length, int) else length
        for length, factor in zip(value.shape, factors or (), strict=True)
    ]
    return any(isinstance(count, int | np.integer) and count == 1 for count in counts[2:])


# --- by the places of an axis ---------------------------------------------------------------------

_PLACES: Mapping[str, Callable[[Floats, Any, int, int], Any]] = {
    # m = 1: the first pixel.
    "align_corners": lambda i, _, n, m: i * np.float32((n - 1) / max(m - 1, 1)),
    "asymmetric": lambda i, factor, *_: i / factor,
    "half_pixel": lambda i, factor, *_: (i + np.float32(0.5)) / factor - np.float32(0.5),
    "pytorch_half_pixel": lambda i, factor, _, m: (
        (i + np.float32(0.5)) / factor - np.float32(0.5) if m > 1 else 0 * i
    ),
    "tf_half_pixel_for_nn": lambda i, factor, *_: (i + np.float32(0.5)) / factor,
}
"""The places in n pixels of m results, by a factor."""

_NEAREST: Mapping[str, Callable[[Floats], Any]] = {
    "ceil": np.ceil,
    "floor": np.floor,
    "round_prefer_ceil": lambda place: np.floor(place + np.float32(0.5)),
    # Half goes down: ceil(x - 0.5); half goes up: floor(x + 0.5).
    "round_prefer_floor": lambda place: np.ceil(place - np.float32(0.5)),
}


def _by_places(
    value: Tensor, factors: list[float] | None, sizes: list[Any] | None, key: tuple[str, str, str]
) -> Tensor:
    """The resized value, each axis by the places of its results, which have to be known."""
    mode, transformation, nearest = key
    if mode == "cubic" or transformation not in _PLACES:
        raise TrainingExportError(
            f"its mode {mode} {transformation} is not supported",
            hint="export the model with mode linear or nearest and half_pixel, asymmetric or "
            "align_corners",
        )
    for axis in range(2, value.dim()):
        length = int(value.shape[axis])
        count = int(sizes[axis]) if sizes else int(length * (factors or [])[axis])
        factor = np.float32(count / length if sizes else (factors or [])[axis])
        if count == length and factor == 1:
            continue
        # float32, as onnxruntime: a place on the edge of two pixels goes to the same one.
        results = np.arange(count, dtype=np.float32)
        place = np.asarray(_PLACES[transformation](results, factor, length, count))
        if mode == "nearest":
            source_indices = _NEAREST[nearest](place).clip(0, length - 1).astype(np.int64)
            value = value.index_select(axis, torch.from_numpy(source_indices))
            continue
        low = np.floor(place)
        share = torch.from_numpy((place - low).astype(np.float32)).to(value.dtype)
        below, above = (
            value.index_select(
                axis, torch.from_numpy((low + i).clip(0, length - 1).astype(np.int64))
            )
            for i in (0, 1)
        )
        share = share.reshape([count, *[1] * (value.dim() - axis - 1)])
        value = below * (1 - share) + above * share
    return value


RESIZING: Mapping[str, tuple[Callable[[NodeCall], Tensor], Mapping[str, Any]]] = {
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
            "scales": None,
        },
    ),
    "Upsample": (_resize, {"mode": b"nearest", "scales": None}),
}
"""Rows of operators, with their attributes and defaults."""
