"""A model and its loss as ONNX: forward and loss with all gradients, and the forward alone.

torch traces both for any batch size. Parameters and buffers become inputs with their names, buffers
that the forward changes (running statistics) also become outputs, and every random draw becomes an
input of uniform numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import traceback as fx_traceback
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
from torch.utils._python_dispatch import TorchDispatchMode

from closedform.errors import ExportError
from closedform.exporters.torch_ops import TORCH_DTYPES
from closedform.ir import naming
from closedform.ir.types import DType
from closedform.training.tracing.decompositions import RANDOM, decompositions
from closedform.training.tracing.forward import Forward, Loss, batch_names, target_count
from closedform.training.tracing.onnx_program import FREE, Tensors, explained, quiet, write_onnx

LOSS_SCALE = "loss_scale"
"""The state of transforms.dynamic_loss_scaling, which multiplies the loss."""


@dataclass(frozen=True, slots=True)
class Trace:
    """A traced model.

    Attributes:
        step: Inputs ``param.*``, ``buffer.*``, ``batch.*``, ``random.*`` and, on request,
            ``shared.loss_scale``; outputs ``loss``, ``grad.*`` and ``next.buffer.*``.
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
    is_widened: bool = False,
    scale_dtype: DType | None = None,
) -> Trace:
    """Returns the graphs of a model and its loss.

    Args:
        model: Called with the first tensors of the batch.
        loss: Called with the model's output and the other tensors of the batch, whose number is
            that of its other required parameters. Returns a scalar.
        example_inputs: A batch; the first size of each tensor is the batch size, which is free in
            the graph.
        opset: ONNX opset.
        is_widened: Whether tensors of 16 bits are cast to float32 for the model.
        scale_dtype: The dtype of an input ``shared.loss_scale``, by which the loss is multiplied
            before its gradients are computed; None for no such input.

    Raises:
        ExportError: The batch does not match, the model has control flow that depends on data, the
            loss is not a scalar, or an operator has no ONNX form.
    """
    where = f"model {type(model).__name__}"
    names = batch_names(model, loss, example_inputs, where)
    batch = dict(zip(names, example_inputs, strict=True))
    count = len(batch) - target_count(loss, where)
    params, fixed = _parameters(model, where)
    of = Forward(model, loss, count, is_widened, where)
    shared = (
        {} if scale_dtype is None else {LOSS_SCALE: torch.ones((), dtype=TORCH_DTYPES[scale_dtype])}
    )
    is_training = model.training
    try:
        model.train()
        step, changed = _trace_step(of, params, fixed, batch, shared, opset)
        model.eval()
        inputs = dict(list(batch.items())[:count])
        forward = _trace_forward(of, params, fixed, inputs, opset)
    except ExportError:
        raise
    except Exception as error:
        raise explained(error, where) from error
    finally:
        model.train(is_training)
    return Trace(step, forward, _arrays(params), _arrays(fixed), changed)


def _trace_step(
    of: Forward, params: Tensors, fixed: Tensors, batch: Tensors, shared: Tensors, opset: int
) -> tuple[onnx.ModelProto, tuple[str, ...]]:
    random, changed = _probe(of, params, fixed, batch)

    def step(
        params: Tensors, fixed: Tensors, batch: Tensors, random: Tensors, shared: Tensors
    ) -> tuple[torch.Tensor, Tensors, Tensors]:
        leaves = {name: value.detach().requires_grad_() for name, value in params.items()}
        value, after = of.loss_of(leaves, fixed, batch)
        scale = shared[LOSS_SCALE].to(value.dtype) if shared else None
        grads = torch.autograd.grad(value, list(leaves.values()), scale, materialize_grads=True)
        named = dict(zip(leaves, grads, strict=True))
        following = {name: after[name].to(fixed[name].dtype) for name in changed}
        return value.detach(), named, following

    arguments = params, fixed, batch, random, shared
    traced = _traced(step, arguments, uniform_of=lambda given: given[3].values())
    outputs = [
        "loss",
        *(naming.grad(name) for name in params),
        *(naming.following(naming.buffer(name)) for name in changed),
    ]
    return write_onnx(traced, arguments, _KINDS, outputs, opset, of.where), changed


