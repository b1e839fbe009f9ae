"""A model and its loss as ONNX: forward and loss with all gradients, and the forward alone.

torch traces both for any batch size. Parameters and buffers become inputs by their names, what the
forward changes in the buffers (running statistics) becomes outputs, and every random draw becomes
an input of uniform numbers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call
from torch.fx import traceback as fx_traceback
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from closedform.errors import ExportError
from closedform.torch.batches import Loss, batch_names, target_count
from closedform.torch.decompositions import RANDOM, decompositions
from closedform.torch.onnx_program import FREE, PLACE, Tensors, explained, quiet, write_onnx


@dataclass(frozen=True, slots=True)
class Trace:
    """What a training step needs of a model.

    Attributes:
        step: Inputs ``param.*``, ``buffer.*``, ``batch.*`` and ``random.*``; outputs ``loss``,
            ``grad.*`` and ``next.buffer.*``.
        forward: Inputs ``param.*``, ``buffer.*`` and those of the batch that the model takes, in
            evaluation mode; outputs ``output`` or ``output.0``, ``output.1``, ….
        params: The parameters that are trained, by name.
        buffers: Buffers and frozen parameters by name.
        changed: Names of the buffers that a step changes.
    """

    step: onnx.ModelProto
    forward: onnx.ModelProto
    params: dict[str, NDArray[Any]]
    buffers: dict[str, NDArray[Any]]
    changed: tuple[str, ...]


def trace(
    model: torch.nn.Module,
    loss: Loss,
    example_inputs: Sequence[torch.Tensor],
    *,
    opset: int = 21,
) -> Trace:
    """Returns the graphs of a model and its loss.

    Args:
        model: Called with the first tensors of the batch.
        loss: Called with the model's output and the other tensors of the batch; how many is told
            by its required parameters. Returns a scalar.
        example_inputs: A batch; the first size of each tensor is the batch size, and any other
            batch size will do later.
        opset: ONNX opset.

    Raises:
        ExportError: The batch does not fit, the model takes decisions on data, the loss is no
            scalar, or an operator has no ONNX form.
    """
    where = f"model {type(model).__name__}"
    names = batch_names(model, loss, example_inputs, where)
    batch = dict(zip(names, example_inputs, strict=True))
    count = len(batch) - target_count(loss, where)
    params, fixed = _parameters(model, where)
    is_training = model.training
    try:
        model.train()
        step, changed = _trace_step(model, loss, params, fixed, batch, count, opset, where)
        model.eval()
        inputs = dict(list(batch.items())[:count])
        forward = _trace_forward(model, params, fixed, inputs, opset, where)
    except ExportError:
        raise
    except Exception as error:
        raise explained(error, where) from error
    finally:
        model.train(is_training)
    return Trace(step, forward, _arrays(params), _arrays(fixed), changed)


def _trace_step(
    model: torch.nn.Module,
    loss: Loss,
    params: Tensors,
    fixed: Tensors,
    batch: Tensors,
    count: int,
    opset: int,
    where: str,
) -> tuple[onnx.ModelProto, tuple[str, ...]]:
    def forward(params: Tensors, fixed: Tensors, batch: Tensors) -> tuple[torch.Tensor, Tensors]:
        after = {name: value.clone() for name, value in fixed.items()}
        values = list(batch.values())
        with sdpa_kernel(SDPBackend.MATH), _places_noted(model):
            output = functional_call(model, (params, after), tuple(values[:count]), strict=True)
            value = loss(output, *values[count:])
        if not isinstance(value, torch.Tensor) or value.dim() != 0:
            got = list(value.shape) if isinstance(value, torch.Tensor) else type(value).__name__
            raise ExportError(
                f"the loss must be a scalar tensor, got {got}",
                where=where,
                hint="reduce it, such as with .mean()",
            )
        return value, after

    random, changed = _look(forward, params, fixed, batch, where)

    def step(
        params: Tensors, fixed: Tensors, batch: Tensors, random: Tensors
    ) -> tuple[torch.Tensor, Tensors, Tensors]:
        leaves = {name: value.detach().requires_grad_() for name, value in params.items()}
        value, after = forward(leaves, fixed, batch)
        grads = torch.autograd.grad(value, list(leaves.values()), materialize_grads=True)
        named = dict(zip(leaves, grads, strict=True))
        return value.detach(), named, {name: after[name] for name in changed}

    arguments = params, fixed, batch, random
    traced = _traced(step, arguments, uniform_of=lambda given: given[3].values())
    outputs = [
        "loss",
        *(f"grad.{name}" for name in params),
        *(f"next.buffer.{name}" for name in changed),
    ]
    return write_onnx(traced, arguments, _KINDS, outputs, opset, where), changed


_KINDS = ("param", "buffer", "batch", "random")


def _trace_forward(
    model: torch.nn.Module,
    params: Tensors,
    fixed: Tensors,
    batch: Tensors,
    opset: int,
    where: str,
) -> onnx.ModelProto:
    def forward(params: Tensors, fixed: Tensors, batch: Tensors) -> Any:
        with sdpa_kernel(SDPBackend.MATH), _places_noted(model):
            return functional_call(model, (params, fixed), tuple(batch.values()), strict=True)

    arguments = params, fixed, batch
    with torch.no_grad():
        traced = _traced(forward, arguments, uniform_of=lambda _: ())
        example = forward(*arguments)
    leaves = torch.utils._pytree.tree_leaves(example)
    outputs = [f"output.{index}" for index in range(len(leaves))] if len(leaves) > 1 else ["output"]
    return write_onnx(traced, arguments, _KINDS[:3], outputs, opset, where)


class _RandomOperators(TorchDispatchMode):
    """Notes the sizes of every random draw."""

    def __init__(self, where: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.where = where
        self.shapes: list[torch.Size] = []

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if function in RANDOM:
            self.shapes.append(args[RANDOM[function]].shape)
        elif torch.Tag.nondeterministic_seeded in function.tags:
            raise ExportError(
                f"the random operator {function} has no form as an input of the graph",
                where=self.where,
                hint="draw the numbers outside and pass them with the batch",
            )
        return function(*args, **(kwargs or {}))


def _look(
    forward: Callable[[Tensors, Tensors, Tensors], tuple[torch.Tensor, Tensors]],
    params: Tensors,
    fixed: Tensors,
    batch: Tensors,
    where: str,
) -> tuple[Tensors, tuple[str, ...]]:
    """Runs the forward once: examples of the random inputs, names of the buffers that it changes.

    A version counter tells of an operator in place, a new value of a kernel that does not count.
    """
    with _RandomOperators(where) as seen, torch.no_grad():
        _, after = forward(params, fixed, batch)
    random = {f"{index}": torch.rand(shape) for index, shape in enumerate(seen.shapes)}
    changed = tuple(
        name
        for name, value in after.items()
        if value._version > 0 or not torch.equal(value, fixed[name])
    )
    return random, changed


def _traced(
    function: Callable[..., Any],
    arguments: tuple[Tensors, ...],
    uniform_of: Callable[[tuple[Tensors, ...]], Any],
) -> torch.fx.GraphModule:
    """The core operators of a function; sizes stay symbols."""
    given: list[torch.Tensor] = []
    table = decompositions(_Later(given))

    def with_random(*arguments: Tensors) -> Any:
        given[:] = uniform_of(arguments)
        return function(*arguments)

    with quiet(), fx_traceback.preserve_node_meta():
        result: torch.fx.GraphModule = make_fx(
            with_random, tracing_mode="symbolic", decomposition_table=table
        )(*_fake(arguments))
    return result


@contextlib.contextmanager
def _places_noted(model: torch.nn.Module) -> Iterator[None]:
    """Notes at each traced operator the path of the module that calls it."""
    meta = fx_traceback.current_meta
    handles, above = [], []

    def enter(path: str) -> Callable[..., None]:
        def hook(*_: Any) -> None:
            above.append(meta.get(PLACE))
            meta[PLACE] = {"module": path}

        return hook

    def leave(*_: Any) -> None:
        meta[PLACE] = above.pop()

    for name, module in model.named_modules():
        place = f"{name or 'the model itself'} ({type(module).__name__})"
        handles.append(module.register_forward_pre_hook(enter(place)))
        handles.append(module.register_forward_hook(leave))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
        meta.pop(PLACE, None)


def _fake(arguments: tuple[Tensors, ...]) -> tuple[Tensors, ...]:
    """Tensors without content, of which only the size of the batch is a symbol."""
    mode = FakeTensorMode(shape_env=ShapeEnv())

    def of(tensor: torch.Tensor, is_free: bool) -> torch.Tensor:
        sizes = [DimDynamic.STATIC] * tensor.dim()
        if is_free:
            sizes[0] = DimDynamic.DYNAMIC
        result: torch.Tensor = mode.from_tensor(
            tensor, symbolic_context=StatelessSymbolicContext(sizes)
        )
        return result

    return tuple(
        {name: of(tensor, kind in FREE) for name, tensor in tensors.items()}
        for kind, tensors in zip(_KINDS, arguments, strict=False)
    )


class _Later:
    """Iterates over a list as it is when the first item is asked for."""

    def __init__(self, items: list[torch.Tensor]) -> None:
        self.items = items

    def __iter__(self) -> Iterator[torch.Tensor]:
        yield from self.items


def _parameters(model: torch.nn.Module, where: str) -> tuple[Tensors, Tensors]:
    """The parameters to train, and all else that the model reads."""
    trained = {n: p.detach() for n, p in model.named_parameters() if p.requires_grad}
    frozen = {n: p.detach() for n, p in model.named_parameters() if not p.requires_grad}
    if not trained:
        raise ExportError(
            "the model has no parameter to train", where=where, hint="set requires_grad"
        )
    return trained, {**frozen, **dict(model.named_buffers())}


def _arrays(tensors: Tensors) -> dict[str, NDArray[Any]]:
    return {name: np.array(tensor.detach().cpu().numpy()) for name, tensor in tensors.items()}
