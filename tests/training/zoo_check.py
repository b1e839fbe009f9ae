"""An entry of the zoo beside torch: gradients at a step, losses of 20 steps, the module."""

import copy
import itertools
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils import _pytree as pytree

from closedform import optimizers
from closedform.errors import ExportError
from closedform.options import GraphOptions, ModelSpec
from closedform.runtime.onnx_session import OnnxSession, open_session, run_on
from closedform.runtime.shared_places import node_with_shared_places
from closedform.training import TrainSession
from closedform.training.assembly import assemble
from closedform.training.feeds import draw
from closedform.training.to_onnx.arrays import array_of
from closedform.training.to_onnx.batch import read_batch
from closedform.training.to_onnx.isolation import plain_kernels
from closedform.training.to_onnx.onnx_registry import quiet
from closedform.training.to_onnx.places import Places
from closedform.training.to_onnx.random_operators import Drawn
from closedform.training.to_onnx.trace import trace
from tests.training.zoo import Entry

STEPS, ROWS, RATE = 20, 4, 0.02

MANY_ROWS, MANY_ELEMENTS = 512, 1 << 16
"""A batch on which onnxruntime divides the work of most operators among threads."""

# Sums in another order, carried on by 20 steps of gradient descent.
TOLERANCE = 1e-4


