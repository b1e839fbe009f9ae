"""An entry of the zoo beside torch: gradients at a step, losses of 20 steps, the module."""

from __future__ import annotations

import copy
import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils import _pytree as pytree

from closedform import optimizers
from closedform.errors import ExportError
from closedform.options import GraphOptions, ModelSpec
from closedform.runtime.onnx_session import OnnxSession, open_session
from closedform.training import TrainSession
from closedform.training.assembly import assemble
from closedform.training.feeds import draw
from closedform.training.tracing.batch import read_batch
from closedform.training.tracing.isolation import plain_kernels
from closedform.training.tracing.onnx_registry import quiet
from closedform.training.tracing.places import Places
from closedform.training.tracing.random_operators import Drawn
from closedform.training.tracing.trace import trace
from tests.training.zoo import Entry

STEPS, ROWS, RATE = 20, 4, 0.02

# Sums in another order, carried on by 20 steps of gradient descent.
TOLERANCE = 1e-4


def check(entry: Entry, folder: Path, steps: int = STEPS) -> str:
    """Raises AssertionError if an entry is not as its description says; returns the result."""
    torch.manual_seed(0)
    model = entry.model()
    example = entry.batch(ROWS)
    if any(isinstance(part, nn.modules.lazy.LazyModuleMixin) for part in model.modules()):
        with torch.no_grad():
            model(example[0])
    entry.prepare(model)
    before = _everything(model)
    message = ""
    try:
        traced = trace(model, entry.loss, example, **entry.options)
        files = assemble(
            traced,
            ModelSpec(optimizers.sgd(RATE, momentum=0.9), _shapes(traced.params)),
            GraphOptions(dtype=_dtype(model)),
            {},
            opset=21,
            validate=False,
        )
    except ExportError as error:
        message = str(error)
    after = _everything(model)
    assert before.keys() == after.keys()
    for key, value in before.items():
        same = value == after[key] if not isinstance(value, np.ndarray) else None
        assert np.array_equal(value, after[key]) if same is None else same, key
    if entry.refused is not None:
        assert re.search(entry.refused, message), message or "exported"
        return f"refused: {message}"
    assert not message, message
    files.write(folder)
    ratio = _gradients(open_session(traced.step), traced, model, entry)
    _trained(TrainSession(folder, threads=1), model, entry, steps)
    return f"gradients {ratio:.2g} times as far from float64 as torch in float32"


def _dtype(model: nn.Module) -> str:
    return "f64" if next(model.parameters()).dtype is torch.float64 else "f32"


