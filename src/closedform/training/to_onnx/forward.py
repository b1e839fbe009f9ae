"""A model with its loss as functions of tensors."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.func import functional_call
from torch.utils import _pytree as pytree

from closedform.errors import TrainingExportError
from closedform.training.to_onnx.arrays import NARROW
from closedform.training.to_onnx.batch import Batch, Loss, key_text
from closedform.training.to_onnx.free_counts import FreeCounts
from closedform.training.to_onnx.isolation import plain_kernels, symbolic_lengths
from closedform.training.to_onnx.onnx_program import Tensors
from closedform.training.to_onnx.onnx_registry import quiet
from closedform.training.to_onnx.places import Places

OF_LOSS = "loss."
"""The prefix of parameters and buffers of a loss that is a module."""


def trained_params(model: torch.nn.Module, loss: Loss | None) -> Tensors:
    """Returns the parameters of a model and its loss that are trained, by their names in a step."""
    modules = [model, *([loss] if isinstance(loss, torch.nn.Module) else [])]
    return {
        prefix + name: param
        for module, prefix in zip(modules, ("", OF_LOSS), strict=False)
        for name, param in module.named_parameters()
        if param.requires_grad
    }


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a forward.

    Attributes:
        loss: The loss.
        metrics: Further results of the loss by name.
        buffers: The buffers after the forward, in its dtype.
    """

    loss: torch.Tensor
    metrics: Tensors
    buffers: Tensors