def check(entry: Entry, folder: Path, steps: int = STEPS) -> str:
    """Raises AssertionError if an entry is not as its description says; returns the result."""
    torch.manual_seed(0)
    model = entry.model()
    example = entry.batch(ROWS)
    initialize_lazy(model, example)
    entry.prepare(model)
    before = _everything(model)
    refusal: ExportError | None = None
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
        refusal = error
    after = _everything(model)
    assert before.keys() == after.keys()
    for key, value in before.items():
        same = value == after[key] if not isinstance(value, np.ndarray) else None
        assert np.array_equal(value, after[key]) if same is None else same, key
    if entry.refused is not None:
        assert refusal is not None, "exported"
        assert re.search(entry.refused, str(refusal)), refusal
        return _refusal(refusal)
    assert refusal is None, refusal
    files.write(folder)
    for file in folder.glob("*.onnx"):
        assert node_with_shared_places(file.read_bytes()) is None, file.name
    ratio = _gradients([open_session(traced.step)], traced, model, entry)
    with_threads = [open_session(traced.step, threads=threads) for threads in (2, None)]
    elements = sum(array.size for array in _arrays(model, entry, example).values())
    rows = max(ROWS + 1, min(MANY_ROWS, MANY_ELEMENTS * ROWS // elements))
    _gradients(with_threads, traced, model, entry, rows=rows)
    _trained(TrainSession(folder, threads=1), model, entry, steps)
    return f"gradients {ratio:.2g} times as far from float64 as torch in float32"


def _refusal(error: ExportError) -> str:
    assert error.hint, f"no way out: {error}"
    return f"refused: {error}"


def check_in_16_bits(entry: Entry, dtype: torch.dtype) -> str:
    """Compares the gradients of one step in 16 bits with float64; returns the result.

    In bfloat16, for which onnxruntime has few kernels, forward and backward compute in float32, as
    with ``compute_dtype="f32"``. A model that torch does not run in float16 is refused by the
    export, too.
    """
    torch.manual_seed(0)
    model = entry.model()
    initialize_lazy(model, entry.batch(ROWS))
    entry.prepare(model)
    model.to(dtype)
    loss = entry.loss.to(dtype) if isinstance(entry.loss, nn.Module) else entry.loss

    def batch(rows: int) -> Any:
        return pytree.tree_map(lambda value: _narrowed(value, dtype), entry.batch(rows))

    narrow = Entry(entry.model, batch, loss, entry.options)
    is_widened = dtype is torch.bfloat16
    try:
        traced = trace(model, loss, batch(ROWS), is_widened=is_widened, **entry.options)
    except ExportError as error:
        return _refusal(error)
    ratio = _gradients([open_session(traced.step)], traced, model, narrow, is_widened=is_widened)
    word = str(dtype).removeprefix("torch.")
    return f"gradients {ratio:.2g} times as far from float64 as torch in {word}"


def _narrowed(value: Any, dtype: torch.dtype) -> Any:
    is_float = isinstance(value, torch.Tensor) and value.is_floating_point()
    return value.to(dtype) if is_float else value


def initialize_lazy(model: nn.Module, example: Any) -> None:
    if any(isinstance(part, nn.modules.lazy.LazyModuleMixin) for part in model.modules()):
        with torch.no_grad():
            model(example[0])


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


def _feeds(
    session: OnnxSession, traced: Any, model: nn.Module, entry: Entry, batch: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The inputs of a step, and the random numbers among them."""
    arrays = _arrays(model, entry, batch)
    numbers = _numbers(session, arrays, (7,))
    feeds = {f"param.{n}": v for n, v in traced.params.items()}
    feeds |= {f"buffer.{n}": v for n, v in traced.buffers.items()}
    feeds |= {f"batch.{n}": v for n, v in arrays.items()} | numbers
    # A buffer may be the transpose of another tensor.
    return {name: np.array(feeds[name], order="C") for name in session.inputs}, numbers


def feeds_of(
    session: OnnxSession, traced: Any, model: nn.Module, entry: Entry, rows: int
) -> dict[str, Any]:
    """The inputs of a step for a batch of a number of rows."""
    return _feeds(session, traced, model, entry, entry.batch(rows))[0]


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
    return {name: array_of(tensor) for name, tensor in read.tensors.items()}


def _widened(value: Any, dtype: torch.dtype | None) -> Any:
    is_float = isinstance(value, torch.Tensor) and value.is_floating_point()
    return value.to(dtype) if is_float and dtype is not None else value


def _parameters(model: nn.Module, entry: Entry) -> dict[str, nn.Parameter]:
    own = dict(model.named_parameters())
    if isinstance(entry.loss, nn.Module):
        own |= {f"loss.{name}": value for name, value in entry.loss.named_parameters()}
    return {name: value for name, value in own.items() if value.requires_grad}


def _gradients(
    sessions: Sequence[OnnxSession],
    traced: Any,
    model: nn.Module,
    entry: Entry,
    *,
    is_widened: bool = False,
    rows: int = ROWS + 1,
) -> float:
    """How far the gradients are from float64, in multiples of torch in the model's dtype.

    With ``is_widened``, torch computes in float32, too, and rounds the gradients.
    """
    batch = entry.batch(rows)
    ordered, numbers = _feeds(sessions[0], traced, model, entry, batch)
    dtype = next(model.parameters()).dtype

    def grads(change: Callable[[Any], Any], wide: torch.dtype | None) -> dict[str, Any]:
        module, loss = copy.deepcopy((model, entry.loss))
        for part in (module, loss):
            if isinstance(part, nn.Module):
                change(part)
                for inner in part.modules():
                    for name, value in list(vars(inner).items()):
                        if isinstance(value, torch.Tensor):
                            setattr(inner, name, _widened(value, wide))
        changed = pytree.tree_map(lambda value: _widened(value, wide), batch)
        changed_entry = Entry(entry.model, entry.batch, loss, entry.options)
        parameters = _parameters(module, changed_entry)
        value = in_torch(module, changed_entry, changed, numbers)
        result = torch.autograd.grad(value, list(parameters.values()), materialize_grads=True)
        return dict(zip(parameters, result, strict=True))

    if is_widened:
        rounded = grads(_single, torch.float32)
        narrow = {name: grad.to(dtype).double().numpy() for name, grad in rounded.items()}
    else:
        narrow = {name: grad.double().numpy() for name, grad in grads(_unchanged, None).items()}
    try:
        exact = {n: grad.double().numpy() for n, grad in grads(_double, torch.float64).items()}
    except RuntimeError:  # a tensor of the loss in float32, which no module has
        exact = narrow
    largest = max(np.abs(grad).max() for grad in exact.values())
    # A few roundings of the largest gradient: torch's error may be zero by chance. Where float32
    # is rounded to 16 bits, only the result is rounded.
    floor = (2 if is_widened else 16) * torch.finfo(dtype).eps * largest
    ratio = 0.0
    judged = {name: np.isfinite(grad) for name, grad in narrow.items()}
    assert any(mask.any() for mask in judged.values()), "torch overflows in all gradients"
    runs = [dict(zip(one.outputs, run_on(one, ordered), strict=True)) for one in sessions]
    for outputs, (name, expected) in itertools.product(runs, exact.items()):
        # Entries that overflow in torch's float16 have no error to compare with.
        mask = judged[name]
        distances = np.abs(outputs[f"grad.{name}"].astype(np.float64) - expected)[mask]
        distance, of_torch = (
            values.max(initial=0) for values in (distances, np.abs(narrow[name] - expected)[mask])
        )
        assert distance <= 4 * of_torch + floor, (name, distance, of_torch, largest)
        ratio = max(ratio, distance / max(of_torch, floor))
    return ratio


def _unchanged(part: nn.Module) -> nn.Module:
    return part


def _single(part: nn.Module) -> nn.Module:
    return part.float()


def _double(part: nn.Module) -> nn.Module:
    return part.double()


def _trained(session: TrainSession, model: nn.Module, entry: Entry, steps: int) -> None:
    """Trains in both, and compares losses, parameters and buffers."""
    nearby, nearby_loss = copy.deepcopy((model, entry.loss))
    session_losses, torch_losses, numbers_of_steps = [], [], []
    parameters = _parameters(model, entry)
    optimizer = torch.optim.SGD(parameters.values(), RATE, momentum=0.9)
    for step, rows in zip(range(steps), itertools.cycle([3, 4, 6]), strict=False):
        batch = entry.batch(rows)
        arrays = _arrays(model, entry, batch)
        numbers = _numbers(session._session, arrays, (0, step))
        numbers_of_steps.append((batch, numbers))
        session_losses.append(session.step(arrays).loss)
        torch_losses.append(_step(model, entry, optimizer, batch, numbers))
    assert np.isfinite(torch_losses).all(), torch_losses
    buffers = {n: v for n, v in model.named_buffers() if v.is_floating_point()}
    expected = {n: v.detach().numpy() for n, v in (*parameters.items(), *buffers.items())}
    actual = {n: v for n, v in {**session.params, **session.buffers}.items() if n in expected}
    expected = {name: expected[name] for name in actual} | {"losses": np.array(torch_losses)}
    actual["losses"] = np.array(session_losses)
    distances = _distances(actual, expected)
    if all(distance <= _tolerance(name) for name, distance in distances.items()):
        return
    # A batch normalisation of a few numbers may amplify roundings without bound: torch next to
    # itself with weights one rounding away says by how much.
    entry = Entry(entry.model, entry.batch, nearby_loss, entry.options)
    nearby_parameters = _parameters(nearby, entry)
    with torch.no_grad():
        for value in nearby_parameters.values():
            value.mul_(1 + torch.finfo(value.dtype).eps)
    optimizer = torch.optim.SGD(nearby_parameters.values(), RATE, momentum=0.9)
    losses = [_step(nearby, entry, optimizer, *arguments) for arguments in numbers_of_steps]
    of_torch = {n: v.detach().numpy() for n, v in nearby_parameters.items()}
    of_torch |= {n: v.numpy() for n, v in nearby.named_buffers()} | {"losses": np.array(losses)}
    spread = max(_distances({name: of_torch[name] for name in expected}, expected).values())
    for name, distance in distances.items():
        # Another order of sums is some roundings in each layer, not one in each weight.
        assert distance <= max(_tolerance(name), DRAWS * spread), (name, distance, spread)


def _step(
    model: nn.Module, entry: Entry, optimizer: torch.optim.Optimizer, batch: Any, numbers: Any
) -> float:
    optimizer.zero_grad()
    loss = in_torch(model, entry, batch, numbers)
    loss.backward()
    optimizer.step()
    return float(loss.item())


DRAWS = 16


def _tolerance(name: str) -> float:
    return TOLERANCE if name == "losses" else 10 * TOLERANCE


def _distances(actual: dict[str, Any], expected: dict[str, Any]) -> dict[str, float]:
    """The distances, relative to the largest entry of each tensor, or to 0.1."""
    return {
        name: float(np.abs(actual[name] - value).max(initial=0.0))
        / float(np.abs(value).max(initial=0.0 if name == "losses" else 0.1))
        for name, value in expected.items()
    }