def _shapes(arrays: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    return {name: array.shape for name, array in arrays.items()}


def _everything(model: nn.Module) -> dict[str, Any]:
    found: dict[str, Any] = {n: v.numpy().copy() for n, v in model.state_dict().items()}
    for name, module in model.named_modules():
        found[f"mode of {name}"] = module.training
        found[f"attributes of {name}"] = sorted(module.__dict__)
        found[f"hooks of {name}"] = (list(module._forward_hooks), list(module._forward_pre_hooks))
    for name, parameter in model.named_parameters():
        found[f"object {name}"] = id(parameter), parameter.grad, parameter.requires_grad
    found["generator"] = torch.get_rng_state().numpy()
    return found


def _numbers(session: OnnxSession, arrays: dict[str, Any], seed: tuple[int, ...]) -> dict[str, Any]:
    sizes = {
        symbol: array.shape[axis]
        for name, array in arrays.items()
        for axis, symbol in enumerate(session.inputs[f"batch.{name}"].symbols)
        if symbol is not None
    }
    ports = {n: p for n, p in session.inputs.items() if n.startswith("random.")}
    return draw(ports, sizes, seed, "the zoo")


def in_torch(model: nn.Module, entry: Entry, batch: Any, numbers: dict[str, Any]) -> Any:
    """The loss of a batch with given random numbers."""
    dtype = next(model.parameters()).dtype
    left = [torch.from_numpy(value) for value in numbers.values()]

    def given(_: Any, shape: Any, __: Any) -> torch.Tensor:
        return left.pop(0).reshape(shape).to(dtype)

    read = read_batch(model, entry.loss, batch, "", **_axes(entry))
    arguments, named = read.arguments(read.tensors, is_target=False)
    targets, by_name = read.arguments(read.tensors, is_target=True)
    with quiet(), plain_kernels(), Drawn(given, Places(), ""):
        output = model(*arguments, **named)
        loss = output if entry.loss is None else entry.loss(output, *targets, **by_name)
    assert not left
    value = loss["loss"] if isinstance(loss, dict) else loss
    return value[0] if isinstance(value, tuple) else value


def _axes(entry: Entry) -> dict[str, Any]:
    return {key: entry.options[key] for key in ("dynamic_axes",) if key in entry.options}


def _arrays(model: nn.Module, entry: Entry, batch: Any) -> dict[str, Any]:
    read = read_batch(model, entry.loss, batch, "", **_axes(entry))
    return {name: tensor.numpy() for name, tensor in read.tensors.items()}


def _wide(value: Any) -> Any:
    is_float = isinstance(value, torch.Tensor) and value.is_floating_point()
    return value.double() if is_float else value


def _parameters(model: nn.Module, entry: Entry) -> dict[str, nn.Parameter]:
    own = dict(model.named_parameters())
    if isinstance(entry.loss, nn.Module):
        own |= {f"loss.{name}": value for name, value in entry.loss.named_parameters()}
    return {name: value for name, value in own.items() if value.requires_grad}


def _gradients(session: OnnxSession, traced: Any, model: nn.Module, entry: Entry) -> float:
    """How far the gradients are from float64, in multiples of torch in float32."""
    batch = entry.batch(ROWS + 1)
    arrays = _arrays(model, entry, batch)
    numbers = _numbers(session, arrays, (7,))
    feeds = {f"param.{n}": v for n, v in traced.params.items()}
    feeds |= {f"buffer.{n}": v for n, v in traced.buffers.items()}
    feeds |= {f"batch.{n}": v for n, v in arrays.items()} | numbers
    feeds = {name: feeds[name] for name in session.inputs}
    found = dict(zip(session.outputs, session.raw.run(None, feeds), strict=True))

    def grads(change: Callable[[Any], Any]) -> dict[str, Any]:
        module, loss = copy.deepcopy((model, entry.loss))
        for part in (module, loss):
            if isinstance(part, nn.Module):
                change(part)
                for inner in part.modules():
                    for name, value in list(vars(inner).items()):
                        if isinstance(value, torch.Tensor):
                            setattr(inner, name, _wide(value) if change is _double else value)
        changed = pytree.tree_map(_wide, batch) if change is _double else batch
        own = Entry(entry.model, entry.batch, loss, entry.options)
        parameters = _parameters(module, own)
        value = in_torch(module, own, changed, numbers)
        result = torch.autograd.grad(value, list(parameters.values()), materialize_grads=True)
        return {name: grad.double().numpy() for name, grad in zip(parameters, result, strict=True)}

    single = grads(lambda part: part)
    try:
        exact = grads(_double)
    except RuntimeError:  # a tensor of the loss in float32, which no module has
        exact = single
    largest = max(np.abs(grad).max() for grad in exact.values())
    ratio = 0.0
    for name, wanted in exact.items():
        own = np.abs(found[f"grad.{name}"] - wanted).max()
        in_single = np.abs(single[name] - wanted).max()
        # A few roundings of the largest gradient: torch's own error may be zero by chance.
        floor = 16 * np.finfo(np.float32).eps * largest
        assert own <= 4 * in_single + floor, (name, own, in_single, largest)
        ratio = max(ratio, own / max(in_single, floor))
    return ratio


def _double(part: nn.Module) -> nn.Module:
    return part.double()


def _trained(session: TrainSession, model: nn.Module, entry: Entry, steps: int) -> None:
    """Trains in both, and compares losses, parameters and buffers."""
    parameters = _parameters(model, entry)
    optimizer = torch.optim.SGD(parameters.values(), RATE, momentum=0.9)
    losses, wanted = [], []
    for step, rows in zip(range(steps), itertools.cycle([3, 4, 6]), strict=False):
        batch = entry.batch(rows)
        arrays = _arrays(model, entry, batch)
        numbers = _numbers(session._session, arrays, (0, step))
        losses.append(session.step(arrays).loss)
        optimizer.zero_grad()
        loss = in_torch(model, entry, batch, numbers)
        loss.backward()
        optimizer.step()
        wanted.append(loss.item())
    scale = np.abs(wanted).max()
    assert np.isfinite(wanted).all(), wanted
    assert np.abs(np.subtract(losses, wanted)).max() <= TOLERANCE * scale, (losses, wanted)
    for name, parameter in parameters.items():
        value = parameter.detach().numpy()
        distance = np.abs(session.params[name] - value).max()
        assert distance <= 10 * TOLERANCE * max(np.abs(value).max(), 0.1), (name, distance)
    for name, buffer in model.named_buffers():
        if name in session.buffers and buffer.is_floating_point():
            distance = np.abs(session.buffers[name] - buffer.numpy()).max()
            assert distance <= 10 * TOLERANCE * max(np.abs(buffer.numpy()).max(), 0.1), name