@dataclass(frozen=True, slots=True)
class Forward:
    """A model and its loss.

    Attributes:
        model: The model; its current tensors are not used.
        loss: Called with the model's output and the targets; None if the model computes it.
        batch: The arguments of both.
        is_widened: Whether tensors of 16 bits are cast to float32 for the model.
        where: The model, named in errors.
        places: The place that runs, for errors.
        written_params: Names of parameters that a run has tried to write to: each run has copies.
    """

    model: torch.nn.Module
    loss: Loss | None
    batch: Batch
    is_widened: bool
    where: str
    places: Places = field(default_factory=Places)
    written_params: set[str] = field(default_factory=set)

    def modules(self) -> list[torch.nn.Module]:
        """The model, and the loss if it is a module."""
        return [self.model, *([self.loss] if isinstance(self.loss, torch.nn.Module) else [])]

    def tensors(self) -> tuple[Tensors, Tensors]:
        """The parameters to train, and all other parameters and buffers, without gradients."""
        params: Tensors = {}
        buffers: Tensors = {}
        for module, prefix in zip(self.modules(), ("", OF_LOSS), strict=False):
            for name, param in module.named_parameters():
                if param.is_complex() and param.requires_grad:
                    raise TrainingExportError(
                        f"the parameter {prefix + name!r} is complex",
                        where=self.where,
                        hint="hold its real and imaginary parts as a real parameter with a last "
                        "axis of 2, and compute with torch.view_as_complex of it",
                    )
                (params if param.requires_grad else buffers)[prefix + name] = param.detach()
            buffers |= {prefix + name: value for name, value in module.named_buffers()}
        # Complex buffers (rotary embeddings) are constants: no runtime has inputs of them.
        return params, {n: value for n, value in buffers.items() if not value.is_complex()}

    def output(self, params: Tensors, buffers: Tensors, tensors: Tensors) -> Any:
        """Returns the model's output; ``buffers`` holds the buffers after it."""
        with self._plain():
            return self._call_module(self.model, "", params, buffers, tensors)

    def outcome(
        self, params: Tensors, buffers: Tensors, tensors: Tensors, *, is_trained: bool = True
    ) -> Outcome:
        """Returns the loss and the buffers after the forward; ``buffers`` are not changed.

        The loss of a step that is trained has a gradient.
        """
        after = self.copies(buffers)
        with self._plain():
            result = self._call_module(self.model, "", params, after, tensors)
            if isinstance(self.loss, torch.nn.Module):
                result = self._call_module(self.loss, OF_LOSS, params, after, tensors, result)
            elif self.loss is not None:
                positional, keywords = self.batch.arguments(self._all(tensors), is_target=True)
                result = self.loss(result, *positional, **keywords)
        value, metrics = self._split(result, is_trained)
        return Outcome(value, metrics, after)

    @contextlib.contextmanager
    def _plain(self) -> Iterator[None]:
        """Runs the code of the model and its loss as a trace reads it."""
        with (
            quiet(),
            plain_kernels(),
            symbolic_lengths(self.model, self.loss),
            FreeCounts(self.where, self.places),
            self.places.record_modules(self.model),
        ):
            yield

    def copies(self, buffers: Tensors) -> Tensors:
        """Returns buffers that a forward may write to, in its dtype."""
        return {name: self._wide(value) for name, value in self.writable(buffers).items()}

    def writable(self, tensors: Tensors) -> Tensors:
        """Returns copies of those tensors that a forward may write to, and the others themselves.

        A run writes to buffers without saying so (running statistics). Its writes to parameters are
        seen (``isolation.Writes``), so that these, most of the memory, need no copy. A trace copies
        all of them: there is nothing to store, and it writes to what it returns.
        """
        parameters = self._parameters()
        return {
            name: value.detach()
            if name in parameters
            and name not in self.written_params
            and not isinstance(value, FakeTensor)
            else value.clone()
            for name, value in tensors.items()
        }

    def leaves(self, params: Tensors) -> Tensors:
        """Returns parameters with gradients that a forward may write to."""
        return {n: value.requires_grad_() for n, value in self.writable(params).items()}

    def uncopied_tensors(self, *tensors: Tensors) -> Tensors:
        """Returns the tensors that ``writable`` does not copy."""
        parameters = self._parameters()
        return {
            name: value
            for tensors_by_name in tensors
            for name, value in tensors_by_name.items()
            if name in parameters and name not in self.written_params
        }

    def _parameters(self) -> frozenset[str]:
        """The names of all parameters, trained or not."""
        return frozenset(
            prefix + name
            for module, prefix in zip(self.modules(), ("", OF_LOSS), strict=False)
            for name, _ in module.named_parameters()
        )

    def _call_module(
        self,
        module: torch.nn.Module,
        prefix: str,
        params: Tensors,
        buffers: Tensors,
        tensors: Tensors,
        *first: Any,
    ) -> Any:
        positional, keywords = self.batch.arguments(self._all(tensors), is_target=bool(prefix))
        module_names = {name for name, _ in (*module.named_parameters(), *module.named_buffers())}
        module_tensors = {
            name: params[prefix + name] if prefix + name in params else buffers[prefix + name]
            for name in module_names
            if prefix + name in params or prefix + name in buffers
        }
        module_tensors = {name: self._wide(value) for name, value in module_tensors.items()}
        try:
            return functional_call(
                module,
                module_tensors,
                (*first, *positional),
                keywords,
                strict=len(module_tensors) == len(module_names),
            )
        finally:  # a forward may assign to a buffer, not only write to it
            tensors_after = {prefix + name: value for name, value in module_tensors.items()}
            buffers |= {name: value for name, value in tensors_after.items() if name in buffers}

    def _all(self, tensors: Tensors) -> Tensors:
        return {name: self._wide(value) for name, value in tensors.items()}

    def _wide(self, value: torch.Tensor) -> torch.Tensor:
        return value.float() if self.is_widened and value.dtype in NARROW else value

    def _split(self, result: Any, is_trained: bool) -> tuple[torch.Tensor, Tensors]:
        """The loss and the metrics of what the loss, or the model in its place, returned."""
        value: Any
        rest: Any
        value, rest = _loss_of(result) if self.loss is None else (result, {})
        if self.loss is not None and isinstance(result, tuple | list) and len(result) > 1:
            value, rest = result[0], result[1] if len(result) == 2 else list(result[1:])
        elif self.loss is not None and isinstance(result, Mapping) and "loss" in result:
            value, rest = result["loss"], {k: v for k, v in result.items() if k != "loss"}
        if not isinstance(value, torch.Tensor) or value.dim() != 0:
            got = list(value.shape) if isinstance(value, torch.Tensor) else type(value).__name__
            raise TrainingExportError(
                f"the loss must be a scalar tensor, got {got}",
                where=self.where,
                hint="reduce it, such as with .mean()",
            )
        if is_trained and not value.requires_grad:
            raise TrainingExportError(
                "the loss has no gradient in the parameters",
                where=self.where,
                hint="compute it from the model's output, without argmax, detach or item",
            )
        leaves, _ = pytree.tree_flatten_with_path(rest)
        metrics = {
            ".".join(_path(path)) or "0": leaf.detach()
            for path, leaf in leaves
            if isinstance(leaf, torch.Tensor)
        }
        return value, metrics


def _path(path: Any) -> list[str]:
    return [key_text(key) for key in path]


def _loss_of(output: Any) -> tuple[Any, dict[str, Any]]:
    """The loss that a model computes: its output, its ``loss``, or the first of its outputs."""
    if isinstance(output, Mapping):
        return output.get("loss"), {}
    if isinstance(getattr(output, "loss", None), torch.Tensor):
        return output.loss, {}
    if isinstance(output, tuple | list) and output:
        return output[0], {}
    return output, {}
