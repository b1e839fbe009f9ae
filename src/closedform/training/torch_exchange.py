"""Parameters, buffers and states of a session to and from torch."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from closedform.errors import StateError
from closedform.ir import naming
from closedform.ir.graph import Array
from closedform.ir.types import DType
from closedform.training.sources import unwrap

if TYPE_CHECKING:
    import torch

_STEP = "step"
"""The key of torch's optimizers for the number of steps."""

_WITHOUT_STEP = frozenset({"SGD", "Muon"})
"""Optimizers of torch whose state has no number of steps."""


def to_model(arrays: Mapping[str, Array], model: torch.nn.Module, where: str) -> None:
    """Copies parameters and buffers into a model; nothing is copied unless all of them fit.

    Raises:
        StateError: The model has no such tensor, or one of another shape.
    """
    import torch

    model = unwrap(model)
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    model_arrays = _model_arrays(arrays)
    for name, array in model_arrays.items():
        if name.startswith("loss."):
            continue
        tensor = tensors.get(name)
        if tensor is None or tuple(tensor.shape) != array.shape:
            got = "none" if tensor is None else f"one of shape {list(tensor.shape)}"
            raise StateError(
                f"the model must have a tensor {name!r} of shape {list(array.shape)}, got {got}",
                where=where,
                hint="give the model that was exported",
            )
    with torch.no_grad():
        for name, array in model_arrays.items():
            if not name.startswith("loss."):
                tensors[name].copy_(tensor_of(array))


def to_optimizer(
    arrays: Mapping[str, Array], optimizer: torch.optim.Optimizer, model: torch.nn.Module
) -> None:
    """Writes the states of the rule as the states of an optimizer of torch.

    The labels of the states are torch's own (``exp_avg``, ``momentum_buffer``, …).
    """
    import torch

    model = unwrap(model)
    has_step = type(optimizer).__name__ not in _WITHOUT_STEP
    for name, parameter in model.named_parameters():
        states = _states(arrays, name)
        if not states:
            continue
        state: dict[str, Any] = {label: tensor_of(array) for label, array in states.items()}
        if has_step:
            # torch keeps the step as a float32 tensor on the CPU.
            state[_STEP] = torch.tensor(float(arrays[naming.STEP]))
        optimizer.state[parameter] = state


def from_torch(
    arrays: Mapping[str, Array],
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer | None,
    step: int | None,
    where: str,
) -> dict[str, Array]:
    """Returns the arrays of a session as a model, and an optimizer, of torch have them.

    Args:
        arrays: The arrays of the session.
        model: The model.
        optimizer: Its optimizer; None for only parameters and buffers.
        step: The number of steps, for an optimizer that does not count them.
        where: The model, named in errors.

    Raises:
        StateError: A tensor or a state is missing or has another shape, or numbers of steps differ.
    """
    model = unwrap(model)
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    values: dict[str, Array] = {}
    for name, array in _model_arrays(arrays).items():
        kind = naming.param if naming.param(name) in arrays else naming.buffer
        if name in tensors:
            values[kind(name)] = _fitting(tensors[name], array, name, where)
    steps: set[int] = set() if step is None else {step}
    if optimizer is None:
        return values if step is None else {**values, naming.STEP: _step(step, arrays)}
    for name, parameter in model.named_parameters():
        state = optimizer.state.get(parameter, {})
        for label, array in _states(arrays, name).items():
            if state.get(label) is None:
                raise StateError(
                    f"the optimizer has no state {label!r} of {name!r}, only "
                    f"{', '.join(state) or 'none'}",
                    where=where,
                    hint="give the optimizer of the same rule, after a step",
                )
            values[naming.state(name, label)] = _fitting(state[label], array, name, where)
        if _STEP in state:
            steps.add(int(state[_STEP]))
    if len(steps) > 1:
        raise StateError(
            f"the parameters must have one number of steps, got {sorted(steps)}",
            where=where,
            hint="give the step of the optimizer, or none",
        )
    if not steps:
        warnings.warn(
            f"{type(optimizer).__name__} of torch does not count its steps: the session stays at "
            f"step {int(arrays[naming.STEP])}, where its schedules go on; give step=",
            stacklevel=4,
        )
    for count in steps:
        values[naming.STEP] = _step(count, arrays)
    return values


def _step(count: int, arrays: Mapping[str, Array]) -> Array:
    return np.asarray(count, arrays[naming.STEP].dtype)


def _model_arrays(arrays: Mapping[str, Array]) -> dict[str, Array]:
    return {
        name.removeprefix(prefix): array
        for prefix in (naming.PARAM, naming.BUFFER)
        for name, array in arrays.items()
        if name.startswith(prefix)
    }


def _states(arrays: Mapping[str, Array], param: str) -> dict[str, Array]:
    prefix = naming.state(param, "")
    return {
        name.removeprefix(prefix): array
        for name, array in arrays.items()
        # The states of ``a`` and of a parameter ``a.b`` have one prefix.
        if name.startswith(prefix) and "." not in name.removeprefix(prefix)
    }


def _fitting(tensor: torch.Tensor, array: Array, name: str, where: str) -> Array:
    from closedform.training.to_onnx.arrays import array_of

    value = array_of(tensor)
    if value.shape != array.shape or value.dtype != array.dtype:
        raise StateError(
            f"{name!r} must be {array.dtype}{list(array.shape)}, got "
            f"{value.dtype}{list(value.shape)}",
            where=where,
        )
    return value


def tensor_of(array: Array) -> torch.Tensor:
    """Returns a copy of an array as a tensor."""
    import torch

    if array.dtype == DType.BF16.numpy:
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(np.array(array))
