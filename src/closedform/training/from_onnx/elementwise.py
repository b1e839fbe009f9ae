"""Operators that compute each element, and reductions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import onnx
import torch
from torch.nn import functional

from closedform.errors import TrainingExportError
from closedform.training.from_onnx.values import (
    TORCH_BY_NUMBER,
    NodeCall,
    OperatorFunction,
    operands_of,
)

Tensor = torch.Tensor


def _unary(function: Callable[[Tensor], Tensor]) -> Callable[[NodeCall], Tensor]:
    return lambda call: function(call.tensor())


def _with(function: Callable[..., Tensor]) -> Callable[[NodeCall], Tensor]:
    """A function of one tensor and of the attributes."""
    return lambda call: function(call.tensor(), **call.attributes)


def _binary(function: Callable[[Any, Any], Tensor]) -> Callable[[NodeCall], Tensor]:
    return lambda call: function(*operands_of(call))


def _fold_operands(function: Callable[[Any, Any], Tensor]) -> Callable[[NodeCall], Tensor]:
    """An operator of any number of operands."""
    return lambda call: functools.reduce(function, call.tensors())


def _mean(call: NodeCall) -> Tensor:
    tensors = call.tensors()
    return functools.reduce(torch.add, tensors) / len(tensors)


def _divide(call: NodeCall) -> Tensor:
    left, right = operands_of(call)
    tensor = left if isinstance(left, Tensor) else right
    is_float = tensor.is_floating_point()
    # Div of ONNX truncates integers (onnx.defs, Div-14); torch's default gives floats.
    return torch.div(left, right) if is_float else torch.div(left, right, rounding_mode="trunc")


def _power(call: NodeCall) -> Tensor:
    base, exponent = operands_of(call)
    result = torch.pow(base, exponent)
    # ONNX's Pow has the type of the base; torch promotes.
    return result.to(base.dtype) if isinstance(base, Tensor) else result


def _remainder(call: NodeCall) -> Tensor:
    # Mod without fmod has the sign of the divisor, as torch.remainder.
    function = torch.fmod if call.attributes["fmod"] else torch.remainder
    result: Tensor = function(*operands_of(call))
    return result


def _clip(call: NodeCall) -> Tensor:
    value = call.tensor()
    bounds = [call.operands[place] if call.has(place) else None for place in (1, 2)]
    if any(isinstance(bound, Tensor) for bound in bounds):
        # Bounds that the graph computes are tensors; clamp's numbers would cut their gradients.
        low, high = call.optional(1), call.optional(2)
        value = value if low is None else torch.maximum(value, low)
        return value if high is None else torch.minimum(value, high)
    numbers = [
        call.number(place).item() if call.has(place) else call.attributes[name]
        for place, name in ((1, "min"), (2, "max"))
    ]
    return value if numbers == [None, None] else value.clamp(*numbers)


def _cast(call: NodeCall) -> Tensor:
    number = call.attributes["to"]
    if number not in TORCH_BY_NUMBER:
        raise TrainingExportError(
            f"its type {_type_name(number)} is not supported",
            hint="export the model with float32, float16 or int64 there",
        )
    return call.tensor().to(TORCH_BY_NUMBER[number])


def _type_name(number: int) -> str:
    names = onnx.TensorProto.DataType
    return str(names.Name(number)) if number in names.values() else str(number)


def _gelu(value: Tensor, approximate: bytes) -> Tensor:
    return functional.gelu(value, approximate=approximate.decode())


def _hard_sigmoid(value: Tensor, alpha: float, beta: float) -> Tensor:
    # torch's hardsigmoid has fixed slopes: 1/6 and 1/2.
    return (alpha * value + beta).clamp(0, 1)


def _selu(value: Tensor, alpha: float, gamma: float) -> Tensor:
    # γ·(α·(exp x − 1)) for x < 0; torch's selu has constants only.
    return gamma * functional.elu(value, alpha)


def _prelu(call: NodeCall) -> Tensor:
    value, slope = call.tensors()
    # The slope broadcasts to any axes in ONNX; torch's prelu has one for each channel.
    return torch.where(value < 0, value * slope, value)


def _is_infinite(value: Tensor, detect_negative: int, detect_positive: int) -> Tensor:
    is_match = value.isinf()
    is_match = is_match if detect_negative else is_match & (value > 0)
    return is_match if detect_positive else is_match & (value < 0)


LAST_OF_MATRICES = 12
"""The last opset whose softmax flattens its operand to a matrix and acts on its rows."""


def _softmax(function: Callable[..., Tensor]) -> Callable[[NodeCall], Tensor]:
    def row(call: NodeCall) -> Tensor:
        value, axis = call.tensor(), call.attributes["axis"]
        if call.version > LAST_OF_MATRICES:
            return function(value, dim=-1 if axis is None else axis)
        first = (1 if axis is None else axis) % max(value.dim(), 1)
        if first == value.dim() - 1:
            return function(value, dim=-1)
        # Before opset 13, softmax is over all entries from the axis on.
        return function(value.flatten(first), dim=-1).reshape(value.shape)

    return row


def _reduction(
    function: Callable[[Tensor, list[int], bool], Tensor],
) -> Callable[[NodeCall], Tensor]:
    def row(call: NodeCall) -> Tensor:
        value = call.tensor()
        axes = call.numbers(1, "axes")
        if not axes:
            # Without axes: over all, unless noop_with_empty_axes (opset 18; 13 for ReduceSum).
            if call.attributes["noop_with_empty_axes"]:
                return value
            axes = list(range(value.dim()))
        if not value.dim():
            axes = []
        keep = bool(call.attributes["keepdims"])
        return function(value, sorted(int(axis) % value.dim() for axis in axes), keep)

    return row


def _product(value: Tensor, axes: list[int], keep: bool) -> Tensor:
    # From the last axis on; torch's prod has one axis.
    for axis in reversed(axes):
        value = value.prod(axis, keepdim=keep)
    return value


def _sum(value: Tensor, axes: list[int], keep: bool) -> Tensor:
    return value.sum(axes, keepdim=keep) if axes else value


def _place_of_extremum(function: Callable[..., Tensor]) -> Callable[[NodeCall], Tensor]:
    """The place of an extremum: the first one."""

    def row(call: NodeCall) -> Tensor:
        call.refuse(select_last_index=0)
        keep = bool(call.attributes["keepdims"])
        return function(call.tensor(), dim=call.attributes["axis"], keepdim=keep)

    return row


def _cumulative_sum(call: NodeCall) -> Tensor:
    value, axis = call.tensor(), int(call.number(1))
    reverse = bool(call.attributes["reverse"])
    value = value.flip(axis) if reverse else value
    if call.attributes["exclusive"]:
        # A 0 in front instead of a sum less its last term, which is inf − inf, or cancels.
        axes_after = value.dim() - 1 - axis % value.dim()
        value = functional.pad(value, [*[0, 0] * axes_after, 1, 0]).narrow(
            axis, 0, value.shape[axis]
        )
    result = value.cumsum(axis)
    return result.flip(axis) if reverse else result


def _top(call: NodeCall) -> tuple[Tensor, ...]:
    options = {"dim": call.attributes["axis"], "largest": bool(call.attributes["largest"])}
    count = call.number(1) if call.has(1) else call.attributes["k"]
    return tuple(torch.topk(call.tensor(), int(count), **options))


def _scale(call: NodeCall) -> Tensor:
    value = call.tensor()
    value = value if value.is_floating_point() else value.float()
    # One number for all features, or one for each.
    offset, scale = (value.new_tensor(call.attributes[name]) for name in ("offset", "scale"))
    return (value - offset) * scale


_REDUCTION = {"axes": None, "keepdims": 1, "noop_with_empty_axes": 0}
_EXTREMUM = {"axis": 0, "keepdims": 1, "select_last_index": 0}

ELEMENTWISE: Mapping[str, tuple[OperatorFunction, Mapping[str, Any]]] = {
    "Abs": (_unary(torch.abs), {}),
    "Acos": (_unary(torch.acos), {}),
    "Acosh": (_unary(torch.acosh), {}),
    "Add": (_binary(torch.add), {}),
    "And": (_binary(torch.logical_and), {}),
    "ArgMax": (_place_of_extremum(torch.argmax), _EXTREMUM),
    "ArgMin": (_place_of_extremum(torch.argmin), _EXTREMUM),
    "Asin": (_unary(torch.asin), {}),
    "Asinh": (_unary(torch.asinh), {}),
    "Atan": (_unary(torch.atan), {}),
    "Atanh": (_unary(torch.atanh), {}),
    "Cast": (_cast, {"to": None, "saturate": 1}),
    "CastLike": (lambda call: call.tensor().to(call.tensor(1).dtype), {"saturate": 1}),
    "Ceil": (_unary(torch.ceil), {}),
    "Celu": (_with(functional.celu), {"alpha": 1.0}),
    "Clip": (_clip, {"max": None, "min": None}),
    "Cos": (_unary(torch.cos), {}),
    "Cosh": (_unary(torch.cosh), {}),
    "CumSum": (_cumulative_sum, {"exclusive": 0, "reverse": 0}),
    "Div": (_divide, {}),
    "Elu": (_with(functional.elu), {"alpha": 1.0}),
    "Equal": (_binary(torch.eq), {}),
    "Erf": (_unary(torch.erf), {}),
    "Exp": (_unary(torch.exp), {}),
    "Floor": (_unary(torch.floor), {}),
    "Gelu": (_with(_gelu), {"approximate": b"none"}),
    "Greater": (_binary(torch.gt), {}),
    "GreaterOrEqual": (_binary(torch.ge), {}),
    "HardSigmoid": (_with(_hard_sigmoid), {"alpha": 0.2, "beta": 0.5}),
    "HardSwish": (_unary(functional.hardswish), {}),
    "Identity": (_unary(lambda value: value), {}),
    "IsInf": (_with(_is_infinite), {"detect_negative": 1, "detect_positive": 1}),
    "IsNaN": (_unary(torch.isnan), {}),
    "LeakyRelu": (
        lambda c: functional.leaky_relu(c.tensor(), c.attributes["alpha"]),
        {"alpha": 0.01},
    ),
    "Less": (_binary(torch.lt), {}),
    "LessOrEqual": (_binary(torch.le), {}),
    "Log": (_unary(torch.log), {}),
    "LogSoftmax": (_softmax(functional.log_softmax), {"axis": None}),
    "Max": (_fold_operands(torch.maximum), {}),
    "Mean": (_mean, {}),
    "Min": (_fold_operands(torch.minimum), {}),
    "Mish": (_unary(functional.mish), {}),
    "Mod": (_remainder, {"fmod": 0}),
    "Mul": (_binary(torch.mul), {}),
    "Neg": (_unary(torch.neg), {}),
    "Not": (_unary(torch.logical_not), {}),
    "Or": (_binary(torch.logical_or), {}),
    "PRelu": (_prelu, {}),
    "Pow": (_power, {}),
    "Reciprocal": (_unary(torch.reciprocal), {}),
    "ReduceL1": (_reduction(lambda v, a, k: _sum(v.abs(), a, k)), _REDUCTION),
    "ReduceL2": (
        _reduction(lambda v, a, k: torch.linalg.vector_norm(v, dim=a, keepdim=k)),
        _REDUCTION,
    ),
    "ReduceLogSum": (_reduction(lambda v, a, k: _sum(v, a, k).log()), _REDUCTION),
    "ReduceLogSumExp": (_reduction(lambda v, a, k: v.logsumexp(a, keepdim=k)), _REDUCTION),
    "ReduceMax": (_reduction(lambda v, a, k: v.amax(a, keepdim=k)), _REDUCTION),
    "ReduceMean": (_reduction(lambda v, a, k: v.mean(a, keepdim=k)), _REDUCTION),
    "ReduceMin": (_reduction(lambda v, a, k: v.amin(a, keepdim=k)), _REDUCTION),
    "ReduceProd": (_reduction(_product), _REDUCTION),
    "ReduceSum": (_reduction(_sum), _REDUCTION),
    "ReduceSumSquare": (_reduction(lambda v, a, k: _sum(v * v, a, k)), _REDUCTION),
    "Relu": (_unary(torch.relu), {}),
    "Round": (_unary(torch.round), {}),
    # In float32 these are the defaults of ONNX.
    "Selu": (_with(_selu), {"alpha": 1.6732632423543772, "gamma": 1.0507009873554805}),
    "Sigmoid": (_unary(torch.sigmoid), {}),
    "Scaler": (_scale, {"offset": (0.0,), "scale": (1.0,)}),
    "Sign": (_unary(torch.sign), {}),
    "Sin": (_unary(torch.sin), {}),
    "Sinh": (_unary(torch.sinh), {}),
    "Softmax": (_softmax(functional.softmax), {"axis": None}),
    "Softplus": (_unary(functional.softplus), {}),
    "Softsign": (_unary(functional.softsign), {}),
    "Sqrt": (_unary(torch.sqrt), {}),
    "Sub": (_binary(torch.sub), {}),
    "Sum": (_fold_operands(torch.add), {}),
    "Swish": (
        lambda c: c.tensor() * torch.sigmoid(c.attributes["alpha"] * c.tensor()),
        {"alpha": 1.0},
    ),
    "Tan": (_unary(torch.tan), {}),
    "Tanh": (_unary(torch.tanh), {}),
    "ThresholdedRelu": (
        lambda c: torch.where(c.tensor() > c.attributes["alpha"], c.tensor(), 0.0),
        {"alpha": 1.0},
    ),
    "TopK": (_top, {"axis": -1, "k": None, "largest": 1, "sorted": 1}),
    "Xor": (_binary(torch.logical_xor), {}),
}
"""Rows of operators, with their attributes and defaults."""
