"""An operator of torch and its backward as one ONNX model, by the path of a training step."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from types import MethodType
from typing import Any

import torch
from onnx import ModelProto

from closedform.ir import naming
from closedform.training.to_onnx.batch import read_batch
from closedform.training.to_onnx.forward import Forward
from closedform.training.to_onnx.onnx_program import write_onnx
from closedform.training.to_onnx.symbolic import Symbols, traced_operators

Operation = Callable[..., torch.Tensor]

Sizes = Mapping[str, tuple[int | str, ...]]
"""Shapes by the name of an operand; a size is a number, or the name of a free size."""

OUTPUT, COTANGENT = "y", "g"
"""Names of the result, and of the gradient in it."""

OPSET = 21


def gradient_of(name: str) -> str:
    """Returns the name of the output that is the gradient in an operand."""
    return f"d.{name}"


def export_pullback(
    operation: Operation,
    sizes: Sizes,
    differentiated: Sequence[str],
    *,
    integers: Sequence[str] = (),
    has_cotangent: bool = True,
) -> ModelProto:
    """Returns ``(batch.*, batch.g) -> (y, d.*)``: the operator and the gradients of Σ g·y.

    Args:
        operation: Called with the operands.
        sizes: Shapes of the operands.
        differentiated: Operands in which the gradient is computed.
        integers: Operands that are integers.
        has_cotangent: Whether g is an input, of the shape of the first operand; otherwise it is
            sin y, an operator that no rewriting passes, of a result of any shape.
    """
    free_names = sorted(
        {size for shape in sizes.values() for size in shape if isinstance(size, str)}
    )
    # Distinct odd sizes: no two are equal by chance, and none is divisible by a stride.
    numbers = {name: 5 + 2 * place for place, name in enumerate(free_names)}
    shapes = dict(sizes)
    if has_cotangent:
        shapes[COTANGENT] = next(iter(sizes.values()))
    example = {
        name: torch.zeros(
            [numbers[size] if isinstance(size, str) else size for size in shape],
            dtype=torch.int64 if name in integers else torch.float32,
        )
        for name, shape in shapes.items()
    }
    axes = {
        name: {axis: size for axis, size in enumerate(shape) if isinstance(size, str)}
        for name, shape in shapes.items()
    }
    model, where = _operands(list(example)), f"operator {getattr(operation, '__name__', '')}"
    batch = read_batch(model, None, example, where, dynamic_axes=axes)
    of, symbols = Forward(model, None, batch, False, where), Symbols(batch)

    def compute(_: Any, __: Any, operands: dict[str, torch.Tensor], ___: Any) -> list[torch.Tensor]:
        leaves = {
            name: operands[name].detach().requires_grad_()
            if name in differentiated
            else operands[name]
            for name in sizes
        }
        result = operation(*leaves.values())
        cotangent = operands[COTANGENT] if has_cotangent else torch.sin(result.detach())
        grads = torch.autograd.grad(
            result,
            [leaves[name] for name in differentiated],
            cotangent,
            materialize_grads=True,
        )
        return [result.detach(), *grads]

    kinds = {naming.PARAM: {}, naming.BUFFER: {}, naming.BATCH: example, naming.SHARED: {}}
    graph_module, inputs, _ = traced_operators(compute, kinds, symbols, of, OPSET, has_draws=False)
    outputs = [OUTPUT, *map(gradient_of, differentiated)]
    return write_onnx(graph_module, inputs, outputs, symbols.names, OPSET, where)


def _operands(names: Sequence[str]) -> torch.nn.Module:
    """A module whose arguments have these names."""
    module = torch.nn.Module()

    def forward(self: torch.nn.Module, *operands: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return operands

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter(name, kind) for name in ("self", *names)]
    forward.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    module.forward = MethodType(forward, module)
    return module
