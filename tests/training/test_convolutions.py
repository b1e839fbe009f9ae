"""The backward of convolutions beside torch's, for every form of the gradient in the weight."""

import random
from typing import Any

import numpy as np
import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from closedform.runtime.onnx_session import open_session
from closedform.training.to_onnx.convolution_costs import FASTEST, shape_class
from closedform.training.to_onnx.convolutions import FORMS, Geometry, unconvolve
from closedform.training.to_onnx.onnx_program import write_onnx
from closedform.training.to_onnx.onnx_registry import onnx_decompositions

Given = tuple[torch.Tensor, torch.Tensor, torch.Tensor, Geometry]
"""The input, the gradient in the output, the weight, and the geometry of a convolution."""


def drawn(seed: int, kind: str, axes: int = 2, *, is_strided: bool = True) -> Given:
    """A convolution of random sizes: uneven, strided, padded, dilated, with groups of channels."""
    draws = random.Random(seed)
    groups = {"dense": 1, "grouped": draws.choice((2, 3)), "depthwise": draws.choice((2, 5))}[kind]
    inputs = groups * (1 if kind == "depthwise" else draws.randint(1, 4))
    outputs = groups if kind == "depthwise" else groups * draws.randint(1, 4)
    kernel = [draws.choice((1, 2, 3)) for _ in range(axes)]
    stride, dilation = ([draws.choice((1, 2, 3)) for _ in range(axes)] for _ in range(2))
    stride = stride if is_strided else [1] * axes
    padding = [draws.randint(0, 2) for _ in range(axes)]
    reach = [far * (of - 1) + 1 for of, far in zip(kernel, dilation, strict=True)]
    space = [of + draws.randint(0, 5) for of in reach]
    value = torch.randn(draws.randint(1, 3), inputs, *space, dtype=torch.float64)
    weight = torch.randn(outputs, inputs // groups, *kernel, dtype=torch.float64)
    geometry = stride, padding, dilation, groups
    shape = _convolved(value, weight, geometry).shape
    return value, torch.randn(shape, dtype=torch.float64), weight, geometry


def _convolved(value: torch.Tensor, weight: torch.Tensor, geometry: Geometry) -> Any:
    *along, groups = geometry
    none = [0] * len(along[0])
    return torch.ops.aten.convolution(value, weight, None, *along, False, none, groups)


def of_torch(given: Given, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """The gradients of torch in input and weight."""
    value, grad, weight = (tensor.to(dtype) for tensor in given[:3])
    *along, groups = given[3]
    none, mask = [0] * len(along[0]), [True, True, False]
    found = torch.ops.aten.convolution_backward(
        grad, value, weight, None, *along, False, none, groups, mask
    )
    return found[0], found[1]


KINDS = {
    "correlated": ("dense", "grouped", "depthwise"),
    "summed": ("dense", "grouped", "depthwise"),
    "shifted": ("dense",),
    "channels_last": ("dense",),
    "diagonals": ("depthwise",),
}


def _axes(form: str, seed: int) -> int:
    return 2 if form == "diagonals" else (2, 1, 3, 2)[seed % 4]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_the_gradient_in_the_weight(form: str) -> None:
    torch.manual_seed(0)
    for kind in KINDS[form]:
        for seed in range(12):
            given = drawn(seed, kind, _axes(form, seed), is_strided=form != "shifted")
            value, grad, weight, geometry = given
            found = FORMS[form](value, grad, weight, geometry)
            wanted = of_torch(given, torch.float64)[1]
            # Sums of up to some hundred products of about 1, in another order.
            assert torch.allclose(found, wanted, rtol=1e-12, atol=1e-12), (kind, seed)


@pytest.mark.parametrize("kind", ["dense", "grouped", "depthwise"])
def test_the_gradient_in_the_input(kind: str) -> None:
    torch.manual_seed(0)
    for seed in range(24):
        axes = _axes("", seed)
        value, grad, weight, (_, padding, dilation, groups) = given = drawn(seed, kind, axes)
        if seed % 2:  # without a stride, where the convolution is mirrored
            geometry = [1] * axes, padding, dilation, groups
            grad = torch.randn_like(_convolved(value, weight, geometry))
            given = value, grad, weight, geometry
        found = unconvolve(given[1], weight, value, given[3])
        wanted = of_torch(given, torch.float64)[0]
        # Sums of up to some hundred products of about 1, in another order.
        assert torch.allclose(found, wanted, rtol=1e-12, atol=1e-12), seed


@pytest.mark.parametrize("form", FORMS)
def test_in_onnxruntime_a_form_is_as_precise_as_torch(form: str) -> None:
    """In float32, within 4 times torch's own distance from float64; rows are free."""
    torch.manual_seed(0)
    for kind in KINDS[form]:
        value, grad, weight, geometry = given = drawn(7, kind, is_strided=form != "shifted")

        def called(*tensors: torch.Tensor, geometry: Geometry = geometry) -> list[torch.Tensor]:
            return [FORMS[form](tensors[0], tensors[1], tensors[2], geometry)]

        single = [tensor.float() for tensor in (value, grad, weight)]
        table = onnx_decompositions(21)
        traced = make_fx(called, tracing_mode="fake", decomposition_table=table)(*single)
        names = ["value", "grad", "weight"]
        session = open_session(write_onnx(traced, names, ["out"], {}, 21, form))
        feeds = {name: t.numpy() for name, t in zip(names, single, strict=True)}
        (found,) = session.raw.run(None, {name: feeds[name] for name in session.inputs})
        exact = of_torch(given, torch.float64)[1].numpy()
        in_torch = of_torch(given, torch.float32)[1].numpy()
        # One rounding of the largest entry is allowed where torch happens to be exact.
        allowed = 4 * np.abs(in_torch - exact).max() + 2**-23 * np.abs(exact).max()
        assert np.abs(found - exact).max() <= allowed, kind


def test_the_table_chooses_forms_that_are_for_the_kind() -> None:
    for of, form in FASTEST.items():
        assert of.kind in KINDS[form], of
        assert form != "shifted" or not of.is_strided, of
    assert {of.kind for of in FASTEST} == {"dense", "grouped", "depthwise"}


@pytest.mark.parametrize(
    ("inputs", "outputs", "weight", "stride", "expected"),
    [
        ((9, 64, 8, 8), (9, 32, 8, 8), (32, 64, 1, 1), (1, 1), ("dense", True, False, 1, 1)),
        ((9, 64, 8, 8), (9, 64, 4, 4), (64, 1, 3, 3), (2, 2), ("depthwise", False, True, 2, 0)),
        ((9, 64, 40), (9, 64, 40), (64, 1, 3), (1,), ("grouped", False, False, 0, 1)),
        ((9, 8, 99, 9), (9, 16, 99, 9), (16, 4, 3, 3), (1, 1), ("grouped", False, False, 0, 3)),
    ],
)
def test_the_class_of_a_shape(
    inputs: Any, outputs: Any, weight: Any, stride: Any, expected: Any
) -> None:
    assert shape_class(inputs, outputs, weight, stride) == expected