_KINDS = ("param", "buffer", "batch", "random", "shared")


def _trace_forward(
    of: Forward, params: Tensors, fixed: Tensors, batch: Tensors, opset: int
) -> onnx.ModelProto:
    def forward(params: Tensors, fixed: Tensors, batch: Tensors) -> Any:
        return of.output(params, of.copies(fixed), list(batch.values()))

    arguments = params, fixed, batch
    with torch.no_grad():
        traced = _traced(forward, arguments, uniform_of=lambda _: ())
        example = forward(*arguments)
    leaves = torch.utils._pytree.tree_leaves(example)
    outputs = [f"output.{index}" for index in range(len(leaves))] if len(leaves) > 1 else ["output"]
    return write_onnx(traced, arguments, _KINDS[:3], outputs, opset, of.where)


class _RandomOperators(TorchDispatchMode):
    """Records the shape of every random draw."""

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
                f"the random operator {function} is not supported as an input of the graph",
                where=self.where,
                hint="draw the numbers outside and pass them with the batch",
            )
        return function(*args, **(kwargs or {}))


def _probe(
    of: Forward, params: Tensors, fixed: Tensors, batch: Tensors
) -> tuple[Tensors, tuple[str, ...]]:
    """Runs the forward once: examples of the random inputs, names of the buffers that it changes.

    A change is detected by the version counter of the tensor, or by its value, since some kernels
    do not increment the counter.
    """
    before = of.copies(fixed)
    with _RandomOperators(of.where) as seen, torch.no_grad():
        _, after = of.loss_of(params, fixed, batch)
    random = {f"{index}": torch.rand(shape) for index, shape in enumerate(seen.shapes)}
    changed = tuple(
        name
        for name, value in after.items()
        if value._version > 0 or not torch.equal(value, before[name])
    )
    return random, changed


def _traced(
    function: Callable[..., Any],
    arguments: tuple[Tensors, ...],
    uniform_of: Callable[[tuple[Tensors, ...]], Any],
) -> torch.fx.GraphModule:
    """The core operators of a function, with symbolic sizes."""
    given: list[torch.Tensor] = []
    table = decompositions(_Deferred(given))

    def with_random(*arguments: Tensors) -> Any:
        given[:] = uniform_of(arguments)
        return function(*arguments)

    with quiet(), fx_traceback.preserve_node_meta():
        result: torch.fx.GraphModule = make_fx(
            with_random, tracing_mode="symbolic", decomposition_table=table
        )(*_fake(arguments))
    return result


def _fake(arguments: tuple[Tensors, ...]) -> tuple[Tensors, ...]:
    """Tensors without data, with a symbolic batch size."""
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


class _Deferred:
    """Iterates over a list with the content that it has at the first iteration."""

    def __init__(self, items: list[torch.Tensor]) -> None:
        self.items = items

    def __iter__(self) -> Iterator[torch.Tensor]:
        yield from self.items


def _parameters(model: torch.nn.Module, where: str) -> tuple[Tensors, Tensors]:
    """The parameters to train, and all other tensors that the model reads."""
    trained = {n: p.detach() for n, p in model.named_parameters() if p.requires_grad}
    frozen = {n: p.detach() for n, p in model.named_parameters() if not p.requires_grad}
    if not trained:
        raise ExportError(
            "no parameter of the model is trained", where=where, hint="set requires_grad"
        )
    return trained, {**frozen, **dict(model.named_buffers())}


def _arrays(tensors: Tensors) -> dict[str, NDArray[Any]]:
    return {name: _array(tensor.detach().cpu()) for name, tensor in tensors.items()}


def _array(tensor: torch.Tensor) -> NDArray[Any]:
    if tensor.dtype is torch.bfloat16:  # NumPy has none of its own
        bits: NDArray[Any] = np.array(tensor.contiguous().view(torch.int16).numpy())
        return bits.view(DType.BF16.numpy)
    return np.array(tensor.numpy())
