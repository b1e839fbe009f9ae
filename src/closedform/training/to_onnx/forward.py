"""A model with its loss as functions of tensors."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
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
from closedform.training.to_onnx.tensor_accesses import Substitutes, check_shared_memory, storage_of


class _Joined(torch.nn.Module):
    """A model and its loss as one module, in which a tensor that both hold is one tensor.

    Args:
        model: The model.
        loss: The loss; a part if it is a module.
    """

    def __init__(self, model: torch.nn.Module, loss: Loss | None) -> None:
        super().__init__()
        self.model = model
        if isinstance(loss, torch.nn.Module):
            self.loss = loss

    def forward(self, run: Callable[[], Any]) -> Any:
        return run()


def _name_in_step(name: str) -> str:
    """The name in a step: ``model.w`` is w, and ``loss.w`` stays."""
    return name.removeprefix("model.")


def trained_params(model: torch.nn.Module, loss: Loss | None) -> Tensors:
    """Returns the parameters of a model and its loss that are trained, by their names in a step."""
    return {
        _name_in_step(name): param
        for name, param in _Joined(model, loss).named_parameters()
        if param.requires_grad
    }


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a forward.

    Attributes:
        loss: The loss.
        metrics: Further results of the loss by name.
        buffers: The buffers after the forward, in its dtype.
        params: The trained parameters after the forward, in its dtype.
    """

    loss: torch.Tensor
    metrics: Tensors
    buffers: Tensors
    params: Tensors


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
        copied_params: Names of parameters of which a run has copies: all for the first run, and
            those that it writes to for the others.
        outside_reads: Places in traces that read the memory of a parameter or buffer by a tensor
            that is not the input, by its name.
    """

    model: torch.nn.Module
    loss: Loss | None
    batch: Batch
    is_widened: bool
    where: str
    places: Places = field(default_factory=Places)
    copied_params: set[str] = field(init=False)
    outside_reads: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "copied_params", set(self._parameters()))

    def modules(self) -> list[torch.nn.Module]:
        """The model, and the loss if it is a module."""
        return [self.model, *([self.loss] if isinstance(self.loss, torch.nn.Module) else [])]

    def tensors(self) -> tuple[Tensors, Tensors]:
        """The parameters to train, and all other parameters and buffers, without gradients."""
        params: Tensors = {}
        buffers: Tensors = {}
        parameters = self._parameters()
        for name, value in self.originals().items():
            if name not in parameters:
                buffers[name] = value
                continue
            if value.is_complex() and value.requires_grad:
                raise TrainingExportError(
                    f"the parameter {name!r} is complex",
                    where=self.where,
                    hint="hold its real and imaginary parts as a real parameter with a last "
                    "axis of 2, and compute with torch.view_as_complex of it",
                )
            if value.requires_grad and value._post_accumulate_grad_hooks:
                raise TrainingExportError(
                    f"the parameter {name!r} has a hook that is called after its gradient is "
                    "accumulated, which a step does not call",
                    where=self.where,
                    hint="change the gradient in a hook of Parameter.register_hook, which is part "
                    "of the step, and leave the update to the rule",
                )
            (params if value.requires_grad else buffers)[name] = value.detach()
        check_shared_memory(params, buffers, self.where)
        # Complex buffers (rotary embeddings) are constants: no runtime has inputs of them.
        return params, {n: value for n, value in buffers.items() if not value.is_complex()}

    def originals(self) -> Tensors:
        """The parameters and buffers of the model and its loss themselves, by name."""
        joint_module = _Joined(self.model, self.loss)
        named_tensors = (*joint_module.named_parameters(), *joint_module.named_buffers())
        return {_name_in_step(name): value for name, value in named_tensors}

    def output(self, params: Tensors, buffers: Tensors, tensors: Tensors) -> Any:
        """Returns the model's output; ``buffers`` holds the buffers after it."""
        with self._plain():
            return self._with(params, buffers, lambda: self._call(self.model, tensors))

    def outcome(
        self, params: Tensors, buffers: Tensors, tensors: Tensors, *, is_trained: bool = True
    ) -> Outcome:
        """Returns the loss and the buffers after the forward; ``buffers`` are not changed.

        The loss of a step that is trained has a gradient.
        """
        after, wide_params = self.copies(buffers), dict(params)
        with self._plain():
            result = self._with(wide_params, after, lambda: self._result(tensors))
        value, metrics = self._split(result, is_trained)
        return Outcome(value, metrics, after, wide_params)

    def own_outcome(self, tensors: Tensors) -> Outcome:
        """Returns the loss of the model itself, with its own parameters and buffers."""
        with self._plain():
            result = self._result(tensors)
        value, metrics = self._split(result, is_trained=True)
        return Outcome(value, metrics, self.originals(), trained_params(self.model, self.loss))

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
        seen (``tensor_accesses.Writes``), so that these, most of the memory, need no copy after the
        first run. A trace copies all of them: there is nothing to store, and it writes to what it
        returns.
        """
        uncopied_tensors = self.uncopied_tensors(tensors)
        return {
            name: value.detach()
            if name in uncopied_tensors and not isinstance(value, FakeTensor)
            else value.clone()
            for name, value in tensors.items()
        }

    def leaves(self, params: Tensors) -> Tensors:
        """Returns parameters with gradients that a forward may write to."""
        leaves = {n: value.requires_grad_() for n, value in self.writable(params).items()}
        originals = trained_params(self.model, self.loss)
        substitutes = Substitutes({id(value): leaves[name] for name, value in originals.items()})

        def call(hook: Callable[[torch.Tensor], Any], gradient: torch.Tensor) -> Any:
            with substitutes:  # a hook may read weights
                return hook(gradient)

        # Gradients in the forward pass the hooks of a parameter, too, so that each leaf has them.
        for name, original in originals.items():
            hooks: Mapping[int, Callable[..., Any]] = original._backward_hooks or {}
            for hook in hooks.values():
                leaves[name].register_hook(partial(call, hook))
        return leaves

    def uncopied_tensors(self, *tensors: Tensors) -> Tensors:
        """Returns the tensors that ``writable`` does not copy."""
        return {
            name: value
            for tensors_by_name in tensors
            for name, value in self.only_params(tensors_by_name).items()
            if name not in self.copied_params
        }

    def only_params(self, tensors: Tensors) -> Tensors:
        """Returns the parameters among tensors, trained or not."""
        parameters = self._parameters()
        return {name: value for name, value in tensors.items() if name in parameters}

    def _parameters(self) -> frozenset[str]:
        """The names of all parameters, trained or not."""
        joint_module = _Joined(self.model, self.loss)
        return frozenset(_name_in_step(name) for name, _ in joint_module.named_parameters())

    def _with(self, params: Tensors, buffers: Tensors, run: Callable[[], Any]) -> Any:
        """The result of a run with other parameters and buffers of the model and its loss.

        They do as attributes of modules, and as operands of functions, whatever holds the original.
        Both mappings hold the tensors after the run, in its dtype.
        """
        joint_module = _Joined(self.model, self.loss)
        originals = {
            f"{path}.{name}" if path else name: value
            # Each module once: torch would leave the tensors of a run in one with two paths.
            for path, module in joint_module.named_modules()
            for name, value in (
                *module.named_parameters(recurse=False, remove_duplicate=False),
                *module.named_buffers(recurse=False, remove_duplicate=False),
            )
        }
        names = {id(value): name for name, value in reversed(self.originals().items())}
        substitutes = {
            key: self._wide(value)
            for key, name in names.items()
            if (value := params.get(name, buffers.get(name))) is not None
        }
        for original in originals.values():
            if isinstance(original, torch.nn.Parameter) and id(original) in substitutes:
                # The class of parameters asks for it, such as in get_parameter.
                substitutes[id(original)]._is_param = True
        tensors = {n: substitutes[id(v)] for n, v in originals.items() if id(v) in substitutes}
        memory = {path: storage_of(value) for path, value in tensors.items()}
        with Substitutes(substitutes) as reads:
            try:
                return functional_call(joint_module, tensors, (run,), tie_weights=False)
            finally:  # a forward may assign to a buffer, not only write to it
                for path, value in tensors.items():
                    original, name = originals[path], names[id(originals[path])]
                    if name in params:
                        params[name] = substitutes[id(original)]
                        if storage_of(params[name]) != memory[path]:
                            raise TrainingExportError(
                                f"the forward assigns to .data of the parameter {name!r}, which a "
                                "step cannot follow",
                                where=self.where,
                                hint=f"write to it in place, such as with {name}.clamp_(…) under "
                                "torch.no_grad()",
                            )
                    if name not in buffers:
                        continue
                    buffers[name] = value
                    if value is not substitutes[id(original)] and id(original) in reads.ids:
                        raise TrainingExportError(
                            f"the forward assigns another tensor to the buffer {name!r}, and reads "
                            "the earlier one, too",
                            where=self.where,
                            hint=f"write to it in place, such as with {name}.copy_(…), or read it "
                            "as an attribute of its module only",
                        )

    def _result(self, tensors: Tensors) -> Any:
        """The value that the loss, or the model in its place, returns."""
        output = self._call(self.model, tensors)
        return output if self.loss is None else self._call(self.loss, tensors, output)

    def _call(self, function: Callable[..., Any], tensors: Tensors, *output: Any) -> Any:
        """Calls the model, or the loss with the model's output."""
        wide_tensors = {name: self._wide(value) for name, value in tensors.items()}
        positional, keywords = self.batch.arguments(wide_tensors, is_target=bool(output))
        return function(*output, *positional, **keywords)

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
        # torch, too, computes the gradient of a tensor with axes of one entry.
        if isinstance(value, torch.Tensor) and all(type(n) is int and n == 1 for n in value.shape):
            value = value.reshape(())
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
