"""Kernels of onnxruntime, bound to the memory of torch's tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from closedform.errors import ArgumentError, SessionError
from closedform.ir.graph import Graph
from closedform.runtime.onnx_session import open_session
from closedform.torch.engine.kernels import GRAPH_DTYPES, NamedArguments

_PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}


@dataclass(slots=True)
class OrtKernel:
    """A step as a session of onnxruntime.

    Inputs are read in place. onnxruntime does not specify the order of its writes, so results go
    to buffers of the kernel first, and are then copied to the tensors. States that the graph does
    not have are not changed.
    """

    raw: Any
    inputs: tuple[str, ...]
    buffers: dict[str, Tensor]
    bindings: dict[int, tuple[Any, list[int]]] = field(default_factory=dict)

    def run(self, arguments: NamedArguments) -> None:
        """Performs the step."""
        # An IO binding takes a pointer and a shape, but no strides.
        reads = {name: arguments.reads[name].contiguous() for name in self.inputs}
        addresses = [value.data_ptr() for value in reads.values()]
        # The address of a parameter tells parameters of one kernel apart.
        key = arguments.writes[next(iter(self.buffers))][0].data_ptr()
        entry = self.bindings.get(key)
        # Gradients are new tensors in most steps; with the same addresses the binding is still
        # valid.
        if entry is None or entry[1] != addresses:
            entry = self._bound(reads), addresses
            self.bindings[key] = entry
        device = arguments.reads["step"].device
        if device.type == "cuda":
            # onnxruntime's stream does not wait for torch's.
            torch.cuda.current_stream(device).synchronize()
        self.raw.run_with_iobinding(entry[0])
        entry[0].synchronize_outputs()
        for name, buffer in self.buffers.items():
            for target in arguments.writes[name]:
                target.copy_(buffer)

    def _bound(self, reads: Mapping[str, Tensor]) -> Any:
        binding = self.raw.io_binding()
        for name, value in reads.items():
            _bind(binding.bind_input, name, value)
        for name, value in self.buffers.items():
            _bind(binding.bind_output, name, value)
        return binding


def ort_kernel(
    graph: Graph, rule: str, arguments: NamedArguments, providers: Sequence[str] | None
) -> OrtKernel:
    """Returns the kernel of a graph in onnxruntime, for tensors like these.

    Args:
        graph: The graph.
        rule: The name of the rule, for errors.
        arguments: The tensors.
        providers: The execution providers; None for that of the tensors' device.

    Raises:
        SessionError: onnxruntime does not have the first provider.
    """
    wanted_providers = _requested_providers(arguments.reads["step"].device, providers)
    session = open_session(graph, providers=wanted_providers)
    # A provider that cannot be loaded is left out with a warning.
    if session.raw.get_providers()[0] != wanted_providers[0]:
        raise SessionError(
            f"onnxruntime fell back to {session.raw.get_providers()[0]}, "
            f"expected {wanted_providers[0]}",
            where=f"rule {rule!r}",
        )
    buffers = {
        output.name: torch.empty_like(
            arguments.writes[output.name][0], memory_format=torch.contiguous_format
        )
        for output in graph.outputs
    }
    inputs = tuple(node.name for node in session.raw.get_inputs())
    return OrtKernel(session.raw, inputs, buffers)


def graph_runner(graph: Graph, providers: Sequence[str] | None) -> Callable[[NamedArguments], None]:
    """Returns a function that runs a graph in onnxruntime, on other tensors each time."""
    kernels: list[OrtKernel] = []

    def run(arguments: NamedArguments) -> None:
        if not kernels:
            kernels.append(ort_kernel(graph, graph.name, arguments, providers))
        kernels[0].run(arguments)
        kernels[0].bindings.clear()  # the tensors of the next stage differ

    return run


def _requested_providers(device: torch.device, providers: Sequence[str] | None) -> list[str]:
    """The providers given, or that of a device."""
    return [_PROVIDERS[device.type]] if providers is None else list(providers)


def check_ort_support(param: Tensor, providers: Sequence[str] | None, where: str) -> None:
    """Raises ArgumentError for a parameter whose dtype or device onnxruntime does not support."""
    if param.dtype not in GRAPH_DTYPES:
        raise ArgumentError(
            f"onnxruntime steps parameters of float32 and float64, got {param.dtype}",
            where=where,
            hint='use backend="eager"',
        )
    provider = _PROVIDERS.get(param.device.type)
    if provider is None or (providers is not None and provider not in providers):
        names = list(_PROVIDERS.values()) if providers is None else list(providers)
        raise ArgumentError(
            f"none of the providers {names} reads the memory of device {param.device}",
            where=where,
            hint='use backend="eager", or move the parameter',
        )


def _bind(bind: Any, name: str, value: Tensor) -> None:
    """Binds the memory of a tensor; an empty tensor has none, and any address is valid."""
    address = value.data_ptr() or _ANY_ADDRESS.data_ptr()
    device = value.device
    dtype = str(value.dtype).removeprefix("torch.")
    bind(name, device.type, device.index or 0, dtype, value.shape, address)


_ANY_ADDRESS = torch.zeros(1)
